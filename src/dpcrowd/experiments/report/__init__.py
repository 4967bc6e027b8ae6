"""The page that tells what was found: claims, figures, parameters, data, versions; and `claims.json` for programs."""

from __future__ import annotations

from dpcrowd.experiments.report.facts import Facts
from dpcrowd.experiments.report.page import page_template, write_report

__all__ = ["Facts", "page_template", "write_report"]
