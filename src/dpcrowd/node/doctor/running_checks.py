"""Checks of a running server: what it says of itself, and what it has refused of its neighbours.

The HTTP client is a layer above, so it is handed in, and the doctor's checks stay together: `ask(node, path)` gives the
JSON answer of a node's API, whatever its status.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.doctor.clock_checks import ACCEPT, compare_clocks
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped

__all__ = ["Ask", "check_deserted", "check_running"]

Ask = Callable[[NodeConfig, str], Any]

_OTHER = "other-configuration"  # these reasons are words of `dpcrowd.node.wire` and of the machine
_EARLY, _LATE = "wrong-slot", "late"
_SOME = 5  # late messages that are no sign of anything: a restart brings a few
_QUIET_SLOTS = 3  # without a refusal, after which it is over
_BUDGET = "/v1/budget"
_RESTART = "restart the node"  # in what storage says where the journal alone is concerned
_RELOAD = "If the file has been renewed, 'dpcrowd node reload' has the node take it."


def check_running(node: NodeConfig, network: NetworkConfig, ask: Ask) -> Iterator[Finding]:
    """network: the revision that is valid now."""
    try:
        ready = _table(ask(node, "/readyz"))
        status = _table(ask(node, "/v1/network"))
        budget = _table(ask(node, _BUDGET))
    except BadInput as refused:
        yield skipped("running", f"{refused} Neighbours' files and clocks are not compared.")
        return
    except DpcrowdError as error:
        yield problem("running", f"a process holds the folder, but {error}", "Look at its log; it may be starting.")
        return
    if status.get("server") != node.server:
        fix = "Set another listen.http: a different node answers there."
        yield problem("running", f"{status.get('server')!r} answers at {node.listen.http}.", fix)
        return
    yield from _check_ready(ready, budget)
    yield from _check_digest(network, status)
    yield from _check_clocks(network, status)


def check_deserted(node: NodeConfig, ask: Ask) -> Iterator[Finding]:
    """Nobody holds the data folder; if a node answers all the same, it has lost its folder. Nothing if none answers."""
    try:
        ready = ask(node, "/readyz")
    except DpcrowdError:
        return
    if not isinstance(ready, dict) or not isinstance(ready.get("problems"), list):
        return  # another program
    text = f"a node answers at {node.listen.http}, but no process holds the data folder '{node.data}'"
    text += "" if os.path.isdir(node.data) else ", which is not there"
    fix = (
        "Put the folder back as it was, if it was moved. Otherwise stop that node, restore the last backup into an "
        "empty folder, start it and confirm the loss. If another node answers there, set another listen.http."
    )
    yield problem("running", f"{text}: it was deleted, moved or replaced under the running node.", fix)
    for problem_text in ready["problems"]:
        yield note("running", f"the node says: {problem_text}")


def _check_ready(ready: dict[str, Any], budget: dict[str, Any]) -> Iterator[Finding]:
    if budget.get("samples") is False and budget.get("text") not in ready.get("problems", []):  # told below otherwise
        text = f"the node does not sample: {budget.get('text') or 'it does not say why.'}"
        if budget.get("waits_for") == "operator":
            fix = "Find out who restored the folder, or what else runs with this key; then 'dpcrowd node confirm-loss'."
            yield problem("running", text, fix)
        else:
            yield note("running", text)
    for text in ready.get("problems", []):
        if _BUDGET not in text:  # told above, with its reason
            fix = _RELOAD if "certificate" in text else "See 'Storage' on the page on failures."
            if "the clock went back" in text:
                fix = ACCEPT if "accept-clock" in text else "Wait until then, and keep the clock right (NTP)."
            elif _RESTART in text:
                fix = "Restart the node: there is nothing to restore and nothing to confirm."
            yield problem("running", f"the node is not ready: {text}", fix)
    for text in ready.get("warnings", []):
        yield note("running", text)
    if ready.get("ready"):
        yield passed("running", "the node is ready.")


def _check_digest(network: NetworkConfig, status: dict[str, Any]) -> Iterator[Finding]:
    mine = digest(network).hex()
    if status.get("digest") != mine:
        text = f"the node runs with digest {status.get('digest')}, network.toml has {mine}."
        yield note("digest", f"{text} 'dpcrowd node reload' or a restart takes the file.")
    others = []
    for one in status.get("neighbours", []):
        name = one["name"]
        if _OTHER not in one.get("refused", {}):
            continue
        text = f"messages of '{name}' were refused: its network.toml differs"
        if last := _over(network, one, _OTHER):
            yield note("digest", f"{text}, {last}.")
            continue
        others.append(name)
        yield problem(
            "digest", f"{text}.", f"Compare with '{name}': this file has revision {network.revision}, {mine}."
        )
    if not others:
        yield passed("digest", f"no neighbour is refused for another network.toml (digest {mine}).")


def _check_clocks(network: NetworkConfig, status: dict[str, Any]) -> Iterator[Finding]:
    """Refusals, counted since the start of the node, tell which of two clocks is ahead; the last message, how far."""
    for one in status.get("neighbours", []):
        name = one["name"]
        wrong = list(_check_refusals(network, one))
        yield from wrong
        if any(finding.outcome == "problem" for finding in wrong):
            continue
        if one.get("last_slot") is None or not one.get("last_heard"):
            text = f"no message of '{name}' was used in an exchange since the node started: its clock is not compared."
            yield skipped("clock", text)
            continue
        yield compare_clocks(name, network, one["last_slot"], _ns(one["last_heard"]))


def _check_refusals(network: NetworkConfig, neighbour: dict[str, Any]) -> Iterator[Finding]:
    """Messages that came too early or too late; a note if that has passed."""
    name, refused = neighbour["name"], neighbour.get("refused", {})
    early, late = refused.get(_EARLY, 0), refused.get(_LATE, 0)
    compare = f"Compare clocks with '{name}'; NTP at both."
    if early:
        text = f"{early} messages of '{name}' came before their slot: its clock is ahead of this one, or jumped"
        last = _over(network, neighbour, _EARLY)
        fix = f"{compare} Counted since the node started."
        yield note("clock", f"{text}, {last}.") if last else problem("clock", f"{text}.", fix)
    if late >= _SOME:
        text = (
            f"{late} messages of '{name}' came after their slot was over: its clock is behind, or this one was "
            "ahead, or the line is slow"
        )
        last = _over(network, neighbour, _LATE)
        fix = (
            f"{compare} If they agree, and the number grows, a revision with a longer deadline. Counted since the node "
            "started."
        )
        yield note("clock", f"{text}, {last}.") if last else problem("clock", f"{text}.", fix)


def _over(network: NetworkConfig, neighbour: dict[str, Any], reason: str) -> str:
    """Since when a neighbour is no longer refused for a reason, in words; empty if it is, or if that is not known.

    Its messages have to be used again: that nothing is refused may also mean that nothing comes.
    """
    last, heard = neighbour.get("refused_last", {}).get(reason), neighbour.get("last_heard")
    if not last or not heard or _ns(heard) - _ns(last) < _QUIET_SLOTS * network.clock().length_ns:
        return ""
    return f"the last one at {last}; what came since then was used"


def _ns(time_text: str) -> int:
    return round(datetime.fromisoformat(time_text).timestamp() * 1e9)


def _table(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}
