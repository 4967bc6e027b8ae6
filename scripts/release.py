"""`make release`: sdist and wheel into dist/, and the wheel tried in a virtual environment where nothing else is.

The wheel is made from the sdist, so that both are known to be complete. It is then installed as a user would, first
without and then with what live servers need, and every kind of command is run once, away from the source tree.
Needs no network beyond what pip needs. Publishes nothing: what is in dist/ afterwards can be uploaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["build", "main", "unpacked"]

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = ROOT / "src" / "dpcrowd"
_SECONDS = 600.0
_COUNTS = "slot,north,south\n" + "".join(f"{slot},{100 + slot % 7},{80 + slot % 5}\n" for slot in range(120))


def build(dist: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made from it."""
    dist.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(dist)], ROOT)
    (sdist,) = dist.glob("dpcrowd-*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)], source)
    (wheel,) = dist.glob("dpcrowd-*.whl")
    return sdist, wheel


def unpacked(wheel: Path) -> set[str]:
    """The files of the package that are not in the wheel: samples, templates and types are as easily lost as code."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    files = (path for path in _PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"dpcrowd/{path.relative_to(_PACKAGE).as_posix()}" for path in files} - held


def main() -> int:
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    sdist, wheel = build(dist)
    lost = unpacked(wheel)
    if lost:
        print(f"release: not in the wheel: {', '.join(sorted(lost))}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        _try(wheel, Path(folder))
    print(f"release: {sdist.relative_to(ROOT)} and {wheel.relative_to(ROOT)} are built and tried.")
    return 0


def _try(wheel: Path, folder: Path) -> None:
    """Raises CalledProcessError for the first command that fails."""
    version = wheel.name.split("-")[1]
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python, dpcrowd = str(programs / "python"), str(programs / "dpcrowd")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    (folder / "counts.csv").write_text(_COUNTS, encoding="utf-8")

    _run([*pip, str(wheel)], folder)
    told = _run([dpcrowd, "--version"], folder)
    if told != f"dpcrowd {version}\n":
        raise SystemExit(f"release: the wheel is of version {version}, and says {told!r}")
    _run([python, "-c", "import dpcrowd; [getattr(dpcrowd, name) for name in dpcrowd.__all__]"], folder)
    _run(
        [dpcrowd, "simulate", "--scheme", "dpcrowd,sample", "--data", "counts.csv", "--servers", "3", "--runs", "2"],
        folder,
    )
    _run([dpcrowd, "node", "schema", "network"], folder)

    _run([*pip, f"{wheel}[node,client,report]"], folder)
    _run([dpcrowd, "init", "net", "--servers", "2", "--advanced", "--dev"], folder)
    report = _run([dpcrowd, "node", "doctor", "net/server-1/node.toml", "--listen", "0"], folder, codes=(0, 1))
    if "doctor: PASSED  configuration:" not in report:
        raise SystemExit(f"release: the doctor does not take what init writes:\n{report}")
    _run([dpcrowd, "reproduce", "1", "--quick", "--runs", "2", "--jobs", "1"], folder)
    rows = _run([dpcrowd, "demo", "--servers", "2", "--people", "200", "--seconds", "15", "--json"], folder)
    if not rows.strip():
        raise SystemExit("release: two servers released nothing in 15 seconds")


def _run(command: Sequence[str], where: Path, codes: tuple[int, ...] = (0,)) -> str:
    """Standard output; away from the settings of whoever runs this, such as PYTHONPATH."""
    print("release:", " ".join(Path(part).name if part.startswith("/") else part for part in command), flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPCROWD"))}
    done = subprocess.run(
        list(command), cwd=where, env=environment, stdout=subprocess.PIPE, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode not in codes:
        raise SystemExit(f"release: exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
