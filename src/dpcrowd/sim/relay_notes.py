"""What was chosen for relay where nobody gave a number: samples, reach and hops per slot, in one remark per scheme."""

from __future__ import annotations

from collections.abc import Sequence

from dpcrowd.errors import counted
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import Entrant, SimulationConfig
from dpcrowd.sim.planning import schedules_meet
from dpcrowd.sim.topology import Networks

__all__ = ["relay_notes"]

_AT_ONCE = (
    "one hop per slot, which is the simulator's default. Live servers forward them at once: --hops-per-slot all "
    '(hops_per_slot="all" in Python).'
)


def relay_notes(config: SimulationConfig) -> list[str]:
    """Return remarks on the numbers of samples and hops that were chosen by prediction or by default."""
    slow = _slow_labels(config)
    remarks = []
    for entrant in config.entrants:
        remark = _planned(config, entrant)
        if remark is not None:
            remarks.append(remark)
    if not slow:
        return remarks
    if len(slow) == len(remarks) == 1:
        return [f"{remarks[0]} Records go {_AT_ONCE}"]
    return [*remarks, f"{', '.join(slow)}: records go {_AT_ONCE}"]


def _planned(config: SimulationConfig, entrant: Entrant) -> str | None:
    """Return how many samples and hops were chosen, and why; None if none was."""
    scheme, guarantee = entrant.scheme, entrant.guarantee
    if not isinstance(scheme, Relay) or guarantee is None:
        return None
    samples = ""
    if scheme.samples is None and scheme.interval is None:
        number = counted(entrant.samples or 0, "sample")
        samples = f"{entrant.label} takes {number} in {counted(guarantee.length, 'slot')}"
    hops = ""
    if entrant.reach_planned:
        distance = "to every server" if scheme.max_hops is None else counted(scheme.max_hops, "hop")
        hops = f"its records travel {distance}" if samples else f"records of {entrant.label} travel {distance}"
    if not samples and not hops:
        return None
    known = "Q" if config.fitted is None else "process model"
    error = "mean relative error" if config.fitted is None else "total error"
    # What is chosen has to keep a part of what records gain over the model.
    keep = "" if config.fitted is None else " and that keep nine tenths of what records gain over the model alone"
    meeting = ""
    if samples and config.meetings and schedules_meet(config, guarantee, entrant.samples or 1):
        meeting = ", or a number near it with which servers that learn shares meet"
    elif samples and config.meetings:
        meeting = "; no number near it lets all servers that learn shares meet at little cost"
    chosen = ", and ".join(part for part in (samples, hops) if part)
    return (
        f"{chosen}: the fewest whose predicted {error} is within 2% of the least{keep}, given graph, shares, {known} "
        f"and guarantee{meeting}."
    )


def _slow_labels(config: SimulationConfig) -> Sequence[str]:
    """Return the schemes whose records take several slots only because nobody said how fast they are.

    Where every server is linked with every other one, all records arrive with the first hop.
    """
    slow = [
        entrant.label
        for entrant in config.entrants
        if entrant.hops_assumed and isinstance(entrant.scheme, Relay) and entrant.scheme.max_hops != 1
    ]
    if not slow:
        return []
    networks = Networks(config.network, config.seed, [0], None, "numpy", config.model.growth)
    return slow if networks.at(0).graph.density < 1.0 else []
