"""The live page in a headless browser: networks of processes, a crowd of many regions, and what a page asked for."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np
import pytest

from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.api.page_views import NeighbourHistory, RecordHistory, ServerPlace, Topology
from dpcrowd.node.api.serve import make_server
from dpcrowd.node.api.views import (
    BudgetView,
    LearnedShare,
    NeighbourStatus,
    NetworkStatus,
    QualityView,
    ServerStatus,
)
from dpcrowd.node.config.samples import sample_network, sample_node
from dpcrowd.node.config.tokens import TokensSection, token_hash
from dpcrowd.node.keys.signing import key_of_certificate
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import SECOND, SlotClock, rfc3339
from node_support_api import FakeService, app_of
from node_support_fork import ForkedServer
from ports_support import free_ports

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
READ = "a-token-for-readers-of-the-page"
SHOTS = os.environ.get("DPCROWD_SCREENSHOTS")
"""Folder for screenshots that somebody wants to look at."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser, or skip the test."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic", "--enable-precise-memory-info"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser that the tests of a file share."""
    with chromium() as opened:
        yield opened


WIDE = """[...document.querySelectorAll('body *')]
    .filter(one => !one.closest('.scroll, svg, nav, .u-wrap'))
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.tagName + ' ' + one.className)"""
"""Elements that are wider than the screen, or cut off at its edge, except in boxes that scroll."""


_IDLE: dict[tuple[Any, bool], list[Any]] = {}
"""Tabs that tests have closed, by browser and by whether scripts of a test may run in them."""


