"""The finalised state of a neighbour: what is refused of it, and whose is taken where several have sent theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import msgpack

from dpcrowd.errors import BadInput
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.relay_join import FinalisedState, most_trusted
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from node_support_relay import counts_of, facts_of
from relay_support import Network, message_of
from schemes_support import account_for, bits

SLOTS, LAG = 12, 5


def facts(form: Any = "diagonal") -> Network:
    return replace(facts_of(servers=3), form=form, observation="binomial")


def ran(form: Any = "diagonal", number: int = 0) -> Server:
    network = facts(form)
    counts, server = counts_of(network, SLOTS), network.server(number)
    for slot in range(SLOTS):
        server.observe(slot, counts[slot, number])
        server.hear()
    return server


def changed(form: str, name: str, change: Callable[[Any], Any]) -> bytes:
    arrays = from_bytes(ran(form).finalised_state())
    arrays[name] = np.asarray(change(arrays[name]), dtype=arrays[name].dtype)
    return to_bytes(arrays)


def _first(value: float) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array.flat[0] = value
        return array

    return change


def _corner(value: float) -> Callable[[Any], Any]:
    """Changes a covariance between two regions, at one of its two places."""

    def change(array: Any) -> Any:
        array[0, 1] = value
        return array

    return change


@pytest.mark.parametrize(
    ("form", "name", "change", "text"),
    [
        ("diagonal", "base", _first(np.nan), "finite"),
        ("diagonal", "base", _first(1e300), "finite"),
        ("diagonal", "base", lambda base: base[:2], "allowed"),
        ("diagonal", "base_var", _first(-1.0), "below 0"),
        ("diagonal", "base_var", _first(np.nan), "below 0"),
        ("matrix", "base_var", _first(np.inf), "finite"),
        ("matrix", "base_var", _corner(5.0), "symmetric"),
        ("matrix", "base_var", lambda base: base - 2 * np.diag(np.diag(base)), "positive"),
        ("diagonal", "base_recent", _first(-1.0), "residuals"),
        ("diagonal", "paid_until", _first(10**9), "paid for slots to come"),
        ("diagonal", "paid_until", _first((SLOTS - LAG) * 3 + 8), "paid for slots to come"),
        ("diagonal", "paid_until", _first(7), "less than one sample"),
        ("diagonal", "paid_until", _first(-1), "less than one sample"),
        ("diagonal", "base_var", _first(0.0), "too certain"),
        ("diagonal", "base_var", lambda var: var * 1e-6, "too certain"),
        ("matrix", "base_var", lambda var: var * 1e-6, "too certain"),
        ("diagonal", "level", _first(np.inf), "level"),
        ("diagonal", "level_var", _first(-2.0), "level_var"),
        ("diagonal", "score", _first(np.nan), "score"),
        ("diagonal", "usual", _first(-1.0), "usual"),
        ("diagonal", "usual", _first(50.0), "usual"),
        ("diagonal", "score", _first(9.0), "follow from its scores"),
        ("diagonal", "suspicious", lambda flags: ~flags, "suspects without"),
        ("diagonal", "penalty", _first(0.5), "penalty"),
        ("diagonal", "penalty", lambda penalty: penalty + 20.0, "follow from its scores"),
        ("diagonal", "penalty", _first(1e9), "penalty"),
        ("diagonal", "slot", lambda slot: slot - 9, "slot 2"),
        ("diagonal", "since", lambda slot: slot + 99, "accounts"),
    ],
)
def test_a_state_that_no_server_could_have_is_refused(form: Any, name: str, change: Any, text: str) -> None:
    """It is one neighbour's word: a number that is absurd would be in every estimate from then on."""
    joiner = facts(form).server(1)
    before = joiner.save()
    with pytest.raises(BadInput, match=text):
        joiner.read_finalised(changed(form, name, change))
    assert joiner.save() == before


def test_bytes_of_something_else_are_refused() -> None:
    """A state with other fields, or none, is of another version or another network."""
    joiner, arrays = facts().server(1), from_bytes(ran().finalised_state())
    with pytest.raises(BadInput, match="not a saved"):
        joiner.read_finalised(b"\x00")
    blocks = msgpack.decode(to_bytes(arrays))
    blocks["level"][0] = "(1,2"
    with pytest.raises(BadInput, match="numbers of the kind"):  # numpy would stumble over it, and end the process
        joiner.read_finalised(msgpack.encode(blocks))
    del arrays["level"]
    with pytest.raises(BadInput, match="level"):
        joiner.read_finalised(to_bytes(arrays))


