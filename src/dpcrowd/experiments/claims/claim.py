"""A claim of the paper as a row of data, and the verdict on it. The rows are in `claims.toml`.

A row has a name, the statement in one sentence, the place in the paper, the figure whose results decide it, its
comparisons, and the rule by which they are judged, where that is not obvious. To add a claim, add a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal

import msgspec

from dpcrowd.experiments.figures import LEDGERS
from dpcrowd.experiments.points.plan import MULTI, SINGLE
from dpcrowd.privacy import Accounting

__all__ = ["CLAIMS", "REASON_TEXTS", "Claim", "Outcome", "Part", "SweepComparison", "Verdict", "combine"]

Outcome = Literal["holds", "does not hold", "undecided"]
_OfTwo = Literal["below", "smaller", "predicted by", "as fast"]
_OfOne = Literal["falls", "grows", "level", "varies", "valley", "zero", "within its limit", "slot cost"]
_AlongX = Literal["", "first", "last", "rise", "lead", "below full density"]
_OverTime = Literal["spans", "settling slot", "level"]


@dataclass(frozen=True)
class Part:
    """One case of a claim.

    case        what was compared, and where: "Linear, ε=0.1"
    numbers     one sentence with the figures behind the outcome
    confidence  how certain it is: "95% over 50 paired runs"
    """

    case: str
    outcome: Outcome
    numbers: str
    confidence: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim; `reason` says why it may not hold, and is empty where it does."""

    outcome: Outcome
    parts: tuple[Part, ...]
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the content for claims.json as plain values."""
        return {"outcome": self.outcome, "reason": self.reason, "parts": [asdict(part) for part in self.parts]}


def combine(parts: Sequence[Part], reason: str = "") -> Verdict:
    """Return a verdict that holds if every part does, fails if one fails, and is undecided otherwise."""
    outcomes = {part.outcome for part in parts}
    outcome: Outcome = "undecided"
    if "does not hold" in outcomes:
        outcome = "does not hold"
    elif outcomes == {"holds"}:
        outcome = "holds"
    return Verdict(outcome, tuple(parts), "" if outcome == "holds" else reason)


class SweepComparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question that is asked of every sweep of the figure, for every scheme and every metric named.

    test     which test is made
    of       the schemes that are judged
    than     the schemes that each of them is compared with
    times    how many times the value of `than` the value of `of` must stay below
    view     which view of the values is compared (see `evidence`)
    on       the only data set, or the "strong" or "weak" privacy, of the sweeps that are asked
    between  compare each scheme with itself between two data sets, or between "weak" and "strong" privacy
    case     the name of the case; `questions` lists the words that may stand in braces
    """

    test: _OfTwo | _OfOne
    of: tuple[str, ...] = ()
    than: tuple[str, ...] = ("",)
    metric: tuple[str, ...] = ("are",)
    times: float = 1.0
    view: _AlongX | _OverTime = ""
    on: str = ""
    between: tuple[str, str] | None = None
    case: str = "{data}"


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A comparison that the paper states in words.

    section, quote   where the paper says it, and its words
    rule             how it is judged, where that is not obvious
    figures          the figures that have the points; the sweeps of the first are compared
    instead          other figures, each of which has all the points as well
    data             data sets without which nothing of it can be judged
    most             whether it is about most cases, not about all
    reasons          names of likely reasons (see `reasons.REASONS`); the first that the results support is given
    undecided        name of the reason that is given if no case fails but some are undecided
    both_ledgers     whether a claim on many regions is judged under both ledgers
    ledger           the ledger under which this one is judged
    by_construction  whether it follows from how the simulator is built: only a fault of the code could refute it
    """

    name: str
    statement: str
    cases: tuple[SweepComparison, ...]
    section: str = ""
    quote: str = ""
    rule: str = ""
    figures: tuple[int, ...] = ()
    instead: tuple[int, ...] = ()
    data: tuple[str, ...] = ()
    most: bool = False
    reasons: tuple[str, ...] = ()
    undecided: str = ""
    both_ledgers: bool = False
    ledger: Accounting | None = None
    by_construction: bool = False

    @property
    def place(self) -> str:
        """Where the paper says it, with a quotation."""
        return f"{self.section}: {self.quote}." if self.quote else f"{self.section}."

    @property
    def timed(self) -> bool:
        """Whether it is judged on measured time."""
        return any(comparison.test == "slot cost" for comparison in self.cases)

    @property
    def speaks_of(self) -> tuple[str, ...]:
        """The data sets without which it cannot hold; the cost of a slot concerns none in particular."""
        return self.data or (() if self.timed else MULTI if self.ledger else SINGLE)

    def to_json(self) -> dict[str, Any]:
        """Return the content for claims.json as plain values."""
        keys = ("name", "statement", "place", "rule", "ledger", "figures", "by_construction")
        return {key: list(self.figures) if key == "figures" else getattr(self, key) for key in keys}


class _Section(msgspec.Struct, forbid_unknown_fields=True):
    """Claims of one part of the paper; the keys of the section are the defaults of its claims."""

    place: str
    claim: list[Claim]
    figures: tuple[int, ...] = ()
    both_ledgers: bool = False

    def claims(self) -> list[Claim]:
        """Return the claims of the section, once for each ledger under which they are judged."""
        return [claim for row in self.claim for claim in self._complete(row)]

    def _complete(self, row: Claim) -> list[Claim]:
        by_construction = "It holds by construction of the simulator: only a fault of the code could refute it."
        rule = f"{row.rule} {by_construction}".strip() if row.by_construction else row.rule
        ledgers: tuple[Accounting | None, ...] = LEDGERS if row.both_ledgers or self.both_ledgers else (None,)
        claim = msgspec.structs.replace(row, section=self.place, rule=rule, figures=row.figures or self.figures)
        return [msgspec.structs.replace(claim, ledger=ledger) for ledger in ledgers]


class _Paper(msgspec.Struct, forbid_unknown_fields=True):
    reason: dict[str, str]
    section: list[_Section]


_PAPER = msgspec.toml.decode(files(__package__).joinpath("claims.toml").read_bytes(), type=_Paper)

CLAIMS: tuple[Claim, ...] = tuple(claim for section in _PAPER.section for claim in section.claims())
"""Every comparison that the paper states in words, in the order of the paper."""

REASON_TEXTS: dict[str, str] = _PAPER.reason
"""Likely reasons that need no number, by name."""
