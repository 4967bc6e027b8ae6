"""A clock that is ahead for a moment and comes back: the node waits, says so, and goes on when its operator accepts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.live.node import LiveNode
from dpcrowd.privacy.payments import Payment
from dpcrowd.privacy.units import NANO
from node_support_live import TOKENS
from node_support_pair import SECOND, SetClock, last_slot, pair_of_nodes, run, until, web

AHEAD = 600  # slots of a second; more than a window, and each has to be caught up with
EVERY_SLOT = {"name": "dpcrowd-w", "process_var": 100.0, "sampling": "fixed", "interval": 1}


def samples(node: LiveNode) -> list[Payment]:
    return [entry for entry in node._storage.ledger.account(0).payments_after(0) if entry.kind == "sample"]


def slots(node: LiveNode) -> list[int]:
    """Slots that were sampled, in the order in which they were paid."""
    return [entry.slot for entry in sorted(samples(node), key=lambda entry: entry.number) if entry.slot is not None]


async def settled(*nodes: LiveNode) -> None:
    await until(lambda: all(node.ready()[0] and len(samples(node)) > 3 for node in nodes), "the nodes do not sample")


def test_one_node_whose_clock_was_ahead_goes_on_when_that_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fifteen seconds of a wrong clock used to cost an hour without releases, with a budget of 3.85 of 1 spent."""

    async def scenario() -> None:
        clock, right = SetClock(), SetClock()
        async with pair_of_nodes(tmp_path, (clock, right), length=60, scheme=EVERY_SLOT) as (a, b):
            await settled(a, b)
            paid = slots(a)
            clock.ahead += AHEAD * SECOND
            await until(lambda: last_slot(a) > AHEAD, "nothing is sealed by the wrong clock")
            clock.ahead -= AHEAD * SECOND
            await until(lambda: "set back by 600.0 s" in caplog.text, "nobody noticed")
            sealed = a.executor.machine.server.slot
            await until(lambda: any("went back by" in text for text in a.ready()[1]), "ready")
            (problem,) = a.ready()[1]
            assert "the clock went back by 10 min at 20" in problem
            assert f"slot {sealed} was sealed already" in problem
            assert "'dpcrowd node accept-clock'" in problem
            budget = await a.budget()
            assert (budget.samples, budget.text) == (False, problem)
            assert 0 < budget.spent <= len(paid) / 60 + 1e-9 < 1
            assert budget.blocked == 0
            with pytest.raises(
                IntakeRefused, match=r"the clock went back: the next slot opens at 20.*accept-clock"
            ) as told:
                await a.take_counts(a.clock.slot_of(clock.now()), {0: 5}, clock.now())
            assert told.value.reason == "unavailable", "whoever is told that it is late throws it away"
            assert not [text for text in a.ready()[1] if "vouched" in text], "neighbours cannot help now"
            assert caplog.text.count(f"slot {sealed} was sealed already") == 1, "the log says what follows, once"
            assert AHEAD - 100 < a.retry_after(clock.now()) <= AHEAD + 2, "senders are told when to come again"
            with pytest.raises(BadInput, match="nothing to accept"):
                await b.accept_clock()
            async with web(a) as client:
                address = "/v1/admin/accept-clock"
                refused = await client.post(address)
                assert refused.status_code == 401
                answer = await client.post(address, headers={"Authorization": f"Bearer {TOKENS['admin']}"})
            assert answer.status_code == 200, answer.text
            assert "Nothing was sampled by that clock" in answer.json()["text"]
            begun = a.clock.slot_of(clock.now())
            assert a.retry_after(clock.now()) == 1
            await a.take_counts(a.clock.slot_of(clock.now()) + 1, {0: 5}, clock.now() + SECOND)
            await until(lambda: last_slot(a) > begun + 1 and a.ready()[0], "no releases", 20)
            await until(lambda: len(slots(a)) > len(paid) + 3, "no samples", 20)
            assert max(slots(a)) < AHEAD
            assert len(set(slots(a))) == len(slots(a))
            assert begun not in slots(a), "nobody could check in at its beginning"
            (event,) = [one for one in a._storage.events.all() if one.kind == "clock-accepted"]
            assert event.text == answer.json()["text"]
            latest = await a.latest()
            assert latest is not None
            assert latest.slot < AHEAD
            releases = await a.estimates(begun, None, None, 1000)
            assert {one.slot for one in releases} <= set(range(begun, begun + 100))

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert "clock-accepted" in {getattr(record, "event", "") for record in caplog.records}


