"""How many examples hypothesis tries where a test needs another number than the profile's."""

from __future__ import annotations

import os

__all__ = ["examples"]

_FACTOR = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1


def examples(usual: int) -> int:
    """The usual number, or ten times as many with HYPOTHESIS_PROFILE=thorough."""
    return usual * _FACTOR
