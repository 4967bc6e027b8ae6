"""What is kept of neighbours: the slot's exchange, what came too early, what they have ever said, who has come up.

Four parts of the state machine, which are read together:

    Exchange         one slot's exchange with the neighbours, and what is fused of it
    Early            messages that came before the own seal of their slot
    NeighbourMemory  what neighbours have sent of their own ledgers, remembered for them
    Newcomers        neighbours whose links have come up, and are sent at once what is remembered of them
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.revision import NetworkView
from dpcrowd.node.wire import CheckedMessage, CounterEcho, MessageRefused, proof_digest, same_content
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.messages import InfoMessages, Messages
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.server import Server

__all__ = ["Early", "Echoes", "Exchange", "NeighbourMemory", "Newcomers", "Remembered", "fuse_records"]

_MOST_FORWARDS = 16


@dataclass
class Exchange:
    """One slot's exchange with the neighbours: who is expected, and whose message has arrived.

    payload   the own message, to be sent again to a neighbour that comes up
    expected  numbers of the neighbours in this slot
    sent      whether the own message has left; it waits for its time
    heard     their messages by their numbers; None is a heartbeat, or a message whose records are kept elsewhere
    payloads  the same by their names, as they came
    awaited   names of the servers whose records of this slot are still to come, where servers pass records on
    """

    slot: int
    payload: bytes
    expected: frozenset[int]
    sent: bool = True
    heard: dict[int, InfoMessages | None] = field(default_factory=dict)
    payloads: dict[str, bytes] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether nobody is waited for. A release right after the seal would tell how long storing a sample took."""
        return self.sent and self.expected <= self.heard.keys() and not self.awaited

    def fuse(self, server: Server) -> tuple[Release, list[int]]:
        """Return the release of the server's open slot, and the numbers of neighbours whose messages were left out.

        Every message was checked before, number by number. But a filter inverts matrices of all of them together, and a
        neighbour that seeks the one which cannot be inverted may find it. That must cost its message, not the node.
        """
        messages = {number: message for number, message in self.heard.items() if message is not None}
        if not messages:
            return server.hear(), []
        before = server.save()
        release = _try_to_fuse(server, messages)
        if release is not None:
            return release, []
        usable: dict[int, InfoMessages] = {}
        for number, message in messages.items():
            server.restore(before)
            if _try_to_fuse(server, {number: message}) is not None:
                usable[number] = message
        server.restore(before)
        release = _try_to_fuse(server, usable)
        if release is None:  # each alone can be fused, all together cannot
            usable = {}
            server.restore(before)
            release = server.hear()
        return release, sorted(messages.keys() - usable.keys())


def fuse_records(server: Server, records: RecordMessages | None) -> tuple[Release, bool]:
    """Return the release of the server's open slot with records of any origins, and whether they could be used.

    Records hold integers within bounds, which the diagonal form always takes; full matrices may fail to be inverted.
    """
    if records is None:
        return server.hear(), True
    sender = len(server.mailbox.paid_until)  # whoever brought them: a number that no server has
    if server.setting.form == "diagonal":
        return server.hear({sender: records}), True
    before = server.save()
    release = _try_to_fuse(server, {sender: records})
    if release is not None:
        return release, True
    server.restore(before)
    return server.hear(), False


def _try_to_fuse(server: Server, messages: Mapping[int, Messages]) -> Release | None:
    """Return the release with these messages; None if no estimate comes of them."""
    try:
        with np.errstate(all="ignore"):
            release = server.hear(messages)
    except (BadInput, ArithmeticError, ValueError):  # numpy.linalg.LinAlgError is a ValueError
        return None
    estimate, variance = release.estimate, release.variance
    unknown = np.isnan(estimate) & ~np.isfinite(variance) & ~release.sampled
    return release if (np.isfinite(estimate) | unknown).all() and not (variance < 0.0).any() else None


