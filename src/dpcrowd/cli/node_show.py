"""How the commands of `dpcrowd node` print answers: as lines for people, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dpcrowd.errors import BadInput, counted, plain
from dpcrowd.models.printable import quoted

if TYPE_CHECKING:
    from dpcrowd.node.config import NetworkConfig
    from dpcrowd.node.doctor import Finding
    from dpcrowd.node.recording.replay import Replayed

__all__ = [
    "is_overdue",
    "show_budget",
    "show_findings",
    "show_peers",
    "show_proofs",
    "show_quality",
    "show_replay",
    "show_status",
]

_USUAL_SLOTS = 3  # by which a record is late when nothing is wrong: its slot's exchange, and a restart


def show_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print the doctor's report; return exit code 1 if there is a problem."""
    problems = sum(finding.outcome == "problem" for finding in findings)
    if as_json:
        click.echo(json.dumps({"passed": not problems, "findings": [asdict(one) for one in findings]}, indent=2))
        return 1 if problems else 0
    for one in findings:
        click.echo(f"doctor: {one.outcome.upper():<7} {plain(one.check)}: {plain(one.text)}")
        if one.fix:
            click.echo(f"        {'FIX':<7} {plain(one.fix)}")
    click.echo("doctor: PASSED" if not problems else f"doctor: {problems} problem{'s' if problems > 1 else ''}")
    return 1 if problems else 0


def show_replay(replayed: Replayed, *, as_json: bool) -> int:
    """Print whether a recording gave the same instructions again; return exit code 1 if it did not."""
    if as_json:
        click.echo(json.dumps({"same": replayed.difference is None, **asdict(replayed)}, indent=2))
    else:
        runs = f"{replayed.lives} run{'' if replayed.lives == 1 else 's'} of a node"
        click.echo(f"{replayed.steps} stimuli of {runs}, recorded by dpcrowd {', '.join(replayed.versions)}.")
        if replayed.ended:
            click.echo(f"The recording ends before the last run did: {plain(replayed.ended)}.")
        same = "The same instructions came out, bit for bit."
        click.echo(same if replayed.difference is None else f"DIFFERENT: {plain(str(replayed.difference))}")
    return 0 if replayed.difference is None else 1


def show_proofs(content: bytes, network: NetworkConfig, *, as_json: bool) -> int:
    """Check proofs of equivocation and print what they prove; return exit code 1 if one of them proves nothing."""
    import msgspec

    from dpcrowd.node.api.proofs import ProofsView, check_proof

    try:
        proofs = msgspec.json.decode(content, type=ProofsView).proofs
    except msgspec.MsgspecError as error:
        hint = "ask the node with a token that has the right 'admin', and give its answer as it came"
        raise BadInput(f"this is not an answer of /v1/proofs: {error}; {hint}.") from None
    keys = {server.name: server.keys for server in network.servers}
    rows = []
    for one in proofs:
        problem = ""
        try:
            if one.server not in keys:
                raise BadInput(f"network.toml has no server '{one.server}'.")
            check_proof(one, network.id, keys[one.server])
        except BadInput as error:
            problem = str(error)
        rows.append({"server": one.server, "slot": one.slot, "valid": not problem, "problem": problem})
        if not as_json:
            text = f"NOT PROVEN: {problem}" if problem else "PROVEN: signed two different records."
            click.echo(f"{plain(one.server)}, slot {one.slot}: {plain(text)}")
    if as_json:
        click.echo(json.dumps({"proofs": rows}, indent=2))
    elif not rows:
        click.echo("There are no proofs.")
    return 0 if all(row["valid"] for row in rows) else 1


def show_status(
    ready: dict[str, Any], network: dict[str, Any], budget: dict[str, Any], quality: dict[str, Any], *, as_json: bool
) -> None:
    """Print readiness, network, neighbours, budget and calibration in a few lines."""
    if as_json:
        answers = {"ready": ready, "network": network, "budget": budget, "quality": quality}
        click.echo(json.dumps(answers, indent=2))
        return
    rows = [
        ("server", f"{network['server']} of '{network['network']}', dpcrowd {network['version']}"),
        ("ready", "yes" if ready["ready"] else "no: " + " ".join(ready["problems"])),
        ("revision", f"{network['revision']}, digest {network['digest']}"),
        ("slot", f"{network['slot']}, of {network['slot_seconds']:g} s since {network['epoch']}"),
        *_scheme(network, budget),
        *_model(network),
        *_crowd(network),
        ("neighbours", _neighbours(network["neighbours"])),
        ("budget", _budget_line(budget)),
        *_unsampled(ready, budget),
        *_calibration(quality),
        *_joined(network),
        *_sent(network.get("messages_sent", {})),
    ]
    rows += _servers(network)
    rows += [("soon" if "certificate" in text else "warning", text) for text in ready.get("warnings", [])]
    if network.get("next_revision") is not None:
        revision = f"revision {network['next_revision']} from slot {network['next_revision_slot']}"
        rows.append(("next", f"{revision}, digest {network.get('next_digest', '?')}"))
    _print_rows(rows)


