"""What is said where servers learn shares, and some of them never sample together with the others.

Only records of one slot show how servers divide a crowd, whatever its size is (`sampling.schedule.all_meet`). Which
numbers of samples let all servers meet depends on their phases, so it is tried and not stated as a rule.
"""

from __future__ import annotations

from collections.abc import Callable

from dpcrowd.errors import counted

__all__ = ["nearest_that_meets", "never_meet"]

_FARTHEST = 200
"""How far from the given number others are looked for; each takes a look at every server in every slot of a window."""


def never_meet(samples: int, length: int, meet: Callable[[int], bool]) -> str:
    """Return that servers with this number of samples never meet, and the nearest number with which all do.

    meet  whether all servers meet with a number of samples
    """
    nearest = nearest_that_meets(samples, length, meet)
    if nearest is None:
        remedy = f"No number of samples near {samples} lets all servers meet."
    else:
        every_slot = ", one in every slot" if nearest == length else ""
        remedy = f"The nearest number with which all servers meet is {nearest}{every_slot}."
    return (
        f"with {counted(samples, 'sample')} in {counted(length, 'slot')} some servers never sample together with the "
        "others: if their public shares are wrong, that cannot be told from moves of the crowd, and intervals may be "
        f"too narrow. {remedy}"
    )


def nearest_that_meets(samples: int, length: int, meet: Callable[[int], bool]) -> int | None:
    """Return the nearest other number of samples, up to one per slot, with which all servers meet; None: none is near.

    >>> nearest_that_meets(7, 40, lambda number: number in (3, 12))
    3
    """
    for distance in range(1, min(max(samples, length - samples), _FARTHEST) + 1):
        for number in (samples + distance, samples - distance):
            if 1 <= number <= length and meet(number):
                return number
    return None
