"""Stories of one node: what clients send, when the clock is set, when the process ends. And the same without one user.

A story knows which rows are those of user x. `without_x` makes the neighbouring story of the privacy promise: all
check-ins of x are gone, in every slot. Rows of x leave the bodies of others, a body with rows of x alone is not sent,
and counts that were made elsewhere are lower by one where x was. Nothing else changes; above all, no time does.

Some faults belong to a body and not to anybody's row: a body that cannot be read, that is far too large or that comes
without a right is refused with x and without.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

__all__ = [
    "DEADLINE",
    "GRACE",
    "LENGTH",
    "REGIONS",
    "Body",
    "Counts",
    "Event",
    "Freeze",
    "Jump",
    "Restart",
    "Row",
    "Send",
    "Story",
    "X",
    "stories",
    "without_x",
]

X = "7"
"""The user who is removed. The number 7 is the same user as the text "7"."""
REGIONS = ("north", "south")
LENGTH, GRACE, DEADLINE = 10.0, 1.0, 3.0
"""Of a slot, in seconds."""

Fault = Literal["", "unknown-region", "no-region", "wrong-type", "extra-field", "no-time"]
Kind = Literal["json", "ndjson", "msgpack", "arrow"]
CONTENT_TYPES: dict[Kind, str] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "msgpack": "application/msgpack",
    "arrow": "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True)
class Row:
    """One check-in.

    seconds  its own time, relative to the node's clock at the moment of sending; None: it has no time of its own
    fault    what is wrong with it
    """

    user: str | int
    region: str = "north"
    seconds: float | None = None
    fault: Fault = ""

    @property
    def is_x(self) -> bool:
        return str(self.user) == X

    def plain(self, now_ns: int) -> dict[str, Any]:
        """What a body says of it."""
        row: dict[str, Any] = {"user": self.user, "region": self.region}
        if self.seconds is not None:
            row["time"] = now_ns // 1_000_000 + round(self.seconds * 1_000)
        match self.fault:
            case "unknown-region":
                row["region"] = "atlantis"
            case "no-region":
                del row["region"]
            case "wrong-type":
                row["region"] = 5
            case "extra-field":
                row["age"] = 30
            case "no-time":
                row["time"] = "yesterday"
        return row


@dataclass(frozen=True)
class Body:
    """A body of POST /v1/checkins.

    crowd   so many other users stand before the rows and so many behind them; nothing is wrong with theirs
    broken  the last byte is missing; of NDJSON, where that would be one row's fault, a line that is no row comes first
    parts   in how many pieces it arrives
    token   whether the client may send check-ins
    """

    rows: tuple[Row, ...] = ()
    kind: Kind = "json"
    crowd: int = 0
    broken: bool = False
    parts: int = 1
    token: bool = True

    path = "/v1/checkins"

    @property
    def has_x(self) -> bool:
        return any(row.is_x for row in self.rows)

    def without_x(self) -> Body | None:
        """None: nothing is left of it."""
        rows = tuple(row for row in self.rows if not row.is_x)
        return replace(self, rows=rows) if rows or self.crowd or not self.has_x else None

    def times_of_x(self, now_ns: int, length_ns: int) -> Iterator[int]:
        """When the rows of x were, by their own times."""
        for row in self.rows:
            if row.is_x:
                yield now_ns + round((row.seconds or 0.0) * 1e9)

    def content(self, now_ns: int, slot: int) -> tuple[str, bytes]:
        """Content type and bytes."""
        crowd = [{"user": f"crowd {number}", "region": REGIONS[number % 2]} for number in range(2 * self.crowd)]
        rows = [*crowd[: self.crowd], *(row.plain(now_ns) for row in self.rows), *crowd[self.crowd :]]
        match self.kind:
            case "json":
                raw = json.dumps(rows).encode()
            case "ndjson":
                raw = "\n".join(json.dumps(row) for row in rows).encode()
            case "msgpack":
                raw = msgspec.msgpack.encode(rows)
            case "arrow":
                raw = _arrow(rows)
        if self.broken:
            raw = b"{\n" + raw if self.kind == "ndjson" else raw[:-1]
        return CONTENT_TYPES[self.kind], raw


def _arrow(rows: list[dict[str, Any]]) -> bytes:
    """As a table. A column has one type, so users are texts, and a fault of a type is a missing value."""
    import pyarrow as pa

    regions = [row.get("region") if isinstance(row.get("region"), str) else None for row in rows]
    times = [row.get("time") if isinstance(row.get("time"), int) else None for row in rows]
    columns = {
        "user": pa.array([str(row["user"]) for row in rows], pa.string()),
        "region": pa.array(regions, pa.string()),
    }
    if any(time is not None for time in times):
        columns["time"] = pa.array(times, pa.timestamp("ms", "UTC"))
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@dataclass(frozen=True)
class Counts:
    """A body of POST /v1/counts, for the slot that is open, or for another that is `slots` away.

    x_in  the region in which x was counted; "": nowhere
    """

    north: int = 3
    south: int = 5
    slots: int = 0
    x_in: str = ""
    region: str = "north"

    path = "/v1/counts"
    parts = 1
    token = True

    @property
    def has_x(self) -> bool:
        return bool(self.x_in)

    def without_x(self) -> Counts | None:
        fewer = {self.x_in: getattr(self, self.x_in) - 1} if self.x_in else {}
        return replace(self, x_in="", **fewer)

    def times_of_x(self, now_ns: int, length_ns: int) -> Iterator[int]:
        if self.x_in:
            yield now_ns + self.slots * length_ns

    def content(self, now_ns: int, slot: int) -> tuple[str, bytes]:
        counts = {self.region: self.north, "south": self.south}
        return CONTENT_TYPES["json"], json.dumps({"slot": slot + self.slots, "counts": counts}).encode()


@dataclass(frozen=True)
class Send:
    """Bodies that arrive at one moment."""

    bodies: tuple[Body | Counts, ...]


@dataclass(frozen=True)
class Jump:
    """The node's clock is set, and that of its neighbour is not."""

    seconds: float


