"""From configuration and storage to a state machine: who the node is, what it had, and what it owes."""

from __future__ import annotations

import math

from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.words import signer, verifier
from dpcrowd.node.live.purse import horizon, own_promise
from dpcrowd.node.machine import Debts, Machine, NetworkView, Revision
from dpcrowd.node.machine.revision import go_on, settle
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage, UserBounds
from dpcrowd.node.wire import Sign
from dpcrowd.privacy import Guarantee, Noise
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.server import Server

__all__ = ["debts", "make_machine", "make_view", "owed", "revision_of", "view_of"]


def make_view(node: NodeConfig, network: NetworkConfig, expires: int = 0) -> NetworkView:
    """One revision as this server sees it; reads the private key.

    expires  when its certificate does, in seconds since 1970; neighbours are told
    """
    return view_of(network, node.server, signer(network.id, read_private_key(node.keys.key)), expires)


def view_of(network: NetworkConfig, server: str, sign: Sign, expires: int = 0) -> NetworkView:
    """The same, with whatever signs for the server."""

    def links(slot: int) -> frozenset[int]:
        return frozenset(network.number_of(name) for name in network.neighbours(server, slot))

    return NetworkView(
        me=network.number_of(server),
        names=tuple(one.name for one in network.servers),
        digest=digest(network),
        clock=network.clock(),
        grace_ns=network.grace_ns,
        deadline_ns=network.deadline_ns,
        send_offset_ns=network.send_offset_ns,
        regions=network.regions,
        form=network.setting(server).form,
        links=links,
        sign=sign,
        population=network.population,
        coarsest=_coarsest(network),
        verify=verifier(network.id, [one.keys for one in network.servers]),
        expires=expires,
        revision=network.revision,
        first_slot=network.valid_from_slot,
    )


def _coarsest(network: NetworkConfig) -> float:
    """Of a sample that costs an even share of the budget (no scheme asks for less), at the smallest share of people."""
    guarantee = network.guarantee()
    even = max(guarantee.total // guarantee.length, 1) / NANO
    smallest = min(server.counted_share for server in network.servers)
    return math.sqrt(2.0) * guarantee.sensitivity / (even * smallest)


def revision_of(
    network: NetworkConfig, view: NetworkView, noise: Noise, *, allow_simulated_noise: bool = False
) -> Revision:
    """What the machine needs of one revision. For `allow_simulated_noise` see `Server`."""
    name = view.names[view.me]

    def make_server() -> Server:
        return Server(
            network.scheme(),
            network.setting(name),
            noise,
            number=view.me,
            share=network.server(name).counted_share,
            max_degree=network.max_degree(),
            beta=network.beta,
            allow_simulated_noise=allow_simulated_noise,
        )

    return Revision(view, make_server)


def make_machine(
    revision: Revision,
    network: NetworkConfig,
    storage: Storage,
    now_ns: int,
    *,
    before: Revision | None = None,
    following: NetworkConfig | None = None,
) -> tuple[Machine, str]:
    """The machine that goes on where the folder stopped, and a sentence on what it found there.

    before     the revision under which the state was stored, if that is another one
    following  the one that takes over later
    """
    view, state = revision.view, storage.state()
    if state is None:
        server, text = revision.make_server(), "no estimates are stored: begins anew."
        if storage.is_new:
            text = "the folder is new: nothing is known, nothing was spent."
        elif not storage.ledger.payments():
            text = f"{text} Nothing was spent."
    else:
        server, text = go_on(revision, state, before)
    last = server.slot if server.slot >= 0 else max(view.next_seal(now_ns) - 1, -1)
    text += settle(server, owed(storage, network, last), last)
    complete_until = storage.memory.complete_until()
    machine = Machine(
        revision,
        server,
        counter=storage.ledger.counter(),
        heard=storage.memory.remembered(),
        vouched=len(view.names) == 1,
        complete_until=last if complete_until is None else complete_until,  # version 0.1 did not keep it
        following=None if following is None else (following.revision, following.valid_from_slot),
    )
    return machine, text


def owed(storage: Storage, network: NetworkConfig, until: int) -> Debts:
    """What a server of a network owes by slots up to this one."""
    guarantee, clock = network.guarantee(), network.clock()
    return Debts(debts(storage, guarantee, clock, until, network.id), horizon(storage, clock, network.id))


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
    charges: dict[int, int] = {}
    for entry in entries:
        slot = min(clock.slot_of(entry.closes_ns - 1), before)
        charges[slot] = charges.get(slot, 0) + bounds.cost(entry.nano, entry.bounds)
    return charges
