"""A running node: its parts, put together, and what each of them is given. What the API asks is in `NodeService`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.node.api.app import make_app
from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.api.serve import make_server
from dpcrowd.node.build import configured_slots, make_machine, make_view, revision_of
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.connections.descriptors import limit, shares
from dpcrowd.node.live import decisions
from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.live.certificates import Certificates
from dpcrowd.node.live.executor import Executor
from dpcrowd.node.live.health import node_health
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.links import LinkState
from dpcrowd.node.live.log_limits import FloodLog, LinkLog, StorageLog
from dpcrowd.node.live.presence import Presence
from dpcrowd.node.live.reload import Content, CurrentTokens, Renewing, keep_served
from dpcrowd.node.live.revisions import log_changes, take_next, text_of
from dpcrowd.node.live.slot_cycle import Counting, Timekeeper
from dpcrowd.node.live.timing import NAP, WallClock
from dpcrowd.node.machine import NetworkView, Revision
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.recording.recorder import NodeRecorder
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.node.transport.base import Transport
from dpcrowd.node.wire import Sign
from dpcrowd.privacy import Noise, check_noise

__all__ = ["LiveNode"]

log = logging.getLogger("dpcrowd.node")

_RETENTION_EVERY = 3600.0
_APART = 1.2  # seconds after which a neighbour that dials takes a link for a new one, and does not make it once more
_MOST_STRANGERS = 20
_KINDS = ("checkins", "counts")  # as the journal numbers what a slot was opened for


class LiveNode(Renewing):
    """Runs until the event of `await node.run(stop)` is set; then it ends cleanly, inside a slot too.

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
        earlier: Sequence[NetworkConfig] = (),
        corrected: NetworkConfig | None = None,
        path: Path | None = None,
        allow_simulated_noise: bool = False,
    ) -> None:
        check_noise(noise, "a live node", allow_simulated_noise=allow_simulated_noise)
        self.config, self._storage, self._transport = node, storage, transport
        self.networks = {one.revision: one for one in (network, following) if one is not None}
        self._earlier = {one.revision: one for one in earlier}
        self._recorder = self._make_recorder()
        self._noise = noise if self._recorder is None else self._recorder.noise(noise)
        self._allow_simulated_noise = allow_simulated_noise
        self._wall = clock or WallClock()
        self.broadcast = Broadcast()
        now = self.started_ns = self._wall.now()
        self.meter = SlotMeter(self._wall.now)
        decisions.declare(network, storage, now)
        chain = [*earlier, network]
        if before is not None and before.revision > max([one.revision for one in earlier], default=0):
            chain.insert(-1, before)
        if corrected is not None and corrected not in chain:
            chain.insert(-1, corrected)
        between = 0 if corrected is None else network.clock().slot_of(now)  # a model is corrected between two slots
        decisions.remember_models(storage, chain, between)
        self.certificates = Certificates(node)
        revision, old = self._make_revision(network), None
        if before is not None:
            with suppress(BadInput):  # this server was not in it: then nothing is taken over
                old = self._make_revision(before)
        machine, self.start_text = make_machine(
            revision, network, storage, now, before=old, following=following, earlier=self._earlier_views(earlier)
        )
        if self._recorder is not None:
            self._recorder.start(machine, now)
        slots, storage_log = revision.view.clock, StorageLog()
        self._accounts = AccountLoader(
            storage, configured_slots(network), storage_log, keeps_schedule=network.relay is not None
        )
        self._accounts.clock_set(now, 0)
        self.executor = Executor(
            machine, storage, transport, self.broadcast, self, self._wall, self.meter, storage_log, self._recorder
        )
        journal = storage.journal
        journal.limit, journal.kind = int(node.ingest.journal_limit), _KINDS.index(node.ingest.accepts)
        self.intake = Intake(
            journal,
            slots,
            grace_of=lambda slot: self.revision_of(slot).grace_ns,
            future_ns=int(node.ingest.future),
            capacity=node.ingest.capacity,
            now=self._wall.now,
            keep_of=lambda slot: self.revision_of(slot).server(node.server).keep,
        )
        for one in self.networks.values():
            self.intake.learn(one.regions)
        self.intake.begin_after(machine.server.slot)
        self.intake.restore(now)
        downtime = node.ingest.max_downtime
        self.presence = Presence(journal, slots, slots.length_ns // 10 if downtime is None else int(downtime))
        self.presence.start(now, max(self.intake.first_open(now), machine.server.slot + 1))
        self.counting = Counting(
            storage,
            self.intake,
            self.presence,
            self._accounts,
            slots,
            node.ingest.needs_feed,
            self.executor.in_thread,
        )
        self.time = Timekeeper(
            self._wall,
            slots,
            storage,
            self.intake,
            self.presence,
            self.counting,
            self.meter,
            self.revision_of,
            self.executor.give,
            self.executor.expect_late_message,
        )
        self._link_log = LinkLog()
        self.links = LinkState(
            node.server,
            transport,
            self.certificates,
            self._wall,
            self.executor.message_arrived,
            self._presence_changed,
            self._links_closed,
        )
        self.refusals: dict[int, set[str]] = {}
        self._flood_log = FloodLog()
        self._tasks: set[asyncio.Task[None]] = set()
        self._path, self._http, self._content = path, None, Content.of(node)
        self._reloading = asyncio.Lock()

    def _make_recorder(self) -> NodeRecorder | None:
        debug = self.config.debug
        if debug.record is None:
            return None
        return NodeRecorder(
            debug.record,
            int(debug.record_limit),
            lambda number: text_of(self.config, (self._earlier | self.networks)[number]),
        )

    def _earlier_views(self, earlier: Sequence[NetworkConfig]) -> list[NetworkView]:
        """Return earlier revisions as this server saw them, oldest first, since it has belonged to the network."""
        views: list[NetworkView] = []
        for network in reversed(earlier):
            try:
                views.append(self._make_revision(network).view)
            except BadInput:  # it was not in it
                break
        return views[::-1]

    def _make_revision(self, network: NetworkConfig) -> Revision:
        """Make a revision; reads the private key, as it is now."""
        view = make_view(self.config, network, self.certificates.expires)
        view = replace(view, sign=self._signing(view.sign))
        return revision_of(network, view, self._noise, allow_simulated_noise=self._allow_simulated_noise)

    def _signing(self, sign: Sign) -> Sign:
        return sign if self._recorder is None else self._recorder.sign(sign)

    def revision_of(self, slot: int) -> NetworkConfig:
        """Return the revision that is valid in a slot."""
        following = self.following
        return following if following is not None and slot >= following.valid_from_slot else self.revision

    # ------------------------------------------------------------------------------------------------- running

    async def run(self, stop: asyncio.Event) -> None:
        """Run all parts; raise what breaks any of them."""
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
        await self.executor.handle(on.Started(self._wall.now()))
        view, sealed = self.executor.machine.view, self.executor.machine.server.slot
        parts = [
            asyncio.create_task(self.executor.run(), name="executor"),
            asyncio.create_task(self.time.end_slots(max(view.next_seal(self._wall.now()), 0)), name="slots"),
            asyncio.create_task(
                self.time.open_slots(max(self.clock.slot_of(self.started_ns), sealed)), name="presence"
            ),
            serving := asyncio.create_task(server.serve(), name="http"),
            asyncio.create_task(self._old_releases(), name="retention"),
            asyncio.create_task(self._keep_watch(), name="watch"),
            asyncio.create_task(self._look_for_strangers(), name="strangers"),
            asyncio.create_task(
                node_health(self.config.listen, self.executor.check_alive, self._transport, self._reopen).run(),
                name="health",
            ),
        ]
        waiting = asyncio.create_task(stop.wait(), name="stop")
        log.info(
            "node started: %s",
            self.start_text,
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
            await self.executor.forget_sealed()
            self.executor.close()
            self.time.leave()
            log.info("node stopped", extra={"event": "stopped", "server": self.config.server})

    async def _keep_watch(self) -> None:
        while True:
            self.time.look()
            self._look_at_certificates()
            self._link_log.look()
            self._flood_log.look(self._transport.dropped())
            await asyncio.sleep(NAP)

    async def _old_releases(self) -> None:
        while True:
            before = self._wall.now() - int(self.config.retention.releases)
            try:
                await asyncio.to_thread(self._storage.retention, before)
            except StorageError as failure:  # the node goes on; the next commit tells whether it can pay
                log.error("old releases could not be deleted: %s", failure, extra={"event": "retention"})
            await asyncio.sleep(_RETENTION_EVERY)

    async def _look_for_strangers(self) -> None:
        """Count strangers once per slot: whoever has a certificate of the authority can call, and is turned away."""
        while True:
            await asyncio.sleep(self.clock.length_ns / 1e9)
            for name in (await self._transport.strangers())[:_MOST_STRANGERS]:
                self.executor.stranger(max(self.clock.slot_of(self._wall.now()), 0), name)

    def _reopen(self) -> None:
        """Have all links opened anew, which gives back whatever they hold."""
        self.executor.give(on.LinksExpired(self._wall.now(), anew=True))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -------------------------------------------------------------------------------- what the transport tells

    def _links_closed(self, *, reopen: bool) -> None:
        """Note that the node itself has closed all links; with `reopen` they are due again after a pause."""
        self._link_log.closed()
        if reopen:
            self._start(self._open_links_later())

    async def _open_links_later(self) -> None:
        await asyncio.sleep(_APART)
        self.executor.give(on.LinksExpired(self._wall.now()))

    def _presence_changed(self, session: int, neighbour: str, up: bool) -> None:
        self.time.look()
        self._link_log.change(neighbour, up)
        kind = on.NeighbourUp if up else on.NeighbourDown
        self.executor.give(kind(self._wall.now(), neighbour, session))

    # ------------------------------------------------------------------------------ what the machine instructs

    async def link(self, asked: do.Link, at_ns: int) -> None:
        await self.links.carry_out(asked, self.revision, self.executor.machine.view, at_ns, self.executor.handle)

    async def decide(self, asked: do.TakeOver | do.BookLoss | do.LookBack | do.StoreReturn, at_ns: int) -> on.Stimulus:
        call, storage = self.executor.in_thread, self._storage
        match asked:
            case do.TakeOver(revision):
                network = self.networks[revision]
                stimulus = await call(
                    decisions.take_over, asked, at_ns, self.revision, network, storage, self._make_revision
                )
                await asyncio.to_thread(take_next, self.config, network)
                log_changes(self.revision, network)
                return stimulus
            case do.BookLoss():
                return await call(decisions.book_loss, asked, self.revision, storage)
            case do.LookBack():
                return await call(decisions.look_back, asked, at_ns, self.revision, storage)
            case do.StoreReturn():
                return await call(decisions.store_return, asked, self.revision, storage)

    async def begin_again(self, last: int) -> None:
        self.time.begin_again(last)
        self.refusals.clear()
        with suppress(StorageError):  # what is left of slots to come is not counted: see `Journal.attend`
            await self.executor.in_thread(self.time.void_check_ins)

    async def book_clock_step(self, step: do.BookClockStep) -> None:
        self._accounts.clock_set(step.at_ns, step.moved_ns)
        await self.executor.in_thread(self._accounts.book)

    def schedule(self, slot: int, at_ns: int) -> None:
        async def tell() -> None:
            await self._wall.sleep_until(at_ns)
            self.time.look()  # whoever stood still has not read everything that has come by now
            self.executor.give(on.DeadlinePassed(self._wall.now(), slot))

        self._start(tell())


def _raise_what_broke(part: asyncio.Task[None]) -> None:
    try:
        part.result()
    except StorageError:
        raise
    except DpcrowdError as error:  # while a node runs nobody's input is at fault, whatever the error's kind says
        log.critical("%s: %s", part.get_name(), error, extra={"event": "broke"})
        raise RuntimeError(f"{part.get_name()}: {error}") from error
