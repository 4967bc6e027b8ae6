"""A clock that was set, and a process that stood still, seen by comparing UTC with the time that has passed."""

from __future__ import annotations

from dpcrowd.node.live.timing import ClockWatch, Look, WallClock

SECOND = 1_000_000_000


class Hands(WallClock):
    """Both clocks by hand."""

    def __init__(self) -> None:
        self.utc, self.passed = 1_800_000_000 * SECOND, 0

    def now(self) -> int:
        return self.utc

    def elapsed(self) -> int:
        return self.passed

    def go(self, seconds: float) -> None:
        self.utc += int(seconds * SECOND)
        self.passed += int(seconds * SECOND)


def test_a_jump_is_told_once_and_small_ones_add_up() -> None:
    """Steps of under a second, one after another, would otherwise refill a window unseen."""
    hands = Hands()
    watch = ClockWatch(hands, SECOND)
    hands.go(100)
    assert watch.look().moved_ns == 0
    hands.utc += 150 * SECOND
    assert watch.look().moved_ns == 150 * SECOND
    assert watch.look().moved_ns == 0
    hands.utc -= 3 * SECOND
    assert watch.look().moved_ns == -3 * SECOND
    told = 0
    for _ in range(10):
        hands.utc += SECOND * 6 // 10
        told += watch.look().moved_ns
    assert told == 6 * SECOND


def test_standing_still_is_no_jump_and_the_other_way_round() -> None:
    """A machine that slept has missed slots; one whose clock was set has not slept. Either may be a snapshot."""
    hands = Hands()
    watch = ClockWatch(hands, SECOND)
    hands.go(0.5)
    assert watch.look() == Look(0, 0, half=False, doubtful=False)
    hands.go(5)
    assert watch.look() == Look(0, 5 * SECOND, half=True, doubtful=False)
    hands.go(10)
    assert watch.look() == Look(0, 10 * SECOND, half=True, doubtful=True)
    hands.utc += 60 * SECOND
    assert watch.look() == Look(60 * SECOND, 0, half=True, doubtful=True)
    hands.utc -= 60 * SECOND
    assert watch.look() == Look(-60 * SECOND, 0, half=False, doubtful=False)


def test_long_slots_forgive_a_short_pause() -> None:
    """Three seconds of an hour are no reason to do without its sample; a minute is one to ask a neighbour."""
    hands = Hands()
    watch = ClockWatch(hands, 3600 * SECOND)
    hands.go(3)
    assert watch.look() == Look(0, 0, half=False, doubtful=False)
    hands.go(60)
    assert watch.look() == Look(0, 0, half=False, doubtful=True)
    hands.go(360)
    assert watch.look() == Look(0, 360 * SECOND, half=True, doubtful=True)
