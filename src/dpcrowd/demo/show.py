"""How a demo is shown: one line of JSON a slot, one line of text, or a table that renews itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dpcrowd.demo.door import Total
from dpcrowd.demo.files import DemoNetwork
from dpcrowd.demo.run import SlotRow

__all__ = ["Board", "Score", "as_json", "as_text"]

_SHOWN = 12


def as_json(row: SlotRow) -> str:
    """Totals over regions; numbers are not clamped, null where nothing is known."""
    servers = [
        {
            "server": one.server,
            "estimate": one.total.estimate,
            "low": one.total.low,
            "high": one.total.high,
            "epsilon_spent": one.epsilon_spent,
            "messages": one.messages,
        }
        for one in row.servers
    ]
    return msgspec.json.encode({"slot": row.slot, "truth": row.truth, "servers": servers}).decode()


def as_text(row: SlotRow) -> str:
    """For an output that is no terminal."""
    servers = "  ".join(f"{one.server} {_interval(one.total)}" for one in row.servers)
    return f"slot {row.slot}  truth {_whole(row.truth)}  {servers}"


@dataclass
class Score:
    """How good the estimates were, over all slots and servers with both an estimate and a known truth."""

    slots: int = 0
    estimates: int = 0
    inside: int = 0
    error: float = 0.0

    def add(self, row: SlotRow) -> None:
        self.slots += 1
        for one in row.servers:
            total = one.total
            if row.truth is None or total.estimate is None or total.low is None or total.high is None:
                continue
            self.estimates += 1
            self.inside += total.low <= row.truth <= total.high
            self.error += abs(total.estimate - row.truth) / max(row.truth, 1)

    def __str__(self) -> str:
        if not self.estimates:
            return f"{self.slots} slots, no estimates yet."
        return (
            f"{self.slots} slots: mean error {self.error / self.estimates:.1%} of the truth; the 95% intervals held "
            f"the truth in {self.inside} of {self.estimates} estimates ({self.inside / self.estimates:.0%})."
        )


@dataclass
class Board:
    """The live table: the last slots above, the servers below."""

    network: DemoNetwork
    note: str
    score: Score = field(default_factory=Score)
    rows: deque[SlotRow] = field(default_factory=lambda: deque(maxlen=_SHOWN))

    def add(self, row: SlotRow) -> None:
        self.rows.append(row)
        self.score.add(row)

    @property
    def about(self) -> str:
        promise = f"each server promises ε = {self.network.epsilon} in any {self.network.window} slots"
        return f"{self.note}; {promise} (in full: /v1/budget)."

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        end = "The true total is known to this demo only; no node has it. Control-C ends everything."
        return Group(
            Text(self.about, style="dim"),
            "",
            self._slots(),
            "",
            self._servers(),
            "",
            Text(str(self.score)),
            Text(end, "dim"),
        )

    def _slots(self) -> Any:
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("slot", "true total", *(node.name for node in self.network.nodes)):
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.rows:
            cells = [_held(one.total, row.truth) for one in row.servers]
            table.add_row(str(row.slot), _whole(row.truth), *cells)
        if not self.rows:
            table.add_row("…", "", *("" for _ in self.network.nodes))
        return table

    def _servers(self) -> Any:
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for name, side in (("server", "left"), ("API", "left"), ("ε spent", "right"), ("messages", "right")):
            table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
        last = {one.server: one for one in self.rows[-1].servers} if self.rows else {}
        for node in self.network.nodes:
            one = last.get(node.name)
            spent = "" if one is None else f"{one.epsilon_spent:.3f} of {self.network.epsilon}"
            table.add_row(node.name, node.address, spent, "" if one is None else f"{one.messages:,}")
        return table


def _held(total: Total, truth: int | None) -> Any:
    """An interval without the truth in it stands out."""
    from rich.text import Text

    text = _interval(total)
    missed = truth is not None and total.low is not None and total.high is not None
    return Text(text, "yellow" if missed and not total.low <= truth <= total.high else "")  # type: ignore[operator]


def _interval(total: Total) -> str:
    if total.estimate is None or total.high is None:
        return "–"
    return f"{total.estimate:,.0f} ±{total.high - total.estimate:,.0f}"


def _whole(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
