"""Random networks that relay, their records, and one server of them that is given records as a test likes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.server import Server
from relay_support import Network, Records, message_of

SLOTS = 26


def draw_course(rng: np.random.Generator, d: int, rows: int, a: float, *, relative: bool = False) -> ProcessModel:
    """A model with an expected course whose season is not a whole number of slots; deviations may follow it."""
    profile, variance = rng.uniform(50.0, 900.0, (rows, d)), rng.uniform(10.0, 300.0, (rows, d))
    scale = profile.copy() if relative else None
    course = Course(profile, variance, season=17, offset=int(rng.integers(17)), step=3, scale=scale)
    return ProcessModel.around(course, np.full(d, a), rng.uniform(10.0, 300.0, d))


@st.composite
def networks(draw: Any) -> Network:
    servers, d = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    length = draw(st.sampled_from([6, 11, SLOTS]))
    window, together = draw(st.booleans()), draw(st.booleans())
    form = draw(st.sampled_from(["diagonal", "matrix"]))
    transition: Any = draw(st.sampled_from([1.0, 0.9]))
    process_var: Any = rng.uniform(10.0, 300.0, d)
    if form == "matrix" and draw(st.booleans()):
        transition = 0.8 * np.eye(d) + 0.2 * rng.dirichlet(np.ones(d), d).T
        root = rng.normal(0.0, 8.0, (d, d))
        process_var = root @ root.T + np.eye(d)
    model = ProcessModel.of(transition, process_var)
    if draw(st.booleans()):
        rows, a, relative = draw(st.integers(1, 5)), draw(st.sampled_from([0.0, 0.5, 0.9])), draw(st.booleans())
        model = draw_course(rng, d, rows, a, relative=relative)
    return Network(
        shares=rng.uniform(0.1, 1.0, (servers, d) if d > 1 and draw(st.booleans()) else servers),
        model=model,
        guarantee=Guarantee.window(length, 2.0) if window else Guarantee.finite(SLOTS, 4.0),
        samples=draw(st.integers(2, length)),
        phases=np.zeros(servers, dtype=np.int64) if together else rng.integers(0, length if window else SLOTS, servers),
        lag=draw(st.integers(1, 6)),
        guard=draw(st.booleans()),
        form=form,
        observation=draw(st.sampled_from(["paper", "binomial"])),
    )


def draw_records(network: Network, rng: np.random.Generator) -> dict[tuple[int, int], Any]:
    """What each origin says in its slots: a crowd that wanders and once jumps, and some records that are far off."""
    d = network.model.regions
    crowd = np.cumsum(rng.normal(0, 8, (SLOTS, d)), axis=0) + rng.uniform(50, 900, d)
    wild = rng.choice([0.02, 0.15])
    crowd[SLOTS // 2 :] += rng.choice([0.0, 4000.0])
    records = {}
    for slot in range(SLOTS):
        for origin in range(network.servers):
            if network.due(slot, origin):
                values = network.shares[origin] * crowd[slot] + rng.laplace(0, 4, d)
                off = rng.random() < (0.3 if slot < 6 else wild)
                records[origin, slot] = np.rint(values * (rng.choice([-30.0, 30.0, 0.02]) if off else 1.0))
    return records


def play_records(
    network: Network,
    number: int,
    records: Records,
    arrivals: dict[int, list[tuple[int, int]]],
    slots: int,
    after: Callable[[Server, Release], None] = lambda server, release: None,
) -> tuple[list[Release], list[dict[tuple[int, int], Any]], Server]:
    """One server that is given records, by slot of arrival; its releases, and what it has had by then.

    after  is called after each release
    """
    server, releases, known = network.server(number), [], {}
    sets = []
    for slot in range(slots):
        server.observe(slot, np.zeros(network.model.regions, dtype=np.int64) if slot < SLOTS else None)
        sample = server.open_sample()
        if sample is not None:
            known[number, slot] = sample[1]
        came = arrivals.get(slot, [])
        messages = {}
        for part in range(2):  # of two neighbours
            if came[part::2]:
                messages[network.servers + part] = message_of(records, came[part::2], network.price)
        releases.append(server.hear(messages))
        after(server, releases[-1])
        for key in came:
            if key[1] > slot - network.lag:
                known.setdefault(key, records[key])
        sets.append(dict(known))
    return releases, sets, server
