"""A server that leaves slots out: they pass as slots without a sample do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.ahead import predict_bank_ahead
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.learning import beliefs_of, reset_bank
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from schemes_support import COUNTS, bits, course_model, make_setting, watched_noise

COURSE = course_model(len(COUNTS))
STAYING = {"observation": "binomial", "turnover": 0.02}
cases = pytest.mark.parametrize(
    ("name", "guarantee", "more"),
    [
        ("dpcrowd-w", Guarantee.window(8, 3.0), {}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"learn": True}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"form": "matrix"}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"observation": "binomial"}),
        ("dpcrowd-plus", Guarantee.window(8, 3.0), {"learn": True}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"model": COURSE, "observation": "binomial"}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"learn": True, **STAYING}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"model": COURSE, **STAYING}),
        ("dpcrowd-w", Guarantee.window(8, 3.0), {"model": COURSE, "learn": True, **STAYING}),
        ("dpcrowd-plus", Guarantee.window(8, 3.0), {"model": COURSE, "learn": True, **STAYING}),
    ],
    ids=[
        *("plain", "learn", "matrix", "binomial", "plus", "course", "staying", "course-staying"),
        *("course-learn-staying", "plus-course-learn-staying"),
    ],
)


def make(name: str, guarantee: Guarantee, more: dict[str, Any]) -> Server:
    setting = make_setting(1, len(COUNTS), guarantee, **more)
    return Server(
        make_scheme(name), setting, watched_noise(), number=0, share=0.5, max_degree=3, allow_simulated_noise=True
    )


def sampled(name: str, guarantee: Guarantee, more: dict[str, Any]) -> Server:
    """A server after its first slot."""
    server = make(name, guarantee, more)
    server.observe(0, COUNTS)
    server.hear()
    return server


@cases
def test_skipped_slots_are_predicted_one_by_one(name: str, guarantee: Guarantee, more: dict[str, Any]) -> None:
    """They counted as one: after 50 slots without a record a server was as certain as after the first.

    What is remembered beside the filter did so for longer: of a crowd that moves on, of users who stay.
    """
    one, other = (sampled(name, guarantee, more) for _ in range(2))
    for slot in range(1, 31):
        one.observe(slot, None)
        passed = one.hear()
    other.observe(30, None)
    skipped = other.hear()
    assert skipped.estimate == pytest.approx(passed.estimate, rel=1e-12)
    assert skipped.variance == pytest.approx(passed.variance, rel=1e-9)


@cases
def test_of_very_many_skipped_slots_the_last_ones_pass_one_by_one(
    name: str, guarantee: Guarantee, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was years ahead would hold the server up; and between two samples nothing may be drawn."""
    server, opened = sampled(name, guarantee, more), list[int]()
    open_it = server._open

    def watched(slot: int, *given: Any, **how: Any) -> None:
        opened.append(slot)
        open_it(slot, *given, **how)

    monkeypatch.setattr("dpcrowd.schemes.server._MOST_PASSED", 5)
    monkeypatch.setattr(server, "_open", watched)
    server.observe(1_000, None)
    assert opened == [995, 996, 997, 998, 999, 1_000]
    assert np.isfinite(server.hear().variance).all()
    server.observe(1_010, None)
    assert not server.hear().sampled.any()
    assert opened[-6:] == [1_005, 1_006, 1_007, 1_008, 1_009, 1_010]


@cases
def test_an_open_slot_after_skipped_ones_survives_a_restart(
    name: str, guarantee: Guarantee, more: dict[str, Any]
) -> None:
    """Filters that learn predict again when they fuse: without the number of skipped slots, by one slot."""
    server = sampled(name, guarantee, more)
    server.observe(20, None)
    again = make(name, guarantee, more)
    again.restore(server.save())
    first, second = server.hear(), again.hear()
    assert bits(first.estimate) == bits(second.estimate)
    assert bits(first.variance) == bits(second.variance)
    for one in (server, again):
        one.observe(21, None)
    assert bits(server.hear().variance) == bits(again.hear().variance)


@pytest.mark.parametrize(("name", "more"), [("kalman-uniform", {}), ("kalman-uniform", {"learn": True}), ("dfast", {})])
def test_schemes_that_read_every_slot_know_that_they_have_skipped_some(name: str, more: dict[str, Any]) -> None:
    """What is known after many slots counts less beside the new counts."""
    guarantee = Guarantee.finite(1000, 30.0) if name == "dfast" else Guarantee.window(8, 3.0)
    before = []
    for slot in (1, 50):
        server = sampled(name, guarantee, more)
        server.observe(slot, COUNTS)
        assert server._pending is not None
        before.append(server._pending[0].prior_var)
    assert (before[1] > before[0] + 40.0 * server.setting.model.noise_var).all()


@pytest.mark.parametrize("name", ["kalman-uniform", "dfast", "uniform", "bd", "ba"])
def test_schemes_that_read_every_slot_open_no_slot_that_was_left_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would decide on counts of nobody in those slots, and release what follows from them."""
    guarantee = Guarantee.finite(1000, 30.0) if name == "dfast" else Guarantee.window(8, 3.0)
    server, opened = sampled(name, guarantee, {}), list[int]()
    open_it = server._open

    def watched(slot: int, *given: Any, **how: Any) -> None:
        opened.append(slot)
        open_it(slot, *given, **how)

    monkeypatch.setattr(server, "_open", watched)
    server.observe(5, COUNTS)
    assert opened == [5]


def test_after_a_very_long_time_filters_that_learn_begin_anew() -> None:
    """Slot by slot, a clock that was years ahead would hold the server up."""
    model = ProcessModel.of(1.0, [100.0, 25.0])
    beliefs = beliefs_of(model)
    bank = reset_bank(np.array([[500.0, 40.0]]), np.ones((1, 2)), beliefs)
    mean, var = combined(predict_bank_ahead(bank, model, beliefs, 10**9), beliefs)
    assert mean == pytest.approx(np.array([[500.0, 40.0]]))
    assert (var > 10**9 * model.noise_var).all()
    one_by_one, at_once = (combined(predict_bank_ahead(bank, model, beliefs, k), beliefs)[1] for k in (1000, 1001))
    assert (at_once > 0.5 * one_by_one).all()


def test_users_who_left_in_skipped_slots_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long absence deviations counted as if the users of the last sample were all there but for one slot's."""
    more: dict[str, Any] = {"model": COURSE, "learn": False, "observation": "binomial", "turnover": 0.2}
    common = []
    for most in (0, 100):
        monkeypatch.setattr("dpcrowd.schemes.server._MOST_PASSED", most)
        server = sampled("dpcrowd-w", Guarantee.window(4, 3.0), more)
        server.observe(8, None)
        server.hear()
        common.append(server._state.staying.cross)
    assert (common[1] > 0.0).all()
    assert common[0] == pytest.approx(common[1], rel=1e-6)
