"""The line that says what an error is without any privacy: what observation alone costs, and in which schemes.

A server counts only a part of the crowd. What that costs depends on whose counts it hears, so the line has the error of
one that hears its neighbours and of one that hears all servers, and says which schemes of the result are which.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpcrowd.errors import counted
from dpcrowd.schemes.nonprivate import NonPrivate
from dpcrowd.schemes.past import Past
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import Entrant, SimulationConfig
from dpcrowd.sim.result import Errors, ObservationNoise

__all__ = ["observation_note"]

_ROUNDING = 1e-12  # smaller errors are those of floating-point numbers
_HEARD = {
    "alone": "itself alone",
    "one-hop": "its neighbours",
    "flooding": "all servers that links connect",
    "central": "all servers",
}


def observation_note(noise: ObservationNoise, config: SimulationConfig) -> str:
    """Return a line that says what the observation noise alone costs, and for which schemes."""
    part = "" if noise.runs == config.runs else f", in {counted(noise.runs, 'run')} of {config.runs}"
    exact = all(error is None or error < _ROUNDING for error in vars(noise.together).values())
    together = "nothing where it hears those of all servers"
    if not exact:
        together = f"{_errors_text(noise.together)} where those of all servers are added up, without a filter"
    text = (
        f"the observation noise alone (each server counts only a part of the crowd) costs "
        f"{_errors_text(noise.non_private)} where a server hears the exact counts of its neighbours (non-private), and "
        f"{together}{part}"
    )
    if config.composition:
        text += f"; part of it is due to public shares that are wrong (composition {config.composition:g})"
    return f"{text}.{_who_hears_whom(config.entrants)}"


def _who_hears_whom(entrants: Sequence[Entrant]) -> str:
    """Return a sentence that says whom each scheme hears; nothing if there is none beside `non-private`."""
    labels: dict[str, list[str]] = {}
    for entrant in entrants:
        if not isinstance(entrant.scheme, NonPrivate | Past):
            labels.setdefault(_heard_by(entrant), []).append(entrant.label)
    texts = [f"{whom} ({', '.join(names)})" for whom, names in labels.items()]
    return f" Here a server hears {', or '.join(texts)}." if texts else ""


def _heard_by(entrant: Entrant) -> str:
    """Return whose counts, though noised, a server of a scheme hears."""
    scheme = entrant.scheme
    if not isinstance(scheme, Relay):
        return _HEARD[scheme.reach]
    if scheme.max_hops == 1:
        return _HEARD["one-hop"]
    whom = _HEARD["flooding"] if scheme.max_hops is None else f"servers up to {scheme.max_hops} hops away"
    whom += "" if scheme.rounds is None else ", distant ones later"
    return whom if scheme.max_hops is None else f"{whom}, which is between the two"


def _errors_text(errors: Errors) -> str:
    values = (("ARE", errors.are), ("total error", errors.total_error))
    parts = [f"{name} {0.0 if value < _ROUNDING else value:.3g}" for name, value in values if value is not None]
    return " and ".join(parts) or "no defined error"
