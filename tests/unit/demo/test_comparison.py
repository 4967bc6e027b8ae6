"""What only a demo knows, and the small server that shows it beside all nodes."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import httpx
import numpy as np
import pytest

from dpcrowd.demo.comparison import DemoComparison
from dpcrowd.demo.crowd import SyntheticCrowd, pin_to_servers
from dpcrowd.demo.files import DemoNetwork, make_network
from dpcrowd.demo.page import PageThread, make_page_app
from dpcrowd.node.slots import SECOND

PEOPLE, SLOTS = 4_000, 40


def make(folder: Path) -> tuple[DemoComparison, DemoNetwork, SyntheticCrowd]:
    crowd = SyntheticCrowd(PEOPLE, np.random.default_rng(0), np.random.default_rng(1))
    network = make_network(folder, crowd, 4, SECOND, datetime.now(UTC))
    server_of = pin_to_servers(PEOPLE, 4, np.random.default_rng(2))
    return DemoComparison(folder / "network.toml", crowd.note, crowd.regions, server_of), network, crowd


def test_truth_and_two_simpler_ways(tmp_path: Path) -> None:
    """The truth is exact; both other ways estimate all people from a quarter of them."""
    comparison, _, crowd = make(tmp_path)
    totals = []
    for slot, present in enumerate(islice(crowd.slots(), SLOTS)):
        comparison.add(slot, present, in_time=True)
        totals.append(present.total)
    columns = comparison.after(-1)
    assert columns.slots == list(range(SLOTS))
    assert columns.truth == totals
    assert np.sum(columns.truth_regions, axis=0).tolist() == totals
    for way in (columns.alone, columns.naive):
        error = np.mean(np.abs(np.array(way[5:], dtype=float) / np.array(totals[5:]) - 1))
        assert 0.001 < error < 0.5, "noisy, and of all people rather than of a quarter"
    assert comparison.after(SLOTS - 3).slots == [SLOTS - 2, SLOTS - 1]


def test_a_slot_that_was_fed_too_late_has_no_truth(tmp_path: Path) -> None:
    """Some of its check-ins may have been counted in the next slot: an exact number would be wrong."""
    comparison, _, crowd = make(tmp_path)
    comparison.add(3, next(crowd.slots()), in_time=False)
    assert comparison.after(-1).truth == [None]
    assert comparison.after(-1).naive[0] is not None


def test_the_address_of_the_page_accepts_connections_before_its_thread_has_begun(tmp_path: Path) -> None:
    """It is printed at once: without that, a fast browser shows an error instead of the page."""
    comparison, network, _ = make(tmp_path)
    page = PageThread(make_page_app(network.nodes, comparison))
    address = httpx.URL(page.address)
    assert address.port is not None
    with socket.create_connection((address.host, address.port), timeout=5), page:
        pass


@pytest.mark.slow
def test_the_server_of_the_page(tmp_path: Path) -> None:
    """Page, description and truth are there at once; a node that does not run is an answer, not a failure."""
    comparison, network, crowd = make(tmp_path)
    comparison.add(0, next(crowd.slots()), in_time=True)
    with (
        PageThread(make_page_app(network.nodes, comparison)) as page,
        httpx.Client(base_url=page.address, trust_env=False) as client,
    ):
        assert "text/html" in client.get("/").headers["content-type"]
        described = client.get("/page.json").json()
        assert described["servers"][1] == {"path": "/nodes/server-2", "name": "server-2"}
        assert client.get(described["demo"] + "?after=-1").json()["slots"] == [0]
        assert client.get(described["demo"] + "?after=x").status_code == 400
        assert client.get("/nodes/server-1/v1/budget").json()["error"]["reason"] == "unreachable"
        assert client.get("/nodes/elsewhere/v1/budget").status_code == 404
        assert client.post("/nodes/server-1/v1/checkins").status_code == 405
        for path in ("", "help", "..%2f", "%00", "v1/../", "assets/app.js", "v1/%3Fx", "@elsewhere.example/"):
            refused = client.get(f"/nodes/server-1/{path}")
            assert refused.status_code == 404, "HTML without a policy, or an address that is none"
            assert refused.json()["error"]["reason"] == "not-found"
