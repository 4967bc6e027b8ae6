"""A network of state machines under a mock clock: a disk that is a dictionary, and links that can lose and repeat."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.machine import Machine, NetworkView, Revision
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.messages import check_message
from dpcrowd.node.machine.neighbours import Remembered
from dpcrowd.node.machine.revision import RecordTerms
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SECOND, SlotClock
from dpcrowd.node.wire import Body, CheckedMessage
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.payments import Payment
from dpcrowd.schemes.server import Server

GRACE, DEADLINE = SECOND // 10, SECOND // 2
DIGEST = bytes(range(16))
STORING = (do.StoreSample, do.StoreRelease)
WRITING = (*STORING, do.StoreCounters, do.ForgetCheckIns, do.BookLoss, do.StoreReturn)
"""Instructions that a full disk may refuse: those that must be durable, and all that write anything."""


def fake_sign(number: int) -> Callable[..., bytes]:
    """Stands in for Ed25519: 64 bytes that only this server makes."""

    def sign(*parts: bytes) -> bytes:
        told = hashlib.blake2b(key=number.to_bytes(4, "little"), digest_size=64)
        for part in parts:
            told.update(len(part).to_bytes(8, "little") + part)
        return told.digest()

    return sign


def fake_verify(number: int, signature: bytes, *parts: bytes) -> bool:
    return fake_sign(number)(*parts) == signature


def checked(view: NetworkView, number: int, payload: bytes) -> CheckedMessage:
    """Return a neighbour's message, checked as a machine with this view does."""
    return check_message(view, number, payload)


def make_view(
    number: int,
    servers: int,
    links: Callable[[int], frozenset[int]],
    *,
    regions: int,
    form: str = "diagonal",
    send_offset_ns: int = 0,
    records: RecordTerms | None = None,
) -> NetworkView:
    """Slots of one second from the year 1970 on."""
    return NetworkView(
        me=number,
        names=tuple(f"server-{i}" for i in range(servers)),
        digest=DIGEST,
        clock=SlotClock(0, SECOND),
        grace_ns=GRACE,
        deadline_ns=DEADLINE,
        send_offset_ns=send_offset_ns,
        regions=tuple(f"region-{i}" for i in range(regions)),
        form=form,
        links=links,
        sign=fake_sign(number),
        verify=fake_verify,
        records=records,
    )


@dataclass
class Disk:
    """What survives a crash."""

    state: bytes | None = None
    samples: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    counter: int = 0
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)
    proofs: dict[str, bytes] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    complete_until: int | None = None
    releases: dict[int, SlotRelease] = field(default_factory=dict)
    records: dict[tuple[int, str], do.StoredRecord] = field(default_factory=dict)
    full: bool = False
    refuses: tuple[type, ...] = STORING
    lost_until: int = -1  # slots that the operator has declared lost: never drawn again

    def copy(self) -> Disk:
        """A backup, or a snapshot of the complete machine; what is stored is never changed, only replaced."""
        return Disk(**{name: copy.copy(value) for name, value in vars(self).items()})


class Crashed(Exception):
    """The process was killed between two instructions; the rest was not carried out."""


class FreshNoise:
    """Noise that is never the same, not even for one slot: a second draw shows. Whole numbers around the counts."""

    private = False

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.drawn: list[int] = []

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        self.drawn.append(slot)
        return np.where(where, counts + self._rng.integers(-(10**6), 10**6, counts.shape), 0.0)


def body_of(payload: bytes) -> Body:
    """What a payload says, unchecked."""
    head, rest, _ = msgspec.msgpack.decode(payload)
    return msgspec.convert([*msgspec.msgpack.decode(head), *msgspec.msgpack.decode(rest)], Body)


