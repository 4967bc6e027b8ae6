"""Corrections of the paper that the schemes contain: one line per note, numbered as in docs/paper-notes.md."""

from __future__ import annotations

__all__ = ["CORRECTIONS"]

CORRECTIONS = (
    "The paper starts from the raw count, which is not private: here servers start without information, and the first "
    "sample is noisy and paid for.",
    "The paper sends a share of each slot, which leaks the number of users: here shares are public constants.",
    "The paper's accounting, one ledger per region, does not protect users who move: claims on many regions are judged "
    "under it and under a sound one.",
    "One ledger per server does not protect users who roam between servers: results say for which users they hold, and "
    "what a roaming user pays.",
    "The paper's shares sum to 25, so a user is at 25 servers at once: this is kept, with shares from U(0.05, 1), and "
    "labelled; figure 8 has a partition.",
    "Algorithm 2 counts a server's own release as a new measurement: here a slot without a sample adds none.",
    "Algorithm 3 does the same for regions that are not sampled, and sends them: here they add no information.",
    "The first posterior variance is printed upside down: here it follows from the first sample.",
    "Algorithm 1 does not divide the first prior by the share: here the filter does.",
    "The printed error analysis omits the neighbours' information: here both forms are compared with measured errors.",
    "Two variances are swapped in the text: no effect here.",
    "The indices of the set of servers that are received are confused: here it is the server and its neighbours.",
    "The reduction ratio of fixed sampling is printed as I/T instead of 1/I: here it is counted.",
)
"""The corrections in the order of the notes; reasons of claims refer to their numbers."""
