"""What it costs to start: `import dpcrowd` against `import numpy`, and `dpcrowd --help`, in fresh processes.

Imports are timed inside the new process, so that the start of the interpreter itself does not blur the ratio; commands
are timed from outside, as a user waits for them.
"""

from __future__ import annotations

from harness import Target, alternate, print_table, print_targets, seconds_of  # isort: skip  # first: sets threads

import subprocess
import sys

ROUNDS = 20
IMPORTS = {
    "import numpy": "import numpy",
    "import dpcrowd": "import dpcrowd",
    "import dpcrowd, numpy": "import dpcrowd, numpy",
    "from dpcrowd import DPCrowd, Guarantee": "from dpcrowd import DPCrowd, Guarantee",
    "from dpcrowd import simulate": "from dpcrowd import simulate",
}
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "dpcrowd --help": ["-m", "dpcrowd", "--help"],
    "dpcrowd schemes": ["-m", "dpcrowd", "schemes"],
}


def import_seconds(statement: str) -> float:
    """How long an import takes in a new process."""
    code = f"import time\nbegan = time.perf_counter()\n{statement}\nprint(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def command_seconds(arguments: list[str]) -> float:
    """How long a command takes from start to end."""
    command = [sys.executable, *arguments]
    return seconds_of(lambda: subprocess.run(command, capture_output=True, check=True))


def main() -> None:
    contestants = {name: lambda s=statement: import_seconds(s) for name, statement in IMPORTS.items()}
    contestants |= {name: lambda a=arguments: command_seconds(a) for name, arguments in COMMANDS.items()}
    best = alternate(contestants, ROUNDS)
    numpy = best["import numpy"]
    print_table(
        f"Starting, best of {ROUNDS}, each in a process of its own",
        ("", "time", "/ import numpy"),
        [(name, f"{best[name] * 1e3:.1f} ms", f"{best[name] / numpy:.2f}") for name in contestants],
        "Imports are timed inside the process, commands from outside.",
    )
    print_targets(
        [
            Target("import dpcrowd / import numpy", best["import dpcrowd"] / numpy, 1.3, "x", at_least=False),
            Target("dpcrowd --help", best["dpcrowd --help"], 0.5, " s", at_least=False),
        ]
    )


if __name__ == "__main__":
    main()
