"""How long a node needs to come back: from its start on a folder that it has used to its first answer.

Two nodes in TLS run for some slots and pay in each of them, so that there is a ledger to load. Then the first one is
stopped and started again, several times, while the other one runs on. To compare two commits, run this script of each
of them in turn and compare the medians: of processor time where the machine is busy.
"""

from __future__ import annotations

from harness import print_table  # isort: skip  # first: sets threads

import argparse
import time
from contextlib import ExitStack

import live
import numpy as np


def measure(restarts: int, slots: int) -> np.ndarray:
    """Return (restarts, 2): seconds until the first answer, and seconds of processor time of the process until then."""
    with live.temporary() as folder, ExitStack() as stack:
        network = live.make_live(folder, ["node", "other"], 51, [("node", "other")], every_slot=True)
        stack.enter_context(live.started(network.nodes[1:]))
        with live.started(network.nodes[:1]):
            time.sleep(slots)  # a slot takes one second
        seconds = []
        for _ in range(restarts):
            began = time.perf_counter()
            with live.started(network.nodes[:1]) as processes:
                waited = time.perf_counter() - began
                seconds.append((waited, live.usage(processes.pids["node"]).seconds))
        return np.array(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--slots", type=int, default=10, help="how many slots of one second the ledger holds")
    chosen = parser.parse_args()
    state = live.state_of_machine()
    seconds = measure(chosen.restarts, chosen.slots)
    rows = [
        [what, *(f"{value:.2f} s" for value in (np.median(column), column.min(), column.max()))]
        for what, column in zip(("time", "processor time"), seconds.T, strict=True)
    ]
    print_table(f"From the start to the first answer, {chosen.restarts} times", ["", "median", "best", "worst"], rows)
    print(state)


if __name__ == "__main__":
    main()
