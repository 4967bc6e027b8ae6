"""The in-process transport: exactly the neighbours, faults as drawn, nothing across a cut or a restart."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import Peer, Transport
from dpcrowd.node.transport.memory import Faults, MemoryHub, MemoryTransport


class Clock:
    """A clock that stands still until it is told to run."""

    def __init__(self) -> None:
        self.now, self._count = 0.0, 0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._calls, (self.now + delay, self._count, call))

    def run(self, until: float = float("inf")) -> None:
        while self._calls and self._calls[0][0] <= until:
            self.now, _, call = heapq.heappop(self._calls)
            call()


class Net:
    """A hub with a mock clock, and what each server was told."""

    def __init__(self, *, faults: Faults | None = None, seed: int = 1) -> None:
        self.clock = Clock()
        self.hub = MemoryHub(np.random.default_rng(seed), faults=faults, call_later=self.clock.call_later)
        self.transports: dict[str, MemoryTransport] = {}
        self.told: list[tuple[str, str, object]] = []

    def open(self, name: str, neighbours: str) -> None:
        transport = self.transports.setdefault(name, self.hub.transport())
        peers = [Peer(each, "", each) for each in neighbours]
        asyncio.run(
            transport.open(
                name,
                peers,
                lambda sender, payload: self.told.append((name, sender, payload)),
                lambda other, up: self.told.append((name, other, up)),
            )
        )

    def send(self, name: str, payload: bytes, to: str) -> None:
        asyncio.run(self.transports[name].send(payload, list(to)))

    def close(self, name: str) -> None:
        asyncio.run(self.transports[name].close())

    def happened(self) -> list[tuple[str, str, object]]:
        """What was told since the last time, after everything that is due."""
        self.clock.run()
        told, self.told = self.told, []
        return sorted(told, key=repr)


def line(**more: object) -> Net:
    net = Net(**more)  # type: ignore[arg-type]
    for name, neighbours in (("a", "b"), ("b", "ac"), ("c", "b")):
        net.open(name, neighbours)
    net.happened()
    return net


def test_a_message_reaches_exactly_the_neighbours_it_is_sent_to() -> None:
    """The protocol's tests stand on this: a hub that told everybody would hide every fault of one-hop rules."""
    net = line()
    net.send("b", b"to a", "a")
    net.send("b", b"to both", "ac")
    net.send("a", b"to b", "b")
    assert net.happened() == [("a", "b", b"to a"), ("a", "b", b"to both"), ("b", "a", b"to b"), ("c", "b", b"to both")]
    with pytest.raises(BadInput, match="unknown neighbour 'c'"):
        net.send("a", b"", "c")


def test_only_servers_that_call_each_other_neighbours_are_linked() -> None:
    """Over TLS both sides must allow a link; one side's configuration alone opens nothing."""
    net = Net()
    net.open("a", "b")
    net.open("b", "")
    net.send("a", b"unwanted", "b")
    assert net.happened() == []


def test_presence_follows_opening_closing_and_cuts() -> None:
    """A node re-sends when a neighbour appears: presence that is wrong or told twice would hide lost messages."""
    net = Net()
    net.open("a", "b")
    assert net.happened() == []
    net.open("b", "a")
    assert net.happened() == [("a", "b", True), ("b", "a", True)]
    net.hub.cut("b", "a")
    net.hub.cut("a", "b")
    assert net.happened() == [("a", "b", False), ("b", "a", False)]
    net.hub.heal()
    assert net.happened() == [("a", "b", True), ("b", "a", True)]
    net.close("b")
    net.close("b")
    assert net.happened() == [("a", "b", False)]
    net.open("b", "a")
    assert net.happened() == [("a", "b", True), ("b", "a", True)]


def test_a_partition_cuts_every_link_between_its_sides() -> None:
    """And none within them."""
    net = line()
    net.hub.partition("a", "bc")
    assert net.happened() == [("a", "b", False), ("b", "a", False)]
    net.send("b", b"x", "ac")
    assert net.happened() == [("c", "b", b"x")]


def test_nothing_in_flight_survives_a_cut_or_a_restart() -> None:
    """A connection's buffers die with it: a message of before must not arrive at the server's next run."""
    late = Faults(delay=(1.0, 1.0))
    net = line(faults=late)
    net.send("a", b"cut off", "b")
    net.hub.cut("a", "b")
    net.happened()
    net.hub.heal()
    net.happened()
    net.send("a", b"to the dead", "b")
    net.send("b", b"from the dead", "a")
    net.hub.kill("b")
    net.close("b")
    net.open("b", "ac")
    assert not [each for each in net.happened() if isinstance(each[2], bytes)]
    net.send("a", b"anew", "b")
    assert ("b", "a", b"anew") in net.happened()


