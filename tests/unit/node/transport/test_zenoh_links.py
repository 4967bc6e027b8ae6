"""Lanes: order, the newest first to stay, and a put that blocks or fails costs its own lane only."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from dpcrowd.node.transport.zenoh_links import Lane


def test_payloads_leave_in_order_and_not_in_the_loop_s_thread() -> None:
    """Two puts at once would overtake each other; a put in the loop's thread would stop the node while it waits."""
    sent: list[tuple[bytes, bool]] = []

    async def run() -> None:
        here = threading.get_ident()
        with ThreadPoolExecutor(4) as pool:
            lane = Lane(lambda payload: sent.append((payload, threading.get_ident() == here)), pool, depth=100)
            for n in range(100):
                lane.offer(b"%d" % n)
            await lane.drain()
            lane.offer(b"again")
            await lane.drain()
            assert lane.dropped == 0

    asyncio.run(run())
    assert sent == [(b"%d" % n, False) for n in range(100)] + [(b"again", False)]


def test_a_lane_that_is_blocked_keeps_the_newest_and_delays_no_other() -> None:
    """A frozen neighbour: what waits for it must stay bounded, and the next slot's message is worth more."""
    gate = threading.Event()
    slow: list[bytes] = []
    quick: list[bytes] = []

    def block(payload: bytes) -> None:
        gate.wait()
        slow.append(payload)

    async def run() -> None:
        with ThreadPoolExecutor(2) as pool:
            frozen, awake = Lane(block, pool, depth=3), Lane(quick.append, pool, depth=3)
            frozen.offer(b"0")
            awake.offer(b"0")
            await awake.drain()  # by now the frozen lane's first put is under way, or will be: it left the queue
            for n in range(1, 10):
                frozen.offer(b"%d" % n)
                awake.offer(b"%d" % n)
                await awake.drain()
            assert quick == [b"%d" % n for n in range(10)]
            assert slow == []
            assert frozen.dropped == 6
            gate.set()
            await frozen.drain()
            assert slow == [b"0", b"7", b"8", b"9"]

    asyncio.run(run())


def test_a_put_that_fails_is_counted_and_the_lane_lives_on() -> None:
    """A session refuses puts while it closes; without care the lane would never send again."""
    sent: list[bytes] = []

    def put(payload: bytes) -> None:
        if payload == b"bad":
            raise RuntimeError("refused")
        sent.append(payload)

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            lane = Lane(put, pool)
            lane.offer(b"bad")
            lane.offer(b"good")
            await lane.drain()
            assert (sent, lane.dropped) == ([b"good"], 1)

    asyncio.run(run())


def test_an_abandoned_lane_sends_nothing_more() -> None:
    """When the transport closes, what a frozen neighbour did not take must not go out later."""
    gate, sent = threading.Event(), []

    def put(payload: bytes) -> None:
        gate.wait()
        sent.append(payload)

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            lane = Lane(put, pool)
            lane.offer(b"under way")
            await asyncio.sleep(0)
            lane.offer(b"waiting")
            lane.abandon()
            gate.set()
            await lane.drain()

    asyncio.run(run())
    assert sent == [b"under way"]
