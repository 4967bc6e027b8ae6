"""Read a CSV (plain or .gz) or a Parquet file into rows of cells whose places are known.

Nothing is interpreted here except the header; a message about a bad cell can name file, line and column because
`Table` knows them. CSV is read by the standard library alone; Parquet needs the extra `parquet`.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra, counted
from dpcrowd.sim.data.first_line import has_names, no_header_note

__all__ = [
    "TIME_NAMES",
    "Cell",
    "Table",
    "delimiter_of",
    "file_names",
    "is_number",
    "not_csv",
    "read_table",
    "read_text",
]

Cell = Any
TIME_NAMES = frozenset({"", "week", "date", "time", "slot", "timestamp", "datetime", "day", "month", "hour", "year"})


@dataclass(frozen=True)
class Table:
    """Rows of equal length. `unit` is what a row is called in this kind of file; `numbers` are the rows' own.

    notes  how the first line was read, where that can be doubted
    """

    file: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[int]
    unit: str
    notes: tuple[str, ...] = ()

    def where(self, row: int, column: int | None = None) -> str:
        """Return 'flu.csv line 7', or \"flu.csv line 7, column 'count'\"."""
        place = f"{self.file} {self.unit} {self.numbers[row]}"
        return place if column is None else f"{place}, column '{self.header[column]}'"

    def column(self, index: int) -> list[Cell]:
        return [row[index] for row in self.rows]


def read_table(path: Path, *, skip_blank: bool = False, header: bool | None = None) -> Table:
    """Read any supported file; every problem is one line that names the file.

    skip_blank  skip blank lines of a CSV, if the order of rows does not matter; in a series, one may be a missing slot
    header      whether the first line of a CSV has names; None: it has, unless it looks like data (`first_line`)
    """
    if path.suffix.lower() == ".toml":
        raise BadInput(
            f"{path.name} is a TOML file, such as a model or a network, not a file of counts; allowed: CSV or Parquet."
            " A model is given as --model (model=... in Python)."
        )
    if path.suffix.lower() in (".parquet", ".pq"):
        if header is not None:
            raise BadInput(f"{path.name} is a Parquet file, whose columns have names; leave header out (--header).")
        return _parquet(path)
    return _csv(path, skip_blank=skip_blank, header=header)


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed if its name ends in .gz."""
    _must_be_file(path)
    try:
        raw = path.read_bytes()
        if path.suffix.lower() == ".gz":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.name} is not UTF-8 text (byte {error.start}); save it as a UTF-8 CSV file.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read '{path}': {error}.") from None


def _must_be_file(path: Path) -> None:
    if not path.exists():
        raise BadInput(f"file '{path}' does not exist; give the path of a CSV or Parquet file.")
    if path.is_dir():
        raise BadInput(f"'{path}' is a folder; give the path of a CSV or Parquet file in it.")


def is_number(cell: Cell) -> bool:
    """Whether a cell is meant as a number: 12, '12', '-3.5', 'nan'."""
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return "_" not in str(cell)  # Python reads 1_000 as a number, people do not write it


def delimiter_of(text: str) -> str:
    """Return what separates the cells of a CSV text, by its first line: a comma, a semicolon or a tab."""
    first_line = text.partition("\n")[0]
    return max(",;\t", key=first_line.count)  # the first of equals, so a file of one column gets the comma


def not_csv(file: str, line: int, error: csv.Error) -> BadInput:
    """Return what is wrong with a line that the reader of CSV refuses."""
    if "new-line character" in str(error):
        return BadInput(
            f"{file} line {line} has a carriage return (CR) that does not end the line; save the file with line ends "
            "of one kind, LF or CRLF."
        )
    return BadInput(f"{file} line {line} is not CSV: {error}.")


def _csv(path: Path, *, skip_blank: bool, header: bool | None) -> Table:
    text = read_text(path)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter_of(text), strict=True)
    rows: list[list[str]] = []
    numbers: list[int] = []
    try:
        for row in reader:
            if row or not skip_blank:
                rows.append(row)
                numbers.append(reader.line_num)
    except csv.Error as error:
        raise not_csv(path.name, reader.line_num, error) from None
    while rows and not any(cell.strip() for cell in rows[-1]) and len(rows[-1]) <= 1:  # empty lines at the end
        rows.pop()
        numbers.pop()
    if not rows:
        raise BadInput(f"{path.name} is empty; expected a header and one line for each slot, or each slot and region.")
    width = len(rows[0])
    for row, number in zip(rows, numbers, strict=True):
        if len(row) != width:
            raise BadInput(
                f"{path.name} line {number} has {counted(len(row), 'cell')}, the first line has {width}; allowed: the "
                "same number in every line. Fill in the cells that are missing, or take the line out."
            )
    names = tuple(cell.strip() for cell in rows[0])
    notes: tuple[str, ...] = ()
    if header is None and _is_data(rows[0]):
        reason = has_names(path.name, rows)
        header = reason is not None
        generated = _generated_header(rows[0])
        notes = (no_header_note(path.name, generated),)
        if reason is not None:
            notes = (
                f"the numbers in the first line of {path.name} are read as names of regions, because {reason}. If they "
                "are counts of slot 0, give --no-header (header=False in Python).",
            )
    if header is False:
        return Table(path.name, _generated_header(rows[0]), rows, numbers, "line", notes)
    return Table(path.name, names, rows[1:], numbers[1:], "line", notes)


def _is_data(row: Sequence[str]) -> bool:
    """Whether the first line is already data: numbers only, or a date followed by numbers."""
    if all(is_number(cell) for cell in row):
        return True
    if len(row) < 2 or not all(is_number(cell) for cell in row[1:]):
        return False
    try:
        datetime.fromisoformat(row[0].strip())
    except ValueError:
        return False
    return True


def _generated_header(row: Sequence[str]) -> tuple[str, ...]:
    time = () if is_number(row[0]) else ("time",)
    return (*time, *file_names(len(row) - len(time)))


def file_names(number: int) -> tuple[str, ...]:
    """Return the names of the regions of a file without a header."""
    return ("count",) if number == 1 else tuple(f"region-{k}" for k in range(1, number + 1))


def _parquet(path: Path) -> Table:
    _must_be_file(path)
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        arrow = importlib.import_module("pyarrow")
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", f"reading {path.name}") from None
    try:
        names = list(parquet.read_schema(path).names)
        for name in names:
            if names.count(name) > 1:  # a dict would lose one of them
                raise BadInput(f"{path.name} has two columns '{name}'; give each region a name of its own.")
        columns = parquet.read_table(path).to_pydict()
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path.name} is not a Parquet file that can be read: {reason}") from None
    rows = list(zip(*columns.values(), strict=True))
    if not rows:
        raise BadInput(f"{path.name} is empty; expected one row for each slot, or each slot and region.")
    return Table(path.name, tuple(str(name) for name in columns), rows, range(1, len(rows) + 1), "row")
