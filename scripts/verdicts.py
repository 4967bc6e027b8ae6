"""Write the verdicts of a reproduction into docs/claims.md and README.md.

    dpcrowd reproduce --out report           # or with --quick
    python scripts/verdicts.py report/claims.json

The documentation says how many of the paper's claims hold; these numbers come from a stored result and from nowhere
else. `tests/unit/experiments/claims/test_published.py` compares the pages with each other and with the list of claims.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUNS, QUICK_RUNS = 50, 3  # the defaults of `dpcrowd reproduce`, without and with --quick
MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "~", "not judged": "–"}


def sentence(report: dict[str, Any]) -> str:
    """Return the numbers in words, as both pages print them."""
    summary = report["summary"]
    command = "dpcrowd reproduce --quick" if report["quick"] else "dpcrowd reproduce"
    if report["runs"] != (QUICK_RUNS if report["quick"] else RUNS):
        command += f" --runs {report['runs']}"
    return (
        f"Of the paper's {len(report['claims'])} claims {summary['holds']} hold, {summary['does not hold']} do not, "
        f"and {summary['undecided']} {'is' if summary['undecided'] == 1 else 'are'} undecided (`{command}`: "
        f"{report['runs']} runs of every point)."
    )


def table(report: dict[str, Any]) -> str:
    """Return one row per claim, in the order of the paper."""
    rows = [
        f"| `{claim['name']}` | {claim['ledger'] or ''} | {MARKS[claim['outcome']]} |" for claim in report["claims"]
    ]
    return "\n".join(["| claim | ledger | verdict |", "|---|---|---|", *rows])


def replace_between(path: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    page = path.read_text(encoding="utf-8")
    pattern = re.compile(r"(<!-- verdicts -->\n).*?(\n<!-- end of verdicts -->)", flags=re.DOTALL)
    assert len(pattern.findall(page)) == 1, f"{path.name} must have the marks of the verdicts once"
    path.write_text(pattern.sub(lambda match: match[1] + text + match[2], page), encoding="utf-8")


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if report["missing"] or report["summary"]["not judged"]:
        sys.exit(f"this result is not complete: missing data {report['missing']}, summary {report['summary']}")
    replace_between(ROOT / "README.md", sentence(report))
    replace_between(ROOT / "docs" / "claims.md", f"{sentence(report)}\n\n{table(report)}")


if __name__ == "__main__":
    main()
