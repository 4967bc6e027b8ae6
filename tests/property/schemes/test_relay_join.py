"""A server that joins with a neighbour's finalised state: from then on it releases the neighbour's bits.

Whatever the form, the observation, the guard, the guarantee and the records that are late: a number that is missing
from the finalised state would show as another bit, sooner or later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.server import Joined, Server
from examples_support import examples
from relay_support import KnownNoise, Network, message_of
from schemes_support import bits

SERVERS, LAG, AFTER, JOINER, NEIGHBOUR = 6, 5, 13, 4, 1
REGIONS = 2
Records = dict[tuple[int, int], Any]


def facts_of(**options: Any) -> Network:
    finite, roaming = options.pop("finite", False), options.pop("roaming", False)
    kind = Guarantee.finite if finite else Guarantee.window
    model = ProcessModel.of(np.array([[0.9, 0.1], [0.1, 0.9]]), np.diag([100.0, 50.0]))
    if options.get("form", "diagonal") == "diagonal":
        model = ProcessModel.of(1.0, [100.0, 50.0])
    return Network(
        shares=np.linspace(0.2, 0.7, SERVERS),
        model=model,
        guarantee=kind(80 if finite else 20, 4.0 if finite else 1.0, users="roaming" if roaming else "pinned"),
        samples=28 if finite else 7,
        phases=np.arange(SERVERS, dtype=np.int64) * (0 if roaming else 3) % 20,
        lag=LAG,
        **options,
    )


@dataclass
class World:
    """A network in which every record reaches the joiner and its neighbour, some of them late, in the same slot.

    The others only send, and would release what nobody compares: their records are computed without a server.
    """

    facts: Network
    seed: int
    broken: int | None = 2
    servers: dict[int, Server] = field(default_factory=dict)
    sent: Records = field(default_factory=dict)
    arrives: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.servers = {number: self.facts.server(number) for number in (JOINER, NEIGHBOUR)}

    def run(self, slots: range) -> dict[int, list[Any]]:
        """Let slots pass; give the releases of each server."""
        releases: dict[int, list[Any]] = {number: [] for number in self.servers}
        for slot in slots:
            counts = ((np.array([900, 300]) + 4 * slot) * self.facts.shares[:, None]).astype(np.int64)
            if self.broken is not None:
                counts[self.broken] *= 9
            noisy = KnownNoise(SERVERS, REGIONS).noisy(slot, counts, None, None, True)
            for number in range(SERVERS):
                if number in self.servers:
                    self.servers[number].observe(slot, counts[number])
                    if (sample := self.servers[number].open_sample()) is not None:
                        self.sent[number, slot], self.arrives[number, slot] = sample[1].copy(), slot
                elif number not in (JOINER, NEIGHBOUR) and self.facts.due(slot, number):
                    late = 0 if self.rng.random() < 0.6 else int(self.rng.integers(0, LAG))
                    self.sent[number, slot], self.arrives[number, slot] = noisy[number], slot + late
            arrived = [key for key, at in self.arrives.items() if at == slot]
            for number, server in self.servers.items():
                keys = sorted(key for key in arrived if key[0] != number)
                heard = {SERVERS: message_of(self.sent, keys, self.facts.price)} if keys else None
                releases[number].append(server.hear(heard))
        return releases

    def records_until(self, last: int) -> RecordMessages | None:
        """What every server has of the last L slots."""
        keys = sorted(key for key, at in self.arrives.items() if last - LAG < key[1] and at <= last)
        return message_of(self.sent, keys, self.facts.price) if keys else None


def assert_same(mine: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert bits(one.estimate) == bits(other.estimate), one.slot
        assert bits(one.variance) == bits(other.variance), one.slot


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@settings(max_examples=examples(18))
@given(
    observation=st.sampled_from(["paper", "binomial"]),
    guard=st.booleans(),
    last=st.integers(LAG - 1, 32),
    seed=st.integers(0, 10**6),
    finite=st.booleans(),
    roaming=st.booleans(),
    fresh=st.booleans(),
)
@pytest.mark.slow
def test_who_joins_releases_the_bits_of_its_neighbour(
    form: Any, observation: Any, guard: bool, last: int, seed: int, finite: bool, roaming: bool, fresh: bool
) -> None:
    """A level, score, account, share or own record that did not travel would make its estimates its own for good."""
    facts = facts_of(form=form, observation=observation, guard=guard, finite=finite, roaming=roaming)
    world = World(facts, seed)
    begun = max(last - LAG - 3, 0)
    world.run(range(begun))
    joiner = world.servers[JOINER]
    if fresh:  # it has lost its folder; others have its records
        joiner = facts.server(JOINER)
    else:
        del world.servers[JOINER]
    world.run(range(begun, last + 1))
    neighbour = world.servers[NEIGHBOUR]
    joiner.join(joiner.read_finalised(neighbour.finalised_state()), world.records_until(last), ["server-1"])
    assert joiner.slot == last
    assert joiner.finalised_state() == neighbour.finalised_state(), "it may answer the next server that joins"
    world.servers[JOINER] = restored = facts.server(JOINER)
    restored.restore(joiner.save())
    assert restored.joined == joiner.joined == Joined(("server-1",), last)
    releases = world.run(range(last + 1, last + AFTER))
    assert_same(releases[JOINER], releases[NEIGHBOUR])
    assert any(release.sampled.any() for release in releases[JOINER]) or finite


@pytest.mark.parametrize("options", [{"learn": True}, {"turnover": 0.1}, {"learn": True, "turnover": 0.1}])
@settings(max_examples=examples(6))
@given(st.integers(LAG - 1, 30), st.integers(0, 10**6))
@pytest.mark.slow
def test_who_joins_takes_what_was_learned(options: dict[str, Any], last: int, seed: int) -> None:
    """Beliefs, and what errors have in common with deviations, follow from all records since the beginning."""
    facts = facts_of(observation="binomial", **options)
    world = World(facts, seed)
    del world.servers[JOINER]
    world.run(range(last + 1))
    joiner, neighbour = facts.server(JOINER), world.servers[NEIGHBOUR]
    joiner.join(joiner.read_finalised(neighbour.finalised_state()), world.records_until(last), ["server-1"])
    world.servers[JOINER] = joiner
    releases = world.run(range(last + 1, last + AFTER))
    assert_same(releases[JOINER], releases[NEIGHBOUR])


@pytest.mark.parametrize("same_model", [True, False])
@pytest.mark.parametrize("since", range(1, LAG + 3))
def test_who_joins_after_a_revision_has_the_bits_of_those_who_were_there(same_model: bool, since: int) -> None:
    """Slots whose records are final with it are part of the state; shares of before come from the earlier revision."""
    facts = facts_of(observation="binomial")
    later = replace(facts, shares=facts.shares[::-1].copy())
    if not same_model:
        later = replace(later, model=ProcessModel.of(1.0, [200.0, 80.0]))
    world = World(facts, 3)
    world.run(range(20))
    for number, server in list(world.servers.items()):
        world.servers[number] = later.server(number)
        world.servers[number].take_over(server.save(), facts.server(number), range(REGIONS))
    world.facts = later
    if not same_model:
        world.arrives = {key: at for key, at in world.arrives.items() if at < 20}
    last = 19 + since
    world.run(range(20, last + 1))
    joiner, neighbour = later.server(JOINER), world.servers[NEIGHBOUR]
    shares = np.tile(later.shares, (LAG, 1))
    for slot in range(last - LAG + 1, 20):
        shares[slot % LAG] = facts.shares
    state = joiner.read_finalised(neighbour.finalised_state(), first_slot=20)
    joiner.join(state, world.records_until(last), shares=shares)
    world.servers[JOINER] = joiner
    releases = world.run(range(last + 1, last + AFTER))
    assert_same(releases[JOINER], releases[NEIGHBOUR])
