"""A synthetic crowd: people are out or at home by the time of day, and move between regions.

Each person is a Markov chain. In each slot some people at home go out and some who are out go home, so that the
fraction of people who are out follows the rhythm of the day; those who stay out move with probability 0.08, to a region
drawn by its attraction at that hour. A day has 96 slots of a quarter of an hour.
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
_LEAVES = 0.03  # fraction of those who are out, even while the city fills
_REGIONS = ("centre", "station", "campus", "harbour", "park", "north", "south")
# Attraction of each region by day and by night; each sums to 1.
_BY_DAY = np.array([0.28, 0.18, 0.20, 0.10, 0.08, 0.08, 0.08])
_BY_NIGHT = np.array([0.16, 0.12, 0.06, 0.16, 0.06, 0.22, 0.22])


@dataclass(frozen=True, eq=False)
class Present:
    """The people who are out in one slot: numbers of people, each at most once, and the numbers of their regions."""

    people: Ints
    regions: Ints

    @property
    def total(self) -> int:
        """The truth that servers estimate: distinct people over all servers and regions."""
        return len(self.people)


class Source(Protocol):
    """The people of a demo.

    regions      names of the regions
    people       number of people, at home or out
    process_var  Q of network.toml
    note         where the people come from, as a phrase
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
    """An endless crowd. `rng` moves its people; `public` moves another crowd of the same kind, which gives Q.

    Q must not come from the people who are counted: a network takes it from published data or earlier releases.
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
    """Return the fraction of people who are out: least at the start of a day, most in its middle."""
    return 0.7 - 0.15 * float(np.cos(2 * np.pi * slot / DAY))


def attraction(slot: int) -> Floats:
    """Return the probability of each region for a person who moves in this slot."""
    day = (out_at(slot) - 0.55) / 0.3
    return day * _BY_DAY + (1 - day) * _BY_NIGHT


def change_variance(slots: Iterator[Present], regions: int) -> float:
    """Return Q: the mean square of a region's change over four slots, per slot; or that of the total over d if larger.

    The filter assumes that changes are independent between slots and between regions. In a crowd that rises and falls
    with the day they are not: it changes more in four slots than independent changes would, and so does its total. This
    Q gives the total the correct spread after four slots, and is conservative for each region.
    """
    counts = np.array([np.bincount(slot.regions, minlength=regions) for slot in slots], dtype=np.float64)
    lag = min(_STEPS, len(counts) - 1)
    if lag < 1:
        return 1.0
    steps = counts[lag:] - counts[:-lag]
    return float(max(1.0, np.mean(steps**2) / lag, np.mean(steps.sum(axis=1) ** 2) / (lag * regions)))


def pin_to_servers(people: int, servers: int, rng: np.random.Generator) -> Ints:
    """Return the server of each person: a random partition into parts of equal size (up to one person)."""
    return rng.permutation(people).astype(np.int64) % servers


def _walk(people: int, rng: np.random.Generator) -> Iterator[Present]:
    def draw_regions(count: int, slot: int) -> Ints:
        return rng.choice(len(_REGIONS), size=count, p=attraction(slot)).astype(np.int64)

    out = rng.random(people) < out_at(0)
    region = draw_regions(people, 0)
    slot = 0
    while True:
        who = np.flatnonzero(out)
        yield Present(who, region[who])
        now, following = out_at(slot), out_at(slot + 1)
        # Some come while others leave; both rates together keep the fraction that is out on the curve of the day.
        leaves = max(_LEAVES, 1 - following / now)
        comes = min(1.0, (following - now * (1 - leaves)) / (1 - now))
        uniform = rng.random(people)
        came, stays = ~out & (uniform < comes), out & (uniform >= leaves)
        moves = came | (stays & (rng.random(people) < _MOVES))
        slot += 1
        region = region.copy()
        region[moves] = draw_regions(int(moves.sum()), slot)
        out = came | stays
