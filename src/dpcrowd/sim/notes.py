"""Remarks for the reader of a result: the promise in words, and where figures can be misread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpcrowd.errors import counted
from dpcrowd.plugins import package_of
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.past import Past
from dpcrowd.schemes.registry import groups_regions
from dpcrowd.schemes.relay import AUDIENCE_OF_RECORDS, Relay
from dpcrowd.sim.config import OBSERVED_AS_PEOPLE, Entrant, SimulationConfig
from dpcrowd.sim.data import NAMES
from dpcrowd.sim.empty_notes import empty_notes, empty_warnings, is_empty
from dpcrowd.sim.fit_notes import FEWEST_INTERVALS, LEAST_COVERAGE, MOST_COVERAGE
from dpcrowd.sim.fitted import in_sample_note, model_note, timing_notes
from dpcrowd.sim.group_notes import group_notes
from dpcrowd.sim.learning_notes import learning_notes, learns, notes_without_filters
from dpcrowd.sim.link_notes import link_notes
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.relay_notes import relay_notes
from dpcrowd.sim.result import Attribution, exhaustion
from dpcrowd.sim.share_notes import covered, notes_on_shares_by_region, overlap_notes, sum_of_shares
from dpcrowd.sim.statistics import mean_with_interval
from dpcrowd.testing import Report, examine_scheme

__all__ = ["attribution", "details", "notes", "overlap_notes", "promise", "setup", "warnings"]

_EQUAL_SHARES = "shares that differ by region are taken for equal ones"
_NARROW_COVERAGE = 0.94  # of 95% intervals, below which moves are said to make them too narrow
_EVERY_SLOT = 0.99  # samples per slot
_SHOWN = 5  # names of regions
_NOTHING_READ = "nothing to promise: the model alone is released, and no count is read."
_REPORTS: dict[tuple[type[Scheme], str], tuple[Scheme, Report]] = {}
"""Checks take a second; once per scheme and process is enough. The scheme is kept, since the key contains addresses."""


def promise(config: SimulationConfig, entrant: Entrant) -> str | None:
    """Return the guarantee in words, with the limits that the simulated setting puts on it.

    The promise of another package's scheme is printed as that package's claim; the checks of `dpcrowd.testing` are made
    first, and a scheme that does not pass them is never printed as if it had.
    """
    package = package_of(entrant.scheme)
    if isinstance(entrant.scheme, Past) and package is None:
        return _NOTHING_READ
    if entrant.guarantee is None:
        return None
    limits = []
    if config.accounting == "per-region" and len(config.data.regions) > 1 and not isinstance(entrant.scheme, Relay):
        limits.append("Only for a user who stays in one region, since accounting is per region: ")
    servers = entrant.guarantee.servers_per_slot
    if entrant.guarantee.users == "roaming" and not covered(config, servers):
        limits.append(
            f"Not for these shares, which sum to about {sum_of_shares(config):.3g} and put users at several servers "
            f"at once; only if a user were at no more than {servers}: "
        )
    text = f"{''.join(limits)}{entrant.guarantee}"
    if isinstance(entrant.scheme, Relay):
        text += f" {AUDIENCE_OF_RECORDS}"
    return text if package is None else _attributed(text, entrant.scheme, package)


def attribution(entrant: Entrant) -> Attribution:
    """Return who answers for the promise; a scheme of another package is checked, as for `promise`."""
    package = package_of(entrant.scheme)
    if package is None or entrant.guarantee is None:
        return Attribution()
    return Attribution(package, _report(entrant.scheme).ok)


def _report(scheme: Scheme) -> Report:
    key = type(scheme), repr(sorted(vars(scheme).items(), key=str))
    if key not in _REPORTS:
        _REPORTS[key] = scheme, examine_scheme(scheme)
    return _REPORTS[key][1]


def _attributed(text: str, scheme: Scheme, package: str) -> str:
    """Return the promise of a scheme of another package, with who makes it and whether it passes our checks."""
    report = _report(scheme)
    if report.ok:
        return f"promised by {package}, whose scheme passes dpcrowd's checks; the proof is theirs: {text}"
    return (
        f"claimed by {package}, whose scheme does not pass dpcrowd's checks ({report.failures[0]}): do not rely on it, "
        f'nor on the ε that the scheme reports. The claim is: "{text}"'
    )


def setup(config: SimulationConfig, entrant: Entrant) -> dict[str, Any]:
    """Return the settings of a scheme's run, as one row of plain values.

    Those of relay are None for other schemes. Each has one type in all files: `samples` and `lag` are floats, since
    they may be absent; `reach` and `hops_per_slot` are texts, since they may be "all". `shares` is how they are drawn,
    or "given".
    """
    guarantee = entrant.guarantee
    relay = entrant.scheme if isinstance(entrant.scheme, Relay) else None
    return {
        "data": config.data.name,
        "servers": config.servers,
        "density": config.network.density,
        "graph": config.network.name,
        "epsilon": None if guarantee is None else float(guarantee.epsilon),
        "guarantee": None if guarantee is None else guarantee.kind,
        "length": None if guarantee is None else guarantee.length,
        "users": config.users,
        "turnover": config.turnover,
        "accounting": config.accounting,
        "observation": config.observation,
        "form": config.form,
        "seed": config.seed,
        "burn_in": config.burn_in,
        "samples": None if relay is None or entrant.samples is None else float(entrant.samples),
        "reach": None if relay is None else str(relay.max_hops or "all"),
        "hops_per_slot": None if relay is None else str(relay.rounds or "all"),
        "lag": None if relay is None else float(relay.lag),
        "groups": None if relay is None else relay.groups,
        **({} if config.composition is None else {"composition": config.composition}),
        **({} if config.share_width == 0.0 else {"share_width": None if relay is None else config.share_width}),
        **({"meetings": True} if config.meetings and relay is not None else {}),
        **_of_model(config, entrant),
        "shares": config.shares if isinstance(config.shares, str) else "given",
    }


def _of_model(config: SimulationConfig, entrant: Entrant) -> dict[str, Any]:
    """Return the settings of the process model; without one, only whether filters learn, if that was asked for."""
    if config.fitted is None:
        return {"learn": learns(config, entrant)} if config.learn else {}
    model = config.fitted
    return {
        "model": model.file,
        "learn": learns(config, entrant),
        "in_sample_slots": config.in_sample,
        "model_source": model.source,
        **({"model_earlier_sources": list(model.earlier_sources)} if model.earlier_sources else {}),
        "model_span": model.span,
        "model_season": str(model.season),
    }


def notes(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return the remarks to print with the result."""
    remarks = _different_promises(config)
    if config.data.name not in NAMES:  # a user's own: a label column that was taken for a region shows here
        more = len(config.data.regions) - _SHOWN
        names = ", ".join(f"'{name}'" for name in config.data.regions[:_SHOWN]) + (f" and {more} more" * (more > 0))
        regions = counted(len(config.data.regions), "region")
        remarks.append(f"the data have {counted(config.data.slots, 'slot')} of {regions}: {names}.")
    remarks += overlap_notes(config)
    regional = any(e.guarantee is not None and not isinstance(e.scheme, Relay) for e in config.entrants)
    if config.accounting == "per-region" and len(config.data.regions) > 1 and regional:
        remarks.append(
            "per-region accounting (the paper's): a user who moves between regions pays epsilon_paid.moving."
        )
    if config.beta is not None and not config.has_consensus:
        labels = ", ".join(entrant.label for entrant in config.entrants)
        remarks.append(f"beta has no effect, since there is no consensus step in {labels}.")
    if config.fitted is not None:
        remarks.append(model_note(config.fitted))
        remarks += timing_notes(config.fitted, config.data)
        in_sample = in_sample_note(config.fitted, config.in_sample)
        remarks += [] if in_sample is None else [in_sample]
    remarks += learning_notes(config)
    return [
        *remarks,
        *notes_on_shares_by_region(config),
        *relay_notes(config),
        *link_notes(config),
        *_uncalibrated(config, records),
        *_narrow(config, records),
        *empty_notes(config, records),
        *_wide(config, records),
        *group_notes(config, records),
        *_incomplete(records),
        *_exhausted(config, records),
    ]


