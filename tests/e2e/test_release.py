"""What is handed out: an sdist that is complete, and a wheel made from it. `make release` tries the wheel as well."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

import dpcrowd
from project_support import ROOT

SCRIPT = ROOT / "scripts" / "release.py"


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sample, a template or `py.typed` that is left out is missed by users only: here the source tree has it."""
    specification = importlib.util.spec_from_file_location("release", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    release = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(release)
    sdist, wheel = release.build(tmp_path)
    assert sdist.name == f"dpcrowd-{dpcrowd.__version__}.tar.gz"
    assert wheel.name == f"dpcrowd-{dpcrowd.__version__}-py3-none-any.whl"
    assert release.unpacked(wheel) == set()
    with zipfile.ZipFile(wheel) as whole:
        assert "dpcrowd/docs/privacy.md" in whole.namelist(), "the documentation that every node serves"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / "part.whl", "w") as part:
        for name in whole.namelist():
            if not name.endswith("node.sample.toml"):
                part.writestr(name, whole.read(name))
    assert release.unpacked(tmp_path / "part.whl") == {"dpcrowd/node/config/node.sample.toml"}