def test_a_server_joins_forwards_and_between_slots() -> None:
    """A slot that it has released, or drawn for, is not given up for a neighbour's."""
    joiner, ahead = facts().server(1), ran(number=1)
    state = joiner.read_finalised(ran().finalised_state())
    ahead.observe(SLOTS, None)
    with pytest.raises(BadInput, match="still open"):
        ahead.join(state)
    ahead.hear()
    with pytest.raises(BadInput, match="released slot 12 already"):
        ahead.join(state)
    assert ahead.joined is None


def test_who_joins_spends_from_its_own_account_and_keeps_its_schedule() -> None:
    """The neighbour's ledger is not its own: who joins pays for its next sample, when its own schedule says so."""
    network = facts()
    joiner = network.server(1, account_for(network.guarantee))
    joiner.join(joiner.read_finalised(ran().finalised_state()), None, ["server-0"])
    assert joiner.account is not None
    assert joiner.account.count == 0
    sampled = []
    for slot in range(SLOTS, SLOTS + 16):
        joiner.observe(slot, [200, 200, 200])
        sampled.append(bool(joiner.hear().sampled.any()))
    assert sampled == [network.due(slot, 1) for slot in range(SLOTS, SLOTS + 16)]


def learning(number: int = 0) -> Server:
    """A server that learns shares, before its first slot."""
    network = facts()
    return replace(network, shares=np.array([0.2, 0.3, 0.5]), share_width=0.1, turnover=0.1).server(number)


def learned_for(slots: int) -> Server:
    server, counts = learning(), counts_of(facts(), slots)
    for slot in range(slots):
        server.observe(slot, counts[slot, 0])
        server.hear()
    return server


def test_who_joins_knows_the_learned_shares() -> None:
    """A server that began to learn anew would release other bits than its neighbours, from the same records."""
    neighbour, joiner = learned_for(24), learning(1)
    finalised = joiner.read_finalised(neighbour.finalised_state())
    joiner.join(finalised, None, ["server-0"])
    mine, theirs = joiner.learned_shares(), neighbour.learned_shares()
    assert mine is not None
    assert theirs is not None
    assert [bits(part) for part in mine] == [bits(part) for part in theirs]
    start = learning().learned_shares()
    assert start is not None
    assert bits(mine[1]) != bits(start[1])
    again = from_bytes(joiner.finalised_state())
    for name in ("learned", "learner", "learner_cov", "learner_begun"):
        assert bits(again[name]) == bits(getattr(finalised, name))


def test_learned_shares_say_as_of_which_slot_they_are() -> None:
    """They lag, so that a reader who compares them with today's shares is wrong by what has moved meanwhile."""
    server, other = learned_for(24), learning()
    lag = facts().lag
    assert server.learned_slot == 23 - lag
    assert learning().learned_slot is None
    assert facts().server(0).learned_slot is None
    counts = counts_of(facts(), 24)
    counts[23 - lag + 1 :] *= 3  # nothing after that slot is in them
    for slot in range(24):
        other.observe(slot, counts[slot, 0])
        other.hear()
    mine, theirs = server.learned_shares(), other.learned_shares()
    assert mine is not None
    assert theirs is not None
    assert [bits(part) for part in mine] == [bits(part) for part in theirs]


def test_covariances_of_learned_shares_are_their_lower_halves() -> None:
    """A state has lower halves: of matrices that were symmetric up to rounding only, who joins would get other bits."""
    for server in (learning(), learned_for(24)):
        learned = server._relay()[1].learned
        assert learned is not None
        assert bits(learned.learner.cov) == bits(learned.learner.cov.swapaxes(-1, -2))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("learned", 1.5, "learned shares"),
        ("learned", np.nan, "learned shares"),
        ("learner", np.inf, "finite"),
        ("learner_cov", np.nan, "finite"),
        ("learner_cov", -1e9, "positive"),
    ],
)
def test_learned_shares_that_nobody_could_have_are_refused(name: str, value: float, text: str) -> None:
    """A neighbour's word must not break the filter of who joins."""
    arrays = from_bytes(learned_for(12).finalised_state())
    arrays[name].flat[0] = value
    with pytest.raises(BadInput, match=text):
        learning(1).read_finalised(to_bytes(arrays))


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("learner", lambda learner: learner[:, -2:-1] * 0.0, "nobody"),
        ("learner", lambda learner: learner[:, -2:-1] * -1.0, "nobody"),
        ("learner", lambda learner: learner[:, -1:] + 0.5, "which crowds"),
        ("learner_begun", lambda begun: begun * 0 - 1, "which crowds"),
        ("learner", lambda learner: learner[:, :1] * 100.0, "another crowd"),
        ("learner", lambda learner: learner[:, 1:4] + learner[:, :1] * [[0.3, -0.2, -0.1]], "do not follow"),
        ("learner_cov", lambda cov: cov * 1e-9, "do not follow"),
    ],
)
def test_a_joint_filter_that_does_not_fit_the_rest_is_refused(name: str, change: Any, text: str) -> None:
    """Every later estimate rests on it: without a scale these were not numbers, and a certain lie stayed for good."""
    arrays = from_bytes(learned_for(24).finalised_state())
    new = change(arrays[name])
    if name == "learner":
        columns = {"nobody": slice(-2, -1), "which crowds": slice(-1, None), "do not follow": slice(1, 4)}
        arrays[name][:, columns.get(text, slice(0, 1))] = new
    else:
        arrays[name] = new
    with pytest.raises(BadInput, match=text):
        learning(1).read_finalised(to_bytes(arrays))


