"""Checks of a running server: what it reports about itself, and which messages of its neighbours it has refused.

What it estimates is checked in `calibration_checks`.

The HTTP client is a layer above, so the caller passes it in: `ask(node, path)` returns the JSON answer of a node's API,
whatever its status.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from dpcrowd.errors import BadInput, DpcrowdError, counted
from dpcrowd.models.file import model_digest
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.doctor.calibration_checks import check_calibration, check_suspects
from dpcrowd.node.doctor.clock_checks import ACCEPT, compare_clocks
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.wire import MessageReason

__all__ = ["UNUSED", "Ask", "check_lost_folder", "check_running"]

Ask = Callable[[NodeConfig, str], Any]
"""A function ask(node, path) that returns the JSON answer of a node's API."""

_OTHER: MessageReason = "other-configuration"
_EARLY: MessageReason = "wrong-slot"
_LATE: MessageReason = "late"
_SOME = 5  # fewer late messages mean nothing: a restart causes a few
_QUIET_SLOTS = 3  # slots without a refusal after which the problem is over
_BUDGET = "/v1/budget"
_RESTART = "restart the node"  # in texts of storage that concern only the journal
UNUSED = "paid for and not used"
_RELOAD = "If the file has been renewed, 'dpcrowd node reload' makes the node load it."


def check_running(node: NodeConfig, network: NetworkConfig, ask: Ask) -> Iterator[Finding]:
    """Ask the running node; `network` is the revision that is valid now."""
    try:
        ready = _table(ask(node, "/readyz"))
        status = _table(ask(node, "/v1/network"))
        budget = _table(ask(node, _BUDGET))
        quality = _table(_ask_quality(node, ask))
    except BadInput as refusal:
        yield skipped("running", f"{refusal} Neighbours' files and clocks are not compared.")
        return
    except DpcrowdError as error:
        yield problem("running", f"a process uses the data folder, but {error}", "Look at its log; it may be starting.")
        return
    if status.get("server") != node.server:
        text = f"a different node, {status.get('server')!r}, answers at {node.listen.http}."
        yield problem("running", text, "Set another listen.http in node.toml.")
        return
    yield from _check_ready(ready, budget)
    yield from _check_digest(network, status)
    yield from _check_clocks(network, status)
    yield from check_suspects(status)
    yield from check_calibration(quality)


def _ask_quality(node: NodeConfig, ask: Ask) -> Any:
    """Return the calibration; None: the node runs an earlier version, which refuses the question."""
    try:
        return ask(node, "/v1/quality")
    except BadInput:
        return None


def check_lost_folder(node: NodeConfig, ask: Ask) -> Iterator[Finding]:
    """Report a node that answers although no process uses the data folder: it has lost its folder."""
    try:
        ready = ask(node, "/readyz")
    except DpcrowdError:
        return
    if not isinstance(ready, dict) or not isinstance(ready.get("problems"), list):
        return  # another program
    text = f"a node answers at {node.listen.http}, but no process uses the data folder '{node.data}'"
    text += "" if os.path.isdir(node.data) else ", which does not exist"
    fix = (
        "Put the folder back as it was, if it was moved. Otherwise stop that node, restore the last backup into an "
        "empty folder, start it and confirm the loss. If another node answers there, set another listen.http."
    )
    yield problem("running", f"{text}: it was deleted, moved or replaced while the node was running.", fix)
    for problem_text in ready["problems"]:
        yield note("running", f"the node reports: {problem_text}")


def _check_ready(ready: dict[str, Any], budget: dict[str, Any]) -> Iterator[Finding]:
    if budget.get("samples") is False and budget.get("text") not in ready.get(
        "problems", []
    ):  # otherwise reported below
        text = f"the node does not sample: {budget.get('text') or 'it gives no reason.'}"
        if budget.get("waits_for") == "operator":
            fix = "Find out who restored the folder, or what else uses this key; then run 'dpcrowd node confirm-loss'."
            yield problem("running", text, fix)
        else:
            yield note("running", text)
    for text in ready.get("problems", []):
        if _BUDGET not in text:  # reported above, with its reason
            fix = _RELOAD if "certificate" in text else "See 'Storage' in docs/failures.md."
            if "the clock went back" in text:
                fix = ACCEPT if "accept-clock" in text else "Wait until then, and keep the clock right (NTP)."
            elif _RESTART in text:
                fix = "Restart the node: there is nothing to restore and nothing to confirm."
            yield problem("running", f"the node is not ready: {text}", fix)
    for text in ready.get("warnings", []):
        if UNUSED in text:
            fix = "See 'own-absurd' in docs/failures.md; budget is spent for nothing until then."
            yield problem("running", text, fix)
        else:
            yield note("running", text)
    if ready.get("ready"):
        yield passed("running", "the node is ready.")


