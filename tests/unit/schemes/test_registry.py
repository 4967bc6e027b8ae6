"""Schemes by name: every name of the command line, and one clear line for everything that does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.schemes.central import Central
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.registry import SCHEMES, groups_regions, make_scheme, staggered_interval, takes_interval
from dpcrowd.schemes.uniform import Uniform

NAMES = (
    "non-private central fast dfast dpcrowd dpcrowd-w dpcrowd-plus rescuedp drescuedp bd ba dbd dba pegasus dpegasus "
    "uniform sample duniform dsample kalman-uniform dkalman-uniform relay past"
).split()


def test_every_name_makes_its_scheme() -> None:
    """A scheme that is missing here cannot be simulated; `dpcrowd schemes` shows the four cells of each."""
    assert list(SCHEMES) == NAMES
    for name in NAMES:
        scheme = make_scheme(name)
        assert scheme.name == name
        assert len(scheme.summary) == 4
        assert scheme.kinds <= {"finite", "window"}
        assert {"finite": ["finite"], "window": ["window"], "both": ["finite", "window"], "none": []}[
            scheme.summary[3]
        ] == sorted(scheme.kinds)


def test_who_may_run_live() -> None:
    """A live node runs the three schemes of the paper's own kind and relay; a baseline there would be a mistake."""
    assert [name for name in NAMES if SCHEMES[name].live] == ["dpcrowd", "dpcrowd-w", "dpcrowd-plus", "relay"]


def test_who_hears_whom() -> None:
    """The driver asks each scheme who hears its servers; D- schemes flood, the paper's own are one hop."""
    reach = {name: make_scheme(name).reach for name in NAMES}
    one_hop = {"non-private", "dpcrowd", "dpcrowd-w", "dpcrowd-plus"}
    for name in NAMES:
        flooded = name.startswith("d") and not name.startswith("dpcrowd")
        expected = "one-hop" if name in one_hop else "flooding" if flooded else "alone"
        assert reach[name] == (name if name in ("central", "relay") else expected)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("dpcrwod", {}, "unknown scheme 'dpcrwod'. Did you mean 'dpcrowd'"),
        ("DPCrowd+", {}, "unknown scheme .* Did you mean 'dpcrowd"),
        ("", {}, "unknown scheme ''"),
        (
            "uniform",
            {"interval": 5},
            "scheme 'uniform' takes no sampling interval; these do: central, fast, dfast, dpcrowd",
        ),
        ("dpcrowd-plus", {"interval": 5}, "takes no sampling interval"),
        ("dpcrowd", {"interval": 0}, "sampling interval must be a whole number of slots >= 1; given 0"),
        ("dpcrowd", {"interval": 2.5}, "sampling interval must be a whole number"),
        ("dpcrowd", {"sampling": "staggered"}, "sampling 'staggered' needs an interval"),
        ("central", {"sampling": "lockstep"}, "sampling 'lockstep' needs an interval"),
        ("dfast", {"sampling": "adaptive", "interval": 3}, "sampling 'adaptive' takes no interval"),
        ("fast", {"sampling": "fixd", "interval": 3}, "unknown sampling 'fixd'. Did you mean 'fixed'"),
        ("rescuedp", {"grouping": "dynamik"}, "unknown grouping 'dynamik'. Did you mean 'dynamic'"),
        ("central", {"grouping": "some"}, "unknown grouping 'some'"),
        ("drescuedp", {"split": "half"}, "unknown split 'half'"),
        ("dpcrowd-w", {"blocks": "third"}, "unknown budget of a block 'third'"),
        ("uniform", {"grouping": "none"}, "scheme 'uniform' has no option 'grouping'. Allowed: none"),
        ("duniform", {"kwargs": 1}, "scheme 'duniform' has no option 'kwargs'. Allowed: none"),
        ("non-private", {"epsilon": 1}, "scheme 'non-private' has no option 'epsilon'. Allowed: none"),
        ("dpcrowd", {"grouping": "none"}, "has no option 'grouping'. Allowed: interval, sampling"),
        ("central", {"epsilon": 1}, "scheme 'central' has no option 'epsilon'. Allowed: grouping, interval, sampling"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(name: str, options: dict[str, Any], why: str) -> None:
    """A traceback from inside a constructor tells a user nothing."""
    with pytest.raises(BadInput, match=why) as refused:
        make_scheme(name, **options)
    assert "\n" not in str(refused.value)


def test_options_that_are_none_are_left_out() -> None:
    """The command line passes every option it has; those that were not given must not disturb a scheme."""
    assert make_scheme("uniform", interval=None, sampling=None, grouping=None).name == "uniform"


def test_an_interval_alone_means_fixed_sampling() -> None:
    """`--interval 5` on the command line is the paper's fixed sampling, for D- schemes and Central too."""
    assert [name for name in NAMES if takes_interval(SCHEMES[name])] == [
        "central",
        "fast",
        "dfast",
        "dpcrowd",
        "dpcrowd-w",
        "relay",
    ]
    scheme: Any = make_scheme("dfast", interval=5)
    assert (scheme.inner.sampling, scheme.inner.interval) == ("fixed", 5)
    central: Any = make_scheme("central", interval=5)
    assert (central.sampling, central.interval) == ("fixed", 5)
    relay: Any = make_scheme("relay", interval=5)
    assert relay.interval == 5
    with pytest.raises(BadInput, match="a schedule of its own, staggered for pinned users"):
        make_scheme("relay", sampling="fixed")


def test_who_needs_phases_and_who_groups() -> None:
    """The simulator spreads phases, and calls intervals uncalibrated, by what these two say."""
    for name in ("dpcrowd", "dfast", "central", "dpcrowd-w"):
        assert staggered_interval(make_scheme(name, sampling="staggered", interval=4)) == 4
        assert staggered_interval(make_scheme(name, interval=4)) is None
    assert staggered_interval(make_scheme("uniform")) is None
    assert [name for name in NAMES if groups_regions(make_scheme(name))] == [
        "central", "dpcrowd-plus", "rescuedp", "drescuedp",
    ]  # fmt: skip
    assert not groups_regions(make_scheme("drescuedp", grouping="none"))
    assert not groups_regions(Central(grouping="none"))
    assert not groups_regions(make_scheme("central", interval=3))


def test_flooding_wraps_only_schemes_that_work_alone() -> None:
    """A scheme that already fuses its neighbours' data would count it again in the average."""
    assert Flooding(Uniform()).inner.name == "uniform"
    with pytest.raises(BadInput, match="flooding wraps schemes that work alone; 'dpcrowd' hears one-hop"):
        Flooding(make_scheme("dpcrowd"))
    with pytest.raises(BadInput, match="flooding needs a scheme to wrap"):
        Flooding()
