"""What a node tells about itself: its budget, its neighbours, its metrics. Nothing here has seen a raw count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from typing import Literal

from dpcrowd.node.api.prometheus import Metric, render
from dpcrowd.node.api.views import BudgetView, NeighbourStatus, NetworkStatus, SlotRefusals
from dpcrowd.node.config import NetworkConfig, digest
from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.live.build import debts
from dpcrowd.node.live.purse import comes_back, horizon, shortage
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.units import from_nano

__all__ = ["budget", "distrust", "metrics", "network_status"]


Waits = Literal["vouching", "operator", "budget"] | None


def budget(network: NetworkConfig, storage: Storage, trust: Trust, now_ns: int) -> BudgetView:
    """From the durable ledger."""
    guarantee, clock = network.guarantee(), network.clock()
    slot = max(clock.slot_of(now_ns), 0)
    owed = debts(storage, guarantee, clock, slot, network.id)
    window = guarantee.kind == "window"
    spent = sum(nano for at, nano in owed.items() if not window or at > slot - guarantee.length)
    room = storage.ledger.room(clock.opens(slot), clock.closes(slot))
    first = horizon(storage, clock, network.id)
    short = shortage(guarantee, room, slot, first, network.id)
    text = distrust(trust) or short
    waits_for: Waits = "budget" if short else None
    if not trust.may_sample:
        waits_for = "vouching" if trust.lost_at is None else "operator"
    over = guarantee.kind == "finite" and slot >= first + guarantee.length
    back, returns = comes_back(storage, clock, room.promise, network.id, slot)
    return BudgetView(
        guarantee=str(guarantee),
        kind=guarantee.kind,
        length=guarantee.length,
        epsilon=from_nano(guarantee.total),
        spent=from_nano(spent),
        remaining=0.0 if over else from_nano(room.nano),
        returns=None if back is None else from_nano(returns),
        returns_slot=back,
        returns_at=None if back is None else rfc3339(clock.opens(back)),
        total_spent=from_nano(storage.ledger.total_spent()),
        samples=waits_for is None,
        waits_for=waits_for,
        text=text,
    )


def distrust(trust: Trust) -> str:
    """Why the ledger is not trusted; empty if it is."""
    if trust.may_sample:
        return ""
    if trust.lost_at is not None:
        return "a neighbour remembers samples that this ledger does not: confirm the loss first (confirm-loss)."
    if not trust.vouched:
        return "no neighbour has vouched for the ledger since the start, or since the clock jumped or the node froze."
    return "a neighbour has vouched for the ledger; what others remember is waited for, two slots at most."


def network_status(
    network: NetworkConfig,
    server: str,
    present: set[str],
    heard: dict[str, tuple[int, int]],
    refused: Counter[tuple[str, str]],
    checkins: Mapping[int, set[str]],
    now_ns: int,
    following: NetworkConfig | None = None,
) -> NetworkStatus:
    """A node and its neighbours.

    heard     name -> (slot, time) of the last message that was used
    checkins  slot -> reasons for which check-ins were refused in it
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
        )
        for name in network.neighbours(server, max(slot, 0))
    ]
    reasons: Counter[str] = Counter()
    for (_, reason), count in refused.items():
        reasons[reason] += count
    return NetworkStatus(
        network=network.id,
        server=server,
        version=version("dpcrowd"),
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
    )


def metrics(
    view: BudgetView,
    status: NetworkStatus,
    last_slot: int | None,
    sent: int,
    ready: bool,
    *,
    taken: int | None,
    refused_connections: Mapping[str, int],
    api_limited: bool,
) -> str:
    """Prometheus text; `taken` is a raw count, given only where the operator has switched exact counters on."""
    plain: dict[str, str] = {}
    return render(
        [
            Metric("dpcrowd_ready", "gauge", "1 if the node can do all of its work.", [(plain, float(ready))]),
            Metric("dpcrowd_slot", "gauge", "The open slot.", [(plain, float(status.slot))]),
            Metric(
                "dpcrowd_released_slot",
                "gauge",
                "The last released slot.",
                [] if last_slot is None else [(plain, float(last_slot))],
            ),
            Metric("dpcrowd_epsilon", "gauge", "The promised budget.", [(plain, view.epsilon)]),
            Metric("dpcrowd_epsilon_spent", "gauge", "Of the current window or horizon.", [(plain, view.spent)]),
            Metric("dpcrowd_epsilon_spent_total", "counter", "Since the ledger began.", [(plain, view.total_spent)]),
            Metric("dpcrowd_messages_sent_total", "counter", "To neighbours.", [(plain, float(sent))]),
            Metric(
                "dpcrowd_messages_refused_total",
                "counter",
                "Messages of neighbours that were not used.",
                [({"reason": reason}, float(count)) for reason, count in status.refused_messages.items()],
            ),
            Metric(
                "dpcrowd_checkins_taken_total",
                "counter",
                "Check-ins since the start: exact, not private, for inside these walls only.",
                [] if taken is None else [(plain, float(taken))],
            ),
            Metric(
                "dpcrowd_connections_refused_total",
                "counter",
                "Connections to the transport's port that did not become a neighbour's.",
                [({"port": "transport", "reason": why}, float(count)) for why, count in refused_connections.items()],
            ),
            Metric(
                "dpcrowd_api_limited",
                "gauge",
                "1 if connections to the API were ended or refused in the last minute because there were too many.",
                [(plain, float(api_limited))],
            ),
            Metric(
                "dpcrowd_neighbour_up",
                "gauge",
                "1 if the neighbour can be reached.",
                [({"neighbour": one.name}, float(one.connected)) for one in status.neighbours],
            ),
        ]
    )
