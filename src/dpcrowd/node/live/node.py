"""A running node: slots by the clock, messages over the transport, HTTP. What the API asks of it is in `Served`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api.app import make_app
from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.api.serve import make_server
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.connections.descriptors import limit, shares
from dpcrowd.node.live.build import make_machine, make_view
from dpcrowd.node.live.certificates import Certificates
from dpcrowd.node.live.decisions import Deciding
from dpcrowd.node.live.health import node_health
from dpcrowd.node.live.horizon import declare_promise
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.keeper import Keeper
from dpcrowd.node.live.link_log import LinkLog
from dpcrowd.node.live.presence import Presence
from dpcrowd.node.live.purse import Purse
from dpcrowd.node.live.reload import Content
from dpcrowd.node.live.renewing import CurrentTokens, keep_served
from dpcrowd.node.live.revisions import take_next
from dpcrowd.node.live.status import distrust
from dpcrowd.node.live.storage_log import StorageLog
from dpcrowd.node.live.timing import NAP, ClockWatch, WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.metrics.families import Unsampled
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.storage import Storage, StorageFailed
from dpcrowd.node.transport.base import Peer, Transport, TransportFailed
from dpcrowd.privacy import Noise, check_noise

__all__ = ["LiveNode"]

log = logging.getLogger("dpcrowd.node")

_RETENTION_EVERY = 3600.0
_MOST_STRANGERS = 20
_KINDS = ("checkins", "counts")  # as the journal numbers what a slot was opened for


class LiveNode(Deciding):
    """`await node.run(stop)` until the event is set; then it ends cleanly, inside a slot too.

    before     the revision under which the folder was used last, if that is another one: its estimates are taken over
    following  the revision that takes over later
    path       of node.toml, for a reload; None: what was in it stays

    Noise that is not private is refused, unless `allow_simulated_noise` says that this is a test or a simulation; no
    configuration can say so.
    """

    def __init__(
        self,
        node: NodeConfig,
        network: NetworkConfig,
        storage: Storage,
        transport: Transport,
        noise: Noise,
        clock: WallClock | None = None,
        before: NetworkConfig | None = None,
        following: NetworkConfig | None = None,
        *,
        path: Path | None = None,
        allow_simulated_noise: bool = False,
    ) -> None:
        check_noise(noise, "a live node", allow_simulated_noise=allow_simulated_noise)
        self._make_machine = partial(make_machine, allow_simulated_noise=allow_simulated_noise)
        self.config, self.revision, self.following = node, network, None
        self._storage, self._transport, self._noise = storage, transport, noise
        self._wall = clock or WallClock()
        self.broadcast = Broadcast()
        now = self.started_ns = self._wall.now()
        self.meter = SlotMeter(self._wall.now)
        _tell_horizon(declare_promise(network, storage, now))
        self.certificates = Certificates(node)
        view = make_view(node, network, self.certificates.expires)
        self._watch = ClockWatch(self._wall, view.clock.length_ns)
        storage_log = StorageLog()
        self._purse = Purse(storage, network.guarantee(), view.clock, network.id, storage_log)
        machine, self.found = self._make_machine(node, network, storage, noise, view, now, before=before)
        self.keeper = Keeper(
            machine,
            storage,
            transport,
            self.broadcast,
            self._schedule,
            self._wall,
            self.meter,
            storage_log,
        )
        journal = storage.journal
        journal.limit, journal.kind = int(node.ingest.journal_limit), _KINDS.index(node.ingest.accepts)
        self.intake = Intake(
            journal,
            view.clock,
            grace_of=lambda slot: self._revision_of(slot).grace_ns,
            future_ns=int(node.ingest.future),
            capacity=node.ingest.capacity,
            now=self._wall.now,
            keep_of=lambda slot: self._revision_of(slot).server(node.server).keep,
        )
        self.intake.learn(network.regions)
        if following is not None:
            self.expect(following)
        self.intake.begin_after(machine.server.slot)
        self.intake.restore(now)
        given = node.ingest.max_downtime
        most_missed = view.clock.length_ns // 10 if given is None else int(given)
        self.presence = Presence(journal, view.clock, most_missed)
        self.presence.start(now, max(self.intake.first_open(now), machine.server.slot + 1))
        self.refusals: dict[int, set[str]] = {}
        self._distrust = ""
        self._still_until = 0  # when nothing ran last, as far as it was noticed
        self._present: set[str] = set()
        self._link_log = LinkLog()
        self._linked: tuple[list[Peer], int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._path, self._http, self._content = path, None, Content.of(node)
        self._reloading = asyncio.Lock()
        self._sealing = self._opened = -1  # until it runs
        self._woken = asyncio.Event()

    # ------------------------------------------------------------------------------------------------- running

    async def run(self, stop: asyncio.Event) -> None:
        """Everything; raises what breaks any part of it."""
        host, port = self.config.listen.http_address
        app = make_app(
            self,
            CurrentTokens(self),
            max_body=self.config.ingest.max_body,
            now=self._wall.now,
            requests_per_second=self.config.ingest.requests_per_second,
        )
        self._http = server = make_server(
            app,
            host,
            port,
            certificate=self.config.listen.http_certificate,
            key=self.config.listen.http_key,
            most_connections=shares(limit(), self.revision.max_degree()).http,
        )
        await asyncio.to_thread(keep_served, self.config)
        self.keeper.give(on.Started(self._wall.now()))  # before anybody can speak: a neighbour may vouch at once
        await self._link_for(max(self.keeper.machine.view.next_seal(self._wall.now()), 0))
        parts = [
            asyncio.create_task(self.keeper.run(), name="keeper"),
            asyncio.create_task(self._slots(), name="slots"),
            asyncio.create_task(self._be_present(), name="presence"),
            serving := asyncio.create_task(server.serve(), name="http"),
            asyncio.create_task(self._old_releases(), name="retention"),
            asyncio.create_task(self._keep_watch(), name="watch"),
            asyncio.create_task(self._look_for_strangers(), name="strangers"),
            asyncio.create_task(
                node_health(self.config.listen, self.keeper, self._transport, self._reopen).run(), name="health"
            ),
        ]
        waiting = asyncio.create_task(stop.wait(), name="stop")
        log.info(
            "node started: %s",
            self.found,
            extra={"event": "started", "server": self.config.server, "network": self.revision.id},
        )
        try:
            await asyncio.wait([waiting, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    _raise_what_broke(part)
        finally:
            self.broadcast.close()
            server.should_exit = True
            await self.intake.close()
            await asyncio.wait([serving], timeout=5)
            for task in (waiting, *parts, *self._tasks):
                task.cancel()
            await asyncio.gather(waiting, *parts, *self._tasks, return_exceptions=True)
            await self._transport.close()
            await self.keeper.forget_sealed()
            self.keeper.close()
            self._leave()
            log.info("node stopped", extra={"event": "stopped", "server": self.config.server})

    async def _slots(self) -> None:
        """Seal one slot after another, when its grace is over."""
        self._sealing = max(self.keeper.machine.view.next_seal(self._wall.now()), 0)
        while True:
            while self._wall.now() < (due := self._seals(self._sealing)):
                await self._sleep_until(due)
            self._look_at_clock()
            now, slot = self._wall.now(), self._sealing
            latest = self.clock.slot_of(now) - 1
            while latest > slot and self._seals(latest) > now:
                latest -= 1
            slot = max(slot, latest)  # after a jump or a long sleep: the last one that is over
            revision = self._revision_of(slot)
            if revision is not self.revision:
                self.keeper.give(self._switch)
            self._seal(slot, revision)
            view = self.keeper.machine.view
            if view.links(slot + 1) != view.links(slot):
                self._change_links_after(slot)
            self._sealing = slot + 1

    def _seals(self, slot: int) -> int:
        return self.clock.closes(slot) + self._revision_of(slot).grace_ns

    def _seal(self, slot: int, revision: NetworkConfig) -> None:
        obstacle = self._obstacle(slot)
        usable = obstacle is None
        counts = self.intake.seal(slot, revision.regions)

        async def seal() -> None:
            await self._relink_for(slot)
            room = await self.keeper.in_thread(self._purse.room, slot)
            # If a revision could not take over, the counts do not fit.
            taken = counts if usable and revision is self.revision else None
            kind = obstacle
            if usable and counts is None and revision is self.revision:
                taken = await self.intake.count_journal(slot, revision.regions)
                # What was being written at the seal may have hit the limit, or could not be written.
                kind = self._unkept(slot)
                taken = taken if kind is None else None
            last, why = self.keeper.machine.server.slot, kind or self._why_unsampled(slot, revision)
            if why == "ledger" and slot > last:
                self._tell_distrust(slot)
            self.meter.sealing(slot, last)
            await self.keeper.handle(on.SlotSealed(self._wall.now(), slot, taken, room))
            if slot > last:
                self.meter.sealed(slot, why)

        self.keeper.give(seal)

    def _obstacle(self, slot: int) -> Unsampled | None:
        """Why the node was not there to count a slot; if it was not, the log says so, too."""
        missed, most = self.presence.missed(slot), self.presence.most_ns
        if missed > most and (failure := self._storage.failure) is not None:
            return self._not_sampled(slot, "storage", f"check-ins could not be kept: {failure}")
        if missed > most:
            text = f"{missed / 1e9:.1f} s of it were missed" if missed < self.clock.length_ns else "it was missed"
            return self._not_sampled(slot, "downtime", f"{text}; up to {most / 1e9:g} s may be (ingest.max_downtime).")
        if self.config.ingest.needs_feed and not self.intake.fed(slot):
            self._silent_since = slot if self._silent_since is None else self._silent_since
            return self._not_sampled(slot, "feed", "no feed has spoken in it (ingest.needs_feed).")
        self._silent_since = None  # known at the seal only: when somebody speaks inside a slot is not told
        return self._limit_hit(slot)

    def _limit_hit(self, slot: int) -> Unsampled | None:
        if not self._storage.journal.limit_hit(self.clock.opens(slot)):
            return None
        return self._not_sampled(slot, "limit", "its check-ins did not fit on the disk (ingest.journal_limit).")

    def _unkept(self, slot: int) -> Unsampled | None:
        """Of a slot that is counted from the disk: why its check-ins are not all there."""
        if slot in self.intake.unkept:
            return self._not_sampled(slot, "storage", "some of its check-ins could not be written.")
        return self._limit_hit(slot)

    def _not_sampled(self, slot: int, kind: Unsampled, why: str) -> Unsampled:
        log.info("slot %d is not sampled: %s", slot, why, extra={"event": "not-sampled", "slot": slot})
        return kind

    def _tell_distrust(self, slot: int) -> None:
        """That no sample is drawn because the ledger may be an old copy; louder when the reason is a new one."""
        text = distrust(self.keeper.machine.trust)
        level, self._distrust = logging.INFO if text == self._distrust else logging.WARNING, text
        log.log(level, "slot %d is not sampled: %s", slot, text, extra={"event": "not-sampled", "slot": slot})

    def _why_unsampled(self, slot: int, revision: NetworkConfig) -> Unsampled:
        """If the slot that is sealed now is not sampled although it was counted: for which reason."""
        if revision is not self.revision:
            return self._not_sampled(slot, "revision", f"revision {revision.revision} could not take over yet.")
        if not self.keeper.machine.may_sample_in(slot):
            return "ledger"
        if self.keeper.broken:
            return "storage"
        return "budget" if self._purse.short else "schedule"

    async def _be_present(self) -> None:
        """Open every slot when its time comes, and leave a sign of life on the disk."""
        self._opened, due = max(self.clock.slot_of(self._wall.now()), self.keeper.machine.server.slot), 0
        failed = False
        while True:
            now = self._wall.now()
            current = self.clock.slot_of(now)
            try:
                if current > self._opened:
                    # A loop that is busy with requests is late, and misses nobody: they wait to be read. What counts is
                    # a standstill, or a disk that did not take the slot's file.
                    self._look_at_clock()
                    since = now if failed else max(self.clock.opens(current), self._still_until)
                    await asyncio.to_thread(self.presence.open, current, since)
                    self._opened, failed = current, False
                if now >= due or now < due - 2 * self.presence.stamp_every_ns:  # the clock may have been set back
                    await asyncio.to_thread(self._storage.check_files)
                    await asyncio.to_thread(self.presence.stamp, now)
                    due = now + self.presence.stamp_every_ns
            except StorageFailed:  # the node tells so when it cannot pay; tried again with the next sign of life
                due, failed = now + self.presence.stamp_every_ns, True
                await self._sleep_until(due)
                continue
            await self._sleep_until(min(due, max(self.clock.opens(self._opened + 1), now)))

    def _leave(self) -> None:
        """At the end: check-ins of slots that are over by now are forgotten; those of open slots wait for a restart."""
        now = self._wall.now()
        with suppress(StorageFailed):
            self.presence.stamp(now)
            self._storage.journal.forget_before(self.clock.opens(self.intake.first_open(now)))

    async def _keep_watch(self) -> None:
        while True:
            self._look_at_clock()
            self._look_at_certificates()
            self._link_log.look()
            await asyncio.sleep(NAP)

    def _look_at_clock(self) -> None:
        """A clock that was set, or a process that stood still: reported, and nothing is drawn from half a slot."""
        seen, now = self._watch.look(), self._wall.now()
        self.meter.looked_at_clock(seen.moved_ns, seen.still_ns)
        if seen.moved_ns:
            way = "ahead" if seen.moved_ns > 0 else "back"
            text = "the clock was set %s by %.1f s; no slot is drawn twice, and no budget comes back the sooner."
            log.error(text, way, abs(seen.moved_ns) / 1e9, extra={"event": "clock"})
            self._went_back = (now, -seen.moved_ns) if seen.moved_ns < 0 else None
            if wait := self._clock_wait(now):
                log.error(wait, extra={"event": "clock"})
            self._wake()
        if seen.still_ns:
            log.warning("the node stood still for %.1f s.", seen.still_ns / 1e9, extra={"event": "stood-still"})
        if seen.moved_ns:
            self._purse.clock_set(now - seen.moved_ns, seen.moved_ns)
            self.keeper.give(lambda: self.keeper.in_thread(self._purse.book))
        with suppress(StorageFailed):
            if seen.moved_ns > 0:
                self.presence.distrust(now)
            elif seen.still_ns:
                self._still_until = now
                self.presence.stood_still(now, seen.still_ns)
        if seen.still_ns:
            self.keeper.give(on.StoodStill(now))
        if seen.doubtful:
            self.keeper.give(on.TimeLost(now))

    async def _sleep_until(self, at_ns: int) -> None:
        """Until a time, or until that time may mean something else: the clock was set, or slots begin again."""
        sleep = asyncio.create_task(self._wall.sleep_until(at_ns))
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait([sleep, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()

    def _wake(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()  # for whoever sleeps from now on

    def _schedule(self, slot: int, at_ns: int) -> None:
        async def tell() -> None:
            await self._wall.sleep_until(at_ns)
            self._look_at_clock()  # whoever stood still has not read everything that has come by now
            self.keeper.give(on.DeadlinePassed(self._wall.now(), slot))

        self._start(tell())

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

    # ------------------------------------------------------------------------------------------------ the links

    async def _link_for(self, slot: int) -> None:
        """Have the neighbours of a slot; access control cannot change in an open session: it is opened anew.

        Nobody is linked with once the own certificate has expired: TLS checks it when a link is made, and never again.
        """
        named = [self.revision.server(name) for name in self.revision.neighbours(self.config.server, slot)]
        peers = [Peer(one.name, one.endpoint, one.certificate_name, tuple(one.keys)) for one in named]
        most_bytes = self.keeper.machine.view.most_bytes
        over = self.certificates.links_over(self._wall.now())
        if (peers, most_bytes) == self._linked and not over:
            return
        self._linked, self.keeper.linked = None, frozenset()  # first: a message may be about to leave
        await self._transport.close()
        self._present.clear()
        if over:
            return
        self._transport.most_bytes = most_bytes
        await self._transport.open(self.config.server, peers, self._message, self._presence)
        self._linked, self.keeper.linked = (peers, most_bytes), frozenset(peer.name for peer in peers)

    async def _relink_for(self, slot: int) -> None:
        """The same for a node that runs: a port that is not free at this moment is no reason to end."""
        try:
            await self._link_for(slot)
        except TransportFailed as failure:
            text = "no links to neighbours, next try with the next slot: %s"
            log.error(text, failure, extra={"event": "links-failed"})

    def _change_links_after(self, slot: int) -> None:
        """A timed link begins or ends: after the exchange of this slot, and before the next seal, others are linked."""

        async def later() -> None:
            await self._wall.sleep_until(self.keeper.machine.view.ends(slot))
            self.keeper.give(lambda: self._relink_for(slot + 1))

        self._start(later())

    async def _reopen(self) -> None:
        """Give back whatever the links hold."""
        self._linked = None
        await self._relink_for(max(self.keeper.machine.view.next_seal(self._wall.now()), 0))

    async def _look_for_strangers(self) -> None:
        """Once per slot. Whoever has a certificate of the authority can call; the transport turns it away."""
        while True:
            await asyncio.sleep(self.clock.length_ns / 1e9)
            for name in (await self._transport.strangers())[:_MOST_STRANGERS]:
                self.keeper.stranger(max(self.clock.slot_of(self._wall.now()), 0), name)

    def _message(self, sender: str, payload: bytes) -> None:
        now = self._wall.now()
        self.meter.arrived(sender, payload, now, self.keeper.machine.view)
        self.keeper.give(on.MessageArrived(now, sender, payload))

    def _presence(self, neighbour: str, up: bool) -> None:
        (self._present.add if up else self._present.discard)(neighbour)
        kind = on.NeighbourUp if up else on.NeighbourDown
        self._look_at_clock()
        self._link_log.change(neighbour, up)
        self.keeper.give(kind(self._wall.now(), neighbour))

    # --------------------------------------------------------------------------------------- revisions, and loss

    def _revision_of(self, slot: int) -> NetworkConfig:
        """The revision that is valid in a slot."""
        following = self.following
        return following if following is not None and slot >= following.valid_from_slot else self.revision

    async def _switch(self) -> None:
        """Between two slots: the next revision takes over. Filters go on; a new region has no information yet."""
        following, before, now = self.following, self.keeper.machine, self._wall.now()
        if following is None:
            return
        if before.exchanging is not None:
            await self.keeper.handle(on.DeadlinePassed(now, before.exchanging))
        try:
            view = make_view(self.config, following, self.certificates.expires)
            _tell_horizon(await self.keeper.in_thread(declare_promise, following, self._storage, now))
            machine, found = await self.keeper.in_thread(
                self._make_machine, self.config, following, self._storage, self._noise, view, now, before=self.revision
            )
        except DpcrowdError as failure:  # a full disk, a key that cannot be read: no reason to end
            text = "revision %d cannot take over yet, next try with the next slot: %s"
            log.error(text, following.revision, failure, extra={"event": "revision"})
            return
        machine.follow(before)
        self.keeper.machine = machine
        self.revision, self.following = following, None
        await asyncio.to_thread(take_next, self.config, following)
        log.warning("revision %d took over: %s", following.revision, found, extra={"event": "revision"})


def _tell_horizon(text: str) -> None:
    if text:
        log.warning("a new horizon begins: %s", text, extra={"event": "new-horizon"})


def _raise_what_broke(part: asyncio.Task[None]) -> None:
    try:
        part.result()
    except StorageFailed:
        raise
    except DpcrowdError as error:  # while a node runs nobody's input is at fault, whatever the error's kind says
        log.critical("%s: %s", part.get_name(), error, extra={"event": "broke"})
        raise RuntimeError(f"{part.get_name()}: {error}") from error
