"""Write tables to files: CSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra

__all__ = [
    "check_table_path",
    "check_toml_path",
    "check_writable",
    "checked_path",
    "parquet_library",
    "refuse_failed_write",
    "write_table",
]


def check_table_path(path: Path) -> None:
    """Refuse, before any work is done, a path to which no table can be written."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise BadInput(f"cannot write a table to '{path.name}'; allowed endings: .csv, .parquet.")
    check_writable(path)
    if path.suffix.lower() == ".parquet":
        parquet_library()


def check_toml_path(path: Path, what: str) -> None:
    """Refuse, before any work is done, a path to which `what` cannot be written as TOML."""
    if path.suffix.lower() != ".toml":
        raise BadInput(f"cannot write {what} to '{path.name}'; allowed ending: .toml.")
    check_writable(path)


def checked_path(name: str, path: object, example: str = "model.toml") -> Path:
    """Return the path of a file that a caller gives as `name`; refuse anything that is no path."""
    if not isinstance(path, str | os.PathLike):
        shape = getattr(path, "shape", None)
        kind = f"an object of type {type(path).__name__}{'' if shape is None else f' and shape {shape}'}"
        value = f"{name}={path!r}" if path is None or isinstance(path, int | float) else f"{name}, {kind},"
        raise BadInput(f"{value} is not the path of a file; allowed: a text such as '{example}', or a Path.")
    return Path(path)


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written. Opening it to append is the only reliable test on every system."""
    if not path.parent.is_dir():
        raise BadInput(f"cannot write '{path.name}': the folder '{path.parent}' does not exist.")
    new = not path.exists()
    with refuse_failed_write(path):
        path.open("ab").close()
        if new:
            path.unlink()


@contextmanager
def refuse_failed_write(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a `BadInput` of one line."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot write '{path}': {error.strerror or error}.") from None


_WHOLE = frozenset({"in_sample_slots"})
_TEXTS = frozenset({"reach", "hops_per_slot", "groups", "claimed_by", "shares"})  # numbers or "all", and names


def write_table(columns: dict[str, list[Any]], path: Path) -> Path:
    """Write columns of equal length to .csv or .parquet."""
    check_table_path(path)
    with refuse_failed_write(path):
        if path.suffix.lower() == ".parquet":
            arrow, parquet = parquet_library()
            # A column that is undefined throughout has the type of a defined one, so that files fit together.
            types = {
                name: arrow.string() if name in _TEXTS else arrow.int64() if name in _WHOLE else arrow.float64()
                for name, values in columns.items()
                if all(value is None for value in values)
            }
            typed = {name: arrow.array(values, types.get(name)) for name, values in columns.items()}
            parquet.write_table(arrow.table(typed), path)
            return path
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return path


def parquet_library(purpose: str = "writing Parquet") -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, or refuse with a line that says how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", purpose) from None
    return pyarrow, pyarrow.parquet
