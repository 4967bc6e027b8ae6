"""What a node tells about itself: its budget, its neighbours and its calibration. Nothing here has seen a raw count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from dpcrowd.__about__ import __version__
from dpcrowd.arrays import Floats
from dpcrowd.filters.calibration import BOUND, ENOUGH, LONGEST, Calibration
from dpcrowd.node.api.views import (
    BudgetView,
    LearnedShare,
    NeighbourStatus,
    NetworkStatus,
    QualityView,
    RegionQuality,
    ServerStatus,
    SlotRefusals,
)
from dpcrowd.node.build import load_account
from dpcrowd.node.config import NetworkConfig, digest
from dpcrowd.node.machine.instructions import SendKind
from dpcrowd.node.machine.records import Records
from dpcrowd.node.machine.trust import Trust, distrust, needs_operator
from dpcrowd.node.slots import SlotClock, rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.server import Joined

__all__ = ["budget", "distrust", "needs_operator", "network_status", "opening", "quality"]


MIN_VALUES = ENOUGH
"""Innovations below which no verdict is given."""
MIN_COVERAGE = 0.9
"""Intervals are called too narrow below this share of innovations within 1.96 standard deviations."""
MIN_CALIBRATION = 0.5
"""Intervals are called too wide below this mean square of the innovations."""

MAX_CALIBRATION = 1.6
"""Above this mean square some innovations are far off, also where 95% are within 1.96: that of Laplace noise is 1."""

Waits = Literal["vouching", "operator", "budget"] | None
Verdict = Literal["calibrated", "narrow", "wide", "unknown"]


def budget(network: NetworkConfig, storage: Storage, trust: Trust, now_ns: int, early: str = "") -> BudgetView:
    """Return what was spent and what remains, from the account.

    early  that the network has not begun, see `opening`, or that slots are waited for, see `clock_return`
    """
    guarantee, clock = network.guarantee(), network.clock()
    slot = max(clock.slot_of(now_ns), 0)
    account = load_account(storage, network, slot)
    allowance = account.allowance(clock.opens(slot))
    waits_for: Waits
    if needs_operator(trust):
        waits_for, text = "operator", distrust(trust)
    elif storage.failure is not None or early:
        waits_for, text = None, str(storage.failure or early)  # neither of the three that there are: the text says it
    elif not trust.may_sample:
        waits_for, text = "vouching", distrust(trust)
    else:
        text = allowance.shortage
        waits_for = "budget" if text else None
    back, returns = allowance.binding.returns
    until = allowance.own.blocked_until
    return BudgetView(
        guarantee=network.promise(),
        kind=guarantee.kind,
        length=guarantee.length,
        epsilon=from_nano(guarantee.total),
        spent=from_nano(allowance.own.spent),
        blocked=from_nano(allowance.own.blocked),
        blocked_text=allowance.own.text,
        blocked_until=None if until is None else rfc3339(until),
        remaining=from_nano(allowance.nano),
        returns=None if back is None else from_nano(returns),
        returns_slot=back,
        returns_at=None if back is None else rfc3339(clock.opens(back)),
        total_spent=from_nano(account.total - account.lost),
        total_blocked=from_nano(account.lost),
        samples=not text,
        waits_for=waits_for,
        text=text,
    )


def opening(clock: SlotClock, sealed: int, now_ns: int) -> str:
    """Return when the network begins; empty if it has: by the clock, or because a slot was `sealed` (-1: none)."""
    has_begun = sealed >= 0 or now_ns >= clock.epoch_ns
    return "" if has_begun else f"the network's first slot opens at {rfc3339(clock.epoch_ns)}."


def network_status(
    network: NetworkConfig,
    server: str,
    present: set[str],
    heard: dict[str, tuple[int, int]],
    refused: Counter[tuple[str, str]],
    checkins: Mapping[int, set[str]],
    now_ns: int,
    following: NetworkConfig | None = None,
    refused_last: Mapping[tuple[str, str], int] | None = None,
    records: Records | None = None,
    sent: Mapping[SendKind, int] | None = None,
    joined: Joined | None = None,
    contradicting: Sequence[str] = (),
) -> NetworkStatus:
    """Return the state of a node and of its neighbours.

    heard     name -> (slot, time) of the last message that was used
    checkins  slot -> reasons for which check-ins were refused in it
    refused_last  (name, reason) -> time of the last message that was refused
    records   of all servers; None: the scheme does not pass records on
    sent      kind -> number of messages that were sent
    joined    whose word the estimate began with; None: nobody's
    contradicting  neighbours whose states contradicted each other, or the one that was taken
    """
    clock = network.clock()
    slot = clock.slot_of(now_ns)
    neighbours = [
        NeighbourStatus(
            name=name,
            connected=name in present,
            last_slot=heard[name][0] if name in heard else None,
            last_heard=rfc3339(heard[name][1]) if name in heard else None,
            refused={reason: count for (sender, reason), count in refused.items() if sender == name},
            refused_last={
                reason: rfc3339(at) for (sender, reason), at in (refused_last or {}).items() if sender == name
            },
            records_received=0 if records is None else _total(records.arrivals.received_by, sender=name),
            records_forwarded=0 if records is None else records.forwarding.forwarded_to[name],
            records_late=0 if records is None else _total(records.arrivals.late_by, sender=name),
        )
        for name in network.neighbours(server, max(slot, 0))
    ]
    reasons: Counter[str] = Counter()
    for (_, reason), count in refused.items():
        reasons[reason] += count
    return NetworkStatus(
        network=network.id,
        server=server,
        version=__version__,
        revision=network.revision,
        digest=digest(network).hex(),
        next_revision=None if following is None else following.revision,
        next_revision_slot=None if following is None else following.valid_from_slot,
        next_digest=None if following is None else digest(following).hex(),
        epoch=rfc3339(clock.epoch_ns),
        slot_seconds=clock.length_ns / 1e9,
        grace_seconds=network.grace_ns / 1e9,
        slot=slot,
        regions=list(network.regions),
        neighbours=neighbours,
        refused_messages=dict(reasons),
        refused_checkins=[SlotRefusals(slot=at, reasons=sorted(why)) for at, why in sorted(checkins.items())],
        scheme=network.method.name,
        lag=None if records is None else records.terms.lag,
        samples=None if records is None else records.terms.samples,
        reach=None if records is None else records.terms.reach or "all",
        groups=network.method.groups,
        turnover=network.method.turnover,
        share_width=network.method.share_width,
        meetings=network.method.meetings,
        model_data=None if network.fitted is None else network.fitted.data,
        model_source=None if network.fitted is None else network.fitted.source,
        region_correlation=None if network.fitted is None else network.fitted.region_correlation,
        servers=[] if records is None else [_server_status(records, name) for name in records.revisions.current.names],
        joined_from=[] if joined is None else list(joined.sources),
        joined_slot=None if joined is None else joined.slot,
        join_disagreement=list(contradicting),
        messages_sent={} if sent is None else {kind: sent.get(kind, 0) for kind in get_args(SendKind)},
    )


def quality(
    calibration: Calibration,
    regions: Sequence[str],
    scheme: str,
    *,
    judges_others: bool,
    servers: Sequence[str] = (),
    learned: tuple[Floats, Floats] | None = None,
    clock: SlotClock | None = None,
) -> QualityView:
    """Return the running calibration of a node.

    judges_others  whether the scheme receives measurements of others at all
    learned        shares of the servers by region, (m, d), that were learned, and their deviations
    clock          says when a slot opens; None: the text names its number only
    """
    values = calibration.total_values
    coverage, mean_square = _rounded(calibration.total_coverage), _rounded(calibration.total_mean_square)
    verdict, text = _verdict(coverage, mean_square, values, _when(calibration, clock))
    enough_at = calibration.enough_at
    return QualityView(
        verdict=verdict,
        text=text if judges_others else f"servers of the scheme '{scheme}' receive no measurements of one another.",
        coverage=coverage,
        calibration=mean_square,
        values=values,
        sums=calibration.sums,
        records=calibration.records,
        slots=calibration.slots,
        window=calibration.window,
        needed=MIN_VALUES,
        verdict_slot=None if enough_at is None or math.isinf(enough_at) else int(enough_at),
        since_slot=calibration.since,
        regions=[
            RegionQuality(
                region=name,
                values=int(calibration.values[place]),
                calibration=_rounded(calibration.mean_square[place]),
                coverage=_rounded(calibration.coverage[place]),
            )
            for place, name in enumerate(regions)
        ],
        learned_shares=[] if learned is None else _learned_shares(servers, regions, *learned),
    )


def _learned_shares(
    servers: Sequence[str], regions: Sequence[str], shares: Floats, deviations: Floats
) -> list[LearnedShare]:
    return [
        LearnedShare(
            server=server,
            region=region,
            share=round(float(shares[number, place]), 6),
            deviation=round(float(deviations[number, place]), 6),
        )
        for number, server in enumerate(servers)
        for place, region in enumerate(regions)
    ]


def _when(calibration: Calibration, clock: SlotClock | None) -> str:
    """Return a sentence that says when there will be enough values for a verdict."""
    slot = calibration.enough_at
    if slot is None:
        return "Without any of them, nobody can say when that will be."
    if math.isinf(slot):
        return (
            f"They come so rarely that the last {LONGEST:,} slots, which are looked at, will not hold as many. More "
            "samples, or servers, would change that."
        )
    at = "" if clock is None else f" ({rfc3339(clock.opens(int(slot)))})"
    return f"At this rate that will be about slot {int(slot)}{at}."


def _verdict(coverage: float | None, mean_square: float | None, values: int, when: str) -> tuple[Verdict, str]:
    if coverage is None or mean_square is None or values < MIN_VALUES:
        so_far = f"{values} values of other servers were compared so far"
        return "unknown", f"{so_far}; {MIN_VALUES} are needed to judge. {when}"
    seen = (
        f"{coverage:.0%} of {values} values of other servers were within {BOUND} standard deviations (95% should be), "
        f"and their mean square was {mean_square:.2f} (1 would be right)"
    )
    if coverage < MIN_COVERAGE:
        return "narrow", f"the intervals are too narrow: {seen}."
    if mean_square < MIN_CALIBRATION:
        return "wide", f"the intervals are wider than they have to be: {seen}."
    if mean_square > MAX_CALIBRATION:
        return "calibrated", (
            f"most intervals are about right, but some values were far off: {seen}. A crowd that changes suddenly does "
            "that, and so does a server whose counts are wrong."
        )
    return "calibrated", f"the intervals are about right: {seen}."


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def _server_status(records: Records, name: str) -> ServerStatus:
    """Return what the records of a server show of it."""
    arrivals, overdue = records.arrivals, records.waiting.overdue(name)
    return ServerStatus(
        name=name,
        last_record=records.held.last_slot(name),
        overdue=overdue,
        missing=overdue is not None and records.waiting.is_final(overdue),
        suspected_since=records.suspects.get(name),
        equivocation=arrivals.equivocators.get(name),
        records=_total(arrivals.received_by, origin=name),
        records_late=_total(arrivals.late_by, origin=name),
        records_refused={reason: count for (who, reason), count in sorted(arrivals.refused.items()) if who == name},
    )


def _total(counts: Counter[tuple[str, str]], *, sender: str | None = None, origin: str | None = None) -> int:
    """Return how many records a neighbour has brought, or how many there are of an origin; by (sender, origin)."""
    return sum(count for (who, of), count in counts.items() if sender in (None, who) and origin in (None, of))
