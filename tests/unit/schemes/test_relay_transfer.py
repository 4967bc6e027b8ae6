"""A relay server under another setting: records go on where they mean the same, and otherwise the last posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.schemes.server import Server
from node_support_relay import counts_of, facts_of
from relay_support import Network, message_of
from schemes_support import bits

FACTS = facts_of(servers=3)
SLOTS = 12
COUNTS = counts_of(FACTS, 40)


def others(facts: Network, slot: int, number: int, counts: Any = COUNTS) -> dict[tuple[int, int], Any]:
    """What the other servers would say in a slot."""
    return {
        (origin, slot): np.array(counts[slot, origin % 3], dtype=np.float64)[: facts.model.regions]
        for origin in range(facts.servers)
        if origin != number and facts.due(slot, origin)
    }


def play(server: Server, facts: Network, slots: range, number: int, late: tuple[int, ...] = ()) -> list[Any]:
    """Every slot with the records of all others, except those of `late` slots."""
    releases = []
    for slot in slots:
        server.observe(slot, COUNTS[slot, number % 3, : facts.model.regions])
        records = others(facts, slot, number)
        heard = {} if slot in late or not records else {9: message_of(records, list(records), facts.price)}
        releases.append(server.hear(heard))
    return releases


def started(number: int = 1, late: tuple[int, ...] = (), facts: Network = FACTS) -> Server:
    server = facts.server(number)
    play(server, facts, range(SLOTS), number, late)
    return server


@pytest.mark.parametrize("turnover", [1.0, 0.1])
def test_a_server_that_comes_changes_nothing_for_the_others(turnover: float) -> None:
    """The numbers of servers change with it: records, scores, accounts and deviations follow the names."""
    facts = replace(FACTS, observation="binomial", turnover=turnover)
    more = replace(
        facts, shares=np.array([0.35, *FACTS.shares]), phases=np.array([1, *FACTS.phases], dtype=np.int64)
    )  # a new server has number 0
    plain, moved = started(facts=facts), more.server(2)
    moved._noise = plain._noise  # whose numbers depend on the number of servers
    moved.take_over(started(facts=facts).save(), facts.server(1), range(3), [None, 0, 1, 2])
    assert moved.slot == SLOTS - 1
    assert moved.mailbox.held.sum() == plain.mailbox.held.sum() > 5
    mine, theirs = plain.smoothed(), moved.smoothed()
    assert bits(mine.estimate) == bits(theirs.estimate)
    for slot in range(SLOTS, SLOTS + 6):
        counts = COUNTS[slot, 1]
        records = others(FACTS, slot, 1)
        plain.observe(slot, counts)
        moved.observe(slot, counts)
        shifted = {(origin + 1, of): values for (origin, of), values in records.items()}
        one = plain.hear({9: message_of(records, list(records), FACTS.price)} if records else {})
        other = moved.hear({9: message_of(shifted, list(shifted), FACTS.price)} if shifted else {})
        assert bits(one.estimate) == bits(other.estimate), slot
        assert one.nano == other.nano, "it samples when it would have sampled"


def test_a_record_that_is_late_counts_after_the_change() -> None:
    """Servers that got it before the change and those that get it after release the same."""
    late = next(slot for slot in range(SLOTS - 3, SLOTS) if others(FACTS, slot, 1))
    again = replace(FACTS, phases=(FACTS.phases + 1) % 8)
    releases = []
    for missed in ((), (late,)):
        server = again.server(1)
        server.take_over(started(late=missed).save(), FACTS.server(1), range(3), range(3))
        server.observe(SLOTS, COUNTS[SLOTS, 1])
        records = others(FACTS, late, 1) if missed else {}
        releases.append(server.hear({9: message_of(records, list(records), FACTS.price)} if records else {}))
    assert bits(releases[0].estimate) == bits(releases[1].estimate)


@pytest.mark.parametrize(
    "change",
    [
        {"model": ProcessModel.of(1.0, np.full(3, 900.0))},
        {"samples": 4},
        {"lag": 7},
        {"guard": False},
    ],
    ids=["model", "samples", "lag", "guard"],
)
def test_where_records_mean_something_else_the_posterior_goes_on(change: dict[str, Any]) -> None:
    """No record of a slot before is accepted any more: at some servers it is in the posterior already."""
    new = replace(FACTS, **change)
    before = started()
    last = before.smoothed()
    server = new.server(1)
    server.take_over(before.save(), FACTS.server(1), range(3), range(3))
    assert int(server.mailbox.since) == SLOTS
    server.observe(SLOTS, None)
    slot = next(slot for slot in range(SLOTS - 1, 0, -1) if others(FACTS, slot, 1))
    records = others(FACTS, slot, 1)
    release = server.hear({9: message_of(records, list(records), min(new.price, FACTS.price))})
    assert bits(release.estimate) == bits(last.estimate[-1])
    assert (release.variance > last.variance[-1]).all()
    assert server.mailbox.late == len(records)


def test_a_new_region_has_no_information_yet() -> None:
    """Records of slots before do not have it: a zero in its place would be a measurement of nobody."""
    new = replace(FACTS, model=ProcessModel.of(1.0, np.full(3, 400.0)))
    server = new.server(1)
    last = started().smoothed()
    server.take_over(started().save(), FACTS.server(1), [2, None, 0], range(3))
    server.observe(SLOTS, None)
    release = server.hear()
    assert bits(release.estimate[[0, 2]]) == bits(last.estimate[-1][[2, 0]])
    assert np.isnan(release.estimate[1])


def test_a_server_that_has_left_is_forgotten() -> None:
    """Its records are in the posterior, and none of them comes any more."""
    new = replace(FACTS, shares=FACTS.shares[1:], phases=FACTS.phases[1:])
    server, last = new.server(0), started().smoothed()
    server.take_over(started().save(), FACTS.server(1), range(3), [1, 2])
    server.observe(SLOTS, None)
    assert bits(server.hear().estimate) == bits(last.estimate[-1])
    assert len(server.mailbox.paid_until) == 2


@pytest.mark.parametrize("phase", range(8))
def test_the_next_sample_is_when_it_would_have_been(phase: int) -> None:
    """Phases are spread over the graph, and a new link moves them; a sample that came too early would be refused."""
    plain, server = started(), replace(FACTS, phases=np.full(3, phase)).server(1)
    server.take_over(started().save(), FACTS.server(1), range(3), range(3))
    firsts = []
    for one in (plain, server):
        slot = SLOTS
        while True:
            one.observe(slot, COUNTS[slot, 1])
            if one.hear().nano:
                break
            slot += 1
        firsts.append(slot)
    assert firsts[0] == firsts[1]


def test_what_does_not_fit_is_refused() -> None:
    """A wrong list of servers would give one server's records to another."""
    with pytest.raises(BadInput, match="one place per server"):
        FACTS.server(1).take_over(started().save(), FACTS.server(1), range(3), [0, 1])


