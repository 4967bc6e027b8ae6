"""All schemes by their names on the command line, and how to make one from a name and options."""

from __future__ import annotations

import inspect
from typing import Any

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.schemes.ba import BA
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.bd import BD
from dpcrowd.schemes.central import Central
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
from dpcrowd.schemes.dpcrowd_w import DPCrowdW
from dpcrowd.schemes.fast import FAST
from dpcrowd.schemes.filtering import FilterScheme
from dpcrowd.schemes.flooding import (
    DBA,
    DBD,
    DFAST,
    DKalmanUniform,
    DPeGaSus,
    DRescueDP,
    DSample,
    DUniform,
    Flooding,
)
from dpcrowd.schemes.kalman_uniform import KalmanUniform
from dpcrowd.schemes.nonprivate import NonPrivate
from dpcrowd.schemes.past import Past
from dpcrowd.schemes.pegasus import PeGaSus
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.rescue import RescueScheme
from dpcrowd.schemes.rescuedp import RescueDP
from dpcrowd.schemes.sample import Sample
from dpcrowd.schemes.sampled import SampledScheme
from dpcrowd.schemes.uniform import Uniform

__all__ = ["OWN", "SCHEMES", "groups_regions", "make_from", "make_scheme", "staggered_interval", "takes_interval"]

_ALL: tuple[type[Scheme], ...] = (
    NonPrivate,
    Central,
    FAST,
    DFAST,
    DPCrowd,
    DPCrowdW,
    DPCrowdPlus,
    RescueDP,
    DRescueDP,
    BD,
    BA,
    DBD,
    DBA,
    PeGaSus,
    DPeGaSus,
    Uniform,
    Sample,
    DUniform,
    DSample,
    KalmanUniform,
    DKalmanUniform,
    Relay,
    Past,
)

SCHEMES: dict[str, type[Scheme]] = {scheme.name: scheme for scheme in _ALL}

OWN = frozenset(_ALL)
"""The schemes that this package is responsible for; those of other packages are found by `dpcrowd.plugins`."""


def takes_interval(scheme: type[Scheme]) -> bool:
    """Whether a sampling interval means anything to a scheme."""
    return issubclass(getattr(scheme, "wraps", None) or scheme, SampledScheme) or scheme in (Central, Relay)


def staggered_interval(scheme: Scheme) -> int | None:
    """Return the interval of a scheme that samples staggered, and None for all others."""
    if isinstance(scheme, Flooding):
        return staggered_interval(scheme.inner)
    if isinstance(scheme, Central):
        return scheme.interval if scheme.sampling == "staggered" else None
    if isinstance(scheme, SampledScheme) and scheme.sampling == "staggered":
        return scheme.interval
    return None


def groups_regions(scheme: Scheme) -> bool:
    """Whether a scheme joins regions into groups that share one draw of noise."""
    if isinstance(scheme, Flooding):
        return groups_regions(scheme.inner)
    if isinstance(scheme, Central):
        return scheme.interval is None and scheme.grouping != "none"
    return isinstance(scheme, RescueScheme) and scheme.grouping != "none"


def has_learning_filters(scheme: Scheme) -> bool:
    """Whether a scheme has filters that learn how well their model fits, if the setting says so (diagonal form)."""
    if isinstance(scheme, Flooding):
        return has_learning_filters(scheme.inner)
    return isinstance(scheme, FilterScheme | Central | Relay)


def make_scheme(name: str, **options: Any) -> Scheme:
    """Return one of dpcrowd's own schemes by its name; options that are None are left out."""
    if name not in SCHEMES:
        raise unknown_name("scheme", name, SCHEMES)
    return make_from(SCHEMES[name], name, **options)


def make_from(scheme: type[Scheme], name: str, **options: Any) -> Scheme:
    """Return an instance of a scheme that users call `name`; options that are None are left out."""
    arguments = {key: value for key, value in options.items() if value is not None}
    if scheme is Relay and "sampling" in arguments:
        raise BadInput(
            f"scheme '{name}' has a schedule of its own, staggered for pinned users and in lockstep for roaming ones; "
            f"leave sampling '{arguments['sampling']}' out, and give samples or an interval."
        )
    if "interval" in arguments:
        if not takes_interval(scheme):
            fit = ", ".join(n for n, s in SCHEMES.items() if takes_interval(s))
            raise BadInput(f"scheme '{name}' takes no sampling interval; these do: {fit}.")
        if scheme is not Relay:
            arguments.setdefault("sampling", "fixed")
    target = getattr(scheme, "wraps", None) or scheme
    takes_none = target.__init__ is object.__init__
    allowed = set() if takes_none else set(inspect.signature(target.__init__).parameters) - {"self"}
    for key in arguments:
        if key not in allowed:
            raise BadInput(f"scheme '{name}' has no option '{key}'. Allowed: {', '.join(sorted(allowed)) or 'none'}.")
    return scheme(**arguments)
