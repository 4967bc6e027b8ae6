"""What the time tells: can a neighbour, or a reader, say from when something arrives how many people checked in?

A real node, another process, gets 10,000 check-ins in every other slot and none in the slots between. It samples in
every slot. A scripted neighbour over a real Zenoh link with TLS notes when something of the node arrives:

    message   the node's message of a slot, after the slot's seal
    release   the release, at a reader of /v1/stream, after the slot's seal
    forward   with relay: the record of another scripted neighbour, which the node passes on, after that one has sent
              it. It sends when the node itself does, as a server whose clock is right
    forward while check-ins arrive   the same, but the check-ins, of the next slot, arrive while the record does: what a
              busy machine gives away. There is no target for it

The figure is the area under the ROC curve (AUC): how often, of a slot with check-ins and one without, the one with
check-ins arrives later. 0.5 is a coin, 1 or 0 give it away. With n slots of each kind a coin shows 0.5 ± 0.41/√n in two
of three runs.
"""

from __future__ import annotations

from harness import Target, print_table, print_targets  # isort: skip  # first: sets threads

import argparse
import asyncio
import http.client
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import live
import msgspec
import numpy as np
from bench_node_release import NODE, Neighbour, Reader

from dpcrowd.node.transport.base import Peer
from dpcrowd.node.wire import VERSION, Body, encode, peek, peek_round
from dpcrowd.node.wire_records import sign_record
from dpcrowd.privacy.allocation import per_sample

PEOPLE = 10_000
WARM_UP = 6
MOST = 0.62
_LATE = "left late;"


class Listener(Neighbour):
    """A neighbour that notes when the node's message of each slot arrives, and when it passes records on."""

    async def open(self) -> None:
        self.came: dict[int, int] = {}
        self.forwarded: dict[int, int] = {}

        def note(_: str, payload: bytes) -> None:
            came = self.came if peek_round(payload) == 1 else self.forwarded
            came.setdefault(peek(payload)[0], time.time_ns())

        other = self._network.server(NODE)
        peer = Peer(other.name, other.endpoint, other.certificate_name, tuple(other.keys))
        await self._transport.open(
            self.node.server, [peer], note, lambda _, up: self.up.set() if up else self.up.clear()
        )


class Origin(Neighbour):
    """A neighbour that samples in every slot of a network whose servers pass records on."""

    @property
    def node_offset_ns(self) -> int:
        """How long after the seal the servers of the network send."""
        return self._network.send_offset_ns

    def payload(self, slot: int) -> bytes:
        view, terms = self._view, self._view.records
        assert terms is not None
        counts = self._draw.poisson(PEOPLE / len(view.regions), len(view.regions)).astype(np.float64)
        nano = per_sample(self._network.guarantee().total, terms.samples)
        record = sign_record(counts, digest=view.digest, origin=view.me, slot=slot, nano=nano, sign=view.sign)
        relayed = (msgspec.structs.replace(record, hops=1),)
        return encode(Body(VERSION, view.digest, view.me, slot, 1, slot + 1, {}, relayed=relayed), view.sign)


@dataclass
class Arrivals:
    """Milliseconds after the seal, of slots with and without check-ins."""

    many: list[float] = field(default_factory=list)
    none: list[float] = field(default_factory=list)

    def auc(self) -> float:
        many, none = np.array(self.many)[:, None], np.array(self.none)[None, :]
        return float(((many > none) + 0.5 * (many == none)).mean())

    def row(self, what: str, regions: int) -> tuple[object, ...]:
        def shown(values: list[float]) -> str:
            return " / ".join(f"{value:.1f}" for value in np.percentile(values, [5, 50, 95]))

        return f"{regions:,}", what, len(self.none), shown(self.none), shown(self.many), f"{self.auc():.2f}"


async def speak(network: live.LiveNetwork, listener: Listener, slots: int, give: Callable[[int], None]) -> int:
    """For so many slots: check-ins while it is open, a message of the neighbour when it is sealed. The first slot."""
    await listener.open()
    await asyncio.wait_for(listener.up.wait(), 60)
    first = network.clock.slot_of(time.time_ns()) + 1
    for slot in range(first, first + slots):
        await _until(network.clock.opens(slot) + 400_000_000)  # when the exchange of the slot before is over
        await asyncio.to_thread(give, slot)
        payload = listener.payload(slot)
        await _until(network.seals(slot) + 5_000_000)
        await listener.send(payload)
    await asyncio.sleep(1.5)
    await listener.close()
    return first


async def relay(
    network: live.LiveNetwork,
    origin: Origin,
    listener: Listener,
    slots: int,
    give: Callable[[int], None],
    *,
    busy: bool,
) -> dict[int, int]:
    """For so many slots: check-ins, and a record of the origin at the moment of sending; return when it was sent.

    busy  the check-ins arrive while the record does, not before
    """
    sent: dict[int, int] = {}
    for neighbour in (origin, listener):
        await neighbour.open()
        await asyncio.wait_for(neighbour.up.wait(), 60)
    first, offset = network.clock.slot_of(time.time_ns()) + 1, origin.node_offset_ns
    for slot in range(first, first + slots):
        await _until(network.clock.opens(slot) + 400_000_000)
        if not busy:
            await asyncio.to_thread(give, slot)
        payload = origin.payload(slot)
        await _until(network.seals(slot) + offset - 10_000_000)
        giving = asyncio.create_task(asyncio.to_thread(give, slot)) if busy else None
        await _until(network.seals(slot) + offset)
        sent[slot] = time.time_ns()
        await origin.send(payload)
        if giving is not None:
            await giving
    await asyncio.sleep(1.5)
    for neighbour in (origin, listener):
        await neighbour.close()
    return sent


