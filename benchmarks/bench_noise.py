"""The noise of a live node: the exact sampler and OpenDP's, side by side, for one slot of one server.

Timed is one call of `noisy`, as a node makes it once per sampled slot. The last row has another charge for every
region; OpenDP then prepares a measurement for each of them.
"""

from __future__ import annotations

from harness import Target, alternate, print_table, print_targets, seconds_of  # isort: skip  # first: sets threads

import numpy as np

from dpcrowd.errors import MissingExtra
from dpcrowd.privacy import Noise, OpenDPNoise, SecureNoise
from dpcrowd.privacy.units import NANO

ROUNDS = 20
MANY = 1_000
CASES = {
    "1 region, ε = 0.02": np.full((1, 1), NANO // 50),
    "51 regions, ε = 0.02": np.full((1, 51), NANO // 50),
    "1,000 regions, ε = 0.02": np.full((1, MANY), NANO // 50),
    "1,000 regions, ε = 1": np.full((1, MANY), NANO),
    "1,000 regions, ε = 10": np.full((1, MANY), 10 * NANO),
    "1,000 regions, each with an ε of its own": NANO // 50 + np.arange(MANY)[None, :],
}


def samplers() -> dict[str, Noise]:
    """Those that are installed."""
    found: dict[str, Noise] = {"exact": SecureNoise()}
    try:
        found["OpenDP"] = OpenDPNoise()
    except MissingExtra as missing:
        print(missing)
    return found


def draw(noise: Noise, charge: np.ndarray) -> float:
    """Seconds for one sample with these charges, one for each region."""
    counts, where = np.full(charge.shape, 400), np.ones(charge.shape, dtype=np.bool_)
    return seconds_of(lambda: noise.noisy(0, counts, charge, 1, where))


def main() -> None:
    noises = samplers()
    rows, slowest = [], 0.0
    for name, charge in CASES.items():
        best = alternate({kind: lambda n=noise, c=charge: draw(n, c) for kind, noise in noises.items()}, ROUNDS)
        slowest = max(slowest, best["exact"])
        rows.append((name, *(f"{best[kind] * 1e3:.3g} ms" for kind in noises)))
    print_table(f"One sample of one server, best of {ROUNDS}, one core", ("", *noises), rows)
    print_targets([Target(f"exact noise for {MANY:,} regions, any row", slowest * 1e3, 20.0, " ms", at_least=False)])


if __name__ == "__main__":
    main()
