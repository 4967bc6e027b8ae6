"""The contract of every scheme with the simulator, private or not: shapes, determinism, batches, unchanged inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.base import Release, run_slot
from dpcrowd.testing.trial import ContractBroken, Trial, overwritten
from dpcrowd.testing.world import WINDOW, bits, fingerprint, hearing_of, make_world, same

__all__ = ["CHECKS"]

_PARTS = ("estimate", "variance", "sampled", "charge", "speaks")
_BATCH_SLOTS = 2 * WINDOW
_OTHER_SEED = 1  # of a world whose graph has the same largest degree as the standard one, for 1 and for 4 regions


def check_shapes(trial: Trial) -> None:
    """Releases have the documented shapes and types; a wrong one would broadcast silently into wrong metrics."""
    servers, regions = trial.world.servers, trial.world.regions
    wide: list[tuple[int, ...]] = [(servers, regions)]
    either = [(servers, 1), *wide]
    allowed: dict[str, tuple[list[tuple[int, ...]], type]] = {
        "estimate": (wide, np.float64),
        "variance": (wide, np.float64),
        "sampled": (either, np.bool_),
        "charge": (either, np.int64),
        "speaks": ([(servers,)], np.bool_),
    }
    for slot, release in enumerate(trial.releases):
        if not isinstance(release, Release) or release.slot != slot:
            raise ContractBroken(f"release() of slot {slot} must return a dpcrowd.Release of that slot")
        for name, (shapes, dtype) in allowed.items():
            array = getattr(release, name)
            if array.shape not in shapes or array.dtype != dtype:
                words = " or ".join(f"{np.dtype(dtype)}{shape}" for shape in shapes)
                raise ContractBroken(f"{name} of a release must be {words}; given {array.dtype}{array.shape}")


def check_values(trial: Trial) -> None:
    """Estimates are numbers or NaN (nothing known yet), variances are > 0 or NaN, and what is paid is not negative."""
    for slot, release in enumerate(trial.releases):
        if np.isinf(release.estimate).any():
            raise ContractBroken(f"the estimate of slot {slot} is infinite; give NaN where nothing is known")
        if (release.variance <= 0).any():
            raise ContractBroken(f"a variance of slot {slot} is not > 0; give NaN where the scheme has none")
        if (release.charge < 0).any():
            raise ContractBroken(f"a charge of slot {slot} is negative")


def check_determinism(trial: Trial) -> None:
    """The same counts and noise give the same bits, and what was released does not change later."""
    before = [fingerprint(release) for release in trial.releases]
    if not same(trial.second_run.releases, trial.releases):
        raise ContractBroken(
            "a second run on the same counts and the same noise gives different releases: take randomness from the "
            "noise that is passed in, time from the slot, and keep what changes in the state that start() returns"
        )
    if before != [fingerprint(release) for release in trial.releases]:
        raise ContractBroken("arrays of a release change after it was made: copy what the state goes on changing")


def check_batches(trial: Trial) -> None:
    """A run in the middle of a batch is the same run alone: it depends neither on the runs before nor on those after.

    It is the standard run. The world of the others has the same safe consensus step (see `_OTHER_SEED`).
    """
    scheme, world, servers = trial.scheme, trial.world, trial.world.servers
    other = make_world(_OTHER_SEED, regions=world.regions)
    members = [other, world, other]
    phases = None if trial.setting.phases is None else np.tile(trial.setting.phases, len(members))
    noise = SeededNoise([member.noise_seed for member in members], servers, world.regions)
    state = scheme.start(replace(trial.setting, servers=servers * len(members), runs=len(members), phases=phases))
    hearing = hearing_of(scheme, [member.graph(0) for member in members], world.gain)
    shares = np.concatenate([member.shares for member in members])
    counts = np.concatenate([member.counts for member in members], axis=1)
    for slot, alone in enumerate(trial.releases[:_BATCH_SLOTS]):
        release = run_slot(scheme, state, slot, shares, counts[slot], noise, hearing)
        for name in _PARTS:
            if bits(getattr(release, name)[servers : 2 * servers]) != bits(getattr(alone, name)):
                raise ContractBroken(f"{name} of slot {slot} differs when other runs are simulated in the same batch")


def check_inputs(trial: Trial) -> None:
    """The scheme changes neither counts and shares, which other schemes read next, nor itself."""
    if trial.second_run.meddling is not None:
        raise ContractBroken(trial.second_run.meddling)


def check_dropped(trial: Trial) -> None:
    """Counts are read in perturb() only: if they are overwritten afterwards, nothing changes."""
    if trial.reads_only_paid_counts:
        return
    if not same(trial.play(step=overwritten), trial.releases):
        raise ContractBroken(
            "the array of raw counts is kept and read after perturb(): copy, or better, do not keep it"
        )


CHECKS = {
    "shapes": check_shapes,
    "values": check_values,
    "determinism": check_determinism,
    "batches": check_batches,
    "inputs": check_inputs,
    "dropped counts": check_dropped,
}
