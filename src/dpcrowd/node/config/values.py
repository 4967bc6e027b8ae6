"""Parsing of quantities in a TOML file: durations, moments, epsilon, sizes, paths; exact, without rounding."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.config.kinds import SECOND, Duration, Moment, NanoEpsilon, Size
from dpcrowd.privacy.units import to_nano

__all__ = ["decoder", "duration", "epsilon", "moment", "size"]

_UNITS = {"ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}
_SIZES = {"": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_LONGEST = 36_500 * _UNITS["d"]
_LARGEST = 1 << 40
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,18})?)"
_DURATION = re.compile(_NUMBER + r" ?(ms|s|m|h|d)")
_SIZE = re.compile(_NUMBER + r" ?((?:[KMG]I?B)?)", re.IGNORECASE)
_DECIMAL = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_RFC_3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 2200  # nanoseconds fit into 64 bits until 2262


def duration(value: object) -> Duration:
    """Parse a duration from "5s", "1.5h", "250ms", or a number of seconds."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise BadInput(f"'{value}' is not a duration.")
        exact = Fraction(match[1]) * _UNITS[match[2]]
    else:
        exact = _number(value) * SECOND
    return Duration(_whole_units(exact, _LONGEST))


def size(value: object) -> Size:
    """Parse a size from "8MiB", "500KB", or a number of bytes."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise BadInput(f"'{value}' is not a size.")
        exact = Fraction(match[1]) * _SIZES[match[2].upper()]
    else:
        exact = _number(value)
    return Size(_whole_units(exact, _LARGEST))


def epsilon(value: object) -> NanoEpsilon:
    """Parse epsilon from a number or a decimal text; a float means the decimal number that it prints as."""
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value) is None:
            raise BadInput(f"'{value}' is not a decimal number.")
        return NanoEpsilon(to_nano(value))
    return NanoEpsilon(to_nano(_number(value)))


def moment(value: object) -> Moment:
    """Parse a moment from an RFC 3339 text with an offset, or TOML's own date and time with an offset."""
    nanoseconds = 0
    if isinstance(value, str):
        match = _RFC_3339.fullmatch(value)
        if match is None:
            raise BadInput(f"'{value}' is not an RFC 3339 time with an offset.")
        try:
            value = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4].upper()}")
        except ValueError:
            raise BadInput(f"'{value}' is not a date and time that exists.") from None
        nanoseconds = int((match[3] or "0").ljust(9, "0"))
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadInput("a time needs an offset, 'Z' for UTC.")
    try:
        since = value - _FIRST
    except OverflowError:
        raise BadInput("the time is out of range.") from None
    if not timedelta(0) <= since or value.year > _LAST_YEAR:
        raise BadInput("the time is out of range.")
    return Moment((since // timedelta(microseconds=1)) * 1_000 + nanoseconds)


def decoder(folder: Path) -> Callable[[type, Any], Any]:
    """Return the function that converts a file's values to these kinds; paths are relative to the file's folder."""
    readers: dict[type, Callable[[object], Any]] = {
        Duration: duration,
        Moment: moment,
        NanoEpsilon: epsilon,
        Size: size,
        Path: lambda value: _path(folder, value),
    }

    def decode(kind: type, value: Any) -> Any:
        if kind not in readers:
            raise NotImplementedError(kind)
        return readers[kind](value)

    return decode


def _path(folder: Path, value: object) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise BadInput("a path has to be a text that is not empty.")
    try:
        path = folder / Path(value).expanduser()
    except RuntimeError:
        raise BadInput(f"'{value}' names the home folder of a user who does not exist.") from None
    # Errors and tools show the path without "..", unless a symbolic link on the way gives that another meaning.
    plain = os.path.normpath(path)
    return Path(plain) if os.path.realpath(plain) == os.path.realpath(path) else path


def _number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput("not a number.")
    try:
        return Fraction(str(value))
    except ValueError:  # inf, nan
        raise BadInput("not a finite number.") from None


def _whole_units(exact: Fraction, largest: int) -> int:
    if exact.denominator != 1 or not 0 <= exact <= largest:
        raise BadInput("not a whole number of the smallest unit, or out of range.")
    return exact.numerator
