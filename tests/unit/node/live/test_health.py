"""Whether a node's parts work, and what systemd is told of it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from dpcrowd.node.live import health
from dpcrowd.node.live.health import HealthMonitor, api_check, watchdog_seconds


async def works() -> None:
    pass


async def fails() -> None:
    raise OSError("no file is left")


async def hangs() -> None:
    await asyncio.Event().wait()


def make(
    checks: dict[str, Callable[[], Awaitable[None]]], used: float = 0.1, now: Callable[[], float] = lambda: 0.0
) -> tuple[HealthMonitor, list[str], list[str]]:
    told: list[str] = []
    reopened: list[str] = []
    made = HealthMonitor(checks, lambda: reopened.append("again"), told.append, used=lambda: used, clock=now)
    return made, told, reopened


@pytest.mark.parametrize("check", [fails, hangs])
def test_a_part_that_does_not_work_is_named(
    check: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A watchdog that is fed by a timer alone would keep a node running that does nothing any more."""
    monkeypatch.setattr(health, "_PATIENCE", 0.05)
    with caplog.at_level(logging.ERROR, logger="dpcrowd"):
        assert asyncio.run(make({"executor": works, "API": works})[0].alive())
        assert not caplog.records
        assert not asyncio.run(make({"executor": works, "API": check})[0].alive())
    (record,) = caplog.records
    assert (record.__dict__["event"], record.__dict__["part"]) == ("not-alive", "API")


def test_systemd_is_told_only_while_all_parts_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It restarts a node that keeps silent, and must not restart one that works."""
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setattr(health, "_PATIENCE", 0.05)
    broken = False

    async def sometimes() -> None:
        if broken:
            raise RuntimeError

    async def run() -> None:
        nonlocal broken
        made, told, _ = make({"executor": sometimes})
        running = asyncio.create_task(made.run())
        while len(told) < 3:
            await asyncio.sleep(0.01)
        assert set(told) == {"WATCHDOG=1"}
        broken = True
        await asyncio.sleep(0.05)
        silent = len(told)
        await asyncio.sleep(0.1)
        assert len(told) == silent
        broken = False
        while len(told) == silent:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_nobody_is_told_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of systemd, and in a child of a service, there is no watchdog."""
    assert watchdog_seconds({}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "0"}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "nonsense"}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "2000000"}) == 2.0
    assert watchdog_seconds({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}) == 2.0
    assert watchdog_seconds({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}) is None


def test_files_that_stay_in_use_lead_to_new_links_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    """Should Zenoh, or anything else, leak files, the node gets them back before it has none."""
    now, used = 0.0, 0.95
    reopened: list[float] = []
    made = HealthMonitor({}, lambda: reopened.append(now), lambda _: None, used=lambda: used, clock=lambda: now)
    made.look_at_descriptors()
    assert reopened == [], "a short peak is no leak"
    for now in (10.0, 20.0, 290.0, 309.0):  # noqa: B007
        made.look_at_descriptors()
    assert reopened == [10.0]
    for now in (310.0, 311.0):  # noqa: B007
        made.look_at_descriptors()
    assert reopened == [10.0, 310.0]
    used = 0.5
    for now in (1000.0, 2000.0):  # noqa: B007
        made.look_at_descriptors()
    assert len(reopened) == 2
    assert {record.__dict__["event"] for record in caplog.records} == {"descriptors"}


def test_an_api_that_does_not_answer_is_not_alive() -> None:
    """That somebody listens is not enough: the kernel accepts connections for a process that does nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await asyncio.wait_for(api_check("0.0.0.0", port, https=False)(), 20)
        server.close()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await api_check("127.0.0.1", port, https=False)()
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(api_check(*silent.getsockname(), https=False)(), 0.2)

    asyncio.run(run())
