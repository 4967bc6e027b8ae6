"""Kinds of values in a configuration file, and the error that refuses a wrong one.

Quantities are whole numbers once they are read: a duration and a moment in nanoseconds, epsilon in nano-epsilon, a
size in bytes. So "60s", "1m" and 60 are one value, compare equal and give the same digest. `values` parses them; this
module has no clock and no files, so that the state machine may hold a configuration.

A field's `Meta` says what it means (for the schema and the reference) and, as `allowed`, what an error says is allowed.
Values that are `secret` are never repeated in an error.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dpcrowd.errors import BadInput

__all__ = [
    "SECOND",
    "CertificateName",
    "Duration",
    "InvalidValue",
    "Moment",
    "Name",
    "NanoEpsilon",
    "Section",
    "Size",
    "about",
    "field_type",
    "meta_of",
]

SECOND = 1_000_000_000
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)"  # `$` alone would let a newline at the end pass
COMMON_NAME = r"^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$(?!\n)"  # X.509 ends it at 64
_UNITS = ((86_400 * SECOND, "d"), (3_600 * SECOND, "h"), (60 * SECOND, "m"), (SECOND, "s"), (1_000_000, "ms"))


class Duration(int):
    """A length of time in whole nanoseconds; prints itself as it is written in a file."""

    def __str__(self) -> str:
        for size, unit in _UNITS:
            if self and self % size == 0:
                return f"{self // size}{unit}"
        return f"{self / SECOND:g}s"


class Moment(int):
    """A point in time in whole nanoseconds UTC since 1970."""


class NanoEpsilon(int):
    """A privacy budget in whole 1e-9 epsilon."""


class Size(int):
    """A number of bytes."""

    def __str__(self) -> str:
        for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if self and self % size == 0:
                return f"{self // size}{unit}"
        return str(int(self))


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base class of every table of a configuration file."""


class InvalidValue(BadInput):
    """A setting has a value that is not allowed.

    path     which setting, relative to the table that checks it
    problem  what was given, what is allowed, what to do
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[InvalidValue], tuple[str, str]]:
        return type(self), (self.path, self.problem)


def about(description: str, allowed: str = "", *, secret: bool = False, **limits: Any) -> msgspec.Meta:
    """Return the `Meta` of a field: what it means, what is allowed, and limits that msgspec checks."""
    return msgspec.Meta(description=description, extra={"allowed": allowed, "secret": secret}, **limits)


def meta_of(annotation: Any) -> msgspec.Meta | None:
    """Return the outermost `Meta` of an annotation."""
    metas = [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, msgspec.Meta)]
    return metas[-1] if metas else None


def field_type(annotation: Any) -> Any:
    """Return an annotation without its `Meta`."""
    return getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation


_NAME_RULE = "1 to 63 of a-z, 0-9 and '-', with no '-' at either end"
Name = Annotated[str, about("A name.", _NAME_RULE, pattern=NAME)]
CertificateName = Annotated[
    str,
    about(
        "The name in the server's certificate; without it, the server's name.",
        "1 to 64 of a-z, 0-9, '-' and '.'",
        pattern=COMMON_NAME,
    ),
]
