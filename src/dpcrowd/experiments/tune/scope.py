"""What can be tuned, and on which slots: the parameters of each scheme, the span, and the sentence that says so."""

from __future__ import annotations

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.data import NAMES, CheckIns, DataSet
from dpcrowd.sim.data.span import Span, is_drawn_anew, read_span

__all__ = ["TUNABLE", "check_span", "described", "tuned_names"]

_SAMPLED = ("process_var", "theta", "xi", "sample_fraction")
_RESCUE = ("process_var", "rescue_theta")

TUNABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("central", "fast", "dfast", "dpcrowd", "dpcrowd-w"), _SAMPLED),
    **dict.fromkeys(("dpcrowd-plus", "rescuedp", "drescuedp"), _RESCUE),
}
"""Schemes by name, and their parameters; the central filter's are those of a finite stream."""


def tuned_names(scheme: str, window: int | None = None, users: str = "pinned") -> tuple[str, ...]:
    """The parameters of a scheme that evolution looks for, Q first."""
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise unknown_name("scheme", str(scheme), TUNABLE)
    if scheme not in TUNABLE:
        raise BadInput(f"scheme '{scheme}' has no parameters to tune; these have: {', '.join(TUNABLE)}.")
    names = _RESCUE if scheme == "central" and window is not None else TUNABLE[scheme]
    # Roaming users pay the same for every slot, so that there is no T_s.
    return tuple(name for name in names if name != "sample_fraction" or users != "roaming")


def check_span(config: SimulationConfig, span: Span | None) -> tuple[int, int]:
    """(first, last) of the slots to tune on: those asked for, else the first half of a series."""
    data = config.data
    if is_drawn_anew(data):
        if span is not None:
            raise BadInput(
                f"a span was given, but '{data.name}' is drawn anew in each run and has no past: leave it out, and "
                "whole runs of other seeds are tuned on."
            )
        return 0, data.slots
    first, last = read_span((0, max(1, data.slots // 2)) if span is None else span, data.slots)
    length = last - first
    if length < config.burn_in + 2:
        raise BadInput(
            f"slots {first}:{last} are {length}; tuning needs at least {config.burn_in + 2}, since errors count "
            f"from slot {config.burn_in} on (burn-in)."
        )
    guarantee = config.entrants[0].guarantee
    if guarantee is not None and guarantee.kind == "window" and guarantee.length > length:
        raise BadInput(
            f"the window of {guarantee.length} slots is longer than slots {first}:{last} that are tuned on; take a "
            f"window of at most {length}, or a longer span."
        )
    return first, last


def described(config: SimulationConfig, whole: DataSet, method: str, transition: str | None) -> str:
    """The sentence that says on which data it was tuned; `config` is on the span."""
    data = config.data
    what = "noisy samples of " if method == "likelihood" else ""
    counted = ""
    if transition == "frequencies":
        counted = "; A from " + (
            "the moves of users" if isinstance(data, CheckIns) else "consecutive counts (macro data)"
        )
    if is_drawn_anew(data):
        return f"{what}{config.runs} simulated runs of '{data.name}' with seeds of their own; nobody's data{counted}"
    labels = "" if data.slot_labels is None else f" ({data.slot_labels[0]} to {data.slot_labels[-1]})"
    if data.name in NAMES:
        origin = "public data"
    elif method == "likelihood":
        origin = "past data, of which Q has seen noisy samples only"
    else:
        origin = "past data, on which the parameters depend without any epsilon"
    told = f"{what}slots {data.first} to {data.first + data.slots - 1} of the {whole.first + whole.slots} of "
    return f"{told}'{data.name}'{labels}; {origin}{counted}"
