"""A package that is installed for one test: modules and entry points in a folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpcrowd.plugins import installed

__all__ = ["Install", "install"]

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("crowd-extras", module="source", schemes={"median": "module:Median"}, data=..., topologies=...)`."""
    names: list[str] = []

    def add(package: str, source: str, **groups: dict[str, str]) -> None:
        module = package.replace("-", "_")
        names.append(module)
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        sections = (
            f"[dpcrowd.{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in groups.items()
        )
        (metadata / "entry_points.txt").write_text("".join(sections))
        installed.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    yield add
    installed.cache_clear()
    for name in names:
        sys.modules.pop(name, None)
