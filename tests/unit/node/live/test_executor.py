"""Carrying instructions out: refusals are counted exactly and told once, storage has a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.api.rows import to_json
from dpcrowd.node.live.executor import Executor
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from node_support import body_of
from node_support_lone import COUNTS, Lone, beat
from node_support_storage import open_storage


class Nothing:
    """What is outside of an executor: here, nothing; deadlines are the test's own."""

    counting = SimpleNamespace(note_sampled=lambda: None, note_unsampled=lambda why: None)

    def schedule(self, slot: int, at_ns: int) -> None:
        """Nobody is told."""


def executor_of(storage: Storage) -> Executor:
    transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
    return Executor(Lone().machine, storage, transport, Broadcast(), Nothing())  # type: ignore[arg-type]


def linked(node: Lone) -> Lone:
    """The same, with links to both neighbours, which can be reached."""
    node.machine.handle(on.LinksOpened(0, ("server-1", "server-2")))
    for name in ("server-1", "server-2"):
        node.machine.handle(on.NeighbourUp(0, name))
    return node


def test_a_first_start_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every new network began with a warning at each server, of a loss that nobody had."""
    with open_storage(tmp_path) as storage, caplog.at_level(logging.INFO):
        executor = executor_of(storage)
        for event in ("join-first", "join-none"):
            asyncio.run(executor._carry_out(do.Report(event, "a text."), 0))
        executor.close()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_a_flood_of_refusals_is_counted_exactly_and_logged_once_a_slot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A neighbour that sends nonsense all day would fill the disk with the log of it."""
    with open_storage(tmp_path) as storage, caplog.at_level(logging.WARNING):
        executor = executor_of(storage)

        async def run() -> None:
            for slot in (3, 4):
                for _ in range(500):
                    await executor._carry_out(do.RefuseMessage(slot, "server-1", "malformed", "nonsense"), 0)
                await executor._carry_out(do.RefuseMessage(slot, "server-2", "malformed", "nonsense"), 0)
            executor.machine.server.observe(0, None)
            view, fused = executor.machine.view, executor.machine.server.hear()
            release = SlotRelease.of(fused, view.clock, view.regions, 0)
            await executor._carry_out(do.StoreRelease(release, b"state", ()), 0)

        asyncio.run(run())
        executor.close()
        assert executor.refused == {("server-1", "malformed"): 1000, ("server-2", "malformed"): 2}
        assert [(one.reason, one.count) for one in storage.refusals.since(0)] == [("malformed", 501)] * 2
        assert not executor._refusals
    assert len(caplog.records) == 4


class Line:
    """A transport that looks at the disk at the moment in which a message leaves."""

    most_bytes = 1 << 20

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.sent: list[tuple[bytes, dict[str, tuple[int, int, bytes, int]]]] = []

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        self.sent.append((payload, self._storage.memory.remembered()))


def test_what_a_message_echoes_is_on_disk_when_it_leaves(tmp_path: Path) -> None:
    """Otherwise a node that crashes forgets what it has echoed, and vouches later for a copy that knows less.

    The first message came after the release of its slot, the second one before the seal of the next.
    """
    with open_storage(tmp_path) as storage:
        executor, line, node = executor_of(storage), Line(storage), linked(Lone((1, 2)))
        executor.machine, executor._transport = node.machine, line  # type: ignore[assignment]
        seals = node.view.seals

        async def run() -> None:
            await executor.handle(on.SlotSealed(seals(0), 0, None))
            await executor.handle(on.DeadlinePassed(node.view.ends(0), 0))
            await executor.handle(on.MessageArrived(seals(1) - 9, "server-1", beat(1, 0, counter=7)))
            await executor.handle(on.MessageArrived(seals(1) - 5, "server-2", beat(2, 1, counter=5)))
            await executor.handle(on.SlotSealed(seals(1), 1, None))

        asyncio.run(run())
        executor.close()
        payload, on_disk = line.sent[-1]
        assert body_of(payload).heard == {1: (1, 7), 2: (0, 5)}
        assert {name: said[:2] for name, said in on_disk.items()} == {"server-1": (0, 7), "server-2": (1, 5)}


