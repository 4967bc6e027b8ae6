"""Writing to the journal: requests that arrive while the disk is busy share the next commit.

The disk's flush is what costs, not the bytes. A slot that was forgotten meanwhile is passed over and told; it touches
no request of another slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from dpcrowd.node.collect import NotTaken, names_record
from dpcrowd.node.storage import StorageFailed
from dpcrowd.node.storage.journal import Journal

__all__ = ["Writer"]

_MOST_WAITING = 10_000
_SECONDS_TO_CLOSE = 10.0

Part = tuple[int, bytes]
"""A slot and a blob."""


class Writer:
    """Used from one event loop.

    opens  when a slot opens
    names  of the regions by their number; grows when a revision is learnt
    """

    def __init__(self, journal: Journal, opens: Callable[[int], int], names: Sequence[str]) -> None:
        self._journal, self._opens, self._names = journal, opens, names
        self._named: dict[int, int] = {}  # how many names the journal has of a slot
        self._waiting: list[tuple[Sequence[Part], asyncio.Future[set[int]]]] = []
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Refuse before anything is counted if the disk is too far behind: a limit on requests, not on people."""
        if len(self._waiting) >= _MOST_WAITING:
            raise NotTaken("unavailable", "the disk is behind; try again in a moment.")

    async def flush(self) -> None:
        """Wait until everything that was to be written by now is on disk, or could not be written."""
        with suppress(NotTaken):
            await self.write([])

    def write(self, parts: Sequence[Part]) -> asyncio.Future[set[int]]:
        """Done when everything is on disk, in one commit; gives the slots that were forgotten before it was."""
        done: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((parts, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        return done

    def forget(self, slot: int) -> None:
        """A slot is sealed, with all before it."""
        self._named = {later: number for later, number in self._named.items() if later > slot}

    def forget_all(self) -> None:
        """Slots are opened anew."""
        self._named.clear()

    async def close(self) -> None:
        """Wait for what is being written, but not for ever."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_SECONDS_TO_CLOSE)

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            parts = [part for asked, _ in group for part in asked]
            try:
                gone = await self._write_group(parts)
            except Exception as error:
                for _, done in group:
                    if not done.done():
                        done.set_exception(error)
            else:
                for asked, done in group:
                    if not done.done():
                        done.set_result({slot for slot, _ in asked if slot in gone})

    async def _write_group(self, parts: Sequence[Part]) -> set[int]:
        size = len(self._names)
        unnamed = {slot for slot, _ in parts if self._named.get(slot, 0) < size}
        named = [(slot, names_record(self._names[:size])) for slot in sorted(unnamed)]
        batches = [(self._opens(slot), blob) for slot, blob in (*named, *parts)]
        try:
            forgotten = await asyncio.to_thread(self._journal.append_all, batches)
        except StorageFailed as failure:
            raise NotTaken("unavailable", f"check-ins cannot be kept now: {failure}") from None
        gone = {slot for slot, _ in parts if self._opens(slot) in forgotten}
        self._named |= dict.fromkeys(unnamed - gone, size)
        return gone
