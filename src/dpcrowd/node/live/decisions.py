"""What only the operator can decide for a running node: that samples are lost, that the clock is right."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.live.build import book_loss
from dpcrowd.node.live.clock_return import accept, check_acceptable
from dpcrowd.node.live.presence import Presence
from dpcrowd.node.live.renewing import Renewing
from dpcrowd.node.machine import Machine
from dpcrowd.node.storage import StorageFailed
from dpcrowd.privacy import Noise

__all__ = ["Deciding"]

log = logging.getLogger("dpcrowd.node")


class Deciding(Renewing):
    """A node whose operator decides; each decision is carried out between two stimuli of the machine, and logged.

    _sealing  the slot that is sealed next
    _opened   the last slot that was opened for check-ins
    """

    presence: Presence
    _noise: Noise
    _make_machine: Callable[..., tuple[Machine, str]]
    _sealing: int
    _opened: int

    @abstractmethod
    def _wake(self) -> None:
        """Whoever waits for a slot looks again which one it is."""

    async def confirm_loss(self) -> str:
        """Book what the folder does not know of as fully spent, and go on with an account that has it."""
        trust = self.keeper.machine.trust
        if trust.lost_at is None and not trust.nobody_remembers:
            raise BadInput("no neighbour remembers more than this ledger: there is no loss to confirm.")

        def book() -> str:
            now, machine = self._wall.now(), self.keeper.machine
            told = book_loss(self._storage, self.revision, machine.trust, now)
            fresh, _ = self._make_machine(
                self.config, self.revision, self._storage, self._noise, machine.view, now, vouched=True
            )
            self.keeper.machine = fresh
            return told

        told = await self._between_stimuli(lambda: asyncio.to_thread(book))
        log.warning(told, extra={"event": "loss-confirmed"})
        return told

    async def accept_clock(self) -> str:
        """Let slots begin again that a clock which was ahead has sealed; see `clock_return`."""

        async def begin_again() -> str:
            machine, now = self.keeper.machine, self._wall.now()
            check_acceptable(machine.view, self.revision, self._last_sealed, now)
            self.keeper.begin_again()
            call = self.keeper.in_thread
            last, told = await call(accept, self._storage, self.revision, machine, self._last_sealed, now)
            self.intake.begin_again(last)
            self.refusals.clear()
            self._sealing, self._opened = last + 1, self.clock.slot_of(now)
            self._wake()
            with suppress(StorageFailed):  # what is left of slots to come is not counted: see `Journal.attend`
                await call(self._void_check_ins, now)
            return told

        told = await self._between_stimuli(begin_again)
        log.warning("the clock is accepted: %s", told, extra={"event": "clock-accepted"})
        return told

    def _void_check_ins(self, now_ns: int) -> None:
        """Of slots to come, which the clock that was ahead has opened; those that are open now were missed."""
        journal = self._storage.journal
        self.presence.distrust(now_ns)
        for opens_ns in journal.pending():
            if opens_ns > now_ns:
                journal.forget(opens_ns)

    async def _between_stimuli(self, work: Callable[[], Awaitable[str]]) -> str:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def carry_out() -> None:
            try:
                told = await work()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(told)

        self.keeper.give(carry_out)
        return str(await done)
