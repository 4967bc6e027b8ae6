"""Which schemes are compared where: relay and "everything at once" beside those of the paper."""

from __future__ import annotations

from dpcrowd.experiments.figures import FIGURES
from dpcrowd.experiments.figures.rosters import AT_ONCE, RELAY, STYLES, fixed, regions, single, with_at_once
from dpcrowd.experiments.points.point import Point
from experiments_support import tiny_plan

PLAN = tiny_plan()
WITHOUT_RELAY = {"error-analysis"}


def test_every_figure_that_compares_schemes_has_relay_and_its_limit() -> None:
    """A reader would not see how the scheme that we recommend does where the paper's are compared."""
    for figure in FIGURES:
        for sweep in figure.sweeps(PLAN):
            has = {RELAY.label, AT_ONCE.label} <= set(sweep.labels)
            assert has != (figure.name in WITHOUT_RELAY), figure.name
            if has:
                x = [[at for at, _ in sweep.of(label)] for label in (RELAY.label, AT_ONCE.label)]
                assert x[0] == x[1], f"{figure.name}: one line ends before the other"
        assert "ours, not the paper's" in figure.about or "Relay has no line here" in figure.about


def test_everything_at_once_is_a_point_of_its_own() -> None:
    """In the points of the others it would change their keys, and stored results would be simulated again."""
    points = [(0.1, Point("linear", single("dpcrowd"))), (1.0, Point("linear", fixed(5)))]
    more = with_at_once(points)
    assert more[:2] == tuple(points)
    assert more[2:] == ((0.1, Point("linear", (AT_ONCE,))),), "and only beside points with relay"


def test_both_ledgers_share_one_point() -> None:
    """Relay is on the sound ledger in either column: the same simulation would be run twice."""
    points = [with_at_once([(1.0, Point("multi-linear", regions(), accounting=a))])[1] for a in ("sound", "per-region")]
    assert points[0] == points[1]


def test_lines_that_are_not_the_papers_say_so() -> None:
    """A legend with relay among the paper's schemes would credit the paper with it."""
    for label in (RELAY.label, AT_ONCE.label):
        assert "(ours)" in STYLES[label].name


def test_the_figure_of_a_partition_says_for_whom_epsilon_holds() -> None:
    """Its servers sample in different slots: read as a promise of the network, epsilon would be 50 times too small."""
    figure = next(figure for figure in FIGURES if figure.name == "partition")
    assert "ε holds for users who stay at one server." in figure.about
    assert "epsilon_paid_roaming" in figure.about
    assert "as a whole" not in figure.about
