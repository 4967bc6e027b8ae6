"""The report: one page that needs nothing but itself, with `claims.json` and `relay.json` beside it.

The content of the page is collected here as plain values; its form stands in `templates/`, where Jinja2 escapes
whatever is not marked as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpcrowd.__about__ import __version__
from dpcrowd.errors import MissingExtra
from dpcrowd.experiments.draw import Drawn
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.relay_table import RelayTable
from dpcrowd.experiments.report import parameters, relay, sources
from dpcrowd.experiments.report.claims import CLASSES, MARKS, PLURALS, Judged, claim_rows, claims_as_json, summary
from dpcrowd.experiments.report.corrections import CORRECTIONS
from dpcrowd.experiments.report.coverage import CoverageRow, coverage_table
from dpcrowd.experiments.report.facts import Facts, command, how_it_was_made
from dpcrowd.experiments.report.gallery import shown_figures
from dpcrowd.sim.export import refuse_failed_write

__all__ = ["page_template", "write_report"]

PAGE, CLAIMS, RELAY = "index.html", "claims.json", "relay.json"


def page_template() -> Any:
    """Return the template of the page; `MissingExtra` without Jinja2, which users should learn before hours of work."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("Jinja2", "report", "the report") from None
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dpcrowd.experiments.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html")


def write_report(
    folder: Path,
    plan: RunPlan,
    drawings: list[Drawn],
    judged: Judged,
    facts: Facts,
    relay_table: RelayTable | None = None,
    coverage_rows: Sequence[CoverageRow] = (),
) -> tuple[Path, dict[str, Any]]:
    """Write `folder`/index.html, claims.json and relay.json.

    Returns the path of the page and the content of claims.json. Without a `relay_table` the page has no section on
    relay, and there is no relay.json.
    """
    numbers = {drawing.figure.number for drawing in drawings}
    claims = claims_as_json(plan, numbers, judged) | {"coverage": [asdict(row) for row in coverage_rows]}
    claims["models"] = sources.models_in_use(plan)
    page = page_template().render(
        version=__version__,
        plan=plan,
        classes=CLASSES,
        marks=MARKS,
        plurals=PLURALS,
        summary=summary(judged),
        corrections=CORRECTIONS,
        claims=claim_rows(plan, numbers, judged),
        figures=shown_figures(drawings, folder, plan),
        relay=relay_table and [relay.error_table(relay_table), relay.cost_table(relay_table)],
        coverage=coverage_table(coverage_rows) if coverage_rows else None,
        parameters=parameters.parameter_table(plan),
        shares=parameters.shares_note(plan),
        sweeps=parameters.sweep_table(plan),
        data=sources.data_table(plan),
        missing=sources.missing_data(plan),
        notes=sources.data_notes(plan),
        origins=sources.origins(plan),
        unused=sources.unused_tuning(plan),
        command=command(plan, numbers, relay=bool(relay_table)),
        facts=how_it_was_made(plan, facts),
    )
    _write_json(folder / CLAIMS, claims)
    if relay_table:
        _write_json(folder / RELAY, relay.relay_as_json(plan, relay_table))
    path = folder / PAGE
    with refuse_failed_write(path):
        path.write_text(page, encoding="utf-8")
    return path, claims


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with refuse_failed_write(path):
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
