"""A claim of the paper, as a row of data, and what a judgement of it says. The rows are in `claims.toml`.

A row has a name, the statement in one sentence, the place in the paper, the figure whose results decide it, the
comparisons that it makes, and the rule by which they are judged, where that needs saying. To add a claim, add a row.
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

__all__ = ["CLAIMS", "Claim", "Comparison", "Outcome", "Part", "Verdict", "combine"]

Outcome = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Part:
    """One case of a claim.

    case        what was compared, where: "Linear, ε=0.1"
    numbers     one sentence with the figures behind the outcome
    confidence  how sure: "95% over 50 paired runs"
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
        """As plain values for claims.json."""
        return {"outcome": self.outcome, "reason": self.reason, "parts": [asdict(part) for part in self.parts]}


def combine(parts: Sequence[Part], reason: str = "") -> Verdict:
    """Holds if every part does, fails if one fails, and is undecided otherwise (also without any part)."""
    outcomes = {part.outcome for part in parts}
    outcome: Outcome = "undecided"
    if "does not hold" in outcomes:
        outcome = "does not hold"
    elif outcomes == {"holds"}:
        outcome = "holds"
    return Verdict(outcome, tuple(parts), "" if outcome == "holds" else reason)


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question that is asked of every sweep of the figure, for every scheme and every metric named.

    test     which test is made (see `questions`)
    of       the schemes that are judged
    than     the schemes that each of them is compared with
    times    how many times the value of `than` the value of `of` must stay below
    view     what is made of the values first (see `evidence`)
    on       the only data set, or the "strong" or "weak" privacy, of the sweeps that are asked
    between  compare each scheme with itself between two data sets, or between "weak" and "strong" privacy
    case     how the case is called; `questions` says what may stand in braces
    """

    test: str
    of: tuple[str, ...] = ()
    than: tuple[str, ...] = ("",)
    metric: tuple[str, ...] = ("are",)
    times: float = 1.0
    view: str = ""
    on: str = ""
    between: tuple[str, str] | None = None
    case: str = "{data}"


@dataclass(frozen=True)
class Claim:
    """A comparison that the paper states in words.

    place            where the paper says it, with a quotation
    rule             how it is judged, where that needs saying
    figures          the figures that have the points; the sweeps of the first are compared
    instead          other figures, each of which has all the points, too
    data             data sets without which nothing of it can be judged
    most             whether it speaks of most cases, not of all
    reasons          names of likely reasons (see `reasons.REASONS`); the first that the results bear out is given
    undecided        name of the reason that is given where no case fails but some are undecided
    ledger           whose results are judged, for claims on many regions
    by_construction  whether it follows from how the simulator is built: only a fault of the code could refute it
    """

    name: str
    statement: str
    place: str
    rule: str
    figures: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    data: tuple[str, ...] = ()
    instead: tuple[int, ...] = ()
    most: bool = False
    reasons: tuple[str, ...] = ()
    undecided: str = ""
    ledger: Accounting | None = None
    by_construction: bool = False

    @property
    def timed(self) -> bool:
        """Whether it is judged on measured time."""
        return any(comparison.test == "slot cost" for comparison in self.comparisons)

    @property
    def speaks_of(self) -> tuple[str, ...]:
        """The data sets without which it cannot hold; what a slot costs is said of none in particular."""
        return self.data or (() if self.timed else MULTI if self.ledger else SINGLE)

    def to_json(self) -> dict[str, Any]:
        """As plain values for claims.json."""
        return {
            "name": self.name,
            "statement": self.statement,
            "place": self.place,
            "rule": self.rule,
            "ledger": self.ledger,
            "figures": list(self.figures),
            "by_construction": self.by_construction,
        }


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    statement: str
    cases: tuple[Comparison, ...]
    quote: str = ""
    rule: str = ""
    figures: tuple[int, ...] = ()
    instead: tuple[int, ...] = ()
    data: tuple[str, ...] = ()
    most: bool = False
    reasons: tuple[str, ...] = ()
    undecided: str = ""
    both_ledgers: bool = False
    by_construction: bool = False


class _Section(msgspec.Struct, forbid_unknown_fields=True):
    """Claims of one part of the paper; what is said of the section holds for its claims that do not say it."""

    place: str
    claim: list[_Row]
    figures: tuple[int, ...] = ()
    both_ledgers: bool = False


class _Paper(msgspec.Struct, forbid_unknown_fields=True):
    section: list[_Section]


def _claims(section: _Section, row: _Row) -> list[Claim]:
    """The claim of a row, once for each ledger under which it is judged."""
    by_construction = "It holds by construction of the simulator: only a fault of the code could refute it."
    ledgers: tuple[Accounting | None, ...] = LEDGERS if row.both_ledgers or section.both_ledgers else (None,)
    return [
        Claim(
            name=row.name,
            statement=row.statement,
            place=f"{section.place}: {row.quote}." if row.quote else f"{section.place}.",
            rule=" ".join(part for part in (row.rule, by_construction if row.by_construction else "") if part),
            figures=row.figures or section.figures,
            comparisons=row.cases,
            data=row.data,
            instead=row.instead,
            most=row.most,
            reasons=row.reasons,
            undecided=row.undecided,
            ledger=ledger,
            by_construction=row.by_construction,
        )
        for ledger in ledgers
    ]


def _read() -> tuple[Claim, ...]:
    paper = msgspec.toml.decode(files(__package__).joinpath("claims.toml").read_bytes(), type=_Paper)
    return tuple(claim for section in paper.section for row in section.claim for claim in _claims(section, row))


CLAIMS: tuple[Claim, ...] = _read()
"""Every comparison that the paper states in words, in the order of the paper."""
