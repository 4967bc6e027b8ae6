"""A machine that is resumed twice from one snapshot: the copies must not add the same noise to different counts."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from privacy_support_image import GETPID
from project_support import TESTS

SCRIPT = TESTS / "support" / "privacy_support_image.py"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in GETPID,
    reason="a process that is copied with its process id needs Linux on x86-64 or ARM64",
)


def copies(module: str, name: str) -> tuple[list[float], list[float]]:
    """What two copies of one process draw with this noise."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # fork() copies one thread only
    command = [sys.executable, str(SCRIPT), module, name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    return first, second


@pytest.mark.slow
def test_two_copies_of_a_process_draw_different_noise() -> None:
    """A generator that seeds itself once repeats its draws here, and the difference of two releases is exact."""
    first, second = copies("dpcrowd.privacy.secure_noise", "SecureNoise")
    assert len(first) == len(second) == 20
    assert first != second


@pytest.mark.slow
def test_copies_with_opendp_repeat_each_other() -> None:
    """The hazard that docs/privacy.md names: were it gone, the warning about `sampler = "opendp"` could go, too."""
    first, second = copies("dpcrowd.privacy.opendp_noise", "OpenDPNoise")
    assert len(set(first)) > 15
    assert first == second
