"""The figures of docs/paper-notes.md, from the library's own filters and noise.

The example is Linear (Q = 1e5, r(0) = 20,000, epsilon = 1, T = 1000) seen by one server with share H = 0.5 that
observes H r + N(0, H^2 Q). Every variant of a note sees the same truth and the same noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel, observation_info, predict, update
from dpcrowd.privacy import SeededNoise, noise_var

Floats = NDArray[np.float64]

SHARE, PROCESS_VAR, START, SLOTS = 0.5, 1e5, 20_000.0, 1000
MODEL = ProcessModel.of(1.0, [PROCESS_VAR])


def world(runs: int, slots: int, samples: int) -> tuple[Floats, Floats, float]:
    """Truth and noisy counts, (slots, runs, 1), for samples of epsilon/`samples`, and the variance R of one sample."""
    rng = np.random.default_rng(1)
    truth = START + np.cumsum(rng.normal(0, PROCESS_VAR**0.5, (slots, runs, 1)), axis=0)
    counts = np.rint(SHARE * truth + rng.normal(0, SHARE * PROCESS_VAR**0.5, truth.shape)).astype(np.int64)
    charge = np.array([[10**9 // samples]])
    noise = SeededNoise([np.random.SeedSequence(2)], runs, 1)
    every = np.ones((runs, 1), dtype=np.bool_)
    noisy = np.stack([noise.noisy(t, counts[t], charge, 1, every) for t in range(slots)])
    return truth, noisy, float(noise_var(charge)[0, 0]) + SHARE**2 * PROCESS_VAR


def release_as_measurement(runs: int = 50, every: int = 5) -> None:
    """Note 6: what a slot without a sample takes for a measurement."""
    truth, noisy, obs_var = world(runs, SLOTS, SLOTS // every)
    print("note 6: a sample every 5 slots, slots 20 on", f"({runs} runs)")
    for name, factor in (("no measurement (ours)", None), ("z = H r(t-1)", SHARE), ("z = r(t-1), as printed", 1.0)):
        mean, var = np.zeros((runs, 1)), np.full((runs, 1), np.inf)
        errors, claims = [], []
        for t in range(SLOTS):
            sampled = t % every == 0
            seen = noisy[t] if sampled or factor is None else factor * mean
            mean, var = predict(mean, var, MODEL)
            where = np.full((runs, 1), sampled or factor is not None)
            with np.errstate(over="ignore", invalid="ignore"):
                info = observation_info(seen, np.array(SHARE), np.array(obs_var), where)
                mean, var = update(mean, var, *info)
                if t >= 20:
                    errors.append((mean - truth[t]) ** 2)
                    claims.append(var)
        with np.errstate(over="ignore", invalid="ignore"):
            rmse = float(np.sqrt(np.mean(errors)))
        shown = f"{rmse:8.0f}" if rmse < 1e6 else "diverges"
        print(f"  {name:24} rmse {shown}   claimed sd {np.sqrt(np.mean(claims)):6.0f}")


def first_slots(runs: int = 4000, slots: int = 12) -> None:
    """Notes 1, 8 and 9: how long a wrong start is felt, with a sample of epsilon/300 in each slot."""
    truth, noisy, obs_var = world(runs, slots, 300)
    print(
        f"notes 1, 8, 9: first sample sd {np.sqrt(obs_var) / SHARE:.0f}, variance {obs_var / SHARE**2:,.0f};", end=" "
    )
    print(f"printed variance {SHARE**2 / obs_var:.2g}   ({runs} runs; rmse by slot)")
    first = noisy[0] / SHARE
    starts = {
        "ours": (first, obs_var / SHARE**2),
        "note 8: variance H^2/R": (first, SHARE**2 / obs_var),
        "note 9: prior not divided by H": (noisy[0], obs_var / SHARE**2),
        "notes 8 and 9 together": (noisy[0], SHARE**2 / obs_var),
    }
    for name, (start, start_var) in starts.items():
        mean, var = start, np.full((runs, 1), start_var)
        rmse = [np.sqrt(np.mean((mean - truth[0]) ** 2))]
        for t in range(1, slots):
            mean, var = predict(mean, var, MODEL)
            info = observation_info(noisy[t], np.array(SHARE), np.array(obs_var), np.ones((runs, 1), dtype=np.bool_))
            mean, var = update(mean, var, *info)
            rmse.append(np.sqrt(np.mean((mean - truth[t]) ** 2)))
        print(f"  {name:32}" + " ".join(f"{value:6.0f}" for value in rmse))


def neighbours_dropped() -> None:
    """Note 10: the steady state with the server's own information only, and with that of six servers."""
    obs_var = float(noise_var(np.array([[10**9 // 300]]))[0, 0]) + SHARE**2 * PROCESS_VAR
    print("note 10: steady-state standard deviation")
    for servers in (1, 6):
        info = servers * SHARE**2 / obs_var
        steady = (-PROCESS_VAR + np.sqrt(PROCESS_VAR**2 + 4 * PROCESS_VAR / info)) / 2
        print(f"  {servers} server(s): {np.sqrt(steady):.0f}")


def main() -> None:
    release_as_measurement()
    first_slots()
    neighbours_dropped()


if __name__ == "__main__":
    main()
