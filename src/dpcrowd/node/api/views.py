"""The answers of the API, typed; the OpenAPI document is generated from these classes.

Everything here is public, or noised and paid, or derived from such numbers. Of refused check-ins the API tells only
that some were refused in a slot, and why: their number would be a raw count.
"""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, defstruct

from dpcrowd.node.ingest.batch import ROW_REASONS, RowReason

__all__ = [
    "BudgetView",
    "Done",
    "ErrorBody",
    "ErrorDetail",
    "EstimateObject",
    "EstimateRow",
    "Health",
    "Level",
    "LogLevel",
    "NeighbourStatus",
    "NetworkStatus",
    "Readiness",
    "RefusedRow",
    "ServerStatus",
    "SlotRefusals",
    "Taken",
]

Level = Literal["debug", "info", "warning", "error"]

Verdict = Literal["calibrated", "narrow", "wide", "unknown"]
"""On the intervals of a node. Clients of earlier versions refuse another one: what limits it has a field of its own."""
Time = Annotated[str, Meta(description="RFC 3339 in UTC.", extra_json_schema={"format": "date-time"})]


class EstimateRow(NamedTuple):
    """The estimate of one region in one slot. Numbers are never clamped, and null as long as there is no estimate."""

    slot: int
    start: datetime
    region: str
    estimate: Annotated[float, Meta(description="Estimate for the complete population, not for this server's share.")]
    low: Annotated[float, Meta(description="Lower end of the 95% interval.")]
    high: Annotated[float, Meta(description="Upper end of the 95% interval.")]
    sampled: Annotated[bool, Meta(description="Whether this server itself sampled in the slot.")]


def _as_json(row: type[tuple[Any, ...]]) -> Any:
    """Return the type of a row's JSON object: the same fields, with a time as text and null for NaN."""
    fields = []
    for name, annotation in get_type_hints(row, include_extras=True).items():
        kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        json_kind: Any = {datetime: Time, float: float | None}.get(kind, kind)
        for note in notes:
            json_kind = Annotated[json_kind, note]
        fields.append((name, json_kind))
    return defstruct(row.__name__, fields, frozen=True, gc=False, namespace={"__doc__": row.__doc__})


EstimateObject = _as_json(EstimateRow)
"""An `EstimateRow` as JSON has it; generated, so that there is one row to maintain."""


class BudgetView(Struct, frozen=True, kw_only=True):
    """The privacy budget; amounts are epsilon."""

    guarantee: Annotated[str, Meta(description="The promise, in words.")]
    kind: Literal["window", "finite"]
    length: Annotated[int, Meta(description="Length of the window or horizon, in slots.")]
    epsilon: float
    spent: Annotated[float, Meta(description="Paid for samples in the current window, or so far in the horizon.")]
    blocked: Annotated[
        float,
        Meta(
            description="What counts against the budget as well, without a known payment: confirmed losses, and older "
            "payments while it is not certain that a clock which was ahead is correct again."
        ),
    ] = 0.0
    blocked_text: Annotated[str, Meta(description="Why budget is blocked and until when, or an empty text.")] = ""
    blocked_until: Annotated[
        Time | None,
        Meta(description="When it is no longer blocked; null: nothing is blocked, or only a new horizon ends it."),
    ] = None
    remaining: float
    returns: Annotated[
        float | None, Meta(description="How much comes back at returns_slot; null: nothing comes back.")
    ] = None
    returns_slot: int | None = None
    returns_at: Time | None = None
    total_spent: Annotated[
        float, Meta(description="Paid for samples since the ledger began, over all networks that share it.")
    ]
    total_blocked: Annotated[
        float, Meta(description="Confirmed losses since the ledger began, over all networks that share it.")
    ] = 0.0
    samples: Annotated[
        bool,
        Meta(
            description="Whether the node may sample now; also true while a window is used up by the schedule's own "
            "samples and the next one is not due."
        ),
    ]
    waits_for: Annotated[
        Literal["vouching", "operator", "budget"] | None,
        Meta(
            description="What it waits for if it may not sample: a neighbour that vouches, an operator who confirms a "
            "loss, or budget. Null also if it waits for storage, or for the first slot of the network; see the text."
        ),
    ] = None
    text: Annotated[str, Meta(description="Why the node may not sample, or an empty text.")] = ""


