"""Non-interference: of a node that releases the same noisy values, nobody can tell whether user x was there.

This is what the promise means for everything that is not noise: no status code, no log line, no size of a message or of
a file may depend on a user, since none of them is paid for. `node_support_noninterference` says what is compared and
what is not. Stories that told x apart once, or were likely to, stand here by name; hypothesis looks for others; and the
last test shows that a leak of any of these kinds is noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.recording.recorder import NodeRecorder
from examples_support import examples
from node_support_noninterference import RELAY, compare, differences, make_files, observe
from node_support_stories import Body, Counts, Event, Freeze, Jump, Restart, Row, Send, Story, X, stories
from node_support_world import WatchedTransport

pytestmark = pytest.mark.slow


class Interference(AssertionError):
    """Somebody can tell whether x was there."""


def assert_none(texts: Mapping[str, str]) -> None:
    """Of differences by their kind."""
    if texts:
        raise Interference("\n".join(f"{kind}\n{text}" for kind, text in texts.items()))


ANN, BOB, ROW_OF_X = Row("ann"), Row("bob", "south"), Row(X)
ONE = Body((ROW_OF_X,))
BOTH = Body((ROW_OF_X, ANN))


def slot(*events: tuple[float, Event | Body | Counts]) -> tuple[tuple[float, Event], ...]:
    """Events by the second of a slot; a body is sent alone."""
    return tuple((at, Send((event,)) if isinstance(event, (Body, Counts)) else event) for at, event in events)


def among_1000(row: Row) -> Story:
    """A row of x in a body of 1,000 others."""
    return Story((slot((6.5, Body((row,), crowd=500))),))


STORIES = {
    "x comes alone": Story((slot((6.5, ONE)), slot((7.5, Body((ANN,)))))),
    "x comes with others": Story((slot((6.5, Body((ANN, ROW_OF_X, BOB))), (8.5, Body((ANN,)))),)),
    "x moves and comes back": Story(
        (
            slot((2.0, Body((ROW_OF_X, Row(7, "south"), ANN))), (9.5, Body((Row(7, "north", 1.5),), "msgpack"))),
            slot((6.5, ONE)),
        )
    ),
    "x comes late, but in the grace": Story(((), slot((0.4, Body((Row(X, seconds=-0.5), ANN), "arrow"))))),
    "x in large bodies": Story(
        (
            slot(
                (6.5, Body((ROW_OF_X,), crowd=700, parts=3)),
                (7.5, Body((ROW_OF_X,), "ndjson", crowd=5000)),
                (8.5, Body((ANN,))),
            ),
        ),
        ('max_body = "128KiB"',),
    ),
    "x among clients that are refused": Story(
        (
            slot(
                (6.5, Body((ANN, ROW_OF_X), "msgpack", broken=True)),
                (6.5, Send((ONE, Body((ANN,), token=False), Body((Row("eve", fault="no-region"),))))),
                (7.5, Body((Row("eve", seconds=-25.0), BOB))),
                (8.5, Body((Row("eve", fault="unknown-region"),), "arrow")),
            ),
        )
    ),
    "x in counts that were made elsewhere": Story(
        (slot((6.5, Counts(x_in="north")), (8.5, Counts(x_in="south"))), slot((7.5, Counts(north=1, x_in="north")))),
        by_counts=True,
    ),
    "the clock is set ahead": Story((slot((6.5, BOTH), (7.5, Jump(3.0))), slot((6.5, BOTH)))),
    "the clock is set ahead by slots": Story((slot((6.5, BOTH), (7.5, Jump(25.0))), slot((6.5, ONE)))),
    "the clock is set back": Story(
        (slot((6.5, ONE)), slot((6.5, BOTH), (7.5, Jump(-25.0))), slot((6.5, Body((ANN,)))))
    ),
    "the node stands still": Story((slot((6.5, BOTH), (7.5, Freeze(14.0))), slot((6.5, ONE))), alone=True),
    "a clean restart after x and others": Story((slot((6.5, BOTH), (7.5, Restart(False, 0.3))), slot((6.5, ONE)))),
    "an abrupt end after x and others": Story((slot((6.5, BOTH), (7.5, Restart(True, 0.3))), slot((6.5, ONE)))),
    "an abrupt end in the exchange": Story((slot((1.5, ONE), (2.0, Restart(True, 0.3))),)),
    "a long absence": Story((slot((6.5, ONE), (7.5, Restart(True, 12.0))), slot((6.5, ONE))), alone=True),
    # Each of these has told x apart.
    "a slot is nearly full": Story((slot((6.5, ONE), (7.5, Body((ANN,)))),), ("capacity = 1",)),
    "a clean restart after x alone": Story((slot((6.5, ONE), (7.5, Restart(False, 0.3))),), alone=True),
    "an abrupt end after x alone": Story((slot((6.5, ONE), (7.5, Restart(True, 0.3))),), alone=True),
    "a late row of x among 1,000": among_1000(Row(X, seconds=-25.0)),
    "a row of x from the future among 1,000": among_1000(Row(X, seconds=3600.0)),
    "an unknown region of x among 1,000": among_1000(Row(X, fault="unknown-region")),
    "a malformed row of x among 1,000": among_1000(Row(X, fault="extra-field")),
    "counts after a check-in of x": Story((slot((6.5, ONE), (7.5, Counts())),)),
    "x checks in 3,000 times": Story((slot((6.5, Body((ANN,))), (7.5, Body((ROW_OF_X,) * 3000))),)),
    "x is refused": Story((slot((6.5, Body((Row(X, seconds=-25.0),))), (7.5, Body((ANN,)))),)),
}


INTAKE = frozenset(
    {
        *("x comes with others", "x in large bodies", "x among clients that are refused", "a slot is nearly full"),
        *("a late row of x among 1,000", "a row of x from the future among 1,000", "x checks in 3,000 times"),
        *("an unknown region of x among 1,000", "a malformed row of x among 1,000", "x is refused"),
    }
)
"""Stories about what is taken and refused: until the counts are read, no part of a node knows its scheme."""
AGAIN = frozenset(
    {
        *("the node stands still", "a clean restart after x alone", "an abrupt end after x alone"),
        *("the clock is set ahead", "an abrupt end after x and others", "counts after a check-in of x"),
    }
)
"""Stories in which a node that passes records on does nothing that it does not do in another one: in the first three it
has no neighbour, as after a long absence; of the others, one with a jump by slots, an end in the exchange and counts
that were made elsewhere stay."""


# ----------------------------------------------------------------------------------------------------------- the tests


class Place:
    """Where worlds are; what was found out about a story is kept."""

    def __init__(self, folder: Path, **files: Any) -> None:
        self.files, self.folder = make_files(folder / "files", **files), folder / "world"
        self._results: dict[Story, dict[str, str]] = {}

    def differences(self, story: Story) -> dict[str, str]:
        return differences(self.files, self.folder, story)

    def result(self, story: Story) -> dict[str, str]:
        if story not in self._results:
            self._results[story] = self.differences(story)
        return self._results[story]


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Where that is possible: thousands of commits would wait for the disk, and nothing here is kept."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with in_memory() as folder:
        yield Place(Path(folder))


@pytest.fixture(scope="module")
def relay_place() -> Iterator[Place]:
    with in_memory() as folder:
        yield Place(Path(folder), scheme=RELAY)


@pytest.mark.parametrize("name", STORIES)
def test_nobody_can_tell_by_what_they_see(place: Place, name: str) -> None:
    """A user would show in an answer, a message, a log line, a metric or in which slots are sampled, or would change
    more counts than noise is made for."""
    assert_none({kind: text for kind, text in place.result(STORIES[name]).items() if not kind.startswith("file")})


@pytest.mark.parametrize("name", STORIES)
def test_nobody_can_tell_by_what_is_left_on_disk(place: Place, name: str) -> None:
    """Whoever gets the folder later, from a backup or a seized machine, would see who was in a slot that is over."""
    assert_none({kind: text for kind, text in place.result(STORIES[name]).items() if kind.startswith("file")})


@pytest.mark.parametrize("name", [name for name in STORIES if name not in INTAKE | AGAIN])
def test_nobody_can_tell_where_records_are_passed_on(relay_place: Place, name: str) -> None:
    """Records, what is forwarded, the state of all servers and the smoothed history are new places for x to show."""
    assert_none(relay_place.result(STORIES[name]))


def test_the_smoothed_history_is_looked_at(relay_place: Place) -> None:
    """If readers were refused there, or got nothing, the test above would compare nothing."""
    record = observe(relay_place.files, relay_place.folder, STORIES["x comes alone"], x=True)
    status, _, body = record.of("answer to GET /v1/estimates?smoothed=true&measurements=true")[-1].content  # type: ignore[misc]
    assert status == 200
    assert body.count(b'"slot"') > 2
    assert body.count(b'"measurement":null') < body.count(b'"measurement"'), "no record is shown"


PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])


@settings(PATIENT, max_examples=examples(15))
@given(stories(x_refused=False))
def test_a_user_whose_check_ins_are_taken_leaves_no_trace(place: Place, story: Story) -> None:
    """Whatever others send, however the clock is set and whenever the node ends, x would show somewhere."""
    assert_none(place.differences(story))


@settings(PATIENT, max_examples=examples(15))
@given(stories(x_refused=True))
def test_a_user_whose_check_ins_are_refused_leaves_no_trace(place: Place, story: Story) -> None:
    """Likewise if check-ins of x are late, wrong, or in a body that cannot be read."""
    assert_none(place.differences(story))


@pytest.mark.parametrize("alone", [False, True])
def test_the_same_world_twice_is_the_same(place: Place, alone: bool) -> None:
    """Worlds that differ by chance would hide a leak among false alarms."""
    story = Story((slot((6.5, BOTH), (7.5, Restart(True, 2.0))), slot((2.0, ONE), (8.5, Jump(3.0)))), alone=alone)
    first, second = (observe(place.files, place.folder, story, x=True) for _ in range(2))
    assert_none(compare(first, second))
    assert first.draws == second.draws


# ------------------------------------------------------------------------------------------ would a leak be noticed?

Patch = pytest.MonkeyPatch
LOG = logging.getLogger("dpcrowd.node")


def _with_each_batch(patch: Patch, leak: Callable[[LiveNode, Any], None]) -> None:
    """Do something wrong with every batch that the node has taken."""
    take = LiveNode.take_checkins

    async def leaky(self: LiveNode, batch: Any, *args: Any, **named: Any) -> Any:
        answer = await take(self, batch, *args, **named)
        leak(self, batch)
        return answer

    patch.setattr(LiveNode, "take_checkins", leaky)


def _users(patch: Patch) -> set[bytes]:
    """All users who ever came."""
    users: set[bytes] = set()
    _with_each_batch(patch, lambda _, batch: users.update(batch.users))
    return users


def log_the_number_of_rows(patch: Patch) -> None:
    _with_each_batch(patch, lambda _, batch: LOG.debug("%d rows", len(batch)))


def log_that_somebody_came(patch: Patch) -> None:
    _with_each_batch(patch, lambda *_: LOG.info("check-ins were taken"))


def export_distinct_users(patch: Patch) -> None:
    users, metrics = _users(patch), LiveNode.metrics

    async def leaky(self: LiveNode) -> str:
        return await metrics(self) + f"dpcrowd_users {len(users)}\n"

    patch.setattr(LiveNode, "metrics", leaky)


def be_ready_once_somebody_came(patch: Patch) -> None:
    users = _users(patch)
    patch.setattr(LiveNode, "ready", lambda _: (bool(users), []))


def pad_messages_by_users(patch: Patch) -> None:
    users, send = _users(patch), WatchedTransport.send

    async def leaky(self: WatchedTransport, payload: bytes, to: Any) -> None:
        await send(self, payload + bytes(len(users)), to)

    patch.setattr(WatchedTransport, "send", leaky)


def delay_messages_by_users(patch: Patch) -> None:
    users, send = _users(patch), WatchedTransport.send

    async def leaky(self: WatchedTransport, payload: bytes, to: Any) -> None:
        await asyncio.sleep(len(users) * 1e-4)
        await send(self, payload, to)

    patch.setattr(WatchedTransport, "send", leaky)


def keep_a_file_of_rows(patch: Patch) -> None:
    def leak(node: LiveNode, batch: Any) -> None:
        with (node.config.data / "rows.bin").open("ab") as out:
            out.write(bytes(len(batch)))

    _with_each_batch(patch, leak)


def throw_a_body_of_three_away(patch: Patch) -> None:
    take = LiveNode.take_checkins

    async def leaky(self: LiveNode, batch: Any, *args: Any, **named: Any) -> Any:
        return [] if len(batch) == 3 else await take(self, batch, *args, **named)

    patch.setattr(LiveNode, "take_checkins", leaky)


def record_counts(patch: Patch) -> None:
    fields = NodeRecorder._fields

    def leaky(self: NodeRecorder, stimulus: on.Stimulus) -> object:
        if isinstance(stimulus, on.SlotSealed) and stimulus.counts is not None:
            return {"at_ns": stimulus.at_ns, "slot": stimulus.slot, "counts": stimulus.counts.tolist()}
        return fields(self, stimulus)

    patch.setattr(NodeRecorder, "_fields", leaky)


ALONE, OTHERS = STORIES["x comes alone"], STORIES["x comes with others"]
LEAKS: tuple[tuple[Story, dict[Callable[[Patch], None], str]], ...] = (
    (
        OTHERS,
        {
            log_the_number_of_rows: "log",
            export_distinct_users: "answer to GET /metrics",
            keep_a_file_of_rows: "file rows.bin",
            record_counts: "recording",
        },
    ),
    (ALONE, {log_that_somebody_came: "log", be_ready_once_somebody_came: "answer to GET /readyz"}),
    (OTHERS, {pad_messages_by_users: "message"}),
    (OTHERS, {delay_messages_by_users: "message"}),
    (Story((slot((6.5, Body((ANN, ROW_OF_X, BOB)))),)), {throw_a_body_of_three_away: "counts"}),
)
"""Leaks side by side show in one kind each, and none shows in the kind of another."""


@pytest.mark.parametrize(("story", "leaks"), LEAKS, ids=[",".join(one.__name__ for one in each) for _, each in LEAKS])
def test_a_leak_is_noticed(
    place: Place, monkeypatch: Patch, story: Story, leaks: dict[Callable[[Patch], None], str]
) -> None:
    """A comparison that overlooks something would pass everything above."""
    assert not place.result(story)
    for leak in leaks:
        leak(monkeypatch)
    assert set(leaks.values()) <= set(place.differences(story))


TWO_CLIENTS = Story((slot((6.5, Send((ONE, Body((ANN,)))))),))
SETTINGS: dict[str, tuple[str, Story, str]] = {
    "a feed that does not always speak": ("needs_feed = true", Story((slot((6.5, ONE)),), alone=True), "samples"),
    "exact counters": ("exact_counters = true", ALONE, "answer to GET /metrics"),
    "check-ins that do not fit on the disk": (
        'journal_limit = "1MiB"',
        Story((slot((6.5, Body((ROW_OF_X,) * 60_000)), (7.5, Body((ANN,)))),)),
        "samples",
    ),
    "too many requests with one token": ("requests_per_second = 1.0", TWO_CLIENTS, "answer to a POST"),
    "a body that is too large": (
        'max_body = "1KiB"',
        Story((slot((6.5, Body((ROW_OF_X,) * 30, crowd=10))),)),
        "counts",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_limit_that_is_reached_is_noticed(place: Place, name: str) -> None:
    """Some settings let one user show, and the page on the privacy promise says what they assume: without them nobody
    could tell, with them somebody can. Whoever closes one of these takes it from here, and from that page."""
    setting, story, kind = SETTINGS[name]
    assert_none(place.result(story))
    assert kind in place.differences(replace(story, ingest=(setting,)))
