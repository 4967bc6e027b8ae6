"""Reading raw counts: pay first, then draw. The one path from counts to noisy values for all filtering schemes.

A group of regions is read as one sum with one draw. In the diagonal form each member gets a part of its noisy sum back
(equal parts 1/n, or those of the plan), so a part p carries p^2 of the noise's variance, and all members of a
group carry the same draw.

A sum costs what a count costs because one person changes it by 1. That is true of integers: from 2^53 on, float64 knows
every second number only, so sums are taken in integers, and counts of a slot that add up to 2^53 or more are refused
before anything is paid or drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Ints
from dpcrowd.errors import BadInput
from dpcrowd.privacy import Ledger, Noise
from dpcrowd.schemes.base import Plan, Reading, every_region

__all__ = ["LARGEST_TOTAL", "check_counts", "group_totals", "perturb_counts"]

LARGEST_TOTAL = 2**53
"""The counts of a server in one slot add up to less: every such sum is a float64 of its own."""


def perturb_counts(ledger: Ledger, plan: Plan, counts: Ints, noise: Noise, sensitivity: int) -> Reading:
    """Return noisy counts of the regions that are due, paid at the ledger before they are drawn.

    >>> from dpcrowd import Guarantee, Plan, SeededNoise, noise_var, open_ledger
    >>> ledger = open_ledger(Guarantee.window(2, epsilon=1.0), servers=1, regions=2)
    >>> due, amount = np.array([[True]]), np.array([[500_000_000]])
    >>> plan = Plan(0, np.array([[0.5]]), due, amount, noise_var(amount))
    >>> noise = SeededNoise([np.random.SeedSequence(1)], 1, 2)
    >>> reading = perturb_counts(ledger, plan, np.array([[40, 7]]), noise, sensitivity=1)
    >>> reading.noisy.shape, reading.charge.tolist(), ledger.remaining(0).tolist()
    ((1, 2), [[500000000]], [[500000000]])
    """
    charge = plan.due * plan.amount
    if not plan.due.any():
        return Reading(np.zeros(counts.shape), plan.noise_var, charge)
    if plan.pivot is not None:
        _check_total(counts)
    ledger.spend(plan.slot, charge)
    if plan.pivot is not None:
        return _perturb_groups(plan, counts, noise, sensitivity, charge)
    where = every_region(plan.due, counts.shape[1])
    noisy = noise.noisy(plan.slot, counts, plan.amount, sensitivity, where)
    return Reading(noisy, plan.noise_var, charge)


def _perturb_groups(plan: Plan, counts: Ints, noise: Noise, sensitivity: int, charge: Ints) -> Reading:
    assert plan.pivot is not None
    servers, regions = counts.shape
    due = every_region(plan.due, regions)
    pivot = np.where(due, plan.pivot, np.arange(regions))
    sums, sizes = group_totals(np.where(due, counts, 0), pivot)
    leads = due & (pivot == np.arange(regions))
    group_noisy = noise.noisy(plan.slot, sums, plan.amount, sensitivity, leads)
    place = np.arange(servers)[:, None] * regions + pivot
    part = 1.0 / sizes.take(place) if plan.parts is None else plan.parts
    group_var = np.broadcast_to(plan.noise_var, counts.shape)
    return Reading(
        noisy=np.where(due, group_noisy.take(place) * part, 0.0),
        noise_var=group_var * (part * part),
        charge=charge,
        group_noisy=group_noisy,
        group_var=np.where(leads, group_var, np.inf),
    )


def group_totals(values: NDArray[np.int64], pivot: Ints) -> tuple[Ints, Ints]:
    """Return the sums of the groups' members and their sizes, each at the group's pivot, (N, d); both are exact."""
    servers, regions = values.shape
    place = (np.arange(servers)[:, None] * regions + pivot).ravel()
    length = servers * regions
    sums = np.zeros(length, dtype=np.int64)
    np.add.at(sums, place, values.ravel())  # bincount would add in float64
    sizes = np.bincount(place, minlength=length)
    return sums.reshape(values.shape), sizes.reshape(values.shape)


def _check_total(counts: Ints) -> None:
    """Refuse counts (N, d) of servers that add up to `LARGEST_TOTAL` or more, without printing any value."""
    about = counts.sum(axis=1, dtype=np.float64)  # the integers could overflow; twice the bound is far from that
    if (about >= 2.0 * LARGEST_TOTAL).any() or (counts.sum(axis=1, dtype=np.int64) >= LARGEST_TOTAL).any():
        raise BadInput(
            "the counts of all regions must add up to less than 2^53, so that one person changes a sum by 1; given "
            "more. Give numbers of people."
        )


def check_counts(counts: object, regions: int) -> Ints:
    """Return one server's counts as a (1, d) integer array, or refuse them without printing any value."""
    array = np.asarray(counts)
    if array.shape != (regions,):
        raise BadInput(f"counts must have shape ({regions},), one number per region; given shape {array.shape}.")
    if array.dtype.kind not in "iuf":
        raise BadInput(f"counts must be whole numbers; given an array of {array.dtype}.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise BadInput("counts must be whole numbers >= 0; given NaN or infinity.")
        if (array != np.floor(array)).any():
            raise BadInput("counts must be whole numbers; given fractions; round them first.")
    if (array < 0).any():
        raise BadInput("counts must be >= 0; given a negative one.")
    if (array > 2**52).any():
        raise BadInput("counts must be at most 2^52.")
    checked = array.astype(np.int64)[None, :]
    _check_total(checked)
    return checked
