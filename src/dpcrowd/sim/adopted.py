"""What a simulation takes from the [scheme] of a network.toml beside shares and links, where nobody gave it otherwise.

    turnover     of the users, if they are pinned people whose shares stay
    groups       of small regions, if relay is simulated
    share_width  of relay, if every user is at one server and every server gets every record
    model        the process model, and with it whether servers learn how well it fits

These say what the crowd is like and what its servers know. Guarantee, process variance, samples, reach and lag are what
simulations vary; they come from the command, and `dpcrowd plan --graph` takes them from the file. Notes say what was
taken, what was left out and why, and where the simulation has other values than the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.models.file import read_model
from dpcrowd.models.model import Model
from dpcrowd.sim.network_file import NetworkFile

__all__ = [
    "NO_MODEL",
    "adopt_crowd_settings",
    "adopt_model",
    "differing_settings",
    "same_setting",
    "setting_text",
    "turnover_note",
]

NO_MODEL = "none"
"""In the place of a model's file: no model, whatever a network.toml says."""

_SHOWN = 5  # numbers of a list in a note
_NEEDS = {
    "turnover": "it is for pinned users, binomial counts and shares that stay",
    "groups": "it is for scheme 'relay', named without options of its own, and without a share width",
    "share_width": "it is for scheme 'relay' with reach all, binomial counts, the diagonal form and no groups, where "
    "every user is at one server",
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
        notes.insert(0, f"also taken from '{file.path}': {', '.join(taken)}.")
    return merged, notes


def adopt_model(
    model: Model | str | os.PathLike[str] | None, file: NetworkFile | None, instead: Mapping[str, object]
) -> tuple[Model | None, list[str]]:
    """Return the process model that was given, else that of a network.toml, and notes for the result.

    model    a model, its file, or "none" for no model
    instead  what may be given in place of a model, by name; if one of them is not None, the model of the file is not
             used
    """
    if not isinstance(model, Model | str | os.PathLike | None):
        raise BadInput(
            f"model was given as an object of type {type(model).__name__}; allowed: a model of dpcrowd.fit, the path of"
            f' its file, or "{NO_MODEL}".'
        )
    other = file if file is not None and file.model is not None else None
    if model is None:
        if other is None:
            return None, []
        names = [name for name, value in instead.items() if value is not None]
        if names:
            return None, [f"the {other.model_name} is not used, because of the given {' and '.join(names)}."]
        return other.read_model(), [f"the process model is that of '{other.path}'; model={NO_MODEL} leaves it out."]
    if not isinstance(model, Model) and os.fspath(model) == NO_MODEL:
        return None, [] if other is None else [f"the {other.model_name} is not used: model={NO_MODEL}."]
    fitted, name = (model, model.file) if isinstance(model, Model) else (read_model(model), os.fspath(model))
    fitted.check_texts()
    if other is None or (not isinstance(model, Model) and _same_file(other.model_path, Path(model))):
        return fitted, []
    return fitted, [f"the process model is '{name}', which was given, instead of the {other.model_name}."]


def differing_settings(file: NetworkFile, used: Mapping[str, Any]) -> list[str]:
    """Return a note that lists the settings of a file which differ from those that a simulation uses, with values.

    used  the settings of the simulation that there are, by the names of `NetworkFile.settings`
    """
    stated = dict(file.settings)
    if "reach" in stated and stated.get("slot", 0.0) >= 1.0:
        stated["hops_per_slot"] = "all"  # live servers forward records at once
    spans = ("window", "horizon")
    here, there = [], []
    for name, value in stated.items():
        other = next((span for span in spans if span in used), name) if name in spans else name
        if other in used and not (other == name and same_setting(used[other], value)):
            here.append(f"{other} {setting_text(used[other])}")
            there.append(f"{name} {setting_text(value)}")
    if not here:
        return []
    return [
        f"this simulation has {', '.join(here)}, but '{file.path}' has {', '.join(there)}. These are not taken from "
        "the file: give them, to simulate the network as it is."
    ]


def turnover_note(file: NetworkFile, turnover: float) -> list[str]:
    """Return a note if users of a simulation stay, and servers of the file's network would not know it."""
    if turnover == 1.0 or "turnover" in file.crowd:
        return []
    return [
        f"users stay: {turnover:g} of them are replaced per slot (turnover), and filters know it here. '{file.path}' "
        "states no turnover, so its servers take deviations from their shares for new ones in every slot, and their "
        "intervals may be too narrow: state it in [scheme]."
    ]


def _same_file(first: Path | None, second: Path) -> bool:
    return first is not None and first.resolve() == second.resolve()


def same_setting(first: object, second: object) -> bool:
    """Whether two settings are equal; a number and a list of one are."""
    return bool(np.atleast_1d(np.asarray(first)).tolist() == np.atleast_1d(np.asarray(second)).tolist())


def setting_text(value: object) -> str:
    """Return the value of a setting for a note; of a long list the first numbers."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ",".join([*(setting_text(entry) for entry in value[:_SHOWN]), *(["…"] if len(value) > _SHOWN else [])])
    return str(value)
