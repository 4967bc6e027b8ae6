"""The TOML file of tuned parameters: equal parameters give equal bytes, with comments for readers.

`dpcrowd.sim.tuned.read_tuned` reads it. Numbers are written so that they are read back to the last bit.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.sim.export import check_toml_path, refuse_failed_write
from dpcrowd.sim.tuned import OPTIONAL, SECTIONS, Tuned

__all__ = ["toml_text", "write_tuned"]

_WIDTH = 118
_COMMENTS = {
    "first": "tuned on slots `first` to `last` - 1 of `slots`",
    "epsilon": "privacy that it was tuned for: epsilon over a complete stream (finite) or any window of `length` slots",
    "seed": "tuning runs have seeds that `simulate` does not use by default",
    "are_before": "mean relative error over the tuning runs: with the parameters at the start, and with these",
    "objective": "what the search has minimised",
    "crps_before": "mean CRPS of estimates with their intervals, in parts of a region's mean count: before and after",
    "coverage_before": "share of the 95% intervals that contain the truth: before and after",
    "burn_in": "slots at the beginning of the span that were not scored",
    "exhausted_at": "median slot from which on servers had no budget for another sample",
    "exhausted_servers": "share of the servers whose budget was exhausted before the end of the span",
    "sha256": "digest of the counts that it was tuned on",
    "process_model": "process model that the filters knew: its file, source and span, and a digest of what it says",
    "in_sample_slots": "slots of those that were scored on which the process model was fitted",
}
_NO_LIKELIHOOD = "theta, xi, sample_fraction and rescue_theta have no likelihood and stay as they are."


def toml_text(tuned: Tuned) -> str:
    """Return the text of the file."""
    lines = ["# Parameters from `dpcrowd tune`; `dpcrowd simulate --tuning FILE` reads them.", "", "[tuned]"]
    for key in SECTIONS["tuned"]:
        value = getattr(tuned, "version" if key == "dpcrowd" else key)
        if key in OPTIONAL and (value is None or value == "" or (isinstance(value, float) and math.isnan(value))):
            continue  # not known
        if key in _COMMENTS:
            lines.append(f"# {_COMMENTS[key]}")
        lines += _entry(key, list(value) if isinstance(value, tuple) else value)
    lines += ["", "[model]", "# Q: the variance of a region's change in one slot, one number per region"]
    lines += _entry("process_var", tuned.model.process_var.tolist())
    transition = tuned.model.transition
    if transition.ndim == 2:
        lines.append("# A: column j says where the people of region j go; only --form matrix uses it")
    lines += _entry("transition", transition.tolist())
    lines += ["", "[tuning]"]
    if tuned.method == "likelihood":
        lines.append(f"# {_NO_LIKELIHOOD}")
    for key in SECTIONS["tuning"]:
        if key in tuned.tuning:
            value = tuned.tuning[key]
            lines += _entry(key, list(value) if isinstance(value, tuple) else value)
    return "\n".join(lines) + "\n"


def write_tuned(tuned: Tuned, path: str | Path) -> Path:
    """Write the file, completely or not at all, and return its path."""
    file = Path(path)
    check_toml_path(file, "parameters")
    partial = file.with_name(file.name + ".part")
    with refuse_failed_write(file):
        try:
            partial.write_text(toml_text(tuned), encoding="utf-8", newline="\n")
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
    return file


def _entry(key: str, value: Any) -> list[str]:
    """Return the lines of one key; a list that is too long for one line takes several."""
    line = f"{key} = {_value(value)}"
    if len(line) <= _WIDTH or not isinstance(value, list):
        return [line]
    items = [_value(item) for item in value]
    lines, row = [f"{key} = ["], "   "
    for item in items:
        if len(row) + len(item) + 2 > _WIDTH and row.strip():
            lines.append(row)
            row = "   "
        row += f" {item},"
    return [*lines, row, "]"]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        # The escapes of JSON are those of TOML, except for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | np.integer):
        return str(value).lower()
    return repr(float(value))
