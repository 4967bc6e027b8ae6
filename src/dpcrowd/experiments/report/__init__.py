"""The report of a reproduction: a page with claims, figures, parameters, data and versions, and files for programs."""

from __future__ import annotations

from dpcrowd.experiments.report.facts import Facts
from dpcrowd.experiments.report.page import page_template, write_report

__all__ = ["Facts", "page_template", "write_report"]
