"""Checks of the clock: against what this server has sealed, against NTP, and against what neighbours say.

A slot is drawn once, whatever the clock says, but a clock that is wrong costs slots, and one that is far off makes this
server late, or early, for everybody.
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
ACCEPT = "If it is right now and was ahead before: 'dpcrowd node accept-clock' (while the server runs), or wait."
_NTP = ("timedatectl", "show", "-p", "NTPSynchronized", "--value")


def check_clock(network: NetworkConfig, now_ns: int, sealed_ns: int | None) -> Iterator[Finding]:
    """sealed_ns: when the last slot closed that this server has sealed; time cannot be before it."""
    now = utc(now_ns)
    if now_ns < _EARLIEST:
        yield problem("clock", f"this machine says that it is {now}.", _SYNC)
    elif sealed_ns is not None and now_ns < sealed_ns:
        behind = (sealed_ns - now_ns) / _SECOND
        text = (
            f"this machine says that it is {now}, but this server has sealed a slot that closed {utc(sealed_ns)}: the "
            f"clock is at least {behind:.0f} s behind, or was ahead then. Nothing is drawn before that time."
        )
        yield problem("clock", text, f"{_SYNC} {ACCEPT}")
    else:
        slot = network.clock().slot_of(now_ns)
        if slot < 0:
            yield note("clock", f"it is {now}; the first slot opens only {utc(network.clock().epoch_ns)}.")
        else:
            yield passed("clock", f"it is {now}, slot {slot}.")


def check_synchronised() -> Finding:
    """What the system says of NTP, where it can be asked."""
    said = _ntp_state()
    if said == "yes":
        return passed("clock", "the system says that the clock is synchronised by NTP.")
    if said == "no":
        text = "the system says that the clock is not synchronised by NTP"
        return note("clock", f"{text}: switch it on, unless something else keeps this clock right.")
    return skipped("clock", "whether NTP keeps the clock right is not known: this system does not say.")


def _ntp_state() -> str:
    """yes, no, or nothing that is known."""
    if shutil.which(_NTP[0]) is None:
        return ""
    try:
        told = subprocess.run(_NTP, capture_output=True, text=True, timeout=3, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def compare_clocks(name: str, network: NetworkConfig, slot: int, came_ns: int, *, after: bool = False) -> Finding:
    """A neighbour's message of a slot came at a time of this machine's clock.

    It was sent between the seal of its slot and the end of its exchange, by the neighbour's clock, so the difference
    is known up to the length of an exchange. One that was written again `after` its exchange was sent before the next
    seal.
    """
    seals = network.clock().closes(slot) + network.grace_ns
    first, last = seals, seals + network.deadline_ns
    if after:
        first, last = last, seals + network.clock().length_ns
    least, most = (came_ns - last) / _SECOND, (came_ns - first) / _SECOND
    slack = min(1.0, network.clock().length_ns / _SECOND / 2)  # on the way, and waiting to be read
    fix = f"Compare with '{name}' which of the two is right. {_SYNC}"
    if least > slack:
        text = f"this machine is {least:.1f} to {most:.1f} s ahead of '{name}', whose message was of slot {slot}."
        return problem("clock", text, fix)
    if most < 0 and -most > slack:
        text = f"this machine is {-most:.1f} to {-least:.1f} s behind '{name}', whose message was of slot {slot}."
        return problem("clock", text, fix)
    passed_s = max(came_ns - seals, 0) / _SECOND
    return passed("clock", f"'{name}' spoke of slot {slot} when it was due here: {passed_s:.1f} s after the seal.")


def utc(at_ns: int) -> str:
    """A time for a person."""
    return datetime.fromtimestamp(at_ns / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
