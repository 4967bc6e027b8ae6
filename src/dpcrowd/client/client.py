"""`Client`: access to a node from Python.

    client = dpcrowd.Client("http://127.0.0.1:8080", token="...")
    delivery = client.checkin(["ann", "bob"], ["north", "south"])
    for row, reason in delivery.refused: ...
    client.latest().to_polars()

Temporary failures (no connection, too many requests, a full disk) are retried a few times, with at most `patience`
seconds of waiting. Every request may be sent twice without harm, since a node counts the distinct users of a slot: a
user whose request was taken, but whose answer was lost, counts once. A check-in without a time counts when it arrives,
though, so a retry may fall into the next slot: give times where that matters.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from dpcrowd.client import calls
from dpcrowd.client.deliver import send_checkins
from dpcrowd.client.delivery import Delivery
from dpcrowd.client.rows import Encoding
from dpcrowd.client.steps import Ask, Reply, Silence, Steps, Wait, send_counts, send_nothing, silence_of
from dpcrowd.client.stream import IDLE_SECONDS, Watch
from dpcrowd.client.tables import Estimates
from dpcrowd.client.views import Budget, Network, Proof, Quality, Ready

__all__ = ["Client", "reply_of"]

T = TypeVar("T")


class Client:
    """A client of one node. Several threads may use it; close it, or use it in a with block.

    url       address of the node's HTTP API
    token     token with the right that the calls need: check-in, or read
    timeout   seconds for connecting, and for each part of an answer
    retries   number of retries after a temporary failure
    patience  seconds of waiting between all retries of one request
    ca        PEM file with the certificate of the authority, if the node has HTTPS with an authority of its own; or an
              `ssl.SSLContext`
    proxy     address of a proxy; proxies of the environment are not used
    """

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
        self._http = self._httpx.Client(**self._settings.options)

    def __repr__(self) -> str:
        return f"Client('{self._settings.url}')"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ------------------------------------------------------------------------------------------------- sending

    def checkin(
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
        """Send check-ins. When this returns, every row that the node takes is on its disk; the others are named.

        users    a column; or, without the other two arguments, rows `{"user", "region", "time"?}`, lines of NDJSON, or
        a table
                 with these columns: a DataFrame of pandas or polars, a Table of pyarrow, a dict of columns
        regions  a column, or one region for all rows
        times    a column, or one time for all rows: datetimes with a time zone, RFC 3339, or milliseconds since 1970
                 (not seconds)
        batch    rows per request; a node names at most the first 1,000 refused rows of each
        strict   raise `RowsRefused` at the end if any row was refused; its `delivery` says which
        compress compress requests with gzip, for slow connections; a node of 0.1.0 does not accept this

        The `Delivery` is also an integer: the number of rows that were taken. Its `refused` are the other rows, with
        their numbers in the argument (from 0) and a reason each; `refused_count` is their number. If no row is taken,
        `NotTaken` or `RequestRefused` is raised, with `rows` and `delivery`, or `BadInput` if there was nothing to
        send. Any other error ends the delivery: its `delivery` says what became of the rows before `taken`. Without
        users, an empty list is sent: see `idle`.
        """
        patience = self._settings.patience
        return self._run(
            send_checkins(users, regions, times, batch, encoding, patience, strict=strict, compress=compress)
        )

    def idle(self) -> float:
        """Report that nobody has checked in; return the seconds until the next slot opens.

        Called once per slot, it lets the node distinguish an empty slot from a feed that has stopped.
        """
        return self._run(send_nothing(self._settings.patience))

    def counts(self, slot: int, counts: Mapping[str, int]) -> None:
        """Send the distinct users of a slot by region, counted elsewhere; a second call replaces the first."""
        self._run(send_counts(slot, counts, self._settings.patience))

    # ------------------------------------------------------------------------------------------------- reading

    def latest(self, regions: str | Iterable[str] = ()) -> Estimates:
        """Return the latest release; an empty table before the first one."""
        return self._run(calls.latest(regions, self._settings.patience))

    def estimates(
        self,
        first: int | datetime | None = None,
        last: int | datetime | None = None,
        regions: str | Iterable[str] = (),
        *,
        smoothed: bool = False,
        measurements: bool = False,
    ) -> Estimates:
        """Return the releases from the first to the last slot, both included; a time means the slot open then.

        smoothed  return the same slots as they are estimated with the records that came later: more accurate, and only
                  slots that were smoothed. A network whose scheme keeps no records refuses (`RequestRefused`, reason
                  "no-records")
        measurements  with `smoothed`: add what the records of each slot say by themselves, as `dpcrowd fit --releases`
                  needs them, in the columns `measurement` and `measurement_variance`
        """
        patience = self._settings.patience
        return self._run(calls.estimates(first, last, regions, patience, smoothed=smoothed, measurements=measurements))

    def stream(
        self,
        regions: str | Iterable[str] = (),
        *,
        after: int | None = None,
        seconds: float | None = None,
        patience: float | None = 60.0,
    ) -> Iterator[Estimates]:
        """Yield the latest release, then each new one; a broken connection is opened again without missing a release.

        after     begin after this slot instead of with the latest release
        seconds   how long to listen; None: for ever
        patience  seconds without an answer of the node before `NodeUnreachable`; None: for ever
        """
        watch = Watch(after, seconds, patience, time.monotonic)
        params = calls.region_params(regions)
        while not watch.over():
            failure: Reply | Silence = Silence("the stream ended")
            try:
                timeout = self._httpx.Timeout(self._timeout, read=IDLE_SECONDS)
                options = {"params": params, "headers": watch.events.headers, "timeout": timeout}
                with self._http.stream("GET", "/v1/stream", **options) as response:
                    if response.status_code == 200:
                        watch.connected()
                        with _end_after(response, watch.remaining):
                            for chunk in response.iter_bytes():
                                yield from watch.receive(chunk)
                                if watch.over():
                                    return
                    else:
                        response.read()
                        failure = reply_of(response)
            except self._httpx.TransportError as error:
                failure = self._explain(silence_of(error))
            if not watch.over():
                time.sleep(watch.wait(failure))

    def totals(self, slots: int = 1) -> Estimates:
        """Return the complete population of the latest slots: one row per slot, the sum over all regions.

        The 95% interval is the node's own: with a process model it knows how far the regions go together, which the
        intervals of the regions do not tell. A slot of which nothing was released has no row.
        """
        return self._run(calls.totals(slots, self._settings.patience))

    def budget(self) -> Budget:
        """Return the privacy budget: what is spent, what is left, and when some comes back."""
        return self._run(calls.budget(self._settings.patience))

    def network(self) -> Network:
        """Return the network as the node sees it: regions, neighbours, refused messages."""
        return self._run(calls.network(self._settings.patience))

    def proofs(self) -> list[Proof]:
        """Return the proofs that servers have signed two different records for one slot; needs the right `admin`."""
        return self._run(calls.proofs(self._settings.patience))

    def quality(self) -> Quality:
        """Return the running calibration: whether the intervals are as wide as they should be."""
        return self._run(calls.quality(self._settings.patience))

    def ready(self) -> Ready:
        """Return whether the node can do all of its work, and what is wrong if not."""
        return self._run(calls.ready(self._settings.patience))

    def metrics(self) -> str:
        """Return the metrics of the node in the text format of Prometheus."""
        return self._run(calls.metrics(self._settings.patience))

    def request(self, method: str, path: str, body: Any = None, *, accepts: Sequence[int] = (200,)) -> Any:
        """Send a request to any path of the API, such as those of operators; return the JSON answer as plain values.

        body     sent as JSON, unless None
        accepts  statuses that count as success; any other raises a `NodeError`
        """
        return self._run(calls.request(method, path, body, accepts, self._settings.patience))

    # ---------------------------------------------------------------------------------------------------- I/O

    def _run(self, steps: Steps[T]) -> T:
        reply: Reply | Silence | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                reply = None
            else:
                reply = self._ask(step)

    def _ask(self, ask: Ask) -> Reply | Silence:
        try:
            return reply_of(
                self._http.request(
                    ask.method, ask.path, params=list(ask.params), content=ask.content, headers=dict(ask.headers)
                )
            )
        except self._httpx.RequestError as error:
            silence = silence_of(error)
        return self._explain(silence)

    def _explain(self, silence: Silence) -> Silence:
        return self._settings.explain(silence)


def reply_of(response: Any) -> Reply:
    """Return what the steps need of an HTTP response."""
    following = response.links.get("next", {}).get("url")
    return Reply(response.status_code, response.content, response.headers.get("retry-after"), following)


@contextmanager
def _end_after(response: Any, seconds: float | None) -> Iterator[None]:
    """End a response after this many seconds, although a blocking read cannot be interrupted."""
    connection = response.extensions["network_stream"].get_extra_info("socket") if seconds is not None else None
    if connection is None:
        yield
        return

    def shut_down() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(seconds or 0.0, 0.0), shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
