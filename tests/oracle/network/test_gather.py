"""Sums over neighbours against a plain Python loop, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpcrowd.errors import BadInput
from dpcrowd.kernels.engine import ENGINES
from dpcrowd.kernels.gather import add_rows
from dpcrowd.network.gather import neighbour_sums
from dpcrowd.network.hearing import inbox_hearing
from dpcrowd.network.random_graph import RandomGraph


def plain(hearing: csr_array, table: np.ndarray) -> np.ndarray:
    """Start at 0.0 and add the rows in ascending order of the servers."""
    out = np.zeros((hearing.shape[0], *table.shape[1:]))
    for i in range(hearing.shape[0]):
        for column in np.ndindex(table.shape[1:]):
            total = 0.0
            for j in sorted(hearing.indices[hearing.indptr[i] : hearing.indptr[i + 1]].tolist()):
                total += float(table[(j, *column)])
            out[(i, *column)] = total
    return out


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn; a missing Numba is said aloud, since its fallback would pass unseen."""
    if request.param == "numba":
        pytest.importorskip("numba")
    return str(request.param)


def bits(values: np.ndarray) -> list[int]:
    return np.ascontiguousarray(values).view(np.int64).ravel().tolist()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (6,), (13,)])
def test_sums_are_those_of_a_plain_loop_bit_for_bit(engine: str, shape: tuple[int, ...]) -> None:
    """Another order or fused arithmetic would change last bits, and node and simulator would drift apart."""
    rng = np.random.default_rng(len(shape))
    hearing = RandomGraph(40, 0.3).draw_unions([np.random.default_rng(s) for s in range(3)], 1)[0].hearing
    table = rng.normal(size=(120, *shape)) * 10.0 ** rng.integers(-12, 12, size=(120, *shape))
    table[::7] = -0.0
    assert bits(neighbour_sums(hearing, table, engine)) == bits(plain(hearing, table))


@pytest.mark.parametrize("shape", [(1,), (3,), (13,)])
@pytest.mark.parametrize("messages", [1, 2, 9, 40])
def test_an_inbox_is_added_up_with_the_bits_of_a_sparse_row(messages: int, shape: tuple[int, ...]) -> None:
    """A live node has no matrix; NumPy's own sum adds in pairs, and its last bits would differ from the simulator's."""
    rng = np.random.default_rng(messages)
    table = rng.normal(size=(messages, *shape)) * 10.0 ** rng.integers(-12, 12, size=(messages, *shape))
    table[::7] = -0.0
    everyone = csr_array(np.ones((1, messages)))
    assert bits(inbox_hearing(0.5).sums(table)) == bits(neighbour_sums(everyone, table)) == bits(plain(everyone, table))


def test_audiences_need_not_be_servers(engine: str) -> None:
    """A live node's inbox is one row; a component is one row for many servers; an empty row sums to 0.0."""
    rows = csr_array((np.ones(3), np.array([0, 2, 3], dtype=np.int32), np.array([0, 3, 3], dtype=np.int32)), (2, 4))
    table = np.arange(8.0).reshape(4, 2)
    assert neighbour_sums(rows, table, engine).tolist() == [[10.0, 13.0], [0.0, 0.0]]
    assert neighbour_sums(rows, np.asfortranarray(table), engine).tolist() == [[10.0, 13.0], [0.0, 0.0]]


def test_kernel_before_compilation_is_the_same_function() -> None:
    """The Python that Numba compiles must itself be right, or a bug could hide behind the compiler."""
    hearing = RandomGraph(12, 0.4).draw(np.random.default_rng(0)).hearing
    table = np.random.default_rng(1).normal(size=(12, 6))
    out = np.empty_like(table)
    add_rows(hearing.indptr, hearing.indices, table, out)
    assert bits(out) == bits(plain(hearing, table))


def test_wrong_shapes_and_engines_are_refused() -> None:
    """Numba would read beyond the table's end."""
    hearing = RandomGraph(12, 0.4).draw(np.random.default_rng(0)).hearing
    for shape in ((11, 4), (12, 2, 2), ()):
        for engine in ENGINES:
            with pytest.raises(BadInput, match=r"allowed: \(12,\) or \(12, k\)"):
                neighbour_sums(hearing, np.zeros(shape), engine)
    with pytest.raises(BadInput, match="Did you mean 'numba'"):
        neighbour_sums(hearing, np.zeros((12, 1)), "nunba")
