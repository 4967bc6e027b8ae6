"""Errors that a person can act on.

Whatever dpcrowd refuses or cannot do is a `DpcrowdError` whose message is one line: what was given, what is allowed,
what to do. The command line prints that line and exits with code 2; a library user catches one class.

Only `BadInput` is a `ValueError`. A disk that is full, a budget that is spent or a node that does not answer are no
wrong values: whoever catches `ValueError` around a conversion must not catch those.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from numbers import Integral

__all__ = [
    "BadInput",
    "BrokenPlugin",
    "BudgetExhausted",
    "DpcrowdError",
    "MissingExtra",
    "SlotTaken",
    "unknown_name",
    "whole_number",
]


class DpcrowdError(Exception):
    """Base of every error that dpcrowd raises on purpose."""


class BadInput(DpcrowdError, ValueError):
    """A value that was given is not allowed."""


class MissingExtra(DpcrowdError):
    """An optional library is needed for what was asked."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs {library}, which is not installed: pip install "dpcrowd[{extra}]"')
        self._arguments = (library, extra, purpose)

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return type(self), self._arguments  # an error of a worker process has to reach the user whole


class BrokenPlugin(DpcrowdError):
    """A scheme, data set or topology of another package cannot be used; `package` is whom to ask."""

    def __init__(self, kind: str, name: str, package: str, reason: str) -> None:
        super().__init__(f"the {kind} '{name}' of the package {package} cannot be used: {reason.rstrip('.')}.")
        self.package = package
        self._arguments = (kind, name, package, reason)

    def __reduce__(self) -> tuple[type[BrokenPlugin], tuple[str, str, str, str]]:
        return type(self), self._arguments


class SlotTaken(DpcrowdError):
    """The slot has been drawn (or released, or declared lost) before: it is never drawn a second time."""


class BudgetExhausted(DpcrowdError):
    """A ledger refuses to spend: the window (or horizon) has not enough epsilon left.

    All amounts are exact integers of 1e-9 epsilon; `returns_at` is the first slot at which more budget is there
    than now, or None if none ever comes back (a finite horizon).
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


def unknown_name(kind: str, given: str, allowed: Iterable[str]) -> BadInput:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    near = difflib.get_close_matches(given.lower(), [name.lower() for name in names], n=1, cutoff=0.5)
    original = {name.lower(): name for name in names}
    hint = f" Did you mean '{original[near[0]]}'?" if near else ""
    shown = names if len(names) <= 30 else [*names[:30], f"and {len(names) - 30} more"]
    return BadInput(f"unknown {kind} '{given}'.{hint} Allowed: {', '.join(shown)}.")


def whole_number(name: str, value: object, least: int, most: int | None = None, why: str = "") -> None:
    """Refuse anything but a whole number from `least` to `most`."""
    number = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if number is None or number < least or (most is not None and number > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} must be a whole number {span}{why}; given {value}.")
