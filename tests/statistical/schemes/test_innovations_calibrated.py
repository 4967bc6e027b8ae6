"""The running calibration tells a right model from a wrong one, in every scheme with measurements of other servers."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.calibration import Calibration, CalibrationWindow
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.seeded_noise import SeededNoise
from dpcrowd.schemes.base import Scheme, Setting
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from relay_support import Network

SHARES = np.array([0.5, 0.25, 0.25])
REGIONS, SLOTS, BURN_IN = 4, 200, 20
FEW = 60  # slots, where bits are compared
Form = Literal["diagonal", "matrix"]


def setting_of(name: str, number: int, claimed: float, form: Form, *, learn: bool) -> tuple[Scheme, Setting]:
    model, guarantee = ProcessModel.of(1.0, [claimed] * REGIONS), Guarantee.window(4, epsilon=2.0)
    if name == "relay":
        phases = np.array([0, 1, 2])
        network = Network(SHARES, model, guarantee, 2, phases, observation="binomial", form=form, learn=learn)
        return network.scheme(), network.setting(number)
    setting = Setting(1, model, guarantee, observation="binomial", form=form, learn=learn)
    return make_scheme(name), setting


@cache
def run(name: str, claimed: float, form: Form = "diagonal", *, learn: bool = False, slots: int = SLOTS) -> Calibration:
    """Three servers that hear one another; the crowd changes with variance 400, `claimed` is what the model says."""
    rng = np.random.default_rng(11)
    servers = []
    for number in range(3):
        scheme, setting = setting_of(name, number, claimed, form, learn=learn)
        noise = SeededNoise([np.random.SeedSequence(5)], servers=3, regions=REGIONS, only=number)
        options = {"number": number, "share": float(SHARES[number]), "max_degree": 2}
        servers.append(Server(scheme, setting, noise, allow_simulated_noise=True, **options))  # type: ignore[arg-type]
    truth, window = np.full(REGIONS, 2000.0), CalibrationWindow(REGIONS, length=slots)
    for slot in range(slots):
        truth = truth + rng.normal(0, 20, REGIONS)
        counts = [rng.binomial(truth.astype(int), share) for share in SHARES]
        messages = {one.number: one.observe(slot, count) for one, count in zip(servers, counts, strict=True)}
        for one in servers:
            one.hear({number: message for number, message in messages.items() if message and number != one.number})
        if slot > BURN_IN:
            window.add(slot, servers[0].innovations)
    return window.summary()


each_scheme = pytest.mark.parametrize("name", ["relay", "dpcrowd-plus", "dpcrowd-w"])


@each_scheme
def test_a_right_model_is_calibrated_and_a_wrong_one_is_not(name: str) -> None:
    """This is what the number is for: 95% inside where Q is right, clearly fewer where it is a hundredth of it."""
    right, wrong = (run(name, claimed) for claimed in (400.0, 4.0))
    assert 0.92 < right.total_coverage < 0.98
    assert 0.8 < right.total_mean_square < 1.25
    assert wrong.total_coverage < 0.9
    assert wrong.total_mean_square > 1.5
    assert int(right.values.sum()) >= 300


@each_scheme
def test_full_covariances_are_judged_alike(name: str) -> None:
    """Without correlations between regions both forms are one filter: the number must not depend on the form."""
    diagonal, matrix = (run(name, 400.0, form, slots=FEW) for form in ("diagonal", "matrix"))
    assert (matrix.values == diagonal.values).all()
    assert matrix.total_coverage == diagonal.total_coverage
    assert matrix.total_mean_square == pytest.approx(diagonal.total_mean_square, rel=1e-9)


@pytest.mark.parametrize("name", ["relay", "dpcrowd-plus"])
def test_filters_that_learn_are_judged_by_what_they_have_learned(name: str) -> None:
    """Their prior is the mean of several filters; that of the model alone would be called too narrow for ever."""
    learned, fixed = (run(name, 4.0, learn=learn) for learn in (True, False))
    assert learned.total_coverage > max(0.91, fixed.total_coverage + 0.04)
