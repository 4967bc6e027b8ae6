"""The choice of the engine, and what happens where Numba is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.grouping import group_regions
from dpcrowd.kernels import engine
from dpcrowd.kernels.engine import best_engine, check_engine, compiled
from dpcrowd.kernels.gather import add_rows
from dpcrowd.network.gather import neighbour_sums
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import Guarantee, SeededNoise
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.snapshot import fingerprint


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra 'fast' were not installed."""
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    engine._numba_is_installed.cache_clear()
    yield
    engine._numba_is_installed.cache_clear()


def test_the_best_engine_is_numba_where_it_is_installed() -> None:
    """A simulation would run many times slower than it could, and nobody would notice."""
    pytest.importorskip("numba")
    assert best_engine() == "numba"
    assert compiled(add_rows, "numba") is compiled(add_rows, "numba") is not None
    assert compiled(add_rows, "numpy") is None


@pytest.mark.usefixtures("without_numba")
def test_without_numba_everything_works_and_gives_the_same_bits() -> None:
    """Numba is optional: where it is missing, asking for it must still give the numbers."""
    assert best_engine() == "numpy"
    assert compiled(add_rows, "numba") is None
    hearing = RandomGraph(12, 0.4).draw(np.random.default_rng(0)).hearing
    table = np.random.default_rng(1).normal(size=(12, 4))
    assert neighbour_sums(hearing, table, "numba").tobytes() == neighbour_sums(hearing, table).tobytes()
    history = np.array([[[1.0, 2.0], [2.0, 3.0]]])
    allowed = np.ones((1, 2), dtype=np.bool_)
    assert group_regions(history, np.array([2]), allowed, 30.0, 0.5, 25.0, "numba").tolist() == [[0, 0]]


def test_an_unknown_engine_is_refused() -> None:
    """A misspelt engine would silently be the slow one."""
    with pytest.raises(BadInput, match=r"unknown engine 'nunba'\. Did you mean 'numba'"):
        check_engine("nunba")
    with pytest.raises(BadInput, match="unknown engine 'nunba'"):
        Setting(1, ProcessModel.of(1.0, [4.0]), None, engine="nunba")  # type: ignore[arg-type]


def test_the_engine_is_neither_compared_nor_part_of_a_fingerprint() -> None:
    """The state that a compiled simulation saved would be refused by a node that does not compile."""
    model, guarantee = ProcessModel.of(1.0, [4.0]), Guarantee.window(24, 1.0)
    plain, fast = Setting(1, model, guarantee), Setting(1, model, guarantee, engine="numba")
    assert plain == fast
    assert fingerprint(DPCrowd(), plain).tobytes() == fingerprint(DPCrowd(), fast).tobytes()


def test_the_loops_that_a_setting_and_noise_once_took_are_ignored_with_a_warning() -> None:
    """A plug-in that still passes them would stop with a TypeError."""
    model = ProcessModel.of(1.0, [4.0])
    for name in ("grouper", "pid_loop"):
        with pytest.warns(DeprecationWarning, match="engine='numba'"):
            assert Setting(1, model, None, **{name: print}) == Setting(1, model, None)
    with pytest.warns(DeprecationWarning, match="engine='numba'"):
        SeededNoise([np.random.SeedSequence(0)], 1, 1, loop=print)
