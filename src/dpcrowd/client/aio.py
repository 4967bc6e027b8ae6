"""`AsyncClient`: the asyncio version of `Client`.

async with dpcrowd.AsyncClient("http://127.0.0.1:8080", token="...") as client:
    async for release in client.stream():
        ...
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from dpcrowd.client import calls
from dpcrowd.client.client import reply_of
from dpcrowd.client.deliver import send_checkins
from dpcrowd.client.delivery import Delivery
from dpcrowd.client.rows import Encoding
from dpcrowd.client.steps import Ask, Reply, Silence, Steps, Wait, send_counts, send_nothing, silence_of
from dpcrowd.client.stream import IDLE_SECONDS, Watch
from dpcrowd.client.tables import Estimates
from dpcrowd.client.views import Budget, Network, Proof, Quality, Ready

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient:
    """A client of one node, for one event loop; parameters and methods are those of `dpcrowd.Client`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 10.0,
        *,
        retries: int = 4,
        patience: float = 30.0,
        ca: calls.Authority | None = None,
        proxy: str | None = None,
    ) -> None:
        self._settings = calls.Settings.make(url, token, timeout, retries, patience, ca, proxy)
        self._timeout = timeout
        self._httpx = calls.httpx_library()
        self._http = self._httpx.AsyncClient(**self._settings.options)

    def __repr__(self) -> str:
        return f"AsyncClient('{self._settings.url}')"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def checkin(
        self,
        users: Any,
        regions: str | Iterable[str] | None = None,
        times: Any = None,
        *,
        batch: int = 10_000,
        encoding: Encoding = "msgpack",
        strict: bool = False,
        compress: bool = False,
    ) -> Delivery:
        """Send check-ins; see `Client.checkin`."""
        patience = self._settings.patience
        return await self._run(
            send_checkins(users, regions, times, batch, encoding, patience, strict=strict, compress=compress)
        )

    async def idle(self) -> float:
        """Report that nobody has checked in; see `Client.idle`."""
        return await self._run(send_nothing(self._settings.patience))

    async def counts(self, slot: int, counts: Mapping[str, int]) -> None:
        """Send the numbers of distinct users of a slot by region; see `Client.counts`."""
        await self._run(send_counts(slot, counts, self._settings.patience))

    async def latest(self, regions: str | Iterable[str] = ()) -> Estimates:
        """Return the latest release; an empty table before the first one."""
        return await self._run(calls.latest(regions, self._settings.patience))

    async def estimates(
        self,
        first: int | datetime | None = None,
        last: int | datetime | None = None,
        regions: str | Iterable[str] = (),
        *,
        smoothed: bool = False,
        measurements: bool = False,
    ) -> Estimates:
        """Return the releases from the first to the last slot, or these slots smoothed; see `Client.estimates`."""
        patience = self._settings.patience
        return await self._run(
            calls.estimates(first, last, regions, patience, smoothed=smoothed, measurements=measurements)
        )

    async def stream(
        self,
        regions: str | Iterable[str] = (),
        *,
        after: int | None = None,
        seconds: float | None = None,
        patience: float | None = 60.0,
    ) -> AsyncIterator[Estimates]:
        """Yield each release as it is published; see `Client.stream`."""
        watch = Watch(after, seconds, patience, time.monotonic)
        params = calls.region_params(regions)
        timeout = self._httpx.Timeout(self._timeout, read=IDLE_SECONDS)
        while not watch.over():
            failure: Reply | Silence = Silence("the stream ended")
            request = self._http.build_request(
                "GET", "/v1/stream", params=params, headers=watch.events.headers, timeout=timeout
            )
            try:
                response = await asyncio.wait_for(self._http.send(request, stream=True), watch.remaining)
                try:
                    if response.status_code == 200:
                        watch.connected()
                        chunks = aiter(response.aiter_bytes())
                        while (chunk := await asyncio.wait_for(_next(chunks), watch.remaining)) is not None:
                            for release in watch.receive(chunk):
                                yield release
                    else:
                        await response.aread()
                        failure = reply_of(response)
                finally:
                    await response.aclose()
            except TimeoutError:
                return
            except self._httpx.TransportError as error:
                failure = silence_of(error)
            if isinstance(failure, Silence):
                failure = await self._explain(failure)
            if not watch.over():
                await asyncio.sleep(watch.wait(failure))

    async def totals(self, slots: int = 1) -> Estimates:
        """Return the complete population of the latest slots: one row per slot, the sum over all regions.

        The 95% interval is the node's own: with a process model it knows how far the regions go together, which the
        intervals of the regions do not tell. A slot of which nothing was released has no row.
        """
        return await self._run(calls.totals(slots, self._settings.patience))

    async def budget(self) -> Budget:
        """Return the privacy budget: what is spent, what is left, and when some comes back."""
        return await self._run(calls.budget(self._settings.patience))

    async def network(self) -> Network:
        """Return the network as the node sees it: regions, neighbours, refused messages."""
        return await self._run(calls.network(self._settings.patience))

    async def proofs(self) -> list[Proof]:
        """Return the proofs that servers have signed two different records for one slot; needs the right `admin`."""
        return await self._run(calls.proofs(self._settings.patience))

    async def quality(self) -> Quality:
        """Return the running calibration: whether the intervals are as wide as they should be."""
        return await self._run(calls.quality(self._settings.patience))

    async def ready(self) -> Ready:
        """Return whether the node can do all of its work, and what is wrong if not."""
        return await self._run(calls.ready(self._settings.patience))

    async def metrics(self) -> str:
        """Return the metrics of the node in the text format of Prometheus."""
        return await self._run(calls.metrics(self._settings.patience))

    async def request(self, method: str, path: str, body: Any = None, *, accepts: Sequence[int] = (200,)) -> Any:
        """Send a request to any path of the API; see `Client.request`."""
        return await self._run(calls.request(method, path, body, accepts, self._settings.patience))

    async def _run(self, steps: Steps[T]) -> T:
        reply: Reply | Silence | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                reply = None
            else:
                reply = await self._ask(step)

    async def _ask(self, ask: Ask) -> Reply | Silence:
        try:
            return reply_of(
                await self._http.request(
                    ask.method, ask.path, params=list(ask.params), content=ask.content, headers=dict(ask.headers)
                )
            )
        except self._httpx.RequestError as error:
            silence = silence_of(error)
        return await self._explain(silence)

    async def _explain(self, silence: Silence) -> Silence:
        return await asyncio.to_thread(self._settings.explain, silence)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
