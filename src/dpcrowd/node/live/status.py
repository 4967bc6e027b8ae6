"""What a node tells about itself: its budget, its neighbours and the network. Nothing here has seen a raw count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from dpcrowd.__about__ import __version__
from dpcrowd.node.api.views import (
    BudgetView,
    NeighbourStatus,
    NetworkStatus,
    ServerStatus,
    SlotRefusals,
)
from dpcrowd.node.build import load_account, stored_models
from dpcrowd.node.config import NetworkConfig, digest, earlier_models, promise_in
from dpcrowd.node.machine.instructions import SendKind
from dpcrowd.node.machine.records import Records
from dpcrowd.node.machine.trust import Trust, distrust, needs_operator
from dpcrowd.node.slots import SlotClock, rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.server import Joined

__all__ = ["budget", "distrust", "needs_operator", "network_status", "opening"]


Waits = Literal["vouching", "operator", "budget"] | None


def budget(
    network: NetworkConfig,
    storage: Storage,
    trust: Trust,
    now_ns: int,
    early: str = "",
    earlier: Sequence[NetworkConfig] = (),
    *,
    corrected: bool = False,
    joined: Joined | None = None,
) -> BudgetView:
    """Return what was spent and what remains, from the account.

    early    that the network has not begun, see `opening`, or that slots are waited for, see `clock_return`
    earlier  revisions before this one whose models are not stored yet, oldest first
    corrected  whether the last of them is this one with another model, which is in use until now
    joined     whose word the server's estimates began with
    """
    guarantee, clock = network.guarantee(), network.clock()
    slot = max(clock.slot_of(now_ns), 0)
    models = earlier_models(stored_models(storage), [*earlier, network], slot if corrected else 0)
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
        guarantee=promise_in(network, models, slot, joined),
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
        **_assumed(network),
        model_data=None if network.fitted is None else network.fitted.data,
        model_source=None if network.fitted is None else network.fitted.source,
        model_assertion=None if network.fitted is None else network.fitted.quoted_sources,
        learn=network.learns,
        region_correlation=None if network.fitted is None else network.fitted.region_correlation,
        servers=[] if records is None else [_server_status(records, name) for name in records.revisions.current.names],
        joined_from=[] if joined is None else list(joined.sources),
        joined_slot=None if joined is None else joined.slot,
        join_disagreement=list(contradicting),
        messages_sent={} if sent is None else {kind: sent.get(kind, 0) for kind in get_args(SendKind)},
    )


def _assumed(network: NetworkConfig) -> dict[str, Any]:
    """Return the settings in force of what relay assumes of regions, users and shares; other schemes: as stated."""
    method = network.method
    stated = {name: getattr(method, name) for name in ("groups", "turnover", "share_width", "meetings")}
    if network.relay is None:
        return stated
    setting = network.setting(network.servers[0].name)
    in_force = {"groups": network.relay.groups, "turnover": setting.turnover, "share_width": setting.share_width}
    return {**stated, **in_force, "meetings": bool(method.meetings)}


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
