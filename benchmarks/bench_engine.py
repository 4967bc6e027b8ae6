"""Speed of the engine: DPCrowd on Linear, 50 servers, 1000 slots, 50 runs, one core, noise included.

Timed is what `server_slots_per_second` of every result counts: the five steps of the scheme, the noise and, where the
network changes, drawing it. Data, compilation and metrics are not in it; the whole is printed beside it. On a static
graph the engine races a hand-written Numba loop of the same arithmetic, once both have given the same estimates for
the same noise. The loop draws noise only where a sample is taken. The engine draws it for every server and slot, so
that schemes are compared on the same luck, and is held to the bound all the same.
"""

from __future__ import annotations

from harness import Target, alternate, per_second, print_table, print_targets, seconds_of  # isort: skip  # sets threads

import numpy as np
from handwritten import Case, run_loop
from numpy.typing import NDArray

from dpcrowd.kernels.engine import best_engine
from dpcrowd.privacy import SeededNoise, noise_scale, noise_var
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import draw_run
from dpcrowd.sim.data.seeds import Purpose, sequence
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.topology import Networks

Floats = NDArray[np.float64]

SERVERS, RUNS, SEED = 50, 50, 0
PAPER = 10_000  # server-slots/s that the paper reports for its Matlab code


def config(*, dynamic: bool, keep: bool = False) -> SimulationConfig:
    return configure(
        "dpcrowd",
        "linear",
        servers=SERVERS,
        density=0.1,
        runs=RUNS,
        seed=SEED,
        dynamic=dynamic,
        keep_estimates=keep,
    )


def draw_data(setup: SimulationConfig) -> tuple[NDArray[np.int64], Floats]:
    """Counts (runs, slots, servers) and shares (runs, servers)."""
    drawn = [
        draw_run(setup.data, seed=SEED, run=run, servers=SERVERS, shares=setup.shares, observation=setup.observation)
        for run in range(RUNS)
    ]
    return np.stack([run.counts[:, :, 0] for run in drawn]), np.stack([run.shares for run in drawn])


def hand_case(setup: SimulationConfig) -> Case:
    """The same simulation for the hand-written loop."""
    counts, shares = draw_data(setup)
    links = Networks(setup.network, SEED, range(RUNS), None, best_engine()).at(0)
    hearing = links.hearing("one-hop")
    guarantee, tuning = setup.entrants[0].guarantee, setup.tuning
    assert guarantee is not None
    most = int(tuning.sample_fraction * guarantee.length)
    amount = guarantee.total // most
    return Case(
        counts=counts,
        shares=shares,
        gain=np.reshape(hearing.gain, (RUNS, SERVERS)),
        indptr=hearing.matrix.indptr.astype(np.uint32),
        indices=hearing.matrix.indices.astype(np.uint32),
        process_var=float(setup.model.noise_var[0]),
        noise_scale=float(noise_scale(amount)),
        noise_var=float(noise_var(amount)),
        amount=amount,
        total=guarantee.total,
        most=most,
        theta=tuning.theta,
        xi=tuning.xi,
        proportional=tuning.gains[0],
        integral=tuning.gains[1],
        window=tuning.integral_window,
    )


def noise_numbers(case: Case) -> Floats:
    """The noise that the engine adds at each place if it samples there, (runs, slots, servers)."""
    noise = SeededNoise([sequence(SEED, run, Purpose.NOISE) for run in range(RUNS)], SERVERS, 1)
    slots = case.counts.shape[1]
    zeros, every = np.zeros((RUNS * SERVERS, 1), dtype=np.int64), np.ones((RUNS * SERVERS, 1), dtype=np.bool_)
    charge = np.array([[case.amount]])
    drawn = np.stack([noise.noisy(slot, zeros, charge, 1, every)[:, 0] for slot in range(slots)])
    return np.ascontiguousarray(drawn.reshape(slots, RUNS, SERVERS).swapaxes(0, 1))


def all_noise(case: Case) -> Floats:
    """Two exponentials for every server and slot."""
    return np.random.Generator(np.random.SFC64(0)).standard_exponential((2, *case.counts.shape))


def largest_difference(case: Case) -> float:
    """Between the engine's estimates and the loop's for the same noise, relative."""
    (record,) = run_batch(config(dynamic=False, keep=True), range(RUNS))
    assert record.estimates is not None
    ours = record.estimates[..., 0]
    theirs = run_loop(case, np.random.default_rng(0), noise_numbers(case)).estimates
    assert (np.isnan(ours) == np.isnan(theirs)).all()
    return float(np.nanmax(np.abs(ours - theirs) / np.maximum(np.abs(ours), 1.0)))


def main() -> None:
    static, dynamic = config(dynamic=False), config(dynamic=True)
    case = hand_case(static)
    difference = largest_difference(case)
    assert difference < 1e-9, f"the loop and the engine differ by {difference:.2g}: they are not the same arithmetic"
    run_loop(case, np.random.default_rng(0))
    best = alternate(
        {
            "static": lambda: run_batch(static, range(RUNS))[0].seconds,
            "hand": lambda: seconds_of(lambda: run_loop(case, np.random.default_rng(0))),
            "hand, all noise": lambda: seconds_of(lambda: (run_loop(case, np.random.default_rng(0)), all_noise(case))),
            "dynamic": lambda: run_batch(dynamic, range(RUNS))[0].seconds,
            "data": lambda: seconds_of(lambda: draw_data(static)),
            "whole static": lambda: seconds_of(lambda: run_batch(static, range(RUNS))),
        }
    )
    work = case.counts.size
    names = {
        "static": "engine, static graph",
        "hand": "hand-written Numba loop, static graph",
        "hand, all noise": "the loop, and noise drawn for every server and slot",
        "dynamic": "engine, graph drawn anew each slot, drawing included",
        "whole static": "data, graph, engine and metrics, static graph",
        "data": "of which data generation",
    }
    rows = [
        (
            text,
            f"{best[name]:.3f} s",
            per_second(work, best[name]),
            f"{best[name] / best['hand']:.2f}",
            f"{work / best[name] / PAPER:,.0f}x",
        )
        for name, text in names.items()
    ]
    print_table(
        f"DPCrowd on Linear: {SERVERS} servers, {static.data.slots} slots, {RUNS} runs, one core, noise included",
        ("", "best of 5", "server-slots", "time / loop", "paper's Matlab"),
        rows,
        f"Engine and loop give the same estimates for the same noise: largest relative difference {difference:.1e}.",
    )
    print_targets(
        [
            Target("server-slots/s, static graph", work / best["static"], 5e6, "/s"),
            Target("server-slots/s, graph drawn anew each slot", work / best["dynamic"], 1e6, "/s"),
            Target("time of the engine / time of the loop", best["static"] / best["hand"], 5, "x", at_least=False),
        ]
    )


if __name__ == "__main__":
    main()