class Node:
    """A machine, its disk, and the part of the shell that carries instructions out.

    told     every instruction that was carried out, of all lives
    waiting  messages whose time to leave has not come
    counts   that every slot has, if the machine asks for them
    following  what takes over when the machine asks for it
    earlier  revisions before the one in use, of which the next start has copies
    crash_in how many more instructions are carried out before the process is killed; None: it lives
    """

    def __init__(self, view: NetworkView, make: Callable[[], Server], disk: Disk | None = None) -> None:
        self.view, self.make, self.disk = view, make, disk or Disk()
        self.outbox: list[do.Send] = []
        self.waiting: list[do.Send] = []
        self.published: list[SlotRelease] = []
        self.refused: list[do.RefuseMessage] = []
        self.reports: list[do.Report] = []
        self.deadlines: dict[int, int] = {}
        self.forward_at: int | None = None
        self.told: list[do.Instruction] = []
        self.crash_in: int | None = None
        self.counts: NDArray[np.int64] | None = None
        self.following: Revision | None = None
        self.earlier: tuple[NetworkView, ...] = ()
        self._unspent = make().account
        self.machine = self._machine(vouched=True)

    def _machine(self, *, vouched: bool) -> Machine:
        server = self.make_server(self.account())
        if self.disk.state is not None:
            server.restore(self.disk.state)
        heard = {name: (*said, self.disk.proofs[name], self.disk.since[name]) for name, said in self.disk.heard.items()}
        return Machine(
            Revision(self.view, self.make_server),
            server,
            counter=self.disk.counter,
            heard=heard,
            vouched=vouched,
            complete_until=self.disk.complete_until,
            stored=tuple(self.disk.records.values()),
            earlier=self.earlier,
        )

    def make_server(self, account: Account | None) -> Server:
        """A new server, that spends from an account."""
        server = self.make()
        if account is not None:
            server.use(account)
        return server

    def account(self) -> Account | None:
        """With what the disk has; None: the server has a ledger of its own."""
        account, clock = self._unspent, self.view.clock
        if account is None:
            return None
        for slot, (nano, _) in self.disk.samples.items():
            times = clock.opens(slot), clock.closes(slot)
            account = account.add(Payment(account.count + 1, account.network, "sample", slot, *times, nano))
        return account

    def restart(self, at_ns: int, *, vouched: bool = False) -> None:
        """Killed and started again: only the disk is left."""
        self.deadlines.clear()
        self.forward_at = None
        self.outbox.clear()
        self.waiting.clear()
        self.crash_in = None
        self.machine = self._machine(vouched=vouched)
        self.give(on.Started(at_ns))

    def give(self, stimulus: on.Stimulus) -> None:
        if isinstance(stimulus, on.SlotSealed) and stimulus.account is None:
            stimulus = replace(stimulus, account=self.account())
        instructions = self.machine.handle(stimulus)
        for place, instruction in enumerate(instructions):
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in < 0:
                    raise Crashed
            if self._is_refused(instruction):
                rest = tuple(instructions[place + 1 :])
                self.give(on.StorageFailed(stimulus.at_ns, instruction, "The disk is full.", rest))
                return
            self.told.append(instruction)
            result = self._carry_out(instruction, stimulus.at_ns)
            if result is not None:
                self.give(result)

    def _is_refused(self, instruction: do.Instruction) -> bool:
        if isinstance(instruction, do.StoreSample) and instruction.slot <= self.disk.lost_until:
            return True
        return self.disk.full and isinstance(instruction, self.disk.refuses)

    def _carry_out(self, instruction: do.Instruction, at_ns: int) -> on.Stimulus | None:
        match instruction:
            case do.StoreSample(slot, nano, counter, noisy, state, record):
                self._store_records(() if record is None else (record,))
                assert slot not in self.disk.samples, "a second draw for one slot"
                self.disk.samples[slot] = nano, noisy
                self.disk.counter, self.disk.state, self.disk.complete_until = counter, state, slot
                return on.SampleStored(at_ns, counter)
            case do.StoreRelease(release, state, _, counters, complete_until, records, final_until):
                self._store_records(records, final_until)
                self.disk.releases[release.slot], self.disk.state = release, state
                self.disk.complete_until = complete_until
                self._remember(counters)
            case do.StoreCounters(counters):
                self._remember(counters)
            case do.Send(_, payload, _, leaves_ns):
                body = body_of(payload)
                for own in body.records:
                    assert self._is_paid(own.origin, body.slot), "sent before it was paid for"
                for relayed in body.relayed:
                    if relayed.origin == self.view.me:
                        assert self._is_paid(relayed.origin, relayed.slot), "sent before it was paid for"
                        assert (relayed.slot, self.view.names[self.view.me]) in self.disk.records
                for number, (_, counter) in body.heard.items():
                    assert self.disk.heard[self.view.names[number]][1] >= counter, "echoed before it was stored"
                (self.outbox if leaves_ns is None else self.waiting).append(instruction)
            case do.ScheduleDeadline(slot, due_ns):
                self.deadlines[slot] = due_ns
            case do.ScheduleForward(due_ns):
                self.forward_at = due_ns
            case do.Publish(release):
                assert not release.sampled or release.slot in self.disk.samples, "published before it was paid"
                self.published.append(release)
            case do.RefuseMessage():
                self.refused.append(instruction)
            case do.Report():
                self.reports.append(instruction)
            case do.CountSlot(slot, regions):
                return on.SlotSealed(at_ns, slot, None if regions is None else self.counts)
            case do.TakeOver(_, slot):
                assert self.following is not None
                return on.RevisionTaken(at_ns, slot, self.following, self.account())
            case do.BookLoss(_, counter, remembered, complete_until):
                self.disk.counter, self.disk.complete_until = max(counter, remembered or 0), complete_until
                self.disk.lost_until = complete_until
                return on.LossBooked(at_ns, self.disk.counter, "the loss is booked.")
            case do.LookBack(_, last):
                known = max((slot for slot in self.disk.releases if slot <= last), default=-1)
                return on.ClockLookedUp(at_ns, last, known, "slots begin again.", self.account())
            case do.StoreReturn(_, last, state, complete_until):
                self.disk.state, self.disk.complete_until = state, complete_until
                self.disk.releases = {slot: one for slot, one in self.disk.releases.items() if slot <= last}
                return on.ClockReturned(at_ns)
        return None

    def _store_records(self, records: Sequence[do.StoredRecord], final_until: int | None = None) -> None:
        self.disk.records |= {(one.slot, one.origin): one for one in records}
        if final_until is not None:
            self.disk.records = {key: one for key, one in self.disk.records.items() if key[0] > final_until}

    def forward(self) -> None:
        """The time has come to pass on records."""
        if self.forward_at is not None:
            due_ns, self.forward_at = self.forward_at, None
            self.give(on.ForwardDue(due_ns))

    def leave(self, at_ns: int | None = None) -> None:
        """The time of the messages that wait has come, or a later one."""
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            assert message.at_ns is not None
            self.outbox.append(message)
            self.give(on.MessageSent(message.at_ns if at_ns is None else at_ns, message.slot))

    def _remember(self, counters: Mapping[str, Remembered]) -> None:
        for name, (slot, counter, proof, since) in counters.items():
            self.disk.heard[name], self.disk.proofs[name], self.disk.since[name] = (slot, counter), proof, since

    def _is_paid(self, origin: int, slot: int) -> bool:
        """Whether the price and the values of the own sample are on the disk now."""
        if origin != self.view.me or slot not in self.disk.samples:
            return False
        sample = self.machine.server.open_sample()
        if slot != self.machine.server.slot:
            return True
        return sample is None or sample[1].tobytes() == self.disk.samples[slot][1]


