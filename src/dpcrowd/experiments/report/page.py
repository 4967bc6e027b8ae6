"""Puts the report together: one page that needs nothing but itself, and `claims.json` beside it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import dpcrowd
from dpcrowd.experiments.draw import Drawn
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.report.claims_json import claims_as_json
from dpcrowd.experiments.report.claims_table import claims_section, verdict_summary
from dpcrowd.experiments.report.corrections import corrections_section
from dpcrowd.experiments.report.facts import Facts, facts_section
from dpcrowd.experiments.report.gallery import contents, gallery
from dpcrowd.experiments.report.html import Html, tag
from dpcrowd.experiments.report.parameters import parameters_section
from dpcrowd.experiments.report.sources import data_section, tuned_section
from dpcrowd.experiments.report.verdicts import Judged
from dpcrowd.sim.export import refuse_failed_write

__all__ = ["write_report"]

PAGE, CLAIMS = "index.html", "claims.json"


def write_report(
    folder: Path, plan: Plan, drawn: list[Drawn], judged: Judged, facts: Facts
) -> tuple[Path, dict[str, Any]]:
    """Write `folder`/index.html and claims.json: the page's path, and what claims.json says."""
    numbers = {one.figure.number for one in drawn}
    claims = claims_as_json(plan, numbers, judged)
    template = Template(_asset("page.html"))
    page = template.substitute(
        style=_asset("report.css"),
        about=tag("p", _about(plan), tag("a", "the paper's, with corrections", href="#corrections"), "."),
        banner=_banner(plan),
        summary=verdict_summary(judged),
        missing=_missing(plan),
        corrections=corrections_section(),
        claims=claims_section(plan, numbers, judged),
        contents=contents(drawn),
        figures=gallery(drawn, folder, plan),
        parameters=parameters_section(plan),
        data=data_section(plan),
        tuned=tuned_section(plan),
        facts=facts_section(plan, numbers, facts),
    )
    path, claims_path = folder / PAGE, folder / CLAIMS
    with refuse_failed_write(claims_path):
        claims_path.write_text(
            json.dumps(claims, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
    with refuse_failed_write(path):
        path.write_text(page, encoding="utf-8")
    return path, claims


def _about(plan: Plan) -> str:
    return (
        "The evaluation of the paper “DPCrowd: Privacy-preserving and Communication-efficient Decentralized "
        "Statistical Estimation for Real-time Crowd-sourced Data”, done again with dpcrowd "
        f"{dpcrowd.__version__}: its figures, and for every comparison that it states in words, whether it holds. "
        f"Each point is the mean of {plan.runs} runs, and all comparisons are paired run by run. No seed, window or "
        "data set was chosen to make a claim hold. The schemes are "
    )


def _banner(plan: Plan) -> Html:
    if not plan.quick:
        return Html("")
    text = (
        f"quick look: few runs ({plan.runs}), few values. Intervals are wide, and verdicts may change in the full run."
    )
    return tag("p", tag("strong", text[0].upper() + text[1:]), class_="notice quick")


def _missing(plan: Plan) -> Html:
    if not plan.missing:
        return Html("")
    names = ", ".join(DATA_NAMES.get(name, name) for name in plan.missing)
    how = tag("a", "how to get it", href="#data")
    return tag(
        "p", tag("strong", f"Missing data: {names}. "), "Figures and claims go without it; ", how, class_="notice"
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