class NeighbourStatus(Struct, frozen=True, kw_only=True):
    """A one-hop neighbour as this node sees it."""

    name: str
    connected: bool
    last_slot: Annotated[int | None, Meta(description="Slot of its last message that was used.")] = None
    last_heard: Time | None = None
    refused: Annotated[dict[str, int], Meta(description="Number of its messages that were not used, by reason.")] = {}
    refused_last: Annotated[dict[str, Time], Meta(description="When the last of them arrived, by reason.")] = {}
    records_received: Annotated[
        int,
        Meta(description="Number of records, of any server, that it was the first to bring and that count."),
    ] = 0
    records_forwarded: Annotated[
        int, Meta(description="Number of records that were sent to it, while it could be reached.")
    ] = 0
    records_late: Annotated[
        int, Meta(description="Number of records that it brought after their slot was final; they are not used.")
    ] = 0


class ServerStatus(Struct, frozen=True, kw_only=True):
    """A server of the network, neighbour or not, as its records show it. Numbers count since the start of this node."""

    name: str
    last_record: Annotated[
        int | None, Meta(description="Slot of its last record that this node has; null: none of the last `lag` slots.")
    ] = None
    overdue: Annotated[
        int | None,
        Meta(
            description="Slot in which it should have sampled next, by the public schedule, and of which no record has "
            "arrived; null: nothing is overdue."
        ),
    ] = None
    missing: Annotated[
        bool,
        Meta(description="Whether that record is overdue by more than `lag` slots, so that it would come too late."),
    ] = False
    suspected_since: Annotated[
        int | None,
        Meta(
            description="Slot since which its records count less here, because they have disagreed with those of the "
            "others; learned from slots that are final, and null if it is not suspected."
        ),
    ] = None
    equivocation: Annotated[
        int | None,
        Meta(
            description="Last slot for which it has signed two different records, neither of which counts; null: none "
            "of the last `lag` slots is known. /v1/proofs has the records."
        ),
    ] = None
    records: Annotated[int, Meta(description="Number of its records that were accepted and count.")] = 0
    records_late: Annotated[int, Meta(description="Number of its records that came after their slot was final.")] = 0
    records_refused: Annotated[
        dict[str, int],
        Meta(description="Number of records that were refused and for which it is at fault, by reason."),
    ] = {}


class SlotRefusals(Struct, frozen=True, kw_only=True):
    """The reasons for which check-ins were refused in a slot; their number is not counted."""

    slot: int
    reasons: list[str]


class NetworkStatus(Struct, frozen=True, kw_only=True):
    """The network and this node's place in it."""

    network: str
    server: str
    version: str
    revision: int
    digest: Annotated[str, Meta(description="Digest of the configuration that is in force; the same at all servers.")]
    next_revision: int | None = None
    next_revision_slot: int | None = None
    next_digest: Annotated[str | None, Meta(description="Digest of the next revision; the same at all servers.")] = None
    epoch: Time
    slot_seconds: float
    grace_seconds: Annotated[
        float, Meta(description="For how many seconds after the end of a slot its check-ins are taken.")
    ]
    slot: Annotated[int, Meta(description="The slot that is open now.")]
    regions: list[str]
    neighbours: list[NeighbourStatus]
    refused_messages: Annotated[
        dict[str, int], Meta(description="Number of messages that were not used, by reason.")
    ] = {}
    refused_checkins: Annotated[
        list[SlotRefusals], Meta(description="Reasons in the last slots; only for tokens with the right 'admin'.")
    ] = []
    scheme: Annotated[str, Meta(description="Name of the scheme that the revision in force runs.")] = ""
    lag: Annotated[
        int | None,
        Meta(description="By how many slots a record may be late; null: the scheme does not pass records on."),
    ] = None
    samples: Annotated[
        int | None,
        Meta(
            description="Samples of every server per window or horizon, as network.toml says or as computed from it; "
            "null: the scheme does not pass records on."
        ),
    ] = None
    reach: Annotated[
        int | Literal["all"] | None,
        Meta(
            description="How many links a record travels, as network.toml says or as computed from it; null: the "
            "scheme does not pass records on."
        ),
    ] = None
    groups: Annotated[
        Literal["auto", "off"] | None,
        Meta(description="Whether small regions share one draw, as in force with relay; null: another scheme."),
    ] = None
    turnover: Annotated[
        float | None,
        Meta(
            description="Part of a server's users replaced per slot, as in force with relay (1: all of them); with "
            "other schemes as network.toml states it, or null."
        ),
    ] = None
    share_width: Annotated[
        float | None,
        Meta(
            description="How wrong public shares may be, as in force with relay (0: they are right); null: another "
            "scheme."
        ),
    ] = None
    meetings: Annotated[
        bool | None,
        Meta(description="Whether servers meet in turn, as in force with relay; null: another scheme."),
    ] = None
    model_data: Annotated[
        str | None,
        Meta(description="What the process model that all servers know was fitted on; null: they know none."),
    ] = None
    model_source: Annotated[
        str | None,
        Meta(
            description="Why that model costs no privacy budget: the assertion of the operators, which no server can "
            "check; null: there is no model."
        ),
    ] = None
    model_assertion: Annotated[
        str | None,
        Meta(
            description="The same as the promise quotes it: in quotation marks, escaped, and followed by the sources "
            "of earlier models of which that model keeps a part; null: there is no model."
        ),
    ] = None
    learn: Annotated[
        bool,
        Meta(
            description="Whether servers learn from releases how well their model fits, or without one how large "
            "`process_var` is, as `learn` of network.toml says or by default (with a model); false with the matrix "
            "form, which cannot."
        ),
    ] = False
    region_correlation: Annotated[
        float | None,
        Meta(
            description="Of the deviations of two regions from that model. With `groups` auto and a model, regions are "
            "joined, and records may have the sum of all regions, only if the model says it; null: it does not, or "
            "there is no model."
        ),
    ] = None
    servers: Annotated[
        list[ServerStatus],
        Meta(
            description="All servers of the network, this one included; empty if the scheme does not pass records on."
        ),
    ] = []
    messages_sent: Annotated[
        dict[str, int],
        Meta(
            description="Number of messages that were sent to neighbours since the start: `data` with a sample of this "
            "server, `heartbeat` without one, `forward` with records of others, `join` when a server joins late."
        ),
    ] = {}
    joined_from: Annotated[
        list[str],
        Meta(
            description="Neighbours whose word the estimate began with, because this node had no records of its own "
            "from before; empty: it began with none."
        ),
    ] = []
    joined_slot: Annotated[int | None, Meta(description="Slot of the state that they have sent.")] = None
    join_disagreement: Annotated[
        list[str],
        Meta(
            description="Neighbours whose states contradicted each other, or the one that was taken, when this node "
            "asked for them last; empty: none."
        ),
    ] = []


