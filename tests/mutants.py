"""Apply each mutant of `mutants_table` to a copy of the tree, and see its tests fail.

    python tests/mutants.py                     all of them
    python tests/mutants.py --only pay-after-send
    python tests/mutants.py -j 2                two at a time

Exits with 1 if a mutant survives, if its text is not found exactly once, or if a test fails without any mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants_table import MUTANTS, Mutant

__all__ = ["apply", "main", "place"]

ROOT = Path(__file__).parent.parent
_SECONDS = 180
_FAILED = 1  # pytest: tests ran, and some of them failed; anything above is no verdict


def place(mutant: Mutant, root: Path = ROOT) -> Path:
    """The file that a mutant changes."""
    return root / "src" / "dpcrowd" / mutant.file


def apply(mutant: Mutant, root: Path) -> None:
    """Change a copy of the tree; `LookupError` if the text is not there exactly once."""
    path = place(mutant, root)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.count(mutant.old) != 1:
        raise LookupError(f"{mutant.name}: the old text occurs {text.count(mutant.old)} times in {mutant.file}.")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="this mutant; may be repeated")
    parser.add_argument("-j", metavar="N", type=int, default=1, help="how many at a time")
    given = parser.parse_args()
    unknown = set(given.only) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no mutant {', '.join(sorted(unknown))}; there are: {', '.join(one.name for one in MUTANTS)}.")
    chosen = [mutant for mutant in MUTANTS if not given.only or mutant.name in given.only]
    began = time.monotonic()
    code, output = _pytest(None, sorted({test for mutant in chosen for test in mutant.tests}), 10 * _SECONDS)
    if code != 0:
        print(output)
        print("the tests fail without any mutant: nothing can be said.")
        return 1
    with ThreadPoolExecutor(max(given.j, 1)) as pool:
        verdicts = list(pool.map(_try, chosen))
    alive = verdicts.count(False)
    print(f"{len(chosen) - alive} of {len(chosen)} mutants were killed in {time.monotonic() - began:.0f} s.")
    return 1 if alive else 0


def _try(mutant: Mutant) -> bool:
    """Whether the tests have noticed; prints one line."""
    try:
        code, output = _pytest(mutant, mutant.tests)
    except LookupError as error:
        print(f"NOT FOUND  {error}", flush=True)
        return False
    verdict = "killed" if code == _FAILED else "SURVIVED" if code == 0 else f"NO VERDICT (pytest ended with {code})"
    print(f"{verdict:<10} {mutant.name}" + (f"\n{output}" if code not in (0, _FAILED) else ""), flush=True)
    return code == _FAILED


def _pytest(mutant: Mutant | None, tests: Sequence[str], seconds: int = _SECONDS) -> tuple[int | None, str]:
    """Exit code and output of these tests in a copy of the tree; None if they did not end."""
    with tempfile.TemporaryDirectory(prefix="dpcrowd-mutant-") as folder:
        root = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        if mutant is not None:
            apply(mutant, root)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        environment = os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, *(f"tests/{test}" for test in tests)],
                cwd=root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return None, f"no end after {seconds} s"
        return done.returncode, done.stdout[-4000:] + done.stderr[-1000:]


if __name__ == "__main__":
    sys.exit(main())
