"""Tables to files: CSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra

__all__ = ["check_table_path", "write_table"]


def check_table_path(path: Path) -> None:
    """Refuse, before any work is done, a path to which no table can be written."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise BadInput(f"cannot write a table to '{path.name}'; allowed endings: .csv, .parquet.")
    if not path.parent.is_dir():
        raise BadInput(f"cannot write '{path.name}': the folder '{path.parent}' does not exist.")
    if path.suffix.lower() == ".parquet":
        _parquet()


def write_table(columns: dict[str, list[Any]], path: Path) -> Path:
    """Write columns of equal length to .csv or .parquet."""
    check_table_path(path)
    if path.suffix.lower() == ".parquet":
        arrow, parquet = _parquet()
        parquet.write_table(arrow.table(columns), path)
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "writing Parquet") from None
    return pyarrow, pyarrow.parquet
