"""Plans of servers that learn shares: whether they can, and whether they meet (`docs/shares.md`)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpcrowd.errors import counted
from dpcrowd.filters.persistence import are_partitioned
from dpcrowd.schemes.meetings import never_meet
from dpcrowd.schemes.prediction import servers_meet
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.network_file import NetworkFile
from dpcrowd.sim.planner.predict import Prediction, config_of, facts_of
from dpcrowd.sim.planner.request import PlanRequest

__all__ = ["planned_share_width", "with_meetings"]


def with_meetings(request: PlanRequest, file: NetworkFile | None, reach: Hops | None) -> PlanRequest:
    """Return the request, with meetings if its servers can learn the shares of a network file; or refuse it."""
    config_of(request)  # refuses what is wrong before anything is solved
    if file is None or not file.crowd.get("share_width") or request.users != "pinned":
        return request
    return replace(request, meetings=_why_not(request, reach) is None)


def _why_not(request: PlanRequest, reach: Hops | None) -> str | None:
    """Return why servers could not learn shares; None: they could."""
    shares = facts_of(request, "all").shares
    if reach != "all":
        distance = "as far as the plan says" if reach is None else counted(reach, "hop")
        return f"records travel {distance}, and learning needs all of them (reach all)"
    if config_of(request).observation != "binomial":
        return "learning needs observation binomial"
    if not are_partitioned(shares.reshape(len(shares), -1)).all():
        return "learning needs every user at one server, so shares that sum to 1"
    return None


def planned_share_width(
    file: NetworkFile | None, request: PlanRequest, prediction: Prediction
) -> tuple[float | None, list[str]]:
    """Return the share width of a network file if the planned servers can learn shares, and a remark if they cannot.

    Another remark says if they never meet, or if the file does not let them.
    """
    width = None if file is None else file.crowd.get("share_width")
    if file is None or not width:
        return None, []
    reason = _why_not(request, prediction.reach)
    if reason is not None:
        return None, [f"share_width {width:g} of '{file.path}' is left out: {reason}."]
    kept = f"share_width {width:g} and meetings" if file.meetings else f"share_width {width:g}"
    remarks = [
        f"also taken from '{file.path}': {kept}. Errors are predicted as if shares were known; until records have "
        "shown them, they are larger."
    ]
    if request.meetings and not file.meetings:
        remarks.append(
            f"servers learn shares, so their schedules let them meet in turn (meetings = true), which '{file.path}' "
            "does not state: without it, a share and a move of the crowd are harder to tell apart."
        )
    facts = facts_of(request, prediction.reach)
    if request.meetings and not servers_meet(facts, prediction.samples):
        remarks.append(never_meet(prediction.samples, request.length, partial(servers_meet, facts)))
    return float(width), remarks