@dataclass(frozen=True)
class Freeze:
    """The process stands still; its neighbour, in the same process here, does too."""

    seconds: float


@dataclass(frozen=True)
class Restart:
    """The node ends, cleanly or as by `kill -9`, and starts again after some seconds."""

    abrupt: bool
    seconds: float


Event = Send | Jump | Freeze | Restart


@dataclass(frozen=True)
class Story:
    """What happens in each slot, as (second of the slot, event), and under which settings of node.toml.

    ingest     lines of the section [ingest]
    by_counts  the node accepts counts, and no check-ins
    alone      the network has one server: nobody has to vouch for its ledger, so it samples right after a start
    """

    slots: tuple[tuple[tuple[float, Event], ...], ...]
    ingest: tuple[str, ...] = ()
    by_counts: bool = False
    alone: bool = False


def without_x(event: Event) -> Event:
    """What is left of an event when x is removed."""
    if not isinstance(event, Send):
        return event
    kept = [body.without_x() for body in event.bodies]
    return Send(tuple(body for body in kept if body is not None))


# ------------------------------------------------------------------------------------------------------- strategies

_OTHERS = {"ann": "north", "bob": "south", "eve": "north", 42: "south", "42": "south", "zoë": "north"}
"""Users, each always in one region: of two bodies that arrive at one moment it is not defined which is the later one,
so where somebody is who is in both of them, in different regions, is a matter of how long each takes."""
_SOON = (None, None, 0.0, -0.5, 1.5)
"""Times that are taken: the last one may fall into the next slot."""
_FAULTS: tuple[Fault, ...] = ("unknown-region", "no-region", "wrong-type", "extra-field", "no-time")
_IN_GRACE, _PHASES = 0.4, (2.0, 6.5, 7.5, 8.5, 9.5)
"""Seconds of a slot: in the grace of the last one, in its exchange, and after it."""

_X_ROWS = st.builds(Row, st.sampled_from((X, int(X))), st.sampled_from(REGIONS), st.sampled_from(_SOON))
_ROWS = st.builds(
    lambda user, at: Row(user[0], user[1], at), st.sampled_from(list(_OTHERS.items())), st.sampled_from(_SOON)
)


