"""What the HTTP API asks of a running node; nothing here has seen a raw count but `take_*`, which hand it on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.page_views import NeighbourHistory, ServerPlace, Topology
from dpcrowd.node.api.proofs import ProofsView, show_proof
from dpcrowd.node.api.serve import ApiServer
from dpcrowd.node.api.service import Process
from dpcrowd.node.api.views import BudgetView, Level, NetworkStatus, QualityView
from dpcrowd.node.build import load_account
from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.ingest.batch import Batch, RowRefusal
from dpcrowd.node.live import status
from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.live.certificates import Certificates, utc
from dpcrowd.node.live.executor import FLOOD, Executor
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.quality import SuspectedServers, quality
from dpcrowd.node.live.region_map import read_shapes
from dpcrowd.node.live.slot_cycle import Counting
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.clock_return import sender_text, wait_text
from dpcrowd.node.metrics import families
from dpcrowd.node.metrics.process import read_process
from dpcrowd.node.metrics.registry import Registry, render_all
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.metrics.state import free_bytes, set_budget, set_network, set_quality, set_storage
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.base import Transport

__all__ = ["NodeService"]

log = logging.getLogger("dpcrowd.node")

_MOST_REFUSALS = 100  # slots of which it is kept


class NodeService:
    """The API's `Service`, for a node that has these parts.

    networks  by the number of a revision: the one in use now, and the one that takes over at its first slot, if any
    """

    config: NodeConfig
    networks: dict[int, NetworkConfig]
    _earlier: dict[int, NetworkConfig]
    executor: Executor
    counting: Counting
    certificates: Certificates
    intake: Intake
    broadcast: Broadcast
    _storage: Storage
    _accounts: AccountLoader
    _transport: Transport
    _wall: WallClock
    _http: ApiServer | None
    refusals: dict[int, set[str]]
    meter: SlotMeter
    started_ns: int

    @property
    def revision(self) -> NetworkConfig:
        """The revision in use now."""
        return self.networks[self.executor.machine.view.revision]

    @property
    def following(self) -> NetworkConfig | None:
        """The one that takes over at its first slot, if any."""
        following = self.executor.machine.following
        return None if following is None else self.networks[following[0]]

    @property
    def regions(self) -> Mapping[str, int]:
        return self.intake.regions

    @property
    def process(self) -> Process:
        return self.revision.regions, self.executor.machine.server.setting.model

    @property
    def clock(self) -> SlotClock:
        return self.executor.machine.view.clock

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> list[RowRefusal]:
        self._accepts("checkins")
        return await self.intake.take_checkins(batch, arrived_ns)

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        self._accepts("counts")
        await self.intake.take_counts(slot, counts, arrived_ns)

    def _accepts(self, kind: str) -> None:
        accepts = self.config.ingest.accepts
        if accepts != kind:
            raise IntakeRefused(
                "off", f'this node accepts {accepts} only: accepts = "{accepts}" in [ingest] of node.toml.'
            )
        if self._storage.gone is not None:  # nothing that is taken now could be counted and paid for
            raise IntakeRefused("unavailable", f"check-ins cannot be kept now: {self._storage.gone}")
        # Whatever time a row has: one of now would be late, for good, although the operator may accept the clock.
        if wait := sender_text(self.executor.machine.view, self.intake.sealed, self._wall.now()):
            raise IntakeRefused("unavailable", wait)

    def refused(self, reason: str, at_ns: int) -> None:
        """Keep the reason of a refusal in memory, for the operator alone: it may be one person's check-in."""
        self.refusals.setdefault(max(self.clock.slot_of(at_ns), 0), set()).add(reason)
        while len(self.refusals) > _MOST_REFUSALS:
            del self.refusals[min(self.refusals)]

    def retry_after(self, at_ns: int) -> int:
        opens = max(self.clock.epoch_ns, self.clock.opens(self.intake.sealed + 1))  # to come, if the clock went back
        return max(1, -(-(opens - at_ns) // 1_000_000_000))

    @property
    def _last_sealed(self) -> int:
        """The last slot that is never opened again; -1: none."""
        return max(self.executor.machine.server.slot, self.intake.sealed)

    def _clock_wait(self, now_ns: int) -> str:
        """Return until when nothing happens because the clock went back; empty if it did not."""
        return wait_text(self.executor.machine.view, self._last_sealed, now_ns, self.executor.machine.went_back)

    async def latest(self) -> SlotRelease | None:
        if self.executor.last is not None:
            return self.executor.last
        return await asyncio.to_thread(self._storage.releases.latest)

    async def estimates(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease]:
        from_ns, until_ns = self._span(first, last)

        def read() -> list[SlotRelease]:
            return list(self._storage.releases.between(from_ns, until_ns, regions=regions, limit=limit))

        return await asyncio.to_thread(read)

    async def smoothed(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease] | None:
        from_ns, until_ns = self._span(first, last)
        releases, keeps_records = self._storage.releases, self.executor.machine.server.keeps_records

        def read() -> list[SlotRelease] | None:
            if not keeps_records and not releases.has_smoothed():
                return None
            return list(releases.smoothed(from_ns, until_ns, regions=regions, limit=limit))

        return await asyncio.to_thread(read)

    def _span(self, first: int | None, last: int | None) -> tuple[int, int]:
        """Return when the slots from `first` to `last` open, and when the one after them does."""
        from_ns = self.clock.opens(0 if first is None else first)
        return from_ns, self._wall.now() if last is None else self.clock.opens(last + 1)

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[SlotRelease | Lost]]:
        return self.broadcast.subscribe()

    async def budget(self) -> BudgetView:
        view, now = await self._ledger_budget(), self._wall.now()
        if view.waits_for != "budget" or self._accounts.is_short:
            return view
        if not await asyncio.to_thread(self._is_between_samples, now):
            return view
        return msgspec.structs.replace(view, samples=True, waits_for=None, text="")

    def _is_between_samples(self, now: int) -> bool:
        """Whether the window is used up only because the schedule has it so, until the next sample is due."""
        slot = max(self.clock.slot_of(now), 0)
        account = load_account(self._storage, self.revision, slot)
        return self._accounts.is_usual(account.allowance(self.clock.opens(slot)))

    async def _ledger_budget(self) -> BudgetView:
        """Return the budget as the ledger has it: whether it allows a sample now, due or not."""
        now = self._wall.now()
        machine = self.executor.machine
        early = status.opening(self.clock, machine.server.slot, now) or self._clock_wait(now)
        trust, joined = machine.trust, machine.server.joined
        return await asyncio.to_thread(status.budget, self.revision, self._storage, trust, now, early, joined=joined)

    async def network(self, *, operator: bool = False) -> NetworkStatus:
        now = self._wall.now()
        refused = self.executor.refused + Counter(
            {(name, FLOOD): count for name, count in self._transport.dropped().items() if count}
        )
        machine = self.executor.machine
        return status.network_status(
            self.revision,
            self.config.server,
            machine.present,
            machine.used,
            refused,
            self.refusals if operator else {},
            now,
            self.following,
            self.executor.refused_last,
            machine.records,
            self.executor.sent_by_kind,
            machine.server.joined,
            machine.contradicting,
        )

    def quality(self) -> QualityView:
        machine = self.executor.machine
        return quality(
            machine.calibration.summary(),
            machine.view.regions,
            self.revision.method.name,
            judges_others=machine.server.judges_others,
            servers=machine.view.names,
            learned=machine.server.learned_shares(),
            learned_slot=machine.server.learned_slot,
            clock=machine.view.clock,
            left_out=SuspectedServers.of(
                self.revision, () if machine.records is None else machine.records.suspects, self.config.server
            ),
        )

    def proofs(self) -> ProofsView:
        records = self.executor.machine.records
        proofs = [] if records is None else records.proofs()
        return ProofsView(proofs=[show_proof(one, self.revision.id, name, digest) for name, digest, one in proofs])

    def topology(self) -> Topology:
        network = self.revision
        guarantee, slot = network.guarantee_section, max(self.clock.slot_of(self._wall.now()), 0)
        names = [server.name for server in network.servers]
        return Topology(
            servers=[
                ServerPlace(name=server.name, share=server.share, shares=dict(server.shares))
                for server in network.servers
            ],
            links=[(names[link.low], names[link.high]) for link in network.timed_links() if link.holds(slot)],
            population=network.population,
            scheme=network.method.name,
            users=guarantee.users,
            servers_per_slot=guarantee.servers_per_slot,
            regions_per_slot=guarantee.regions_per_slot,
            coordinates=dict(network.region_map.coordinates),
            map=bool(network.region_map.geojson),
        )

    async def region_map(self) -> bytes | None:
        geojson = self.revision.region_map.geojson
        return await asyncio.to_thread(read_shapes, self.config.network.parent / geojson) if geojson else None

    def neighbour_history(self, slots: int, region: str | None) -> NeighbourHistory:
        network, slot = self.revision, max(self.clock.slot_of(self._wall.now()), 0)
        names = network.neighbours(self.config.server, slot)
        history = self.executor.neighbour_estimates.history(slots, region, network.regions, names)
        number = None if region is None else network.regions.index(region)
        servers = [server.name for server in network.servers]
        records = self.executor.kept_records.history(slot - slots, number, len(network.regions), servers)
        return msgspec.structs.replace(history, records=records)

    def ready(self) -> tuple[bool, Sequence[str]]:
        problems = []
        if self._storage.failure is not None:
            by_itself = " The node then goes on by itself." if self._storage.failure.kind == "full" else ""
            problems.append(f"{self._storage.failure}{by_itself}")
        machine, now = self.executor.machine, self._wall.now()
        last = machine.server.slot
        early = "" if status.needs_operator(machine.trust) else status.opening(self.clock, last, now)
        wait = self._clock_wait(now)
        waits_for_time = bool(wait) and not status.needs_operator(machine.trust)  # no neighbour can help until then
        if early or not (machine.trust.may_sample or waits_for_time):
            problems.append(f"the node may not sample yet (/v1/budget): {early or status.distrust(machine.trust)}")
        if wait:
            problems.append(wait)
        problems += self.certificates.problems(self._wall.now())
        return not problems, problems

    def warnings(self) -> Sequence[str]:
        warnings = list(self.certificates.warnings(self._wall.now(), self.expiries()))
        if (silent := self.counting.silent_since) is not None:
            warnings.append(
                f"no feed has sent a request in slot {silent} or since (ingest.needs_feed): these slots are not "
                "sampled. Check the program that sends check-ins: it has to send a request in every slot, even an "
                "empty one."
            )
        if (unused := self.executor.machine.unused_since) is not None:
            warnings.append(
                f"samples of this server are paid for and not used since slot {unused}: they cannot be noisy counts of "
                "this network's population. Check what feeds this server, and `population` in network.toml."
            )
        return warnings

    def expiries(self) -> dict[str, int]:
        """Return when the certificates of neighbours expire, as they say, in seconds since 1970."""
        machine = self.executor.machine
        if not machine.expires:
            return {}
        now = machine.view.links(max(self.clock.slot_of(self._wall.now()), 0))
        near = {machine.view.names[number] for number in now}
        return {name: at for name, at in machine.expires.items() if name in near}

    async def metrics(self) -> str:
        exact = self.config.ingest.exact_counters
        return render_all([self.meter.registry, await self._gauges()], "operator" if exact else "reader")

    async def operator_metrics(self) -> str:
        return render_all([self.meter.registry, await self._gauges()], "operator")

    async def _gauges(self) -> Registry:
        """Return the gauges, which are read when they are asked for."""
        gauges = Registry()
        set_budget(gauges, await self._ledger_budget())
        set_network(gauges, await self.network(), self.meter.clock_offsets())
        set_quality(gauges, self.quality())
        set_storage(gauges, self._storage.failure, await asyncio.to_thread(free_bytes, self.config.data))
        read_process(gauges, self.started_ns)
        gauges.set(families.READY, self.ready()[0])
        gauges.set(families.MESSAGES_SENT, self.executor.sent)
        gauges.set(families.SENT_BYTES, self.executor.sent_bytes)
        gauges.set(families.MESSAGES_LATE, self.executor.late)
        gauges.set_counts(families.CONNECTIONS_REFUSED, self._transport.refused_connections(), port="transport")
        gauges.set(families.API_LIMITED, self._http is not None and self._http.places.limited)
        now = utc(self._wall.now())
        for one in self.certificates.all_expiries(self.expiries()):
            gauges.set(families.CERTIFICATE_EXPIRY, one.at.timestamp(), certificate=one.holder, name=one.name)
            gauges.set(families.CERTIFICATE_DAYS, one.days_left(now), certificate=one.holder, name=one.name)
        if self.executor.last is not None:
            gauges.set(families.RELEASED_SLOT, self.executor.last.slot)
        if self.config.ingest.exact_counters:
            gauges.set(families.CHECKINS_TAKEN, self.intake.taken)
        return gauges

    async def confirm_loss(self) -> str:
        """Have samples that the folder has lost counted as a fully spent budget."""
        return await self.executor.ask(on.LossConfirmed(self._wall.now()))

    async def accept_clock(self) -> str:
        """Let slots begin again that a clock which was ahead has sealed; see `clock_return`."""
        return await self.executor.ask(on.ClockAccepted(self._wall.now()))

    async def expect(self, following: NetworkConfig) -> None:
        """Use the next revision once its first slot is sealed; check-ins for its regions are accepted from now on."""
        self.networks[following.revision] = following
        self.intake.learn(following.regions)
        await self.executor.ask(on.RevisionExpected(self._wall.now(), following.revision, following.valid_from_slot))

    def set_log_level(self, level: Level) -> None:
        logging.getLogger("dpcrowd").setLevel(level.upper())
        log.log(logging.getLevelName(level.upper()), "the log level is %s", level, extra={"event": "log-level"})