def test_what_the_ledger_refuses_to_pay_does_not_leave(tmp_path: Path) -> None:
    """A sample that is sent without its payment costs users what no ledger knows of."""
    with open_storage(tmp_path) as storage:
        executor, line, node = executor_of(storage), Line(storage), linked(Lone((1, 2)))
        executor.machine, executor._transport = node.machine, line  # type: ignore[assignment]
        storage.ledger.book_loss(0, node.view.clock.closes(0), 1, "for the test", at_ns=0)
        asyncio.run(executor.handle(on.SlotSealed(node.view.seals(0), 0, COUNTS)))
        executor.close()
        assert [body_of(payload).records for payload, _ in line.sent] == [()], "a heartbeat, once"


def test_the_last_slot_of_a_complete_ledger_is_stored_with_the_release(tmp_path: Path) -> None:
    """After the next start neighbours have to remember that far; an older slot would let too few of them vouch."""
    with open_storage(tmp_path) as storage:
        executor, node = executor_of(storage), Lone(())
        executor.machine = node.machine
        asyncio.run(executor.handle(on.SlotSealed(node.view.seals(4), 4, None)))
        executor.close()
        assert storage.memory.complete_until() == 4


class Hands(WallClock):
    """A clock that the test sets; whoever sleeps is woken when it is set."""

    def __init__(self) -> None:
        self.at_ns = 0
        self._set = asyncio.Event()

    def now(self) -> int:
        return self.at_ns

    def set(self, at_ns: int) -> None:
        self.at_ns = at_ns
        before, self._set = self._set, asyncio.Event()
        before.set()

    async def sleep_until(self, at_ns: int) -> None:
        while self.at_ns < at_ns:
            await self._set.wait()


