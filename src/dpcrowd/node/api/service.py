"""What the API needs of a node; the shell implements it, tests imitate it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from dpcrowd.node.api.broadcast import Lost
from dpcrowd.node.api.limits import RequestLimit
from dpcrowd.node.api.views import BudgetView, Level, NetworkStatus
from dpcrowd.node.config.tokens import Right
from dpcrowd.node.ingest.batch import Batch, RefusedRow
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SlotClock

__all__ = ["Context", "Right", "Service", "Tokens"]


class Tokens(Protocol):
    """Who may do what: `TokensSection` of node.toml."""

    def rights_of(self, token: str | None) -> frozenset[Right]:
        """Of the bearer of a token; of everybody with None. Compares in constant time."""


class Service(Protocol):
    """A running node. Methods that are not async return at once; none may keep the event loop waiting."""

    @property
    def regions(self) -> Mapping[str, int]:
        """The number of each region, in the order of the configuration that is valid now."""

    @property
    def clock(self) -> SlotClock:
        """Slots and times."""

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> Sequence[RefusedRow]:
        """Returns once the check-ins are on disk, or among the counts of a slot that was sealed meanwhile.

        Gives the rows of the body that were not taken. An empty batch is kept too: its slot was fed. Raises `NotTaken`
        if nothing can be taken at present.
        """

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        """Likewise, for counts by the numbers of regions; `NotTaken` if they are late, or from the future."""

    def refused(self, reason: str, at_ns: int) -> None:
        """A request to send check-ins was refused, or a row. That it happened may be kept in memory, for operators."""

    def retry_after(self, at_ns: int) -> int:
        """Whole seconds, at least 1, until a node that takes nothing at present may be asked again."""

    async def latest(self) -> SlotRelease | None:
        """The last release; None before the first."""

    async def estimates(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease]:
        """At most `limit` releases of the slots from `first` to `last`, both included, the oldest first."""

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[SlotRelease | Lost]]:
        """Releases from now on; see `Broadcast`."""

    async def budget(self) -> BudgetView:
        """What was spent and what is left."""

    async def network(self, *, operator: bool) -> NetworkStatus:
        """Neighbours and refusals; an operator also sees for which reasons check-ins were refused."""

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether the node can do all of its work, and what is wrong if not."""

    def warnings(self) -> Sequence[str]:
        """What will be wrong if nobody acts; the node can do its work all the same."""

    async def metrics(self) -> str:
        """Prometheus text (see `prometheus.render`), without any number of check-ins unless the operator asked."""

    async def operator_metrics(self) -> str:
        """The same, and what depends on how busy the node is: processor time, memory, open files, free space."""

    async def reload(self) -> str:
        """Take the files of the node as they are now; says what was taken. `DpcrowdError` if one cannot be used."""

    async def confirm_loss(self) -> str:
        """The operator knows that the ledger lost samples; says what was booked."""

    async def accept_clock(self) -> str:
        """The operator knows that the clock is right now; slots that it had sealed ahead of time begin again."""

    def set_log_level(self, level: Level) -> None:
        """From now on."""


@dataclass(frozen=True)
class Context:
    """What every endpoint is given.

    max_body  the largest body in bytes
    now       nanoseconds since 1970
    limit     on requests to send check-ins or counts
    """

    service: Service
    tokens: Tokens
    max_body: int
    now: Callable[[], int]
    limit: RequestLimit
