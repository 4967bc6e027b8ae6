"""Shares H_i: the fraction of the population that each server sees, 0 < H <= 1.

    uniform    H_i ~ U(0.05, 1), constant over time. The paper draws from U(0, 1), where x/H has no finite variance.
    per-slot   the same, drawn anew in each slot: the paper's H_i(t).
    partition  U(0.05, 1) divided by its sum, so that the shares sum to 1 and each user is at one server. No share is
               further than a factor 20 from another one, unlike a Dirichlet draw, whose smallest share tends to 0.

Real servers differ by region: a hospital sees most of its own quarter and little of the next. `draw_composition` makes
the shares of a partition differ, region by region; the share that is public is still one number per server. Explicit
shares may differ by region, too, and are then public as they are: (1, servers, regions).

With `uniform`, 50 shares sum to about 26: each user is at 26 servers at once, and epsilon holds per server only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Bools, Floats, Shares
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters.persistence import are_partitioned

__all__ = [
    "EQUAL",
    "KINDS",
    "SMALLEST",
    "checked_composition",
    "checked_share_width",
    "checked_shares",
    "draw_composition",
    "draw_shares",
    "is_partition",
    "normalised",
    "partitioned_regions",
    "without_regions",
    "without_rounding",
]

KINDS = ("uniform", "per-slot", "partition")
EQUAL = "equal"
"""Equal parts, so that every user is at one server: nothing is drawn."""
SMALLEST = 0.05
_EXACT = 1e-9  # how far sums of exact shares may be from 1


def draw_shares(kind: str | Sequence[float] | Shares, servers: int, slots: int, rng: np.random.Generator) -> Shares:
    """Return shares (servers,) or, for 'per-slot', (slots, servers). Explicit shares are checked and returned."""
    if servers < 1:
        raise BadInput(f"servers={servers}; allowed: 1 or more.")
    if not isinstance(kind, str):
        return checked_shares(kind, servers, slots)
    if kind not in KINDS:
        raise unknown_name("kind of shares", kind, KINDS)
    if kind == "per-slot":
        return rng.uniform(SMALLEST, 1.0, (slots, servers))
    shares = rng.uniform(SMALLEST, 1.0, servers)
    return normalised(shares) if kind == "partition" else shares


def draw_composition(shares: Shares, composition: float, regions: int, rng: np.random.Generator) -> Floats:
    """Return shares (servers, regions) of a partition that differ by region, around the public shares (servers,).

    Those of a region are a draw of Dirichlet(composition m H): H on average, with the variance H (1 - H)/(composition
    m + 1). For equal shares of many servers the standard deviation is H/sqrt(composition): with 5 a share of 5% is from
    2% to 10% in most regions, with 0.5 most shares are near 0 and a few are large.
    """
    return np.ascontiguousarray(rng.dirichlet(checked_composition(composition) * len(shares) * shares, regions).T)


def checked_composition(composition: float) -> float:
    """Return a concentration of shares by region, or refuse it."""
    if isinstance(composition, bool) or not isinstance(composition, int | float) or not 0.01 <= composition <= 1e6:
        raise BadInput(
            f"composition={composition!r}; allowed: 0.01 to 1,000,000. The smaller it is, the more the shares of a "
            "server differ by region."
        )
    return float(composition)


def checked_share_width(width: object) -> float:
    """Return the typical relative error of public shares, or refuse it; True would be an error of 100%."""
    if (
        isinstance(width, bool)
        or not isinstance(width, int | float | np.integer | np.floating)
        or not 0.0 <= float(width) <= 1.0
    ):
        raise BadInput(f"share_width={width!r}; allowed: from 0 (shares are right) to 1, a number such as 0.1.")
    return float(width)


def checked_shares(
    shares: Sequence[float] | Sequence[Sequence[float]] | Shares,
    servers: int,
    slots: int,
    regions: int | None = None,
    *,
    is_default: bool = False,
) -> Shares:
    """Return explicit shares, one per server, slot and server, or server and region; refuse any that is not in (0, 1].

    regions     of the data: shares (servers, regions) are then taken as (1, servers, regions)
    is_default  whether nobody has given the number of servers, which a message then says
    """
    try:
        values = np.array(shares, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"shares must be numbers; given {shares!r}.") from None
    if regions is not None and values.shape == (servers, regions) and values.shape != (slots, servers):
        values = values[None]
    by_region = values.ndim == 3 and values.shape == (1, servers, regions or values.shape[2])
    if values.ndim == 1 and len(values) != servers:
        number = counted(len(values), "share")
        raise BadInput(f"{number} given for {counted(servers, 'server')}; give one number per server.")
    if values.shape not in ((servers,), (slots, servers)) and not by_region:
        more = "" if regions is None else f", or one for each of their {regions} regions, ({servers}, {regions})"
        raise BadInput(
            f"shares have shape {values.shape}; allowed: one for each of {servers} servers, ({servers},){more}."
            + is_default * f" {servers} is the default; the number of servers is given with servers."
        )
    bad = np.argwhere(~((values > 0) & (values <= 1)))  # NaN is bad too
    if len(bad):
        place = tuple(int(index) for index in bad[0])
        server, more = place[-1], ""
        if values.ndim == 2:
            more = f" in slot {place[0]}"
        elif values.ndim == 3:
            server, more = place[1], f" in region {place[2]}"
        raise BadInput(f"share of server {server}{more} is {values[place]:g}; allowed: above 0, at most 1.")
    return without_rounding(without_regions(values))


def without_regions(shares: Shares) -> Shares:
    """Return shares by region (1, m, d) as one per server, (m,), where they are the same in all regions."""
    return shares[0, :, 0] if shares.ndim == 3 and (shares == shares[..., :1]).all() else shares


def normalised(shares: Shares) -> Shares:
    """Return the shares divided by their sum (of each slot, or region)."""
    return np.asarray(shares / shares.sum(axis=_axis_of_servers(shares), keepdims=True))


def without_rounding(shares: Shares) -> Shares:
    """Return shares of which those that sum to 1 but for a rounding to six decimals sum to 1 exactly."""
    axis = _axis_of_servers(shares)
    total = shares.sum(axis=axis, keepdims=True)
    exact = np.abs(total - 1.0) <= _EXACT
    return np.where(np.expand_dims(_partitioned(shares), axis) & ~exact, shares / total, shares)


def partitioned_regions(shares: Shares) -> Bools:
    """Return in which regions every user is at exactly one server in every slot, (1,) or (d,)."""
    return np.atleast_1d(np.atleast_2d(_partitioned(shares)).all(axis=0 if shares.ndim == 3 else None))


def is_partition(shares: Shares) -> bool:
    """Whether the shares sum to 1 (in every slot and region), so that each user is at exactly one server."""
    return bool(partitioned_regions(shares).all())


def _partitioned(shares: Shares) -> Bools:
    """Return where the shares sum to 1: (), (slots,) or (1, d)."""
    return are_partitioned(shares) if shares.ndim == 3 else are_partitioned(shares[..., None])[..., 0]


def _axis_of_servers(shares: Shares) -> int:
    return -2 if shares.ndim == 3 else -1
