"""What a node has to do. The shell carries instructions out in their order; if one fails, those after it are dropped.

So an instruction to send that follows an instruction to store is never carried out unless the storing is durable.

Some instructions are questions. The answer comes back as a stimulus before the next instruction is carried out, and
before anything else that waits is handled:

    StoreSample      SampleStored
    CountSlot        SlotSealed
    Link             LinksClosed, LinksOpened
    TakeOver         RevisionTaken
    BookLoss         LossBooked
    LookBack         ClockLookedUp
    StoreReturn      ClockReturned

If any of them cannot be carried out, `StorageFailed` comes instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dpcrowd.node.machine.neighbours import Remembered
from dpcrowd.node.release import SlotRelease, Smoothing
from dpcrowd.node.wire import MessageReason

__all__ = [
    "Answer",
    "BeginAgain",
    "BookClockStep",
    "BookLoss",
    "CountSlot",
    "ForgetCheckIns",
    "Instruction",
    "Link",
    "LookBack",
    "NotSampled",
    "Publish",
    "RefuseMessage",
    "Report",
    "ScheduleDeadline",
    "ScheduleForward",
    "Send",
    "SendKind",
    "StoreCounters",
    "StoreRelease",
    "StoreReturn",
    "StoreSample",
    "StoredRecord",
    "TakeOver",
    "Unsampled",
]

Unsampled = Literal["downtime", "feed", "limit", "ledger", "storage", "budget", "revision", "schedule"]
"""Why a sealed slot has no sample."""

SendKind = Literal["heartbeat", "data", "forward", "join"]
"""What a message is sent for: to be heard of, to tell a sample, to pass on records of others, or for a late join."""


@dataclass(frozen=True)
class StoredRecord:
    """A record of the last L slots, or a proof that its origin has signed two of them, as it is stored."""

    slot: int
    origin: str
    kind: Literal["record", "proof"]
    content: bytes


@dataclass(frozen=True)
class Link:
    """Have links to the neighbours of a slot, and to nobody else; none once the own certificate has expired.

    anew      close them first, so that handshakes are made with what the key files hold now
    rest      open them a little later, so that neighbours take them for new ones; the machine is told (`LinksExpired`)
    required  the node ends if they cannot be opened; otherwise it is tried again with the next slot
    """

    slot: int
    anew: bool = False
    required: bool = False
    rest: bool = False


@dataclass(frozen=True)
class CountSlot:
    """Say what was counted in a slot that is over, and what it may cost.

    regions  names, in the order of the counts; None: it is not to be counted
    """

    slot: int
    regions: tuple[str, ...] | None


@dataclass(frozen=True)
class StoreSample:
    """Store, in one durable transaction, what the slot cost, its noisy values and the complete state.

    record  the same as a signed record, where servers pass records on
    """

    slot: int
    nano_epsilon: int
    counter: int
    noisy: bytes
    state: bytes
    record: StoredRecord | None = None


@dataclass(frozen=True)
class NotSampled:
    """Count a slot that was sealed without a sample by its reason, and log the text if there is one."""

    slot: int
    why: Unsampled
    text: str = ""


@dataclass(frozen=True)
class ForgetCheckIns:
    """Delete the check-ins of all slots up to this one, and their hash keys.

    The time that this takes grows with their number: nothing that others can see may wait for it.
    """

    slot: int


@dataclass(frozen=True)
class Send:
    """Send a payload to neighbours, by name. Sending the same payload twice is harmless.

    at_ns  not before this time, and as soon after it as can be; meanwhile other instructions and stimuli go on. When it
           has left, the machine is told (`MessageSent`). None: now.
    """

    slot: int
    payload: bytes
    to: tuple[str, ...]
    at_ns: int | None = None
    kind: SendKind = "data"


@dataclass(frozen=True)
class ScheduleDeadline:
    """Tell the machine when this time has come."""

    slot: int
    at_ns: int


@dataclass(frozen=True)
class ScheduleForward:
    """Tell the machine when this time has come (`ForwardDue`): what arrives until then is passed on together."""

    at_ns: int


@dataclass(frozen=True)
class StoreRelease:
    """Store the release and the state after it.

    heard           names of the neighbours whose messages are in it
    counters        what neighbours have sent of their own ledgers since the last time, by name
    complete_until  the last slot up to which the own ledger was known to be complete
    records         records and proofs that have arrived since the last time; a proof takes the place of its record
    final_until     the last slot whose records are not needed any more; None: no records are kept
    smoothed        past slots, estimated again, once they are stored; None: the scheme keeps no records
    """

    release: SlotRelease
    state: bytes
    heard: tuple[str, ...]
    counters: Mapping[str, Remembered] = field(default_factory=dict)
    complete_until: int = -1
    records: tuple[StoredRecord, ...] = ()
    final_until: int | None = None
    smoothed: Smoothing | None = None


@dataclass(frozen=True)
class Publish:
    """Publish a release to everyone who listens at the API."""

    release: SlotRelease


@dataclass(frozen=True)
class StoreCounters:
    """Store what neighbours sent of their own ledgers, by name, and their signatures, before it is echoed."""

    counters: Mapping[str, Remembered]


@dataclass(frozen=True)
class RefuseMessage:
    """Count a message that is not used by its reason, and log why."""

    slot: int
    sender: str
    reason: MessageReason
    text: str


@dataclass(frozen=True)
class Report:
    """Log what an operator should know: a short name, and a sentence."""

    event: str
    text: str
    grave: bool = False


@dataclass(frozen=True)
class Answer:
    """Reply to the operator who has decided something."""

    text: str


@dataclass(frozen=True)
class TakeOver:
    """Declare what the next revision promises, durably, and keep its file as the one in use.

    slot   the first slot that is sealed under it
    until  give an account that knows of slots up to this one
    """

    revision: int
    slot: int
    until: int


@dataclass(frozen=True)
class BookLoss:
    """Book durably that what the ledger has lost counts as a complete budget, until the open slot ends.

    So does whatever there may be that none of them remembers.

    counter         samples that the ledger knows of
    remembered      samples that somebody remembers; None: nobody who was heard remembers the node
    complete_until  the last slot whose message was sent: with the loss, the ledger is complete up to there
    """

    at_ns: int
    counter: int
    remembered: int | None
    complete_until: int


@dataclass(frozen=True)
class LookBack:
    """Look up what is known of slots up to `last`, after which slots begin again, and the account; see `clock_return`.

    sealed  the last slot that was sealed by the clock that was ahead
    """

    sealed: int
    last: int


@dataclass(frozen=True)
class StoreReturn:
    """Store, in one durable transaction, that slots after `last` begin again with this state, and the text."""

    at_ns: int
    last: int
    state: bytes
    complete_until: int
    text: str


@dataclass(frozen=True)
class BeginAgain:
    """Open and seal slots after `last` again: whatever waits for slots by the other clock is void."""

    last: int


@dataclass(frozen=True)
class BookClockStep:
    """Tell the ledger, before anything more is paid, that the clock said `at_ns` and was set by `moved_ns`."""

    at_ns: int
    moved_ns: int


Instruction = (
    Link
    | CountSlot
    | StoreSample
    | NotSampled
    | ForgetCheckIns
    | Send
    | ScheduleDeadline
    | ScheduleForward
    | StoreRelease
    | Publish
    | StoreCounters
    | RefuseMessage
    | Report
    | Answer
    | TakeOver
    | BookLoss
    | LookBack
    | StoreReturn
    | BeginAgain
    | BookClockStep
)