def giver(network: live.LiveNetwork, port: int, stack: ExitStack) -> Callable[[int], None]:
    """Return what sends the check-ins of a slot to a node, in every other slot."""
    door = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    stack.callback(door.close)
    names, number = network.regions, len(network.regions)
    people = [{"user": f"person-{who}", "region": names[who % number]} for who in range(PEOPLE)]
    body = json.dumps(people).encode()

    def give(slot: int) -> None:
        if slot % 2:
            headers = {"Authorization": f"Bearer {live.TOKEN}", "Content-Type": "application/json"}
            door.request("POST", "/v1/checkins", body, headers)
            answer = door.getresponse()
            if answer.status >= 300:
                raise RuntimeError(f"{answer.status} {answer.read()[:300]!r}")
            answer.read()

    return give


def measure_forwards(regions: int, slots: int, *, busy: bool) -> tuple[Arrivals, int]:
    """Return when a record of another server arrives after that one has sent it, and how many messages were late."""
    with live.temporary() as folder, ExitStack() as stack:
        links = [("a", NODE), (NODE, "z")]
        network = live.make_live(folder, [NODE, "a", "z"], regions, links, population=3 * PEOPLE, relay=100)
        stack.enter_context(live.started(network.nodes[:1]))
        give = giver(network, network.nodes[0].port, stack)
        draw = np.random.default_rng(regions)
        origin, listener = Origin(network.nodes[1].config, draw), Listener(network.nodes[2].config, draw)
        sent = asyncio.run(relay(network, origin, listener, WARM_UP + slots, give, busy=busy))
        late = network.nodes[0].log.read_text(encoding="utf-8").count(_LATE)
    arrivals = Arrivals()
    for slot, at_ns in list(sent.items())[WARM_UP:]:
        if slot in listener.forwarded:
            (arrivals.many if slot % 2 else arrivals.none).append((listener.forwarded[slot] - at_ns) / 1e6)
    return arrivals, late


async def _until(at_ns: int) -> None:
    while (left := at_ns - time.time_ns()) > 0:
        await asyncio.sleep(left / 1e9)


def measure(regions: int, slots: int, offset: str | None) -> tuple[Arrivals, Arrivals, int]:
    """Arrivals at the neighbour and at the reader, and how many messages the node itself counts as late."""
    with live.temporary() as folder, ExitStack() as stack:
        network = live.make_live(folder, [NODE, "z"], regions, [(NODE, "z")], population=2 * PEOPLE, every_slot=True)
        if offset is not None:
            path = folder / "network.toml"
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("[network]\n", f'[network]\nsend_offset = "{offset}"\n', 1), encoding="utf-8")
        stack.enter_context(live.started(network.nodes[:1]))
        reader = Reader(network.nodes[0].port)
        reader.start()
        stack.callback(reader.close)
        give = giver(network, network.nodes[0].port, stack)
        listener = Listener(network.nodes[1].config, np.random.default_rng(regions))
        first = asyncio.run(speak(network, listener, WARM_UP + slots, give))
        late = network.nodes[0].log.read_text(encoding="utf-8").count(_LATE)
    messages, releases = Arrivals(), Arrivals()
    for slot in range(first + WARM_UP, first + WARM_UP + slots):
        for arrivals, came in ((messages, listener.came.get(slot)), (releases, reader.came.get(slot, (None,))[0])):
            if came is not None:
                (arrivals.many if slot % 2 else arrivals.none).append((came - network.seals(slot)) / 1e6)
    return messages, releases, late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=120, help="of a second each, for each number of regions")
    parser.add_argument("--regions", type=int, nargs="+", default=[51, 1_000])
    parser.add_argument("--offset", help="send_offset of network.toml, such as 0s; without it, the default")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    parser.add_argument("--parts", nargs="+", choices=["message", "forward"], default=["message", "forward"])
    given = parser.parse_args()
    rows, targets, machine = [], [], live.state_of_machine()
    for regions in given.regions:
        measured: list[tuple[str, Arrivals, int]] = []
        if "message" in given.parts:
            messages, releases, late = measure(regions, given.slots, given.offset)
            measured += [("message", messages, late), ("release", releases, late)]
        if "forward" in given.parts:
            measured.append(("forward", *measure_forwards(regions, given.slots, busy=False)))
            measured.append(("forward while check-ins arrive", *measure_forwards(regions, given.slots, busy=True)))
        for what, arrivals, late in measured:
            rows.append((*arrivals.row(what, regions), late))
            auc = max(arrivals.auc(), 1.0 - arrivals.auc())
            if "while" not in what:
                targets.append(Target(f"{regions:,} regions, AUC of the {what}", auc, MOST, at_least=False))
    print_table(
        f"Arrival in ms (5% / median / 95%), none against {PEOPLE:,} check-ins in alternate slots",
        ("regions", "what", "slots of each", "none", f"{PEOPLE:,}", "AUC", "late"),
        rows,
        f"late: messages that the node itself called late. {machine}",
    )
    print_targets(targets)


if __name__ == "__main__":
    main()
