"""A server that goes on under another setting: what stays, what is refused, and that nothing of it creates budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from schemes_support import TUNING, bits, lone_server
from schemes_support_transfer import (
    CASES,
    CHANGED,
    OLD,
    Live,
    agree,
    counts_of,
    places,
    predicted,
    restored,
    run,
    saved,
    taken,
)

every_case = pytest.mark.parametrize("case", CASES, ids=str)
LATER = range(CHANGED, CHANGED + 15)


@every_case
def test_with_the_same_regions_it_is_a_restore(case: Live) -> None:
    """An operator who changes a link must not move a single estimate by it."""
    state = saved(case)
    first, second = restored(case, state), taken(case, OLD, state)
    assert second.save() == first.save()
    one, other = run(first, OLD, LATER), run(second, OLD, LATER)
    assert np.isfinite(one[-1].estimate).all()
    assert agree("diagonal", one, OLD, other, OLD, OLD)
    assert second.save() == first.save()


@every_case
def test_an_open_slot_is_released_first(case: Live) -> None:
    """A server that was killed between the two calls has paid for that slot: its sample is fused, not forgotten."""
    before = case.server()
    run(before, OLD, range(CHANGED))
    before.observe(CHANGED, counts_of(CHANGED, OLD))
    state = before.save()
    before.hear()
    after = taken(case, OLD, state)
    assert after.slot == CHANGED
    assert after.open_slot is None
    assert after.save() == before.save()


@every_case
def test_regions_in_another_order_keep_their_numbers(case: Live) -> None:
    """A list that somebody sorted would hand each region the estimate, the history and the interval of another."""
    state, order = saved(case), "dacb"
    one, other = run(restored(case, state), OLD, LATER), run(taken(case, order, state), order, LATER)
    assert agree(case.form, one, OLD, other, order, OLD)
    assert not agree(case.form, one, OLD, other, OLD, OLD)


@every_case
def test_what_is_known_of_a_region_survives_the_removal_of_another(case: Live) -> None:
    """Without the marginal, the rest would begin anew or keep the rows of a region that is gone."""
    state, rest = saved(case), "db"
    old, new = predicted(restored(case, state)), predicted(taken(case, rest, state))
    assert np.isfinite(old.estimate).all()
    assert agree(case.form, [old], OLD, [new], rest, rest)


@pytest.mark.parametrize("case", [case for case in CASES if case.sampling == "fixed"], ids=str)
def test_a_removed_region_leaves_no_trace(case: Live) -> None:
    """Where regions do not touch one another, the others go on as if nothing had happened."""
    state, rest = saved(case, hears=False), "db"
    one = run(restored(case, state), OLD, LATER, hears=False)
    assert agree(case.form, one, OLD, run(taken(case, rest, state), rest, LATER, hears=False), rest, rest)


@every_case
@pytest.mark.parametrize("new", [OLD, "ba", "abcdef", "ef"])
def test_what_was_spent_stays_spent(case: Live, new: str) -> None:
    """If new regions brought new budget, every revision of the network would break the promise."""
    state = saved(case)
    old = restored(case, state)
    after = taken(case, new, state, share=0.25, number=2)
    left = [old.remaining(slot) for slot in range(CHANGED, CHANGED + 10)]
    assert left[0] < old.setting.need_guarantee().total
    assert [after.remaining(slot) for slot in range(CHANGED, CHANGED + 10)] == left
    with pytest.raises(BadInput, match=f"slot {CHANGED - 1} was given after slot {CHANGED - 1}"):
        after.observe(CHANGED - 1, counts_of(0, new))


@every_case
def test_another_share_changes_no_estimate(case: Live) -> None:
    """Estimates are of the whole population: only the next sample is read with the new share."""
    state = saved(case)
    old, new = restored(case, state), taken(case, OLD, state, share=0.25, number=3)
    assert bits(predicted(old).estimate) == bits(predicted(new).estimate)
    slots = range(CHANGED + 1, CHANGED + 9)
    last, other = run(old, OLD, slots)[-1], run(new, OLD, slots, share=0.25)[-1]
    assert bits(last.estimate) != bits(other.estimate)
    assert np.allclose(last.estimate, other.estimate, rtol=0.5, atol=60.0)


@every_case
def test_another_model_takes_the_estimates_as_they_are(case: Live) -> None:
    """A and Q say how a crowd moves on, not where it is."""
    state = saved(case)
    model = ProcessModel.of(0.5, [9.0] * 4)
    old, new = predicted(restored(case, state)), predicted(taken(case, OLD, state, model=model))
    assert np.allclose(new.estimate, 0.5 * old.estimate)


def test_the_price_of_a_sample_is_the_new_one() -> None:
    """It lies in the state, but comes from the setting: at the old price a shorter interval would drain the budget."""
    case = Live("dpcrowd-w", sampling="fixed")
    before = case.server()
    run(before, OLD, range(CHANGED))
    after = case.server(interval=1)
    after.take_over(before.save(), case.server(), places(OLD))
    slots = range(CHANGED, CHANGED + 24)
    paid = [release.epsilon for release in run(after, OLD, slots)]
    assert set(paid[8:]) == {3.0 / 8}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"form": "matrix"}, "has form diagonal; this server has matrix: start anew"),
        ({"accounting": "per-region"}, "has accounting sound; this server has per-region: start anew"),
        ({"guarantee": Guarantee.window(9, 3.0)}, "has guarantee .*; this server has .*: start anew"),
        ({"guarantee": Guarantee.window(8, 4.0)}, "has guarantee .*; this server has .*: start anew"),
        ({"tuning": replace(TUNING, history=5)}, r"'state.history' .* is float64\(1, 3, 4\); .* float64\(1, 5, 4\)"),
        ({"tuning": replace(TUNING, integral_window=3)}, r"'state.controllers.errors' .*\(1, 4, 5\); .*\(1, 4, 3\)"),
    ],
    ids=["form", "accounting", "window", "epsilon", "history", "errors"],
)
def test_another_kind_of_state_is_refused(change: dict[str, Any], why: str) -> None:
    """A window of another length expires at other slots; a ring of another length reads old errors as new ones."""
    case = Live("dpcrowd-plus")
    server = case.server(**change)
    fresh = server.save()
    with pytest.raises(BadInput, match=why) as refused:
        server.take_over(saved(case), case.server(), places(OLD))
    assert "\n" not in str(refused.value)
    assert server.save() == fresh
    run(server, OLD, range(3), hears=False)


def test_another_scheme_or_another_servers_state_is_refused() -> None:
    """Controllers mean something else to another scheme, though most shapes agree."""
    plus, blocks = Live("dpcrowd-plus"), Live("dpcrowd-w")
    with pytest.raises(BadInput, match="is of scheme 'dpcrowd-w'; this server runs 'dpcrowd-plus': start anew"):
        plus.server().take_over(saved(blocks), blocks.server(), places(OLD))
    with pytest.raises(BadInput, match="is of another server or setting"):
        plus.server().take_over(saved(plus), plus.server(share=0.4), places(OLD))
    with pytest.raises(BadInput, match="not a saved server state"):
        plus.server().take_over(b"nonsense", plus.server(), places(OLD))
    alone = lone_server("sample")
    with pytest.raises(BadInput, match="scheme 'sample' cannot go on under another setting; only live schemes can"):
        lone_server("sample").take_over(alone.save(), alone, [0, 1, 2])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([0, 1, 2], "one place per region is needed, 4 in all; given 3"),
        ([0, 1, 2, 4], "a whole number from 0 to 3, or None; given 4"),
        ([0, 1, 2, -1], "a whole number from 0 to 3, or None; given -1"),
        ([0, 1, 2, 3.0], "a whole number from 0 to 3, or None; given 3.0"),
        ([0, True, 2, 3], "a whole number from 0 to 3, or None; given True"),
        ([0, 1, 2, 2], "two regions cannot come from one place"),
    ],
)
def test_places_that_are_none_are_refused(given: Any, why: str) -> None:
    """-1 would be the last region, and a place given twice would split one crowd into two full ones."""
    case = Live("dpcrowd-plus")
    with pytest.raises(BadInput, match=why):
        case.server().take_over(saved(case), case.server(), given)


def test_only_a_server_that_has_done_nothing_takes_over() -> None:
    """The state would replace a slot that was paid for."""
    case = Live("dpcrowd-plus")
    used = case.server()
    run(used, OLD, range(1))
    left = used.remaining(6)
    with pytest.raises(BadInput, match="before the first slot; this server has observed slot 0"):
        used.take_over(saved(case), case.server(), places(OLD))
    assert used.remaining(6) == left


def test_per_region_accounts_go_with_their_regions() -> None:
    """In the paper's accounting a region has a budget of its own, which it keeps wherever it stands."""
    guarantee = Guarantee.window(8, 3.0)
    case = Live("dpcrowd-plus")
    before = case.server(accounting="per-region", guarantee=guarantee)
    run(before, OLD, range(CHANGED))
    after = case.server("cad", accounting="per-region", guarantee=guarantee)
    after.take_over(before.save(), case.server(accounting="per-region", guarantee=guarantee), places("cad"))
    spent = before._state.ledger.spent[0]
    assert spent.any()
    assert after._state.ledger.spent[0].tolist() == spent[[2, 0, 3]].tolist()
