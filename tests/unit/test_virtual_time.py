"""Waiting in virtual time: tests of live nodes may fail, but must not hang."""

from __future__ import annotations

import asyncio

import pytest

from node_support_virtual import VirtualLoop, run_virtually, wait_until


def test_what_waits_for_a_timer_gets_time() -> None:
    """A start that sleeps for a moment would otherwise be given turns for ever, while no time passes."""

    async def story(loop: VirtualLoop) -> float:
        sleeping = asyncio.create_task(asyncio.sleep(5))
        await wait_until(sleeping.done)
        return loop.time()

    assert run_virtually(story) == pytest.approx(5, abs=0.1)


def test_a_condition_that_never_holds_fails_the_test() -> None:
    """Without a bound, one wrong change of a start would stop the complete run instead of failing in it."""

    async def story(loop: VirtualLoop) -> None:
        await wait_until(lambda: False)

    with pytest.raises(AssertionError, match="in 60 s of virtual time"):
        run_virtually(story)