def test_check_ins_are_put_off_while_slots_are_waited_for_whether_they_have_a_time_or_not(tmp_path: Path) -> None:
    """Rows with a time were refused as late: feeds left them out for good, though the operator may accept the clock."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=60, scheme=EVERY_SLOT, accepts="checkins") as (a, b):
            await settled(a, b)
            clock.ahead += AHEAD * SECOND
            await until(lambda: last_slot(a) > AHEAD, "nothing is sealed by the wrong clock")
            clock.ahead -= AHEAD * SECOND
            await until(lambda: not a.ready()[0], "ready")
            headers = {"Authorization": f"Bearer {TOKENS['checkin']}"}
            row = {"user": "ann", "region": "north"}
            async with web(a, headers=headers) as client:
                for more in ({}, {"time": clock.now() // 1_000_000}):
                    answer = await client.post("/v1/checkins", json=[row | more])
                    assert (answer.status_code, answer.json()["error"]["reason"]) == (503, "unavailable")
                    assert AHEAD - 100 < int(answer.headers["retry-after"]) <= AHEAD + 2
                    assert "the clock went back: the next slot opens at 20" in answer.json()["error"]["text"]
                await a.accept_clock()
                for more in ({}, {"time": clock.now() // 1_000_000}):
                    answer = await client.post("/v1/checkins", json=[row | more])
                    assert answer.status_code == 202, answer.text

    run(scenario)


def test_what_two_nodes_sampled_by_a_clock_that_was_ahead_is_not_sampled_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They vouched for each other; when these slots really come, the same numbers must not be drawn a second time."""

    async def scenario() -> None:
        clock, ahead = SetClock(), 25 * SECOND
        async with pair_of_nodes(tmp_path, clock, length=60, scheme=EVERY_SLOT) as nodes:
            await settled(*nodes)
            before = [set(slots(node)) for node in nodes]
            jumped = nodes[0].clock.slot_of(clock.now()) + 25
            clock.ahead += ahead
            await until(
                lambda: all(sum(slot >= jumped for slot in slots(node)) > 1 for node in nodes),
                "no samples by the wrong clock",
            )
            clock.ahead -= ahead
            await until(lambda: caplog.text.count("set back by 25.0 s") == 2, "nobody noticed")
            wrong = [set(slots(node)) - old for node, old in zip(nodes, before, strict=True)]
            sealed = [node.executor.machine.server.slot for node in nodes]
            for node in nodes:
                assert "stays spent" in await node.accept_clock()
            begun = nodes[0].clock.slot_of(clock.now())
            # Each remembers the other from before and from the wrong clock; both vouch for both.
            await until(lambda: all(node.ready()[0] for node in nodes), "nobody vouches", 20)
            await until(lambda: all(last_slot(node) > max(sealed) + 4 for node in nodes), "it does not go on", 90)
            for node, drawn in zip(nodes, wrong, strict=True):
                paid = slots(node)
                assert len(paid) == len(set(paid)), "a slot was drawn twice"
                between = set(paid) - drawn
                assert len([slot for slot in between if begun < slot < min(drawn)]) > 10, "it sampled before them"
                assert max(between) > max(drawn), "and after them"
                budget = await node.budget()
                assert budget.spent <= 1
                assert node.ready()[0]
                told = await node.estimates(min(drawn), max(drawn), None, 100)
                assert len(told) > 1, "they are released all the same"
                assert not any(one.sampled for one in told if one.slot in drawn)
            assert "storage-failed" not in {getattr(record, "event", "") for record in caplog.records}
            assert all(entry.nano <= NANO // 60 for node in nodes for entry in samples(node))

    with caplog.at_level(logging.INFO):
        run(scenario)


def test_a_restart_after_it_is_accepted_does_not_wait_again(tmp_path: Path) -> None:
    """What is accepted is on disk, with the estimates; and so is what was paid."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=60, scheme=EVERY_SLOT) as (a, b):
            await settled(a, b)
            epoch, paid = a.clock.epoch_ns, spent_by(a)
            clock.ahead += AHEAD * SECOND
            await until(lambda: last_slot(a) > AHEAD and last_slot(b) > AHEAD, "nothing is sealed")
            clock.ahead -= AHEAD * SECOND
            await until(lambda: not a.ready()[0] and not b.ready()[0], "ready")
            for node in (a, b):
                await node.accept_clock()
        (tmp_path / "keys").rename(tmp_path / "old keys")
        async with pair_of_nodes(tmp_path, clock, length=60, scheme=EVERY_SLOT, epoch_ns=epoch) as (a, b):
            assert a.executor.machine.server.slot < AHEAD
            assert spent_by(a) >= paid
            begun = a.clock.slot_of(clock.now())
            await until(lambda: last_slot(a) > begun, "no release", 20)

    run(scenario)


def spent_by(node: LiveNode) -> int:
    return sum(entry.nano for entry in samples(node))
