"""GET /v1/history: many slots in one compact answer, as columns; GET /v1/neighbours: what neighbours estimated.

Rows repeat the name of a region and the time in each of their slots. A page that draws a thousand slots of a thousand
regions needs columns, and only of the regions that it draws.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dpcrowd.arrays import Floats
from dpcrowd.filters.total import total_vars
from dpcrowd.node.api.answers import JSON, answer
from dpcrowd.node.api.estimates import QueryRefused, check_names, chosen_regions, chosen_view, refusing, slot_number
from dpcrowd.node.api.page_views import MOST_SLOTS, History
from dpcrowd.node.api.rights import guarded
from dpcrowd.node.api.rows import VIEWS, View
from dpcrowd.node.api.service import Context, Process
from dpcrowd.node.release import SlotRelease
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.base import half_width

__all__ = ["DEFAULT_SLOTS", "history_of", "routes"]

DEFAULT_SLOTS = 1_000
_MOST_NUMBERS = 1_000_000
"""Upper bound on slots times regions of an answer; a longer one has fewer slots, the latest."""
_encode = msgspec.json.Encoder().encode


def routes(context: Context) -> list[BaseRoute]:
    """Return both endpoints."""

    async def history(request: Request) -> Response:
        query = request.query_params
        check_names(query, {"slots", "to", "region", "total_only", "view"})
        regions = [] if _flag(query, "total_only") else chosen_regions(context, query)
        view = chosen_view(query)
        # A view is computed of all regions, also where few of them are asked for.
        width = len(context.service.regions if regions is None or view is not None else regions)
        most = min(_slots(query), max(_MOST_NUMBERS // max(width, 1), 1))
        last = _last(context, query)
        if last is None:
            latest = await context.service.latest()
            last = 0 if latest is None else latest.slot
        releases = await context.service.estimates(max(last - most + 1, 0), last, None, most)
        names = tuple(context.service.regions) if regions is None else tuple(regions)
        process = context.service.process
        # In a thread: a large answer must not delay a slot.
        body = await run_in_threadpool(lambda: _encode(history_of(releases, names, view=view, process=process)))
        return Response(body, 200, {"cache-control": "no-store"}, JSON)

    async def neighbours(request: Request) -> Response:
        query = request.query_params
        check_names(query, {"slots", "region"})
        regions = chosen_regions(context, query)
        if regions is not None and len(regions) > 1:
            raise QueryRefused("region: more than one is given; allowed: one region, or none for the total.")
        return answer(context.service.neighbour_history(_slots(query), None if regions is None else regions[0]))

    return [
        Route("/v1/history", guarded(context, "read", refusing(history)), methods=["GET"]),
        Route("/v1/neighbours", guarded(context, "read", refusing(neighbours)), methods=["GET"]),
    ]


def history_of(
    releases: Sequence[SlotRelease],
    regions: Sequence[str],
    *,
    view: View | None = None,
    process: Process | None = None,
) -> History:
    """Return releases as columns; a region that a release does not have, of another revision, has no estimate.

    view     add this view of each release
    process  regions and their model, which says how far errors go together: those of releases with the same regions
    """
    wanted = tuple(regions)
    estimate, half = (np.full((len(wanted), len(releases)), np.nan) for _ in range(2))
    total = np.array([release.estimate.sum() for release in releases])
    for place, release in enumerate(releases):
        halves = half_width(release.variance, release.factor)
        if release.regions == wanted:
            estimate[:, place], half[:, place] = release.estimate, halves
        elif wanted:
            source, target = _matching(release.regions, wanted)
            estimate[target, place], half[target, place] = release.estimate[source], halves[source]
    return History(
        slots=[release.slot for release in releases],
        opens=[release.opens_ns / 1e9 for release in releases],
        sampled=[release.sampled for release in releases],
        epsilon=[float(from_nano(release.nano)) for release in releases],
        heard=[release.heard for release in releases],
        total=_rounded(total),
        total_half_width=_rounded(_total_halves(releases, process)),
        regions=list(wanted),
        estimate=[_rounded(row) for row in estimate],
        half_width=[_rounded(row) for row in half],
        **({} if view is None else {f"estimate_{view}": [_rounded(row) for row in _view_of(releases, wanted, view)]}),
    )


def _total_halves(releases: Sequence[SlotRelease], process: Process | None) -> Floats:
    """Return half of the total's interval in each slot; without a model of its regions, errors are independent."""
    halves: list[float] = []
    for names, group in groupby(releases, key=lambda release: release.regions):
        alike = list(group)
        model = process[1] if process is not None and process[0] == names else None
        variances = total_vars([one.variance for one in alike], [one.slot for one in alike], model)
        halves += [float(half_width(variance, one.factor)) for variance, one in zip(variances, alike, strict=True)]
    return np.array(halves)


def _view_of(releases: Sequence[SlotRelease], wanted: Sequence[str], name: View) -> Floats:
    """Return a view of releases, (regions, slots): those of one revision in one computation."""
    view, place = np.full((len(wanted), len(releases)), np.nan), 0
    for names, group in groupby(releases, key=lambda release: release.regions):
        alike = list(group)
        values = VIEWS[name](np.stack([one.estimate for one in alike]), np.stack([one.variance for one in alike]))
        source, target = _matching(names, wanted)
        view[target, place : place + len(alike)] = values.T[source]
        place += len(alike)
    return view


def _matching(names: Sequence[str], wanted: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return where the wanted regions are in a release, and their places among the wanted."""
    places = {name: place for place, name in enumerate(names)}
    pairs = [(places[name], target) for target, name in enumerate(wanted) if name in places]
    return [source for source, _ in pairs], [target for _, target in pairs]


def _rounded(numbers: Floats) -> list[float | None]:
    return [number if number == number else None for number in np.round(numbers, 3).tolist()]  # noqa: PLR0124 - NaN


def _slots(query: QueryParams) -> int:
    values = query.getlist("slots") or [str(DEFAULT_SLOTS)]
    if len(values) > 1 or not re.fullmatch(r"[0-9]{1,9}", values[0]) or not 1 <= int(values[0]) <= MOST_SLOTS:
        raise QueryRefused(f"slots: allowed, once: 1 to {MOST_SLOTS}.")
    return int(values[0])


def _last(context: Context, query: QueryParams) -> int | None:
    values = query.getlist("to")
    if not values:
        return None
    number = slot_number(context, "to", values[0]) if len(values) == 1 else None
    if number is None:
        raise QueryRefused("to: allowed, once: the number of a slot.")
    return number


def _flag(query: QueryParams, name: str) -> bool:
    values = query.getlist(name) or ["false"]
    if len(values) > 1 or values[0] not in ("true", "false"):
        raise QueryRefused(f"{name}: allowed, once: true or false.")
    return values[0] == "true"
