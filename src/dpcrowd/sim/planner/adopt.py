"""What a plan takes from a network.toml: whatever the file states and nobody gave otherwise.

Whoever plans a network that exists asks what it reaches as it is, or with one number changed. A value that was given
besides the file is used, and a remark names it beside the one of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.adopted import same_setting, setting_text
from dpcrowd.sim.network_file import NetworkFile

__all__ = ["adopt_settings", "name_levels"]

_SPANS = ("window", "horizon")


def adopt_settings(
    file: NetworkFile, arguments: Mapping[str, Any], without: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of a plan with those of a file where they are None, and remarks on what was taken.

    without  names of settings that follow from something else, and are not taken from the file
    """
    explicit = {name: value for name, value in arguments.items() if value is not None}
    spans = [name for name in _SPANS if name in explicit]
    if any(file.settings.get(name) != explicit[name] for name in spans):
        without = {*without, "samples"}  # a number per window of another length
    stated = {name: value for name, value in file.settings.items() if name not in without}
    if file.shares is not None:
        stated["shares"] = file.shares
    merged, adopted, replaced = dict(arguments), [], []
    for name, value in stated.items():
        if name in _SPANS and spans:
            chosen = spans[0]
            if (chosen, explicit[chosen]) != (name, value):
                replaced.append((f"{chosen} {setting_text(explicit[chosen])}", f"{name} {setting_text(value)}"))
        elif name not in explicit:
            merged[name] = value
            adopted.append(name)
        elif not same_setting(explicit[name], value):
            replaced.append((f"{name} {setting_text(explicit[name])}", f"{name} {setting_text(value)}"))
    remarks = []
    if file.scheme not in (None, Relay.name):
        remarks.append(f"'{file.path}' has scheme {file.scheme!r}; what is predicted here is relay's.")
    if adopted:
        tables = "; the tables show the best samples of each row" if "samples" in adopted else ""
        remarks.append(f"taken from '{file.path}': {', '.join(adopted)}{tables}.")
    if replaced:
        here, there = (", ".join(texts) for texts in zip(*replaced, strict=True))
        remarks.append(f"this plan has {here}, but '{file.path}' has {there}.")
    return merged, remarks


def name_levels(level: object, file: NetworkFile) -> tuple[object, list[str]]:
    """Return levels with the names of a file's regions if they have none, and a remark if they are other regions."""
    names = list(file.regions)
    if not names or level is None:
        return level, []
    if isinstance(level, Mapping):
        same, number = set(level) == set(names), len(level)
    else:
        several = isinstance(level, Sequence | np.ndarray) and not isinstance(level, str)
        values = list(level) if several else [level]  # type: ignore[call-overload]
        same, number = len(values) == len(names), len(values)
        if same:
            level = dict(zip(names, values, strict=True))
    if same:
        return level, []
    return level, [f"this plan has other regions ({number}), but '{file.path}' has {', '.join(names)}."]