class RegionQuality(Struct, frozen=True, kw_only=True):
    """The running calibration of one region."""

    region: str
    values: Annotated[int, Meta(description="Number of innovations of this region by itself.")]
    calibration: float | None = None
    coverage: float | None = None
    narrow: Annotated[
        bool,
        Meta(
            description="Whether its own values are evidence that its intervals are too narrow. Where users stay, that "
            "is judged over more slots than `values` and `coverage` are of."
        ),
    ] = False


class LearnedShare(Struct, frozen=True, kw_only=True):
    """What the records of all servers say of one server's share in one region. It follows from noisy values alone."""

    server: str
    region: str
    share: float
    deviation: Annotated[float, Meta(description="Standard deviation of its error.")]
    slot: Annotated[
        int | None,
        Meta(
            description="As of which slot: the last one that is final, `lag` slots back, since records of later ones "
            "may still come; the estimates of later slots use what later records say, too. null: none is final yet."
        ),
    ] = None


class QualityView(Struct, frozen=True, kw_only=True):
    """The running calibration: whether the intervals of this server are as wide as they should be.

    Every record of another server is compared with what this server had expected without it, in units of the standard
    deviation that it had claimed. Only noisy values that were paid for enter.
    """

    verdict: Annotated[
        Verdict,
        Meta(
            description="`narrow`: intervals are too narrow, `wide`: far too wide, `unknown`: too few records to say, "
            "or servers with a considerable part of the shares are suspected. "
            "`narrow` comes before there are `needed` values if so few are inside that chance does not explain it, or "
            "if fewer than 90% are and all other servers are suspected."
        ),
    ]
    text: Annotated[str, Meta(description="The same as a sentence.")]
    caveats: Annotated[
        list[str],
        Meta(
            description="What limits the verdict. `far-off`: it is `calibrated`, since most intervals are about right, "
            "but `calibration` is above 1.6, so that some values were far off. "
            "`suspected`: records of servers with a tenth of the shares or more are left out; the verdict is then "
            "`narrow` or `unknown`. `regions`: values of single regions show that intervals are too narrow there; "
            "`text` names them. There may be others in later versions."
        ),
    ] = []
    suspected: Annotated[
        list[str],
        Meta(description="Servers whose records are left out, since they disagree with those of the others."),
    ] = []
    suspected_share: Annotated[
        float, Meta(description="Their part of all public shares, in the region where it is largest.")
    ] = 0.0
    coverage: Annotated[
        float | None,
        Meta(description="Share of innovations within 1.96 standard deviations; about 0.95 if all is well."),
    ] = None
    calibration: Annotated[
        float | None,
        Meta(description="Mean square of the normalised innovations, each at most 10; about 1 if all is well."),
    ] = None
    values: Annotated[
        int, Meta(description="Number of innovations: one per record and region, or sum of several regions.")
    ] = 0
    sums: Annotated[
        int,
        Meta(
            description="How many of them are of the sum of several regions (`groups`). They count above, and in none "
            "of `regions`: nobody knows which region such a value is about."
        ),
    ] = 0
    records: Annotated[int, Meta(description="Number of records, or messages, of other servers.")] = 0
    slots: Annotated[int, Meta(description="Number of slots in which any of them was used.")] = 0
    window: Annotated[
        int,
        Meta(
            description="Number of last slots that are looked at: 100, and where these hold fewer than `needed` values "
            "as many as it takes to hold them, up to 10,000. Single regions (caveat `regions`) are followed for longer "
            "where users stay."
        ),
    ]
    needed: Annotated[
        int,
        Meta(
            description="Number of values that a verdict needs, unless the intervals are evidently too narrow: 200, "
            "and more where users stay, since successive values of one server are then alike."
        ),
    ] = 200
    verdict_slot: Annotated[
        int | None,
        Meta(
            description="About the slot at which there will be as many, if they come as fast as so far; null: there "
            "are, there is none at all, they come too rarely for the longest window, or all other servers are "
            "suspected. `text` says which."
        ),
    ] = None
    since_slot: Annotated[
        int | None,
        Meta(
            description="First slot that was counted: counting begins anew when the process starts, a revision takes "
            "over, or slots begin again; null: none yet."
        ),
    ] = None
    regions: list[RegionQuality] = []
    learned_shares: Annotated[
        list[LearnedShare],
        Meta(description="The shares that this server has learned from records; empty unless it learns them."),
    ] = []


