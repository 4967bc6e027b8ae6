"""Parameters that `dpcrowd tune` found: read its TOML file, check it, and apply them to a data set.

Where a tuned parameter comes from matters: the file says on which data, slots and seeds it was found, and
`Tuned.apply` leaves a note with every result that says whether these are slots that the result itself covers.

    [tuned]   where the parameters come from; every key is required
    [model]   process_var, one number per region, and transition: 1.0, one number per region, or a matrix
    [tuning]  fields of `dpcrowd.Tuning`, only those that were tuned
"""

from __future__ import annotations

import hashlib
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcrowd.arrays import Truth
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters import ProcessModel
from dpcrowd.models.file import model_digest
from dpcrowd.models.model import Model
from dpcrowd.models.printable import quote_sources
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES, GIVEN_BY_HAND
from dpcrowd.sim.data.span import is_drawn_anew

if TYPE_CHECKING:
    from dpcrowd.sim.config import Entrant

__all__ = ["METHODS", "OPTIONAL", "SECTIONS", "Tuned", "counts_digest", "read_tuned"]

METHODS = ("evolution", "likelihood")
_MODEL_KEYS = ("process_var", "transition")


@dataclass(frozen=True, eq=False, kw_only=True)
class Tuned:
    """Parameters and where they come from.

    version                which dpcrowd wrote it (the key `dpcrowd` of the file)
    data, regions          the name of the data set and of its regions
    first, last, slots     tuned on slots first .. last - 1 of `slots`
    method, on             "evolution" or "likelihood"; a sentence that says on which data
    guarantee, length      "finite" or "window", and T or w: with `epsilon`, the privacy that it was tuned for
    are_before, are_after  mean error over the tuning runs with the parameters at the start, and with these
    objective              what evolution has minimised, "crps" or "are"; empty: another method, or not known
    crps_..., coverage_... as are_...: CRPS in parts of the mean count, and coverage of 95% intervals; NaN: not known
    burn_in                slots at the beginning of the span that were not scored; None: not known
    exhausted_at           the median slot from which on servers had no budget for another sample; None: not known, or
                           the budget lasted
    exhausted_servers      the share of the servers to which that happened; NaN: not known
    sha256                 of the counts that it was tuned on, see `counts_digest`
    process_model          the file of the process model that the filters knew; empty: they knew none
    process_model_...      why fitting it costs no privacy budget, in the words of whoever fitted it; the slots that it
                           was fitted on; and a digest of what it says
    in_sample_slots        how many of the scored slots it was fitted on; None: no process model, or not known
    model, tuning          A and Q of the filters; the tuned parameters by name
    file                   what to call it in messages
    notes                  what to know about the search; they are shown, and not written to the file
    """

    version: str
    scheme: str
    data: str
    regions: tuple[str, ...]
    first: int
    last: int
    slots: int
    method: str
    on: str
    epsilon: float
    guarantee: str
    length: int
    servers: int
    runs: int
    seed: int
    are_before: float
    are_after: float
    objective: str = ""
    crps_before: float = math.nan
    crps_after: float = math.nan
    coverage_before: float = math.nan
    coverage_after: float = math.nan
    burn_in: int | None = None
    exhausted_at: int | None = None
    exhausted_servers: float = math.nan
    sha256: str
    process_model: str = ""
    process_model_source: str = ""
    process_model_span: str = ""
    process_model_sha256: str = ""
    in_sample_slots: int | None = None
    model: ProcessModel
    tuning: Mapping[str, Any] = field(default_factory=dict)
    file: str = "these parameters"
    notes: tuple[str, ...] = ()

    def apply(self, data: DataSet) -> DataSet:
        """Return the same data with this model and tuning, and a note that says where they come from."""
        self.check_fits(data)
        about_q = (FROM_WHOLE_SERIES, GIVEN_BY_HAND)  # no longer true
        notes = tuple(note for note in data.notes if note not in about_q)
        tuning = replace(data.tuning, **self.tuning)
        return replace(data, model=self.model, tuning=tuning, notes=(*notes, self.note(data)))

    def give(
        self, data: DataSet, entrants: Sequence[Entrant], burn_in: int = 0, fitted: Model | None = None
    ) -> tuple[DataSet, tuple[Entrant, ...]]:
        """Return the entrants, of which those that run the tuned scheme have this model and tuning, and the data.

        Other schemes keep the parameters of the data; the notes of the data name them. A process model that the data
        have been given (`fitted`) takes the place of this A and Q. Slots before `burn_in` are not scored.
        """
        self.check_fits(data)
        tuning = replace(data.tuning, **self.tuning)
        model = self.model if data.model.course is None else None
        tuned = tuple(
            replace(one, model=model, tuning=tuning) if one.scheme.name == self.scheme else one for one in entrants
        )
        others = [one.label for one in entrants if one.scheme.name != self.scheme]
        about_q = () if others else (FROM_WHOLE_SERIES, GIVEN_BY_HAND)  # no longer true
        notes = [note for note in data.notes if note not in about_q]
        if len(others) < len(entrants):
            notes.append(self.note(data, f"of {self.scheme}", burn_in))
            notes += self.other_model_notes(fitted)
        if others:
            ignore = "ignores" if len(others) == 1 else "ignore"
            notes.append(f"{', '.join(others)} {ignore} {self.file}: it was tuned for {self.scheme} only.")
        return replace(data, notes=tuple(notes)), tuned

    def other_model_notes(self, fitted: Model | None) -> list[str]:
        """Return a note if the filters knew another process model, or none, when these parameters were searched."""
        if self.process_model_sha256 == ("" if fitted is None else model_digest(fitted)):
            return []
        before = "without a process model"
        if self.process_model:
            source = quote_sources(self.process_model_source.split("\n"))
            before = f"with {self.process_model} ({self.process_model_span}; source: {source})"
        here = "none" if fitted is None else f"{fitted.file} ({fitted.span})"
        return [
            f"{self.file}: tuned {before}, but the process model of this result is {here}; other parameters of "
            "sampling may be better here."
        ]

    def overlap(self, data: DataSet, burn_in: int = 0) -> int:
        """Return how many of the data's scored slots it was tuned on; 0 for synthetic data, which are drawn anew."""
        if is_drawn_anew(data):
            return 0
        return max(0, min(self.last, data.first + data.slots) - max(self.first, data.first + burn_in))

    def check_fits(self, data: DataSet) -> None:
        """Refuse data of another name, or with other regions, than those that it was tuned on."""
        if Path(self.data).name != Path(data.name).name:
            raise BadInput(f"{self.file} was tuned on '{self.data}', but the data are '{data.name}'; tune it on them.")
        if len(self.regions) != len(data.regions):
            raise BadInput(
                f"{self.file} was tuned on {counted(len(self.regions), 'region')} of '{self.data}', but "
                f"{len(data.regions)} are used; give the same regions, or tune it on these."
            )
        for tuned, used in zip(self.regions, data.regions, strict=True):
            if tuned != used:
                raise BadInput(f"{self.file} was tuned on region '{tuned}' where the data have '{used}'.")

    def note(self, data: DataSet, whose: str = "of all schemes", burn_in: int = 0) -> str:
        """Return a note: which parameters come from it, and whether it was tuned on scored slots of these data."""
        own_moves = self.model.transition.ndim == 2 or bool((self.model.transition != 1.0).any())
        names = ["A", "Q", *self.tuning] if own_moves else ["Q", *self.tuning]
        if data.model.course is not None:  # a process model takes their place
            names = list(self.tuning) or ["no parameters"]
        verb = "is" if len(names) == 1 and names != ["no parameters"] else "are"
        origin = (
            f"{', '.join(names)} {whose} {verb} from {self.file}, tuned for {self.scheme} by {self.method} at "
            f"epsilon {self.epsilon:g}"
        )
        if is_drawn_anew(data):
            return f"{origin} on other runs of '{self.data}' than these."
        covered = self.overlap(data, burn_in)
        where = f"on slots {self.first} to {self.last - 1}"
        if not covered:
            return f"{origin} {where}, none of which this result scores."
        note = (
            f"{origin} {where}: {covered} of the {data.slots - burn_in} that this result scores, and the error in "
            "those is an in-sample one."
        )
        if self.overlap(data) == self.last - self.first and self.sha256 != self._digest(data):
            note += " The counts of these slots are not those that it was tuned on: the series was revised."
        return note

    def _digest(self, data: DataSet) -> str:
        start = self.first - data.first
        truth = data.truth(np.random.default_rng(0))  # of a fixed series: nothing is drawn
        return counts_digest(truth[start : start + self.last - self.first])