def warnings(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return the remarks without which figures are misread, which are among the notes, too.

    Slots that a model has seen, budgets and horizons that ended before the data, intervals that contain the truth too
    rarely or too often, estimates with intervals that are worse than a guess of 0, missing estimates, links that do not
    connect all servers, users at several servers, and promises of different spans.
    """
    in_sample = None if config.fitted is None else in_sample_note(config.fitted, config.in_sample)
    return [
        *([] if in_sample is None else [in_sample]),
        *_exhausted(config, records),
        *_narrow(config, records),
        *empty_warnings(config, records),
        *_wide(config, records),
        *_incomplete(records),
        *link_notes(config),
        *overlap_notes(config),
        *_different_promises(config),
    ]


def details(config: SimulationConfig) -> list[str]:
    """Return those of the notes that repeat a default or what a scheme is: a table may leave them out."""
    return [OBSERVED_AS_PEOPLE, *(notes_without_filters(config) if config.fitted is not None else [])]


def _exhausted(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return remarks on budgets and horizons that ended before the data, one for all schemes alike."""
    alike: dict[str, list[str]] = {}
    for record in records:
        budget = exhaustion(record)
        if budget["exhausted_at"] is not None:
            text = (
                f"budget exhausted at slot {budget['exhausted_at']} of {config.data.slots} (the median of the "
                f"{budget['exhausted_servers']:.0%} of the servers that ran out); these take no more samples."
            )
            alike.setdefault(text, []).append(record.label)
    for record in records:
        end = record.horizon_over_at
        if end is not None and exhaustion(record)["exhausted_servers"] < 1.0:
            none = ", and no slot that is scored has one" if config.burn_in >= end else ""
            text = f"horizon over at slot {end} of {config.data.slots}: no samples since, only predictions{none}."
            alike.setdefault(text, []).append(record.label)
    return [f"{', '.join(labels)}: {text}" for text, labels in alike.items()]


def _uncalibrated(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return remarks on what the diagonal form does not know of several regions, and what the matrix form knows."""
    if len(config.data.regions) == 1:
        return []
    moves = any(config.model_of(entrant).transition.ndim == 2 for entrant in config.entrants)
    if config.form != "diagonal":
        known = "people move between the regions of these data by a full matrix A, which the matrix form knows."
        return [known] if moves else []
    remarks = []
    windows = [e for e in config.entrants if e.guarantee is not None and e.guarantee.kind == "window"]
    grouped = [entrant.label for entrant in windows if groups_regions(entrant.scheme)]
    if grouped and config.observation == "paper" and config.fitted is None:
        remarks.append(
            f"intervals of {', '.join(grouped)} are uncalibrated: regions of a group share one draw, which the "
            "diagonal form takes for several."
        )
    elif grouped and config.fitted is None:
        remarks.append(
            f"intervals of {', '.join(grouped)} are wide, because only the sum of a group of regions is measured, and "
            "not how it is divided among them; a process model (model=FILE) says more about that."
        )
    if moves:
        remarks.append(_of_moves(config, records))
    return remarks


def _of_moves(config: SimulationConfig, records: Sequence[RunRecords]) -> str:
    """Return a remark on people who move between regions: what that costs, as measured, and what is still to try."""
    coverages = {record.label: mean_with_interval(record.coverage95).mean for record in records}
    narrow = [label for label, coverage in coverages.items() if coverage is not None and coverage < _NARROW_COVERAGE]
    text = "people move between the regions of these data by a full matrix A, and the diagonal form predicts that each "
    text += "region stays as it is (A = 1): its filters are less "
    text += f"accurate, and intervals of {', '.join(narrow)} too narrow" if narrow else "accurate"
    if config.share_width == 0.0:
        return f"{text} (form=matrix can)."
    return f"{text} (learn=True makes them wider)." if narrow and not config.learn else f"{text}."


def _narrow(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return remarks on intervals that contain the truth much less often than they say, one for all with one reason."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        coverage = mean_with_interval(record.coverage95).mean
        if coverage is not None and coverage < LEAST_COVERAGE:
            alike.setdefault(_why_narrow(config, record), []).append((record.label, f"{coverage:.1%}"))
    remarks = []
    for reason, narrow in alike.items():
        labels, coverages = zip(*narrow, strict=True)
        parts = (" and " if len(narrow) == 2 else ", ").join(coverages)
        text = f"only {parts} of {'its' if len(narrow) == 1 else 'their'} 95% intervals contain the truth"
        remarks.append(f"{', '.join(labels)}: {text}. They are too narrow: {reason}")
    return remarks


def _why_narrow(config: SimulationConfig, record: RunRecords) -> str:
    """Return why the intervals of a scheme are too narrow, and what may help."""
    relays = {entrant.label for entrant in config.entrants if isinstance(entrant.scheme, Relay)}
    could_learn = relays if config.form == "diagonal" and config.composition is None else set()
    reason = "the model does not fit these data"
    if 0.0 < float(record.frequency.mean()) < _EVERY_SLOT:
        reason += ", or samples are too rare to follow them"
    if config.composition is not None and float(record.frequency.mean()) > 0.0:  # the model alone has no shares
        learns = record.label in relays and config.share_width > 0.0
        shares = "it has not learned yet how shares differ by region" if learns else _EQUAL_SHARES
        reason = f"{shares}, or {reason}" if learns else shares
        if record.label in relays and not learns:
            reason += "; with share_width=0.1 it learns them"
    advice = "" if config.learn or record.label not in could_learn else " With learn=True it learns how far it is off."
    return f"{reason}.{advice}"


def _wide(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return a remark if intervals of some schemes contain the truth clearly more often than they say."""
    cells = (config.data.slots - config.burn_in) * config.servers * len(config.data.regions)
    if config.runs * cells < FEWEST_INTERVALS:
        return []
    coverages = {record.label: mean_with_interval(record.coverage95).mean for record in records if not is_empty(record)}
    wide = [label for label, coverage in coverages.items() if coverage is not None and coverage > MOST_COVERAGE]
    if not wide:
        return []
    return [
        f"more than {MOST_COVERAGE:.1%} of the 95% intervals of {', '.join(wide)} contain the truth: they are wider "
        "than they need to be, and the estimates are better than they say."
    ]


def _incomplete(records: Sequence[RunRecords]) -> list[str]:
    remarks = []
    for record in records:
        missing, failed = float(record.missing.mean()), int(np.isinf(record.are).sum())
        if missing > 0:
            remarks.append(f"{record.label}: {missing:.2%} of server-slots had no estimate yet and are left out.")
        if failed:
            remarks.append(
                f"{record.label}: {failed} of {counted(len(record.are), 'run')} diverged, so it has no mean error."
            )
    return remarks


def _different_promises(config: SimulationConfig) -> list[str]:
    """Return a remark if schemes with different spans are compared: the same epsilon covers different things."""
    lengths: dict[str, list[str]] = {}
    for entrant in config.entrants:
        if entrant.guarantee is not None:
            where = "any window of" if entrant.guarantee.kind == "window" else "a complete stream of"
            lengths.setdefault(f"{where} {counted(entrant.guarantee.length, 'slot')}", []).append(entrant.label)
    if len(lengths) < 2:
        return []
    spans = "; ".join(f"{span} for {', '.join(labels)}" for span, labels in lengths.items())
    return [f"epsilon covers {spans}: their errors are not at the same privacy."]
