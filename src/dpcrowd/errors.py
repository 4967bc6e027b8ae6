"""Errors that a person can act on.

Everything that dpcrowd refuses or cannot do raises a `DpcrowdError` whose message is one line: what was given, what is
allowed, what to do. The command line prints that line and exits with code 2; a library user catches one class.

Only `BadInput` is a `ValueError`. A full disk, a spent budget and a node that does not answer are not wrong values:
`except ValueError` around a conversion must not catch them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from numbers import Integral

__all__ = [
    "JOINERS",
    "BadInput",
    "BrokenPlugin",
    "BudgetExhausted",
    "DpcrowdError",
    "MissingExtra",
    "SlotTaken",
    "check_switches",
    "counted",
    "plain",
    "unknown_name",
    "whole_number",
]


class DpcrowdError(Exception):
    """The base class of all errors that dpcrowd raises on purpose."""


class BadInput(DpcrowdError, ValueError):
    """A value is not allowed."""


class MissingExtra(DpcrowdError):
    """An optional library is needed but not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs {library}, which is not installed: pip install "dpcrowd[{extra}]"')
        self._arguments = (library, extra, purpose)

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return type(self), self._arguments  # an error of a worker process has to reach the user complete


class BrokenPlugin(DpcrowdError):
    """A scheme, data set or topology of another package cannot be used; `package` is whom to ask."""

    def __init__(self, kind: str, name: str, package: str, reason: str) -> None:
        super().__init__(f"the {kind} '{name}' of the package {package} cannot be used: {reason.rstrip('.')}.")
        self.package = package
        self._arguments = (kind, name, package, reason)

    def __reduce__(self) -> tuple[type[BrokenPlugin], tuple[str, str, str, str]]:
        return type(self), self._arguments


class SlotTaken(DpcrowdError):
    """The slot was sampled, released or declared lost before; it is never sampled a second time."""


class BudgetExhausted(DpcrowdError):
    """A ledger refuses to spend: the window (or horizon) has not enough epsilon left.

    All amounts are exact integers of 1e-9 epsilon; `returns_at` is the first slot with more budget than now, or None if
    no budget comes back (a finite horizon).
    """

    def __init__(self, message: str, *, requested: int, remaining: int, returns_at: int | None) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining
        self.returns_at = returns_at

    def __reduce__(self) -> tuple[Callable[..., BudgetExhausted], tuple[str, int, int, int | None]]:
        return _exhausted, (str(self), self.requested, self.remaining, self.returns_at)


def _exhausted(message: str, requested: int, remaining: int, returns_at: int | None) -> BudgetExhausted:
    return BudgetExhausted(message, requested=requested, remaining=remaining, returns_at=returns_at)


def unknown_name(kind: str, name: object, allowed: Iterable[str]) -> BadInput:
    """Return the error for a name that does not exist, with the most similar one that does.

    Library users may give anything as a name, such as True.
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(str(name).lower(), [one.lower() for one in names], n=1, cutoff=0.5)
    original = {one.lower(): one for one in names}
    hint = f" Did you mean '{original[near[0]]}'?" if near else ""
    listed = names if len(names) <= 30 else [*names[:30], f"and {len(names) - 30} more"]
    return BadInput(f"unknown {kind} '{name}'.{hint} Allowed: {', '.join(listed)}.")


def whole_number(name: str, value: object, least: int, most: int | None = None, why: str = "") -> None:
    """Refuse anything but a whole number from `least` to `most`."""
    number = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if number is None or number < least or (most is not None and number > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} must be a whole number {span}{why}; given {value}.")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, for messages: 1 slot, 2 slots.

    >>> counted(1, "slot"), counted(0, "slot"), counted(12, "server")
    ('1 slot', '0 slots', '12 servers')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


JOINERS = "\u200c\u200d"
"""Invisible characters without which some languages, and some pictures, cannot be written; they override nothing."""


def plain(text: str) -> str:
    r"""Escape what would move a terminal's cursor or start a second line in a log: texts come from others' files.

    Each such character is escaped by itself, so that the rest stays what it was.

    >>> plain("Zürich\x1b[2J")
    'Zürich\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in JOINERS else repr(c)[1:-1] for c in text)


def check_switches(**switches: object) -> None:
    """Refuse anything but True, False and None, where None stands for a default: "no" would count as yes."""
    for name, value in switches.items():
        if value is not None and type(value).__name__ not in ("bool", "bool_"):  # the latter is NumPy's
            raise BadInput(f"{name}={value!r} is neither True nor False; give one of them, or leave it out.")