def _wrong(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[Row]:
    """Late, from the future, or not a check-in of this network."""
    seconds, faults = st.sampled_from((-25.0, -9.9, 30.0, 3600.0)), st.sampled_from(_FAULTS)
    return st.one_of(
        st.builds(lambda row, at: replace(row, seconds=at), rows, seconds),
        st.builds(lambda row, fault: replace(row, seconds=None, fault=fault), rows, faults),
    )


@st.composite
def _checkins(draw: st.DrawFn, row: st.SearchStrategy[Row]) -> Body:
    return Body(
        tuple(draw(st.lists(row, max_size=4))),
        kind=draw(st.sampled_from(("json", "json", "ndjson", "msgpack", "arrow"))),
        crowd=draw(st.sampled_from((0, 0, 0, 0, 2, 40, 400, 2000))),
        broken=draw(st.sampled_from((False,) * 7 + (True,))),
        parts=draw(st.sampled_from((1, 1, 3))),
        token=draw(st.sampled_from((True,) * 7 + (False,))),
    )


def _counts(x_in: tuple[str, ...], regions: tuple[str, ...], slots: tuple[int, ...]) -> st.SearchStrategy[Counts]:
    few = st.integers(1, 9)
    return st.builds(
        Counts, few, few, st.sampled_from(slots), x_in=st.sampled_from(x_in), region=st.sampled_from(regions)
    )


def _bodies(*, by_counts: bool, x_refused: bool) -> st.SearchStrategy[Body | Counts]:
    """What clients send to a node that is fed by check-ins, or by counts; some clients are wrong about that."""
    others = st.one_of(_ROWS, _wrong(_ROWS))
    mixed = st.one_of(_X_ROWS, _X_ROWS, _ROWS, others, *([_wrong(_X_ROWS)] if x_refused else []))
    anywhere, nowhere, wrong = ("", *REGIONS), ("",), ("north", "atlantis")
    checkins, counts = _checkins(mixed), _counts(anywhere, wrong, (-2, -1, 0, 1))
    if not x_refused and by_counts:
        checkins, counts = _checkins(others), _counts(anywhere, ("north",), (0,))
    elif not x_refused:
        checkins, counts = checkins.map(_blameless), _counts(nowhere, wrong, (-2, -1, 0, 1))
    often, seldom = (counts, checkins) if by_counts else (checkins, counts)
    return st.one_of(often, often, often, seldom)


def _blameless(body: Body) -> Body:
    """If all rows are those of x, what is wrong with the body is wrong with x."""
    return body if body.without_x() is not None else replace(body, broken=False, token=True)


@st.composite
def stories(draw: st.DrawFn, *, x_refused: bool) -> Story:
    """Any story of a few slots.

    x_refused  whether rows of x may be wrong, late, from the future or too many, like anybody's; otherwise they are of
               the kind that a node takes: x leaves the stage when the clock is set back, and counts are not refused
    """
    by_counts = draw(st.sampled_from((False, False, False, True)))
    body = _bodies(by_counts=by_counts, x_refused=x_refused)
    send = st.builds(Send, st.lists(body, min_size=1, max_size=3).map(tuple))
    x_comes = st.builds(Send, st.tuples(body.filter(lambda one: one.has_x)))
    trouble = st.one_of(
        st.builds(Restart, st.booleans(), st.sampled_from((0.3, 2.0, 12.0))),
        st.builds(Jump, st.sampled_from((-25.0, -3.0, 0.5, 3.0, 12.0, 25.0))),
        st.builds(Freeze, st.sampled_from((1.0, 3.0, 14.0))),
    )
    slots: list[list[tuple[float, Event]]] = []
    for _ in range(draw(st.integers(1, 4))):
        slots.append([(_IN_GRACE, event) for event in draw(st.lists(send, max_size=1))])
        slots[-1] += draw(st.lists(st.tuples(st.sampled_from(_PHASES), send), max_size=2))
    # In some slot x comes for certain: a story without x says nothing. Trouble is rare: after it, nodes do not sample.
    for event in (draw(x_comes), *draw(st.lists(trouble, max_size=2))):
        draw(st.sampled_from(slots)).append((draw(st.sampled_from(_PHASES)), event))
    timed = tuple(tuple(sorted(slot, key=lambda one: one[0])) for slot in slots)
    ingest = (f"capacity = {draw(st.sampled_from((4, 1_000_000)))}", 'max_body = "64KiB"')
    story = Story(timed, ingest, by_counts, alone=draw(st.booleans()))
    return story if x_refused else _x_leaves(story)


def _x_leaves(story: Story) -> Story:
    """Without x from the moment at which the clock is set back: until it has caught up, the node takes nobody."""
    left, slots = False, []
    for slot in story.slots:
        events = []
        for at, event in slot:
            left = left or (isinstance(event, Jump) and event.seconds < 0)
            events.append((at, without_x(event) if left else event))
        slots.append(tuple(events))
    return replace(story, slots=tuple(slots))
