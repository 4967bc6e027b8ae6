"""What can happen to a node. Each carries the time at which the shell saw it; the machine has no clock of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.machine.instructions import Instruction
from dpcrowd.privacy.account import Account

__all__ = [
    "DeadlinePassed",
    "LossConfirmed",
    "MessageArrived",
    "MessageSent",
    "NeighbourDown",
    "NeighbourUp",
    "SlotSealed",
    "Started",
    "Stimulus",
    "StoodStill",
    "StorageFailed",
    "StorageMended",
    "TimeLost",
]


@dataclass(frozen=True)
class Started:
    """The node runs; what the folder knew has been given to the machine."""

    at_ns: int


@dataclass(frozen=True)
class SlotSealed:
    """The grace of a slot has ended: these are its counts. None: the node was not there to count.

    account  from which the slot is paid, as it is on disk; None: the one that the server has
    """

    at_ns: int
    slot: int
    counts: NDArray[np.int64] | None
    account: Account | None = None


@dataclass(frozen=True)
class MessageArrived:
    """A payload from a neighbour, whose name the transport has authenticated."""

    at_ns: int
    sender: str
    payload: bytes


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
class NeighbourUp:
    """A neighbour can be reached (again)."""

    at_ns: int
    neighbour: str


@dataclass(frozen=True)
class NeighbourDown:
    """A neighbour cannot be reached any more."""

    at_ns: int
    neighbour: str


@dataclass(frozen=True)
class StorageFailed:
    """An instruction (the very object) could not be carried out, and none of those after it was; given at once."""

    at_ns: int
    failed: Instruction
    text: str


@dataclass(frozen=True)
class StorageMended:
    """Storing works again."""

    at_ns: int


@dataclass(frozen=True)
class StoodStill:
    """Nothing ran for a while: messages may have come that were not read in time."""

    at_ns: int


@dataclass(frozen=True)
class TimeLost:
    """The process was frozen, or the clock set ahead: this may be a snapshot of a machine that has lived on since."""

    at_ns: int


@dataclass(frozen=True)
class LossConfirmed:
    """The operator knows that the ledger lost samples, and has had them booked as fully spent."""

    at_ns: int


Stimulus = (
    Started
    | SlotSealed
    | MessageArrived
    | MessageSent
    | DeadlinePassed
    | NeighbourUp
    | NeighbourDown
    | StorageFailed
    | StorageMended
    | StoodStill
    | TimeLost
    | LossConfirmed
)
