"""The example package, installed as a user installs it, and run from the command line and by its own tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpcrowd
from project_support import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder with the installed package, before everything else on the path."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")
    target = folder / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = str(Path(dpcrowd.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), here]), "SOURCE": str(source)}


def _dpcrowd(environment: dict[str, str], *words: str, quiet: bool = True) -> str:
    command = [sys.executable, "-W", "error", "-m", "dpcrowd", *words]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)
    assert done.returncode == 0, done.stderr
    assert not quiet or done.stderr == ""
    return done.stdout


def test_it_is_listed_checked_and_simulated(environment: dict[str, str]) -> None:
    """Entry points of a real package, read by a real installation: names in a folder of a test are not that."""
    rows = json.loads(_dpcrowd(environment, "schemes", "--json"))["schemes"]
    assert rows[-1]["scheme"] == "moving-median"
    assert rows[-1]["claimed_by"] == "crowd-example"
    assert "market            168 slots x 2 regions" in _dpcrowd(environment, "data")
    words = "--data market --graph star --window 24 --servers 6 --runs 2 --slots 72".split()
    by_reference = "crowd_example.moving_median:MovingMedian"  # by its name in the report of the next test
    table = _dpcrowd(environment, "simulate", "--scheme", f"{by_reference},uniform", *words)
    assert "promise of moving-median: promised by crowd-example, whose scheme passes dpcrowd's checks" in table
    assert "promise of uniform: Pure 24-event differential privacy" in table


def test_a_report_has_it_and_workers_find_it(environment: dict[str, str], tmp_path: Path) -> None:
    """Two other processes compute the points of a report: they have to find the scheme and the network by name."""
    words = "--quick --runs 2 --jobs 2 --scheme moving-median --data market --graph star".split()
    _dpcrowd(environment, "reproduce", "plugins", *words, "--out", str(tmp_path), quiet=False)
    drawing = (tmp_path / "figure10-plugins.svg").read_text(encoding="utf-8")
    assert "moving-median" in drawing
    assert "crowd-example" in drawing


def test_its_own_tests_pass(environment: dict[str, str]) -> None:
    """The example shows how a scheme is tested; a pattern that fails would be copied."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "tests"]
    alone = {**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # it uses none, and they take a second to load
    done = subprocess.run(command, capture_output=True, text=True, env=alone, cwd=environment["SOURCE"])
    assert done.returncode == 0, done.stdout
