"""Where the project and its tests lie, for tests that read files of either."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
