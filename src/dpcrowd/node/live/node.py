"""A running node: slots by the clock, messages over the transport, HTTP; it implements the API's `Service`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.api import make_app
from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.rows import SlotEstimates
from dpcrowd.node.api.serve import make_server
from dpcrowd.node.api.views import BudgetView, Level, NetworkStatus
from dpcrowd.node.collect import NotTaken
from dpcrowd.node.config import NetworkConfig, NodeConfig, check_next, digest, load_network
from dpcrowd.node.ingest.batch import Batch
from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.live import status
from dpcrowd.node.live.build import declare_promise, keep_revision, make_machine, make_view
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.keeper import Keeper
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage, StorageFailed, StoredRelease
from dpcrowd.node.transport.base import Peer, Transport
from dpcrowd.privacy import Noise

__all__ = ["LiveNode"]

log = logging.getLogger("dpcrowd.node")

_RETENTION_EVERY = 3600.0


class LiveNode:
    """`await node.run(stop)` until the event is set; then it ends cleanly, inside a slot too."""

    def __init__(
        self,
        node: NodeConfig,
        network: NetworkConfig,
        storage: Storage,
        transport: Transport,
        noise: Noise,
        clock: WallClock | None = None,
    ) -> None:
        self.config, self.revision = node, network
        self._storage, self._transport = storage, transport
        self._wall = clock or WallClock()
        self.broadcast = Broadcast()
        declare_promise(network, storage)
        now = self._wall.now()
        view = make_view(node, network)
        self._noise = noise
        machine, self.found = make_machine(node, network, storage, noise, view, now)
        self.keeper = Keeper(machine, storage, transport, self.broadcast, network.regions, self._schedule)
        self.intake = Intake(
            storage.journal,
            view.clock,
            grace_ns=network.grace_ns,
            future_ns=int(node.ingest.future),
            capacity=node.ingest.capacity,
        )
        self.intake.learn(network.regions)
        self.following: NetworkConfig | None = None
        restored = self.intake.restore(now)
        # A slot in whose middle the node was started for the first time has been counted in part only.
        current = view.clock.slot_of(now)
        self._first_whole = current if current in restored else current + 1
        self._present: set[str] = set()
        self._heard_at: dict[str, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.address: tuple[str, int] | None = None

    # ------------------------------------------------------------------------------------------------- running

    async def run(self, stop: asyncio.Event) -> None:
        """Everything; raises what breaks any part of it."""
        host, port = self.config.listen.http_address
        app = make_app(self, self.config.tokens, max_body=self.config.ingest.max_body, now=self._wall.now)
        server = make_server(
            app, host, port, certificate=self.config.listen.http_certificate, key=self.config.listen.http_key
        )
        slot = max(self.clock.slot_of(self._wall.now()), 0)
        await self._transport.open(self.config.server, self._peers(slot), self._message, self._presence)
        self.keeper.give(on.Started(self._wall.now()))
        parts = [
            asyncio.create_task(self.keeper.run(), name="keeper"),
            asyncio.create_task(self._slots(), name="slots"),
            asyncio.create_task(server.serve(), name="http"),
            asyncio.create_task(self._old_releases(), name="retention"),
        ]
        waiting = asyncio.create_task(stop.wait(), name="stop")
        log.info("node started: %s", self.found, extra={"server": self.config.server, "network": self.revision.id})
        try:
            await asyncio.wait([waiting, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    part.result()  # raises what broke it
        finally:
            self.broadcast.close()
            server.should_exit = True
            await self.intake.close()
            await asyncio.wait([parts[2]], timeout=5)
            for task in (waiting, *parts, *self._tasks):
                task.cancel()
            await asyncio.gather(waiting, *parts, *self._tasks, return_exceptions=True)
            await self._transport.close()
            log.info("node stopped", extra={"server": self.config.server})

    def _peers(self, slot: int) -> list[Peer]:
        named = [self.revision.server(name) for name in self.revision.neighbours(self.config.server, slot)]
        return [Peer(one.name, one.endpoint, one.certificate_name, tuple(one.keys)) for one in named]

    async def _slots(self) -> None:
        """Seal one slot after another, when its grace is over."""
        slot = max(self.keeper.machine.view.next_seal(self._wall.now()), 0)
        while True:
            view = self.keeper.machine.view
            await self._wall.sleep_until(view.seals(slot))
            moved = self._wall.jumped()
            if moved is not None:
                log.error("the clock was set by %.1f s; no slot is drawn twice", moved / 1e9, extra={"event": "clock"})
            now = self._wall.now()
            slot = max(slot, view.next_seal(now) - 1)  # after a jump or a long sleep: the last one that is over
            revision = self._revision_of(slot)
            if revision is not self.revision:
                self.keeper.give(self._switch)
            counts = self.intake.seal(slot, revision.regions)
            whole = slot >= self._first_whole
            self.keeper.give(on.SlotSealed(now, slot, counts if whole else None))
            if view.links(slot + 1) != view.links(slot):
                self._change_links_after(slot)
            slot += 1

    def _revision_of(self, slot: int) -> NetworkConfig:
        """The revision that is valid in a slot."""
        following = self.following
        return following if following is not None and slot >= following.valid_from_slot else self.revision

    async def _switch(self) -> None:
        """Between two slots: the next revision takes over. Filters go on where their setting is the same."""
        following, before, now = self.following, self.keeper.machine, self._wall.now()
        if following is None:
            return
        if before.exchanging is not None:
            await self.keeper.handle(on.DeadlinePassed(now, before.exchanging))
        await asyncio.to_thread(declare_promise, following, self._storage)
        view = make_view(self.config, following)
        machine, found = await asyncio.to_thread(
            make_machine, self.config, following, self._storage, self._noise, view, now
        )
        machine.follow(before)
        self.keeper.machine, self.keeper.regions = machine, following.regions
        self.revision, self.following = following, None
        await asyncio.to_thread(keep_revision, self.config, following)
        await self._open_transport(following.valid_from_slot)
        log.warning("revision %d took over: %s", following.revision, found, extra={"event": "revision"})

    async def _open_transport(self, slot: int) -> None:
        """Access control cannot change while a session is open: it is opened anew between two slots."""
        await self._transport.close()
        self._present.clear()
        await self._transport.open(self.config.server, self._peers(slot), self._message, self._presence)

    def _schedule(self, slot: int, at_ns: int) -> None:
        async def tell() -> None:
            await self._wall.sleep_until(at_ns)
            self.keeper.give(on.DeadlinePassed(self._wall.now(), slot))

        self._start(tell())

    def _change_links_after(self, slot: int) -> None:
        """A timed link begins or ends: after the exchange of this slot the transport has other neighbours."""

        async def later() -> None:
            await self._wall.sleep_until(self.keeper.machine.view.ends(slot))
            self.keeper.give(lambda: self._open_transport(slot + 1))

        self._start(later())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _old_releases(self) -> None:
        while True:
            before = self._wall.now() - int(self.config.retention.releases)
            try:
                await asyncio.to_thread(self._storage.retention, before)
            except StorageFailed as failure:  # the node goes on; the next commit tells whether it can pay
                log.error("old releases could not be deleted: %s", failure, extra={"event": "retention"})
            await asyncio.sleep(_RETENTION_EVERY)

    def _message(self, sender: str, payload: bytes) -> None:
        now = self._wall.now()
        self._heard_at[sender] = self.clock.slot_of(now), now
        self.keeper.give(on.MessageArrived(now, sender, payload))

    def _presence(self, neighbour: str, up: bool) -> None:
        (self._present.add if up else self._present.discard)(neighbour)
        kind = on.NeighbourUp if up else on.NeighbourDown
        log.info("neighbour %s", "up" if up else "down", extra={"neighbour": neighbour})
        self.keeper.give(kind(self._wall.now(), neighbour))

    # --------------------------------------------------------------------------------------------- for the API

    @property
    def regions(self) -> Mapping[str, int]:
        return self.intake.regions

    @property
    def clock(self) -> SlotClock:
        return self.keeper.machine.view.clock

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> None:
        await self.intake.take_checkins(batch, arrived_ns)

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        if not self.config.ingest.counts:
            raise NotTaken("off", "this node takes check-ins only: [ingest] counts is false.")
        await self.intake.take_counts(slot, counts, arrived_ns)

    def refused(self, reason: str, at_ns: int) -> None:
        self.keeper.checkins_refused(self.clock.opens(max(self.clock.slot_of(at_ns), 0)), reason)

    def retry_after(self, at_ns: int) -> int:
        left = self.clock.closes(self.clock.slot_of(at_ns)) - at_ns
        return max(1, -(-left // 1_000_000_000))

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

    async def network(self) -> NetworkStatus:
        now = self._wall.now()
        since = await asyncio.to_thread(self._storage.refusals.since, now - 100 * self.clock.length_ns)
        refused = self.keeper.refused
        return status.network_status(
            self.revision, self.config.server, self._present, self._heard_at, refused, since, now
        )

    def ready(self) -> tuple[bool, Sequence[str]]:
        problems = []
        if self._storage.failure is not None:
            problems.append(str(self._storage.failure))
        if not self.keeper.machine.trust.may_sample:
            problems.append("the node may not sample yet: see /v1/budget.")
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
        open_slot = self.clock.slot_of(self._wall.now())
        if following.valid_from_slot <= open_slot:
            raise BadInput(
                f"network.toml: network.valid_from_slot: given {following.valid_from_slot}; allowed: after the open "
                f"slot {open_slot}, and late enough for every server to reload."
            )
        self.expect(following)
        at = rfc3339(self.clock.opens(following.valid_from_slot))
        return f"revision {following.revision} takes over with slot {following.valid_from_slot}, at {at}."

    def expect(self, following: NetworkConfig) -> None:
        """Take the next revision when its first slot is sealed; check-ins for its regions are taken from now on."""
        self.following = following
        self.intake.learn(following.regions)

    async def confirm_loss(self) -> str:
        """Book what the folder does not know of as fully spent, and go on with an account that has it."""
        trust = self.keeper.machine.trust
        if trust.lost_at is None:
            raise BadInput("no neighbour remembers more than this ledger: there is no loss to confirm.")
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def book() -> None:
            try:
                done.set_result(await asyncio.to_thread(self._book_loss, trust.lost_at or 0))
            except Exception as error:
                done.set_exception(error)

        self.keeper.give(book)
        told = await done
        log.warning(told, extra={"event": "loss-confirmed"})
        return told

    def _book_loss(self, remembered: int) -> str:
        now, clock, guarantee = self._wall.now(), self.clock, self.revision.guarantee()
        until = clock.closes(clock.slot_of(now))
        entries = self._storage.ledger.spent_since(0)
        known = max((entry.opens_ns + entry.length_ns for entry in entries), default=clock.epoch_ns)
        reason = f"a neighbour remembers {remembered} samples, the folder {self.keeper.machine.trust.counter}"
        self._storage.ledger.mark_lost(
            min(known, until - clock.length_ns), until, guarantee.total, reason, at_ns=now, counter=remembered
        )
        view = self.keeper.machine.view
        machine, _ = make_machine(self.config, self.revision, self._storage, self._noise, view, now, vouched=True)
        self.keeper.machine = machine
        return f"the time until {rfc3339(until)} counts as fully spent; sampling begins again when budget is there."

    def set_log_level(self, level: Level) -> None:
        logging.getLogger("dpcrowd").setLevel(level.upper())


def _told(stored: StoredRelease) -> SlotEstimates:
    low, high = stored.interval
    return SlotEstimates(stored.slot, stored.opens_ns, stored.regions, stored.estimate, low, high, stored.sampled)
