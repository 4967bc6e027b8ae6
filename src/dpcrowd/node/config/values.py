"""Quantities from what a TOML file holds: durations, moments, epsilon, sizes, paths; exact, without rounding."""

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


def duration(given: object) -> Duration:
    """From "5s", "1.5h", "250ms", or a number of seconds."""
    if isinstance(given, str):
        match = _DURATION.fullmatch(given)
        if match is None:
            raise BadInput(f"'{given}' is not a duration.")
        exact = Fraction(match[1]) * _UNITS[match[2]]
    else:
        exact = _number(given) * SECOND
    return Duration(_whole(exact, _LONGEST))


def size(given: object) -> Size:
    """From "8MiB", "500KB", or a number of bytes."""
    if isinstance(given, str):
        match = _SIZE.fullmatch(given)
        if match is None:
            raise BadInput(f"'{given}' is not a size.")
        exact = Fraction(match[1]) * _SIZES[match[2].upper()]
    else:
        exact = _number(given)
    return Size(_whole(exact, _LARGEST))


def epsilon(given: object) -> NanoEpsilon:
    """From a number or a decimal text; a float means the decimal number that it prints as."""
    if isinstance(given, str):
        if _DECIMAL.fullmatch(given) is None:
            raise BadInput(f"'{given}' is not a decimal number.")
        return NanoEpsilon(to_nano(given))
    return NanoEpsilon(to_nano(_number(given)))


def moment(given: object) -> Moment:
    """From an RFC 3339 text with offset, or TOML's own date and time with offset."""
    nanoseconds = 0
    if isinstance(given, str):
        match = _RFC_3339.fullmatch(given)
        if match is None:
            raise BadInput(f"'{given}' is not an RFC 3339 time with an offset.")
        try:
            given = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4].upper()}")
        except ValueError:
            raise BadInput("no such date or time.") from None
        nanoseconds = int((match[3] or "0").ljust(9, "0"))
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise BadInput("a time needs an offset, 'Z' for UTC.")
    try:
        since = given - _FIRST
    except OverflowError:
        raise BadInput("the time is out of range.") from None
    if not timedelta(0) <= since or given.year > _LAST_YEAR:
        raise BadInput("the time is out of range.")
    return Moment((since // timedelta(microseconds=1)) * 1_000 + nanoseconds)


def decoder(folder: Path) -> Callable[[type, Any], Any]:
    """What turns a file's values into these kinds; paths are relative to the file's folder."""
    readers: dict[type, Callable[[object], Any]] = {
        Duration: duration,
        Moment: moment,
        NanoEpsilon: epsilon,
        Size: size,
        Path: lambda given: _path(folder, given),
    }

    def decode(kind: type, given: Any) -> Any:
        if kind not in readers:
            raise NotImplementedError(kind)
        return readers[kind](given)

    return decode


def _path(folder: Path, given: object) -> Path:
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise BadInput("a path is a text that is not empty.")
    try:
        path = folder / Path(given).expanduser()
    except RuntimeError:
        raise BadInput("there is no such home folder.") from None
    # Errors and tools show it: without "..", unless a symbolic link on the way gives that another meaning.
    plain = os.path.normpath(path)
    return Path(plain) if os.path.realpath(plain) == os.path.realpath(path) else path


def _number(given: object) -> Fraction:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise BadInput("not a number.")
    try:
        return Fraction(str(given))
    except ValueError:  # inf, nan
        raise BadInput("not a finite number.") from None


def _whole(exact: Fraction, largest: int) -> int:
    if exact.denominator != 1 or not 0 <= exact <= largest:
        raise BadInput("not a whole number of the smallest unit, or out of range.")
    return exact.numerator
