"""What the demo shows, over twelve crowds: its own files and check-ins, with the simulator in place of live nodes."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from demo_support import SimulatedDemo, simulate_demo
from dpcrowd.demo.crowd import DAY, pin_to_servers
from dpcrowd.demo.files import make_network
from dpcrowd.demo.run import make_source
from dpcrowd.node.config import load_network
from dpcrowd.node.slots import SECOND

SEEDS, MINUTE = range(12), 52  # slots of a second that `dpcrowd demo --seconds 60` shows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> list[SimulatedDemo]:
    """Return a day of each of twelve demos, with other people, servers of people and noise."""
    results = []
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp("demo")
        source = make_source(20_000, None, "1d", seed)
        make_network(folder, source, 5, SECOND, datetime.now(UTC))
        server_of = pin_to_servers(source.people, 5, np.random.default_rng([seed, 2]))
        results.append(simulate_demo(load_network(folder / "network.toml"), source, server_of, DAY, seed))
    return results


def test_estimates_stay_close_in_every_slot(demos: list[SimulatedDemo]) -> None:
    """A network that stops sampling falls behind a crowd that grows by a percent per slot: by 10% and more."""
    for slots in (MINUTE, DAY):
        errors = np.array([demo.errors[:slots] for demo in demos])
        assert errors.mean() < 0.012
        assert errors.mean(axis=(1, 2)).max() < 0.02, "in each of the twelve"
        assert errors.max() < 0.06, "in every slot of each, the first one included"


def test_intervals_contain_the_truth_as_often_as_they_say(demos: list[SimulatedDemo]) -> None:
    """Intervals of a total assume independent regions, and this crowd's rise together: Q has to make up for it."""
    for slots in (MINUTE, DAY):
        covered = np.array([demo.covered[8:slots] for demo in demos])
        assert 0.9 < covered.mean() < 0.99
        assert covered.mean(axis=(1, 2)).min() > 0.85, "in some fifty slots that follow each other"


def test_servers_that_have_the_same_records_show_the_same_estimate(demos: list[SimulatedDemo]) -> None:
    """On one machine every record arrives within its slot; five different numbers would mean that some did not."""
    for demo in demos:
        assert (demo.estimate == demo.estimate[:, :1]).all()
