"""What a judgement is: a claim of the paper, the parts it was judged in, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dpcrowd.experiments.points.plan import MULTI, SINGLE
from dpcrowd.privacy import Accounting

__all__ = ["Claim", "Outcome", "Part", "Verdict", "claim", "combine"]

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


@dataclass(frozen=True)
class Claim:
    """A comparison that the paper states in words.

    name       of the function that judges it
    statement  the claim in one sentence
    place      where the paper says it, with a quotation
    rule       how it is judged, where that needs saying
    figures    whose points it needs
    instead    other figures, each of which has all the points, too
    data       data sets without which nothing of it can be judged
    function   (plan, results) -> Verdict; with `accounting` where there is a ledger, with `slot_cost` if `timed`
    ledger     whose results are judged, for claims on many regions
    by_construction  whether it follows from how the simulator is built: only a fault of the code could refute it
    """

    name: str
    statement: str
    place: str
    rule: str
    figures: tuple[int, ...]
    data: tuple[str, ...]
    function: Callable[..., Verdict]
    ledger: Accounting | None = None
    timed: bool = False
    instead: tuple[int, ...] = ()
    by_construction: bool = False

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


def claim(
    function: Callable[..., Verdict],
    *figures: int,
    data: tuple[str, ...] = (),
    ledger: Accounting | None = None,
    timed: bool = False,
    instead: tuple[int, ...] = (),
    by_construction: bool = False,
) -> Claim:
    """The claim that a function judges; its docstring holds the statement, the place and the rule, a paragraph each."""
    paragraphs = [" ".join(text.split()) for text in (function.__doc__ or "").split("\n\n")]
    statement, place, *rule = (text for text in paragraphs if text)
    if not place.startswith("Section "):
        raise ValueError(f"the second paragraph of {function.__name__}'s docstring must say the section")
    if by_construction:
        rule.append("It holds by construction of the simulator: only a fault of the code could refute it.")
    return Claim(
        name=function.__name__,
        statement=statement,
        place=place,
        rule=" ".join(rule),
        figures=figures,
        data=data,
        function=function,
        ledger=ledger,
        timed=timed,
        instead=instead,
        by_construction=by_construction,
    )
