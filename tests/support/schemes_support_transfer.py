"""What the tests of a takeover share: regions with names, whose counts, noise and neighbours go with them wherever they
stand in a server's list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import SCHEMES, make_scheme, takes_interval
from dpcrowd.schemes.server import Server
from schemes_support import bits, guarantee_for, make_setting

ALL = "abcdef"
OLD = "abcd"
"""The regions before the takeover: one large, three small ones that are grouped."""
SIZES = dict(zip(ALL, (400.0, 20.0, 16.0, 12.0, 60.0, 14.0), strict=True))
CHANGED = 13
"""The first slot of the new setting."""
HORIZON = 32
"""Of schemes that take no window: there is budget for samples after the takeover."""


def _of(slot: int, region: str, what: int) -> np.random.Generator:
    return np.random.default_rng([slot, ALL.index(region), what])


@cache
def _draw(slot: int, region: str) -> float:
    return float(_of(slot, region, 1).laplace())


class NamedNoise:
    """Noise by slot and region, as private as asked for: a region keeps its draws when the order changes."""

    private = False

    def __init__(self, regions: str) -> None:
        self._regions = regions
        self.alone: list[NDArray[np.bool_]] = []
        """Of each read: which regions got a draw of their own."""

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        self.alone.append(where[0].copy())
        scale = 1e9 / np.broadcast_to(charge, counts.shape)
        draws = np.array([[_draw(slot, region) for region in self._regions]])
        return np.where(where, np.rint(counts + draws * scale), 0.0)


@dataclass(frozen=True)
class Live:
    """A scheme that a live server may run, and how."""

    name: str
    form: str = "diagonal"
    sampling: str | None = None

    def __str__(self) -> str:
        return "-".join(part for part in (self.name, self.form, self.sampling) if part)

    def server(
        self, regions: str = OLD, *, share: float = 0.5, number: int = 0, interval: int = 3, **more: Any
    ) -> Server:
        """A server with these regions, in this order."""
        if "model" not in more:
            more["model"] = ProcessModel.of(1.0, [SIZES[region] for region in regions])
        if self.sampling == "staggered":
            more["phases"] = np.array([1])
        options = {"sampling": self.sampling, "interval": interval} if self.sampling else {}
        setting = replace(
            make_setting(1, len(regions), guarantee_for(self.name, horizon=HORIZON), form=self.form), **more
        )
        scheme = make_scheme(self.name, **options)
        noise = NamedNoise(regions)
        return Server(scheme, setting, noise, number=number, share=share, max_degree=3, allow_simulated_noise=True)


def _cases() -> list[Live]:
    cases = []
    for name in (name for name, scheme in SCHEMES.items() if scheme.live and scheme.reach != "relay"):
        for form in ("diagonal", "matrix"):
            ways = (None, "fixed", "staggered", "lockstep") if takes_interval(SCHEMES[name]) else (None,)
            cases += [Live(name, form, way) for way in ways]
    return cases


CASES = _cases()


def counts_of(slot: int, regions: str, share: float = 0.5) -> list[int]:
    """A crowd that wanders a little."""
    return [round(share * SIZES[region] * (1.1 + np.sin(slot / 5 + ALL.index(region)))) for region in regions]


def neighbour(slot: int, regions: str, form: str) -> dict[int, InfoMessages]:
    """Server 1 speaks in every other slot."""
    if slot % 2:
        return {}
    vector = np.array([[SIZES[region] + _of(slot, region, 2).normal(0.0, 5.0) for region in regions]])
    info = np.full(vector.shape, 0.01)
    known = np.ones(vector.shape, dtype=np.bool_)
    mat = info if form == "diagonal" else np.eye(len(regions))[None] * 0.01
    return {1: InfoMessages(known[:, 0], info * vector, mat, vector + 3.0, known)}


def run(server: Server, regions: str, slots: Iterable[int], *, share: float = 0.5, hears: bool = True) -> list[Release]:
    """So many slots with counts, noise and neighbours of these regions."""
    releases = []
    for slot in slots:
        server.observe(slot, counts_of(slot, regions, share))
        releases.append(server.hear(neighbour(slot, regions, server.setting.form) if hears else None))
    return releases


def saved(case: Live, regions: str = OLD, *, hears: bool = True, **more: Any) -> bytes:
    """The state after the slots before the takeover."""
    server = case.server(regions, **more)
    run(server, regions, range(CHANGED), hears=hears)
    return server.save()


def places(new: str, old: str = OLD) -> list[int | None]:
    """Where each region stood before."""
    return [old.index(region) if region in old else None for region in new]


def taken(case: Live, new: str, state: bytes, *, old: str = OLD, before: Server | None = None, **more: Any) -> Server:
    """A server with new regions that goes on from a state of the old ones."""
    server = case.server(new, **more)
    server.take_over(state, before or case.server(old), places(new, old))
    return server


def restored(case: Live, state: bytes, regions: str = OLD, **more: Any) -> Server:
    """A server of the old setting that goes on."""
    server = case.server(regions, **more)
    server.restore(state)
    return server


def predicted(server: Server, slot: int = CHANGED) -> Release:
    """What it says of the next slot without any news."""
    server.observe(slot, None)
    return server.hear()


def of_regions(release: Release, regions: str, wanted: str) -> tuple[NDArray[np.float64], ...]:
    """Estimate, variance, low and high of some regions, in the order wanted."""
    where = [regions.index(region) for region in wanted]
    return release.estimate[where], release.variance[where], release.low[where], release.high[where]


def agree(form: str, one: Sequence[Release], ones: str, other: Sequence[Release], others: str, wanted: str) -> bool:
    """Whether releases say the same of some regions: bit for bit, or up to rounding where matrices are factorised."""
    for first, second in zip(one, other, strict=True):
        pairs = list(zip(of_regions(first, ones, wanted), of_regions(second, others, wanted), strict=True))
        if form == "diagonal" and any(bits(a) != bits(b) for a, b in pairs):
            return False
        if not all(np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True) for a, b in pairs):
            return False
        if first.epsilon != second.epsilon:
            return False
    return True
