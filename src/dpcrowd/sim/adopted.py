"""What a simulation takes from the [scheme] of a network.toml beside shares and links, where nobody gave it otherwise.

    turnover     of the users, if they are pinned people whose shares stay
    groups       of small regions, if relay is simulated
    share_width  of relay, if every user is at one server and every server gets every record

These say what the crowd and its servers are like. Guarantee, process variance, samples, reach and lag are what
simulations vary; they come from the command, and `dpcrowd plan --graph` takes them from the file. Notes say what was
taken, and what was left out and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpcrowd.sim.network_file import NetworkFile

__all__ = ["adopt_crowd_settings"]

_NEEDS = {
    "turnover": "it is for pinned users, binomial counts and shares that stay",
    "groups": "it is for scheme 'relay', named without options of its own",
    "share_width": "it is for scheme 'relay' with reach all, where every user is at one server",
}


def adopt_crowd_settings(
    file: NetworkFile, settings: Mapping[str, Any], usable: Mapping[str, bool]
) -> tuple[dict[str, Any], list[str]]:
    """Return turnover, groups and share_width with those of a file where they are None, and notes for the result.

    usable  whether this simulation could use the setting
    """
    merged, taken, notes = dict(settings), [], []
    for name, value in file.crowd.items():
        if settings[name] is not None:
            continue
        if usable[name]:
            merged[name] = value
            taken.append(f"{name} {value}")
        else:
            notes.append(f"{name} {value} of '{file.path}' is not used here: {_NEEDS[name]}.")
    if taken:
        notes.insert(0, f"Also taken from '{file.path}': {', '.join(taken)}.")
    return merged, notes
