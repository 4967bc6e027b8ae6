"""Answers of the API that show many slots, or the complete network, at once: made for the live page, open to readers.

Like everything in `views` they are public, or noised and paid, or derived from such numbers.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = ["MOST_SLOTS", "History", "NeighbourHistory", "RecordHistory", "ServerPlace", "Topology"]

Column = list[float | None]
MOST_SLOTS = 10_000
"""How many slots a history has at most."""


class History(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The releases of many slots as columns: each list has one entry per slot, oldest first.

    Numbers are rounded to thousandths and never clamped; null means that there is no estimate.
    """

    slots: list[int]
    opens: Annotated[list[float], Meta(description="When the slots opened, in seconds since 1970.")]
    sampled: Annotated[list[bool], Meta(description="Whether this server itself sampled in the slot.")]
    epsilon: Annotated[list[float], Meta(description="What this server paid for the sample of the slot, in epsilon.")]
    heard: Annotated[list[int], Meta(description="Number of neighbours whose messages were fused in the slot.")]
    total: Annotated[Column, Meta(description="Estimate of the complete population: the sum over all regions.")]
    total_half_width: Annotated[
        Column,
        Meta(
            description="Half of the total's 95% interval, from the intervals of the regions. With a process model, "
            "errors go together as its `region_correlation` says; without one they are taken for independent."
        ),
    ]
    regions: Annotated[list[str], Meta(description="The regions of the two lists that follow.")]
    estimate: Annotated[list[Column], Meta(description="One list of estimates per region.")]
    half_width: Annotated[list[Column], Meta(description="One list per region: half of the 95% interval.")]
    estimate_nonnegative: Annotated[
        list[Column],
        Meta(
            description="With `view=nonnegative`: one list per region, the estimates without negative numbers and with "
            "the same total of all regions. Left out unless it is asked for."
        ),
    ] = []
    estimate_median: Annotated[
        list[Column],
        Meta(
            description="With `view=median`: one list per region, the medians of what is known of the counts; null "
            "without a variance. Left out unless it is asked for."
        ),
    ] = []


class RecordHistory(Struct, frozen=True, kw_only=True):
    """Records of one server: each list has one entry per record, oldest first."""

    slots: list[int]
    value: Annotated[
        Column,
        Meta(description="Its noisy counts divided by its share: an estimate of the population by this record alone."),
    ]
    half_width: Annotated[
        Column,
        Meta(description="Half of its 95% interval, from the noise and the share; with the error of a learned share."),
    ]
    share: Annotated[
        Column,
        Meta(
            description="The share of the region by which the counts were divided. Of the total: null where the shares "
            "of the regions differ, since the counts of each region are then divided by its own."
        ),
    ] = []
    learned: Annotated[
        list[bool],
        Meta(
            description="Whether that share was learned from released records (`share_width`), as the estimate of the "
            "record's slot uses it; else it is the public share of network.toml."
        ),
    ] = []


class NeighbourHistory(Struct, frozen=True, kw_only=True):
    """What other servers say, by their last messages or records; kept in memory since the node started."""

    region: Annotated[str | None, Meta(description="The region; null: the sum over all regions.")]
    slots: list[int]
    neighbours: Annotated[
        dict[str, Column],
        Meta(
            description="By neighbour, one number per slot: its prior, the estimate before it fused the slot; null if "
            "its message had none. Records of `relay` have none at all."
        ),
    ]
    records: Annotated[
        dict[str, RecordHistory],
        Meta(
            description="Networks of `relay`: by server, neighbour or not, the records of others that were accepted in "
            "these slots. Servers that have the same records publish the same estimates; whether they agree is seen "
            "in the records."
        ),
    ] = {}


class ServerPlace(Struct, frozen=True, kw_only=True):
    """A server of the network."""

    name: str
    share: Annotated[float, Meta(description="The part of the population that it sees, a public constant.")]
    shares: Annotated[
        dict[str, float], Meta(description="Its shares by region; empty where the share is the same in all regions.")
    ] = {}


class Topology(Struct, frozen=True, kw_only=True):
    """The public plan of the network, as network.toml has it now: servers, links, regions and the promise's terms."""

    servers: list[ServerPlace]
    links: Annotated[list[tuple[str, str]], Meta(description="The links of the slot that is open.")]
    population: int
    scheme: str
    users: Annotated[
        Literal["pinned", "roaming"], Meta(description="Whether a user is always at the same server, or at any.")
    ]
    servers_per_slot: int
    regions_per_slot: int
    coordinates: Annotated[
        dict[str, tuple[float, float]],
        Meta(description="Latitude and longitude of regions, if network.toml has them."),
    ] = {}
    map: Annotated[bool, Meta(description="Whether /v1/map has the shapes of the regions.")] = False
