"""What is promised to a user, as one frozen object that prints itself as precise sentences.

Two streams are neighbours if one comes from the other by deleting (or adding) all check-ins of one user, in every
slot of a finite stream or in some w consecutive slots of an endless one. Every condition of the promise that no server
can check is named in the text as an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, Literal

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.privacy.units import format_epsilon, to_nano

__all__ = ["Guarantee", "Kind", "Users", "short_promise"]

_MEANING = ": deleting or"  # where the first sentence begins to say what ε means

Kind = Literal["finite", "window"]
Users = Literal["pinned", "roaming"]


@dataclass(frozen=True)
class Guarantee:
    """Pure epsilon-differential privacy of one server's releases (pinned users) or of all servers' (roaming users).

    kind              "finite": user level over `length` slots; "window": w-event privacy with w = `length`
    length            the horizon T, or the window w
    epsilon           the budget of one user over the horizon, or in any window
    users             "pinned": always at the same server; "roaming": at any server, a new one each slot
    regions_per_slot  in how many regions of one slot a user may count
    servers_per_slot  at how many servers a user may check in during one slot (the paper's c, Remark 1)
    correlation       epsilon is divided by this factor (Remark 2)

    >>> guarantee = Guarantee.window(24, epsilon=0.5, servers_per_slot=2)
    >>> guarantee.total, guarantee.sensitivity  # in nano-epsilon; how much one user changes the counts of a slot
    (500000000, 2)
    >>> print(guarantee)
    Pure 24-event differential privacy with ε = 0.5 for everything that the 2 servers of any user together release ...
    """

    kind: Kind
    length: int
    epsilon: float
    users: Users = "pinned"
    regions_per_slot: int = 1
    servers_per_slot: int = 1
    correlation: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("finite", "window"):
            raise unknown_name("guarantee", str(self.kind), ("finite", "window"))
        if self.users not in ("pinned", "roaming"):
            raise unknown_name("kind of users", str(self.users), ("pinned", "roaming"))
        name = "horizon" if self.kind == "finite" else "window"
        if not _is_whole(self.length):
            raise BadInput(f"{name} must be a whole number of slots >= 1; given {self.length}.")
        for label in ("regions_per_slot", "servers_per_slot"):
            if not _is_whole(getattr(self, label)):
                raise BadInput(f"{label} must be a whole number >= 1; given {getattr(self, label)}.")
        for label in ("length", "regions_per_slot", "servers_per_slot"):
            object.__setattr__(
                self, label, int(getattr(self, label))
            )  # 2.0 becomes 2: a text about "2.0 slots" would confuse
        if not _at_least_one(self.correlation):
            raise BadInput(f"correlation must be a finite factor >= 1; given {self.correlation}.")
        _ = self.total  # refuses an epsilon that leaves nothing to spend, before anything is promised

    @classmethod
    def finite(
        cls,
        horizon: int,
        epsilon: float,
        *,
        users: Users = "pinned",
        regions_per_slot: int = 1,
        servers_per_slot: int = 1,
        correlation: float = 1.0,
    ) -> Guarantee:
        """Return user-level epsilon over a stream of `horizon` slots (DPCrowd)."""
        return cls("finite", horizon, epsilon, users, regions_per_slot, servers_per_slot, correlation)

    @classmethod
    def window(
        cls,
        w: int,
        epsilon: float,
        *,
        users: Users = "pinned",
        regions_per_slot: int = 1,
        servers_per_slot: int = 1,
        correlation: float = 1.0,
    ) -> Guarantee:
        """Return w-event epsilon over an endless stream (DPCrowd+); w = 1 is event level."""
        return cls("window", w, epsilon, users, regions_per_slot, servers_per_slot, correlation)

    @property
    def sensitivity(self) -> int:
        """By how much one user can change the counts of a slot, over all servers and regions (L1)."""
        return self.regions_per_slot * self.servers_per_slot

    @cached_property
    def total(self) -> int:
        """The budget that a ledger may spend, in nano-epsilon, after the division by `correlation`."""
        exact = Fraction(to_nano(self.epsilon)) / Fraction(str(self.correlation))
        total = int(exact)  # rounds down: exact >= 0
        if total < 1:
            raise BadInput(
                f"epsilon {self.epsilon} divided by correlation {self.correlation} is below 1e-9, the "
                "smallest unit of the ledger."
            )
        return total

    def __str__(self) -> str:
        return " ".join([*self._promise(), *self._assumptions()])

    def _promise(self) -> list[str]:
        epsilon = format_epsilon(to_nano(self.epsilon))
        if self.kind == "finite":
            span, deletion = f"of a stream of {self.length} slots", "in every slot"
            level = "user-level"
        elif self.length == 1:
            span, deletion = "of an endless stream", "in any one slot"
            level = "event-level"
        else:
            span, deletion = "of an endless stream", f"in any {self.length} consecutive slots"
            level = f"{self.length}-event"
        if self.users == "roaming":
            whose = "all servers together release"
        elif self.servers_per_slot > 1:
            whose = f"the {self.servers_per_slot} servers of any user together release"
        else:
            whose = "one server releases"
        lines = [
            f"Pure {level} differential privacy with ε = {epsilon} for everything that {whose} {span}{_MEANING} "
            f"adding all check-ins of one user {deletion} changes the probability of any output by a factor of at most "
            f"e^{epsilon}.",
            f"Changing where a user was, instead of deleting, costs twice that (ε = "
            f"{format_epsilon(2 * to_nano(self.epsilon))}).",
        ]
        if self.correlation != 1:
            factor, group = str(self.correlation).removesuffix(".0"), int(self.correlation)  # a group of whole users
            proof = (
                f"this proves group privacy for {group} users or windows at ε = {epsilon}; that it also covers"
                if group > 1
                else "this proves nothing more for groups of two or more users or windows; that it covers"
            )
            lines.append(
                f"Budgets are spent at ε/{factor} = {format_epsilon(self.total)}: {proof} correlated data is the "
                "operator's assertion."
            )
        return lines

    def _assumptions(self) -> list[str]:
        regions = "one region" if self.regions_per_slot == 1 else f"{self.regions_per_slot} regions"
        servers = "one server" if self.servers_per_slot == 1 else f"{self.servers_per_slot} servers"
        last = " (the last check-in of the slot wins)" if self.regions_per_slot == 1 else ""
        lines = [
            f"A user counts in at most {regions} of a slot{last}.",
            f"Assumed, not checkable by any server: a user checks in at no more than {servers} during one slot",
        ]
        if self.users == "pinned":
            where = "always at the same one" if self.servers_per_slot == 1 else "always at the same ones"
            lines[-1] += f", and {where}; a user who moves between servers may pay up to ε at each of them."
        else:
            lines[-1] += ", which may be another in every slot."
        return lines


def short_promise(text: str) -> str:
    """Return the beginning of a promise in words: how much, for what, and what limits it, without what ε means and what
    is assumed. A text of another form, such as the claim of another package, is returned as it is.
    """
    short, found, _ = text.partition(_MEANING)
    return f"{short}." if found and "claim" not in short and "promised by" not in short else text


def _at_least_one(value: Any) -> bool:
    """Whether a value is a finite number >= 1, and not a text or a bool."""
    is_number = not isinstance(value, bool) and issubclass(type(value), Real)
    return is_number and bool(1 <= value < float("inf"))


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number >= 1."""
    return _at_least_one(value) and bool(value == int(value))