class Network:
    """Nodes, and messages that travel at once unless `drop` says otherwise."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.drop: Callable[[int, int, bytes], bool] = lambda sender, receiver, payload: False
        self.down: set[int] = set()

    def slot(self, slot: int, counts: NDArray[np.int64]) -> None:
        """One slot of everybody: seal, exchange, deadline."""
        for node in self._up():
            node.give(on.SlotSealed(node.view.seals(slot), slot, counts[node.view.me]))
        for node in self._up():
            node.leave()
        self.deliver()
        for node in self._up():
            node.give(on.DeadlinePassed(node.view.ends(slot), slot))
        self.deliver()

    def deliver(self) -> None:
        """Until nobody has anything more to send."""
        while any(node.outbox or node.forward_at is not None for node in self._up()):
            for node in self._up():
                node.forward()
            for sender in self._up():
                sent, sender.outbox = sender.outbox, []
                for message in sent:
                    for name in message.to:
                        self._hand_over(sender, name, message)

    def _hand_over(self, sender: Node, name: str, message: do.Send) -> None:
        number = sender.view.number(name)
        assert number is not None
        receiver = self.nodes[number]
        if number in self.down or self.drop(sender.view.me, number, message.payload):
            return
        at_ns = receiver.view.seals(message.slot) + 1
        receiver.give(on.MessageArrived(at_ns, sender.view.names[sender.view.me], message.payload))

    def _up(self) -> list[Node]:
        return [node for node in self.nodes if node.view.me not in self.down]
