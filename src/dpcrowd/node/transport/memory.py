"""Servers in one process: the transport of tests, with the faults of a real network.

The hub knows which servers are open and their neighbours; a message reaches a server only if each is a neighbour of the
other, as over TLS. Loss, duplication and delay are drawn from an explicit generator, so a run can be repeated bit
for bit; partitions are set by the test. Time is whatever `call_later` says: the event loop's, or a mock clock's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import OnMessage, OnPresence, Peer, check_neighbours, check_recipients

__all__ = ["Faults", "MemoryHub", "MemoryTransport"]

CallLater = Callable[[float, Callable[[], None]], object]


@dataclass(frozen=True)
class Faults:
    """The faults of a network: probabilities of loss and of a second copy, and a delay in seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.0, 0.0)
    """Every copy is delayed by a time drawn uniformly from this range; copies may overtake one another."""

    def __post_init__(self) -> None:
        for name, value in (("loss", self.loss), ("duplication", self.duplication)):
            if not 0.0 <= value <= 1.0:
                raise BadInput(f"{name} = {value:g} is not a probability; allowed: 0 to 1.")
        if not 0.0 <= self.delay[0] <= self.delay[1]:
            raise BadInput(f"delay = {self.delay}; allowed: (shortest, longest) in seconds, 0 <= shortest <= longest.")


@dataclass
class _Port:
    """An open server at the hub; a new one each time it opens, so that no message in flight survives a restart."""

    name: str
    neighbours: frozenset[str]
    on_message: OnMessage
    on_presence: OnPresence
    present: set[str] = field(default_factory=set)


class MemoryHub:
    """The network of all servers in one process."""

    def __init__(
        self, rng: np.random.Generator, *, faults: Faults | None = None, call_later: CallLater | None = None
    ) -> None:
        self.faults = faults or Faults()
        self._rng = rng
        self._call_later = call_later
        self._ports: dict[str, _Port] = {}
        self._cuts: set[frozenset[str]] = set()

    def transport(self) -> MemoryTransport:
        """Return a transport for one server of this network."""
        return MemoryTransport(self)

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two servers until `heal`; messages in flight on it are lost."""
        self._cuts.add(frozenset((one, other)))
        self._update_presence()

    def partition(self, side: Iterable[str], other_side: Iterable[str]) -> None:
        """Cut every link between two sets of servers."""
        others = list(other_side)
        self._cuts.update(frozenset((one, other)) for one in side for other in others)
        self._update_presence()

    def heal(self) -> None:
        """Restore every link."""
        self._cuts.clear()
        self._update_presence()

    def kill(self, name: str) -> None:
        """End a server as `kill -9` does, without any further callback."""
        self._ports.pop(name, None)
        self._update_presence()

    def plug(self, port: _Port) -> None:
        """Add an open server."""
        if port.name in self._ports:
            raise BadInput(f"server '{port.name}' is open already; close it first.")
        self._ports[port.name] = port
        self._update_presence()

    def unplug(self, port: _Port) -> None:
        """Remove a server, unless it has been opened again since."""
        if self._ports.get(port.name) is port:
            self.kill(port.name)

    def carry(self, sender: _Port, payload: bytes, to: str) -> None:
        """Send one message: draw loss, copies and delays in a fixed order."""
        lost, twice = self._rng.random(2)
        delays = self._rng.uniform(*self.faults.delay, size=2)
        receiver = self._ports.get(to)
        if receiver is None or lost < self.faults.loss:
            return
        for copy in range(2 if twice < self.faults.duplication else 1):
            self._later(float(delays[copy]), lambda: self._deliver(sender, receiver, payload))

    def _deliver(self, sender: _Port, receiver: _Port, payload: bytes) -> None:
        # Checked again on arrival: a closed server, or a link that was cut meanwhile, gets nothing.
        if self._linked(sender, receiver):
            receiver.on_message(sender.name, payload)

    def _linked(self, one: _Port, other: _Port) -> bool:
        open_both = self._ports.get(one.name) is one and self._ports.get(other.name) is other
        mutual = other.name in one.neighbours and one.name in other.neighbours
        return open_both and mutual and frozenset((one.name, other.name)) not in self._cuts

    def _update_presence(self) -> None:
        """Report to every open server which neighbours have appeared and which have disappeared."""
        for port in list(self._ports.values()):
            for name in sorted(port.neighbours):
                other = self._ports.get(name)
                present = other is not None and self._linked(port, other)
                if present != (name in port.present):
                    (port.present.add if present else port.present.discard)(name)
                    self._later(0.0, lambda port=port, name=name, up=present: self._announce(port, name, up))  # type: ignore[misc]

    def _announce(self, port: _Port, name: str, up: bool) -> None:
        if self._ports.get(port.name) is port:
            port.on_presence(name, up)

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        if self._call_later is not None:
            self._call_later(delay, call)
        elif delay > 0:
            asyncio.get_running_loop().call_later(delay, call)
        else:
            asyncio.get_running_loop().call_soon(call)


class MemoryTransport:
    """One server's end of a `MemoryHub`."""

    def __init__(self, hub: MemoryHub) -> None:
        self._hub = hub
        self._port: _Port | None = None
        self.most_bytes = 1 << 30  # all servers are honest here

    async def open(self, me: str, neighbours: Sequence[Peer], on_message: OnMessage, on_presence: OnPresence) -> None:
        if self._port is not None:
            raise BadInput(f"server '{me}' is open already; close it first.")
        check_neighbours(me, neighbours)
        port = _Port(me, frozenset(peer.name for peer in neighbours), on_message, on_presence)
        self._hub.plug(port)
        self._port = port

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        if self._port is None:
            raise BadInput("the transport is closed; open it before sending.")
        check_recipients(to, self._port.neighbours)
        for name in to:
            self._hub.carry(self._port, payload, name)

    def dropped(self) -> Mapping[str, int]:
        return {}

    async def strangers(self) -> Sequence[str]:
        return ()  # only neighbours are connected

    def refused_connections(self) -> Mapping[str, int]:
        return {}

    async def check_alive(self) -> None:
        """Return: there is nothing that could fail."""

    async def close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            self._hub.unplug(port)