def test_learned_shares_outlive_a_long_silence_and_a_restart() -> None:
    """Shares are constant: who was away for a day must not forget what a week of records has shown."""
    server = learned_for(24)
    before = server.learned_shares()
    fresh = learning()
    fresh.restore(server.save())
    fresh.observe(400, [200, 200, 200])
    release = fresh.hear()
    after = fresh.learned_shares()
    assert np.isfinite(release.estimate).all()
    assert before is not None
    assert after is not None
    assert np.allclose(before[0], after[0], atol=0.05)


def test_whose_word_it_was_is_known_after_a_new_revision() -> None:
    """Operators see it as long as the estimate goes on."""
    network = facts()
    joiner, later = network.server(1), replace(network, model=ProcessModel.of(1.0, np.full(3, 500.0)))
    joiner.join(joiner.read_finalised(ran().finalised_state()), None, ["server-0", "server-2"])
    moved = later.server(1)
    moved.take_over(joiner.save(), network.server(1), range(3))
    assert moved.joined == joiner.joined
    assert moved.joined is not None
    assert moved.joined.sources == ("server-0", "server-2")


def state_with(base: float, variance: float) -> FinalisedState:
    state = ran(number=0)
    whole = facts().server(1).read_finalised(state.finalised_state())
    return replace(whole, base=np.full(3, base), base_var=np.full(3, variance))


def test_of_two_that_disagree_nobody_is_believed() -> None:
    """One of them is wrong, and nobody can say which."""
    assert most_trusted({"a": state_with(100.0, 1.0), "b": state_with(200.0, 1.0)}) == ([], ["a", "b"])


def test_the_same_bits_are_the_normal_case() -> None:
    """All who have sent them are named."""
    assert most_trusted({"a": state_with(100.0, 1.0), "b": state_with(100.0, 1.0)}) == (["a", "b"], [])
    assert most_trusted({"a": state_with(100.0, 1.0)}) == (["a"], [])


def test_the_majority_is_believed_and_the_others_are_named() -> None:
    """One of three that lies, or is broken, neither decides nor stops the others."""
    states = {"a": state_with(100.0, 1.0), "b": state_with(900.0, 1.0), "c": state_with(101.0, 1.0)}
    taken, others = most_trusted(states)
    assert taken == ["a"]
    assert others == ["b"]


def test_of_two_that_can_both_be_right_the_less_certain_one_is_taken() -> None:
    """Whoever lies gains nothing by claiming certainty. Nothing at all is known by no server that answers."""
    states = {"a": state_with(100.0, 50.0), "b": state_with(102.0, 1.0)}
    assert most_trusted(states) == (["a"], [])
    unknown = {"a": state_with(0.0, np.inf), "b": state_with(102.0, 1.0)}
    assert most_trusted(unknown) == (["b"], [])


def test_of_several_that_can_be_right_the_one_in_the_middle_is_taken() -> None:
    """One that claims to know hardly anything must not make the knowledge of the others count for nothing."""
    states = {"a": state_with(0.0, 1e9), "b": state_with(102.0, 4.0), "c": state_with(101.0, 2.0)}
    assert most_trusted(states) == (["b"], [])


def test_what_most_have_sent_is_taken_before_anything_else() -> None:
    """Servers with the same records send the same bits; one that differs has other records, or lies."""
    same = state_with(100.0, 1.0)
    states = {"a": state_with(100.5, 50.0), "b": same, "c": same, "d": state_with(99.0, 3.0)}
    assert most_trusted(states) == (["b", "c"], [])
    contradicted = {"a": state_with(500.0, 1.0), "b": same, "c": same, "d": state_with(99.0, 3.0)}
    assert most_trusted(contradicted) == (["b", "c"], ["a"])


def test_two_against_two_is_no_majority() -> None:
    """Each pair confirms itself, and nobody can say which is right."""
    one, other = state_with(100.0, 1.0), state_with(500.0, 1.0)
    assert most_trusted({"a": one, "b": one, "c": other, "d": other}) == ([], ["a", "b", "c", "d"])


