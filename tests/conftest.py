"""What all tests share: hypothesis profiles, work units, temporary folders, and a list of what was not tested.

Every run ends with the list of skipped tests and their reasons. With DPCROWD_NO_SKIP set (as in continuous
integration) a skipped test is a failure, so that a check cannot disappear because a library or a file is missing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# One thread per process for products of matrices, also in the processes that tests start: there are as many of them as
# cores, and the threads of a library that wait for each other would use the time of the others. Before numpy is loaded.
for _library in ("OPENBLAS", "MKL", "OMP"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# A shell that starts tests in the background lets them, and every process they start, ignore Control-C, which some
# tests send. With a handler of our own, processes that are started begin with the usual one. xdist: main thread only.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported and collected stays until the end: a search for garbage there finds nothing, and takes long.
gc.disable()

# No deadlines: a shared machine may pause at any time, and no unit test has a time limit.
settings.register_profile("default", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# For a night: many more examples, also where a test says how many are usual (`examples_support.examples`).
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


MEMORY = Path("/dev/shm")
ENOUGH = 2 * 1024**3
"""Bytes; a complete run leaves a hundredth of it there."""


def pytest_configure() -> None:
    """Put temporary folders into memory where Linux offers it, unless TMPDIR says where they belong.

    A commit of a node's database waits milliseconds for a disk, thousands of times. What a killed process leaves behind
    is the same in memory; that the database asks the disk to be safe is the matter of tests/unit/node/storage.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    place = os.statvfs(MEMORY)
    if place.f_bavail * place.f_frsize >= ENOUGH and not place.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # where pytest makes tmp_path
        tempfile.tempdir = str(MEMORY)


def pytest_collection_finish() -> None:
    """Look for garbage again, but only among what the tests themselves leave."""
    gc.freeze()
    gc.enable()


END_TO_END = "tests/e2e/"
LIVE = ("tests/e2e/test_node_", "tests/e2e/test_demo")
"""Tests of live servers; the other end-to-end tests compute, and wait for nothing."""
STATISTICAL = "tests/statistical/"
LANES = 2
"""How many workers may run live tests at the same time."""


ALONE = "tests/property/"
"""Tests without parameters are long here, and share next to nothing: each is a unit of its own."""


def unit_of(nodeid: str) -> str:
    """Return the work unit of a test: its file, or in tests/property the test itself unless it has parameters.

    Tests of one file share fixtures. If they ran in several workers, each of these would make the fixtures again: the
    simulation that the claims are judged on, the drawn figures, a network of live servers.
    """
    file, _, test = nodeid.partition("::")
    return nodeid if file.startswith(ALONE) and "[" not in test else file


def next_unit(waiting: Iterable[str], live_elsewhere: int) -> str | None:
    """Return the unit that a worker gets next, while so many other workers run live tests; None if it may get none.

    The first one that waits, but no live one if all lanes are taken.
    """
    free = live_elsewhere < LANES
    return next((unit for unit in waiting if free or not unit.startswith(LIVE)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put live tests first, then other long files: what begins last is short, and no worker waits for another.

    xdist would begin with the files of many tests, which are not the ones that take long; `make unit` tells it not to.
    """
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))

    def place(item: pytest.Item) -> tuple[bool, bool, bool, int]:
        live, end_to_end, statistical = (item.nodeid.startswith(kind) for kind in (LIVE, END_TO_END, STATISTICAL))
        return not live, not end_to_end, not statistical, -slow[item.path]

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)  # without xdist everything runs one after another anyway
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests with processes, sockets and real clocks run in two lanes; with more at a time they would be late.

    At most two workers have files of live tests at the same time, and take the next one as soon as they have finished
    one; the others take something else. A lane spends much of its time waiting, which is why `make unit` has two
    workers more than there are cores. xdist's own groups would change the ids of tests, and this pytest does not allow
    that. `make fast`, which has no live tests, asks for another scheduler (`--dist worksteal`) and gets it.
    """
    if config.getoption("dist") == "worksteal":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            unit = next_unit(self.workqueue, sum(self._is_live(other) for other in self.nodes if other is not node))
            if unit is None:  # only live tests are left, and two others run them
                node.shutdown()
                return
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

        def _is_live(self, node: Any) -> bool:
            """Return whether a worker has live tests that are not over."""
            units = self.assigned_work[node]
            return any(unit.startswith(LIVE) and not all(tests.values()) for unit, tests in units.items())

    return Lanes(config, log)


def _skips(config: pytest.Config) -> list[tuple[str, str]]:
    """(test, reason) of everything that was skipped, whole modules included; under xdist, of all workers."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return []
    found = []
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found.append((report.nodeid, reason.removeprefix("Skipped: ")))
    return sorted(set(found))


def _refuses_skips() -> bool:
    return os.environ.get("DPCROWD_NO_SKIP", "") not in ("", "0")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn a passing session with skipped tests into a failing one, if nothing may be skipped."""
    passed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if passed and _refuses_skips() and _skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List what was skipped and why, or say that nothing was."""
    skips = _skips(config)
    if not skips:
        terminalreporter.write_line("Nothing was skipped.")
        return
    refused = _refuses_skips()
    terminalreporter.section("skipped, which DPCROWD_NO_SKIP makes a failure" if refused else "skipped", red=refused)
    for test, reason in skips:
        terminalreporter.write_line(f"SKIPPED {test}: {reason}")
