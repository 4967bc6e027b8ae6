"""One node of a network whose other servers are played by the test: what they say, and when, is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.machine import Revision
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from dpcrowd.node.wire import VERSION, Body, encode, record_of
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from node_support import DIGEST, Disk, FreshNoise, Node, fake_sign, make_view
from node_support_wire import proof_in
from schemes_support import account_for, make_setting

REGIONS, WINDOW, SERVERS = 2, 4, 5
COUNTS = np.array([40, 17])


def make_server(
    noise: Any, *, number: int = 0, guarantee: Guarantee | None = None, interval: int = 1, with_account: bool = True
) -> Server:
    """Samples in every slot that its budget allows: in a window of 4, four times epsilon/4."""
    guarantee = guarantee or Guarantee.window(WINDOW, 2.0)
    name = "dpcrowd-w" if guarantee.kind == "window" else "dpcrowd"
    scheme = make_scheme(name, sampling="fixed", interval=interval)
    setting = make_setting(1, REGIONS, guarantee)
    return Server(
        scheme,
        setting,
        noise,
        number=number,
        share=0.5,
        max_degree=SERVERS - 1,
        account=account_for(guarantee, epoch_ns=0) if with_account else None,
        allow_simulated_noise=True,
    )


class Lone(Node):
    """Server 0; links are a set of numbers, or a function of the slot."""

    def __init__(
        self,
        links: Iterable[int] | Callable[[int], frozenset[int]] = (1, 2),
        *,
        disk: Disk | None = None,
        **server: Any,
    ) -> None:
        self.noise = server.pop("noise", None) or FreshNoise(1)
        linked = links if callable(links) else lambda slot: frozenset(links)
        view = make_view(0, SERVERS, linked, regions=REGIONS, send_offset_ns=server.pop("send_offset_ns", 0))
        super().__init__(view, lambda: make_server(self.noise, **server), disk)

    def seal(self, slot: int, counts: NDArray[np.int64] | None = COUNTS, late: int = 0) -> None:
        self.give(on.SlotSealed(self.view.seals(slot) + late, slot, counts))

    def end(self, slot: int, counts: NDArray[np.int64] | None = COUNTS) -> None:
        """A slot ends, and is counted when the machine asks for it."""
        self.counts = counts
        self.give(on.SlotEnded(self.view.seals(slot), slot))

    def follow(self, slot: int, **changes: Any) -> None:
        """Another revision takes over with the end of a slot."""
        self.following = Revision(replace(self.view, revision=2, first_slot=slot, **changes), self.make_server)
        self.give(on.RevisionExpected(self.view.clock.opens(slot), 2, slot))

    def hear(self, number: int, payload: bytes, at_ns: int | None = None) -> None:
        """Something arrives from a neighbour; by default a moment after the last seal."""
        at_ns = self.view.seals(max(self.machine.server.slot, 0)) + 1 if at_ns is None else at_ns
        self.give(on.MessageArrived(at_ns, f"server-{number}", payload))

    def pass_deadline(self, slot: int) -> None:
        self.give(on.DeadlinePassed(self.view.ends(slot), slot))

    def live(self, slots: Iterable[int]) -> None:
        """Slots in which no neighbour says anything."""
        for slot in slots:
            self.seal(slot)
            self.pass_deadline(slot)

    @property
    def reasons(self) -> list[str]:
        return [refused.reason for refused in self.refused]

    @property
    def events(self) -> list[str]:
        return [report.event for report in self.reports]

    def take(self, kind: type[do.Instruction]) -> list[Any]:
        """Instructions of one kind that were carried out since the last time that anything was taken."""
        found = [told for told in self.told if isinstance(told, kind)]
        self.told.clear()
        return found


def proof(slot: int, counter: int, *, by: int = 0, **other: Any) -> bytes:
    """That a server, or whoever has the key `by`, has said a counter in a slot."""
    return proof_in(beat(by, slot, counter=counter, **other))


def beat(
    number: int,
    slot: int,
    *,
    counter: int = 0,
    echo: int | None = None,
    ago: int = 1,
    proven: bool | bytes = False,
    **other: Any,
) -> bytes:
    """A heartbeat of a neighbour.

    echo    the counter that it remembers of server 0, since so many slots `ago`
    proven  with the signature of server 0 under that, or with other bytes in its place
    """
    heard = {} if echo is None else {0: (ago, echo)}
    if proven:
        shown = proof(slot - ago, echo or 0) if proven is True else proven
        other = {"proofs": {0: shown}, **other}
    fields = {"version": VERSION, "digest": DIGEST, "server": number, "slot": slot, "round": 1, "counter": counter}
    return encode(Body(**{**fields, "heard": heard, **other}), fake_sign(number))


def sample(number: int, slot: int, value: float = 100.0, *, counter: int = 1, **other: Any) -> bytes:
    """A neighbour's sample that says `value` for each region, with a variance of 50."""
    information = np.full((1, REGIONS), 0.02)
    known = np.ones((1, REGIONS), dtype=np.bool_)
    message = InfoMessages(known[:, 0], information * value, information, np.full((1, REGIONS), value), known)
    record = record_of(message, digest=DIGEST, origin=number, slot=slot, sign=fake_sign(number))
    told = {"prior": message.prior.tobytes(), "prior_known": known.astype("u1").tobytes(), "records": (record,)}
    return beat(number, slot, counter=counter, **{**told, **other})


def restarted(disk: Disk, slot: int, links: tuple[int, ...] = (1, 2)) -> Lone:
    """A new run of the node in the middle of a slot, from some disk."""
    node = Lone(links, disk=disk)
    node.restart(node.view.clock.opens(slot) + SECOND // 2)
    return node


def lived(slots: int = 5) -> Lone:
    node = Lone()
    node.live(range(slots))
    return node


def seal_and_hear(node: Lone, slot: int, *payloads: tuple[int, bytes]) -> bool:
    """One slot; whether the node sampled in it."""
    node.seal(slot)
    for number, payload in payloads:
        node.hear(number, payload)
    node.pass_deadline(slot)
    return slot in node.disk.samples