def test_shares_come_from_the_own_configuration() -> None:
    """Builds before this one have sent theirs: they are not read, and a share of 1 would let records count little."""
    joiner, arrays = facts().server(1), from_bytes(ran().finalised_state())
    assert "shares" not in arrays
    plain = joiner.read_finalised(to_bytes(arrays))
    state = joiner.read_finalised(to_bytes(arrays | {"shares": np.ones((LAG, 3))}))
    assert state.to_bytes() == plain.to_bytes()
    joiner.join(state)
    assert np.array_equal(joiner._state.shares, np.tile(facts().shares, (LAG, 1)))


def test_a_level_that_does_not_follow_from_the_estimate_is_refused() -> None:
    """A level of a million people would let the records of the last slots count for nothing."""
    with pytest.raises(BadInput, match="level"):
        facts().server(1).read_finalised(changed("diagonal", "level", lambda level: level + 1000.0))


def test_beliefs_that_do_not_follow_from_the_estimate_are_refused() -> None:
    """The filter goes on with the beliefs: the estimate alone would be checked, and never used."""
    network = replace(facts(), learn=True)
    counts, server = counts_of(network, SLOTS), network.server(0)
    for slot in range(SLOTS):
        server.observe(slot, counts[slot, 0])
        server.hear()
    arrays = from_bytes(server.finalised_state())
    network.server(1).read_finalised(to_bytes(arrays))
    arrays["bank"] = arrays["bank"] + np.array([50.0, 0.0, 0.0])[:, None, None]
    with pytest.raises(BadInput, match="beliefs"):
        network.server(1).read_finalised(to_bytes(arrays))


@pytest.mark.parametrize(("sources", "taken"), [(["a"], False), (["a", "b"], True)])
def test_one_neighbour_cannot_silence_most_servers(sources: list[str], taken: bool) -> None:
    """It claims that two of three are broken, and a wrong estimate: their records would not contradict it."""
    network = facts()
    world = {number: network.server(number) for number in range(3)}
    counts, sent = counts_of(network, SLOTS), {}
    for slot in range(SLOTS):
        for number, server in world.items():
            server.observe(slot, counts[slot, number])
            if (sample := server.open_sample()) is not None:
                sent[number, slot] = sample[1].copy()
        for number, server in world.items():
            keys = [key for key in sorted(sent) if key[1] == slot and key[0] != number]
            server.hear({3: message_of(sent, keys, network.price)} if keys else None)
    arrays = from_bytes(world[0].finalised_state())
    for name in ("base", "level"):
        arrays[name] = arrays[name] * 2.0
    score = np.array([1.0, 100.0, 100.0])
    arrays |= {"score": score, "penalty": np.tile(np.where(score > 1.0, 1e4, 1.0), (LAG, 1))}
    arrays["suspicious"] = np.ones(LAG, dtype=np.bool_)
    joiner = network.server(1)
    keys = [key for key in sorted(sent) if key[1] >= SLOTS - LAG]
    joiner.join(joiner.read_finalised(to_bytes(arrays)), message_of(sent, keys, network.price), sources)
    assert bool(joiner.suspects()) == taken
    joiner.observe(SLOTS, None)
    release, truth = joiner.hear(), world[0].smoothed().estimate[-1]
    assert (np.abs(release.estimate / truth - 1.0).max() < 0.1) != taken


def test_the_state_of_a_server_is_not_changed_by_who_reads_it() -> None:
    """It is a copy: the sender goes on with its own numbers."""
    server = ran()
    before, state = bits(server.smoothed().estimate), facts().server(1).read_finalised(server.finalised_state())
    state.base[:] = -1.0
    assert bits(server.smoothed().estimate) == before


@pytest.mark.parametrize("first", [0, 1000])
def test_a_state_of_the_first_slots_can_be_taken(first: int) -> None:
    """A server that began less than L slots ago knows its model alone of the slots before; its state was refused."""
    profile = np.array([[1000.0, 400.0], [300.0, 500.0], [600.0, 100.0]])
    course = Course(profile, np.full((3, 2), 900.0), season=3, step=1)
    network = Network(
        np.array([0.5, 0.3, 0.2]),
        ProcessModel.around(course, 0.8),
        Guarantee.window(4, epsilon=8.0),
        samples=4,
        phases=np.zeros(3, dtype=np.int64),
        observation="binomial",
        learn=True,
    )
    neighbour = network.server(0)
    taken = 0
    for slot in range(first, first + 8):
        crowd = profile[slot % 3]
        neighbour.observe(slot, np.rint(0.5 * crowd).astype(int))
        records = {(origin, slot): np.rint(network.shares[origin] * crowd) for origin in (1, 2)}
        neighbour.hear({9: message_of(records, list(records), network.price)})
        if neighbour.can_be_joined:
            state = network.server(1).read_finalised(neighbour.finalised_state())
            assert np.isfinite(state.base).all()
            taken += 1
    assert taken == (4 if first == 0 else 8)
