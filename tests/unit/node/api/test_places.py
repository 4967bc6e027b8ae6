"""Places for connections to the API, with a clock of the test's own."""

from __future__ import annotations

import logging

import pytest

from dpcrowd.node.api.places import HEADER_SECONDS, Places


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """A connection that only remembers that it was ended."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.address = address
        self.ended = self.is_stuck = False

    def end(self) -> None:
        self.ended = True

    def stuck(self, now: float) -> bool:
        return self.is_stuck


def connect(places: Places, number: int, address: str = "192.0.2.1", *, stream: bool = False) -> list[Fake]:
    """Connections that have sent the header of a request; those that are answered."""
    found = []
    for _ in range(number):
        one = Fake(address)
        places.wait(one)
        if places.work(one, stream=stream):
            found.append(one)
        else:
            places.leave(one)
    return found


def test_half_sent_headers_displace_one_another() -> None:
    """980 of them kept everybody from the API for as long as they were held."""
    places = Places(100, Clock())
    slow = [Fake() for _ in range(1000)]
    for one in slow:
        places.wait(one)
    assert len(places) == 25
    assert sum(one.ended for one in slow) == 975
    assert len(connect(places, 1, "192.0.2.9")) == 1, "whoever sends a request is answered"
    assert places.limited


def test_a_header_has_some_seconds_and_so_has_every_pause_between_requests() -> None:
    """Otherwise a connection that says nothing keeps its place until there is a crowd."""
    clock = Clock()
    places = Places(100, clock)
    silent, kept, busy = Fake(), Fake(), Fake()
    for one in (silent, kept, busy):
        places.wait(one)
    assert places.work(busy)
    clock.now += HEADER_SECONDS - 1
    assert places.work(kept)
    places.wait(kept)  # its answer is out
    places.sweep()
    assert not silent.ended
    clock.now += 2
    places.sweep()
    assert (silent.ended, kept.ended, busy.ended) == (True, False, False)
    busy.is_stuck = True
    places.sweep()
    assert busy.ended
    assert not places.limited, "to be slow is no limit of the node"


def test_one_address_cannot_take_all_places() -> None:
    """The others have to be answered while one client, or one attacker, has as many requests open as it can."""
    places = Places(100, Clock())
    greedy = connect(places, 200, "192.0.2.1")
    assert 0 < len(greedy) < 75
    assert len(connect(places, 200, "192.0.2.2")) > 0
    for one in greedy:
        places.leave(one)
    assert len(connect(places, 200, "192.0.2.1")) == len(greedy), "places that were left are free again"


def test_some_places_are_for_this_machine() -> None:
    """Its operator has to get an answer when nobody else does."""
    places = Places(100, Clock())
    for number in range(100):
        connect(places, 10, f"192.0.2.{number}")
    assert connect(places, 1, "192.0.2.200") == []
    assert len(connect(places, 8, "127.0.0.1")) == 8
    assert len(places) <= 100


def test_streams_leave_places_for_requests() -> None:
    """A stream stays for days: if streams could take all places, nothing else would be answered any more."""
    places = Places(100, Clock())
    for number in range(100):
        connect(places, 10, f"192.0.2.{number}", stream=True)
    assert len(places) == 37
    assert len(connect(places, 10, "192.0.2.1")) == 10
    assert connect(places, 1, "127.0.0.1", stream=True) == []


def test_requests_that_do_not_wait_for_answers_take_one_place() -> None:
    """A client may send several at once over one connection."""
    places = Places(100, Clock())
    one = Fake()
    places.wait(one)
    for _ in range(3):
        assert places.work(one)
    assert len(places) == 1
    places.leave(one)
    assert len(places) == 0
    assert len(connect(places, 33, one.address)) == 33


def test_a_limit_is_told_without_numbers_and_once_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Those who send check-ins connect here: how many, and from where, may be close to a raw count."""
    clock = Clock()
    places = Places(8, clock)
    with caplog.at_level(logging.WARNING, logger="dpcrowd"):
        for _ in range(100):
            places.wait(Fake("192.0.2.77"))
        assert places.limited
        clock.now += 59
        places.wait(Fake())
        assert len(caplog.records) == 1
        clock.now += 59
        assert places.limited
        places.wait(Fake())
    assert len(caplog.records) == 2
    assert {record.__dict__["event"] for record in caplog.records} == {"connections"}
    assert "192.0.2.77" not in caplog.text
    assert not [character for record in caplog.records for character in record.getMessage() if character.isdigit()]
    clock.now += 61
    assert not places.limited


def test_very_few_files_are_enough_to_answer() -> None:
    """Somebody may set a limit of 64 files; the API has to work, if for few."""
    places = Places(4, Clock())
    for _ in range(20):
        answered = connect(places, 1, "127.0.0.1")
        assert (len(answered), len(places), answered[0].ended) == (1, 1, False)
        places.leave(answered[0])
    assert (len(places), places.limited) == (0, False)
