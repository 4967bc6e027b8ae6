"""From configuration and storage to a state machine: who the node is, what it had, and what it owes."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.words import signer, verifier
from dpcrowd.node.live.purse import horizon, own_promise
from dpcrowd.node.live.spending import spending
from dpcrowd.node.machine import Machine, NetworkView
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage, UserBounds
from dpcrowd.privacy import Guarantee, Noise
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.server import Server

__all__ = ["book_loss", "debts", "make_machine", "make_view"]


def make_view(node: NodeConfig, network: NetworkConfig, expires: int = 0) -> NetworkView:
    """One revision as this server sees it; reads the private key.

    expires  when its certificate does, in seconds since 1970; neighbours are told
    """
    key = read_private_key(node.keys.key)
    me = network.number_of(node.server)

    def links(slot: int) -> frozenset[int]:
        return frozenset(network.number_of(name) for name in network.neighbours(node.server, slot))

    return NetworkView(
        me=me,
        names=tuple(server.name for server in network.servers),
        digest=digest(network),
        clock=network.clock(),
        grace_ns=network.grace_ns,
        deadline_ns=network.deadline_ns,
        send_offset_ns=network.send_offset_ns,
        regions=network.regions,
        form=network.setting(node.server).form,
        links=links,
        sign=signer(network.id, key),
        population=network.population,
        coarsest=_coarsest(network),
        verify=verifier(network.id, [server.keys for server in network.servers]),
        expires=expires,
    )


def _coarsest(network: NetworkConfig) -> float:
    """Of a sample that costs an even share of the budget (no scheme asks for less), at the smallest share of people."""
    guarantee = network.guarantee()
    even = max(guarantee.total // guarantee.length, 1) / NANO
    smallest = min(server.counted_share for server in network.servers)
    return math.sqrt(2.0) * guarantee.sensitivity / (even * smallest)


def make_machine(
    node: NodeConfig,
    network: NetworkConfig,
    storage: Storage,
    noise: Noise,
    view: NetworkView,
    now_ns: int,
    *,
    vouched: bool = False,
    before: NetworkConfig | None = None,
    allow_simulated_noise: bool = False,
) -> tuple[Machine, str]:
    """The machine that goes on where the folder stopped, and a sentence on what it found there.

    vouched  the operator has confirmed what was lost: the old state is not used, since it knows too little of it
    before   the revision under which the state was stored, if that is another one

    For `allow_simulated_noise` see `Server`.
    """

    def make(revision: NetworkConfig) -> Server:
        return _server(node, revision, noise, allow_simulated_noise)

    state = None if vouched else storage.state()
    if state is None:
        server, text = make(network), "no estimates are stored: begins anew."
        if storage.is_new:
            text = "the folder is new: nothing is known, nothing was spent."
        elif not storage.ledger.payments():
            text = f"{text} Nothing was spent."
    else:
        server, text = _go_on(make, network, state, before)
    first, last = horizon(storage, view.clock, network.id), server.slot
    if server.slot == -1:
        last = max(view.next_seal(now_ns) - 1, -1)
        server.carry_over(debts(storage, network.guarantee(), view.clock, last, network.id), last, first)
    elif server.horizon not in (None, first):  # the state is of a horizon that has ended, perhaps during a standstill
        server.begin_horizon(debts(storage, network.guarantee(), view.clock, server.slot, network.id), first)
        text = f"{text} A new horizon begins with slot {first}."
    alone = len(view.names) == 1
    complete_until = storage.memory.complete_until()
    machine = Machine(
        view,
        server,
        counter=storage.ledger.counter(),
        heard=storage.memory.remembered(),
        vouched=alone or vouched,
        complete_until=last if complete_until is None else complete_until,  # version 0.1 did not keep it
    )
    return machine, text


def _go_on(
    make: Callable[[NetworkConfig], Server], network: NetworkConfig, state: bytes, before: NetworkConfig | None
) -> tuple[Server, str]:
    """A server with what was stored, as far as it fits this revision."""
    server = make(network)
    try:
        server.restore(state)
        return server, f"goes on after slot {server.slot}."
    except BadInput:
        server = make(network)
    if before is not None:
        old = {region: place for place, region in enumerate(before.regions)}
        try:
            server.take_over(state, make(before), [old.get(region) for region in network.regions])
            new = len(set(network.regions) - old.keys())
            return server, f"goes on after slot {server.slot}" + (f"; {new} new regions." if new else ".")
        except BadInput:
            server = make(network)
    return server, "the configuration has changed: estimates begin anew, what was spent stays spent."


def book_loss(storage: Storage, network: NetworkConfig, trust: Trust, now_ns: int) -> str:
    """What neighbours remember and the ledger does not counts as a whole budget, up to the end of the open slot.

    So does whatever there may be that none of them remembers.
    """
    clock, remembered = network.clock(), trust.counter if trust.lost_at is None else trust.lost_at
    until = clock.closes(clock.slot_of(now_ns))
    reason = f"a neighbour remembers {remembered} samples, the folder {trust.counter}"
    if trust.lost_at is None:
        reason = f"no neighbour that was heard remembers the {trust.counter} samples of the folder"
    entries = storage.ledger.spent_since(0)
    known = max((entry.opens_ns + entry.length_ns for entry in entries), default=clock.epoch_ns)
    storage.ledger.mark_lost(
        min(known, until - clock.length_ns),
        until,
        network.guarantee().total,
        reason,
        at_ns=now_ns,
        counter=remembered,
    )
    storage.memory.confirm_complete(clock.slot_of(now_ns - network.grace_ns) - 1)  # the last slot that was told
    told = f"the time until {rfc3339(until)} counts as fully spent"
    own = own_promise(storage, network.id)
    if own is None:
        return f"{told}; sampling begins again when budget is there."
    cost = spending(storage, own, clock, clock.slot_of(now_ns))
    if cost.returns_slot is None:
        return f"{told}: blocked is {cost.text} Sampling begins again in a new horizon."
    back = rfc3339(clock.opens(cost.returns_slot))
    return f"{told}: blocked is {cost.text} Sampling begins again when budget is there: {cost.comes_back}, {back}."


def debts(storage: Storage, guarantee: Guarantee, clock: SlotClock, before: int, network: str) -> dict[int, int]:
    """What the durable ledger holds against the current window or horizon: nano-epsilon by slot, up to `before`.

    A payment counts as much as it costs the users of this network. One under another epoch or slot length is counted in
    the last slot that it touches: it stays longest there.
    """
    own = own_promise(storage, network)
    if guarantee.kind == "window":
        entries = storage.ledger.spent_since(clock.opens(before - guarantee.length))
    else:
        entries = storage.ledger.dated_after(own.since_ns if own else 0)
    bounds = UserBounds(guarantee.regions_per_slot, guarantee.servers_per_slot)
    owed: dict[int, int] = {}
    for entry in entries:
        slot = min(clock.slot_of(entry.closes_ns - 1), before)
        owed[slot] = owed.get(slot, 0) + bounds.cost(entry.nano, entry.bounds)
    return owed


def _server(node: NodeConfig, network: NetworkConfig, noise: Noise, allow_simulated_noise: bool) -> Server:
    return Server(
        network.scheme(),
        network.setting(node.server),
        noise,
        number=network.number_of(node.server),
        share=network.server(node.server).counted_share,
        max_degree=network.max_degree(),
        beta=network.beta,
        allow_simulated_noise=allow_simulated_noise,
    )
