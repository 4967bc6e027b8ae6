"""Plans of servers that learn shares: whether they can, and whether they meet (`docs/shares.md`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpcrowd.errors import BadInput, counted
from dpcrowd.filters.persistence import are_partitioned
from dpcrowd.schemes.base import check_share_width
from dpcrowd.schemes.meetings import never_meet
from dpcrowd.schemes.prediction import servers_meet
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.data.shares import checked_share_width
from dpcrowd.sim.network_file import NetworkFile
from dpcrowd.sim.planner.predict import Prediction, config_of, facts_of
from dpcrowd.sim.planner.request import PlanRequest

__all__ = ["ShareWidth", "adopt_share_width", "planned_share_width", "with_meetings"]


@dataclass(frozen=True)
class ShareWidth:
    """The typical relative error of public shares, which servers learn if it is above 0.

    given  whether the caller has given it: it is refused where shares cannot be learned; that of a file is left out
    file   the network file of the plan, if there is one
    """

    value: float
    given: bool
    file: NetworkFile | None

    @property
    def of_file(self) -> float:
        """The width that the file states; 0: none."""
        return 0.0 if self.file is None else float(self.file.crowd.get("share_width") or 0.0)


def adopt_share_width(share_width: float | None, file: NetworkFile | None, arguments: dict[str, Any]) -> ShareWidth:
    """Return the share width that was given, else that of a file; servers that learn shares need every record."""
    width = ShareWidth(0.0 if share_width is None else checked_share_width(share_width), share_width is not None, file)
    if not width.given:
        width = replace(width, value=width.of_file)
    check_share_width(width.value)
    if width.value and arguments["reach"] is None:
        arguments["reach"] = "all"
    return width


def with_meetings(request: PlanRequest, width: ShareWidth, reach: Hops | None) -> PlanRequest:
    """Return the request, with meetings if its servers can learn shares and may have phases of their own; or refuse."""
    config_of(request)  # refuses what is wrong before anything is solved
    if not width.value:
        return request
    reason = _why_not(request, reach)
    if reason is not None and width.given:
        raise BadInput(f"share_width={width.value:g} cannot be planned: {reason}.")
    return replace(request, meetings=reason is None and request.users == "pinned")


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
    width: ShareWidth, request: PlanRequest, prediction: Prediction
) -> tuple[float | None, list[str]]:
    """Return the share width if the planned servers can learn shares, and a remark if they cannot.

    Others say what the file has instead, and if servers never meet, or the file does not let them.
    """
    file, remarks = width.file, []
    if file is not None and width.given and width.of_file != width.value:
        remarks.append(f"this plan has share_width {width.value:g}, but '{file.path}' has {width.of_file:g}.")
    if not width.value:
        return None, remarks
    reason = _why_not(request, prediction.reach)
    if reason is not None:
        assert file is not None, "one that was given is refused"
        return None, [f"share_width {width.value:g} of '{file.path}' is left out: {reason}."]
    unknown = "Errors are predicted as if shares were known; until records have shown them, they are larger."
    if file is None or width.given:
        about = f"servers assume that shares are wrong by about {100 * width.value:.3g}%, and learn them"
        remarks.append(f"{about}. {unknown}")
    else:
        kept = f"share_width {width.value:g} and meetings" if file.meetings else f"share_width {width.value:g}"
        remarks.append(f"also taken from '{file.path}': {kept}. {unknown}")
    if file is not None and file.crowd.get("groups") == "auto":
        remarks.append(f"groups of '{file.path}' are left out: they need shares that are known.")
    if request.meetings and file is not None and not file.meetings:
        remarks.append(
            f"servers learn shares, so their schedules let them meet in turn (meetings = true), which '{file.path}' "
            "does not state: without it, a share and a move of the crowd are harder to tell apart."
        )
    facts = facts_of(request, prediction.reach)
    if request.meetings and not servers_meet(facts, prediction.samples):
        remarks.append(never_meet(prediction.samples, request.length, partial(servers_meet, facts)))
    return width.value, remarks
