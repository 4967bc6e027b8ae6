"""The TOML file of a process model: readable, written to the last bit, and checked when it is read.

[model]     what it was fitted on and how, and why that costs no privacy budget (`source`)
[scores]    how good it was on blocks of its span that were held out
[[region]]  level, a, variance and profile of each region
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters.model import InCommon
from dpcrowd.models.model import MOST_EARLIER_SOURCES, Model, RegionModel, Scores, VarianceKind
from dpcrowd.models.season import SEASONS, SECOND

__all__ = [
    "common_entries",
    "model_digest",
    "model_text",
    "parse_model",
    "read_model",
    "tail_entries",
    "time_text",
    "write_model",
]

KIND = "ar1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDTH = 118
_LARGEST = 1e18
_LONGEST = 0.9999  # of what regions have in common, which is forgotten at last
_REMEDY = "give a file that 'dpcrowd fit' wrote"
_KEYS = {
    "model": (
        *("dpcrowd", "kind", "season", "slot", "variance", "source", "data", "first", "slots", "begins", "digest"),
        *("reason", "region_correlation", "common_transition", "common_usual", "common_unusual", "earlier_sources"),
    ),
    "scores": ("error", "past", "coverage", "past_coverage", "slots"),
    "region": ("name", "level", "mean", "transition", "variance", "change_var", "usual", "unusual", "profile"),
}
# A missing source is refused as an empty one is.
_OPTIONAL = {
    *("slot", "begins", "profile", "reason", "region_correlation", "common_transition", "source"),
    *("common_usual", "common_unusual", "mean", "usual", "unusual", "earlier_sources"),
}
_COMMENTS = {
    "season": "none, day, week, hour-of-week, year, or a number of slots; slots are counted from Monday, UTC, or "
    "from `first`",
    "slot": "length of a slot in seconds",
    "variance": "of what a slot adds to a deviation: fixed, or proportional (per expected person)",
    "source": "why fitting this model costs no privacy budget: the assertion of whoever fitted it",
    "earlier_sources": "the sources of earlier models, of which this one keeps a part",
    "first": "fitted on `slots` slots from number `first` of the series on, which begins at `begins`",
    "region_correlation": "of the deviations of two regions, on average, as far as chance does not explain it",
    "common_transition": "the part of what regions have in common that is left after one slot",
    "common_usual": "where that is mostly small: the part of its variance of usual slots, and the part of other slots",
    "error": "sum of |error| / sum of counts: from the slot before, and of the model alone; and their 95% coverage",
    "mean": "the mean count, of which the level may be less: rare bursts count less in it",
    "usual": "where deviations are mostly small: the part of the variance that usual ones have, and the part of the "
    "slots with others",
    "transition": "a: the part of a deviation that is left after one slot",
}

# The comments of earlier versions, and where they were, are part of the digest, so that stays; a file has better ones.
_WRITTEN = {
    "first": "fitted on `slots` slots from number `first` of the series on, whose time is `begins`",
}
_RELATIVE = (
    "relative: deviations are in proportion to the expected count; of what a slot adds, per expected person squared"
)


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read and check the file of a model, which somebody brings: what it says has to be fit to be printed."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"model file '{file}' is not UTF-8 text; {_REMEDY}.") from None
    except OSError as error:
        raise BadInput(f"cannot read model file '{file}': {error.strerror or error}; {_REMEDY}.") from None
    model = parse_model(text, file.name)
    model.check_texts()
    return model


def parse_model(text: str, file: str) -> Model:
    """Return the model of a file's text; `file` is its name in messages."""
    try:
        sections = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"model file '{file}' is not TOML: {error}; {_REMEDY}.") from None
    if "tuned" in sections:
        raise BadInput(
            f"'{file}' is a tuning file of 'dpcrowd tune', not a process model; 'dpcrowd simulate' takes it as "
            f"--tuning (tuning=... in Python). As a model, {_REMEDY}."
        )
    if "network" in sections or "scheme" in sections:
        raise BadInput(f"'{file}' describes a network, which may name a model; it is not one itself; {_REMEDY}.")
    for name in sections:
        if name not in _KEYS:
            raise _unknown(file, "section", name, _KEYS)
    head = _section(sections, "model", file)
    scores = _section(sections, "scores", file)
    rows = sections.get("region")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{file} has no [[region]]; {_REMEDY}.")
    for number, row in enumerate(rows):
        own = row.get("name")
        of_region = f"[[region]] of '{own}'" if isinstance(own, str) else f"[[region]] number {number + 1}"
        _check_keys(row, "region", of_region, file)
    if head["kind"] != KIND:
        raise _unknown(file, "kind", str(head["kind"]), (KIND,))
    season = head["season"]
    if not (season in SEASONS if isinstance(season, str) else _is_whole(season, 2)):
        raise BadInput(f"season of {file} is {season!r}; allowed: {', '.join(SEASONS)}, or a number of slots from 2.")
    if head["variance"] not in get_args(VarianceKind):
        raise _unknown(file, "variance", str(head["variance"]), get_args(VarianceKind))
    _check_types(head, file)
    regions = tuple(_region(row, file) for row in rows)
    _check_profiles(regions, file)
    names = [region.name for region in regions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"{file} has region '{twice}' twice; name each region once.")
    return Model(
        regions=regions,
        season=season,
        slot=_micros(head.get("slot"), file),
        variance=head["variance"],
        change_var=tuple(_number(row["change_var"], "change_var", file, 0.0) for row in rows),
        first=head["first"],
        slots=head["slots"],
        begins=_moment(head.get("begins"), file),
        data=head["data"],
        source=head.get("source", "").strip(),
        earlier_sources=_earlier_sources(head.get("earlier_sources", []), file),
        version=head["dpcrowd"],
        digest=head["digest"],
        scores=_scores(scores, file),
        reason=head.get("reason", ""),
        region_correlation=_part(head, "region_correlation", 1.0, "from 0 to 1", file),
        in_common=_in_common(head, file),
        file=file,
    )


