"""A synthetic crowd: people are out or at home by the time of day, and move between regions.

Each person is a Markov chain. In each slot some people at home go out and some who are out go home, so that the
fraction of people who are out follows the rhythm of the day; those who stay out move with probability 0.08, to a region
drawn by its attraction at that hour. A day has 96 slots of a quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Protocol

import numpy as np

from dpcrowd.arrays import Floats, Ints

__all__ = ["DAY", "CrowdModel", "Present", "Source", "SyntheticCrowd", "crowd_model", "pin_to_servers"]


DAY = 96
_STEPS = 2
_LEAST_TURNOVER, _COMPARED = 0.01, 40  # of so many pairs of slots, evenly spread
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


@dataclass(frozen=True)
class CrowdModel:
    """What a network takes for public knowledge of a crowd, one number per region.

    level        the mean count of a slot
    process_var  Q of network.toml
    turnover     the part of the people of a region who are replaced per slot: they leave it, or go home
    """

    level: tuple[float, ...]
    process_var: tuple[float, ...]
    turnover: float


class Source(Protocol):
    """The people of a demo.

    regions  names of the regions
    people   number of people, at home or out
    model    what is publicly known of them
    note     where the people come from, as a phrase
    """

    @property
    def regions(self) -> tuple[str, ...]: ...
    @property
    def people(self) -> int: ...
    @property
    def model(self) -> CrowdModel: ...
    @property
    def note(self) -> str: ...

    def slots(self) -> Iterator[Present]: ...


@dataclass(frozen=True, eq=False)
class SyntheticCrowd:
    """An endless crowd. `rng` moves its people; `public` moves another crowd of the same kind, which gives the model.

    The model must not come from the people who are counted: a network takes it from public data or past releases.
    """

    people: int
    rng: np.random.Generator
    public: np.random.Generator
    regions: tuple[str, ...] = _REGIONS

    @property
    def note(self) -> str:
        return f"a synthetic crowd of {self.people:,} people; a day has {DAY} slots"

    @cached_property
    def model(self) -> CrowdModel:
        return crowd_model(islice(_walk(self.people, self.public), 2 * DAY), len(self.regions))

    def slots(self) -> Iterator[Present]:
        return _walk(self.people, self.rng)


def out_at(slot: int) -> float:
    """Return the fraction of people who are out: least at the start of a day, most in its middle."""
    return 0.7 - 0.15 * float(np.cos(2 * np.pi * slot / DAY))


def attraction(slot: int) -> Floats:
    """Return the probability of each region for a person who moves in this slot."""
    day = (out_at(slot) - 0.55) / 0.3
    return day * _BY_DAY + (1 - day) * _BY_NIGHT


def crowd_model(slots: Iterator[Present], regions: int) -> CrowdModel:
    """Return the mean count of each region, and Q: the mean square of its change over two slots, per slot.

    The filter takes changes for independent, from slot to slot and from region to region. In a city that fills and
    empties they are not. A server samples about every second slot, so the change over two slots counts. And where the
    total changes more than independent regions would, Q of every region is enlarged by the same factor: the interval of
    a total follows from those of the regions.
    """
    present = list(slots)
    counts = np.array([np.bincount(slot.regions, minlength=regions) for slot in present], dtype=np.float64)
    level = counts.mean(axis=0) if len(counts) else np.ones(regions)
    variance, lag = np.ones(regions), min(_STEPS, len(counts) - 1)
    if lag >= 1:
        steps = counts[lag:] - counts[:-lag]
        variance = np.maximum(1.0, np.square(steps).mean(axis=0) / lag)
        variance *= max(1.0, np.square(steps.sum(axis=1)).mean() / lag / variance.sum())
    return CrowdModel(tuple(level.tolist()), tuple(variance.tolist()), _turnover(present, regions))


def _turnover(slots: Sequence[Present], regions: int) -> float:
    """Return the part of those who could be in the same region in the next slot, and are not; at least 1%."""
    stay = could = 0
    pairs = list(pairwise(slots))
    for before, after in pairs[:: max(1, len(pairs) // _COMPARED)]:
        earlier, later = (slot.people * regions + slot.regions for slot in (before, after))
        stay += np.intersect1d(earlier, later).size
        could += min(before.total, after.total)
    return round(max(_LEAST_TURNOVER, 1.0 - stay / max(could, 1)), 2)


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