def _describe_row_reasons() -> str:
    """Return what the reasons of rows mean; neighbours in the list with the same meaning share it."""
    parts = []
    for meaning, reasons in groupby(ROW_REASONS, key=lambda reason: ROW_REASONS[reason].description):
        parts.append(", ".join(f"`{reason}`" for reason in reasons) + f": {meaning}")
    return "; ".join(parts) + "."


class RefusedRow(Struct, frozen=True):
    """A row that was not taken."""

    row: Annotated[int, Meta(description="Its number in the body, counted from 0.")]
    reason: Annotated[RowReason, Meta(description=_describe_row_reasons())]


class Taken(Struct, frozen=True, omit_defaults=True):
    """The rows that were taken are on disk."""

    taken: bool
    accepted: Annotated[int | None, Meta(description="Number of rows that were taken.")] = None
    refused: Annotated[
        list[RefusedRow] | None, Meta(description="Rows that were not taken, at most the first 1,000 (status 207).")
    ] = None
    refused_count: Annotated[int | None, Meta(description="Number of rows that were not taken.")] = None
    seconds_left: Annotated[
        float | None, Meta(description="Seconds until the next slot opens; only for an empty list of check-ins.")
    ] = None


class Health(Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(Struct, frozen=True, omit_defaults=True):
    """Whether the node can do all of its work."""

    ready: bool
    problems: list[str]
    warnings: Annotated[
        list[str],
        Meta(
            description="What an operator should look at although the node works: certificates that expire within 30 "
            "days, and, with `ingest.needs_feed`, since which slot no feed has sent anything."
        ),
    ] = []


class LogLevel(Struct, frozen=True, forbid_unknown_fields=True):
    """The level from which on messages are logged."""

    level: Level


class Done(Struct, frozen=True):
    """The result of an operator's command, as a sentence."""

    text: str


class ErrorDetail(Struct, frozen=True, omit_defaults=True):
    """Why a request was refused; the request is not quoted."""

    reason: Annotated[str, Meta(description="A word for programs.")]
    text: Annotated[str, Meta(description="A sentence for people.")]
    rows: Annotated[
        list[int] | None,
        Meta(description="Numbers of the rows, counted from 0, that were not taken; at most the first 1,000."),
    ] = None
    refused: Annotated[
        list[RefusedRow] | None, Meta(description="The same rows with a reason for each; at most the first 1,000.")
    ] = None
    refused_count: Annotated[int | None, Meta(description="Number of rows that were not taken.")] = None


class ErrorBody(Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: ErrorDetail
