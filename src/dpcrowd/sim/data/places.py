"""The folders where published data sets are searched for, and where `dpcrowd data` stores them.

The sets are not part of the package: they belong to their publisher. In order: the folder (or file) given, the folder
in the environment variable DPCROWD_DATA, ./data, ../shared/data, and the user's cache folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dpcrowd.errors import BadInput

__all__ = ["ENVIRONMENT", "cache_dir", "find_published", "search_path"]

ENVIRONMENT = "DPCROWD_DATA"
BESIDE = Path("..", "shared", "data")
"""Where developers have the public series; no place that a message names."""


def cache_dir() -> Path:
    """Return the user's cache folder for dpcrowd, by the convention of each platform."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "dpcrowd" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpcrowd"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache") / "dpcrowd"


def search_path(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders to search, in order. A folder given by the caller is the only one."""
    if data_dir is not None:
        return [Path(data_dir)]
    from_environment = os.environ.get(ENVIRONMENT)
    folders = [Path("data"), BESIDE, cache_dir()]
    return [Path(from_environment), *folders] if from_environment else folders


def find_published(
    name: str, file: str, data_dir: str | os.PathLike[str] | None = None, remedy: str | None = None
) -> Path:
    """Return the path of a published set's file; BadInput says which folders were searched and how to get it.

    remedy  how to get the file; default: by `dpcrowd data`
    """
    folders = search_path(data_dir)
    for folder in folders:
        if folder.is_file() and folder.name == file:
            return folder
        if (folder / file).is_file():
            return folder / file
    looked = ", ".join(str(folder) for folder in folders if folder != BESIDE)
    if remedy is None:
        remedy = f"Get it from its publisher with 'dpcrowd data {name}'"
        if data_dir is not None:
            remedy += f", without --data-dir (--out {data_dir} puts it there)"
    raise BadInput(
        f"data set '{name}' needs {file}, which is not in: {looked}. {remedy}, or name the folder that has it: "
        f"--data-dir (data_dir= in Python), or the environment variable {ENVIRONMENT}."
    )