class Opened:
    """A page, the addresses that it asked for, and what it complained about.

    A tab that a test has closed is used again: a new one starts four processes, which takes longer than most pages.
    Servers of tests have ports of their own, so that nothing that a page stores is found by the next one.
    """

    def __init__(
        self,
        browser: Any,
        address: str,
        *,
        width: int = 1280,
        height: int = 900,
        color_scheme: str = "light",
        bypass_csp: bool = False,
    ) -> None:
        self.address = address
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._idle = _IDLE.setdefault((browser, bypass_csp), [])
        self.page = self._idle.pop() if self._idle else browser.new_page(bypass_csp=bypass_csp)
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=color_scheme)
        self.page.set_default_timeout(30_000)
        self._listeners: dict[str, Callable[[Any], None]] = {
            "request": lambda request: self.requests.append(request.url),
            "console": lambda message: self.complaints.append(message.text),
            "pageerror": lambda error: self.complaints.append(str(error)),
        }
        for event, listener in self._listeners.items():
            self.page.on(event, listener)
        self.page.goto(address)

    @property
    def outside(self) -> list[str]:
        """Requests to another host or port than the page's own."""
        own = urlsplit(self.address).netloc
        return [
            url for url in self.requests if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != own
        ]

    def wait_for(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until a condition in the page is true; the page's own policy forbids Playwright's way to poll."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"still not true: {expression}; complaints: {self.complaints}"
            self.page.wait_for_timeout(100)

    def shot(self, name: str) -> None:
        """Keep a screenshot of the complete page, if a folder for that is set."""
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)

    def close(self) -> None:
        """Leave the page; a test that fails does not get here, and its tab is not used again."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        self.page.emulate_media(media="null")
        self.page.goto("about:blank")
        self._idle.append(self.page)


# ------------------------------------------------------------------------------------------------ real processes


@dataclass
class Network:
    """Node processes on this machine, which can be killed and started again."""

    configs: dict[str, Path]
    addresses: dict[str, str]
    processes: dict[str, ForkedServer] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a node; return when it answers."""
        config = self.configs[name]
        self.processes[name] = ForkedServer(str(config), config.with_suffix(".log"), os.environ)
        end = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{self.addresses[name]}healthz", trust_env=False)
                return
            except httpx.HTTPError:
                assert time.monotonic() < end, config.with_suffix(".log").read_text(encoding="utf-8")[-2000:]
                time.sleep(0.1)

    def kill(self, name: str) -> None:
        """Kill a node as kill -9 does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()


@contextmanager
def network_of(folder: Path, servers: int, *, begins_in: int = 3, **settings: Any) -> Iterator[Network]:
    """Yield a running network with slots of a second from `begins_in` seconds on, whose readers need a token."""
    names = [f"server-{number + 1}" for number in range(servers)]
    keys = make_trial(folder / "keys", names, datetime.now(UTC), days=90)
    ports = free_ports(2 * servers)
    endpoints = {name: f"tls/127.0.0.1:{port}" for name, port in zip(names, ports, strict=False)}
    text = sample_network(
        names,
        epoch=rfc3339((int(time.time()) + begins_in) * SECOND),
        slot="1s",
        grace="200ms",
        deadline="500ms",
        keys={name: key_of_certificate(keys[name].certificate.read_bytes()) for name in names},
        endpoints=endpoints,
        **settings,
    )
    (folder / "network.toml").write_text(text, encoding="utf-8")
    network = Network({}, {})
    for place, name in enumerate(names):
        http = f"127.0.0.1:{ports[servers + place]}"
        node = sample_node(
            name,
            data=f"data-{name}",
            key=str(keys[name].key),
            certificate=str(keys[name].certificate),
            ca=str(keys[name].authority),
            transport=endpoints[name],
            http=http,
            read=[token_hash(READ)],
        )
        network.configs[name], network.addresses[name] = folder / f"{name}.toml", f"http://{http}/"
        network.configs[name].write_text(node, encoding="utf-8")
    try:
        for name in names:
            network.start(name)
        yield network
    finally:
        for name in list(network.processes):
            network.kill(name)


# -------------------------------------------------------------------------------------------- a crowd of any size


class Crowd(FakeService):
    """A service with as many regions and past slots as a test wants, which publishes when it is told to.

    Estimates are a public function of slot and region, computed when somebody asks.
    """

    def __init__(self, regions: int, slots: int, name: str = "region {:04}") -> None:
        super().__init__()
        self.names = tuple(name.format(number) for number in range(regions))
        self.regions = {name: number for number, name in enumerate(self.names)}
        self.clock = SlotClock(int(time.time() - slots) * SECOND, SECOND)
        self.broadcast = Broadcast(size=256)
        self.coordinates: dict[str, tuple[float, float]] = {}
        self.last = slots - 1
        self._base = 100.0 + 900.0 * np.abs(np.sin(np.arange(regions)))

    def release(self, slot: int) -> SlotRelease:
        level = 1.0 + 0.3 * np.sin(slot / 40.0) + 0.02 * np.sin(slot * 1.7)
        variance = np.full(len(self.names), 400.0)
        return SlotRelease(
            slot, self.clock.opens(slot), SECOND, self.names, self._base * level, variance, slot % 3 == 0, 41_666_666
        )

    async def latest(self) -> SlotRelease | None:
        return self.release(self.last)

    async def estimates(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease]:
        span = range(first or 0, min(self.last if last is None else last, self.last) + 1)
        return [self.release(slot) for slot in span[:limit]]

    async def budget(self) -> BudgetView:
        return BudgetView(
            guarantee="Nobody's data matters much.",
            kind="window",
            length=24,
            epsilon=1.0,
            spent=0.5,
            remaining=0.5,
            total_spent=2.5,
            samples=True,
        )

    async def network(self, *, operator: bool) -> NetworkStatus:
        neighbours = [
            NeighbourStatus(name="b", connected=True, last_slot=self.last, last_heard=rfc3339(time.time_ns()))
        ]
        return NetworkStatus(
            network="large",
            server="a",
            version="0",
            revision=1,
            digest="00",
            epoch=rfc3339(self.clock.epoch_ns),
            slot_seconds=1.0,
            grace_seconds=0.2,
            slot=self.last + 1,
            regions=list(self.names),
            neighbours=neighbours,
        )

    def topology(self) -> Topology:
        return Topology(
            servers=[ServerPlace(name=name, share=0.5) for name in "ab"],
            links=[("a", "b")],
            population=1_000_000,
            scheme="dpcrowd-w",
            users="pinned",
            servers_per_slot=1,
            regions_per_slot=1,
            coordinates=self.coordinates,
            map=self.shapes is not None,
        )

    def publish(self) -> None:
        """Publish one more slot."""
        self.last += 1
        self.broadcast.publish(self.release(self.last))


class RelayCrowd(Crowd):
    """Four servers that pass records on: one agrees, one has signed twice, one is suspected, one sends nothing.

    The server itself has joined late, with the word of one of them, whom two others contradicted. Smoothed slots are 50
    people above what was released, so that a line of its own is drawn.
    """

    names_of_servers = ("a", "agrees", "signed-twice", "too-high", "silent")

    async def smoothed(
        self, first: int | None, last: int | None, regions: Sequence[str] | None, limit: int
    ) -> Sequence[SlotRelease]:
        past = await self.estimates(first, last, regions, limit)
        return [replace(one, estimate=one.estimate + 50.0) for one in past[:-1]]

    async def network(self, *, operator: bool) -> NetworkStatus:
        status = await super().network(operator=operator)
        _, agrees, twice, high, silent = self.names_of_servers
        heard: dict[str, Any] = {"last_record": self.last, "records": 40}
        servers = [
            ServerStatus(name="a", last_record=self.last),
            ServerStatus(name=agrees, **heard),
            ServerStatus(name=twice, equivocation=self.last - 3, **heard),
            ServerStatus(name=high, suspected_since=self.last - 30, **heard),
            ServerStatus(name=silent, overdue=self.last - 40, missing=True),
        ]
        neighbours = [NeighbourStatus(name=agrees, connected=True, last_slot=self.last)]
        return msgspec.structs.replace(
            status,
            scheme="relay",
            lag=16,
            servers=servers,
            neighbours=neighbours,
            joined_from=[agrees],
            joined_slot=17,
            join_disagreement=[twice, high],
        )

    def topology(self) -> Topology:
        places = [ServerPlace(name=name, share=0.2) for name in self.names_of_servers]
        links = [("a", name) for name in self.names_of_servers[1:]]
        return msgspec.structs.replace(super().topology(), servers=places, links=links, scheme="relay")

    def neighbour_history(self, slots: int, region: str | None) -> NeighbourHistory:
        number = None if region is None else self.regions[region]
        sampled = list(range(max(self.last - 100, 0), self.last, 4))

        def records(factor: float) -> RecordHistory:
            estimates = [self.release(slot).estimate for slot in sampled]
            values = [float(one.sum() if number is None else one[number]) for one in estimates]
            return RecordHistory(
                slots=sampled,
                value=[factor * one for one in values],
                half_width=[0.05 * one for one in values],
                share=[0.2] * len(sampled),
                learned=[True] * len(sampled),
            )

        return NeighbourHistory(
            region=region, slots=[], neighbours={}, records={"agrees": records(1.01), "too-high": records(1.3)}
        )


class DoubtfulCrowd(RelayCrowd):
    """The same network, which learns shares and suspects this very server, too, so that nobody knows who is right."""

    async def network(self, *, operator: bool) -> NetworkStatus:
        status = await super().network(operator=operator)
        first, *others = status.servers
        own = msgspec.structs.replace(first, suspected_since=self.last - 20)
        return msgspec.structs.replace(
            status,
            servers=[own, *others],
            model_data="counts.csv",
            model_source="published by the city",
            model_assertion='"published by the city"; and of earlier models, of which it keeps a part: "a census"',
            learn=True,
            turnover=0.05,
            share_width=0.1,
        )

    def quality(self) -> QualityView:
        shares = [
            LearnedShare(server=name, region=region, share=0.3 - 0.02 * place, deviation=0.01, slot=self.last - 16)
            for place, name in enumerate(self.names_of_servers)
            for region in self.names
        ]
        text = "nobody can say whether the intervals are right."
        return QualityView(
            verdict="unknown",
            text=text,
            caveats=["suspected"],
            suspected=["a", "too-high"],
            suspected_share=0.4,
            coverage=0.96,
            calibration=1.1,
            values=280,
            window=100,
            learned_shares=shares,
        )


@contextmanager
def served(crowd: Crowd) -> Iterator[tuple[str, Callable[[Callable[[], None]], object]]]:
    """Serve a crowd to everybody on this machine; yield the address, and how to call something in its event loop."""
    app = app_of(crowd, TokensSection(read="open"))
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))  # nobody else can take its port meanwhile
    port = listener.getsockname()[1]
    server = make_server(app, "127.0.0.1", port)

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(server.serve([listener]))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server of the page could not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}/", loop.call_soon_threadsafe
    finally:
        loop.call_soon_threadsafe(crowd.broadcast.close)
        server.should_exit = True
        thread.join(10)
        listener.close()
