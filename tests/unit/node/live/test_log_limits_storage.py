"""Storage that does not work is told when it begins, once per minute, and when it is over."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.live.executor import Executor
from dpcrowd.node.live.log_limits import StorageLog
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy.network_guarantee import Slots
from dpcrowd.privacy.units import NANO
from node_support_lone import Lone
from node_support_storage import EPOCH, LENGTH, open_storage


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]


def test_one_line_per_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is full for a night would fill the log with one sentence, and push out what came before."""
    at = 100.0
    storage_log = StorageLog(lambda: at)
    for second in range(150):
        at = 100.0 + second
        storage_log.failed("executor", "no space.")
        storage_log.failed("ledger", "no space.")
    storage_log.works("ledger")
    assert len(caplog.records) == 3, "it does not work for the executor yet"
    storage_log.works("executor", "there is room.")
    storage_log.works("executor", "there is room.")
    assert told(caplog) == [
        ("storage-failed", "no space."),
        ("storage-failed", "no space. (120 times in the last 60 s)"),
        ("storage-failed", "no space. (120 times in the last 60 s)"),
        ("storage-mended", "there is room."),
    ]
    storage_log.failed("executor", "no space.")
    assert told(caplog)[-1] == ("storage-failed", "no space."), "what begins anew is told at once"


def test_executor_and_ledger_tell_one_failure_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both need the disk in every slot: the operator would read of each slot twice."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage, caplog.at_level(logging.WARNING):
        transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
        outside: Any = mock.Mock()  # deadlines are the test's own
        executor = Executor(Lone().machine, storage, transport, Broadcast(), outside)
        loader = AccountLoader(storage, Slots(EPOCH, LENGTH, 4), executor.storage_log)
        view = executor.machine.view

        async def slot(number: int) -> None:
            loader.load(number)
            await executor.handle(on.SlotSealed(view.seals(number), number, None))
            await executor.handle(on.DeadlinePassed(view.ends(number), number))

        def refuse(*_: object, **__: object) -> None:
            raise StorageError("full", "the disk is full", "free some space")

        async def run() -> None:
            with monkeypatch.context() as full:
                full.setattr(Storage, "check_files", refuse)
                full.setattr(Storage, "commit_release", refuse)
                for number in range(3):
                    await slot(number)
            await slot(3)

        asyncio.run(run())
        executor.close()
    events = [event for event, _ in told(caplog)]
    assert events == ["storage-failed", "storage-mended"]
    assert "the disk is full; free some space." in caplog.records[0].getMessage()
