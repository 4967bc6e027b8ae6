"""One server: what it refuses, and what a refusal must leave as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee, OpenDPNoise, SecureNoise, SeededNoise
from dpcrowd.schemes.messages import EstimateMessages, InfoMessages, Messages
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.tuning import Tuning
from schemes_support import COUNTS, bits, lone_server, make_setting, neighbour_message, watched_noise


def test_slots_are_observed_once_and_in_order() -> None:
    """Two draws for one slot would pay once and reveal twice."""
    server = lone_server()
    with pytest.raises(BadInput, match=r"no slot is open: call observe\(\) first"):
        server.hear()
    server.observe(3, COUNTS)
    with pytest.raises(BadInput, match=r"slot 3 is still open: call hear\(\) before observing slot 4"):
        server.observe(4, COUNTS)
    server.hear()
    for slot in (3, 2):
        with pytest.raises(BadInput, match=rf"slot {slot} was given after slot 3"):
            server.observe(slot, COUNTS)
    wrong: list[Any] = [-1, 4.0, True, "4", None]
    for slot in wrong:
        with pytest.raises(BadInput, match="a slot is a whole number >= 0"):
            server.observe(slot, COUNTS)
    with pytest.raises(BadInput, match="no slot is open"):
        server.hear()
    assert server.pending_message() is None
    server.observe(9, COUNTS)
    assert server.slot == 9


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ([4711, 2, np.nan], "NaN or infinity"),
        ([4711, 2, np.inf], "NaN or infinity"),
        ([3, -4711, 5], "must be >= 0"),
        ([3, 4711.5, 5], "given fractions"),
        ([4711, 2], r"must have shape \(3,\)"),
        ([[4711, 2, 3]], r"must have shape \(3,\)"),
        (4711, r"must have shape \(3,\)"),
        (["4711", "2", "3"], "whole numbers"),
        ([True, False, True], "whole numbers"),
        ([4711 * 10**13, 2, 3], r"at most 2\^52"),
        ([2**52 - 4711, 2**52, 4711], r"add up to less than 2\^53"),
        (np.array([4711, 2, 3], dtype=complex), "whole numbers"),
    ],
)
def test_what_is_no_count_is_refused_without_saying_it(counts: Any, why: str) -> None:
    """A raw count in an error message ends in a log; a refused one must not use up the slot either."""
    server = lone_server()
    with pytest.raises(BadInput, match=why) as refused:
        server.observe(0, counts)
    assert "4711" not in str(refused.value)
    assert server.slot == -1
    assert server.observe(0, COUNTS) is not None


def test_whole_numbers_may_come_in_any_type() -> None:
    """Counts from files arrive as floats, from databases as unsigned numbers: the release must be the same."""
    releases = []
    for kind in (list, np.float32, np.uint64, np.int8):
        server = lone_server()
        server.observe(0, COUNTS if kind is list else np.array(COUNTS, dtype=kind))
        releases.append(bits(server.hear().estimate))
    assert len(set(releases)) == 1


def test_messages_that_do_not_fit_are_refused_and_change_nothing() -> None:
    """A message counted twice, or broadcast from a wrong shape, would corrupt the estimate for good."""
    server, twin = lone_server(), lone_server()
    for one in (server, twin):
        one.observe(0, COUNTS)
    estimates = EstimateMessages(np.ones(1, dtype=np.bool_), np.ones((1, 3)), np.ones((1, 3)))
    said = neighbour_message()
    wrong: list[tuple[dict[int, Messages], str]] = [
        ({0: said}, "server 0 was given its own message as a neighbour's"),
        ({2: estimates}, "server 2 sent EstimateMessages; this scheme hears InfoMessages"),
        ({2: neighbour_message(2)}, r"server 2 sent info_vec of float64\(1, 2\); allowed: float64\(1, 3\)"),
        ({2: said, 1: replace(said, info_mat=np.ones((1, 1)))}, r"server 1 sent info_mat of float64\(1, 1\)"),
        ({2: InfoMessages.stack([said, said])}, r"server 2 sent speaks of bool\(2,\)"),
        ({2: replace(said, info_vec=np.ones((1, 3), dtype=np.float32))}, "server 2 sent info_vec of float32"),
        ({2: replace(said, info_vec=np.array([[1.0, np.nan, 1.0]]))}, "server 2 sent info_vec with NaN or infinity"),
        ({2: replace(said, prior=np.array([[1.0, np.inf, 1.0]]))}, "server 2 sent prior with NaN or infinity"),
        ({2: replace(said, info_mat=np.array([[1.0, -1e-9, 1.0]]))}, "server 2 sent an info_mat that is not positive"),
    ]
    for messages, why in wrong:
        with pytest.raises(BadInput, match=why):
            server.hear(messages)
    assert bits(server.hear({2: neighbour_message()}).estimate) == bits(twin.hear({2: neighbour_message()}).estimate)


def test_wrong_matrices_and_estimates_are_refused_too() -> None:
    """An information matrix that no measurement has would make variances negative; so would a negative variance."""
    setting = make_setting(1, 2, Guarantee.window(8, 3.0), form="matrix")
    noise = SeededNoise([np.random.SeedSequence(1)], 1, 2)
    server = Server(
        make_scheme("dpcrowd-plus"), setting, noise, number=0, share=0.5, max_degree=3, allow_simulated_noise=True
    )
    said = server.observe(0, [40, 10])
    assert isinstance(said, InfoMessages)
    for matrix in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]):
        with pytest.raises(BadInput, match="server 1 sent an info_mat that is not positive semi-definite"):
            server.hear({1: replace(said, info_mat=np.array([matrix]))})
    with pytest.raises(BadInput, match="a prior of some regions"):  # it would be added, and not subtracted
        server.hear({1: replace(said, prior_known=np.array([[False, True]]))})
    assert np.isfinite(server.hear({1: replace(said, info_mat=np.array([[[1.0, 0.5], [0.5, 1.0]]]))}).estimate).all()
    flooded = lone_server("duniform")
    flooded.observe(0, COUNTS)
    good = EstimateMessages(np.ones(1, dtype=np.bool_), np.ones((1, 3)), np.ones((1, 3)))
    for bad in (replace(good, estimate=np.full((1, 3), np.nan)), replace(good, variance=-np.ones((1, 3)))):
        with pytest.raises(BadInput, match="server 1 sent an estimate that is not finite, or a negative variance"):
            flooded.hear({1: bad})
    assert np.isfinite(flooded.hear({1: good}).estimate).all()


@pytest.mark.parametrize("name", ["dpcrowd-plus", "duniform"])
def test_a_message_without_data_changes_nothing(name: str) -> None:
    """Whoever did not sample is silent, whatever its numbers say: a heartbeat is no measurement."""
    released = []
    for others in ({}, {1: np.zeros(1, dtype=np.bool_), 3: np.zeros(1, dtype=np.bool_)}):
        server = lone_server(name)
        said = server.observe(0, COUNTS)
        assert said is not None
        messages = {sender: replace(said, speaks=silent) for sender, silent in others.items()}
        released.append(bits(server.hear(messages).estimate))
    assert released[0] == released[1]


def test_a_scheme_that_works_alone_says_and_hears_nothing() -> None:
    """A message to nobody would be sent by a node all the same; one heard would turn one server's state into two's."""
    for name in ("rescuedp", "uniform", "bd"):
        server = lone_server(name)
        assert server.observe(0, COUNTS) is None
        with pytest.raises(BadInput, match=f"scheme '{name}' works alone and takes no messages; given 1 message"):
            server.hear({1: neighbour_message()})
        assert server.hear().estimate.shape == (3,)


def test_more_neighbours_than_the_step_allows_are_refused() -> None:
    """A server told of too small a degree would take steps that can diverge, silently and for the whole network."""
    server = lone_server(max_degree=1)
    server.observe(0, COUNTS)
    with pytest.raises(BadInput, match="messages of 3 neighbours, too many for its consensus step"):
        server.hear({n: neighbour_message() for n in (1, 2, 3)})
    assert np.isfinite(server.hear({n: neighbour_message() for n in (1, 2)}).estimate).all()


def test_a_silent_server_sends_nothing() -> None:
    """Only who sampled speaks (Algorithm 2): a message without a sample would be a packet that the paper saves."""
    server = lone_server("dpcrowd-plus")
    said = []
    for slot in range(20):
        said.append(server.observe(slot, COUNTS) is not None)
        assert server.hear().sampled.any() == said[-1]
    assert 0 < sum(said) < 20


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"share": 0.0}, "share must be above 0 and at most 1; given 0"),
        ({"share": 1.5}, "share must be above 0 and at most 1; given 1.5"),
        ({"share": float("nan")}, "share must be above 0"),
        ({"beta": 0.2}, "beta = 0.2 can diverge: a server here has up to 3 neighbours"),
        ({"beta": -0.1}, "beta must be a finite number >= 0"),
        ({"number": -1}, "a server's number is a whole number >= 0; given -1"),
        ({"number": 1.5}, "a server's number is a whole number >= 0"),
    ],
)
def test_bad_settings_of_a_server(more: dict[str, Any], why: str) -> None:
    """A step that can diverge, or a share that divides by zero, is refused before the first slot."""
    with pytest.raises(BadInput, match=why):
        lone_server(**more)


class UndeclaredNoise:
    """Noise that does not say whether it is private."""

    def noisy(self, *given: Any, **named: Any) -> Any:
        raise AssertionError("nothing may be drawn")


@pytest.mark.parametrize("noise", [SeededNoise([np.random.SeedSequence(1)], 1, 3), UndeclaredNoise()])
def test_a_server_refuses_noise_of_a_simulation(noise: Any) -> None:
    """The seed of SeededNoise gives every count back; only a caller who says so may have it, and no file can say so."""
    setting = make_setting(1, 3, Guarantee.window(8, 1.0))
    with pytest.raises(BadInput) as refused:
        Server(make_scheme("uniform"), setting, noise, number=0, share=0.5)
    assert str(refused.value) == (
        f"a server was given {type(noise).__name__}, which is not private: anyone who repeats its draws can subtract "
        "them. Give it SecureNoise(); in a test or a simulation, where no real counts are read, set "
        "allow_simulated_noise=True."
    )
    Server(make_scheme("uniform"), setting, noise, number=0, share=0.5, allow_simulated_noise=True)
    for private in (SecureNoise(), OpenDPNoise()):
        Server(make_scheme("uniform"), setting, private, number=0, share=0.5).observe(0, [1, 2, 3])


def test_a_server_is_one_and_not_the_centre() -> None:
    """A setting for a whole network, or a scheme that needs one, cannot run in one server."""
    with pytest.raises(BadInput, match="a server's setting is for 1 server; given 2"):
        Server(
            make_scheme("uniform"),
            make_setting(2, 3, Guarantee.window(8, 1.0)),
            watched_noise(),
            number=0,
            share=0.5,
            allow_simulated_noise=True,
        )
    with pytest.raises(BadInput, match="'central' needs every server's samples in one place"):
        lone_server("central")


def test_the_step_follows_the_degree() -> None:
    """beta = 1/(2 (1 + max_degree)): given as a degree or as a number, the consensus must pull equally."""
    released = []
    for more in ({"max_degree": 3}, {"max_degree": 3, "beta": 1 / 8}, {"max_degree": 1, "beta": None}):
        server = lone_server(**more)
        for slot in (0, 1):
            server.observe(slot, COUNTS)
            release = server.hear({2: neighbour_message()})
        released.append(bits(release.estimate))
    assert released[0] == released[1] != released[2]


def test_a_block_begins_even_if_its_first_slot_is_skipped() -> None:
    """DPCrowdW that waited for a multiple of w would sample nothing for a whole block after one missed slot."""
    scheme = make_scheme("dpcrowd-w")
    setting = make_setting(1, 3, Guarantee.window(8, 3.0), tuning=Tuning(sample_fraction=0.25, xi=1e9))
    server = Server(scheme, setting, watched_noise(), number=0, share=0.5, allow_simulated_noise=True)
    sampled = []
    for slot in [*range(8), *range(9, 16), *range(33, 40)]:
        server.observe(slot, COUNTS)
        if server.hear().sampled.any():
            sampled.append(slot)
    assert [sum(first <= slot < first + 8 for slot in sampled) for first in (0, 8, 32)] == [2, 2, 2]
