"""The output of a demo: one JSON object per slot, one line of text per slot, or a live table.

The table fits the terminal: if it is too narrow, intervals are written without spaces, then left out, and then fewer
servers are shown; if it is too low, fewer slots, and then fewer servers. A number that lost its last digits to a narrow
column would be worse than none, and so would a table whose end is below the terminal's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dpcrowd.demo.files import DemoNetwork
from dpcrowd.demo.node_client import Total
from dpcrowd.demo.run import SlotRow
from dpcrowd.errors import counted

__all__ = ["Board", "Score", "as_json", "as_text"]

_SHOWN_SLOTS = 12
_FEW_SLOTS = 4
_GAP = 2


def as_json(row: SlotRow) -> str:
    """Return a slot as JSON: totals over regions, which are not clamped, and null without an estimate."""
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
    """Return a slot as a line of text, for an output that is not a terminal."""
    servers = "  ".join(f"{one.server} {_interval(one.total)}" for one in row.servers)
    epsilon, messages = max(one.epsilon_spent for one in row.servers), sum(one.messages for one in row.servers)
    return f"slot {row.slot}  truth {_truth(row.truth)}  {servers}  ε spent up to {epsilon:.3f}  messages {messages:,}"


@dataclass
class Score:
    """The accuracy of the estimates, over all slots and servers with both an estimate and a known truth, and its price.

    scored    how many of the slots have such estimates
    epsilon   the most that any server has spent in its window
    messages  number of messages that all servers have sent since their start
    """

    slots: int = 0
    scored: int = 0
    estimates: int = 0
    inside: int = 0
    error: float = 0.0
    epsilon: float = 0.0
    messages: int = 0

    def add(self, row: SlotRow) -> None:
        self.slots += 1
        self.epsilon = max([self.epsilon, *(one.epsilon_spent for one in row.servers)])
        self.messages = sum(one.messages for one in row.servers)
        before = self.estimates
        for one in row.servers:
            total = one.total
            if row.truth is None or total.estimate is None or total.low is None or total.high is None:
                continue
            self.estimates += 1
            self.inside += total.low <= row.truth <= total.high
            self.error += abs(total.estimate - row.truth) / max(row.truth, 1)
        self.scored += self.estimates > before

    def __str__(self) -> str:
        if not self.estimates:
            return f"{counted(self.slots, 'slot')}, no estimates yet."
        return (
            f"{counted(self.slots, 'slot')}: mean error {self.error / self.estimates:.1%} of the truth; the 95% "
            f"intervals contained the truth in {self.inside} of {self.estimates} estimates "
            f"({self.inside / self.estimates:.0%})."
        )


@dataclass
class Board:
    """The live table: the last slots, and below them the servers."""

    network: DemoNetwork
    note: str
    page: str = ""
    score: Score = field(default_factory=Score)
    rows: deque[SlotRow] = field(default_factory=lambda: deque(maxlen=_SHOWN_SLOTS))

    def add(self, row: SlotRow) -> None:
        self.rows.append(row)
        self.score.add(row)

    @property
    def about(self) -> str:
        promise = f"each server promises ε = {self.network.epsilon} in any {counted(self.network.window, 'slot')}"
        return f"{self.note}; {promise} (complete text: /v1/budget)."

    @property
    def summary(self) -> str:
        """The demo in one sentence: error, coverage, epsilon and messages."""
        score, servers = self.score, len(self.network.nodes)
        price = (
            f"no server spent more than ε = {score.epsilon:.3g} of {self.network.epsilon} in {self.network.window} "
            f"slots, and the {servers} servers sent {score.messages:,} messages"
        )
        if not score.estimates:
            return f"{counted(score.slots, 'slot')} without an estimate whose truth is known; {price}."
        return (
            f"In {counted(score.scored, 'slot')} the estimates were off by {score.error / score.estimates:.1%} on "
            f"average, {score.inside / score.estimates:.0%} of the 95% intervals contained the truth, {price}."
        )

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Draw as much as fits into the terminal: fewer slots, then fewer servers, then no texts."""
        nodes = len(self.network.nodes)
        all_servers = [(slots, nodes) for slots in range(_SHOWN_SLOTS, _FEW_SLOTS - 1, -1)]
        fewer = [(_FEW_SLOTS, servers) for servers in range(nodes - 1, 1, -1)]
        fewer += [(slots, servers) for servers in (1, 0) for slots in range(_FEW_SLOTS, 0, -1)]

        def fits(size: tuple[int, int]) -> bool:
            lines = sum(len(console.render_lines(part, options)) for part in self._draw(options, *size))
            return not console.is_terminal or lines < console.size.height

        # In each of the two lists no size has more lines than the one before it.
        sizes = all_servers if fits(all_servers[-1]) else fewer
        first = bisect_left(sizes, True, key=fits)
        yield from self._draw(options, *sizes[min(first, len(sizes) - 1)])

    def _draw(self, options: Any, slots: int, servers: int) -> Iterator[Any]:
        from rich.text import Text

        if not servers:  # a terminal of a few lines
            yield from self._slots(options.max_width, slots)
            yield Text(str(self.score))
            return
        end = "Only this demo knows the true total; no node has it. Control-C ends everything."
        yield Text(self.about, style="dim")
        if self.page:
            yield Text(f"Live page: {self.page}", style="bold")
        yield ""
        yield from self._slots(options.max_width, slots)
        yield ""
        yield from self._servers(servers)
        yield ""
        yield Text(str(self.score))
        yield Text(end, "dim")

    def _slots(self, width: int, slots: int) -> Iterator[Any]:
        from rich.table import Table
        from rich.text import Text

        write, number = self._layout(width)
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("slot", "truth", *(node.name for node in self.network.nodes[:number])):
            table.add_column(name, justify="right", no_wrap=True)
        for row in list(self.rows)[-slots:]:
            cells = [Text(write(one.total), _style(one.total, row.truth)) for one in row.servers[:number]]
            table.add_row(str(row.slot), _truth(row.truth), *cells)
        if not self.rows:
            table.add_row("…", "", *("" for _ in range(number)))
        yield table
        hidden = len(self.network.nodes) - number
        if hidden:
            yield Text(f"and {hidden} more servers; a wider terminal or --json shows them", "dim")

    def _layout(self, width: int) -> tuple[Callable[[Total], str], int]:
        """Return how numbers are written, and of how many servers: the most informative way that fits the width."""
        first = max(4, *(len(str(row.slot)) for row in self.rows), 0)
        available = width - first - _GAP - max(5, *(len(_truth(row.truth)) for row in self.rows), 0)
        nodes = self.network.nodes
        for write in (_interval, _short_interval, _estimate):
            needed = [
                _GAP + max(len(node.name), *(len(write(row.servers[number].total)) for row in self.rows), 0)
                for number, node in enumerate(nodes)
            ]
            if sum(needed) <= available:
                return write, len(nodes)
        fit = sum(1 for number in range(len(nodes)) if sum(needed[: number + 1]) <= available)
        return _estimate, max(1, fit)

    def _servers(self, shown: int) -> Iterator[Any]:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for name, side in (("server", "left"), ("API", "left"), ("ε spent", "right"), ("messages", "right")):
            table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
        last = {one.server: one for one in self.rows[-1].servers} if self.rows else {}
        for node in self.network.nodes[:shown]:
            one = last.get(node.name)
            budget = "" if one is None else f"{one.epsilon_spent:.3f} of {self.network.epsilon}"
            table.add_row(node.name, node.address, budget, "" if one is None else f"{one.messages:,}")
        yield table
        hidden = len(self.network.nodes) - shown
        if hidden:
            yield Text(f"and {hidden} more; a taller terminal or --json shows them", "dim")


def _style(total: Total, truth: int | None) -> str:
    """Return the colour of an estimate: an interval that does not contain the truth is yellow."""
    if truth is None or total.low is None or total.high is None:
        return ""
    return "" if total.low <= truth <= total.high else "yellow"


def _interval(total: Total) -> str:
    if total.estimate is None or total.high is None:
        return "–"
    return f"{total.estimate:,.0f} ±{total.high - total.estimate:,.0f}"


def _short_interval(total: Total) -> str:
    return _interval(total).replace(",", "").replace(" ", "")


def _estimate(total: Total) -> str:
    return "–" if total.estimate is None else f"{total.estimate:,.0f}"


def _truth(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