def _section(sections: dict[str, Any], name: str, file: str) -> dict[str, Any]:
    section = sections.get(name)
    if not isinstance(section, dict):
        raise BadInput(f"{file} has no section [{name}]; {_REMEDY}.")
    _check_keys(section, name, f"[{name}]", file)
    return section


def _check_keys(section: dict[str, Any], name: str, place: str, file: str) -> None:
    """Refuse keys that do not exist, and missing ones; `place` names the section, and of which region it is."""
    for key in section:
        if key not in _KEYS[name]:
            raise _unknown(f"{file}, {place}", "key", key, _KEYS[name])
    for key in _KEYS[name]:
        if key not in section and key not in _OPTIONAL:
            raise BadInput(f"{file} has no '{key}' in {place}; {_REMEDY}.")


def _unknown(place: str, kind: str, name: str, allowed: Iterable[str]) -> BadInput:
    """Return the error for a name that does not exist, with where it stands first."""
    return BadInput(f"{place}: {unknown_name(kind, name, allowed)}")


def _check_types(head: dict[str, Any], file: str) -> None:
    """Refuse numbers of slots that are not whole, and texts that are none."""
    for key, least in (("first", 0), ("slots", 1)):
        if not _is_whole(head[key], least):
            raise BadInput(f"'{key}' of {file} is {head[key]!r}; allowed: a whole number from {least}.")
    for key in ("dpcrowd", "data", "digest", "reason", "source"):
        if not isinstance(head.get(key, ""), str):
            raise BadInput(f"'{key}' of {file} is {head[key]!r}; allowed: a text in quotation marks.")


def _earlier_sources(value: Any, file: str) -> tuple[str, ...]:
    """Return the sources of earlier models; each says something, or nobody would know what the model rests on."""
    texts = [text.strip() for text in value if isinstance(text, str)] if isinstance(value, list) else None
    if texts is None or len(texts) < len(value) or not all(any(map(str.isalnum, text)) for text in texts):
        raise BadInput(f"'earlier_sources' of {file} is {value!r}; allowed: a list of texts in quotation marks.")
    if len(texts) > MOST_EARLIER_SOURCES:
        raise BadInput(f"{file} has {len(texts)} earlier_sources; allowed: {MOST_EARLIER_SOURCES}.")
    return tuple(texts)


def _scores(section: dict[str, Any], file: str) -> Scores:
    values = [section[key] for key in ("error", "past", "coverage", "past_coverage")]
    if not all(_is_number(value) for value in values):
        raise BadInput(f"[scores] of {file} must hold numbers only.")
    if not _is_whole(section["slots"], 0):
        raise BadInput(f"'slots' in [scores] of {file} is {section['slots']!r}; allowed: a whole number from 0.")
    for key in ("error", "past"):
        if section[key] < 0.0 or section[key] > _LARGEST:  # neither is true of nan
            raise BadInput(f"'{key}' in [scores] of {file} is {section[key]!r}; allowed: from 0 to 1e18, or nan.")
    for key in ("coverage", "past_coverage"):
        if section[key] < 0.0 or section[key] > 1.0:  # neither is true of nan
            raise BadInput(f"'{key}' in [scores] of {file} is {section[key]!r}; allowed: from 0 to 1, or nan.")
    error, past, coverage, past_coverage = (float(value) for value in values)
    return Scores(error, past, coverage, past_coverage, section["slots"])


