"""How well a network knows its crowd with the guide's own network.toml, and with the one that the guide had before.

The file is read from docs/operate.md. Its servers are the real ones (`dpcrowd.schemes.server.Server`), linked as the
file says, and exchange their messages slot by slot as live nodes do; only noise and crowd come from a seed. Where they
pass records on, every record reaches every server in its own slot, as on any link that is faster than a slot. The crowd
is a wave over the day: in each region between 20% and 80% of its part of the population is out, and the regions have
their noon at different hours. Each person is at one server, by its share. A week; the first slot, in which no live node
samples, is not counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Target, print_table, print_targets
from numpy.typing import NDArray

from dpcrowd.node.config import NetworkConfig, parse_network
from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.server import Server

GUIDE = Path(__file__).parents[1] / "docs" / "operate.md"
FIRST_GUIDE = '[scheme]\nname = "dpcrowd-plus"\n'
DAYS, SEEDS = 7, 5
MEAN, HEIGHT = 0.5, 0.3
BOUND = 2.0


@dataclass(frozen=True)
class Outcome:
    """Over all slots, servers, regions and seeds; errors in percent of the true count of a region."""

    mean_error: float
    worst_error: float
    coverage: float
    sampled: float
    standstill: int


def guide() -> str:
    """The network.toml of the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    found: str = re.findall(r"^```toml\n(\[network\].*?)^```", text, flags=re.MULTILINE | re.DOTALL)[0]
    return found


def with_scheme(text: str, scheme: str) -> str:
    """Another [scheme], with the same process variance."""
    return re.sub(r"^\[scheme\]\n.*?(?=^process_var)", scheme, text, flags=re.MULTILINE | re.DOTALL)


def crowd(network: NetworkConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    """The population's counts, (slots, regions)."""
    regions, day = len(network.regions), 86_400 * 10**9 // network.clock().length_ns
    hours = 2 * np.pi * np.arange(DAYS * day)[:, None] / day
    part = MEAN + HEIGHT * np.sin(hours + rng.uniform(0, 2 * np.pi, regions))
    return np.rint(network.population / regions * part).astype(np.int64)


def live(network: NetworkConfig, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """(slots, servers, regions): errors in percent, whether the interval holds the truth; (slots, servers): sampled."""
    names, regions = [server.name for server in network.servers], len(network.regions)
    rng = np.random.default_rng(seed)
    truth = crowd(network, rng)
    shares = np.array([network.server(name).counted_share for name in names])
    servers = [
        Server(
            network.scheme(),
            network.setting(name),
            SeededNoise([np.random.SeedSequence(seed)], len(names), regions, only=number),
            number=number,
            share=float(shares[number]),
            max_degree=network.max_degree(),
            beta=network.beta,
            allow_simulated_noise=True,
        )
        for number, name in enumerate(names)
    ]
    links = {name: [network.number_of(other) for other in network.neighbours(name, 0)] for name in names}
    if network.relay is not None:
        links = {name: [network.number_of(other) for other in names if other != name] for name in names}
    shape = len(truth), len(names), regions
    errors, held, sampled = np.zeros(shape), np.zeros(shape, dtype=np.bool_), np.zeros(shape[:2], dtype=np.bool_)
    nowhere = max(0.0, 1.0 - float(shares.sum()))
    for slot, people in enumerate(truth):
        counts = rng.multinomial(people, [*shares, nowhere])[:, :-1]
        messages = [server.observe(slot, counts[:, number]) for number, server in enumerate(servers)]
        for number, server in enumerate(servers):
            heard = {other: said for other in links[names[number]] if (said := messages[other]) is not None}
            release = server.hear(heard)
            errors[slot, number] = 100 * np.abs(release.estimate - people) / people
            held[slot, number] = (release.low <= people) & (people <= release.high)
            sampled[slot, number] = release.sampled.any()
    return errors, held, sampled


def longest_gap(sampled: NDArray[np.bool_]) -> int:
    """The most slots in a row without a sample."""
    longest = still = 0
    for one in sampled.tolist():
        still = 0 if one else still + 1
        longest = max(longest, still)
    return longest


def outcome(text: str) -> Outcome:
    network = parse_network(text)
    runs = [live(network, seed) for seed in range(SEEDS)]
    errors = np.stack([run[0][1:] for run in runs])
    sampled = np.stack([run[2] for run in runs])
    return Outcome(
        float(errors.mean()),
        float(errors.max()),
        100 * float(np.stack([run[1][1:] for run in runs]).mean()),
        100 * float(sampled.mean()),
        max(longest_gap(run[2][:, number]) for run in runs for number in range(len(network.servers))),
    )


def main() -> None:
    text = guide()
    files = {
        "the guide's": text,
        "relay, 48 samples": with_scheme(text, '[scheme]\nname = "relay"\nsamples = 48\n'),
        **{
            f"dpcrowd-w, fixed, interval of {number}": with_scheme(
                text, f'[scheme]\nname = "dpcrowd-w"\nsampling = "fixed"\ninterval = {number}\n'
            )
            for number in (1, 2, 4)
        },
        "dpcrowd-w, adaptive": with_scheme(text, '[scheme]\nname = "dpcrowd-w"\n'),
        "the first guide's: dpcrowd-plus": with_scheme(text, FIRST_GUIDE),
    }
    outcomes = {name: outcome(file) for name, file in files.items()}
    print_table(
        f"The guide's network.toml on a daily wave: {SEEDS} times {DAYS} days",
        ("network.toml", "mean error", "worst", "coverage of 95%", "slots sampled", "longest without"),
        [
            (
                name,
                f"{one.mean_error:.2f}%",
                f"{one.worst_error:.1f}%",
                f"{one.coverage:.1f}%",
                f"{one.sampled:.0f}%",
                f"{one.standstill} slots",
            )
            for name, one in outcomes.items()
        ],
    )
    now = outcomes["the guide's"]
    print_targets(
        [
            Target("mean error of a region with the guide's file", now.mean_error, BOUND, "%", at_least=False),
            Target("its 95% intervals hold the truth", now.coverage, 93, "%"),
        ]
    )


if __name__ == "__main__":
    main()