def _check_digest(network: NetworkConfig, status: dict[str, Any]) -> Iterator[Finding]:
    mine = digest(network).hex()
    if status.get("digest") != mine:
        text = f"the node runs with digest {status.get('digest')}, but network.toml has {mine}."
        yield note("digest", f"{text} 'dpcrowd node reload' or a restart loads the file.")
    different = []
    for one in status.get("neighbours", []):
        name = one["name"]
        if _OTHER not in one.get("refused", {}):
            continue
        text = f"messages of '{name}' were refused: its network.toml differs"
        if last := _over(network, one, _OTHER):
            yield note("digest", f"{text}, {last}.")
            continue
        different.append(name)
        fix = f"Compare with '{name}': this file has revision {network.revision}, {mine}."
        if network.fitted is not None:
            model = model_digest(network.fitted)[:32]
            fix = f"{fix} If the files are the same, the models differ: the one here has the digest {model}."
        yield problem("digest", f"{text}.", fix)
    if not different:
        yield passed("digest", f"no neighbour is refused for a different network.toml (digest {mine}).")


def _check_clocks(network: NetworkConfig, status: dict[str, Any]) -> Iterator[Finding]:
    """Compare clocks: refusals since the node's start tell which is ahead, the last message tells how far."""
    for one in status.get("neighbours", []):
        name = one["name"]
        findings = list(_check_refusals(network, one))
        yield from findings
        if any(finding.outcome == "problem" for finding in findings):
            continue
        if one.get("last_slot") is None or not one.get("last_heard"):
            text = f"no message of '{name}' was used in an exchange since the node started: its clock is not compared."
            yield skipped("clock", text)
            continue
        yield compare_clocks(name, network, one["last_slot"], _ns(one["last_heard"]))


def _check_refusals(network: NetworkConfig, neighbour: dict[str, Any]) -> Iterator[Finding]:
    """Report messages that came too early or too late; only a note if that is over."""
    name, refused = neighbour["name"], neighbour.get("refused", {})
    early, late = refused.get(_EARLY, 0), refused.get(_LATE, 0)
    compare = f"Compare clocks with '{name}', and use NTP at both servers."
    if early:
        whose = "its" if early == 1 else "their"
        text = (
            f"{counted(early, 'message')} of '{name}' came before {whose} slot: its clock is ahead of this one, or "
            "jumped"
        )
        last = _over(network, neighbour, _EARLY)
        fix = f"{compare} Counted since the node started."
        yield note("clock", f"{text}, {last}.") if last else problem("clock", f"{text}.", fix)
    if late >= _SOME:
        text = (
            f"{late} messages of '{name}' came after their slot was over: its clock is behind, or this one was "
            "ahead, or the connection is slow"
        )
        last = _over(network, neighbour, _LATE)
        fix = (
            f"{compare} If they agree and the number grows, write a revision with a longer deadline. Counted since the "
            "node started."
        )
        yield note("clock", f"{text}, {last}.") if last else problem("clock", f"{text}.", fix)


def _over(network: NetworkConfig, neighbour: dict[str, Any], reason: str) -> str:
    """Say since when a neighbour is no longer refused for a reason; empty if it still is, or if that is unknown.

    Its messages have to be used again: if nothing is refused, perhaps nothing arrives.
    """
    last, heard = neighbour.get("refused_last", {}).get(reason), neighbour.get("last_heard")
    if not last or not heard or _ns(heard) - _ns(last) < _QUIET_SLOTS * network.clock().length_ns:
        return ""
    return f"the last one at {last}; messages since then were used"


def _ns(time_text: str) -> int:
    return round(datetime.fromisoformat(time_text).timestamp() * 1e9)


def _table(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}
