"""A synthetic crowd: people who are out or at home by the time of day, and move between regions.

Each person is one Markov chain. In a slot somebody at home goes out, or somebody who is out goes home, so that the part
of people who are out follows the day's rhythm; whoever stays out moves on with probability 0.08, to a region drawn by
how much it attracts at that hour. A day has 96 slots: quarters of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from dpcrowd.arrays import Floats, Ints

__all__ = ["DAY", "Present", "Source", "SyntheticCrowd", "change_variance", "pin_to_servers"]


DAY = 96
_STEPS = 4
_MOVES = 0.08
_LEAVES = 0.03  # of those who are out, even while the city fills
_REGIONS = ("centre", "station", "campus", "harbour", "park", "north", "south")
# How much a region attracts by day and by night; both sum to 1.
_BY_DAY = np.array([0.28, 0.18, 0.20, 0.10, 0.08, 0.08, 0.08])
_BY_NIGHT = np.array([0.16, 0.12, 0.06, 0.16, 0.06, 0.22, 0.22])


@dataclass(frozen=True, eq=False)
class Present:
    """Who is where in one slot: each person at most once, by number; regions by number."""

    people: Ints
    regions: Ints

    @property
    def total(self) -> int:
        """The truth that servers estimate: distinct people over all servers and regions."""
        return len(self.people)


class Source(Protocol):
    """Something that feeds a demo.

    regions      their names
    people       how many people there are, at home or out
    process_var  Q of network.toml
    note         a sentence on where the people come from
    """

    @property
    def regions(self) -> tuple[str, ...]: ...
    @property
    def people(self) -> int: ...
    @property
    def process_var(self) -> float: ...
    @property
    def note(self) -> str: ...

    def slots(self) -> Iterator[Present]: ...


@dataclass(frozen=True, eq=False)
class SyntheticCrowd:
    """An endless crowd. `rng` moves it; `public` draws another crowd of the same kind, which sets Q.

    Q must not come from the people who are counted; a network takes it from public or past data.
    """

    people: int
    rng: np.random.Generator
    public: np.random.Generator
    regions: tuple[str, ...] = _REGIONS

    @property
    def note(self) -> str:
        return f"a synthetic crowd of {self.people:,} people; a day has {DAY} slots"

    @property
    def process_var(self) -> float:
        return change_variance(islice(_walk(self.people, self.public), 2 * DAY), len(self.regions))

    def slots(self) -> Iterator[Present]:
        return _walk(self.people, self.rng)


def out_at(slot: int) -> float:
    """The part of people who are out: least at the start of a day, most in its middle."""
    return 0.7 - 0.15 * float(np.cos(2 * np.pi * slot / DAY))


def attraction(slot: int) -> Floats:
    """Of each region, for somebody who moves in this slot."""
    day = (out_at(slot) - 0.55) / 0.3
    return day * _BY_DAY + (1 - day) * _BY_NIGHT


def change_variance(slots: Iterator[Present], regions: int) -> float:
    """Q: the mean square of a region's change over four slots, a slot; or the total's over d if that is larger.

    The filter takes changes to be independent from slot to slot and from region to region. A crowd that rises and falls
    with the day does neither: four slots change it by more than twice one slot, and its sum by more than the regions
    apart. This Q has the spread of the total after four slots right, and is careful for each region.
    """
    counts = np.array([np.bincount(slot.regions, minlength=regions) for slot in slots], dtype=np.float64)
    over = min(_STEPS, len(counts) - 1)
    if over < 1:
        return 1.0
    steps = counts[over:] - counts[:-over]
    return float(max(1.0, np.mean(steps**2) / over, np.mean(steps.sum(axis=1) ** 2) / (over * regions)))


def pin_to_servers(people: int, servers: int, rng: np.random.Generator) -> Ints:
    """The server of each person, for good: a random partition into parts of equal size (up to one person)."""
    return rng.permutation(people).astype(np.int64) % servers


def _walk(people: int, rng: np.random.Generator) -> Iterator[Present]:
    def places(count: int, slot: int) -> Ints:
        return rng.choice(len(_REGIONS), size=count, p=attraction(slot)).astype(np.int64)

    out = rng.random(people) < out_at(0)
    region = places(people, 0)
    slot = 0
    while True:
        who = np.flatnonzero(out)
        yield Present(who, region[who])
        now, following = out_at(slot), out_at(slot + 1)
        # Some come while others leave; the two rates together keep the part that is out on the day's curve.
        leaves = max(_LEAVES, 1 - following / now)
        comes = min(1.0, (following - now * (1 - leaves)) / (1 - now))
        drawn = rng.random(people)
        came, stays = ~out & (drawn < comes), out & (drawn >= leaves)
        moves = came | (stays & (rng.random(people) < _MOVES))
        slot += 1
        region = region.copy()
        region[moves] = places(int(moves.sum()), slot)
        out = came | stays