def _region(row: dict[str, Any], file: str) -> RegionModel:
    name = row["name"]
    if not isinstance(name, str) or not name:
        raise BadInput(f"a region of {file} has the name {name!r}; allowed: a text.")
    profile = row.get("profile", [])
    if not isinstance(profile, list):
        raise BadInput(f"the profile of '{name}' in {file} must be a list of numbers.")
    transition = row["transition"]
    if not _is_number(transition) or not 0.0 <= transition < 1.0:
        raise BadInput(f"transition of '{name}' in {file} is {transition!r}; allowed: from 0 to below 1.")
    return RegionModel(
        name,
        _number(row["level"], f"level of '{name}'", file, 0.0),
        float(transition),
        _number(row["variance"], f"variance of '{name}'", file, 0.0),
        tuple(_number(value, f"profile of '{name}'", file, 0.0) for value in profile),
        None if row.get("mean") is None else _number(row["mean"], f"mean of '{name}'", file, 0.0),
        _tails(row, name, file),
    )


def _tails(row: dict[str, Any], name: str, file: str) -> tuple[float, float] | None:
    """Return usual and unusual deviations of a region; None: the file says nothing of them."""
    if "usual" not in row and "unusual" not in row:
        return None
    return _both_parts(row.get("usual"), row.get("unusual"), f"usual and unusual of '{name}'", file)


def _both_parts(usual: Any, unusual: Any, what: str, file: str) -> tuple[float, float]:
    if not (_is_number(usual) and _is_number(unusual) and 1e-6 <= usual <= 1.0 and 1e-6 <= unusual < 1.0):
        raise BadInput(
            f"{what} in {file} are {usual!r} and {unusual!r}; allowed: both, the first from 1e-6 to 1, the "
            "second from 1e-6 to below 1."
        )
    return float(usual), float(unusual)


def _check_profiles(regions: Sequence[RegionModel], file: str) -> None:
    """Refuse profiles of different lengths; a region without a profile stays at its level."""
    lengths = [len(region.profile) for region in regions if region.profile]
    expected = max(lengths, key=lengths.count, default=0)  # of equally frequent ones the first
    for region in regions:
        if region.profile and len(region.profile) != expected:
            raise BadInput(
                f"the profile of '{region.name}' in {file} has {counted(len(region.profile), 'row')}, but those of "
                f"other regions have {expected}; give {expected} numbers, or leave it out for a constant level."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, what: str, file: str, least: float) -> float:
    if not _is_number(value) or not least <= value <= _LARGEST:
        raise BadInput(f"{what} in {file} is {value!r}; allowed: a finite number from {least:g} to 1e18.")
    return float(value)


def _part(head: dict[str, Any], key: str, most: float, allowed: str, file: str) -> float | None:
    value = head.get(key)
    if value is None:
        return None
    if not _is_number(value) or not 0.0 <= value <= most:
        raise BadInput(f"{key} in {file} is {value!r}; allowed: {allowed}.")
    return float(value)


def _in_common(head: dict[str, Any], file: str) -> InCommon | None:
    left = _part(head, "common_transition", _LONGEST, f"from 0 to {_LONGEST:g}", file)
    usual, unusual = head.get("common_usual"), head.get("common_unusual")
    if usual is None and unusual is None:
        return None if left is None else InCommon(left)
    if left is None:
        raise BadInput(f"{file} has common_usual or common_unusual without common_transition; {_REMEDY}.")
    return InCommon(left, *_both_parts(usual, unusual, "common_usual and common_unusual", file))


def common_entries(known: InCommon | None) -> dict[str, float]:
    """Return what the file says of the part that all regions have in common, by its keys."""
    if known is None:
        return {}
    if not known.tails.heavy[0]:
        return {"common_transition": known.transition}
    return {"common_transition": known.transition, "common_usual": known.usual, "common_unusual": known.unusual}


def tail_entries(region: RegionModel) -> dict[str, float | None]:
    """Return what the file says of usual and unusual deviations of a region, by its keys; None is not written."""
    usual, unusual = (None, None) if region.tails is None else region.tails
    return {"usual": usual, "unusual": unusual}


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53


def _micros(value: Any, file: str) -> int | None:
    return None if value is None else round(_number(value, "slot", file, 1e-6) * SECOND)


