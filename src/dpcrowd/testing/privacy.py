"""The contract of a private scheme: counts leave through the noise only, and every read is paid for, first and in full.

The strongest check is `composition`. Under noise that ignores its input, two streams that differ in one user lead to
the same outputs, so their reads can be compared one by one. Discrete Laplace noise of scale s/ε on an input that
differs by Δ changes the probability of any output by a factor of at most e^(ε|Δ|/s), and the logarithms of all reads
add up. That sum must be within the budget. For the outputs that were tried this is not a statistic, but the bound
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import DpcrowdError
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise, worst_paid
from dpcrowd.privacy.units import format_epsilon
from dpcrowd.schemes.base import Release, Scheme, run_slot
from dpcrowd.testing.trial import ContractBroken, Trial, cost_of, ledger_of
from dpcrowd.testing.world import BlindNoise, Read, charges_of, hearing_of, same

__all__ = ["CHECKS"]

_EMPTY_FROM = 10


def check_noise(trial: Trial) -> None:
    """Under noise that ignores its input, other counts give the same plans, readings, messages and releases."""
    name = _first_difference(trial, lambda name: not name.startswith("state"))
    if name is not None:
        raise ContractBroken(f"{name} depends on raw counts that did not pass through the noise")


def check_saved_state(trial: Trial) -> None:
    """Under noise that ignores its input, other counts leave the same state behind: it holds none of them."""
    if trial.scheme.keeps_raw_counts:
        return
    name = _first_difference(trial, lambda name: name.startswith("state"))
    if name is not None:
        raise ContractBroken(
            f"{name} holds raw counts or something made of them without noise, and states are saved to disk; a scheme "
            "that cannot do without declares keeps_raw_counts = True and is for the simulator only"
        )


def _first_difference(trial: Trial, relevant: Callable[[str], bool]) -> str | None:
    """Return the name and slot of the first array that other counts change."""
    pairs = zip(trial.blind.released, trial.blind_to_others.released, strict=True)
    for slot, (first, second) in enumerate(pairs):
        if first != second:
            names = filter(relevant, first.keys() | second.keys())
            different = sorted(name for name in names if first.get(name) != second.get(name))
            if different:
                return f"'{different[0]}' of slot {slot}"
    return None


def check_paid_first(trial: Trial) -> None:
    """Before each read of counts, the ledger has been charged for it and for all reads before it."""
    if trial.blind.unpaid is not None:
        raise ContractBroken(trial.blind.unpaid)


def check_charges(trial: Trial) -> None:
    """What a release says was paid covers all reads of its slot."""
    unit = trial.setting.need_guarantee().sensitivity
    charged = np.stack([charge.max(axis=1) for charge in trial.blind.charged])
    costs = np.zeros(charged.shape)
    for read in trial.blind.reads:
        costs[read.slot] += cost_of(read, unit)
    short = np.argwhere(costs > charged * (1 + 1e-9))
    if len(short):
        slot, server = (int(i) for i in short[0])
        raise ContractBroken(
            f"in slot {slot} server {server} reads counts for {costs[slot, server] / 1e9:.6g} ε, and its release says "
            f"that {charged[slot, server] / 1e9:.6g} ε were charged"
        )


def check_fresh_draws(trial: Trial) -> None:
    """No draw is used for two reads: their difference would be free of noise."""
    used: dict[tuple[int, int], Bools] = {}
    for read in trial.blind.reads:
        key = (read.slot, read.number)
        where = np.zeros((len(read.where), trial.world.regions), dtype=np.bool_)
        where[:, : read.where.shape[1]] = read.where
        if (used.get(key, np.zeros_like(where)) & where).any():
            raise ContractBroken(
                f"slot {read.slot} is read twice with read={read.number}, which gives the same draw twice: number the "
                "reads of a slot 0, 1, 2, ..."
            )
        used[key] = used.get(key, np.zeros_like(where)) | where


def check_ledger(trial: Trial) -> None:
    """The ledger in the state knows all that the releases say was paid: a payment that it forgets is spent again."""
    charges: list[Ints] = []
    guarantee = trial.setting.need_guarantee()
    second = trial.second_run
    for slot, (release, ledger) in enumerate(zip(second.releases, second.ledgers, strict=True)):
        if ledger is None:
            raise ContractBroken("its state has no ledger; keep one from dpcrowd.open_ledger in the field 'ledger'")
        if (ledger.total, ledger.length) != (guarantee.total, guarantee.length):
            raise ContractBroken("its ledger was not opened for the guarantee of the setting")
        charge = release.charge
        if ledger.spent.shape[1] == 1:
            charge = charge.max(axis=1, keepdims=True)
        charges.append(np.broadcast_to(charge, ledger.spent.shape))
        begin = max(0, slot - guarantee.length + 1) if guarantee.kind == "window" else 0
        ledger.remaining(slot)
        if (ledger.spent != np.sum(charges[begin:], axis=0)).any():
            raise ContractBroken(f"after slot {slot} the ledger does not hold what the releases say was paid")


def check_budget(trial: Trial) -> None:
    """No user pays more than was promised: one who stays, one who moves (sound), one who roams (roaming users)."""
    guarantee = trial.setting.need_guarantee()
    worst = worst_paid(charges_of(trial.releases, trial.world.regions), trial.window)
    who = {"stays in one region": worst.staying}
    if trial.setting.accounting == "sound":
        who["moves between regions"] = worst.moving
    if guarantee.users == "roaming":
        who["roams between servers"] = worst.roaming
    for user, nano in who.items():
        if nano > guarantee.total:
            raise ContractBroken(
                f"a user who {user} pays ε = {format_epsilon(nano)}, more than the {format_epsilon(guarantee.total)} "
                "that were promised"
            )


def check_unpaid_counts(trial: Trial) -> None:
    """Where a server paid nothing, its counts were not read: absurd ones in their place change no bit."""
    if trial.reads_only_paid_counts:
        return
    if not same(trial.play(counts=trial.unpaid_replaced()), trial.releases):
        raise ContractBroken("counts are read in slots in which the release says that nothing was charged")


def check_empty_account(trial: Trial) -> None:
    """When the ledger has nothing left, nothing is read; the scheme goes without, or raises BudgetExhausted."""
    noise = BlindNoise(trial.world.noise())

    def step(
        scheme: Scheme, state: Any, slot: int, shares: Any, counts: Ints, noise: Noise, hearing: Hearing
    ) -> Release:
        ledger = ledger_of(state)
        if slot >= _EMPTY_FROM and ledger is not None:
            ledger.total = 0
        return run_slot(scheme, state, slot, shares, counts, noise, hearing)

    with suppress(DpcrowdError):
        trial.play(noise=noise, step=step)
    late = [read for read in noise.reads if read.slot >= _EMPTY_FROM and read.where.any()]
    if late:
        raise ContractBroken(f"counts of slot {late[0].slot} are read although the ledger has no budget left")


def check_composition(trial: Trial) -> None:
    """Of any two streams that differ in one user, all reads together reveal at most ε (see the module's docstring)."""
    guarantee = trial.setting.need_guarantee()
    base = trial.blind.reads
    users = list(_users(trial, base))
    aligned, losses = _compare_reads(base, _reads_with(trial, [presence for _, presence in users]), len(users))
    for number, (user, _) in enumerate(users):
        if not aligned[number]:
            raise ContractBroken(
                f"which counts are read, or at what price, depends on raw counts: it changes if {user} is present"
            )
        loss = float(losses[number])
        if loss > guarantee.total * (1 + 1e-9):
            raise ContractBroken(
                f"with and without {user} the probability of an output differs by a factor of up to "
                f"e^{loss / 1e9:.6g}; promised: e^{format_epsilon(guarantee.total)}. The input of a read changes by "
                "more than its sensitivity, or reads cost more than the budget"
            )


def _reads_with(trial: Trial, presences: Sequence[Ints]) -> list[Read]:
    """Return the reads of a batch with one run for each user who is present; all runs have the same noise."""
    scheme, world, runs = trial.scheme, trial.world, len(presences)
    phases = None if trial.setting.phases is None else np.tile(trial.setting.phases, runs)
    state = scheme.start(replace(trial.setting, servers=runs * world.servers, runs=runs, phases=phases))
    noise = BlindNoise(world.noise(runs=runs))
    shares = np.tile(world.shares, (runs, 1))
    counts = np.concatenate([world.counts + presence for presence in presences], axis=1)
    audiences = [hearing_of(scheme, [graph] * runs, world.gain) for graph in world.graphs]
    for slot in range(world.slots):
        run_slot(scheme, state, slot, shares, counts[slot].copy(), noise, audiences[slot % len(audiences)])
    return noise.reads


def _compare_reads(base: list[Read], batch: list[Read], runs: int) -> tuple[Bools, Floats]:
    """Compare the reads of each run of a batch with those of a single run.

    Returns, by run, whether it reads the same regions of the same slots at the same prices, and if so its privacy loss:
    the sum over all reads of what a read costs for each person by which its input differs.
    """
    aligned, losses = np.ones(runs, dtype=np.bool_), np.zeros(runs)
    if [_place(read, 1) for read in base] != [_place(read, runs) for read in batch]:
        return ~aligned, losses
    for one, many in zip(base, batch, strict=True):
        shape = (runs, *one.where.shape)
        where, charge, sensitivity, counts = (
            array.reshape(shape) for array in (many.where, many.charge, many.sensitivity, many.counts)
        )
        other_price = (charge != one.charge) | (sensitivity != one.sensitivity)
        aligned &= ~((where != one.where) | (other_price & one.where)).any(axis=(1, 2))
        change = np.abs(one.counts.astype(np.float64) - counts)
        losses += np.where(one.where, change * one.charge / np.maximum(one.sensitivity, 1), 0.0).sum(axis=(1, 2))
    return aligned, losses


def _place(read: Read, runs: int) -> tuple[int, ...]:
    """Return slot and number of a read, and the number of servers and columns per run."""
    servers, columns = read.where.shape
    return read.slot, read.number, servers // runs, columns


def _users(trial: Trial, reads: list[Read]) -> Iterator[tuple[str, Ints]]:
    """Yield users as (description, counts that they add), over a horizon or in some windows.

    One stays, one moves in each slot to where the reads cost most, and one is present in every third slot only, because
    deviations from a mean do not show a user who is always present.
    """
    guarantee, world = trial.setting.need_guarantee(), trial.world
    servers, regions = world.servers, world.regions
    prices = np.zeros((world.slots, servers, regions))
    for read in reads:
        price = np.where(read.where, read.charge / np.maximum(read.sensitivity, 1), 0.0)
        prices[read.slot] += np.broadcast_to(price, (servers, regions))
    at, within = guarantee.servers_per_slot, min(guarantee.regions_per_slot, regions)
    home = np.argsort(-prices.sum(axis=(0, 2)))[:at]
    moves = trial.setting.accounting == "sound"
    for first, last in _spans(trial, prices):
        for dearest, step in ((False, 1), (True, 1), (False, 3)):
            presence = np.zeros_like(world.counts)
            for slot in range(first, last, step):
                where = home
                if dearest and guarantee.users == "roaming":
                    where = np.argsort(-prices[slot].max(axis=1))[:at]
                for server in where:
                    inside = np.arange(within)
                    if moves and dearest:
                        inside = np.argsort(-prices[slot, server])[:within]
                    presence[slot, server, inside] += 1
            yield f"a user of slots {first} to {last - 1}", presence


def _spans(trial: Trial, prices: Floats) -> list[tuple[int, int]]:
    slots, window = trial.world.slots, trial.window
    if window is None:
        return [(0, slots)]
    by_slot = prices.max(axis=(1, 2))
    sums = [by_slot[first : first + window].sum() for first in range(slots - window + 1)]
    return [(first, first + window) for first in sorted({0, 5, int(np.argmax(sums))})]


CHECKS = {
    "noise": check_noise,
    "saved state": check_saved_state,
    "paid first": check_paid_first,
    "charges": check_charges,
    "fresh draws": check_fresh_draws,
    "ledger": check_ledger,
    "budget": check_budget,
    "unpaid counts": check_unpaid_counts,
    "empty account": check_empty_account,
    "composition": check_composition,
}
