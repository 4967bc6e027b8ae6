"""What a slot may cost: by the durable ledger, after every jump of the clock has been booked there.

The scheme keeps an account of its own, by slot numbers. The durable ledger knows more: payments of other networks over
the same users and their promises, confirmed losses, clocks that were set ahead. So it is asked before every slot, and
the scheme spends no more than it allows; that it would also refuse is the last fence, not the plan.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from dpcrowd.errors import BadInput
from dpcrowd.node.live.horizon import by_revision
from dpcrowd.node.live.spending import Spending, spending
from dpcrowd.node.live.steps import ClockSteps
from dpcrowd.node.live.storage_log import StorageLog
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Promise, Room, Storage, StorageFailed
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import format_epsilon

__all__ = ["Purse", "horizon", "own_promise", "shortage"]

log = logging.getLogger("dpcrowd.node")


class Purse:
    """Of one network's ledger; `room` writes and reads files.

    storage_log  of the node, see `StorageLog`
    """

    def __init__(
        self,
        storage: Storage,
        guarantee: Guarantee,
        clock: SlotClock,
        network: str,
        storage_log: StorageLog | None = None,
    ) -> None:
        self._storage, self._guarantee, self._clock, self._network = storage, guarantee, clock, network
        self._steps = ClockSteps(storage, network)
        self._storage_log = storage_log or StorageLog()
        self._told = ""

    def clock_set(self, at_ns: int, moved_ns: int) -> None:
        """The clock said `at_ns` and was set by `moved_ns`: nothing is paid before the ledger knows."""
        self._steps.add(at_ns, moved_ns)

    @property
    def short(self) -> bool:
        """Whether the budget allowed no sample when it was asked last."""
        return bool(self._told)

    def book(self) -> None:
        """Tell the ledger at once; what cannot be written now is written before anything is paid."""
        with suppress(StorageFailed):
            self._steps.book()

    def room(self, slot: int) -> int:
        """Nano-epsilon that the slot may cost; 0 as well if the ledger cannot be asked."""
        try:
            self._storage.check_files()
            self._steps.book()
            self._steps.slot_sealed()
            if self._storage.ledger.taken(self._clock.opens(slot), self._clock.closes(slot)):
                text = "slot %d is not sampled: it was before, by a clock that was ahead, or is declared lost."
                log.info(text, slot, extra={"event": "not-sampled", "slot": slot})
                return 0
            room = self._storage.ledger.room(self._clock.opens(slot))
            first = horizon(self._storage, self._clock, self._network)
        except (StorageFailed, BadInput) as failure:
            self._storage_log.failed("ledger", f"the ledger cannot be asked, so nothing is sampled: {failure}")
            return 0
        self._storage_log.works("ledger")
        self._tell(room, slot, first)
        return room.nano

    def _tell(self, room: Room, slot: int, first: int) -> None:
        """Once when sampling ends for want of budget, or for another reason than before; once when it can go on."""
        short = _is_short(self._guarantee, room, slot, first)
        whose = room.promise.network if short else ""
        before, self._told = self._told, "over" if _is_over(self._guarantee, slot, first) else whose
        if self._told == before:
            return
        if short:  # a horizon may have many payments: they are read only where something is to be told
            cost = spending(self._storage, room.promise, self._clock, slot)
            text = shortage(self._guarantee, room, cost, slot, first, self._network)
            log.warning("no sample for now: %s", text, extra={"event": "budget-spent"})
        else:
            log.info("there is budget again; the node samples.", extra={"event": "budget-back"})


def horizon(storage: Storage, clock: SlotClock, network: str) -> int:
    """The first slot of the present finite horizon; 0 for windows."""
    own = own_promise(storage, network)
    return 0 if own is None or own.span_ns is not None else max(clock.slot_of(own.since_ns), 0)


def own_promise(storage: Storage, network: str) -> Promise | None:
    """What a network has declared on the ledger."""
    return next((promise for promise in storage.ledger.promises.all() if promise.network == network), None)


def shortage(guarantee: Guarantee, room: Room, cost: Spending, slot: int, first: int, network: str) -> str:
    """Why nothing can be sampled in a slot for want of budget; empty if something can.

    cost  of the promise that binds, the one of `room`
    """
    if not _is_short(guarantee, room, slot, first):
        return ""
    if _is_over(guarantee, slot, first):
        how = by_revision(network) if guarantee.users == "roaming" else "dpcrowd node new-horizon"
        return (
            f"the horizon of {guarantee.length} slots ended with slot {first + guarantee.length - 1}; a new one is a "
            f"new promise: {how}."
        )
    if guarantee.kind == "finite" and slot < first:
        return f"slot {slot} is of a horizon that has ended; the present one begins with slot {first}."
    spent, promised = format_epsilon(cost.spent), format_epsilon(room.promise.nano)
    whose = f" for users {room.promise.bounds}" if room.weighted else ""
    more = cost.spent > room.promise.nano
    if room.promise.network != network:
        how_much = f"but ε={spent} is spent already" if more else f"of which {spent} is spent"
        how_much = f"network '{room.promise.network}' shares this ledger and promises ε={promised}{whose}, {how_much}"
    elif more:
        counts, now = ("counts as", "") if room.weighted else ("is", " now")
        how_much = f"ε={spent} {counts} spent{whose}, more than the {promised} that is promised{now}"
    else:
        how_much = f"ε={spent} of {promised} is spent{whose}"
    return f"{how_much}, and blocked is {cost.text}" if cost.blocked else f"{how_much}."


def _is_short(guarantee: Guarantee, room: Room, slot: int, first: int) -> bool:
    """Whether a slot can have no sample: no scheme asks for less than an even share, epsilon / w or epsilon / T."""
    return _is_over(guarantee, slot, first) or room.nano < max(guarantee.total // guarantee.length, 1)


def _is_over(guarantee: Guarantee, slot: int, first: int) -> bool:
    return guarantee.kind == "finite" and slot >= first + guarantee.length
