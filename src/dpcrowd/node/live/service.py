"""What the HTTP API asks of a running node; nothing here has seen a raw count but `take_*`, which hand it on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from dpcrowd.errors import BadInput
from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.rows import SlotEstimates
from dpcrowd.node.api.views import BudgetView, Level, NetworkStatus
from dpcrowd.node.collect import NotTaken
from dpcrowd.node.config import NetworkConfig, NodeConfig, check_next, digest, load_network
from dpcrowd.node.ingest.batch import Batch, RefusedRow
from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.live import status
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.keeper import FLOOD, Keeper
from dpcrowd.node.live.revisions import differences, keep_next
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage, StoredRelease
from dpcrowd.node.transport.base import Transport

__all__ = ["Served"]

log = logging.getLogger("dpcrowd.node")

_MOST_REFUSALS = 100  # slots of which it is kept


class Served:
    """The API's `Service`, for a node that has these parts.

    revision   in use now
    following  the one that takes over at its first slot, if any
    """

    config: NodeConfig
    revision: NetworkConfig
    following: NetworkConfig | None
    keeper: Keeper
    intake: Intake
    broadcast: Broadcast
    _storage: Storage
    _transport: Transport
    _wall: WallClock
    _present: set[str]
    refusals: dict[int, set[str]]

    @property
    def regions(self) -> Mapping[str, int]:
        return self.intake.regions

    @property
    def clock(self) -> SlotClock:
        return self.keeper.machine.view.clock

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> list[RefusedRow]:
        self._accepts("checkins")
        return await self.intake.take_checkins(batch, arrived_ns)

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        self._accepts("counts")
        await self.intake.take_counts(slot, counts, arrived_ns)

    def _accepts(self, kind: str) -> None:
        accepts = self.config.ingest.accepts
        if accepts != kind:
            raise NotTaken("off", f'this node takes {accepts} only: accepts = "{accepts}" in [ingest] of node.toml.')
        if self._storage.gone is not None:  # nothing that is taken now could be counted and paid for
            raise NotTaken("unavailable", f"check-ins cannot be kept now: {self._storage.gone}")

    def refused(self, reason: str, at_ns: int) -> None:
        """Kept in memory, for the operator alone: it may be one person's check-in."""
        self.refusals.setdefault(max(self.clock.slot_of(at_ns), 0), set()).add(reason)
        while len(self.refusals) > _MOST_REFUSALS:
            del self.refusals[min(self.refusals)]

    def retry_after(self, at_ns: int) -> int:
        return max(1, -(-(self.clock.epoch_ns - at_ns) // 1_000_000_000))

    async def latest(self) -> SlotEstimates | None:
        if self.keeper.last is not None:
            return self.keeper.last
        stored = await asyncio.to_thread(self._storage.releases.latest)
        return None if stored is None else _told(stored)

    async def estimates(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotEstimates]:
        from_ns = self.clock.opens(0 if first is None else first)
        until_ns = self._wall.now() if last is None else self.clock.opens(last + 1)

        def read() -> list[StoredRelease]:
            return list(self._storage.releases.between(from_ns, until_ns, regions=regions, limit=limit))

        return [_told(stored) for stored in await asyncio.to_thread(read)]

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[SlotEstimates | Lost]]:
        return self.broadcast.subscribe()

    async def budget(self) -> BudgetView:
        now = self._wall.now()
        return await asyncio.to_thread(status.budget, self.revision, self._storage, self.keeper.machine.trust, now)

    async def network(self, *, operator: bool = False) -> NetworkStatus:
        now = self._wall.now()
        refused = self.keeper.refused + Counter(
            {(name, FLOOD): count for name, count in self._transport.dropped().items() if count}
        )
        machine = self.keeper.machine
        heard = {machine.view.names[number]: used for number, used in machine.used.items()}
        return status.network_status(
            self.revision,
            self.config.server,
            self._present,
            heard,
            refused,
            self.refusals if operator else {},
            now,
            self.following,
        )

    def ready(self) -> tuple[bool, Sequence[str]]:
        problems = []
        if self._storage.failure is not None:
            problems.append(str(self._storage.failure))
        if not self.keeper.machine.trust.may_sample:
            problems.append(f"the node may not sample yet (/v1/budget): {status.distrust(self.keeper.machine.trust)}")
        machine = self.keeper.machine
        last = machine.server.slot
        if 0 <= last >= machine.view.next_seal(self._wall.now()):
            problems.append(
                f"the clock went back: slot {last} was sealed already, and the next one is due at "
                f"{rfc3339(machine.view.seals(last + 1))}."
            )
        return not problems, problems

    async def metrics(self) -> str:
        last = None if self.keeper.last is None else self.keeper.last.slot
        taken = self.intake.taken if self.config.ingest.exact_counters else None
        return status.metrics(
            await self.budget(), await self.network(), last, self.keeper.sent, self.ready()[0], taken=taken
        )

    async def reload(self) -> str:
        following = await asyncio.to_thread(load_network, self.config.network)
        if digest(following) == self.keeper.machine.view.digest:
            return f"network.toml is that of revision {self.revision.revision}, which is in use."
        check_next(self.revision, following)
        following.number_of(self.config.server)  # refuses a revision that no longer has this server
        try:
            await asyncio.to_thread(keep_next, self.config, following)
        except OSError as error:
            raise BadInput(f"{self.config.data}: {error.strerror}; the next revision cannot be kept there.") from None
        self.expect(following)
        sealing = self.keeper.machine.view.next_seal(self._wall.now())
        first = max(following.valid_from_slot, sealing)
        late = (
            f", late: it is valid since slot {following.valid_from_slot}" if first > following.valid_from_slot else ""
        )
        return (
            f"revision {following.revision} takes over with slot {first}, at {rfc3339(self.clock.opens(first))}{late}; "
            f"digest {digest(following).hex()}{differences(self.revision, following)}."
        )

    def expect(self, following: NetworkConfig) -> None:
        """Take the next revision when its first slot is sealed; check-ins for its regions are taken from now on."""
        self.following = following
        self.intake.learn(following.regions)

    def set_log_level(self, level: Level) -> None:
        logging.getLogger("dpcrowd").setLevel(level.upper())
        log.log(logging.getLevelName(level.upper()), "the log level is %s", level)


def _told(stored: StoredRelease) -> SlotEstimates:
    low, high = stored.interval
    return SlotEstimates(stored.slot, stored.opens_ns, stored.regions, stored.estimate, low, high, stored.sampled)