def _moment(value: Any, file: str) -> int | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError):
        raise BadInput(f"begins of {file} is {value!r}; allowed: a time such as 2026-01-01T00:00:00Z.") from None
    except OverflowError:
        raise BadInput(f"begins of {file} is {value!r}; allowed: a time in the years 1 to 9999, in UTC.") from None
    return (moment - _EPOCH) // timedelta(microseconds=1)


def time_text(micros: int) -> str:
    """Return a moment as people write it, in UTC."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def model_text(model: Model) -> str:
    """Return the text of the file; equal models give equal text."""
    return _text(model, _COMMENTS | _WRITTEN, every_key=True)


def _text(model: Model, comments: dict[str, str], *, every_key: bool) -> str:
    """Return the text with comments.

    every_key  explain a key at the first region that has it, not only those of the first region
    """
    lines = [
        "# A process model from `dpcrowd fit`: what is known of a crowd before any record of it. It is public.",
        "",
        "[model]",
    ]
    head = {
        "dpcrowd": model.version,
        "kind": KIND,
        "season": model.season,
        "slot": None if model.slot is None else model.slot / SECOND,
        "variance": model.variance,
        "source": model.source,
        "earlier_sources": list(model.earlier_sources) or None,
        "data": model.data,
        "first": model.first,
        "slots": model.slots,
        "begins": None if model.begins is None else time_text(model.begins),
        "digest": model.digest,
        "reason": model.reason or None,
        "region_correlation": model.region_correlation,
        **common_entries(model.in_common),
    }
    comments = comments | ({"variance": _RELATIVE} if model.variance == "relative" else {})
    lines += _entries(head.items(), comments)
    lines += ["", "[scores]", *_entries(((key, getattr(model.scores, key)) for key in _KEYS["scores"]), comments)]
    for region, change in zip(model.regions, model.change_var, strict=True):
        entries: dict[str, Any] = {
            "name": region.name,
            "level": region.level,
            "mean": region.mean,
            "transition": region.transition,
            "variance": region.variance,
            "change_var": change,
            **tail_entries(region),
            "profile": list(region.profile) or None,
        }
        lines += ["", "[[region]]", *_entries(entries.items(), comments)]
        missing = {key for key, value in entries.items() if value is None}
        comments = {key: comments[key] for key in missing & comments.keys()} if every_key else {}
    return "\n".join(lines) + "\n"


def model_digest(model: Model) -> str:
    """Return a digest of what the model says, of its source and of its span; its layout makes no difference."""
    return hashlib.sha256(_text(model, _COMMENTS, every_key=False).encode()).hexdigest()


def write_model(model: Model, path: str | os.PathLike[str]) -> Path:
    """Write the file, completely or not at all, and return its path; refuse what it could not be read with.

    Of several writers at once, the last one wins.
    """
    file = Path(path)
    model.check_texts()
    for region, change in zip(model.regions, model.change_var, strict=True):
        for what, values in (
            ("change_var", (change,)),
            ("level", (region.level,)),
            ("mean", () if region.mean is None else (region.mean,)),
            ("variance", (region.variance,)),
            ("profile", region.profile),
        ):
            if not all(0.0 <= value <= _LARGEST for value in values):
                raise BadInput(
                    f"cannot write '{file}': {what} of region '{region.name}' is {max(values):g}, and a model holds "
                    f"numbers up to {_LARGEST:g}; are these counts of people?"
                )
    # A name of its own for each writer: one would move the part of another away. Permissions stay the usual ones.
    partial = file.with_name(f"{file.name}.{uuid4().hex}.part")
    try:
        partial.write_text(model_text(model), encoding="utf-8", newline="\n")
        partial.replace(file)
    except OSError as error:
        raise BadInput(f"cannot write '{file}': {error.strerror or error}.") from None
    finally:
        partial.unlink(missing_ok=True)
    return file


def _entries(pairs: Iterable[tuple[str, Any]], comments: Mapping[str, str]) -> list[str]:
    lines = []
    for key, value in pairs:
        if value is None:
            continue
        if key in comments:
            lines.append(f"# {comments[key]}")
        lines += _entry(key, value)
    return lines


def _entry(key: str, value: Any) -> list[str]:
    line = f"{key} = {_value(value)}"
    if len(line) <= _WIDTH or not isinstance(value, list):
        return [line]
    lines, row = [f"{key} = ["], "   "
    for item in map(_value, value):
        if len(row) + len(item) + 2 > _WIDTH:
            lines.append(row)
            row = "   "
        row += f" {item},"
    return [*lines, row, "]"]


def _value(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        # The escapes of JSON are those of TOML, except for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(float(value)) if isinstance(value, float) else str(int(value))
