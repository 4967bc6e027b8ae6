"""Install the pins of a file and dpcrowd itself into this interpreter's environment, with one line per step.

    .venv/bin/python scripts/install.py requirements-demo.txt

pip alone is either silent for minutes or prints hundreds of lines. Here a terminal shows what is being downloaded, in
one line that changes; if pip fails, all that it printed follows. Only the standard library is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

_PACKAGE = re.compile(r"^(?:Collecting|Processing) (?:\S*/)?(?P<name>[\w.-]+?)(?:==|-\d)")
_SIZE = re.compile(r"^\s+(?:Downloading|Using cached) .*\((?P<size>[\d.]+) (?P<unit>kB|MB|bytes)\)$")
_UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0}
# Without compiling: Python compiles what is imported, a small part, when it is imported for the first time.
_PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile"]


class Steps:
    """Prints steps; what a step is doing at the moment is shown on a terminal only."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._began = time.monotonic()

    def show(self, text: str) -> None:
        """Show what is being done, in place of what was shown before."""
        if self._live:
            print(f"\r\x1b[K  {text[:76]}", end="", flush=True)

    def end(self, text: str) -> None:
        """Print the line of a step that has ended, with the seconds that it took."""
        seconds = time.monotonic() - self._began
        print(f"{chr(13) + chr(27) + '[K' if self._live else ''}  {text} ({seconds:.0f} s)", flush=True)
        self._began = time.monotonic()


def main(file: str) -> int:
    """Install; return pip's exit code."""
    steps = Steps()
    print(f"installing {file} into {Path(sys.prefix).name}", flush=True)
    code = _install([*_PIP, "--require-hashes", "-r", file], steps)
    if code == 0:
        steps.show("dpcrowd")
        code = _install([*_PIP, "--no-deps", "--no-build-isolation", "-e", "."], steps, "installed dpcrowd itself")
    return code


def _install(command: list[str], steps: Steps, ended: str = "") -> int:
    """Run pip, and condense what it prints."""
    lines: list[str] = []
    packages, megabytes = 0, 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if (package := _PACKAGE.match(line)) is not None:
                packages += 1
                steps.show(f"collecting {package['name']}: {packages} packages, {megabytes:.0f} MB downloaded so far")
            elif (size := _SIZE.match(line)) is not None:
                megabytes += float(size["size"]) * _UNITS[size["unit"]]
            elif line.startswith("Installing collected packages") and not ended:
                steps.end(f"collected {packages} packages, {megabytes:.0f} MB downloaded")
                steps.show("installing their files")
    if process.returncode != 0:
        steps.end("pip failed; this is what it printed:")
        print("".join(lines), end="", flush=True)
    elif ended:
        steps.end(ended)
    else:
        new = any(line.startswith("Successfully installed") for line in lines)
        steps.end("installed their files" if new else "everything was there already")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
