"""What a reader of a result should know about shares: users at several servers or none, and shares by region."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpcrowd.schemes.meetings import never_meet
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.data import CheckIns
from dpcrowd.sim.data.shares import is_partition
from dpcrowd.sim.planning import schedules_meet

__all__ = ["covered", "notes_on_shares_by_region", "overlap_notes", "sum_of_shares"]

_ROUNDING = 1e-9  # of sums of shares
_OVERLAP = (
    "and users may be at several servers at once, so epsilon is what one server promises, not the network (use "
    "shares=partition for that)."
)
_MEAN_SHARE = 0.525  # of U(0.05, 1)


def sum_of_shares(config: SimulationConfig) -> float:
    """Return at how many servers an average user is in one slot."""
    if _is_partition(config):
        return 1.0
    if isinstance(config.shares, str):
        return _MEAN_SHARE * config.servers
    return float(np.max(np.sum(np.atleast_2d(config.shares), axis=1)))  # of any slot, or of any region


def _is_partition(config: SimulationConfig) -> bool:
    """Whether every user is at one server."""
    if isinstance(config.shares, str):
        return config.shares == "partition" or isinstance(config.data, CheckIns)
    return isinstance(config.data, CheckIns) or is_partition(config.shares)


def covered(config: SimulationConfig, servers_per_slot: int) -> bool:
    """Whether no user is at more servers per slot than the guarantee covers.

    Servers that do not partition the users draw them independently: a user may be at all of them.
    """
    return _is_partition(config) or servers_per_slot >= config.servers


def overlap_notes(config: SimulationConfig) -> list[str]:
    """Return a remark if users may be at more servers at once than a promise covers."""
    promises = [entrant.guarantee for entrant in config.entrants if entrant.guarantee is not None]
    if all(covered(config, guarantee.servers_per_slot) for guarantee in promises):
        return []
    total = sum_of_shares(config)
    if isinstance(config.shares, str):
        return [f"shares sum to about {total:.3g}, {_OVERLAP}"]
    sums = np.atleast_2d(config.shares).sum(axis=1).ravel()  # of regions, of slots, or the only one
    low, high = sums < 1.0 - _ROUNDING, sums > 1.0 + _ROUNDING
    remarks = []
    if high.any():
        place = "" if high.all() else _place(config, int(np.argmax(sums)))
        remarks.append(f"shares sum to about {total:.3g}{place}, {_OVERLAP}")
    if low.any():
        least = float(sums.min())
        place = "" if np.ptp(sums) < _ROUNDING else _place(config, int(np.argmin(sums)))
        remarks.append(
            f"shares sum to {least:.4g}{place}, so at least {100 * (1.0 - least):.2g}% of the crowd are at no server. "
            "If every user is at one server, they have to sum to 1: is a share mistyped, or a server missing? Servers "
            "with such shares draw their users independently, some users twice, so epsilon is what one server "
            "promises, not the network."
        )
    if high.any() and not (low | high).all():
        divided = _place(config, int(np.argmin(low | high)))
        remarks.append(
            f"shares sum to 1{divided}, though not everywhere: there each user is at one server, while users may be at "
            "several elsewhere. If every user is at one server, a share of the others is mistyped; if users overlap "
            "there, too, let the sum differ from 1, such as 0.999."
        )
    return remarks


def _place(config: SimulationConfig, number: int) -> str:
    """Return where shares that differ by region, or by slot, have a sum."""
    assert not isinstance(config.shares, str)
    return f" in region '{config.data.regions[number]}'" if config.shares.ndim == 3 else f" in slot {number}"


def notes_on_shares_by_region(config: SimulationConfig) -> list[str]:
    """Return remarks on shares that filters do not know, and on those that relay learns."""
    relays = ", ".join(entrant.label for entrant in config.entrants if isinstance(entrant.scheme, Relay))
    remarks = []
    if config.composition is not None:
        learning = ""
        if config.share_width > 0.0:
            learning = f", and {relays} learns the others from records"
        elif relays:
            learning = f"; with share_width=0.1, {relays} learns the others from records"
        remarks.append(
            f"shares differ by region (composition {config.composition:g}): schemes know one share per "
            f"server{learning}."
        )
    elif config.share_width > 0.0:
        remarks.append(
            f"{relays} learns the shares of every region from records; public shares may be wrong by "
            f"{config.share_width:.0%}."
        )
    for entrant in config.entrants if config.share_width > 0.0 else ():
        if not isinstance(entrant.scheme, Relay) or entrant.guarantee is None or entrant.samples is None:
            continue
        meet = partial(schedules_meet, config, entrant.guarantee)
        if not meet(entrant.samples):
            remarks.append(f"{entrant.label}: {never_meet(entrant.samples, entrant.guarantee.length, meet)}")
    return remarks
