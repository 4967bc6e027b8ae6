"""What the tests of the simulator and of its command line share: a tiny setting, a spy on the engine, slow loops."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.schemes.base import Release, run_slot
from dpcrowd.sim import engine
from dpcrowd.sim.recorder import RunRecords

FINITE = ("fast", "dfast", "dpcrowd")
WINDOW = (
    *("dpcrowd-w", "dpcrowd-plus", "rescuedp", "drescuedp", "bd", "ba", "dbd", "dba", "pegasus", "dpegasus"),
    *("uniform", "sample", "duniform", "dsample"),
)
BOTH = ("kalman-uniform", "dkalman-uniform", "relay")
NAMES = ("non-private", "central", *FINITE, *WINDOW, *BOTH)

TINY: dict[str, Any] = {"servers": 6, "density": 0.5, "slots": 30, "runs": 2, "burn_in": 5}


def tiny_words(scheme: str, *more: str) -> list[str]:
    """The command line of the tiny setting."""
    settings = [word for key, value in TINY.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    window = ["--window", "10"] if scheme.split(",", maxsplit=1)[0] in WINDOW else []
    return ["simulate", "--scheme", scheme, *settings, *window, *more]


def assert_same_records(a: RunRecords, b: RunRecords) -> None:
    """Every number of two records is the same, bit for bit; only the clock may differ."""
    for f in fields(RunRecords):
        one, other = getattr(a, f.name), getattr(b, f.name)
        if f.name == "seconds":
            continue
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=f.name)
        else:
            assert one == other, f.name


@dataclass
class Spy:
    """What the engine gave to each scheme and what it released, by scheme object, in the order of the slots."""

    releases: dict[int, list[Release]] = field(default_factory=lambda: defaultdict(list))
    inputs: dict[int, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))

    def of(self, scheme: Any) -> list[Release]:
        return self.releases[id(scheme)]


def spy_on_engine(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Listen to the engine without changing it."""
    seen = Spy()

    def listen(scheme: Any, state: Any, slot: int, shares: Any, counts: Any, noise: Any, hearing: Any) -> Release:
        release = run_slot(scheme, state, slot, shares, counts, noise, hearing)
        copies: list[Any] = [np.array(getattr(release, f.name)) for f in fields(Release)[1:]]
        kept = Release(slot, *copies)
        seen.releases[id(scheme)].append(kept)
        seen.inputs[id(scheme)].append((shares, counts, noise, hearing))
        return release

    monkeypatch.setattr(engine, "run_slot", listen)
    return seen


def write_checkins(path: Path, days: int = 40, users: int = 30, regions: tuple[str, ...] = ("a", "b", "c")) -> Path:
    """A file of raw check-ins: every user on most days, sometimes twice, in any order of the rows."""
    rng = np.random.default_rng(5)
    lines = []
    for day in range(days):
        for user in np.flatnonzero(rng.random(users) < 0.8):
            for hour in sorted(rng.choice(24, size=1 + int(rng.random() < 0.3), replace=False)):
                place = regions[int(rng.integers(len(regions)))]
                lines.append(f"u{user},{date(2024, 1, 1) + timedelta(day)}T{hour:02d}:00:00Z,{place}")
    rng.shuffle(lines)
    path.write_text("user,time,region\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path
