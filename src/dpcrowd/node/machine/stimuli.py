"""What can happen to a node. Nothing else changes the state of its protocol, and nothing else is queued.

Each carries the time at which the shell saw it; the machine has no clock of its own. Those that answer an instruction
carry the time of the stimulus that it came from: nobody else may learn how long counting and storing took.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.machine.instructions import Instruction, Unsampled
from dpcrowd.node.machine.revision import Revision
from dpcrowd.node.wire import Sign
from dpcrowd.privacy.account import Account

__all__ = [
    "ClockAccepted",
    "ClockLookedUp",
    "ClockReturned",
    "ClockSet",
    "DeadlinePassed",
    "ForwardDue",
    "KeyRenewed",
    "LinksClosed",
    "LinksExpired",
    "LinksOpened",
    "LossBooked",
    "LossConfirmed",
    "MessageArrived",
    "MessageSent",
    "NeighbourDown",
    "NeighbourUp",
    "RevisionExpected",
    "RevisionTaken",
    "SampleStored",
    "SlotEnded",
    "SlotSealed",
    "Started",
    "Stimulus",
    "StoodStill",
    "StorageFailed",
    "StorageRecovered",
    "TimeLost",
]


@dataclass(frozen=True)
class Started:
    """The node runs; what the folder knew has been given to the machine."""

    at_ns: int


# ------------------------------------------------------------------------------------------------------------ a slot


@dataclass(frozen=True)
class SlotEnded:
    """The grace of a slot has ended: it accepts no more check-ins."""

    at_ns: int
    slot: int


@dataclass(frozen=True)
class SlotSealed:
    """These are the counts of a slot that is over. None: it was not counted.

    account  from which the slot is paid, as it is on disk; None: the one that the server has
    why      for which reason there are no counts; or, if there are, that the horizon is over (budget)
    """

    at_ns: int
    slot: int
    counts: NDArray[np.int64] | None
    account: Account | None = None
    why: Unsampled | None = None


@dataclass(frozen=True)
class SampleStored:
    """The last sample is paid for and on disk, as the ledger's payment of this number."""

    at_ns: int
    counter: int


@dataclass(frozen=True)
class MessageSent:
    """The own message of a slot, which had to wait for its time, has left."""

    at_ns: int
    slot: int


@dataclass(frozen=True)
class DeadlinePassed:
    """Neighbours have had their time for this slot."""

    at_ns: int
    slot: int


@dataclass(frozen=True)
class ForwardDue:
    """The time has come to pass on records that have arrived."""

    at_ns: int


# --------------------------------------------------------------------------------------------------------- neighbours


@dataclass(frozen=True)
class MessageArrived:
    """A payload from a neighbour, whose name the transport has authenticated."""

    at_ns: int
    sender: str
    payload: bytes


@dataclass(frozen=True)
class NeighbourUp:
    """A neighbour can be reached (again), over links that were opened as `session`."""

    at_ns: int
    neighbour: str
    session: int = 0


@dataclass(frozen=True)
class NeighbourDown:
    """A neighbour cannot be reached any more."""

    at_ns: int
    neighbour: str
    session: int = 0


@dataclass(frozen=True)
class LinksExpired:
    """Links are not what they should be: the own certificate has expired, or, `anew`, all need another handshake."""

    at_ns: int
    anew: bool = False


@dataclass(frozen=True)
class LinksClosed:
    """There are no links now, or they are about to be closed: nothing can be sent."""

    at_ns: int


@dataclass(frozen=True)
class LinksOpened:
    """These neighbours, by name, can be linked with; whoever comes up over these links is of this session."""

    at_ns: int
    neighbours: tuple[str, ...]
    session: int = 0


@dataclass(frozen=True)
class KeyRenewed:
    """The server's key files were replaced: it signs with a renewed key, or the same one.

    expires  when its certificate does, in seconds since 1970
    """

    at_ns: int
    sign: Sign
    expires: int


# ------------------------------------------------------------------------------------------------- storage and clock


@dataclass(frozen=True)
class StorageFailed:
    """An instruction could not be carried out, and so the `rest`, those after it, were not either; given at once."""

    at_ns: int
    failed: Instruction
    text: str
    rest: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class StorageRecovered:
    """Storing works again."""

    at_ns: int


@dataclass(frozen=True)
class ClockSet:
    """The clock, which says `at_ns` now, was set by this much, ahead or (below 0) back."""

    at_ns: int
    moved_ns: int


@dataclass(frozen=True)
class StoodStill:
    """Nothing ran for a while: messages may have come that were not read in time."""

    at_ns: int


@dataclass(frozen=True)
class TimeLost:
    """The process was frozen, or the clock set ahead: this may be a snapshot of a machine that has lived on since."""

    at_ns: int


# ------------------------------------------------------------------------------------------ revisions, and decisions


@dataclass(frozen=True)
class RevisionExpected:
    """The next revision of the network is known, and valid from a slot on."""

    at_ns: int
    revision: int
    first_slot: int


@dataclass(frozen=True)
class RevisionTaken:
    """What the next revision promises is declared; this is how the network looks from a slot on, and the account."""

    at_ns: int
    slot: int
    revision: Revision
    account: Account | None = None


@dataclass(frozen=True)
class LossConfirmed:
    """The operator knows that the ledger has lost samples."""

    at_ns: int


@dataclass(frozen=True)
class LossBooked:
    """The loss counts as fully spent from now on: it is in the account, and the ledger goes on from this counter."""

    at_ns: int
    counter: int
    text: str
    account: Account | None = None


@dataclass(frozen=True)
class ClockAccepted:
    """The operator says that the clock, which was ahead and has come back, is right now."""

    at_ns: int


@dataclass(frozen=True)
class ClockLookedUp:
    """What the folder knows of the time up to slot `last`, after which slots are to begin again.

    known  the last slot that was released before them
    text   the explanation for the operator, which the log keeps
    """

    at_ns: int
    last: int
    known: int
    text: str
    account: Account | None = None


@dataclass(frozen=True)
class ClockReturned:
    """The decision that slots begin again is stored."""

    at_ns: int


Stimulus = (
    Started
    | SlotEnded
    | SlotSealed
    | SampleStored
    | MessageSent
    | DeadlinePassed
    | ForwardDue
    | MessageArrived
    | NeighbourUp
    | NeighbourDown
    | LinksExpired
    | LinksClosed
    | LinksOpened
    | KeyRenewed
    | StorageFailed
    | StorageRecovered
    | ClockSet
    | StoodStill
    | TimeLost
    | RevisionExpected
    | RevisionTaken
    | LossConfirmed
    | LossBooked
    | ClockAccepted
    | ClockLookedUp
    | ClockReturned
)
