"""The map of the codebase shows what is there: a reader who follows a name that is gone does not trust the rest."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from dpcrowd import simulate
from project_support import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "dpcrowd"
HOPS = sorted(set(re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE)))
FILES = sorted(set(re.findall(r"`([\w/]+/[\w./-]+\.(?:py|md|toml))[`:]", PAGE)))


@cache
def _names(path: str) -> frozenset[str]:
    """Functions, classes and methods that a file defines."""
    names = set()
    for node in ast.parse((SOURCE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
    return frozenset(names)


@pytest.mark.parametrize(("path", "name"), HOPS, ids=":".join)
def test_a_hop_exists(path: str, name: str) -> None:
    """A walk that names a function which has moved leads into the void."""
    assert name in _names(path)


@pytest.mark.parametrize("path", FILES)
def test_a_file_exists(path: str) -> None:
    """A reader who wants to change something starts at the file that the page names."""
    assert (SOURCE / path).is_file() or (ROOT / path).is_file()


def test_there_are_four_walks_and_they_have_hops() -> None:
    """A changed notation would silently switch the checks above off."""
    walks = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert len(walks) == 4
    assert all(len(re.findall(r"`[\w/]+\.py:[\w.]+`", walk)) >= 6 for walk in walks)


def _layers(*containers: str) -> list[list[str]]:
    """Return the rows of the contract for the layers inside these packages; without any, for dpcrowd itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract.get("containers", []) == [*containers]:
            return [[name.strip().removeprefix("dpcrowd.") for name in row.split("|")] for row in contract["layers"]]
    raise AssertionError(f"pyproject.toml has no contract for the layers of {containers or 'dpcrowd'}")


def test_the_picture_has_the_layers_of_the_import_rules() -> None:
    """A picture with other layers than the checker's teaches the wrong rule."""
    order = [name for layer in _layers() for name in layer]
    picture = PAGE.split("```text")[1].split("```")[0]
    drawn = [
        name for line in picture.splitlines() for name in re.match(r"[\s└─]*([\w, ]*?)(?:  |$)", line)[1].split(", ")
    ]
    assert [name.strip() for name in drawn if name.strip()] == order


@pytest.mark.parametrize(("heading", "containers"), [("## Layers", []), ("Inside `node`, ", ["dpcrowd.node"])])
def test_the_diagrams_for_contributors_have_the_layers_of_the_import_rules(heading: str, containers: list[str]) -> None:
    """Who puts a module where the diagram shows it would otherwise be refused by the checker."""
    diagram = CONTRIBUTING.split(heading)[1].split("\n\n")[1]
    drawn = [line.strip(" └─").split(" │ ") for line in diagram.splitlines() if line.strip()]
    assert drawn == _layers(*containers)


def test_files_that_contributors_are_sent_to_exist() -> None:
    """The example of where tests belong has to be one that can be opened."""
    paths = re.findall(r"`(?:python )?((?:src|tests|docs|scripts)/[\w./-]+\.(?:py|md))", CONTRIBUTING)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_every_package_is_in_the_table() -> None:
    """A package that the table leaves out may know anything."""
    table = PAGE.split("## What each package may know")[1].split("## ")[0]
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert packages <= set(re.findall(r"\w+", table))


@pytest.mark.slow
def test_a_simulated_slot_passes_through_the_hops_that_the_walk_names() -> None:
    """Names that exist, but through which nothing passes, mislead more than a missing page."""
    walk = PAGE.split("### A slot in the simulator")[1].split("### ")[0]
    expected = set(re.findall(r"`([\w/]+\.py):([\w.]+)`", walk)) - {
        ("network/hearing.py", "Hearing.sums"),  # where many servers send
        ("filters/kalman.py", "update"),
    }
    calls: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            calls.add((path.relative_to(SOURCE).as_posix(), frame.f_code.co_qualname))

    sys.setprofile(watch)
    try:
        simulate("dpcrowd-w", "linear", servers=4, density=0.6, slots=20, window=10, burn_in=0, runs=1, jobs=1)
    finally:
        sys.setprofile(None)
    names = {(path, name.removesuffix(".__init__")) for path, name in calls}
    assert {hop for hop in expected if hop not in names} == set()
