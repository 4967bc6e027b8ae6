"""Count what happens to slots: samples, exchanges, releases, messages, storage and the clock.

The parts of a node report what they have done. Delays are measured from the moment at which messages are sent, which
everybody can compute from network.toml, and not from when this node had finished counting: a delay shows how late
something was, not how much there was to count.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.machine import NetworkView
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.metrics import families
from dpcrowd.node.metrics.registry import Registry
from dpcrowd.node.storage import StorageError
from dpcrowd.node.wire import MessageRefused, peek, peek_round, written_after

__all__ = ["COUNTED", "SlotMeter"]

_SECOND = 1_000_000_000
_TENTH = _SECOND // 10
_LAST = 10
"""Number of messages of a neighbour from whose delays its clock is estimated."""
_MOST_WAITING = 4
"""Number of slots for which the arrival of a neighbour's message is kept, until the exchange is over."""

COUNTED = (
    families.SAMPLES,
    families.SAMPLES_UNUSED,
    families.UNSAMPLED,
    families.MISSED,
    families.RELEASE_DELAY,
    families.EXCHANGES,
    families.MESSAGE_DELAY,
    families.RECORD_DELAY,
    families.CLOCK_JUMPS,
    families.STOOD_STILL,
    families.STORAGE_FAILURES,
)


class SlotMeter:
    """The counters of one node, for as long as its process runs; used from one event loop.

    now  returns nanoseconds since 1970
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self.registry = Registry(COUNTED)
        self._now = now
        self._arrivals: dict[str, dict[int, int]] = {}  # by neighbour and slot: when its first message arrived
        self._delays: dict[str, deque[int]] = {}

    # ------------------------------------------------------------------------------------------------- the slots

    def sealing(self, slot: int, last: int) -> None:
        """Count the slots that were missed: `slot` is about to be sealed; the one before was `last`, or -1."""
        if 0 <= last < slot - 1:
            self.registry.add(families.MISSED, slot - 1 - last)

    def carried_out(self, instruction: do.Instruction, view: NetworkView) -> None:
        """Count an instruction that was carried out; what it stored is on disk."""
        match instruction:
            case do.StoreSample():
                self.registry.add(families.SAMPLES)
            case do.Report("own-absurd"):
                self.registry.add(families.SAMPLES_UNUSED)
            case do.NotSampled(_, reason):
                self.registry.add(families.UNSAMPLED, reason=reason)
            case do.StoreRelease(release, _, senders):
                expected = {view.names[number] for number in view.links(release.slot)}
                outcome = "complete" if expected <= set(senders) else "incomplete"
                self.registry.add(families.EXCHANGES, outcome=outcome)
                for name in senders:
                    self._observe_delay(name, release.slot, view)
                self._forget(release.slot)
            case do.Publish(release):
                delay_ns = self._now() - view.sends(release.slot)
                self.registry.observe(families.RELEASE_DELAY, max(delay_ns, 0) / _SECOND)

    def failed(self, failure: DpcrowdError) -> None:
        """Count a failure to store: the disk failed; a ledger that refused to pay is not counted."""
        if isinstance(failure, StorageError):
            self.registry.add(families.STORAGE_FAILURES, kind=failure.kind)

    # --------------------------------------------------------------------------------------------- the neighbours

    def arrived(self, sender: str, payload: bytes, at_ns: int, view: NetworkView) -> None:
        """Note the arrival of a message. Its sender is known; its content is not checked, and it may be too late.

        Messages that arrive too late, or too early, are the sign of a wrong clock.
        """
        try:
            slot, _ = peek(payload)
        except MessageRefused:
            return
        if peek_round(payload) > 1:  # it passes records on, at no particular moment
            return
        if at_ns >= view.ends(slot) and written_after(
            payload
        ):  # repeated for a neighbour that has just connected: it is not late
            return
        waiting = self._arrivals.setdefault(sender, {})
        if slot not in waiting and len(waiting) < _MOST_WAITING:
            waiting[slot] = at_ns
            self._delays.setdefault(sender, deque(maxlen=_LAST)).append(at_ns - view.sends(slot))

    def records_arrived(self, slots: Iterable[int], at_ns: int, view: NetworkView) -> None:
        """Measure the delay of records that were accepted, by their slots; those of earlier slots are not measured."""
        for slot in slots:
            if at_ns < view.seals(slot + 1):
                self.registry.observe(families.RECORD_DELAY, max(at_ns - view.sends(slot), 0) / _SECOND)

    def _observe_delay(self, name: str, slot: int, view: NetworkView) -> None:
        at_ns = self._arrivals.get(name, {}).get(slot)
        if at_ns is not None:
            delay_ns = at_ns - view.sends(slot)
            self.registry.observe(families.MESSAGE_DELAY, max(delay_ns, 0) / _SECOND, neighbour=name)

    def _forget(self, slot: int) -> None:
        """Forget arrivals of exchanges that are over, and of slots far ahead, which no honest neighbour sends."""
        for waiting in self._arrivals.values():
            for other in [other for other in waiting if not slot < other <= slot + _MOST_WAITING]:
                del waiting[other]

    def clock_offsets(self) -> Mapping[str, float]:
        """Return, by neighbour, the smallest delay of its last messages in seconds, rounded up to tenths.

        A message is sent at a public moment by its sender's clock, and takes some time. So this clock is ahead of the
        sender's by at most the smallest delay, and by about that much if messages are fast.
        """
        return {name: math.ceil(min(delays) / _TENTH) / 10 for name, delays in self._delays.items()}

    # --------------------------------------------------------------------------------------------------- the clock

    def looked_at_clock(self, moved_ns: int, still_ns: int) -> None:
        """Count a clock that was set by `moved_ns`, and a process that stood still for `still_ns`; 0 for neither."""
        if moved_ns:
            self.registry.add(families.CLOCK_JUMPS, direction="ahead" if moved_ns > 0 else "back")
        if still_ns:
            self.registry.add(families.STOOD_STILL)
