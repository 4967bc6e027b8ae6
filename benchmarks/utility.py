"""How useful relay's estimates are, beside every other scheme: accuracy, communication, promise and speed.

    python benchmarks/utility.py --out FOLDER                 everything (about an hour on one core)
    python benchmarks/utility.py --out FOLDER --part table    one part (--help lists them)
    python benchmarks/utility.py --out FOLDER --quick         a smoke run of a few seconds

Every part writes its rows to FOLDER/<part>.json as soon as they are measured. FOLDER/utility.md (tables and
targets), FOLDER/utility.svg (ratios to DPCrowd) and FOLDER/communication.svg (error against bytes and packets) are
written from all parts that are there. m = 50, density 0.1, ARE from
slot 20 on, the same Q for all, relay with the number of samples that it chooses itself.
"""

from __future__ import annotations

from harness import print_targets  # isort: skip  # first: sets threads

import argparse
import json
from pathlib import Path

from utility_communication import draw_communication
from utility_parts import FULL, PARTS, QUICK
from utility_report import draw, targets, write_report
from utility_speed import speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="Folder for results, tables and the figure.")
    parser.add_argument("--part", action="append", choices=[*PARTS, "speed"], help="Measure only this part.")
    parser.add_argument("--quick", action="store_true", help="A smoke run: too small to say anything.")
    parser.add_argument("--report", action="store_true", help="Measure nothing; write tables and figure again.")
    parser.add_argument("--check", action="store_true", help="Fail if a target is missed.")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    size = QUICK if chosen.quick else FULL
    for part in [] if chosen.report else chosen.part or [*PARTS, "speed"]:
        rows = []
        for more in speed(chosen.quick) if part == "speed" else PARTS[part](size):
            rows += more
            (chosen.out / f"{part}.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
            print(part, ", ".join(f"{key} {more[0][key]}" for key in ("data", "epsilon", "links") if key in more[0]))
    results = {
        part: json.loads((chosen.out / f"{part}.json").read_text(encoding="utf-8"))
        for part in [*PARTS, "speed"]
        if (chosen.out / f"{part}.json").exists()
    }
    write_report(results, chosen.out / "utility.md")
    if "table" in results:
        draw(results, chosen.out / "utility.svg")
    if "frontier" in results:
        draw_communication(results["frontier"], chosen.out / "communication.svg")
    print_targets(targets(results))


if __name__ == "__main__":
    main()
