"""What a node reports about itself, typed. Fields that a newer node adds are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

__all__ = [
    "Budget",
    "Neighbour",
    "Network",
    "NetworkServer",
    "Proof",
    "Proofs",
    "Quality",
    "Ready",
    "RefusedCheckins",
    "RegionQuality",
    "SignedBytes",
]


class Budget(Struct, frozen=True, kw_only=True):
    """The privacy budget; amounts are epsilon.

    guarantee  the promise, in words
    spent      paid for samples in the current window, or so far in the horizon
    blocked    counts against the budget as well, without a known payment; `blocked_text` says why, and `blocked_until`
               when that ends; None: nothing is blocked, or only a new horizon ends it
    returns    how much comes back at `returns_slot`; None: nothing comes back
    samples    whether the node may sample now; `waits_for` and `text` say why not
    """

    guarantee: str
    kind: Literal["window", "finite"]
    length: int
    epsilon: float
    spent: float
    blocked: float = 0.0
    blocked_text: str = ""
    blocked_until: datetime | None = None
    remaining: float
    returns: float | None = None
    returns_slot: int | None = None
    returns_at: datetime | None = None
    total_spent: float
    total_blocked: float = 0.0
    samples: bool
    waits_for: Literal["vouching", "operator", "budget"] | None = None
    text: str = ""


class Neighbour(Struct, frozen=True, kw_only=True):
    """A one-hop neighbour of the node.

    refused       number of its messages that were not used, by reason
    refused_last  when the last of them came, by reason; empty for a node of 0.1.0
    """

    name: str
    connected: bool
    last_slot: int | None = None
    last_heard: datetime | None = None
    refused: dict[str, int] = {}
    refused_last: dict[str, datetime] = {}
    records_received: int = 0
    records_forwarded: int = 0
    records_late: int = 0


class NetworkServer(Struct, frozen=True, kw_only=True):
    """A server of the network, neighbour of the node or not, as its records show it; see `servers` of `Network`.

    last_record      slot of its last record; None: none of the last `lag` slots
    overdue          slot in which it should have sampled next, and of which no record has arrived; None: nothing is
    missing          whether that record would come too late by now
    suspected_since  slot since which its records count less, because they disagree with others; None: they do not
    equivocation     last slot for which it has signed two different records; None: none of the last `lag` slots
    records          number of its records that were accepted; `records_late` came too late, and `records_refused` were
                     refused, by reason
    """

    name: str
    last_record: int | None = None
    overdue: int | None = None
    missing: bool = False
    suspected_since: int | None = None
    equivocation: int | None = None
    records: int = 0
    records_late: int = 0
    records_refused: dict[str, int] = {}


class SignedBytes(Struct, frozen=True, kw_only=True):
    """The bytes of a record that a server has signed, and its signature (Ed25519)."""

    signed: bytes
    signature: bytes


class Proof(Struct, frozen=True, kw_only=True):
    """The proof that a server has signed two different records for one slot."""

    network: str
    server: str
    slot: int
    first: SignedBytes
    second: SignedBytes


class Proofs(Struct, frozen=True, kw_only=True):
    """All proofs of the last `lag` slots that a node has."""

    proofs: list[Proof] = []


class RefusedCheckins(Struct, frozen=True, kw_only=True):
    """The reasons for which check-ins were refused in a slot; their number is not counted."""

    slot: int
    reasons: list[str]


class Network(Struct, frozen=True, kw_only=True):
    """The network and the node's place in it; `slot` is open now.

    grace_seconds  for how long after the end of a slot its check-ins are accepted; None if the node runs version 0.1.0
    servers        all servers, this one included, where the scheme passes records on; empty otherwise
    samples        of every server per window or horizon; `reach`: links that a record travels; `lag`: slots by which it
                   may be late. None where the scheme does not pass records on
    groups, turnover, share_width, meetings  as they are in force with `relay`; None: another scheme does not state
                   them, or a node of an earlier version runs relay and network.toml does not
    model_data     what the process model of all servers was fitted on, and `model_source`: why it costs no privacy
                   budget, as the operators assert. None: there is no model, or the node runs an earlier version
    model_assertion  the same as the promise quotes it, with the sources of earlier models of which it keeps a part
    learn          whether servers learn how well their model fits; None: the node runs an earlier version
    region_correlation  as the model says; None: it does not, and then `groups` auto joins no regions
    messages_sent  number of messages to neighbours since the start: data, heartbeat, forward, join
    joined_from    neighbours whose word the estimate began with, of slot `joined_slot`; empty: none
    join_disagreement  neighbours whose states contradicted each other, or the one that was taken; empty: none
    """

    network: str
    server: str
    version: str
    revision: int
    digest: str
    next_revision: int | None = None
    next_revision_slot: int | None = None
    next_digest: str | None = None
    epoch: datetime
    slot_seconds: float
    grace_seconds: float | None = None
    slot: int
    regions: list[str]
    neighbours: list[Neighbour]
    refused_messages: dict[str, int] = {}
    refused_checkins: list[RefusedCheckins] = []
    scheme: str = ""
    lag: int | None = None
    samples: int | None = None
    reach: int | Literal["all"] | None = None
    groups: Literal["auto", "off"] | None = None
    turnover: float | None = None
    share_width: float | None = None
    meetings: bool | None = None
    model_data: str | None = None
    model_source: str | None = None
    model_assertion: str | None = None
    learn: bool | None = None
    region_correlation: float | None = None
    servers: list[NetworkServer] = []
    messages_sent: dict[str, int] = {}
    joined_from: list[str] = []
    joined_slot: int | None = None
    join_disagreement: list[str] = []


class RegionQuality(Struct, frozen=True, kw_only=True):
    """The running calibration of one region; see `Quality`."""

    region: str
    values: int
    calibration: float | None = None
    coverage: float | None = None
    narrow: bool = False


class LearnedShare(Struct, frozen=True, kw_only=True):
    """The share of one server in one region that a node has learned, and the standard deviation of its error.

    slot  as of which slot, `lag` slots back; None: no slot is final yet, or the node runs an earlier version
    """

    server: str
    region: str
    share: float
    deviation: float
    slot: int | None = None


class Quality(Struct, frozen=True, kw_only=True):
    """Whether the intervals of the node are as wide as they should be, by the records of other servers.

    verdict      `text` says it as a sentence; "unknown": too few records were compared, or too many servers are
                 suspected
    caveats      what limits the verdict: "far-off" if it is "calibrated", but some values were far off, "suspected" if
                 servers with a tenth of the shares or more are, "regions" if intervals are too narrow in single ones
    suspected    servers whose records are left out, and `suspected_share`: their part of all public shares
    coverage     share of normalised innovations within 1.96, about 0.95 if all is well; None: there are none
    calibration  their mean square, about 1 if all is well; None: there are none
    values       number of innovations, one per record and region, in `slots` of the last `window` slots
    needed       number of values that a verdict needs, unless intervals are evidently too narrow; they will be there
                 about slot `verdict_slot`. None: they are there, or nobody knows when
    sums         how many of them are of the sum of several regions; they are in none of `regions`
    since_slot   first slot that was counted; None: none yet
    learned_shares  by server and region, if the node learns them from records
    """

    verdict: Literal["calibrated", "narrow", "wide", "unknown"]
    text: str
    caveats: list[str] = []
    suspected: list[str] = []
    suspected_share: float = 0.0
    coverage: float | None = None
    calibration: float | None = None
    values: int = 0
    sums: int = 0
    records: int = 0
    slots: int = 0
    window: int
    needed: int = 200
    verdict_slot: int | None = None
    since_slot: int | None = None
    regions: list[RegionQuality] = []
    learned_shares: list[LearnedShare] = []


class Ready(Struct, frozen=True):
    """Whether the node can do all of its work; its truth value is that of `ready`."""

    ready: bool
    problems: list[str]
    warnings: list[str] = []

    def __bool__(self) -> bool:
        return self.ready
