"""What the time tells: can a neighbour, or a reader, say from when something arrives how many people checked in?

A real node, another process, gets 10,000 check-ins in every other slot and none in the slots between. It samples in
every slot. A scripted neighbour over a real Zenoh link with TLS notes when the node's message of each slot arrives, and
a reader of /v1/stream when its release does; both after the slot's seal.

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
import numpy as np
from bench_node_release import NODE, Neighbour, Reader

from dpcrowd.node.transport.base import Peer
from dpcrowd.node.wire import peek

PEOPLE = 10_000
WARM_UP = 6
MOST = 0.62
_LATE = "left late;"


class Listener(Neighbour):
    """A neighbour that notes when the node's message of each slot arrives, and speaks right after the seal."""

    async def open(self) -> None:
        self.came: dict[int, int] = {}

        def note(_: str, payload: bytes) -> None:
            self.came.setdefault(peek(payload)[0], time.time_ns())

        other = self._network.server(NODE)
        peer = Peer(other.name, other.endpoint, other.certificate_name, tuple(other.keys))
        await self._transport.open(
            self.node.server, [peer], note, lambda _, up: self.up.set() if up else self.up.clear()
        )


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
        door = http.client.HTTPConnection("127.0.0.1", network.nodes[0].port, timeout=10)
        stack.callback(door.close)
        names = network.regions
        people = [{"user": f"person-{number}", "region": names[number % regions]} for number in range(PEOPLE)]
        body = json.dumps(people).encode()

        def give(slot: int) -> None:
            if slot % 2:
                headers = {"Authorization": f"Bearer {live.TOKEN}", "Content-Type": "application/json"}
                door.request("POST", "/v1/checkins", body, headers)
                answer = door.getresponse()
                if answer.status >= 300:
                    raise RuntimeError(f"{answer.status} {answer.read()[:300]!r}")
                answer.read()

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
    given = parser.parse_args()
    rows, targets, machine = [], [], live.state_of_machine()
    for regions in given.regions:
        messages, releases, late = measure(regions, given.slots, given.offset)
        for what, arrivals in (("message", messages), ("release", releases)):
            rows.append((*arrivals.row(what, regions), late))
            auc = max(arrivals.auc(), 1.0 - arrivals.auc())
            targets.append(Target(f"{regions:,} regions, AUC of the {what}", auc, MOST, at_least=False))
    print_table(
        f"Arrival after the seal in ms (5% / median / 95%), none against {PEOPLE:,} check-ins in alternate slots",
        ("regions", "what", "slots of each", "none", f"{PEOPLE:,}", "AUC", "late"),
        rows,
        f"late: messages that the node itself called late. {machine}",
    )
    print_targets(targets)


if __name__ == "__main__":
    main()
