"""GET /v1/estimates and /v1/estimates/latest: the releases of this server, in the format that the reader accepts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dpcrowd.errors import MissingExtra
from dpcrowd.node.api.answers import refusal
from dpcrowd.node.api.rights import guarded
from dpcrowd.node.api.rows import ENCODERS, VIEWS, View, select
from dpcrowd.node.api.service import Context
from dpcrowd.node.ingest.batch import LAST_NS, parse_time
from dpcrowd.node.release import SlotRelease

__all__ = [
    "DEFAULT_ROWS",
    "MOST_ROWS",
    "QueryRefused",
    "check_names",
    "chosen_regions",
    "chosen_view",
    "refusing",
    "routes",
    "slot_number",
]

DEFAULT_ROWS, MOST_ROWS = 100_000, 250_000
_NUMBER = re.compile(r"[0-9]+")
_NOT_SMOOTHED = (
    "smoothed: the scheme of this network keeps no records, so past slots cannot be estimated again; leave smoothed "
    "out for the values that were released, or run the network with the scheme relay."
)
_LOST_PLUS = re.compile(r"(?<=[0-9]) (?=[0-9]{2}:[0-9]{2}$)")


class QueryRefused(Exception):
    """A query that cannot be answered; the text does not quote it.

    reason  a word for programs
    """

    def __init__(self, text: str, reason: str = "query") -> None:
        super().__init__(text)
        self.reason = reason


def routes(context: Context) -> list[BaseRoute]:
    """Return both endpoints."""

    async def latest(request: Request) -> Response:
        check_names(request.query_params, {"region", "view"})
        regions, view = chosen_regions(context, request.query_params), chosen_view(request.query_params)
        release = await context.service.latest()
        return await _respond(request, [] if release is None else [release], {}, regions, view=view)

    async def many(request: Request) -> Response:
        query = request.query_params
        check_names(query, {"from", "to", "region", "limit", "smoothed", "measurements", "view"})
        view, smoothed, measurements = chosen_view(query), _flag(query, "smoothed"), _flag(query, "measurements")
        if measurements and not smoothed:
            raise QueryRefused("measurements: allowed with smoothed=true only, since late records change them.")
        first, last = _slot(context, query, "from"), _slot(context, query, "to")
        regions = chosen_regions(context, query)
        # Complete slots, and at least one: a page that ends inside a slot could not be continued.
        needed = regions if view is None else None  # a view may keep the total of all regions
        width = len(needed) if needed is not None else len(context.service.regions)
        most = max(_limit(query) // max(width, 1), 1)
        read = context.service.smoothed if smoothed else context.service.estimates
        slots = await read(first, last, needed, most + 1)
        if slots is None:
            raise QueryRefused(_NOT_SMOOTHED, "no-records")
        releases = list(slots)
        headers = {}
        if len(releases) > most:
            headers["link"] = f'<{_next_page(request, releases[most].slot)}>; rel="next"'
        chosen = None if view is None else regions
        return await _respond(request, releases[:most], headers, chosen, view=view, measurements=measurements)

    return [
        Route("/v1/estimates/latest", guarded(context, "read", refusing(latest)), methods=["GET"]),
        Route("/v1/estimates", guarded(context, "read", refusing(many)), methods=["GET"]),
    ]


def chosen_regions(context: Context, query: QueryParams) -> list[str] | None:
    """Return the regions that a query names, each once; None if it names none."""
    names = list(dict.fromkeys(query.getlist("region")))
    if not all(name in context.service.regions for name in names):
        raise QueryRefused("region: this region is unknown; allowed: the regions that /v1/network lists.")
    return names or None


def refusing(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Turn a `QueryRefused` of an endpoint into a refusal."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except QueryRefused as error:
            return refusal(400, error.reason, str(error))

    return answered


async def _respond(
    request: Request,
    slots: list[SlotRelease],
    headers: dict[str, str],
    regions: list[str] | None,
    *,
    view: View | None,
    measurements: bool = False,
) -> Response:
    """Answer with releases, of these regions alone if there are any.

    view          with this view beside them; None: with none
    measurements  with what the records of each slot say by themselves
    """
    kind = accepted(request.headers.get("accept", "*/*"))
    if kind is None:
        return refusal(406, "accept", f"this node has no such format; allowed in Accept: {', '.join(ENCODERS)}.")
    try:
        # In a thread: a large answer must not delay a slot.
        body = await run_in_threadpool(
            lambda: ENCODERS[kind](*select(slots, regions, view=view, measurements=measurements))
        )
    except MissingExtra as error:
        return refusal(406, "accept", str(error))
    return Response(body, 200, {"cache-control": "no-store", "vary": "Accept", **headers}, kind)


def accepted(header: str) -> str | None:
    """Return the format that a reader prefers; JSON if it accepts any; None if there is none that it accepts."""
    preferences: list[tuple[float, int, str]] = []
    for position, part in enumerate(header.lower().split(",")):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if re.fullmatch(r"q=[01](\.[0-9]{0,3})?", parameter):
                weight = float(parameter[2:])
        if weight > 0:
            preferences.append((-weight, position, name))
    for _, _, name in sorted(preferences):
        for kind in ENCODERS:
            if name in (kind, "*/*", kind.partition("/")[0] + "/*"):
                return kind
    return None


def check_names(query: QueryParams, names: set[str]) -> None:
    """Refuse a query with a parameter that the path does not have."""
    if not set(query) <= names:
        raise QueryRefused(f"the query has an unknown parameter; allowed: {', '.join(sorted(names)) or 'none'}.")


def chosen_view(query: QueryParams) -> View | None:
    """Return which view a query asks for beside the estimates; None if it asks for none."""
    values = query.getlist("view")
    if not values:
        return None
    name = next((name for name in VIEWS if values == [name]), None)
    if name is None:
        raise QueryRefused(f"view: allowed, once: {' or '.join(VIEWS)}.")
    return name


def slot_number(context: Context, name: str, text: str) -> int | None:
    """Return a slot that a query gives as a number; None if it is not a number; refuse slots after the year 2262."""
    if _NUMBER.fullmatch(text) is None:
        return None
    last = _last_slot(context)
    if len(text) > 18 or int(text) > last:
        raise QueryRefused(
            f"{name}: this slot is too large; allowed: slots up to {last}, which opens in the year 2262."
        )
    return int(text)


def _last_slot(context: Context) -> int:
    """Return the last slot whose end fits into 64 bits of nanoseconds."""
    return context.service.clock.slot_of(LAST_NS) - 1


def _slot(context: Context, query: QueryParams, name: str) -> int | None:
    values = query.getlist(name)
    if not values:
        return None
    number = slot_number(context, name, values[0]) if len(values) == 1 else None
    if number is not None:
        return number
    at_ns = parse_time(_LOST_PLUS.sub("+", values[0])) if len(values) == 1 else None  # '+' in a URL is a space
    if at_ns is None:
        raise QueryRefused(
            f"{name}: allowed, once: a slot, or an RFC 3339 time with an offset, which means the slot open then."
        )
    return min(context.service.clock.slot_of(at_ns), _last_slot(context))


def _limit(query: QueryParams) -> int:
    text = query.get("limit", str(DEFAULT_ROWS))
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_ROWS:
        raise QueryRefused(f"limit: allowed: 1 to {MOST_ROWS} rows.")
    return int(text)


def _flag(query: QueryParams, name: str) -> bool:
    """Return whether a query asks for the smoothed history, or for measurements."""
    values = query.getlist(name)
    if values not in ([], ["true"], ["false"]):
        raise QueryRefused(f"{name}: allowed, once: true or false.")
    return values == ["true"]


def _next_page(request: Request, first: int) -> str:
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "from"]
    return f"{request.url.path}?{urlencode([('from', str(first)), *others])}"
