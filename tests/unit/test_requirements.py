"""The pins of the demo are a part of those of the tests: `make test` after `make demo` only adds packages."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from project_support import ROOT

INSTALL = ROOT / "scripts" / "install.py"


def pins_of(name: str) -> dict[str, frozenset[str]]:
    """Package, version and marker -> hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = {}
    for block in re.split(r"^(?=\S)", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE):
        if "==" in block:
            found[block.partition(" ")[0].strip()] = frozenset(re.findall(r"--hash=(\S+)", block))
    return found


def test_the_pins_of_the_demo_are_those_of_the_tests() -> None:
    """Other versions would be replaced by the first `make test`, and what was shown was not what is tested."""
    demo, everything = pins_of("requirements-demo.txt"), pins_of("requirements-dev.txt")
    assert {"numpy", "eclipse-zenoh", "uvicorn", "hatchling"} <= {pin.partition("==")[0] for pin in demo}
    for pin, hashes in demo.items():
        assert everything[pin] == hashes, pin
        assert hashes, pin


def test_the_demo_installs_no_more_than_it_needs() -> None:
    """Tests, documentation, plots and compilers are 2 GB that a first-time visitor waits for in vain."""
    demo = {pin.partition("==")[0] for pin in pins_of("requirements-demo.txt")}
    assert not demo & {"pytest", "numba", "opendp", "matplotlib", "pyarrow", "pandas", "polars", "mkdocs", "playwright"}
    assert len(demo) < 45


@pytest.mark.parametrize("name", ["requirements-demo.txt", "requirements-dev.txt"])
def test_pins_name_no_address(name: str) -> None:
    """An address of a mirror would be a place that other machines cannot reach."""
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


def installed_by(pip: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the script with a program in the place of pip, which prints what pip would."""
    (folder / "pip.py").write_text(pip, encoding="utf-8")
    script = runpy.run_path(str(INSTALL))
    monkeypatch.setitem(script["main"].__globals__, "_PIP", [sys.executable, str(folder / "pip.py")])
    code: int = script["main"]("pins.txt")
    return code


PRINTED = """Collecting numpy==2.4.6 (from -r requirements-demo.txt (line 3))
  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.6 MB)
Processing /mirror/rich-15.0.0-py3-none-any.whl (from -r requirements-demo.txt (line 9))
Collecting idna==3.20
  Using cached idna-3.20-py3-none-any.whl (400 kB)
Installing collected packages: idna, rich, numpy
Successfully installed idna-3.20 numpy-2.4.6 rich-15.0.0
"""


def test_an_installation_is_a_line_per_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Silence for a minute looks like a fault, and hundreds of lines hide one."""
    assert installed_by(f"print({PRINTED!r}, end='')", tmp_path, monkeypatch) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("installing pins.txt into ")
    assert [re.sub(r" \(\d+ s\)$", "", line).strip() for line in lines] == [
        "collected 3 packages, 17 MB downloaded",
        "installed their files",
        "installed dpcrowd itself",
    ]


def test_a_failure_shows_all_that_pip_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it nobody could correct what is wrong; and make has to stop."""
    pip = "import sys; print('Collecting x==1'); print('ERROR: hashes do not match', file=sys.stderr); sys.exit(3)"
    assert installed_by(pip, tmp_path, monkeypatch) == 3
    out = capsys.readouterr().out
    assert "pip failed" in out
    assert "ERROR: hashes do not match" in out
    assert "itself" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stamp", "expected"), [(None, "requirements-demo.txt"), (".installed", "requirements-dev.txt")]
)
def test_the_demo_uses_what_is_installed(tmp_path: Path, stamp: str | None, expected: str) -> None:
    """A fresh copy installs the small set; where everything is installed, that is kept up to date instead."""
    (tmp_path / "bin").mkdir()
    if stamp is not None:
        (tmp_path / stamp).touch()
    words = ["make", "--dry-run", "--always-make", "demo", f"VENV={tmp_path}"]
    answer = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert re.findall(r"requirements-\w+\.txt", answer.stdout) == [expected]
