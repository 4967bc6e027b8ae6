"""How `dpcrowd node status` prints what other servers' records show of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dpcrowd.cli.node_show import show_status
from dpcrowd.node.api.views import NetworkStatus, ServerStatus

BUDGET = {"kind": "window", "length": 10, "epsilon": 1.0, "spent": 0.25, "remaining": 0.75}


def printed(servers: list[ServerStatus], capsys: pytest.CaptureFixture[str]) -> list[str]:
    status = NetworkStatus(
        network="n", server="a", version="0", revision=1, digest="00", epoch="2026-01-01T00:00:00Z", slot_seconds=60.0,
        grace_seconds=5.0, slot=100, regions=["north"], neighbours=[], servers=servers,
    )  # fmt: skip
    network: dict[str, Any] = msgspec.to_builtins(status)
    show_status({"ready": True, "problems": []}, network, BUDGET, as_json=False)
    return capsys.readouterr().out.splitlines()


def test_only_servers_with_which_something_is_wrong_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator looks here first; fifty lines on servers that are well would hide the one that is not."""
    wrong = [
        ServerStatus(name="b", last_record=99),
        ServerStatus(name="c", overdue=71, missing=True),
        ServerStatus(name="d", overdue=99),
        ServerStatus(name="e", suspected_since=80, equivocation=95),
    ]
    lines = printed(wrong, capsys)
    assert [line for line in lines if line.split()[0] in ("missing", "suspected", "two")] == [
        "missing     c: its record of slot 71 has not come",
        "suspected   e: from slot 80 on its records count less, since they disagree with those of others",
        "two records e: signed two different ones for slot 95",
    ]
    assert not [line for line in lines if " b:" in line or " d:" in line]


def test_names_of_servers_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """They come from other organisations' files."""
    lines = printed([ServerStatus(name="c\x1b[2J", overdue=71, missing=True)], capsys)
    assert not [line for line in lines if "\x1b" in line]
