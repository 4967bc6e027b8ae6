"""The density of random graphs: against a count of all graphs, and against the mean of many draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpcrowd.network import density
from dpcrowd.network.density import expected_links, link_probability, lowest_density
from dpcrowd.network.graph import Graph
from dpcrowd.network.random_graph import RandomGraph


@pytest.mark.parametrize("servers", [2, 3, 4, 5])
def test_expected_links_are_those_of_all_graphs(servers: int) -> None:
    """Every graph of up to five servers, weighted by its probability, with ceil(K / 2) links added."""
    pairs = list(itertools.combinations(range(servers), 2))
    tally: dict[tuple[int, int], int] = {}
    for present in itertools.product((0, 1), repeat=len(pairs)):
        linked = {end for pair, is_there in zip(pairs, present, strict=True) if is_there for end in pair}
        key = (sum(present), math.ceil((servers - len(linked)) / 2))
        tally[key] = tally.get(key, 0) + 1
    for p in (0.0, 0.05, 0.3, 0.77, 1.0):
        by_hand = sum(
            times * p**links * (1 - p) ** (len(pairs) - links) * (links + added)
            for (links, added), times in tally.items()
        )
        assert expected_links(servers, p) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.slow
def test_solution_hits_the_density() -> None:
    """Putting p back into the expectation gives the links that were asked for."""
    for servers in (3, 10, 50, 51, 299, 300, 301, 5000):
        for share in (0.0, 1e-4, 0.01, 0.2, 0.9, 1.0):
            wanted = lowest_density(servers) + share * (1 - lowest_density(servers))
            pairs = servers * (servers - 1) / 2
            # Beyond 300 servers the number of isolated ones counts as Poisson: a quarter of a link at most.
            off = 1e-9 * pairs if servers <= 300 else 0.26
            assert expected_links(servers, link_probability(servers, wanted)) == pytest.approx(wanted * pairs, abs=off)


def test_the_approximation_for_many_servers_is_a_quarter_of_a_link_off_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact and approximate expectation of 300 servers over the whole range of p."""
    probabilities = [0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.3, 1.0]
    exact = [expected_links(300, p) for p in probabilities]
    monkeypatch.setattr(density, "EXACT_SERVERS", 10)
    approximate = [expected_links(300, p) for p in probabilities]
    assert np.abs(np.subtract(exact, approximate)).max() <= 0.25 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [0.03, 0.1, 0.5, 1.0])
def test_mean_density_of_many_draws(wanted: float) -> None:
    """Without the correction for repaired servers, density 0.03 would come out near 0.035: 50 standard errors off."""
    unions = RandomGraph(50, wanted).draw_unions([np.random.default_rng(seed) for seed in range(40)], 50)
    links = np.concatenate([graph.degree.reshape(40, 50).sum(axis=1) / 2 for graph in unions])
    error = links.std() / math.sqrt(links.size)
    assert abs(links.mean() - wanted * 1225) <= 6 * error


def test_all_pairs_are_linked_equally_often() -> None:
    """A biased decoding would favour some servers; chi-square of 190 pairs, false alarm below 1e-9."""
    draws = 4000
    counts = np.zeros((20, 20))
    for graph in RandomGraph(20, 0.25, None).draw_unions([np.random.default_rng(11)], draws):
        sources, targets, _ = graph.pairs()
        counts[sources, targets] += 1
    seen = counts[np.triu_indices(20, 1)]
    share = seen.sum() / (190 * draws)
    chi = ((seen - draws * share) ** 2 / (draws * share * (1 - share))).sum()
    assert chi < 190 + 6.5 * math.sqrt(2 * 190)


def test_links_of_a_pair_are_independent_between_slots() -> None:
    """Skipping runs across the slots of a call; a slot must not remember the one before it."""
    graphs = RandomGraph(20, 0.3, None).draw_unions([np.random.default_rng(5)], 2000)

    def linked(graph: Graph) -> bool:
        return 7 in graph.neighbours(3)

    there = np.array([linked(graph) for graph in graphs], dtype=float)
    together = np.corrcoef(there[1:], there[:-1])[0, 1]
    assert abs(together) < 6 / math.sqrt(2000)


def test_delays_are_uniform_and_differ_between_links() -> None:
    """Mean 100 and variance 100^2 / 12 of U(50, 150), each within six standard errors."""
    graph = RandomGraph(200, 0.2).draw(np.random.default_rng(0))
    delays = graph.pairs()[2]
    assert delays is not None
    spread = 100 / math.sqrt(12)
    assert abs(delays.mean(dtype=float) - 100) < 6 * spread / math.sqrt(delays.size)
    assert abs(delays.var(dtype=float) / spread**2 - 1) < 6 * math.sqrt(0.8 / delays.size)
    assert np.unique(delays).size > 0.99 * delays.size