class Desk:
    """A executor that runs, by a clock of the test's own, with two neighbours that hear everything."""

    def __init__(self, storage: Storage) -> None:
        self.clock, self.line = Hands(), Line(storage)
        self.node = linked(Lone((1, 2), send_offset_ns=25_000_000))
        self.view = self.node.view
        transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
        outside: Any = Nothing()
        self.executor = Executor(self.node.machine, storage, transport, Broadcast(), outside, clock=self.clock)
        self.executor._transport = self.line  # type: ignore[assignment]

    async def __aenter__(self) -> Desk:
        self.task = asyncio.create_task(self.executor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.executor.close()

    async def give(self, stimulus: on.Stimulus) -> None:
        self.executor.give(stimulus)
        await self.rest()

    async def rest(self) -> None:
        """Until nothing is left to do but to wait for the clock."""
        for _ in range(5):
            await asyncio.sleep(0)
            await self.executor.idle.wait()

    async def set(self, at_ns: int) -> None:
        self.clock.set(at_ns)
        await self.rest()


def test_a_message_leaves_at_its_moment_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """Earlier, it would tell that storing was quick; if the queue stood still, neighbours would not be heard."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                sends = desk.view.sends(0)
                await desk.set(desk.view.seals(0) + 1)
                await desk.give(on.SlotSealed(desk.clock.now(), 0, None))
                await desk.give(on.MessageArrived(desk.clock.now(), "server-1", beat(1, 0, counter=7)))
                await desk.set(sends - 1)
                assert desk.line.sent == []
                assert desk.executor.machine.used, "the neighbour was heard meanwhile"
                await desk.set(sends)
                assert len(desk.line.sent) == 1
                await desk.give(on.MessageArrived(sends + 1, "server-2", beat(2, 0)))
                assert desk.executor.last is not None
                assert (desk.executor.sent, desk.executor.late) == (2, 0)

    asyncio.run(run())


def test_what_does_not_leave_is_not_counted(tmp_path: Path) -> None:
    """A neighbour that was killed gets no message: an operator who compares both sides must find the same numbers."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                await desk.give(on.NeighbourDown(0, "server-2"))
                await desk.set(desk.view.sends(0))
                await desk.give(on.SlotSealed(desk.view.seals(0), 0, None))
                ((payload, _),) = desk.line.sent
                assert (desk.executor.sent, desk.executor.sent_by_kind["heartbeat"]) == (1, 1)
                assert desk.executor.sent_bytes == len(payload)

    asyncio.run(run())


def test_what_was_published_is_what_is_stored(tmp_path: Path) -> None:
    """Readers of the stream and readers of the past would otherwise be told two different releases of one slot."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                for slot in range(3):
                    await desk.set(desk.view.sends(slot))
                    await desk.give(on.SlotSealed(desk.clock.now(), slot, np.array([40, 60]) if slot else None))
                    await desk.give(on.MessageArrived(desk.clock.now(), "server-1", beat(1, slot)))
                    await desk.set(desk.view.ends(slot))
                    await desk.give(on.DeadlinePassed(desk.clock.now(), slot))
                    published, stored = desk.executor.last, storage.releases.latest()
                    assert published is not None
                    assert stored is not None
                    assert to_json([published]) == to_json([stored])
                    first, second = ({**vars(one), "estimate": 0, "variance": 0} for one in (published, stored))
                    assert first == second
                    assert (stored.slot, stored.regions, stored.heard) == (slot, ("region-0", "region-1"), 1)
                    assert stored.opens_ns == desk.view.clock.opens(slot)
                    assert stored.sampled == (stored.nano > 0) == (slot > 0)

    asyncio.run(run())


@pytest.mark.parametrize(("storing_ns", "late"), [(24_999_999, 0), (25_000_001, 2), (700_000_000, 2)])
def test_a_message_that_is_not_ready_in_time_leaves_at_once_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, storing_ns: int, late: int
) -> None:
    """Only so can an operator see that the offset is too short. By how much would tell how many people there were."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                desk.executor.may_be_late = False
                await desk.set(desk.view.seals(0) + storing_ns)
                await desk.give(on.SlotSealed(desk.view.seals(0), 0, None))
                await desk.set(max(desk.clock.now(), desk.view.sends(0)))
                assert len(desk.line.sent) == 1
                assert (desk.executor.sent, desk.executor.late) == (2, late)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "sent-late"]
    expected = "the message of slot 0 left late; if that happens often, send_offset is too short for this machine."
    assert told == [expected] * (late > 0)


def test_the_first_message_after_a_start_may_be_late_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart, a standstill or a clock that was set makes one message late; a longer send_offset would not help."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                for slot in range(4):
                    desk.executor.may_be_late |= slot == 2  # as after a standstill
                    await desk.set(desk.view.sends(slot) + 700_000_000)
                    await desk.give(on.SlotSealed(desk.view.seals(slot), slot, None))
                    await desk.give(on.DeadlinePassed(desk.clock.now(), slot))
                assert desk.executor.late == 8, "they are counted all the same"

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "sent-late"]
    assert [text.split(" left late")[0] for text in told] == ["the message of slot 1", "the message of slot 3"]


