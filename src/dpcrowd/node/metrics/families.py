"""All metrics of a node; python -m dpcrowd.node.metrics.families prints the table of docs/metrics.md.

Privacy. Metrics of the audience "reader" follow from public facts, from neighbours' messages, and from noisy values
that were paid for. Durations are measured from a public moment and rounded up to the bounds of their buckets; the sum
of a histogram adds the rounded values. Processor time, memory, open files and free space grow with the number of
check-ins: only the operator sees them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal, get_args

from dpcrowd.node.api.views import Verdict
from dpcrowd.node.machine.instructions import SendKind, Unsampled
from dpcrowd.node.storage.failures import StorageFailure
from dpcrowd.node.transport.caller import Reason as ConnectionRefused
from dpcrowd.node.wire import MessageReason

__all__ = ["FAMILIES", "Audience", "Family", "Kind", "table"]

Kind = Literal["counter", "gauge", "histogram"]
Audience = Literal["reader", "operator"]


@dataclass(frozen=True)
class Family:
    """One metric.

    labels       names of its labels
    known        values of its last label that exist from the start, at 0, so that the first increase is visible
    bounds       upper bounds of the buckets of a histogram, in seconds
    audience     "operator": its value depends on the load of the node, hence on the number of check-ins, and is only
                 for those who may know that number
    replaced_by  name of the metric that replaces it; it stays until 0.3, for dashboards that exist
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    audience: Audience = "reader"
    replaced_by: str = ""

    @property
    def help(self) -> str:
        """What a scrape and the documentation say about the metric."""
        return f"{self.text} Deprecated, until 0.3: use {self.replaced_by}." if self.replaced_by else self.text


BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""In seconds: far above the milliseconds in which a node counts, pays and sends, and fine enough to act upon."""

RECORD_REASONS = (
    *("absurd", "above-account", "bad-signature", "equivocation", "grouped", "malformed", "rate-limited"),
    *("wrong-slot", "other-configuration"),
)
"""Why a record is not used."""

READY = Family("dpcrowd_ready", "gauge", "Whether the node can do all of its work (1) or not (0); /readyz says why.")
MAY_SAMPLE = Family(
    "dpcrowd_may_sample", "gauge", "Whether the ledger allows a sample now (1) or not (0); /v1/budget says why."
)
SLOT = Family("dpcrowd_slot", "gauge", "Number of the slot that is open.")
RELEASED_SLOT = Family("dpcrowd_released_slot", "gauge", "Number of the last slot that this process released.")
EPSILON = Family("dpcrowd_epsilon", "gauge", "Budget of the window or horizon, in epsilon.")
EPSILON_SPENT = Family(
    "dpcrowd_epsilon_spent", "gauge", "Budget spent in the current window, or so far in the horizon, in epsilon."
)
EPSILON_BLOCKED = Family(
    "dpcrowd_epsilon_blocked",
    "gauge",
    "Budget that is blocked in addition, without a known payment, in epsilon.",
)
EPSILON_REMAINING = Family(
    "dpcrowd_epsilon_remaining", "gauge", "Budget left in the current window or horizon, in epsilon."
)
EPSILON_SPENT_TOTAL = Family(
    "dpcrowd_epsilon_spent_total",
    "counter",
    "Budget spent since the ledger began, by all networks that share it, in epsilon.",
)
SAMPLES = Family("dpcrowd_samples_total", "counter", "Number of slots that this process sampled and paid for.")
SAMPLES_UNUSED = Family(
    "dpcrowd_samples_unused_total",
    "counter",
    "Number of those samples that were not used: with their noise they cannot be counts of the network's population.",
)
UNSAMPLED = Family(
    "dpcrowd_slots_unsampled_total",
    "counter",
    "Number of slots that this process sealed without a sample, by the first reason that applies.",
    labels=("reason",),
    known=get_args(Unsampled),
)
MISSED = Family(
    "dpcrowd_slots_missed_total",
    "counter",
    "Number of slots that passed without this node: it was down or suspended, or its clock was set. Counted when it "
    "seals the next slot.",
)
RELEASE_DELAY = Family(
    "dpcrowd_release_delay_seconds",
    "histogram",
    "Seconds from send_offset after the seal of a slot, a public moment, to the publication of its release.",
    bounds=BOUNDS,
)
EXCHANGES = Family(
    "dpcrowd_exchanges_total",
    "counter",
    "Number of exchanges in which the messages of all neighbours arrived before the deadline (complete), or not "
    "(incomplete).",
    labels=("outcome",),
    known=("complete", "incomplete"),
)
MESSAGE_DELAY = Family(
    "dpcrowd_message_delay_seconds",
    "histogram",
    "Seconds from send_offset after the seal of a slot, a public moment, to the arrival of the neighbour's message, "
    "if it was used.",
    labels=("neighbour",),
    bounds=BOUNDS,
)
MESSAGES_SENT = Family(
    "dpcrowd_messages_sent_total", "counter", "Number of messages that this process sent to neighbours."
)
MESSAGES_BY_KIND = Family(
    "dpcrowd_messages_sent_by_kind_total",
    "counter",
    "Number of those messages by kind: with a sample of this server (data), without one (heartbeat), with records of "
    "others (forward), or about the state with which a server joins late (join).",
    labels=("kind",),
    known=get_args(SendKind),
)
SENT_BYTES = Family(
    "dpcrowd_messages_sent_bytes_total", "counter", "Size of those messages, without the transport's own, in bytes."
)
MESSAGES_LATE = Family(
    "dpcrowd_messages_late_total",
    "counter",
    "Number of those messages that were sent later than send_offset after the seal of their slot.",
    audience="operator",
)
MESSAGES_REFUSED = Family(
    "dpcrowd_messages_refused_total",
    "counter",
    "Number of messages of neighbours that were not used.",
    labels=("reason",),
    known=get_args(MessageReason),
)
RECORDS_RECEIVED = Family(
    "dpcrowd_records_received_total",
    "counter",
    "Number of records, of any server, that the neighbour was the first to bring and that were accepted.",
    labels=("neighbour",),
)
RECORDS_FORWARDED = Family(
    "dpcrowd_records_forwarded_total",
    "counter",
    "Number of records that were sent to the neighbour.",
    labels=("neighbour",),
)
RECORDS_LATE = Family(
    "dpcrowd_records_late_total",
    "counter",
    "Number of records that the neighbour brought after their slot was final; they are not used.",
    labels=("neighbour",),
)
RECORDS_REFUSED = Family(
    "dpcrowd_records_refused_total",
    "counter",
    "Number of records that were refused, by reason; /v1/network says which server is at fault.",
    labels=("reason",),
    known=RECORD_REASONS,
)
RECORD_DELAY = Family(
    "dpcrowd_record_delay_seconds",
    "histogram",
    "Seconds from send_offset after the seal of a record's slot, a public moment, to the record's arrival, if that is "
    "before the next seal.",
    bounds=(0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    audience="operator",
)
JOINED_SLOT = Family(
    "dpcrowd_joined_slot",
    "gauge",
    "Slot of the neighbour's state with which the estimate of this server began; absent: it began with nobody's.",
    labels=("neighbour",),
)
JOIN_DISAGREEMENT = Family(
    "dpcrowd_join_disagreement",
    "gauge",
    "Whether the neighbour's state contradicted another one, or the one that was taken, when this server asked for "
    "them last (1); absent: it did not.",
    labels=("neighbour",),
)
SERVER_MISSING = Family(
    "dpcrowd_server_missing",
    "gauge",
    "Whether a record of the server is overdue by more than the lag, by the public schedule (1), or not (0).",
    labels=("server",),
)
SERVER_SUSPECTED = Family(
    "dpcrowd_server_suspected",
    "gauge",
    "Whether records of the server count less, because they have disagreed with those of the others (1), or not (0).",
    labels=("server",),
)
SERVER_EQUIVOCATES = Family(
    "dpcrowd_server_equivocates",
    "gauge",
    "Whether the server is known to have signed two different records for one of the last `lag` slots (1), or not (0).",
    labels=("server",),
)
CALIBRATION_COVERAGE = Family(
    "dpcrowd_calibration_coverage",
    "gauge",
    "Share of the normalised innovations of other servers' records in the last 100 slots, or in more if "
    "these hold too few, that are within 1.96; about 0.95 if the intervals are right. /v1/quality has more.",
)
CALIBRATION_RATIO = Family(
    "dpcrowd_calibration_ratio",
    "gauge",
    "Mean square of those innovations; about 1 if the intervals are right, above 1 if they are too narrow.",
)
CALIBRATION_VALUES = Family(
    "dpcrowd_calibration_values", "gauge", "Number of those innovations, one per record and region or sum of regions."
)
CALIBRATION_VERDICT = Family(
    "dpcrowd_calibration_verdict",
    "gauge",
    "Whether this is the verdict of /v1/quality on the intervals (1), or not (0).",
    labels=("verdict",),
    known=get_args(Verdict),
)
CALIBRATION_NARROW_REGIONS = Family(
    "dpcrowd_calibration_narrow_regions",
    "gauge",
    "Number of regions whose own values show that their intervals are too narrow; /v1/quality names them.",
)
CONNECTIONS_REFUSED = Family(
    "dpcrowd_connections_refused_total",
    "counter",
    "Number of connections to the port of the transport that did not become a link to a neighbour.",
    labels=("port", "reason"),
    known=get_args(ConnectionRefused),
)
API_LIMITED = Family(
    "dpcrowd_api_limited",
    "gauge",
    "Whether connections to the API were ended or refused in the last minute, since there were too many (1), or not "
    "(0).",
)
NEIGHBOUR_UP = Family(
    "dpcrowd_neighbour_up", "gauge", "Whether the neighbour is connected (1) or not (0).", labels=("neighbour",)
)
CLOCK_OFFSET = Family(
    "dpcrowd_neighbour_clock_offset_seconds",
    "gauge",
    "Upper bound on how far this clock is ahead of the neighbour's, in seconds, from its last messages, rounded up to "
    "tenths; below 0 this clock is behind.",
    labels=("neighbour",),
)
CLOCK_JUMPS = Family(
    "dpcrowd_clock_jumps_total",
    "counter",
    "Number of times that the clock of this machine was set by a second or more while the process ran.",
    labels=("direction",),
    known=("ahead", "back"),
)
STOOD_STILL = Family(
    "dpcrowd_stood_still_total",
    "counter",
    "Number of times that the process stood still for two seconds, or for a tenth of a slot if that is longer.",
)
CERTIFICATE_EXPIRY = Family(
    "dpcrowd_certificate_expiry_timestamp_seconds",
    "gauge",
    "Time at which a certificate expires, in seconds since 1970: the server's own, that of HTTPS, that of the "
    "authority, and those of neighbours.",
    labels=("certificate", "name"),
)
CERTIFICATE_DAYS = Family(
    "dpcrowd_certificate_days_left",
    "gauge",
    "Days until a certificate expires.",
    labels=("certificate", "name"),
    replaced_by=CERTIFICATE_EXPIRY.name,
)
STORAGE_UP = Family(
    "dpcrowd_storage_up", "gauge", "Whether the last write to the data folder succeeded (1) or not (0)."
)
STORAGE_FAILURES = Family(
    "dpcrowd_storage_failures_total",
    "counter",
    "Number of payments and releases that could not be stored.",
    labels=("kind",),
    known=get_args(StorageFailure),
)
STORAGE_FREE = Family(
    "dpcrowd_storage_free_bytes", "gauge", "Free space on the disk of the data folder, in bytes.", audience="operator"
)
CHECKINS_TAKEN = Family(
    "dpcrowd_checkins_taken_total",
    "counter",
    "Number of check-ins since the start, only with exact_counters: exact and not private, for use inside the "
    "organisation only.",
)
BUILD_INFO = Family(
    "dpcrowd_build_info", "gauge", "Always 1; the labels are the versions that run.", labels=("version", "python")
)
NETWORK_INFO = Family(
    "dpcrowd_network_info",
    "gauge",
    "Always 1; the labels name the network, this server, and the revision of network.toml that is in force.",
    labels=("network", "server", "revision", "digest"),
)
GUARANTEE_INFO = Family(
    "dpcrowd_guarantee_info",
    "gauge",
    "Always 1; the labels say whether the budget is that of a window, whose budget comes back, or of a horizon "
    "(finite), and its length in slots.",
    labels=("kind", "length"),
)
START_TIME = Family("process_start_time_seconds", "gauge", "Time at which the process started, in seconds since 1970.")
MAX_FDS = Family("process_max_fds", "gauge", "Upper bound on open files and connections of the process.")
CPU_SECONDS = Family(
    "process_cpu_seconds_total", "counter", "Processor time that the process has used, in seconds.", audience="operator"
)
RESIDENT_BYTES = Family(
    "process_resident_memory_bytes", "gauge", "Resident memory of the process, in bytes.", audience="operator"
)
VIRTUAL_BYTES = Family(
    "process_virtual_memory_bytes", "gauge", "Virtual memory of the process, in bytes.", audience="operator"
)
OPEN_FDS = Family(
    "process_open_fds", "gauge", "Number of open files and connections of the process.", audience="operator"
)

FAMILIES = (
    READY,
    MAY_SAMPLE,
    SLOT,
    RELEASED_SLOT,
    EPSILON,
    EPSILON_SPENT,
    EPSILON_BLOCKED,
    EPSILON_REMAINING,
    EPSILON_SPENT_TOTAL,
    SAMPLES,
    SAMPLES_UNUSED,
    UNSAMPLED,
    MISSED,
    RELEASE_DELAY,
    EXCHANGES,
    MESSAGE_DELAY,
    MESSAGES_SENT,
    MESSAGES_BY_KIND,
    SENT_BYTES,
    MESSAGES_LATE,
    MESSAGES_REFUSED,
    RECORDS_RECEIVED,
    RECORDS_FORWARDED,
    RECORDS_LATE,
    RECORDS_REFUSED,
    RECORD_DELAY,
    JOINED_SLOT,
    JOIN_DISAGREEMENT,
    SERVER_MISSING,
    SERVER_SUSPECTED,
    SERVER_EQUIVOCATES,
    CALIBRATION_COVERAGE,
    CALIBRATION_RATIO,
    CALIBRATION_VALUES,
    CALIBRATION_VERDICT,
    CALIBRATION_NARROW_REGIONS,
    CONNECTIONS_REFUSED,
    API_LIMITED,
    NEIGHBOUR_UP,
    CLOCK_OFFSET,
    CLOCK_JUMPS,
    STOOD_STILL,
    CERTIFICATE_EXPIRY,
    CERTIFICATE_DAYS,
    STORAGE_UP,
    STORAGE_FAILURES,
    STORAGE_FREE,
    CHECKINS_TAKEN,
    BUILD_INFO,
    NETWORK_INFO,
    GUARANTEE_INFO,
    START_TIME,
    MAX_FDS,
    CPU_SECONDS,
    RESIDENT_BYTES,
    VIRTUAL_BYTES,
    OPEN_FDS,
)


def table() -> str:
    """Return the table of all metrics in Markdown."""
    lines = ["| name | type | labels | meaning | for |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        audience = "readers" if family.audience == "reader" else "the operator"
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} | {audience} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(table())
