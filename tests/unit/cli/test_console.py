"""Tables and progress on the console: whole numbers at any width, and nothing that disturbs a pipe."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from dpcrowd.cli.console import console, print_columns, progress_bar

COLUMNS = {
    "scheme": ["dpcrowd-plus", "fast"],
    "ARE": ["0.01234", "0.1"],
    "packets/slot": ["12,231", "–"],
    "ε moving": ["1", "0.8889"],
}


def _printed(width: int) -> list[str]:
    out = io.StringIO()
    print_columns(Console(file=out, width=width, highlight=False), COLUMNS)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_wide_console_gets_one_table() -> None:
    """Columns stand under their headings, numbers to the right."""
    assert _printed(80) == [
        "scheme            ARE  packets/slot  ε moving",
        "dpcrowd-plus  0.01234        12,231         1",
        "fast              0.1             –    0.8889",
    ]


@pytest.mark.parametrize("width", [28, 36, 43, 44, 45])
def test_a_narrow_console_gets_several_tables_with_all_digits(width: int) -> None:
    """A figure cut to '0.0…' is worse than none: every value is whole, and every part says which scheme it is."""
    lines = _printed(width)
    text = "\n".join(lines)
    assert "…" not in text
    assert max(map(len, lines)) <= width
    for heading, values in COLUMNS.items():
        for word in (heading, *values):
            assert word in text
    heads = [line for line in lines if line.startswith("scheme")]
    assert len(lines) == 3 * len(heads)
    assert len(heads) > 1 or width >= 45


def test_a_console_for_a_file_is_wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in a file should neither be folded nor hold escape codes."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    made = console()
    assert made.width == 200
    made.print("text", style="bold red")
    assert out.getvalue() == "text\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control codes in a log file are noise."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with progress_bar("simulating") as progress:
        assert progress is None
    assert out.getvalue() == ""


def test_progress_on_a_terminal_goes_to_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output stays free for the result."""
    err, out = _Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("simulating") as progress:
        assert progress is not None
        progress(1, 4)
        progress(4, 4)
    assert "simulating" in err.getvalue()
    assert "100%" in err.getvalue()
    assert out.getvalue() == ""


def test_no_column_is_left_alone() -> None:
    """In 80 characters the table of `simulate` ended with a second one of the column "ε server" alone."""
    names = ["total error", "coverage", "ARE", "± ARE", "MAE", "frequency", "packets/slot", "ε server"]
    columns = {"scheme": ["relay"], **{name: ["0.1234"] for name in names}}
    out = io.StringIO()
    print_columns(Console(file=out, width=80, highlight=False), columns)
    first, _, second, _ = out.getvalue().splitlines()
    assert first.split() == ["scheme", "total", "error", "coverage", "ARE", "±", "ARE", "MAE"]
    assert second.split() == ["scheme", "frequency", "packets/slot", "ε", "server"]
