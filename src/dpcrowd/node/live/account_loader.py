"""The account of a running node, loaded before every slot, after every step of the clock has been booked in it.

A scheme that keeps a schedule uses up its window, and the budget comes back with the next sample that is due: between
the two nothing is wrong. So a shortage is news only if a sample that was due could not be paid (`note_unpaid`).
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress

from dpcrowd.errors import BadInput
from dpcrowd.node.live.log_limits import StorageLog
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.allowance import Allowance
from dpcrowd.privacy.clock_jumps import ClockSteps
from dpcrowd.privacy.network_guarantee import Slots, UserBounds
from dpcrowd.privacy.units import format_epsilon

__all__ = ["AccountLoader"]

log = logging.getLogger("dpcrowd.node")


class AccountLoader:
    """Loads the account for one run of a node; `load` and `book` write and read files.

    storage_log     of the node, see `StorageLog`
    keeps_schedule  whether the scheme spends a complete window by its public schedule
    is_over         whether the horizon had ended when the account was loaded last
    """

    def __init__(
        self,
        storage: Storage,
        slots: Slots,
        storage_log: StorageLog | None = None,
        *,
        keeps_schedule: bool = False,
    ) -> None:
        self._storage, self._slots, self._storage_log = storage, slots, storage_log or StorageLog()
        self._keeps_schedule = keeps_schedule
        self._steps = ClockSteps()
        self._waiting: deque[tuple[int, int]] = deque()
        self._shortage_logged = ""
        self._allowance: Allowance | None = None
        self.is_over = False

    def clock_set(self, at_ns: int, moved_ns: int) -> None:
        """Note that the clock said `at_ns` and was set by `moved_ns`: nothing is paid before the ledger knows.

        At a start, when nobody has seen what it did before, it says `at_ns`, and `moved_ns` is 0.
        """
        self._waiting.append((at_ns, moved_ns))

    @property
    def is_short(self) -> bool:
        """Whether the last sample that was due could not be paid."""
        return bool(self._shortage_logged)

    def book(self) -> None:
        """Tell the ledger at once; what cannot be written now is written before anything is paid."""
        with suppress(StorageError):
            self._book()

    def load(self, slot: int) -> Account | None:
        """Return what a slot is paid from; None: nothing may be paid, since the ledger cannot be asked."""
        opens_ns, closes_ns = self._slots.opens(slot), self._slots.opens(slot + 1)
        self._allowance, self.is_over = None, False
        try:
            self._storage.check_files()
            self._book()
            self._steps = self._steps.slot_sealed()
            account = self._storage.ledger.account(opens_ns, self._slots)
            allowance = account.allowance(opens_ns)
        except (StorageError, BadInput) as failure:
            self._storage_log.failed("ledger", f"the ledger cannot be asked, so nothing is sampled: {failure}")
            return None
        self._storage_log.works("ledger")
        if account.draw_conflict(opens_ns, closes_ns):
            text = "slot %d is not sampled: it was before, by a clock that was ahead, or is declared lost."
            log.info(text, slot, extra={"event": "not-sampled", "slot": slot})
            return account
        self._allowance, self.is_over = allowance, allowance.is_over
        return account

    def _book(self) -> None:
        while self._waiting:
            self._steps = self._storage.ledger.set_clock(*self._waiting[0], self._steps)
            self._waiting.popleft()

    def note_unpaid(self) -> None:
        """Log once that a sample which was due could not be paid; it is news again after the next one that is."""
        allowance = self._allowance
        if allowance is None:  # the log has it already: the slot was sampled before
            return
        before, self._shortage_logged = (
            self._shortage_logged,
            "over" if allowance.is_over else allowance.guarantee.network,
        )
        if self._shortage_logged != before:
            left = f"ε={format_epsilon(allowance.nano)} is left, less than a sample costs."
            level = logging.INFO if self.is_usual(allowance) else logging.WARNING
            log.log(level, "no sample for now: %s", allowance.shortage or left, extra={"event": "budget-spent"})

    def note_sampled(self) -> None:
        """Log that sampling goes on, if a sample could not be paid before."""
        if self._shortage_logged:
            log.info("there is budget again; the node samples.", extra={"event": "budget-back"})
        self._shortage_logged = ""

    def is_usual(self, allowance: Allowance) -> bool:
        """Whether the own window is used up by samples as the schedule has it, and by no loss or other network."""
        if not self._keeps_schedule or allowance.is_over:
            return False
        own, payments = allowance.account.own, allowance.account.payments
        is_own_window = allowance.guarantee is own and own.span_ns is not None
        return is_own_window and payments.cost(UserBounds(), allowance.after_ns, "lost") == 0