@dataclass
class Early:
    """Messages that came before the own seal of their slot: a neighbour whose clock is a little ahead seals first.

    They wait, at most one per neighbour. One of another revision waits apart: it may be of the next one, which this
    node will have taken by then, and no message of the present one has to give way to it.

    By the neighbours' names: slot and payload. `forwards` are messages that pass records on, a few of each neighbour:
    name, slot and payload.
    """

    read: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    unread: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    forwards: list[tuple[str, int, bytes]] = field(default_factory=list)

    def keep_forward(self, name: str, slot: int, payload: bytes) -> None:
        """Keep a message that passes records on, unchecked."""
        if sum(sender == name for sender, _, _ in self.forwards) >= _MOST_FORWARDS:
            raise MessageRefused("rate-limited", f"{name} has sent {_MOST_FORWARDS} messages before their slot.")
        self.forwards.append((name, slot, payload))

    def keep(self, name: str, slot: int, payload: bytes, *, read: bool) -> None:
        """Keep a message; `read`: it is of the present revision, and was checked."""
        if not read:
            self.unread[name] = slot, payload
            return
        before = self.read.get(name)
        if before is not None and before[0] == slot and not same_content(before[1], payload):
            raise MessageRefused("replay", f"{name} sent two different messages for slot {slot}.")
        if before is None or before[0] < slot:
            self.read[name] = slot, payload

    def take(self, slot: int) -> list[tuple[str, bytes]]:
        """Return what waited for this slot; what waited for an earlier one is dropped."""
        waiting = [*self.read.items(), *self.unread.items(), *((name, (of, one)) for name, of, one in self.forwards)]
        self.forwards = [forward for forward in self.forwards if forward[1] > slot]
        self.read = {name: message for name, message in self.read.items() if message[0] > slot}
        self.unread = {name: message for name, message in self.unread.items() if message[0] > slot}
        return [(name, payload) for name, (of, payload) in waiting if of == slot]

    def again(self, slot: int, payloads: Mapping[str, bytes]) -> None:
        """Keep messages that were heard already, to be heard once more."""
        self.read |= {name: (slot, payload) for name, payload in payloads.items()}

    def check_again(self) -> None:
        """Have all messages checked anew: another revision has taken over."""
        self.unread = self.read | self.unread
        self.read = {}


Remembered = tuple[int, int, bytes, int]
"""(slot in which it was first said, counter, proof, slot since which the neighbour is remembered)"""


@dataclass(frozen=True)
class Echoes:
    """The part of a message that tells neighbours what is remembered of them; by their numbers.

    heard   the echo of each one's counter
    proofs  what they signed
    since   slots ago since which they are remembered, where that is longer than `heard` says
    """

    heard: dict[int, CounterEcho]
    proofs: dict[int, bytes]
    since: dict[int, int]


