"""Random histories of a ledger whose clock is set ahead and back: no window of the time that has passed overflows.

The test keeps the time that passes, which no ledger knows, and pays whatever the ledger allows. A node that stops and
starts again has not seen what its clock did meanwhile. Whoever accepts a clock that has gone back pays for slots whose
numbers lie before others that were paid for already; none is paid for twice.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpcrowd.node.slots import SECOND, SlotClock
from dpcrowd.node.storage import SlotTaken, Storage
from dpcrowd.privacy.clock_jumps import ClockSteps
from examples_support import examples

LENGTH, WINDOW, EPSILON = 2, 4, 10
START = 1_000_000
CLOCK = SlotClock(START * SECOND, LENGTH * SECOND)

moves = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 5)),
    st.tuples(st.just("set"), st.integers(-12, 12)),
    st.tuples(st.just("pay"), st.integers(1, EPSILON)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("back while down"), st.integers(1, 12)),
)


class SteppedLedger:
    """A node's ledger, its clock, and the time that has really passed; `paid` is (when, how much)."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage.open(folder, network_id="crowd")
        self.storage.ledger.declare(EPSILON, WINDOW * LENGTH * SECOND, slots=CLOCK)
        self.steps = ClockSteps()
        self.passed, self.offset = 100, START
        self.paid: list[tuple[int, int]] = []
        self.taken: set[int] = set()

    def close(self) -> None:
        self.storage.close()

    @property
    def now(self) -> int:
        return self.passed + self.offset

    def set_clock(self, by: int) -> None:
        if by:
            self.steps = self.storage.ledger.set_clock(self.now * SECOND, by * SECOND, self.steps)
            self.offset += by

    def pay(self, nano: int) -> None:
        """For the slot that has just closed, as a node does."""
        slot = CLOCK.slot_of(self.now * SECOND) - 1
        self.steps = self.steps.slot_sealed()
        nano = min(nano, self.storage.ledger.allowance(CLOCK.opens(slot)).nano)
        if not nano:
            return
        try:
            self.storage.commit_sample(slot, CLOCK.opens(slot), CLOCK.length_ns, nano, b"", b"")
        except SlotTaken:
            assert slot in self.taken
            return
        assert slot not in self.taken, "a slot is drawn once"
        self.taken.add(slot)
        self.paid.append((self.passed, nano))

    def most_in_a_window(self) -> int:
        """By the time that has really passed. Slots and the moments at which they are paid differ by up to a slot at
        either end, so of a window of w slots w - 2 are certain."""
        span = (WINDOW - 2) * LENGTH
        return max(
            (sum(nano for at, nano in self.paid if end - span <= at <= end) for end, _ in self.paid),
            default=0,
        )


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(moves, max_size=40))
@example([("pay", 10), ("set", 12), ("pass", 1), ("set", -12), ("pass", 2), ("pay", 10)])
@example([("set", -8), ("pay", 10), ("set", 8), ("pass", 1), ("pay", 10)])
@example([("set", 9), ("pass", 3), ("pay", 10), ("set", -9), ("pass", 3), ("pay", 10), ("pass", 3), ("pay", 10)])
@example([("pay", 10), ("set", 12), ("set", -4), ("pass", 1), ("pay", 10)])
@example([("pay", 10), ("set", 8), ("set", 8), ("set", -8), ("pass", 1), ("pay", 10)])
@example([("set", 9), ("restart", 0), ("set", -9), ("pay", 10), ("set", 9), ("pay", 10)])
@example([("pay", 10), ("set", 12), ("pass", 1), ("back while down", 12), ("pass", 2), ("pay", 10)])
@example([("pay", 10), ("set", 8), ("set", 8), ("back while down", 8), ("pass", 1), ("pay", 10)])
def test_no_window_of_time_that_has_passed_holds_more_than_was_promised(history: list[tuple[str, int]]) -> None:
    """A clock that is set there and back, as often as somebody likes, would refill the budget at will."""
    with TemporaryDirectory() as folder, closing(SteppedLedger(Path(folder))) as one:
        for what, amount in history:
            if what == "pass":
                one.passed += amount
            elif what == "set":
                one.set_clock(amount)
            elif what == "pay":
                one.pay(amount)
            elif what == "back while down":
                one.offset -= amount
                one.steps = one.storage.ledger.set_clock(one.now * SECOND, 0)
            else:  # a start looks at the clock, whatever it did before
                one.steps = one.storage.ledger.set_clock(one.now * SECOND, 0)
            assert one.most_in_a_window() <= EPSILON
