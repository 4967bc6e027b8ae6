"""A plan as a piece of configuration: what `dpcrowd init --plan FILE` needs, in the sections of network.toml.

Equal plans give equal bytes. What a plan cannot know is named in a comment at the top: identity, time, addresses and
keys; and the links, if the planned network draws them anew in every slot.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dpcrowd.models.file import model_digest
from dpcrowd.models.season import SECOND
from dpcrowd.models.season import duration_text as length_text
from dpcrowd.sim.export import check_toml_path, refuse_failed_write
from dpcrowd.sim.planner.plan import NetworkPlan
from dpcrowd.sim.planner.population import planned_population
from dpcrowd.sim.planner.request import EQUAL
from dpcrowd.sim.planner.solve import duration_text

__all__ = ["has_groups", "missing_for_init", "toml_text", "write_plan"]


_TURNOVER = (
    "turnover: the part of a server's users who are replaced per slot. Give your own (--turnover) where you know it; 1 "
    "where the crowd is new in every slot."
)


def toml_text(plan: NetworkPlan, folder: str | os.PathLike[str] = ".") -> str:
    """Return the text of the file; the path of a process model is relative to `folder`, where the file will be."""
    request, guarantee = plan.request, plan.guarantee
    missing = ["[network] id, epoch, grace and deadline", "endpoint and keys of each [[server]]"]
    lines = [
        "# Written by `dpcrowd plan`: the part of a network.toml that a plan decides.",
        f"# Missing, because a plan does not know it: {'; '.join(missing)}.",
        *(
            f"# {remark}"
            for remark in missing_for_init(plan) or ["`dpcrowd init DIR --plan FILE` makes a network of it."]
        ),
    ]
    names = plan.server_names
    if names is None:
        names = tuple(f"server-{number + 1}" for number in range(plan.servers))
        lines.append("# Names of servers are placeholders.")
    if request.has_drawn_shares:
        lines.append(f"# Shares are placeholders, too: random numbers ({request.shares}). Give each server its own.")
    elif request.shares == EQUAL:
        lines.append("# Shares are equal parts, by default. Give each server its own where you know better.")
    if _may_stay(plan):
        lines.append(f"# {_TURNOVER}")
    process, remark = _process(plan, folder)
    lines += [] if remark is None else [f"# {remark}"]
    network: dict[str, Any] = {} if request.slot is None else {"slot": duration_text(request.slot)}
    network |= {
        "population": planned_population(request),
        "regions": list(request.levels.regions),
    }
    lines += _section("[network]", network)
    lines += _section(
        "[guarantee]",
        {
            "kind": guarantee.kind,
            "length": guarantee.length,
            "epsilon": f"{float(guarantee.epsilon):.9f}".rstrip("0").rstrip("."),
            "users": guarantee.users,
            "servers_per_slot": guarantee.servers_per_slot,
            "regions_per_slot": guarantee.regions_per_slot,
            "correlation": float(guarantee.correlation),
        },
    )
    lines += _section(
        "[scheme]",
        {
            "name": "relay",
            "samples": plan.samples,
            "reach": plan.reach,
            "lag": request.lag,
            **({"turnover": request.turnover} if _may_stay(plan) else {}),
            **({"groups": "auto"} if has_groups(plan) else {}),
            **({} if plan.share_width is None else {"share_width": plan.share_width}),
            **({"meetings": True} if request.meetings else {}),
            **process,
            "observation": plan.observation,
        },
    )
    lines += _section(
        "[plan]",
        {
            "error": _rounded(plan.error),
            "level": [region.level for region in plan.regions],
            "deviation": [_rounded(region.deviation) for region in plan.regions],
            **({"model_digest": model_digest(plan.model.fitted)} if plan.model and "model" in process else {}),
        },
    )
    for number, (name, share) in enumerate(zip(names, plan.shares, strict=True)):
        lines += _section("[[server]]", {"name": name, "share": _rounded_down(share)})
        if plan.shares_by_region is not None:
            by_region = zip(request.levels.regions, plan.shares_by_region[number], strict=True)
            pairs = ", ".join(f"{json.dumps(region)} = {_rounded_down(part)}" for region, part in by_region)
            lines.append(f"shares = {{ {pairs} }}".replace("\x7f", "\\u007f"))
    for source, target in plan.links or ():
        lines += _section("[[link]]", {"between": [names[source], names[target]]})
    return "\n".join(lines) + "\n"


def missing_for_init(plan: NetworkPlan) -> list[str]:
    """Return what `dpcrowd init --plan` needs and the file does not have, with what to do; empty if it has all."""
    remarks = []
    if plan.links is None:
        remarks.append(
            "The plan has no links, since the planned network draws them anew in every slot, which live servers do "
            "not: `dpcrowd init --plan` refuses it. Plan again with --static, a graph such as --graph ring, or links "
            "of your own (--graph FILE)."
        )
    if plan.request.slot is None:
        remarks.append(
            "The plan does not say how long a slot is: give --slot (such as 15m) to `dpcrowd plan`, or to `dpcrowd "
            "init --plan`."
        )
    return remarks


def write_plan(plan: NetworkPlan, path: str | Path) -> Path:
    """Write the file and return its path."""
    file = Path(path)
    check_toml_path(file, "a plan")
    with refuse_failed_write(file):
        file.write_text(toml_text(plan, file.absolute().parent), encoding="utf-8")
    return file


def _may_stay(plan: NetworkPlan) -> bool:
    """Whether users may stay at a server for several slots, and filters would know it."""
    return plan.guarantee.users == "pinned" and plan.observation == "binomial"


def has_groups(plan: NetworkPlan) -> bool:
    """Whether the network groups small regions: it does already, or it is recommended."""
    return plan.groups is not None and (plan.groups.in_use or plan.groups.recommended == "auto")


def _process(plan: NetworkPlan, folder: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None]:
    """Return the settings of the process, Q or a model, and a remark on a model that the file cannot name."""
    slot, model = plan.request.slot, plan.model
    process_var = {"process_var": [float(value) for value in plan.request.levels.process_var]}
    if model is None:
        return process_var | ({} if plan.learn is None else {"learn": plan.learn}), None
    length = model.fitted.slot
    if slot is not None and length is not None and length != round(slot * SECOND):
        return process_var, (
            f"The plan knows a process model of slots of {length_text(length)}, and has slots of "
            f"{duration_text(slot)}: fit it again on public counts or your own releases in such slots, and give it to "
            "the network, as [scheme] model in place of process_var."
        )
    if model.path is None:
        return process_var, (
            "The plan knows a process model that has no file: write it (dpcrowd.fit(..., out=FILE)), and give it to "
            "the network, as [scheme] model in place of process_var."
        )
    learn = {} if model.learn is None else {"learn": model.learn}
    return {"model": os.path.relpath(model.path, folder), **learn}, None


def _section(title: str, values: dict[str, Any]) -> list[str]:
    # A JSON string, number or list of these is also a TOML one, but for the character 127.
    entries = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, value in values.items()
    ]
    return ["", title, *entries]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _rounded_down(share: float) -> float:
    """Return a share with six decimals, rounded down: a sum of shares must not exceed 1 where they partition."""
    return max(int(share * 1e6) / 1e6, 1e-6)
