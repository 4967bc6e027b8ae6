"""What a node has to do. The shell carries instructions out in their order; if one fails, those after it are dropped.

So an instruction to send that follows an instruction to store is never carried out unless the storing is durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpcrowd.node.machine.memory import Remembered
from dpcrowd.node.release import SlotRelease

__all__ = [
    "ForgetCheckIns",
    "Instruction",
    "Publish",
    "RefuseMessage",
    "Report",
    "ScheduleDeadline",
    "Send",
    "StoreCounters",
    "StoreRelease",
    "StoreSample",
]


@dataclass(frozen=True)
class StoreSample:
    """One durable transaction: what the slot cost, its noisy values, the whole state. Before anything leaves."""

    slot: int
    nano_epsilon: int
    counter: int
    noisy: bytes
    state: bytes


@dataclass(frozen=True)
class ForgetCheckIns:
    """Delete the check-ins of all slots up to this one, and their hash keys.

    This takes the longer the more there are: nothing that others can see may wait for it.
    """

    slot: int


@dataclass(frozen=True)
class Send:
    """To neighbours, by name. Sending the same payload twice is harmless.

    at_ns  not before this time, and as soon after it as can be; meanwhile other instructions and stimuli go on. When it
           has left, the machine is told (`MessageSent`). None: now.
    """

    slot: int
    payload: bytes
    to: tuple[str, ...]
    at_ns: int | None = None


@dataclass(frozen=True)
class ScheduleDeadline:
    """Tell the machine when this time has come."""

    slot: int
    at_ns: int


@dataclass(frozen=True)
class StoreRelease:
    """The release and the state after it.

    heard           names of the neighbours whose messages are in it
    counters        what neighbours said of their own ledgers since the last time, by name
    complete_until  the last slot up to which the own ledger was known to be complete
    """

    release: SlotRelease
    state: bytes
    heard: tuple[str, ...]
    counters: Mapping[str, Remembered] = field(default_factory=dict)
    complete_until: int = -1


@dataclass(frozen=True)
class Publish:
    """Tell everyone who listens at the API."""

    release: SlotRelease


@dataclass(frozen=True)
class StoreCounters:
    """What neighbours said of their own ledgers, by name, and their signatures under that. Before it is echoed."""

    counters: Mapping[str, Remembered]


@dataclass(frozen=True)
class RefuseMessage:
    """A message was not used: count it by its reason, and say why."""

    slot: int
    sender: str
    reason: str
    text: str


@dataclass(frozen=True)
class Report:
    """Something that an operator should know: a short name, and a sentence."""

    event: str
    text: str


Instruction = (
    StoreSample
    | ForgetCheckIns
    | Send
    | ScheduleDeadline
    | StoreRelease
    | Publish
    | StoreCounters
    | RefuseMessage
    | Report
)
