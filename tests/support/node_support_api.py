"""A service that remembers what it was given, for tests of the HTTP API; and requests without a client library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette

from dpcrowd.errors import BadInput
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.node.api.app import make_app
from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.page_views import NeighbourHistory, ServerPlace, Topology
from dpcrowd.node.api.proofs import ProofsView, ProofView, SignedBytes
from dpcrowd.node.api.service import Process
from dpcrowd.node.api.views import BudgetView, Level, NeighbourStatus, NetworkStatus, QualityView, SlotRefusals
from dpcrowd.node.collect import Collector, IntakeRefused
from dpcrowd.node.config.tokens import TokensSection
from dpcrowd.node.ingest.batch import Batch, RowRefusal, slots_of
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SECOND, SlotClock

REGIONS = {"north": 0, "south": 1, 'far, "east"': 2}
CLOCK = SlotClock(epoch_ns=1_767_225_600 * SECOND, length_ns=60 * SECOND)
"""Slot 0 opens at 2026-01-01T00:00:00Z."""
NOW = CLOCK.opens(100) + 30 * SECOND
CHECKIN, READ, ADMIN = "a-token-for-checkins", "a-token-for-readers-", "a-token-for-the-boss"
TOKENS = TokensSection(checkin=(CHECKIN,), read=(READ,), admin=(ADMIN,))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def estimates_of(slot: int, *, unknown: bool = False) -> SlotRelease:
    """Numbers that can be told apart; the first is negative, since nothing is clamped."""
    middle = np.array([-3.5, 10.25, float("nan") if unknown else 1e6]) + slot
    opens, length, sampled = CLOCK.opens(slot), CLOCK.length_ns, slot % 2 == 0
    return SlotRelease(slot, opens, length, tuple(REGIONS), middle, np.ones(3), sampled, 7 * sampled, factor=2.0)


def smoothed_of(slot: int) -> SlotRelease:
    """The same slot with other numbers, as later records would change them: higher by a half, with half the width."""
    first = estimates_of(slot)
    measured, measured_var = np.array([slot + 0.25, 7.0, np.nan]), np.array([9.0, 16.0, np.inf])
    return replace(
        first,
        estimate=first.estimate + 0.5,
        variance=first.variance / 4,
        measurement=measured,
        measurement_var=measured_var,
    )


class FakeService:
    """Keeps a real collector, so that refusals are those of a node; keys are constant.

    accepts  "checkins" or "counts", as in node.toml; None: both, for tests that send both
    """

    regions: Mapping[str, int] = REGIONS
    clock = CLOCK

    def __init__(self, capacity: int = 1_000_000, slots: Sequence[int] = (), accepts: str | None = None) -> None:
        self.collector = Collector(len(REGIONS), capacity)
        self.accepts = accepts
        self.batches: list[Batch] = []
        self.refusals: list[str] = []
        self.stored = [estimates_of(slot) for slot in slots]
        self.smoothed_slots: list[SlotRelease] | None = [smoothed_of(slot) for slot in slots[:-1]]
        self.broadcast = Broadcast(size=2)
        self.level: Level = "info"
        self.problems: list[str] = []
        self.soon: list[str] = []
        self.fails: Exception | None = None
        self.shapes: bytes | None = None
        self.process: Process = tuple(REGIONS), ProcessModel.of(1.0, np.ones(len(REGIONS)))

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> Sequence[RowRefusal]:
        if self.fails is not None:
            raise self.fails
        self._check("checkins")
        self.batches.append(batch)
        slots, refused = slots_of(
            batch, arrived_ns, CLOCK, grace_ns=5 * SECOND, future_ns=2 * SECOND, sealed=self.collector.sealed
        )
        for slot, rows in slots.items():
            part = batch.hashed(rows, bytes(32))
            self.collector.add(slot, part.users, part.regions)
        return batch.in_body(refused)

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        self._check("counts")
        if CLOCK.closes(slot) + 5 * SECOND <= arrived_ns:
            raise IntakeRefused("late", f"slot {slot} is sealed.")
        self.collector.set_counts(slot, counts)

    def _check(self, kind: str) -> None:
        if self.accepts not in (None, kind):
            raise IntakeRefused("off", f"this node takes {self.accepts} only.")

    def counted(self, slot: int) -> list[int]:
        """Seal a slot: the users of each region."""
        counts = self.collector.seal(slot)
        assert counts is not None
        return list(counts.tolist())

    def refused(self, reason: str, at_ns: int) -> None:
        self.refusals.append(reason)

    def retry_after(self, at_ns: int) -> int:
        return 30

    async def latest(self) -> SlotRelease | None:
        return self.stored[-1] if self.stored else None

    async def estimates(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease]:
        found = [one for one in self.stored if (first or 0) <= one.slot and (last is None or one.slot <= last)]
        return [one if regions is None else one.only(regions) for one in found[:limit]]

    async def smoothed(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease] | None:
        if self.smoothed_slots is None:
            return None
        found = [one for one in self.smoothed_slots if (first or 0) <= one.slot and (last is None or one.slot <= last)]
        return [one if regions is None else one.only(regions) for one in found[:limit]]

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[SlotRelease | Lost]]:
        return self.broadcast.subscribe()

    async def budget(self) -> BudgetView:
        return BudgetView(
            guarantee="words",
            kind="window",
            length=10,
            epsilon=1.0,
            spent=0.25,
            remaining=0.75,
            total_spent=2.5,
            samples=True,
        )

    async def network(self, *, operator: bool) -> NetworkStatus:
        return NetworkStatus(
            network="n",
            server="a",
            version="0",
            revision=1,
            digest="00",
            epoch="2026-01-01T00:00:00Z",
            slot_seconds=60.0,
            grace_seconds=5.0,
            slot=100,
            regions=list(REGIONS),
            neighbours=[NeighbourStatus(name="b", connected=True, refused={"late": 2})],
            refused_checkins=[SlotRefusals(slot=99, reasons=["late"])] if operator else [],
        )

    def quality(self) -> QualityView:
        return QualityView(
            verdict="calibrated", text="about right.", coverage=0.95, calibration=1.02, values=400, window=100
        )

    def proofs(self) -> ProofsView:
        record = SignedBytes(signed=b"signed", signature=bytes(64))
        proof = ProofView(network="n", server="b", slot=98, first=record, second=record)
        return ProofsView(proofs=[proof])

    def topology(self) -> Topology:
        return Topology(
            servers=[ServerPlace(name=name, share=0.5) for name in "ab"],
            links=[("a", "b")],
            population=1000,
            scheme="dpcrowd-w",
            users="pinned",
            servers_per_slot=1,
            regions_per_slot=1,
            map=self.shapes is not None,
        )

    async def region_map(self) -> bytes | None:
        return self.shapes

    def neighbour_history(self, slots: int, region: str | None) -> NeighbourHistory:
        return NeighbourHistory(region=region, slots=[98, 99][-slots:], neighbours={"b": [None, 7.5][-slots:]})

    def ready(self) -> tuple[bool, Sequence[str]]:
        return not self.problems, self.problems

    def warnings(self) -> Sequence[str]:
        return self.soon

    async def metrics(self) -> str:
        return "up 1\n"

    async def operator_metrics(self) -> str:
        return "up 1\nload 5\n"

    async def reload(self) -> str:
        return "revision 2 is valid from slot 200."

    async def accept_clock(self) -> str:
        raise BadInput("the clock is not behind.")

    async def confirm_loss(self) -> str:
        raise BadInput("nothing was lost.")

    def set_log_level(self, level: Level) -> None:
        self.level = level


def app_of(
    service: FakeService,
    tokens: TokensSection = TOKENS,
    max_body: int = 100_000,
    requests_per_second: float = 0.0,
    now: Callable[[], int] = lambda: NOW,
) -> Starlette:
    return make_app(service, tokens, max_body=max_body, now=now, requests_per_second=requests_per_second)


class Caller:
    """One HTTP request to an ASGI application that can be left open, as a stream has to be."""

    def __init__(self, path: str, *, query: str = "", headers: Mapping[str, str] | None = None) -> None:
        raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": raw,
            "server": ("a", 80),
        }
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.said.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def receive(self) -> dict[str, Any]:
        return await self.said.get()

    async def send(self, message: Any) -> None:
        self.heard.put_nowait(dict(message))

    def leave(self) -> None:
        self.said.put_nowait({"type": "http.disconnect"})

    async def body(self) -> bytes:
        message = await asyncio.wait_for(self.heard.get(), 10)
        return bytes(message.get("body", b""))


class Client:
    """Requests to an application without a server between, each in an event loop of its own."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://node", trust_env=False) as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())


def client_of(service: FakeService, **options: Any) -> Client:
    """Return a client of a service."""
    return Client(app_of(service, **options))


def reason_of(response: Any) -> str:
    """Return the reason in an answer that is an error, and nothing else."""
    body = response.json()
    assert set(body) == {"error"}
    assert body["error"]["text"].endswith(".")
    return str(body["error"]["reason"])


def going_together(slots: Sequence[int]) -> FakeService:
    """Return a service whose model knows that regions go together; records say nothing of them."""
    service = FakeService(slots=slots)
    course = Course(np.full((1, 3), 50.0), np.ones((1, 3)))
    service.process = tuple(REGIONS), ProcessModel.around(course, 0.0, region_correlation=0.5)
    return service