def test_deviations_of_servers_that_stay_are_remembered_with_other_regions() -> None:
    """Without them the next record of a server would count as if its deviation were a fresh one."""
    facts = replace(FACTS, observation="binomial", turnover=0.1)
    old = started(facts=facts)
    fewer = replace(facts, model=ProcessModel.of(1.0, np.array([100.0, 50.0])))
    moved = fewer.server(1)
    moved.take_over(old.save(), facts.server(1), [2, 0], range(3))
    before, after = (server._state for server in (old, moved))
    assert isinstance(before, RelayState)
    assert isinstance(after, RelayState)
    assert before.cross is not None
    assert after.cross is not None
    latest = before.cross[int(before.last) % before.lag]
    assert np.abs(latest).max() > 0.0
    for cross in after.cross:
        assert bits(cross) == bits(latest[..., [2, 0]])


def test_records_become_final_when_users_become_partitioned() -> None:
    """Earlier slots would be filtered again as if deviations had summed to 0 in them."""
    facts = replace(FACTS, observation="binomial", turnover=0.1)
    more = replace(facts, shares=np.array([0.4, *FACTS.shares]), phases=np.array([1, *FACTS.phases], dtype=np.int64))
    moved = more.server(2)
    moved.take_over(started(facts=facts).save(), facts.server(1), range(3), [None, 0, 1, 2])
    assert moved.mailbox.held.sum() == 0
    assert np.isfinite(moved._state.mean_var).all()


def test_who_joins_right_after_a_revision_gets_what_filters_have_learned() -> None:
    """The weights of their beliefs at the last final slot: those of the start would forget that a crowd has moved."""
    facts = replace(FACTS, learn=True)
    plain, moved = started(facts=facts), facts.server(1)
    moved.take_over(plain.save(), facts.server(1), range(3), range(3))
    before, after = (one.read_finalised(one.finalised_state()).bank for one in (plain, moved))
    assert before is not None
    assert after is not None
    assert bits(after) == bits(before)
    state = facts.server(1)
    play(state, facts, range(1), 1)
    fresh = state._state.base_bank
    assert np.abs(before[2] - fresh.weight[:, 0]).max() > 0.01, "they have learned something"


@pytest.mark.parametrize("learn", [True, False])
def test_a_revision_may_switch_learning(learn: bool) -> None:
    """With the records of a server that did not learn there are no filters that could, and the other way round."""
    old, new = (replace(FACTS, learn=value) for value in (not learn, learn))
    last, moved = started(facts=old).smoothed(), new.server(1)
    moved.take_over(started(facts=old).save(), old.server(1), range(3), range(3))
    assert isinstance(moved._state, RelayState)
    assert (moved._state.bank is not None) == learn
    assert (moved._state.base_bank is not None) == learn
    assert int(moved.mailbox.since) == SLOTS
    moved.observe(SLOTS, None)
    assert moved.hear().estimate == pytest.approx(last.estimate[-1])
    play(moved, new, range(SLOTS + 1, SLOTS + 6), 1)
    again = new.server(1)
    again.restore(moved.save())
    assert again.save() == moved.save()
