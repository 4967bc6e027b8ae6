"""All metrics of a node; the table of docs/metrics.md is made from them: python -m dpcrowd.node.metrics.families

Privacy. Metrics of the audience "reader" follow from public facts, from neighbours' messages, and from what was noised
and paid for. Those that measure time are measured from a public moment, rounded up to the bounds of their buckets; the
sum of a histogram is made of the rounded values. Processor time, memory, open files and free space grow with the number
of check-ins: they are for the operator alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal, get_args

from dpcrowd.node.machine.instructions import Unsampled

__all__ = ["FAMILIES", "Audience", "Family", "Kind", "table"]

Kind = Literal["counter", "gauge", "histogram"]
Audience = Literal["reader", "operator"]


@dataclass(frozen=True)
class Family:
    """One metric.

    labels    names of its labels
    known     values of its only label that are there from the start, at 0, so that the first increase is seen
    bounds    upper bounds of a histogram's buckets, in seconds
    audience  "operator": its value depends on how busy the node is, hence on the number of check-ins; it is for whoever
              may see that number
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    audience: Audience = "reader"


BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Far above the milliseconds in which a node counts, pays and sends, in steps that an operator can act upon."""

READY = Family("dpcrowd_ready", "gauge", "Is 1 if the node can do all of its work, otherwise 0; /readyz says why.")
MAY_SAMPLE = Family("dpcrowd_may_sample", "gauge", "Is 1 if ledger and budget allow a sample now; /v1/budget says why.")
SLOT = Family("dpcrowd_slot", "gauge", "The number of the slot that is open.")
RELEASED_SLOT = Family("dpcrowd_released_slot", "gauge", "The number of the slot that this process released last.")
EPSILON = Family("dpcrowd_epsilon", "gauge", "The promised budget, in epsilon.")
EPSILON_SPENT = Family(
    "dpcrowd_epsilon_spent", "gauge", "What was spent in the current window, or so far in the horizon, in epsilon."
)
EPSILON_BLOCKED = Family(
    "dpcrowd_epsilon_blocked",
    "gauge",
    "What counts against the budget beside that, without a payment that is known, in epsilon.",
)
EPSILON_REMAINING = Family(
    "dpcrowd_epsilon_remaining", "gauge", "What is left in the current window or horizon, in epsilon."
)
EPSILON_SPENT_TOTAL = Family(
    "dpcrowd_epsilon_spent_total",
    "counter",
    "What was spent since the ledger began, by all networks that share it, in epsilon.",
)
SAMPLES = Family("dpcrowd_samples_total", "counter", "Slots that this process sampled and paid for.")
UNSAMPLED = Family(
    "dpcrowd_slots_unsampled_total",
    "counter",
    "Slots that this process sealed without a sample, by the first reason that applies.",
    labels=("reason",),
    known=get_args(Unsampled),
)
MISSED = Family(
    "dpcrowd_slots_missed_total",
    "counter",
    "Slots that passed without this node, found when it sealed the next one: it was down, slept, or its clock was set.",
)
RELEASE_DELAY = Family(
    "dpcrowd_release_delay_seconds",
    "histogram",
    "The time from send_offset after the seal of a slot, a public moment, to the publication of its release.",
    bounds=BOUNDS,
)
EXCHANGES = Family(
    "dpcrowd_exchanges_total",
    "counter",
    "Exchanges in which all neighbours were heard before the deadline (complete), or not all (incomplete).",
    labels=("outcome",),
    known=("complete", "incomplete"),
)
MESSAGE_DELAY = Family(
    "dpcrowd_message_delay_seconds",
    "histogram",
    "The time from send_offset after the seal of a slot, a public moment, to the arrival of the neighbour's message, "
    "if it was used.",
    labels=("neighbour",),
    bounds=BOUNDS,
)
MESSAGES_SENT = Family("dpcrowd_messages_sent_total", "counter", "Messages that this process sent to neighbours.")
MESSAGES_LATE = Family(
    "dpcrowd_messages_late_total",
    "counter",
    "Of those, messages that left later than send_offset after the seal of their slot.",
    audience="operator",
)
MESSAGES_REFUSED = Family(
    "dpcrowd_messages_refused_total", "counter", "Messages of neighbours that were not used.", labels=("reason",)
)
CONNECTIONS_REFUSED = Family(
    "dpcrowd_connections_refused_total",
    "counter",
    "Connections to the transport's port that did not become a neighbour's.",
    labels=("port", "reason"),
)
API_LIMITED = Family(
    "dpcrowd_api_limited",
    "gauge",
    "Is 1 if connections to the API were ended or refused in the last minute because there were too many.",
)
NEIGHBOUR_UP = Family(
    "dpcrowd_neighbour_up", "gauge", "Is 1 if the neighbour can be reached, otherwise 0.", labels=("neighbour",)
)
CLOCK_OFFSET = Family(
    "dpcrowd_neighbour_clock_offset_seconds",
    "gauge",
    "By how much this clock is ahead of the neighbour's at most, as far as its last messages show, in tenths of a "
    "second; below 0 this clock is behind.",
    labels=("neighbour",),
)
CLOCK_JUMPS = Family(
    "dpcrowd_clock_jumps_total",
    "counter",
    "How often this machine's clock was set by a second or more while the process ran.",
    labels=("direction",),
    known=("ahead", "back"),
)
STOOD_STILL = Family(
    "dpcrowd_stood_still_total",
    "counter",
    "How often nothing ran in the process for two seconds, or for a tenth of a slot if that is longer.",
)
CERTIFICATE_DAYS = Family(
    "dpcrowd_certificate_days_left",
    "gauge",
    "For how many more days a certificate is valid: the server's own, that of HTTPS, the authority's, and each "
    "neighbour's.",
    labels=("certificate", "name"),
)
STORAGE_UP = Family("dpcrowd_storage_up", "gauge", "Is 1 if the last write to the data folder worked, otherwise 0.")
STORAGE_FAILURES = Family(
    "dpcrowd_storage_failures_total", "counter", "Payments and releases that could not be stored.", labels=("kind",)
)
STORAGE_FREE = Family(
    "dpcrowd_storage_free_bytes", "gauge", "Free space on the disk of the data folder.", audience="operator"
)
CHECKINS_TAKEN = Family(
    "dpcrowd_checkins_taken_total",
    "counter",
    "Check-ins since the start, with exact_counters only: exact, not private, for inside these walls only.",
)
BUILD_INFO = Family(
    "dpcrowd_build_info", "gauge", "Is always 1; the labels say which version runs.", labels=("version", "python")
)
NETWORK_INFO = Family(
    "dpcrowd_network_info",
    "gauge",
    "Is always 1; the labels name the network, this server, and the revision of network.toml that is in use.",
    labels=("network", "server", "revision", "digest"),
)
START_TIME = Family("process_start_time_seconds", "gauge", "When the node started, in seconds since 1970.")
MAX_FDS = Family("process_max_fds", "gauge", "How many files and connections the process may have open.")
CPU_SECONDS = Family(
    "process_cpu_seconds_total", "counter", "Processor time that the process has used.", audience="operator"
)
RESIDENT_BYTES = Family(
    "process_resident_memory_bytes", "gauge", "Memory of the process that is in use.", audience="operator"
)
VIRTUAL_BYTES = Family(
    "process_virtual_memory_bytes", "gauge", "Addresses that the process has reserved.", audience="operator"
)
OPEN_FDS = Family("process_open_fds", "gauge", "Files and connections that the process has open.", audience="operator")

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
    UNSAMPLED,
    MISSED,
    RELEASE_DELAY,
    EXCHANGES,
    MESSAGE_DELAY,
    MESSAGES_SENT,
    MESSAGES_LATE,
    MESSAGES_REFUSED,
    CONNECTIONS_REFUSED,
    API_LIMITED,
    NEIGHBOUR_UP,
    CLOCK_OFFSET,
    CLOCK_JUMPS,
    STOOD_STILL,
    CERTIFICATE_DAYS,
    STORAGE_UP,
    STORAGE_FAILURES,
    STORAGE_FREE,
    CHECKINS_TAKEN,
    BUILD_INFO,
    NETWORK_INFO,
    START_TIME,
    MAX_FDS,
    CPU_SECONDS,
    RESIDENT_BYTES,
    VIRTUAL_BYTES,
    OPEN_FDS,
)


def table() -> str:
    """All of them in Markdown."""
    lines = ["| name | type | labels | meaning | for |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        whom = "readers" if family.audience == "reader" else "the operator"
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.text} | {whom} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(table())
