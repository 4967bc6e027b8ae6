"""Checks of the clock: against what this server has sealed, against NTP, and against neighbours.

A slot is drawn once, whatever the clock reads, but a wrong clock costs slots, and one that is far off makes this server
late, or early, for all its neighbours.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime

from dpcrowd.node.config import NetworkConfig
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped

__all__ = ["ACCEPT", "check_clock", "check_synchronised", "compare_clocks", "utc"]

_SECOND = 1_000_000_000
_EARLIEST = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * _SECOND
_SYNC = "Set the clock and keep it right, for example with chrony or systemd-timesyncd."
ACCEPT = "If it is right now and was ahead before, run 'dpcrowd node accept-clock' while the server runs, or wait."
_NTP = ("timedatectl", "show", "-p", "NTPSynchronized", "--value")


def check_clock(network: NetworkConfig, now_ns: int, sealed_ns: int | None) -> Iterator[Finding]:
    """Check the clock against `sealed_ns`, when the last slot closed that this server has sealed."""
    now = utc(now_ns)
    if now_ns < _EARLIEST:
        yield problem("clock", f"this machine's clock reads {now}, which is in the past.", _SYNC)
    elif sealed_ns is not None and now_ns < sealed_ns:
        behind = (sealed_ns - now_ns) / _SECOND
        text = (
            f"this machine's clock reads {now}, but this server has sealed a slot that closed {utc(sealed_ns)}: the "
            f"clock is at least {behind:.0f} s behind, or was ahead then. Nothing is sampled before that time."
        )
        yield problem("clock", text, f"{_SYNC} {ACCEPT}")
    else:
        slot = network.clock().slot_of(now_ns)
        if slot < 0:
            yield note("clock", f"it is {now}; the first slot opens at {utc(network.clock().epoch_ns)}.")
        else:
            yield passed("clock", f"it is {now}, slot {slot}.")


def check_synchronised() -> Finding:
    """Check whether NTP synchronises the clock, where the system can be asked."""
    state = _ntp_state()
    if state == "yes":
        return passed("clock", "the system reports that NTP synchronises the clock.")
    if state == "no":
        text = "the system reports that NTP does not synchronise the clock"
        return note("clock", f"{text}: switch NTP on, unless something else keeps the clock right.")
    return skipped("clock", "this system does not report whether NTP synchronises the clock.")


def _ntp_state() -> str:
    """Return "yes", "no", or an empty text if unknown."""
    if shutil.which(_NTP[0]) is None:
        return ""
    try:
        result = subprocess.run(_NTP, capture_output=True, text=True, timeout=3, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def compare_clocks(name: str, network: NetworkConfig, slot: int, received_ns: int, *, after: bool = False) -> Finding:
    """Compare clocks by a neighbour's message of a slot, received at a time of this machine's clock.

    The message was sent between the seal of its slot and the end of its exchange, by the neighbour's clock, so the
    difference is known up to the length of an exchange. A message that was written again `after` its exchange was sent
    before the next seal.
    """
    seals = network.clock().closes(slot) + network.grace_ns
    first, last = seals, seals + network.deadline_ns
    if after:
        first, last = last, seals + network.clock().length_ns
    least, most = (received_ns - last) / _SECOND, (received_ns - first) / _SECOND
    slack = min(1.0, network.clock().length_ns / _SECOND / 2)  # for the way, and for waiting to be read
    fix = f"Find out with '{name}' which of the two clocks is right. {_SYNC}"
    if least > slack:
        text = f"this machine is {least:.1f} to {most:.1f} s ahead of '{name}', whose message was of slot {slot}."
        return problem("clock", text, fix)
    if most < 0 and -most > slack:
        text = f"this machine is {-most:.1f} to {-least:.1f} s behind '{name}', whose message was of slot {slot}."
        return problem("clock", text, fix)
    delay = max(received_ns - seals, 0) / _SECOND
    text = f"the message of '{name}' for slot {slot} came when it was due here: {delay:.1f} s after the seal."
    return passed("clock", text)


def utc(at_ns: int) -> str:
    """Return a time for a person to read."""
    return datetime.fromtimestamp(at_ns / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
