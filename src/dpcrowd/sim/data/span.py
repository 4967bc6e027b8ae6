"""A span of a data set: slots first .. last - 1 of a series, as a data set of its own.

Parameters are tuned on one span and tried on another. Whatever was computed from the complete series, namely Q, has
to be computed again from the span, or the past would contain the future. A Q that was given by hand stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpcrowd.errors import BadInput, counted
from dpcrowd.filters.model import ProcessModel
from dpcrowd.sim.data.checkins import CheckIns
from dpcrowd.sim.data.dataset import DataSet, FixedData
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES, GIVEN_BY_HAND, one_step_var
from dpcrowd.sim.data.synthetic import SyntheticData

__all__ = ["Span", "cut", "fraction_hint", "is_drawn_anew", "notes_beside_variance", "read_span", "span_text"]

Span = str | Sequence[float]

FROM_THE_SPAN = "the process variance Q is taken from slots {first} to {last} of the series."
_FORM = re.compile(r"\s*(\d+|\d*\.\d+|\d+\.)?\s*:\s*(\d+|\d*\.\d+|\d+\.)?\s*")


def is_drawn_anew(data: DataSet) -> bool:
    """Whether every run has another truth, so that no slot of one is the past of another."""
    return isinstance(data, SyntheticData)


def notes_beside_variance(data: DataSet) -> tuple[str, ...]:
    """Return the notes of a data set without those on where its process variance comes from."""
    of_span = FROM_THE_SPAN.partition("{")[0]
    about_variance = (FROM_WHOLE_SERIES, GIVEN_BY_HAND)
    return tuple(note for note in data.notes if note not in about_variance and not note.startswith(of_span))


def span_text(span: Span) -> str:
    """Return a span as text; refuse anything but a text or a pair of numbers."""
    if isinstance(span, str):
        return span
    parts = list(span) if isinstance(span, Sequence | np.ndarray) else []
    if len(parts) != 2:
        raise BadInput(
            f"span={span!r} is not allowed; give FIRST:LAST as a text, in slots ('0:395') or as fractions ('0:0.5'), or"
            " a pair of numbers, (0, 395)."
        )
    return ":".join(str(part) for part in parts)


def read_span(span: Span, slots: int, begin: int = 0) -> tuple[int, int]:
    """Return (first, last) of "0:395", half open, of fractions of all slots ("0:0.5", with a point), or of a pair.

    begin  the number of the first slot; what is returned counts from it
    """
    text = span_text(span)
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadInput(f"span '{text}' is not allowed; give FIRST:LAST in slots (0:395) or as fractions (0:0.5).")
    start, stop = (part or "" for part in match.groups())
    if "." in start + stop:
        beyond = [part for part in (start, stop) if float(part or 0) > 1.0]
        if beyond and "." not in beyond[0]:
            raise BadInput(
                f"span '{text}' mixes a fraction and slots ({beyond[0]}); give both in slots (0:395) or both as "
                "fractions from 0 to 1 (0:0.5)."
            )
        if beyond:
            raise BadInput(
                f"span '{text}' goes beyond the data: {beyond[0]} is a fraction, since it has a point. Allowed: "
                f"fractions from 0 to 1 (0:0.5), or slots ({begin}:{begin + slots})."
            )
        bounds = [begin + round(float(part) * slots) for part in (start or "0", stop or "1")]
    else:
        bounds = [int(start or begin), int(stop or begin + slots)]
    first, last = bounds
    if last > begin + slots:
        have = counted(slots, "slot") if begin == 0 else f"slots {begin} to {begin + slots - 1}"
        raise BadInput(
            f"span '{text}' ends at slot {last}, but the data have {have}; allowed: {begin}:{begin + slots}."
        )
    if first >= last:
        raise BadInput(f"span '{text}' contains none of the {slots} slots; the first must be below the last.")
    return max(first - begin, 0), max(last - begin, 0)


def fraction_hint(first: int, last: int) -> str:
    """Return what to give instead of 0:1, if that was meant as all of the series; empty of any other span."""
    return " 0:1 is slot 0 alone; the complete series is 0:1.0, with a point." if (first, last) == (0, 1) else ""


def cut(data: DataSet, first: int, last: int) -> DataSet:
    """Return slots first .. last - 1 of a series; a synthetic set is drawn anew in each run and has none."""
    if not 0 <= first < last <= data.slots:
        raise BadInput(f"slots {first}:{last} were asked of '{data.name}'; allowed: a span within 0:{data.slots}.")
    if (first, last) == (0, data.slots):
        return data
    labels = None if data.slot_labels is None else data.slot_labels[first:last]
    shorter: DataSet
    if isinstance(data, FixedData):
        shorter = replace(data, counts=data.counts[first:last], slots=last - first, slot_labels=labels)
    elif isinstance(data, CheckIns):
        inside = (data.entry_slot >= first) & (data.entry_slot < last)
        shorter = replace(
            data,
            slots=last - first,
            slot_labels=labels,
            entry_slot=data.entry_slot[inside] - first,
            entry_user=data.entry_user[inside],
            entry_region=data.entry_region[inside],
        )
    else:
        raise BadInput(f"'{data.name}' is drawn anew in each run and has no past; leave the span out, or give slots.")
    return _with_own_variance(replace(shorter, first=data.first + first), data)


def _with_own_variance(shorter: DataSet, complete: DataSet) -> DataSet:
    if shorter.slots < 2:
        raise BadInput(
            f"a span of one slot of '{complete.name}' does not show how counts change; give two or more."
            f"{fraction_hint(shorter.first - complete.first, shorter.first - complete.first + 1)}"
        )
    truth = shorter.truth(np.random.default_rng(0))  # of a fixed series: nothing is drawn
    change_var = one_step_var(truth)
    if not np.array_equal(complete.model.process_var, complete.change_var):
        return replace(shorter, change_var=change_var)
    own_note = FROM_THE_SPAN.format(first=shorter.first, last=shorter.first + shorter.slots - 1)
    return replace(
        shorter,
        change_var=change_var,
        model=ProcessModel.of(complete.model.transition, change_var),
        notes=tuple(own_note if note == FROM_WHOLE_SERIES else note for note in complete.notes),
    )
