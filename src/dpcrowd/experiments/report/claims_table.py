"""The verdicts as a summary and a table. A claim that fails is as visible as one that holds, and its reason is open."""

from __future__ import annotations

from dpcrowd.experiments.claims import Claim, Part, Verdict, why_not_judged
from dpcrowd.experiments.figures import LEDGER_NAMES
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.report.html import Html, items, join, tag
from dpcrowd.experiments.report.verdicts import MARKS, NOT_JUDGED, PLURALS, Judged, outcome_of, summary

__all__ = ["claims_section", "verdict_summary"]

_CLASSES = {"holds": "yes", "does not hold": "no", "undecided": "open", NOT_JUDGED: "none"}


def verdict_summary(judged: Judged) -> Html:
    """How many claims hold, do not, are undecided, were not judged."""
    counts = summary(judged)
    return tag(
        "ul",
        *(
            tag("li", _mark(outcome), tag("strong", str(count)), f" {PLURALS[outcome]}", class_=_CLASSES[outcome])
            for outcome, count in counts.items()
        ),
        class_="summary",
    )


def claims_section(plan: Plan, drawn: set[int], judged: Judged) -> Html:
    """A row for each claim. Roles are spelt out: on a phone rows become cards, and browsers then forget the table."""
    names = ("Verdict", "Claim", "Numbers", "Confidence")
    head = tag("tr", *(tag("th", name, scope="col", role="columnheader") for name in names), role="row")
    return tag(
        "table",
        tag("caption", "Each comparison that the paper states in words, in the paper's order"),
        tag("thead", head, role="rowgroup"),
        *(_rows(plan, drawn, claim, verdict) for claim, verdict in judged),
        class_="claims",
        role="table",
    )


def _rows(plan: Plan, drawn: set[int], claim: Claim, verdict: Verdict | None) -> Html:
    """The claim and what decided it; below, over the whole width, the rest."""
    outcome = outcome_of(verdict)
    decisive = _decisive(verdict)
    ledger = (tag("span", LEDGER_NAMES[claim.ledger], class_="ledger"), " ") if claim.ledger else ()
    if claim.by_construction:
        ledger = (*ledger, tag("span", "by construction", class_="ledger"), " ")
    figures = [tag("a", f"figure {n}", href=f"#figure{n}") if n in drawn else f"figure {n}" for n in claim.figures]
    place = join([claim.place.rstrip("."), *figures], between=" · ")
    main = tag(
        "tr",
        tag("td", _mark(outcome), tag("span", outcome, class_="word"), role="cell", class_="verdict", rowspan="2"),
        tag(
            "th",
            tag("p", *ledger, claim.statement, class_="statement"),
            tag("p", place, class_="place"),
            scope="row",
            role="rowheader",
        ),
        tag("td", _short(verdict, decisive), role="cell", class_="numbers"),
        tag("td", decisive.confidence if decisive is not None else "", role="cell", class_="confidence"),
        role="row",
    )
    if verdict is None:
        told = tag("p", f"Not judged: {why_not_judged(claim, plan, drawn)}", class_="reason")
    else:
        told = _details(claim, verdict)
    below = tag("tr", tag("td", told, colspan="3", role="cell"), role="row", class_="below")
    name = f"claim-{claim.name}" + (f"-{claim.ledger}" if claim.ledger else "")
    return tag("tbody", main, below, role="rowgroup", class_=_CLASSES[outcome], id=name)


def _decisive(verdict: Verdict | None) -> Part | None:
    """The first part that has the outcome of the whole."""
    parts = verdict.parts if verdict is not None else ()
    alike = [part for part in parts if verdict is not None and part.outcome == verdict.outcome]
    return next(iter([*alike, *parts]), None)


def _short(verdict: Verdict | None, decisive: Part | None) -> Html:
    if verdict is None or decisive is None:
        return Html("")
    alike = sum(part.outcome == verdict.outcome for part in verdict.parts)
    others = f" ({alike} of {len(verdict.parts)} cases: {verdict.outcome})" if len(verdict.parts) > 1 else ""
    return join([tag("b", decisive.case), f": {decisive.numbers}", tag("i", others)])


def _details(claim: Claim, verdict: Verdict) -> Html:
    """The likely reason, the cases, and how they are judged; open where the claim fails."""
    inside = []
    if verdict.reason:
        inside.append(("the reason", tag("p", tag("b", "Why: "), verdict.reason, class_="reason")))
    if len(verdict.parts) > 1:  # a single one is told in the row above
        same = len({part.confidence for part in verdict.parts}) == 1  # and so is what all have in common
        cases = items(
            join(
                [
                    _mark(part.outcome),
                    tag("b", part.case),
                    f": {part.numbers} ",
                    tag("i", "" if same else part.confidence),
                ]
            )
            for part in verdict.parts
        )
        inside.append((f"{len(verdict.parts)} cases", cases))
    if claim.rule:
        inside.append(("how it is judged", tag("p", tag("b", "How it is judged: "), claim.rule)))
    if not inside:
        return Html("")
    names = ", ".join(name for name, _ in inside)
    is_open = "" if verdict.outcome == "does not hold" else None
    return tag("details", tag("summary", names[0].upper() + names[1:]), *(html for _, html in inside), open=is_open)


def _mark(outcome: str) -> Html:
    """A sign that is seen, and a word that is heard."""
    return tag("span", MARKS[outcome], class_=f"mark {_CLASSES[outcome]}", role="img", aria_label=outcome)