@dataclass
class NeighbourMemory:
    """What neighbours have sent of their own ledgers: remembered for them, and sent to them again.

    Of each the highest counter that it ever sent is kept, the slot in which it first sent it, and a proof that it did:
    its own signature, which it can check by its own key. The counter is echoed in every message. The proof is long and
    travels only when it may be needed: when the neighbour's last message had a lower counter, when it sent
    nothing in the slot before, and may come back as an old copy of itself, or when its link has just come up.

    An echo claims "I would know if you had spent more", and so must outlive a crash of this node: it is stored before
    it is sent (`StoreCounters`, or the last `StoreRelease`). What could not be stored is not echoed; what was stored
    earlier is.

    How far back the memory of a neighbour reaches is kept with its counter (`since`): to the slot of the last sample
    that arrived from it, or else of its first message. A counter that rises without a sample, because that was missed
    here, does not shorten the memory: a run of the neighbour that nobody vouches for yet may have sent it. What the
    neighbour makes of it is in `trust`.

    By the neighbours' names, which stay the same in all revisions.

    known   outlives a restart, once it is stored
    last    of this run: the slot of the last message, its counter times -1, whether it carried a sample
    stored  of `known`, what is on disk when the instructions that were given have been carried out
    """

    known: dict[str, Remembered]
    last: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    stored: dict[str, Remembered] = field(init=False)
    _on_disk: dict[str, Remembered] = field(init=False)

    def __post_init__(self) -> None:
        self.stored, self._on_disk = dict(self.known), dict(self.known)

    def hear(self, name: str, heard: CheckedMessage, *, ahead: bool) -> None:
        """Learn from a message that was checked.

        ahead  of a slot that is not to come yet: its sender's clock is wrong, and its next message is of another slot
        """
        body = heard.body
        if not ahead:
            latest = body.slot, -body.counter, heard.has_sample
            # Of two messages of a slot, the one with the lower counter.
            self.last[name] = max(latest, self.last.get(name, latest))
        first, counter, proof, since = self.known.get(name, (body.slot, -1, b"", body.slot))
        if body.counter > counter:
            self.known[name] = body.slot, body.counter, heard.proof, body.slot if heard.has_sample else since
        elif body.counter == counter and not heard.has_sample and proof_digest(proof) != body.digest:
            # Without anything new, the proof is renewed once per revision: a later one may no longer pin its key.
            self.known[name] = first, counter, heard.proof, since

    def echoes(self, slot: int, numbers: Mapping[str, int], prove_to: Collection[str] = ()) -> Echoes:
        """Return the echoes of the own message to these neighbours; those of `prove_to` get their proof in any case."""
        memories = {name: self.stored[name] for name in sorted(numbers, key=numbers.__getitem__) if name in self.stored}
        return Echoes(
            heard={
                numbers[name]: CounterEcho(slot - first, counter) for name, (first, counter, _, _) in memories.items()
            },
            proofs={
                numbers[name]: proof
                for name, (_, _, proof, _) in memories.items()
                if proof and (name in prove_to or self._doubtful(name, slot))
            },
            since={numbers[name]: slot - since for name, (first, _, _, since) in memories.items() if since < first},
        )

    def _doubtful(self, name: str, slot: int) -> bool:
        """Whether a neighbour's last message leaves open that it knows what is remembered of it."""
        if name not in self.last:
            return True
        first, counter, _, _ = self.stored[name]
        last_slot, below, sampled = self.last[name]
        # A sample raises the counter: as many as before, a later sample among them, are fewer of those before.
        return last_slot < slot - 1 or -below < counter or (-below == counter and sampled and last_slot > first)

    # ---------------------------------------------------------------------------------------------------- storing

    def unsaved(self) -> dict[str, Remembered]:
        """Return what is remembered and was not given to be stored yet."""
        return {name: memory for name, memory in self.known.items() if self.stored.get(name) != memory}

    def store(self) -> dict[str, Remembered]:
        """Return what has to be stored; from now on it counts as stored, unless `storing_failed` says otherwise."""
        unsaved = self.unsaved()
        self.stored |= unsaved
        return unsaved

    def storing_done(self) -> None:
        """Note that all instructions that were given have been carried out."""
        self._on_disk = dict(self.stored)

    def storing_failed(self) -> None:
        """Note that an instruction failed: of what was to be stored nothing is relied upon."""
        self.stored = dict(self._on_disk)


@dataclass
class Newcomers:
    """Neighbours whose links have come up: they are sent at once what is remembered of them, if that is possible.

    A neighbour that was restarted waits for somebody to vouch for its ledger (`trust`). The own message of the next
    slot would come after its next seal, and the slot would be lost. So the own message of the last slot s is written
    and sent once more, with what is remembered by now and marked as such (`Body.after`). It claims: "I have received
    whatever was sent up to slot s". That is true, and may be sent,

    - when the exchange of slot s has had its complete time, even if all messages came earlier: a message that is still
      on its way arrives by then, or never;
    - of a slot s that this run has sealed itself, and since when it has not stood still: a node that was not running,
      or has not read what waits for it, does not know what was sent;
    - while slot s + 1 is not sealed: by then something later may have been sent.

    waiting   names of neighbours that came up
    attended  the last slot whose exchange was attended; -1: none
    """

    waiting: set[str] = field(default_factory=set)
    attended: int = -1

    def sealed(self, slot: int) -> None:
        """Note that a slot is sealed: its message, which is about to leave, reaches everybody who waits."""
        self.attended = slot
        self.waiting.clear()

    def missed(self) -> None:
        """Note that time has passed in which nothing was heard, or read."""
        self.attended = -1

    def due(self, view: NetworkView, slot: int, at_ns: int) -> tuple[str, ...]:
        """Return to whom to send now what is remembered after the exchange of a slot, in the order of their numbers."""
        if not (self.attended == slot >= 0 and view.ends(slot) <= at_ns < view.seals(slot + 1)):
            return ()
        near = [view.names[number] for number in sorted(view.links(slot + 1))]
        return tuple(name for name in near if name in self.waiting)
