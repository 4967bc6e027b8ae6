"""What the API answers with, typed; the OpenAPI document is made from these classes.

Everything here is public, or noised and paid, or derived from such numbers. Of refused check-ins it can only be said
that some were refused in a slot, and why: their number would be a raw count.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = [
    "BudgetView",
    "Done",
    "ErrorBody",
    "ErrorDetail",
    "EstimateRow",
    "Health",
    "Level",
    "LogLevel",
    "NeighbourStatus",
    "NetworkStatus",
    "Readiness",
    "RefusedRow",
    "SlotRefusals",
    "Taken",
]

Level = Literal["debug", "info", "warning", "error"]
Time = Annotated[str, Meta(description="RFC 3339 in UTC.", extra_json_schema={"format": "date-time"})]


class EstimateRow(Struct, frozen=True, gc=False):
    """One region in one slot. Numbers are never clamped, and null as long as nothing is known."""

    slot: int
    start: Time
    region: str
    estimate: Annotated[float | None, Meta(description="Of the whole population, not of this server's share.")]
    low: Annotated[float | None, Meta(description="Lower end of the 95% interval.")]
    high: float | None
    sampled: Annotated[bool, Meta(description="Whether this server itself sampled in the slot.")]


class BudgetView(Struct, frozen=True, kw_only=True):
    """The privacy budget; amounts are epsilon."""

    guarantee: Annotated[str, Meta(description="What is promised, in words.")]
    kind: Literal["window", "finite"]
    length: Annotated[int, Meta(description="Slots of the window, or of the horizon.")]
    epsilon: float
    spent: Annotated[float, Meta(description="Paid for samples in the current window, or so far in the horizon.")]
    blocked: Annotated[
        float,
        Meta(
            description="Counts against the budget as well, although nobody knows of a payment for it: losses that "
            "were confirmed, and older payments while it is not known whether a clock that was set ahead came back."
        ),
    ] = 0.0
    blocked_text: Annotated[str, Meta(description="Why something is blocked and until when, or an empty text.")] = ""
    blocked_until: Annotated[
        Time | None,
        Meta(description="When nothing of that is blocked any more; null: nothing is, or only a new horizon ends it."),
    ] = None
    remaining: float
    returns: Annotated[float | None, Meta(description="How much comes back at returns_slot; null: nothing ever.")] = (
        None
    )
    returns_slot: int | None = None
    returns_at: Time | None = None
    total_spent: Annotated[
        float, Meta(description="Paid for samples since the ledger began, over all networks that share it.")
    ]
    total_blocked: Annotated[
        float, Meta(description="Losses that were confirmed since the ledger began, over all networks that share it.")
    ] = 0.0
    samples: Annotated[bool, Meta(description="Whether the node may sample at present.")]
    waits_for: Annotated[
        Literal["vouching", "operator", "budget"] | None,
        Meta(
            description="If not: for a neighbour to vouch, for the operator to confirm a loss, or for budget. Null, "
            "too, if it waits for storage that works, or for the network's first slot; the text says so."
        ),
    ] = None
    text: Annotated[str, Meta(description="Why it may not, or an empty text.")] = ""


class NeighbourStatus(Struct, frozen=True, kw_only=True):
    """A one-hop neighbour as this node sees it."""

    name: str
    connected: bool
    last_slot: Annotated[int | None, Meta(description="The last slot of which a message of it was used.")] = None
    last_heard: Time | None = None
    refused: Annotated[dict[str, int], Meta(description="Messages of it that were not used, by reason.")] = {}
    refused_last: Annotated[dict[str, Time], Meta(description="When the last of them came, by reason.")] = {}


class SlotRefusals(Struct, frozen=True, kw_only=True):
    """Check-ins were refused in a slot for these reasons; how many is not counted."""

    slot: int
    reasons: list[str]


class NetworkStatus(Struct, frozen=True, kw_only=True):
    """The network and this node's place in it."""

    network: str
    server: str
    version: str
    revision: int
    digest: Annotated[str, Meta(description="Of the configuration that is valid now; the same at all servers.")]
    next_revision: int | None = None
    next_revision_slot: int | None = None
    next_digest: Annotated[str | None, Meta(description="Of the next revision; to be compared, too.")] = None
    epoch: Time
    slot_seconds: float
    grace_seconds: Annotated[float, Meta(description="How long after a slot's end its check-ins are taken.")]
    slot: Annotated[int, Meta(description="The slot that is open now.")]
    regions: list[str]
    neighbours: list[NeighbourStatus]
    refused_messages: Annotated[dict[str, int], Meta(description="Messages that were not used, by reason.")] = {}
    refused_checkins: Annotated[
        list[SlotRefusals], Meta(description="In the last slots; shown to tokens of 'admin' only.")
    ] = []


class RefusedRow(Struct, frozen=True):
    """A row that was not taken."""

    row: Annotated[int, Meta(description="Its number in the body, counted from 0.")]
    reason: Annotated[
        Literal["late", "future", "unknown-region", "user", "region", "time", "malformed"],
        Meta(
            description="`late`: of a slot that is sealed; `future`: ahead of the server's clock; `unknown-region`: "
            "one that network.toml does not have; `user`, `region`, `time`: missing or not allowed; `malformed`: no "
            "check-in at all."
        ),
    ]


class Taken(Struct, frozen=True, omit_defaults=True):
    """What was taken is on disk."""

    taken: bool
    accepted: Annotated[int | None, Meta(description="Rows of the body that were taken.")] = None
    refused: Annotated[
        list[RefusedRow] | None, Meta(description="Rows that were not taken; the first 1,000 (status 207).")
    ] = None
    refused_count: Annotated[int | None, Meta(description="How many rows were not taken.")] = None
    seconds_left: Annotated[
        float | None, Meta(description="Only for an empty list of check-ins: until the next slot opens.")
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
            description="What somebody should look at although the node does its work: certificates that expire within "
            "30 days, and, with `ingest.needs_feed`, since which slot no feed has spoken."
        ),
    ] = []


class LogLevel(Struct, frozen=True, forbid_unknown_fields=True):
    """What is logged from now on."""

    level: Level


class Done(Struct, frozen=True):
    """An operator's command was carried out."""

    text: str


class ErrorDetail(Struct, frozen=True, omit_defaults=True):
    """Why a request was refused; nothing of the request is repeated."""

    reason: Annotated[str, Meta(description="A word for programs.")]
    text: Annotated[str, Meta(description="A sentence for people.")]
    rows: Annotated[
        list[int] | None,
        Meta(description="Rows of the body, counted from 0, that are wrong, late or from the future; the first 1,000."),
    ] = None
    refused: Annotated[
        list[RefusedRow] | None, Meta(description="The same rows with a reason for each; the first 1,000.")
    ] = None
    refused_count: Annotated[int | None, Meta(description="How many rows were not taken.")] = None


class ErrorBody(Struct, frozen=True):
    """Every answer that is not a success."""

    error: ErrorDetail
