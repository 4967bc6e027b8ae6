"""A column with the total of all others, which a file of counts often has and which is not a region.

Read as one, it lets everybody count twice. Only the user knows whether it is a total, so a note says it, and nothing is
left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Truth

__all__ = ["total_note"]

_FEWEST = 3  # columns, of which two have people beside the total


def total_note(counts: Truth, regions: Sequence[str]) -> str | None:
    """Return a note on a column of counts (T, d) that equals the sum of all others in every row; None: there is none.

    >>> print(total_note(np.array([[1, 2, 3], [4, 0, 4]]), ["hall", "yard", "all"]))
    column 'all' equals the sum of all other columns in every row. ...
    """
    if counts.shape[1] < _FEWEST or int(counts.any(axis=0).sum()) < _FEWEST:
        return None
    matches = np.flatnonzero((2 * counts == counts.sum(axis=1, keepdims=True)).all(axis=0))
    if not len(matches):
        return None
    return (
        f"column '{regions[int(matches[0])]}' equals the sum of all other columns in every row. If it is their total, "
        "it is not a region, and everybody counts twice: remove it from the file, or name the other columns with "
        "--regions."
    )
