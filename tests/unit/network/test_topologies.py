"""Networks by name: shape, density, reproducibility, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network import topologies
from dpcrowd.network.topologies import TOPOLOGIES, build

DRAWN = tuple(name for name in TOPOLOGIES if name != "file")


@pytest.mark.parametrize("name", DRAWN)
def test_every_topology_is_reproducible_and_has_delays(name: str) -> None:
    """A seed must name one network; `build` checks links and isolation itself."""
    one, other = (build(name, 50, np.random.default_rng(7), density=0.1) for _ in range(2))
    assert np.array_equal(one.indices, other.indices)
    assert np.array_equal(one.latency_ms, other.latency_ms)
    assert one.latency_ms is not None
    assert 50 <= one.latency_ms.min() < one.latency_ms.max() <= 150
    assert build(name, 50, np.random.default_rng(7), latency=None).latency_ms is None


@pytest.mark.parametrize("name", DRAWN)
def test_two_servers_share_one_link(name: str) -> None:
    """The smallest network must not have a double link or none."""
    assert build(name, 2, np.random.default_rng(0), density=1.0).edges == 1


def test_ring() -> None:
    """Every server hears the one before and the one after."""
    graph = build("ring", 5, np.random.default_rng(0))
    assert [graph.neighbours(i).tolist() for i in range(5)] == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]


def test_grid_with_a_short_last_row() -> None:
    """Seven servers are rows of 4 and 3; row ends must not be linked around."""
    graph = build("grid", 7, np.random.default_rng(0))
    assert [graph.neighbours(i).tolist() for i in range(7)] == [
        [1, 4],
        [0, 2, 5],
        [1, 3, 6],
        [2],
        [0, 5],
        [1, 4, 6],
        [2, 5],
    ]


def test_grids_of_all_sizes_are_whole() -> None:
    """Primes and squares alike: nobody isolated (checked by build), degree at most 4."""
    for servers in range(2, 60):
        assert build("grid", servers, np.random.default_rng(0)).max_degree <= 4


@pytest.mark.parametrize("name", ["small-world", "geometric"])
@pytest.mark.parametrize("density", [0.05, 0.1, 0.5, 0.93])
def test_small_world_and_geometric_have_exactly_the_density(name: str, density: float) -> None:
    """Topologies are compared at equal density."""
    for seed in range(5):
        assert build(name, 41, np.random.default_rng(seed), density).edges == round(density * 41 * 40 / 2)


def test_scale_free_has_the_density_on_average() -> None:
    """The mix of m and m + 1 links must hit the mean: 122 links wanted, standard deviation 3.3 a graph."""
    links = [build("scale-free", 50, np.random.default_rng(seed), 0.1).edges for seed in range(200)]
    assert abs(np.mean(links) - 122) < 6 * np.std(links) / np.sqrt(200)


def test_scale_free_has_hubs_and_small_world_has_triangles() -> None:
    """Otherwise the names would promise what a random graph gives as well."""
    rng = np.random.default_rng(0)
    free, world, plain = (build(name, 400, rng, 0.015) for name in ("scale-free", "small-world", "random"))

    def triangles(graph: object) -> float:
        near = graph.hearing.toarray() - np.eye(400)  # type: ignore[attr-defined]
        return float(np.trace(near @ near @ near))

    assert free.max_degree > 2 * plain.max_degree
    assert triangles(world) > 5 * triangles(plain)


def test_rewiring_moves_about_the_asked_share() -> None:
    """rewire=0 is the plain circle; rewire=1 moves nearly every link, 0.1 about a tenth."""

    def moved(rewire: float) -> float:
        sources, targets = topologies.small_world(500, 4 / 499, np.random.default_rng(0), rewire)
        return float(np.mean((targets - sources) % 500 > 2))

    assert moved(0.0) == 0.0
    assert 0.06 < moved(0.1) < 0.14
    assert moved(1.0) > 0.95


def test_geometric_with_a_search_tree_gives_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large networks must not be other networks, only cheaper ones."""
    whole = build("geometric", 300, np.random.default_rng(2), 0.004)
    monkeypatch.setattr(topologies, "ALL_PAIRS", 10)
    searched = build("geometric", 300, np.random.default_rng(2), 0.004)
    assert np.array_equal(whole.indices, searched.indices)
    assert build("geometric", 300, np.random.default_rng(2), 0.9).edges == round(0.9 * 300 * 299 / 2)


def test_a_file_keeps_its_own_delays_or_gets_drawn_ones() -> None:
    """Measured delays must not be replaced; missing ones are drawn like everybody's."""
    graph = build("file", None, np.random.default_rng(0), text="0,1,7\n1,2,9\n")
    assert graph.latency_ms is not None
    assert graph.latency_ms.tolist() == [7, 7, 9, 9]
    drawn = build("file", 3, np.random.default_rng(0), text="0,1\n1,2\n")
    assert drawn.latency_ms is not None
    assert drawn.latency_ms.min() >= 50


@pytest.mark.parametrize(
    ("name", "servers", "options", "message"),
    [
        ("rign", 5, {}, "unknown graph 'rign'. Did you mean 'ring'"),
        ("ring", 1, {}, "at least 2"),
        ("ring", None, {}, "needs the number of servers"),
        ("ring", 5, {"rewire": 0.5}, "no parameter 'rewire'; allowed: none"),
        ("small-world", 5, {"k": 4}, "no parameter 'k'; allowed: rewire"),
        ("small-world", 50, {"rewire": 1.5}, "probability"),
        ("small-world", 50, {"density": 0.01}, "allowed: 0.0408163 to 1"),
        ("scale-free", 50, {"density": 0.6}, "allowed: 0.04 to 0.510204"),
        ("geometric", 50, {"density": float("nan")}, "allowed: 0.0204082 to 1"),
        ("random", 50, {"density": 2.0}, "allowed"),
        ("complete", 1_000_000, {}, "at most"),
        ("ring", 5, {"latency": (5.0, 1.0)}, "low <= high"),
        ("file", 5, {}, "text="),
    ],
)
def test_bad_requests_get_one_line(name: str, servers: int, options: dict[str, object], message: str) -> None:
    """The command line prints exactly this line."""
    with pytest.raises(BadInput, match=message) as caught:
        build(name, servers, np.random.default_rng(0), **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