def test_a_moment_that_the_loop_has_missed_is_late_too(tmp_path: Path) -> None:
    """The message was ready; a process that is kept from running sends it late all the same."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                await desk.set(desk.view.seals(0))
                await desk.give(on.SlotSealed(desk.clock.now(), 0, None))
                await desk.set(desk.view.sends(0) + 5_000_001)
                assert desk.executor.late == 2

    asyncio.run(run())


def test_readers_have_the_release_before_check_ins_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgetting many takes long, and competes with whoever writes to readers: they would see how many there were."""
    order: list[str] = []

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            broadcast, reader = Broadcast(), asyncio.Event()
            executor, node = executor_of(storage), Lone(())
            executor.machine, executor._broadcast = node.machine, broadcast

            async def read() -> None:
                async with broadcast.subscribe() as live:
                    reader.set()
                    # As the API reads: through a task of its own for every release.
                    await asyncio.wait({asyncio.ensure_future(anext(aiter(live)))})  # type: ignore[arg-type]
                    order.append("read")

            in_thread = executor.in_thread

            async def watched(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
                if call == storage.journal.forget_before:
                    order.append("forgotten")
                return await in_thread(call, *given, **named)

            monkeypatch.setattr(executor, "in_thread", watched)
            task = asyncio.create_task(read())
            await reader.wait()
            await asyncio.sleep(0)
            await executor.handle(on.SlotSealed(node.view.seals(4), 4, None))
            await task
            executor.close()

    asyncio.run(run())
    assert order == ["read", "forgotten"]


def test_a_link_that_breaks_while_a_message_waits_ends_the_node_as_before(tmp_path: Path) -> None:
    """What nobody has foreseen must not disappear in a task that nobody looks at."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:

                async def break_down(payload: bytes, to: Sequence[str]) -> None:
                    raise OSError("no such device")

                desk.line.send = break_down  # type: ignore[method-assign]
                await desk.set(desk.view.seals(0))
                await desk.give(on.SlotSealed(desk.clock.now(), 0, None))
                desk.clock.set(desk.view.sends(0))
                with pytest.raises(OSError, match="no such device"):
                    await desk.task

    asyncio.run(run())


def test_a_stop_before_the_moment_sends_nothing(tmp_path: Path) -> None:
    """The transport is closed by then; the next start sends what is stored."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            async with Desk(storage) as desk:
                await desk.set(desk.view.seals(0))
                await desk.give(on.SlotSealed(desk.clock.now(), 0, None))
            desk.clock.set(desk.view.sends(0))
            for _ in range(5):
                await asyncio.sleep(0)
            assert desk.line.sent == []
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_storage_does_not_wait_for_those_who_read(tmp_path: Path) -> None:
    """With the threads that everybody shares, a few dozen slow readers would delay every slot."""
    with open_storage(tmp_path) as storage:
        executor = executor_of(storage)

        async def run() -> str:
            held = threading.Event()
            busy = [asyncio.create_task(asyncio.to_thread(held.wait, 30)) for _ in range(64)]
            await asyncio.sleep(0.05)
            try:
                return await asyncio.wait_for(executor.in_thread(lambda: threading.current_thread().name), 20)
            finally:
                held.set()
                await asyncio.gather(*busy)

        assert asyncio.run(run()).startswith("dpcrowd-executor")
        executor.close()


def test_an_executor_that_does_not_come_to_its_queue_is_not_alive(tmp_path: Path) -> None:
    """The state machine may be stuck while the event loop runs."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            executor = executor_of(storage)
            executor.give(on.StoodStill(0))
            checking = asyncio.create_task(executor.check_alive())
            await asyncio.sleep(0.2)
            assert not checking.done()
            working = asyncio.create_task(executor.run())
            await asyncio.wait_for(checking, 20)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            executor.close()

    asyncio.run(run())


def test_whoever_asks_is_answered_refused_or_told_that_nobody_answers_any_more(tmp_path: Path) -> None:
    """An operator's request would hang, or a decision that is refused would end the node."""

    async def run() -> None:
        with open_storage(tmp_path) as storage:
            executor = executor_of(storage)
            working = asyncio.create_task(executor.run())
            with pytest.raises(BadInput, match="no loss to confirm"):
                await asyncio.wait_for(executor.ask(on.LossConfirmed(0)), 20)
            assert await asyncio.wait_for(executor.ask(on.RevisionExpected(0, 2, 9)), 20) == ""
            assert executor.machine.following == (2, 9)
            executor.give(on.StoodStill(0))
            asked = asyncio.create_task(executor.ask(on.LossConfirmed(0)))
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asked, 20)
            executor.close()

    asyncio.run(run())
