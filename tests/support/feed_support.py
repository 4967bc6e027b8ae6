"""Lines and check-ins that tests of a feed send."""

from __future__ import annotations

import json

from dpcrowd.client.lines import NumberedCheckin
from dpcrowd.client.rows import CheckinRow
from node_support_api import REGIONS

__all__ = ["CHECKINS", "REGION", "LeftOut", "line_of"]

REGION = next(iter(REGIONS))
CHECKINS = [NumberedCheckin(10 + place, CheckinRow(place, "north")) for place in range(40)]


def line_of(user: int, **more: object) -> str:
    """Return a line of a feed, a check-in of a user."""
    return json.dumps({"user": f"person-{user}", "region": REGION, **more}) + "\n"


class LeftOut:
    """Keeps what is left out, by line, and how many the node has not named."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.others = 0

    def line(self, number: int, reason: str) -> None:
        self.lines.append((number, reason))

    def unnamed(self, count: int) -> None:
        self.others += count
