"""The verdict on a node's intervals, by what it had expected of other servers. Nothing here has seen a raw count.

To call intervals right takes the values of `Calibration.needed`. To call them too narrow takes as many, or evidence: a
coverage that would be rarer than `CHANCE` if 90% of all values were inside, whatever the values of one slot have in
common (`filters.calibration`). A network whose shares are wrong shows that in a few dozen values.

One region may be wrong where all together are right. It is named as soon as its own values are evidence in the same
sense, with a chance of `CHANCE` for all regions together.

Records of suspected servers are not among the values. If these servers have a considerable part of the crowd, nobody
can say whether they are wrong or the others, and the values that are left say little: the intervals are then called too
narrow if those values show it, and otherwise nothing.

If all other servers are suspected, no more values come. An honest server is hardly ever suspected, and not all of them:
the shares or the model are wrong, so that intervals are called too narrow by the values that there were, however few.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import counted
from dpcrowd.filters.calibration import BOUND, LONGEST, Calibration, RegionEvidence
from dpcrowd.node.api.views import LearnedShare, QualityView, RegionQuality, Verdict
from dpcrowd.node.config import NetworkConfig
from dpcrowd.node.slots import SlotClock, rfc3339

__all__ = ["SuspectedServers", "quality"]

MIN_COVERAGE = 0.9
"""Intervals are called too narrow below this share of innovations within 1.96 standard deviations."""
CHANCE = 0.008
"""With fewer values, intervals are called too narrow if so few would be inside with less than this probability. Two
slots in which nothing is inside (0.01) are no evidence yet, a third one is. It is looked at in every slot; with the
usual 94% inside, and values of a slot that are always wrong together, about one start in 1,500 is called so
(simulated with one and four values per slot)."""
MIN_CALIBRATION = 0.5
"""Intervals are called too wide below this mean square of the innovations."""

MAX_CALIBRATION = 1.6
"""Above this mean square some innovations are far off, also where 95% are within 1.96: that of Laplace noise is 1."""

_NAMED_REGIONS = 3

MOST_SUSPECTED = 0.1
"""Part of the shares from which on suspected servers leave no verdict but `narrow`. If their shares are wrong by half,
those of the others are wrong by a ninth of that, about 6%: as much as intervals often are."""


@dataclass(frozen=True)
class SuspectedServers:
    """The suspected servers, whose records are not compared.

    names   of these servers
    share   their part of all public shares, in the region where it is largest
    server  the name of this server, which may be one of them
    all_others  whether all servers but this one are suspected, so that nothing is compared
    """

    names: Sequence[str] = ()
    share: float = 0.0
    server: str = ""
    all_others: bool = False

    @classmethod
    def of(cls, network: NetworkConfig, names: Collection[str], server: str) -> SuspectedServers:
        """Return those of a network with these names."""
        by_server = np.array([one.counted_shares(network.regions) for one in network.servers])
        suspected = [one.name in names for one in network.servers]
        share = float((by_server[suspected].sum(axis=0) / by_server.sum(axis=0)).max())
        others = {one.name for one in network.servers} - {server}
        all_others = bool(others) and others <= set(names)
        return cls([one.name for one in network.servers if one.name in names], share, server, all_others)

    @property
    def is_considerable(self) -> bool:
        """Whether they count so many people that the others alone say little."""
        return self.share >= MOST_SUSPECTED

    @property
    def text(self) -> str:
        """A sentence that names them; empty: there are none."""
        if not self.names:
            return ""
        names = [f"{name} (this server)" if name == self.server else name for name in self.names]
        return (
            f" Records of {', '.join(names)}, with {self.share:.0%} of the shares, are not among these values: they "
            "are suspected, since they disagree with those of the others."
        )


_NOBODY = SuspectedServers()


def quality(
    calibration: Calibration,
    regions: Sequence[str],
    scheme: str,
    *,
    judges_others: bool,
    servers: Sequence[str] = (),
    learned: tuple[Floats, Floats] | None = None,
    learned_slot: int | None = None,
    clock: SlotClock | None = None,
    left_out: SuspectedServers = _NOBODY,
) -> QualityView:
    """Return the running calibration of a node.

    judges_others  whether the scheme receives measurements of others at all
    learned        shares of the servers by region, (m, d), that were learned, and their deviations
    learned_slot   up to which they were learned; None: no slot is final yet
    left_out       servers whose records are not compared
    clock          says when a slot opens; None: the text names its number only
    """
    values = calibration.total_values
    coverage, mean_square = _rounded(calibration.total_coverage), _rounded(calibration.total_mean_square)
    verdict, text, caveats = _verdict(calibration, left_out, _when(calibration, clock, left_out))
    narrow = calibration.narrow_regions(MIN_COVERAGE, CHANCE)
    if narrow and verdict != "narrow" and calibration.evidence is not None:
        text += _of_regions(calibration.evidence, regions, narrow)
        caveats = [*caveats, "regions"]
    enough_at = None if left_out.all_others else calibration.enough_at
    return QualityView(
        verdict=verdict,
        caveats=caveats,
        suspected=list(left_out.names),
        suspected_share=round(left_out.share, 4),
        text=text if judges_others else f"servers of the scheme '{scheme}' receive no measurements of one another.",
        coverage=coverage,
        calibration=mean_square,
        values=values,
        sums=calibration.sums,
        records=calibration.records,
        slots=calibration.slots,
        window=calibration.window,
        needed=calibration.needed,
        verdict_slot=None if enough_at is None or math.isinf(enough_at) else int(enough_at),
        since_slot=calibration.since,
        regions=[
            RegionQuality(
                region=name,
                values=int(calibration.values[place]),
                calibration=_rounded(calibration.mean_square[place]),
                coverage=_rounded(calibration.coverage[place]),
                narrow=place in narrow,
            )
            for place, name in enumerate(regions)
        ],
        learned_shares=[] if learned is None else _learned_shares(servers, regions, learned_slot, *learned),
    )


def _of_regions(evidence: RegionEvidence, regions: Sequence[str], narrow: Sequence[int]) -> str:
    """Return a sentence on regions whose own values show that intervals are too narrow there."""
    worst = sorted(narrow, key=lambda place: float(evidence.coverage[place]))
    shown = [
        f"{evidence.coverage[place]:.0%} of {int(evidence.values[place]):,} values in {regions[place]}"
        for place in worst[:_NAMED_REGIONS]
    ]
    more = f", and too few in {counted(len(worst) - len(shown), 'other region')}" if len(worst) > len(shown) else ""
    where = counted(len(worst), "region")
    return (
        f" Intervals are too narrow in {where}, however: since slot {evidence.since} only {', '.join(shown)} were "
        f"inside{more}."
    )


def _learned_shares(
    servers: Sequence[str], regions: Sequence[str], slot: int | None, shares: Floats, deviations: Floats
) -> list[LearnedShare]:
    return [
        LearnedShare(
            server=server,
            region=region,
            share=round(float(shares[number, place]), 6),
            deviation=round(float(deviations[number, place]), 6),
            slot=slot,
        )
        for number, server in enumerate(servers)
        for place, region in enumerate(regions)
    ]


def _when(calibration: Calibration, clock: SlotClock | None, left_out: SuspectedServers) -> str:
    """Return a sentence that says when there will be enough values for a verdict."""
    if left_out.all_others:
        return "No more come while all other servers are suspected."
    slot = calibration.enough_at
    if slot is None:
        return "None has come yet, so it is not known when that will be."
    if math.isinf(slot):
        return (
            f"They come so rarely that the last {LONGEST:,} slots, which are looked at, will not hold as many. More "
            "samples, or servers, would change that."
        )
    at = "" if clock is None else f" ({rfc3339(clock.opens(int(slot)))})"
    return f"At this rate that will be about slot {int(slot)}{at}."


def _verdict(calibration: Calibration, left_out: SuspectedServers, when: str) -> tuple[Verdict, str, list[str]]:
    """Return the verdict, sentences on it that name who is left out, and what limits it."""
    verdict, text, caveats = _verdict_on_values(calibration, when, nobody_agrees=left_out.all_others)
    if not left_out.is_considerable:
        return verdict, text + left_out.text, caveats
    if verdict in ("calibrated", "wide"):
        share = f"{calibration.total_coverage:.0%} of {calibration.total_values} values of other servers"
        verdict, text = (
            "unknown",
            (
                f"nobody can say whether the intervals are right: {share} were within {BOUND} standard deviations (95% "
                "should be), but servers with a considerable part of the crowd are suspected."
            ),
        )
    wrong = " If their shares in network.toml are wrong, so are these estimates, by more than their intervals say."
    return verdict, text + left_out.text + wrong, ["suspected"]


def _verdict_on_values(
    calibration: Calibration, when: str, *, nobody_agrees: bool = False
) -> tuple[Verdict, str, list[str]]:
    """Return what the values that were compared say; `nobody_agrees`: all other servers are suspected."""
    values, coverage, mean_square = (
        calibration.total_values,
        calibration.total_coverage,
        calibration.total_mean_square,
    )
    is_evident = calibration.chance_of_coverage(MIN_COVERAGE) < CHANCE or (nobody_agrees and coverage < MIN_COVERAGE)
    if values < calibration.needed and not is_evident:
        so_far = f"{counted(values, 'value')} of other servers {'was' if values == 1 else 'were'} compared so far"
        why = ", since the next values of users who stay say little new" if calibration.dependence > 1.0 else ""
        return (
            "unknown",
            f"{so_far}; {calibration.needed} are needed to judge{why}. {when}{_provisional(calibration)}",
            [],
        )
    seen = (
        f"{coverage:.0%} of {values} values of other servers were within {BOUND} standard deviations (95% should be), "
        f"and their mean square was {mean_square:.2f} (1 would be right)"
    )
    if coverage < MIN_COVERAGE:  # also where the values are few, but evident
        return "narrow", f"the intervals are too narrow: {seen}.", []
    if mean_square < MIN_CALIBRATION:
        return "wide", f"the intervals are wider than they have to be: {seen}.", []
    if mean_square > MAX_CALIBRATION:
        text = (
            f"most intervals are about right, but some values were far off: {seen}. A crowd that changes suddenly does "
            "that, and so does a server whose counts are wrong."
        )
        return "calibrated", text, ["far-off"]
    return "calibrated", f"the intervals are about right: {seen}.", []


def _provisional(calibration: Calibration) -> str:
    """Return a sentence on values that are too few for a verdict; empty: there are none."""
    values = calibration.total_values
    if values == 0:
        return ""
    what = "this one value was" if values == 1 else f"these {values} values were"
    share = "" if values == 1 else f"{calibration.total_coverage:.0%} of "
    if values == 1 and not calibration.total_coverage:
        what = "this one value was not"
    return (
        f" Provisionally, {share}{what} within {BOUND} standard deviations (95% should be), which decides nothing yet."
    )


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
