"""What the API needs of a node; `node.live` implements it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from dpcrowd.filters.model import ProcessModel
from dpcrowd.node.api.broadcast import Lost
from dpcrowd.node.api.limits import RequestLimit
from dpcrowd.node.api.page_views import NeighbourHistory, Topology
from dpcrowd.node.api.proofs import ProofsView
from dpcrowd.node.api.views import BudgetView, Level, NetworkStatus, QualityView
from dpcrowd.node.config.tokens import Right
from dpcrowd.node.ingest.batch import Batch, RowRefusal
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SlotClock

__all__ = ["Context", "Process", "Right", "Service", "Tokens"]

Process = tuple[tuple[str, ...], ProcessModel]
"""Names of regions, and their process model."""


class Tokens(Protocol):
    """The rights of tokens: `TokensSection` of node.toml."""

    def rights_of(self, token: str | None) -> frozenset[Right]:
        """Return the rights of a token, or of everybody with None; compares in constant time."""


class Service(Protocol):
    """A running node. Methods that are not async return at once; none may block the event loop."""

    @property
    def regions(self) -> Mapping[str, int]:
        """The number of each region, in the order of the configuration that is valid now."""

    @property
    def process(self) -> Process:
        """The regions of the configuration that is valid now, and their process model."""

    @property
    def clock(self) -> SlotClock:
        """The slots of the network."""

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> Sequence[RowRefusal]:
        """Take check-ins; return when they are on disk, or among the counts of a slot that was sealed meanwhile.

        Returns the rows of the body that were not taken. An empty batch is stored, too: its slot was fed. Raises
        `IntakeRefused` if nothing can be taken at present.
        """

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        """Take counts by the numbers of regions; raise `IntakeRefused` if they are late, or from the future."""

    def refused(self, reason: str, at_ns: int) -> None:
        """Note that check-ins were refused, in memory and for operators; their number is not counted."""

    def retry_after(self, at_ns: int) -> int:
        """Return the seconds, at least 1, after which a node that takes nothing at present may be asked again."""

    async def latest(self) -> SlotRelease | None:
        """Return the latest release; None before the first one."""

    async def estimates(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease]:
        """Return at most `limit` releases from the slot `first` to `last`, both included, oldest first."""

    async def smoothed(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease] | None:
        """Return slots as `estimates` does, estimated again with later records, as far as they were smoothed.

        None: the network's scheme keeps no records, and none of its slots was ever smoothed.
        """

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[SlotRelease | Lost]]:
        """Subscribe to the releases from now on; see `Broadcast`."""

    async def budget(self) -> BudgetView:
        """Return the privacy budget: what is spent and what is left."""

    async def network(self, *, operator: bool) -> NetworkStatus:
        """Return the state of the network; an operator also sees for which reasons check-ins were refused."""

    def quality(self) -> QualityView:
        """Return the running calibration of the estimates' intervals."""

    def proofs(self) -> ProofsView:
        """Return the proofs of equivocation that the node has."""

    def topology(self) -> Topology:
        """Return the public plan of the network that is valid now."""

    async def region_map(self) -> bytes | None:
        """Return the GeoJSON file that network.toml names; None if it names none, or it cannot be read."""

    def neighbour_history(self, slots: int, region: str | None) -> NeighbourHistory:
        """Return what neighbours estimated in at most the last `slots` slots: of a region, or in total."""

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Return whether the node can do all of its work, and what is wrong if not."""

    def warnings(self) -> Sequence[str]:
        """Return what will become a problem if nobody acts, although the node works."""

    async def metrics(self) -> str:
        """Return the metrics as text of Prometheus, without numbers of check-ins unless the operator enabled them."""

    async def operator_metrics(self) -> str:
        """Return the same and the metrics that depend on the load: processor time, memory, open files, free space."""

    async def reload(self) -> str:
        """Read the files of the node again; return what has changed, or raise `DpcrowdError` if one has an error."""

    async def confirm_loss(self) -> str:
        """Book lost samples as spent, since the operator confirms the loss; return what was booked."""

    async def accept_clock(self) -> str:
        """Accept the clock, since the operator confirms it: slots that were sealed ahead of time begin again."""

    def set_log_level(self, level: Level) -> None:
        """Set what is logged from now on."""


@dataclass(frozen=True)
class Context:
    """What every endpoint uses.

    max_body  upper bound on the size of a body, in bytes
    now       returns nanoseconds since 1970
    limit     limit on requests that send check-ins or counts
    """

    service: Service
    tokens: Tokens
    max_body: int
    now: Callable[[], int]
    limit: RequestLimit
