"""What a body of 1,000 check-ins costs before it is stored: decoding in each format, hashing, slots, and HTTP around.

HTTP is measured without sockets, by calling the application as a server does, with a node that takes everything: the
difference is what the API adds to decoding.
"""

from __future__ import annotations

from harness import Target, alternate, per_second, print_table, print_targets, seconds_of  # isort: skip  # first: sets threads

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from dpcrowd.node.api.app import make_app
from dpcrowd.node.config.tokens import TokensSection
from dpcrowd.node.ingest.batch import Batch, RowRefusal, hash_users, slots_of
from dpcrowd.node.ingest.bodies import decode_checkins
from dpcrowd.node.slots import SECOND, SlotClock

ROWS, CALLS, ROUNDS = 1_000, 20, 30
REGIONS = {f"region-{number}": number for number in range(51)}
CLOCK = SlotClock(0, 60 * SECOND)
AT_MS = 1_767_225_600_000
TOKEN = "a-token-for-this-benchmark"
JSON, LINES, MSGPACK = "application/json", "application/x-ndjson", "application/msgpack"
ARROW = "application/vnd.apache.arrow.stream"


class _Everything:
    """A node that takes whatever it is given."""

    regions = REGIONS

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> Sequence[RowRefusal]:
        return batch.refused

    def __getattr__(self, name: str) -> object:
        return None  # of other paths, which are not used here


def bodies(times: bool, *, one_wrong: bool = False) -> dict[str, tuple[str, bytes]]:
    """The same check-ins in every format: (content type, body). One wrong: the last row has no user."""
    import pyarrow

    draw = random.Random(0)
    users = [f"u{draw.randrange(10**9):09d}" for _ in range(ROWS)]
    places = [draw.choice(list(REGIONS)) for _ in range(ROWS)]
    if one_wrong:
        users[-1] = ""
    stamps = [AT_MS + draw.randrange(60_000) for _ in range(ROWS)]
    more = [{"time": stamp} if times else {} for stamp in stamps]
    rows = [{"user": user, "region": place, **time} for user, place, time in zip(users, places, more, strict=True)]
    columns: dict[str, Any] = {"user": users, "region": pyarrow.array(places).dictionary_encode()}
    table = pyarrow.table(columns | ({"time": stamps} if times else {}))
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {
        "JSON": (JSON, json.dumps(rows).encode()),
        "NDJSON": (LINES, "\n".join(map(json.dumps, rows)).encode()),
        "MessagePack": (MSGPACK, msgspec.msgpack.encode(rows)),
        "Arrow": (ARROW, bytes(sink.getvalue())),
    }


def repeated(work: Callable[[], object]) -> Callable[[], float]:
    """Seconds of one call, over several."""

    def calls() -> None:
        for _ in range(CALLS):
            work()

    return lambda: seconds_of(calls) / CALLS


def through_http(kind: str, body: bytes) -> Callable[[], float]:
    """Seconds of one request to the application, without a server."""
    app = make_app(cast(Any, _Everything()), TokensSection(checkin=(TOKEN,)))
    headers = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"content-type", kind.encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/checkins", "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 202:
            raise RuntimeError("the body was refused")

    async def calls() -> None:
        for _ in range(CALLS):
            await app(scope, receive, send)

    return lambda: seconds_of(lambda: asyncio.run(calls())) / CALLS


def main() -> None:
    plain, timed = bodies(times=False), bodies(times=True)
    contestants: dict[str, Callable[[], float]] = {}
    for name, (kind, body) in plain.items():
        contestants[f"decode {name}"] = repeated(lambda k=kind, b=body: decode_checkins(k, b, REGIONS))
    for name, (kind, body) in timed.items():
        contestants[f"decode {name} with times"] = repeated(lambda k=kind, b=body: decode_checkins(k, b, REGIONS))
    for name, (kind, body) in bodies(times=False, one_wrong=True).items():
        contestants[f"decode {name}, one row wrong"] = repeated(lambda k=kind, b=body: decode_checkins(k, b, REGIONS))
    batch = decode_checkins(*timed["JSON"], REGIONS)
    contestants["hash users"] = repeated(lambda: hash_users(batch.users, bytes(32)))
    arrived = (AT_MS + 60_000) * 1_000_000
    contestants["find slots"] = repeated(lambda: slots_of(batch, arrived, CLOCK, grace_ns=10**10, future_ns=0))
    contestants["HTTP and JSON"] = through_http(*plain["JSON"])
    contestants["msgspec alone, JSON untyped"] = repeated(lambda: msgspec.json.decode(plain["JSON"][1]))
    best = alternate(contestants, ROUNDS)
    print_table(
        f"{ROWS:,} check-ins, {len(REGIONS)} regions, one core, best of {ROUNDS}",
        ("", "time", "check-ins"),
        [(name, f"{seconds * 1e6:.0f} µs", per_second(ROWS, seconds)) for name, seconds in best.items()],
    )
    print_targets(
        [
            Target("decode 1,000 as JSON", best["decode JSON"], 1e-3, " s", at_least=False),
            Target(
                "HTTP and JSON / decode JSON", best["HTTP and JSON"] / best["decode JSON"], 1.5, "x", at_least=False
            ),
        ]
    )


if __name__ == "__main__":
    main()