def counts_digest(counts: Truth) -> str:
    """Return the SHA-256 of counts: their shape in words, then their values as 64-bit little-endian integers."""
    shape = "x".join(str(length) for length in counts.shape)
    return hashlib.sha256(shape.encode() + b"\n" + np.ascontiguousarray(counts, dtype="<i8").tobytes()).hexdigest()


def read_tuned(path: str | os.PathLike[str]) -> Tuned:
    """Read and check a file that `dpcrowd tune` wrote."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        sections = tomllib.loads(text)
    except UnicodeDecodeError:
        raise BadInput(f"tuning file '{file}' is not UTF-8 text; give a file that 'dpcrowd tune' wrote.") from None
    except OSError as error:
        raise BadInput(f"cannot read tuning file '{file}': {error.strerror or error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"tuning file '{file}' is not TOML: {error}.") from None
    for section, keys in SECTIONS.items():
        values = sections.get(section, {} if section == "tuning" else None)
        if not isinstance(values, dict):
            raise BadInput(f"{file.name} has no section [{section}]; give a file that 'dpcrowd tune' wrote.")
        for key in values:
            if key not in keys:
                raise unknown_name(f"key in [{section}] of {file.name}", key, keys)
    for section in sections:
        if section not in SECTIONS:
            raise unknown_name(f"section of {file.name}", section, SECTIONS)
    origin = _origin(sections["tuned"], file.name)
    model = _model(sections["model"], file.name, len(origin["regions"]))
    return Tuned(**origin, model=model, tuning=_tuning(sections.get("tuning", {}), file.name), file=file.name)


_KINDS: dict[str, type] = {"str": str, "int": int, "int | None": int, "float": float, "tuple[str, ...]": tuple}
_ORIGIN = {
    "dpcrowd" if f.name == "version" else f.name: (f.name, _KINDS[str(f.type)])
    for f in fields(Tuned)
    if f.name not in ("model", "tuning", "file", "notes")
}
SECTIONS: dict[str, tuple[str, ...]] = {
    "tuned": tuple(_ORIGIN),
    "model": _MODEL_KEYS,
    "tuning": tuple(f.name for f in fields(Tuning)),
}
OPTIONAL = (
    *("objective", "crps_before", "crps_after", "coverage_before", "coverage_after", "burn_in", "exhausted_at"),
    *("exhausted_servers", "process_model", "process_model_source", "process_model_span", "process_model_sha256"),
    "in_sample_slots",
)
"""Keys of [tuned] that files of earlier versions do not have, or that say something which need not happen."""
_ALLOWED = {
    "scheme": tuple(SCHEMES),
    "method": METHODS,
    "guarantee": ("finite", "window"),
    "objective": ("crps", "are"),
}
_WORDS = {str: "a text", int: "a whole number >= 0", float: "a number", tuple: "a list of texts"}


def _origin(section: dict[str, Any], file: str) -> dict[str, Any]:
    origin: dict[str, Any] = {}
    for key, (name, kind) in _ORIGIN.items():
        if key not in section and key in OPTIONAL:
            continue
        if key not in section:
            raise BadInput(f"{file} has no '{key}' in [tuned]; give a file that 'dpcrowd tune' wrote.")
        value = section[key]
        if not _fits(value, kind):
            raise BadInput(f"'{key}' in [tuned] of {file} must be {_WORDS[kind]}; given {value!r}.")
        if key in _ALLOWED and value not in _ALLOWED[key]:
            raise unknown_name(f"{key} in [tuned] of {file}", value, _ALLOWED[key])
        origin[name] = kind(value)
    if not 0.0 < origin["epsilon"] < math.inf:
        raise BadInput(f"'epsilon' in [tuned] of {file} must be a finite number > 0; given {origin['epsilon']:g}.")
    for name in ("length", "servers", "runs"):
        if origin[name] < 1:
            raise BadInput(f"'{name}' in [tuned] of {file} must be a whole number >= 1; given {origin[name]}.")
    if not origin["first"] < origin["last"] <= origin["slots"]:
        span = f"first = {origin['first']}, last = {origin['last']}, slots = {origin['slots']}"
        raise BadInput(f"[tuned] of {file} has {span}; allowed: first < last <= slots.")
    return origin


def _fits(value: Any, kind: type) -> bool:
    if kind is tuple:
        return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and value >= 0
    return _is_number(value) if kind is float else isinstance(value, kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not _too_large(value)


def _too_large(value: Any) -> bool:
    """Whether it is or holds a whole number of more than the 64 bits that TOML promises; Python reads any."""
    if isinstance(value, list):
        return any(_too_large(item) for item in value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _model(section: dict[str, Any], file: str, regions: int) -> ProcessModel:
    for key in _MODEL_KEYS:
        if key not in section:
            raise BadInput(f"{file} has no '{key}' in [model]; give a file that 'dpcrowd tune' wrote.")
    process_var = section["process_var"]
    if not isinstance(process_var, list) or len(process_var) != regions:
        raise BadInput(f"'process_var' in [model] of {file} must be a list of {regions} numbers, one per region.")
    if not (_numeric(process_var) and _numeric(section["transition"])):
        raise BadInput(f"[model] of {file} must hold numbers only.")
    try:
        return ProcessModel.of(section["transition"], process_var)
    except BadInput as error:
        raise BadInput(f"[model] of {file}: {error}") from None


def _numeric(value: Any) -> bool:
    if isinstance(value, list):
        return all(_numeric(item) for item in value)
    return _is_number(value)


def _tuning(section: dict[str, Any], file: str) -> dict[str, Any]:
    for key, value in section.items():
        if _too_large(value):
            raise BadInput(f"'{key}' in [tuning] of {file} is {value}; whole numbers have at most 64 bits.")
    try:
        Tuning(**section)
    except BadInput as error:
        raise BadInput(f"[tuning] of {file}: {error}") from None
    return dict(section)
