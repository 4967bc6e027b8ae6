"""From configuration and storage to a state machine: who the node is, what it had, and what it owes."""

from __future__ import annotations

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NetworkConfig, NodeConfig, check_next, digest, load_network, parse_network
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.signing import sign, verify
from dpcrowd.node.machine import Machine, NetworkView
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage
from dpcrowd.privacy import Guarantee, Noise
from dpcrowd.schemes.server import Server

__all__ = ["current_revision", "debts", "declare_promise", "keep_revision", "make_machine", "make_view"]

CURRENT = "network.current.toml"


def make_view(node: NodeConfig, network: NetworkConfig) -> NetworkView:
    """One revision as this server sees it; reads the private key."""
    key = read_private_key(node.keys.key)
    me = network.number_of(node.server)
    pins = [server.keys for server in network.servers]

    def links(slot: int) -> frozenset[int]:
        return frozenset(network.number_of(name) for name in network.neighbours(node.server, slot))

    return NetworkView(
        me=me,
        names=tuple(server.name for server in network.servers),
        digest=digest(network),
        clock=network.clock(),
        grace_ns=network.grace_ns,
        deadline_ns=network.deadline_ns,
        regions=len(network.regions),
        form=network.setting(node.server).form,
        links=links,
        sign=lambda *parts: sign(key, *parts),
        population=network.population,
        verify=lambda number, signature, *parts: 0 <= number < len(pins) and verify(pins[number], signature, *parts),
    )


def declare_promise(network: NetworkConfig, storage: Storage) -> None:
    """Tell the durable ledger what this network promises; it refuses any payment that would break it."""
    guarantee, clock = network.guarantee(), network.clock()
    span = guarantee.length * clock.length_ns if guarantee.kind == "window" else None
    storage.ledger.promises.declare(guarantee.total, span)


def make_machine(
    node: NodeConfig,
    network: NetworkConfig,
    storage: Storage,
    noise: Noise,
    view: NetworkView,
    now_ns: int,
    *,
    vouched: bool = False,
) -> tuple[Machine, str]:
    """The machine that goes on where the folder stopped, and a sentence on what it found there.

    vouched  the operator has confirmed what was lost: the old state is not used, since it knows too little of it
    """
    server = _server(node, network, noise)
    state = None if vouched else storage.state()
    text = "the folder is new: nothing is known, nothing was spent."
    if state is not None:
        try:
            server.restore(state)
            text = f"goes on after slot {server.slot}."
        except BadInput:
            server = _server(node, network, noise)
            text = "the configuration has changed: estimates begin anew, what was spent stays spent."
    if server.slot == -1:
        before = max(view.next_seal(now_ns) - 1, -1)
        server.carry_over(debts(storage, network.guarantee(), view.clock, before), before)
    counter = 0 if storage.ledger.first_start() else storage.ledger.counter()
    alone = len(view.names) == 1
    machine = Machine(view, server, counter=counter, heard=storage.memory.remembered(), vouched=alone or vouched)
    return machine, text


def current_revision(
    node: NodeConfig, network: NetworkConfig, now_ns: int
) -> tuple[NetworkConfig, NetworkConfig | None]:
    """The revision that is valid now and the next one, if network.toml is ahead of time: the last one is kept."""
    kept = node.data / CURRENT
    before = load_network(kept) if kept.exists() else network
    if before.id != network.id or digest(before) == digest(network):
        return network, None
    check_next(before, network)  # whoever changes the promise must not do so under the name of the old one
    if network.valid_from_slot <= network.clock().slot_of(now_ns):
        return network, None
    return before, network


def keep_revision(node: NodeConfig, network: NetworkConfig) -> None:
    """Beside the ledger, for a start after network.toml has been replaced and before the new one is valid."""
    text = node.network.read_text(encoding="utf-8")
    if digest(parse_network(text)) == digest(network):
        fresh = node.data / f"{CURRENT}.part"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(node.data / CURRENT)


def debts(storage: Storage, guarantee: Guarantee, clock: SlotClock, before: int) -> dict[int, int]:
    """What the durable ledger holds against the current window or horizon: nano-epsilon by slot, up to `before`.

    A payment under another epoch or slot length is counted in the last slot that it touches: it stays longest there.
    """
    since = clock.opens(before - guarantee.length) if guarantee.kind == "window" else _horizon(storage)
    owed: dict[int, int] = {}
    for entry in storage.ledger.spent_since(since):
        slot = min(clock.slot_of(entry.opens_ns + entry.length_ns - 1), before)
        owed[slot] = owed.get(slot, 0) + entry.nano
    return owed


def _horizon(storage: Storage) -> int:
    """When the present finite horizon began."""
    return max((promise.since_ns for promise in storage.ledger.promises.all() if promise.span_ns is None), default=0)


def _server(node: NodeConfig, network: NetworkConfig, noise: Noise) -> Server:
    return Server(
        network.scheme(),
        network.setting(node.server),
        noise,
        number=network.number_of(node.server),
        share=network.server(node.server).share,
        max_degree=network.max_degree(),
        beta=network.beta,
    )