def _unsampled(ready: dict[str, Any], budget: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a line that says why the budget allows no sample, unless the node is not ready for the same reason."""
    text = "" if budget.get("samples", True) else budget.get("text", "")
    return [("samples", f"no: {text}")] if text and text not in " ".join(ready["problems"]) else []


def _scheme(network: dict[str, Any], budget: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a line on the scheme, with the numbers that were computed where network.toml does not state them."""
    name, reach = network.get("scheme", ""), network.get("reach")
    if not name or reach is None:
        return [("scheme", name)] if name else []
    links = "to every server" if reach == "all" else counted(reach, "link")
    samples = f"{counted(network['samples'], 'sample')} per {counted(budget['length'], 'slot')}"
    return [("scheme", f"{name}: {samples}; records travel {links}, and may be {counted(network['lag'], 'slot')} late")]


def _model(network: dict[str, Any]) -> list[tuple[str, str]]:
    """Return lines on the process model, with its source as what it is: an assertion, and whether servers learn."""
    data, source, learn = network.get("model_data"), network.get("model_source"), network.get("learn")
    rows = []
    if source is not None:
        assertion = network.get("model_assertion") or quoted(source)  # servers of earlier versions do not quote it
        text = f"fitted on '{data}'; why it costs no budget is asserted by the operators: {assertion}"
        rows.append(("model", text))
    if learn:
        what = "how large the process variance is" if source is None else "how well the model fits"
        rows.append(("learn", f"yes: servers learn from releases {what}"))
    elif source is not None and learn is not None:
        rows.append(("learn", "no: servers take the model as it is"))
    return rows


def _crowd(network: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a line on each setting that says what relay assumes of regions, users and shares."""
    groups, turnover, width = (network.get(name) for name in ("groups", "turnover", "share_width"))
    rows = []
    if groups is not None:
        rows.append(("groups", f"{groups}: {_sharing(network)}"))
    if turnover is not None:
        users = "everybody counts as new in every slot"
        users = users if turnover == 1.0 else "this part of a server's users is replaced per slot"
        rows.append(("turnover", f"{turnover:g}: {users}"))
    if width is not None:
        use = "public shares are right"
        if width:
            meeting = ", and each server samples together with others in turn" * bool(network.get("meetings"))
            use = f"public shares may be wrong by {width:.0%}; servers learn them{meeting}"
        rows.append(("share width", f"{width:g}: {use}"))
    return rows


def _sharing(network: dict[str, Any]) -> str:
    """Return which regions share one draw of noise; with a model, its correlation decides."""
    if network["groups"] != "auto":
        return "every region has its own noise"
    if network.get("model_source") is None:
        return "small regions share one draw of noise, where that is predicted to help"
    if network.get("region_correlation") is None:
        return "no regions are joined, since the model has no region_correlation; every region has its own noise"
    return (
        "regions that rise and fall together share one draw of noise, and records may have the sum of all regions, "
        "where that is predicted to help"
    )


def _neighbours(neighbours: Sequence[dict[str, Any]]) -> str:
    """Return how many neighbours are connected, and the others by name."""
    away = [
        one["name"] + (" never heard" if one["last_slot"] is None else f" silent since slot {one['last_slot']}")
        for one in neighbours
        if not one["connected"]
    ]
    count = f"{len(neighbours) - len(away)} of {len(neighbours)} connected"
    return f"{count}: {', '.join(away)}" if away else count


def _calibration(quality: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a line on the intervals, or nothing if the node has no verdict."""
    verdict, text = quality.get("verdict"), quality.get("text", "")
    if verdict is None:
        return []
    return [("calibration", f"unknown: {text}" if verdict == "unknown" else text)]


def _joined(network: dict[str, Any]) -> list[tuple[str, str]]:
    """Return lines that say whose word the estimate is, and whose states contradicted each other, when it joined."""
    names, slot, others = network.get("joined_from", []), network.get("joined_slot"), network.get("join_disagreement")
    rows = []
    if names and slot is not None:
        rows.append(("joined", f"the estimates from slot {slot + 1} on begin with the word of {' and '.join(names)}"))
    if others:
        rows.append(("join", f"contradicting states of {', '.join(others)}; compare what these servers release"))
    return rows


def _sent(sent: dict[str, int]) -> list[tuple[str, str]]:
    """Return a line on the messages that were sent, by kind."""
    names = {
        "data": "with a sample",
        "heartbeat": "heartbeats",
        "forward": "with records of others",
        "join": "for joining",
    }
    parts = [f"{number:,} {names.get(kind, kind)}" for kind, number in sent.items() if number]
    return [("messages", f"{', '.join(parts)} since the start")] if parts else []


def _servers(network: dict[str, Any]) -> list[tuple[str, str]]:
    """Return lines on other servers with which something is wrong, as their records show it."""
    rows = []
    for one in network.get("servers", []):
        if one["missing"]:
            rows.append(("missing", f"{one['name']}: its record of slot {one['overdue']} has not come"))
        elif is_overdue(one["overdue"], network["slot"]):
            late = f"it counts if it is at most {counted(network['lag'], 'slot')} late"
            rows.append(("overdue", f"{one['name']}: its record of slot {one['overdue']} has not come yet; {late}"))
        if one["suspected_since"] is not None:
            text = "its records count less, since they disagree with those of others"
            own = " (this server)" if one["name"] == network["server"] else ""
            rows.append(("suspected", f"{one['name']}{own}: from slot {one['suspected_since']} on {text}"))
        if one["equivocation"] is not None:
            rows.append(("two records", f"{one['name']}: signed two different ones for slot {one['equivocation']}"))
    return rows


def is_overdue(slot: int | None, now: int) -> bool:
    """Whether a record that is due since a slot is worth a word; None: nothing is due.

    now  the slot that is open: the one before it may still be in exchange
    """
    return slot is not None and now - slot > _USUAL_SLOTS


def show_budget(view: dict[str, Any], *, as_json: bool) -> None:
    """Print what is promised, what is spent and left, and when budget comes back."""
    if as_json:
        click.echo(json.dumps(view, indent=2))
        return
    rows = [("promise", view["guarantee"]), ("spent", _budget_line(view))]
    if view.get("blocked"):
        rows.append(("blocked", view.get("blocked_text") or f"ε={view['blocked']:g}"))
    if view.get("returns") is not None:
        rows.append(("returns", f"ε={view['returns']:g} at slot {view['returns_slot']}, {view['returns_at']}"))
    lost = f", and ε={view['total_blocked']:g} of confirmed losses blocked" if view.get("total_blocked") else ""
    least = "at least " if view.get("waits_for") == _OPERATOR else ""
    rows.append(("in all", f"{least}ε={view['total_spent']:g} since the ledger began{lost}"))
    rows.append(("samples", "yes" if view["samples"] else f"no: {view['text']}"))
    _print_rows(rows)


def show_peers(network: dict[str, Any], *, as_json: bool) -> None:
    """Print one line per neighbour."""
    if as_json:
        click.echo(json.dumps(network["neighbours"], indent=2))
        return
    click.echo(f"{'neighbour':<20}{'connected':<11}{'last slot':<11}{'last heard':<26}refused")
    for one in network["neighbours"]:
        refused = ", ".join(f"{reason} {count}" for reason, count in one["refused"].items()) or "-"
        slot = "-" if one["last_slot"] is None else str(one["last_slot"])
        time = "-" if one["last_heard"] is None else _to_milliseconds(one["last_heard"])
        click.echo(plain(f"{one['name']:<20}{_yes_or_no(one['connected']):<11}{slot:<11}{time:<26}{refused}"))


def show_quality(view: dict[str, Any], *, as_json: bool) -> None:
    """Print the verdict on the intervals, the values that it rests on, and one line per region that has any."""
    if as_json:
        click.echo(json.dumps(view, indent=2))
        return
    since = view.get("since_slot")
    counted_since = "" if since is None else f", counted since slot {since}"
    values = (
        f"{view['values']} of {view['needed']} needed, in the last {counted(view['window'], 'slot')}{counted_since}"
    )
    rows = [("verdict", view["verdict"]), ("because", view["text"]), ("values", values)]
    rows += [("caveats", ", ".join(view["caveats"]))] if view.get("caveats") else []
    _print_rows(rows)
    regions = [one for one in view.get("regions", []) if one["values"]]
    if regions:
        click.echo(f"{'region':<20}{'values':<10}{'inside':<10}mean square")
    for one in regions:
        click.echo(plain(f"{one['region']:<20}{one['values']:<10}{one['coverage']:<10.1%}{one['calibration']:.2f}"))


_OPERATOR = "operator"  # what a node waits for whose ledger has lost payments
_VISIBLE = 1e-6  # of the total epsilon: less is what equal parts of it leave over, which pays for nothing


def _budget_line(view: dict[str, Any]) -> str:
    span = f"{'the last' if view['kind'] == 'window' else 'a horizon of'} {counted(view['length'], 'slot')}"
    blocked = f", {view['blocked']:g} blocked" if view.get("blocked") else ""
    if view.get("waits_for") == _OPERATOR:
        here = f"this ledger has ε={view['spent']:g} of {view['epsilon']:g} in {span}{blocked}"
        return f"unknown until the loss is confirmed ('dpcrowd node confirm-loss'); {here}"
    remaining = view["remaining"] if view["remaining"] >= _VISIBLE * view["epsilon"] else 0.0
    return f"ε={view['spent']:g} of {view['epsilon']:g} in {span}{blocked}, {remaining:g} left"


def _print_rows(rows: list[tuple[str, str]]) -> None:
    for title, text in rows:
        click.echo(f"{title:<12}{plain(text)}")


def _to_milliseconds(time: str) -> str:
    """Return a time of the API with three digits after the point, so that a column of times is aligned."""
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction[:3]:0<3}Z" if time.endswith("Z") else time


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