def test_a_killed_server_hears_nothing_and_cannot_be_opened_twice() -> None:
    """kill -9 and two processes of one name: the first is silent, the second is a mistake."""
    net = line()
    net.hub.kill("b")
    net.send("b", b"ghost", "a")
    assert net.happened() == [("a", "b", False), ("c", "b", False)]
    with pytest.raises(BadInput, match="open already"):
        net.open("a", "b")
    twin = net.hub.transport()
    with pytest.raises(BadInput, match="'a' is open already"):
        asyncio.run(twin.open("a", [], lambda *_: None, lambda *_: None))
    net.close("a")
    with pytest.raises(BadInput, match="closed"):
        net.send("a", b"", "b")


@pytest.mark.slow
def test_loss_and_duplication_come_as_often_as_asked() -> None:
    """4,000 draws: each count is within 6 standard deviations of its mean (false alarm below 1e-8)."""
    net = line(faults=Faults(loss=0.3, duplication=0.2))
    for n in range(4000):
        net.send("a", b"%d" % n, "b")
    got = [each[2] for each in net.happened()]
    arrived, copies = len(set(got)), len(got) - len(set(got))
    assert abs(arrived - 2800) < 6 * (4000 * 0.3 * 0.7) ** 0.5
    assert abs(copies - 560) < 6 * (4000 * 0.14 * 0.86) ** 0.5


def test_delays_are_drawn_from_their_range_and_let_messages_overtake() -> None:
    """Order is lost only where a test asks for it."""
    net = line(faults=Faults(delay=(0.5, 2.0)))
    times: list[float] = []
    for n in range(50):
        net.send("a", b"%02d" % n, "b")
    net.clock.run(until=0.49)
    assert net.told == []
    while len(net.told) < 50:
        net.clock.run(until=net.clock.now + 0.01) if net.clock._calls[0][0] <= net.clock.now + 0.01 else None
        net.clock.now += 0.01
        times.append(net.clock.now)
    assert times[-1] <= 2.02
    order = [each[2] for each in net.told]
    assert order != sorted(order, key=repr)
    calm = line()
    for n in range(50):
        calm.send("a", b"%02d" % n, "b")
    calm.clock.run()
    assert [each[2] for each in calm.told] == [b"%02d" % n for n in range(50)]


def test_a_run_is_repeated_by_its_seed() -> None:
    """Without that, a failing random sequence could not be looked at again."""

    def run(seed: int) -> list[tuple[str, str, object]]:
        net = line(faults=Faults(loss=0.2, duplication=0.2, delay=(0.0, 1.0)), seed=seed)
        for n in range(30):
            net.send("b", b"%d" % n, "ac")
        net.clock.run()
        return net.told

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_without_a_clock_of_its_own_it_uses_the_event_loop_s() -> None:
    """The shell's tests run in asyncio; a callback inside `send` itself would re-enter the node."""
    got: list[bytes] = []

    async def run() -> None:
        hub = MemoryHub(np.random.default_rng(0), faults=Faults(delay=(0.0, 0.01)))
        ends: list[Transport] = [hub.transport(), hub.transport()]
        for end, me, other in ((ends[0], "a", "b"), (ends[1], "b", "a")):
            await end.open(me, [Peer(other, "", other)], lambda _, payload: got.append(payload), lambda *_: None)
        hub.faults = Faults()
        await ends[0].send(b"soon", ["b"])
        assert got == []
        await asyncio.sleep(0)
        assert got == [b"soon"]
        hub.faults = Faults(delay=(0.01, 0.02))
        await ends[0].send(b"late", ["b"])
        await asyncio.sleep(0)
        assert got == [b"soon"]
        await asyncio.sleep(0.1)
        assert got == [b"soon", b"late"]
        for end in ends:
            await end.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "faults", [{"loss": 1.5}, {"duplication": -0.1}, {"delay": (2.0, 1.0)}, {"delay": (-1.0, 1.0)}]
)
def test_impossible_faults_are_refused(faults: dict[str, object]) -> None:
    """A typing error would otherwise make a test of faults a test of nothing."""
    with pytest.raises(BadInput):
        Faults(**faults)  # type: ignore[arg-type]
