"""Schedules against counting slot by slot, for any interval, phase, window and graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.network.graph import Graph
from dpcrowd.sampling.schedule import due, samples_due, samples_in_horizon, samples_in_window, spread_phases
from examples_support import examples


@given(interval=st.integers(1, 12), horizon=st.integers(1, 60), data=st.data())
def test_samples_in_horizon_are_the_due_slots(interval: int, horizon: int, data: st.DataObject) -> None:
    """The number by which epsilon is divided is the number of samples, also for a phase beyond the interval."""
    phases = np.array(data.draw(st.lists(st.integers(0, 3 * interval), min_size=1, max_size=6)))
    counted = sum(due(slot, interval, phases).astype(int) for slot in range(horizon))
    assert samples_in_horizon(horizon, interval, phases).tolist() == counted.tolist()


@given(interval=st.integers(1, 12), window=st.integers(1, 40), phase=st.integers(0, 11))
def test_no_window_holds_more_samples_than_it_is_charged_for(interval: int, window: int, phase: int) -> None:
    """ceil(w/I) bounds every window, and some window reaches it: the budget is neither overspent nor wasted."""
    slots = np.array([due(slot, interval, np.array([phase]))[0] for slot in range(window + 3 * interval)], dtype=int)
    held = [slots[first : first + window].sum() for first in range(3 * interval)]
    assert max(held) == samples_in_window(window, interval)


@given(seed=st.integers(0, 2**32 - 1), servers=st.integers(2, 30), interval=st.integers(1, 9))
@settings(max_examples=examples(60))
def test_phases_follow_the_rule_and_use_every_phase(seed: int, servers: int, interval: int) -> None:
    """Each server in turn takes the phase that fewest of its listeners hear already; written out with lists."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((servers, servers)) < rng.random(), 1)
    graph = Graph.from_edges(servers, *np.nonzero(upper), check=False)
    phases = spread_phases(graph.indptr, graph.indices, interval).tolist()
    assert len(set(phases)) == min(servers, interval)
    circles = [{i, *graph.neighbours(i).tolist()} for i in range(servers)]

    def greedy(farthest: bool) -> list[int]:
        taken: list[int] = []
        for server in range(servers):
            audible = {taken[j] for i in circles[server] for j in circles[i] if j < server}

            def cost(phase: int, server: int = server, audible: set[int] = audible) -> tuple[int, ...]:
                heard = [sum(taken[j] == phase for j in circles[i] if j < server) for i in circles[server]]
                away = [min(abs(phase - q), interval - abs(phase - q)) for q in audible]
                tie = -min(away, default=interval) if farthest else 0
                return sum(each > 0 for each in heard), sum(heard), taken.count(phase), tie, phase

            taken.append(min(range(interval), key=cost))
        return taken

    def silence(candidate: list[int]) -> int:
        total = 0
        for circle in circles:
            voices = sorted(candidate[j] for j in circle)
            total += max(b - a for a, b in zip(voices, [*voices[1:], voices[0] + interval], strict=True))
        return total

    assert phases == min([greedy(False), greedy(True)], key=silence)


@given(window=st.integers(1, 40), data=st.data())
@settings(max_examples=60)
def test_every_window_holds_exactly_n_samples(window: int, data: st.DataObject) -> None:
    """Each sample costs epsilon/n: one more in any window would break the promise, one fewer would waste budget."""
    samples = data.draw(st.integers(1, window))
    offsets = np.array(data.draw(st.lists(st.integers(0, window - 1), min_size=1, max_size=4)))
    slots = np.array([samples_due(slot, samples, window, offsets) for slot in range(4 * window)], dtype=int)
    for first in range(3 * window):
        assert (slots[first : first + window].sum(axis=0) == samples).all()


@given(window=st.integers(1, 60), data=st.data())
@settings(max_examples=60)
def test_samples_are_as_even_as_whole_slots_allow(window: int, data: st.DataObject) -> None:
    """Bunched samples would leave the others without fresh data for long; gaps are w/n, rounded down or up."""
    samples, offset = data.draw(st.integers(1, window)), data.draw(st.integers(0, window - 1))
    due_in = [bool(samples_due(slot, samples, window, np.array([offset]))[0]) for slot in range(4 * window)]
    gaps = np.diff(np.flatnonzero(due_in))
    assert set(gaps.tolist()) <= {window // samples, -(-window // samples)}
