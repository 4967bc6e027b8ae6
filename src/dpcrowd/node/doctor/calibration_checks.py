"""Checks of what a running server estimates: whose records it suspects, and whether its intervals are right.

Both follow from noisy values that were paid for. A node of an earlier version that says nothing of them is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped

__all__ = ["check_calibration", "check_suspects"]

_SUSPECTED, _CALIBRATION = "suspected", "calibration"
_CAUSES = (
    "its share in network.toml, or that of a region, is not what it counts, or has moved; or its feed has stopped, "
    "counts people twice or names the wrong regions"
)
_MODEL = (
    "Compare the shares in network.toml with what the organisations know, and fit the model again (dpcrowd fit "
    "--releases); then publish a revision. 'Calibration' in docs/metrics.md says in which order to look."
)


def check_suspects(status: dict[str, Any]) -> Iterator[Finding]:
    """Report servers whose records count less, from the answer of `/v1/network`; this one's are its operator's."""
    if not status.get("servers"):
        return  # the scheme does not pass records on
    suspects = {
        one["name"]: one["suspected_since"] for one in status["servers"] if one.get("suspected_since") is not None
    }
    for name, slot in suspects.items():
        if name == status.get("server"):
            text = f"records of this server disagree with those of the others, and count less since slot {slot}."
            yield problem(_SUSPECTED, text, f"Likely causes: {_CAUSES}. See 'The records of a server are wrong'.")
        else:
            text = f"records of '{name}' disagree with those of the others, and count less since slot {slot}."
            yield note(_SUSPECTED, f"{text} Tell its operator; likely causes: {_CAUSES}.")
    if len(suspects) > 1:
        text = f"{len(suspects)} servers are suspected at once: shares in network.toml are probably wrong."
        yield note(_SUSPECTED, f"{text} Compare all of them, and publish a revision or set share_width.")
    if not suspects:
        yield passed(_SUSPECTED, "no server's records disagree with those of the others.")


def check_calibration(quality: dict[str, Any]) -> Iterator[Finding]:
    """Report intervals that are too narrow, or a verdict with a caveat, from the answer of `/v1/quality`."""
    verdict, text = quality.get("verdict"), quality.get("text", "")
    if verdict == "narrow":
        yield problem(_CALIBRATION, text, _MODEL)
    elif quality.get("caveats") or verdict == "wide":
        yield note(_CALIBRATION, text)
    elif verdict == "calibrated":
        yield passed(_CALIBRATION, text)
    elif verdict is not None:
        yield skipped(_CALIBRATION, text)
