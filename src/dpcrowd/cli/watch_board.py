"""The table of `dpcrowd watch`: servers above, regions below, as many as fit into the terminal.

A terminal that is too narrow shows intervals without spaces, then no intervals, then fewer servers; one that is too low
shows fewer regions. What is missing is counted, and no number loses a digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dpcrowd.cli.console import plain
from dpcrowd.cli.node_show import is_overdue
from dpcrowd.cli.watch_nodes import NodeState, Release

__all__ = ["WatchBoard", "as_json_line", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_GAP = 2
_GAUGE = 10
_LEAST_TREND, _MOST_TREND = 8, 40
_TOTAL = "total"
_LEAST_REGIONS = 3

Cell = tuple[float, float]
Writer = Callable[[Cell | None], str]


class WatchBoard:
    """Draws the states that `read` returns; `height` is the number of lines of the terminal, None: no limit."""

    def __init__(
        self,
        read: Callable[[], Sequence[NodeState]],
        height: Callable[[], int] | None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._read, self._height, self._now = read, height, now

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        states, now, width = list(self._read()), self._now(), options.max_width
        height = None if self._height is None else self._height()
        lines = [Text(_cut(_header(states, now), width), "bold"), Text("")]
        most = None if height is None else max(2, (height - 8) // 2)
        lines += _server_lines(states, now, width, most)
        lines.append(Text(""))
        room = None if height is None else max(_LEAST_REGIONS, height - len(lines) - 3)
        lines += _region_lines(states, width, room)
        if height is not None:
            lines.append(Text(_cut("Control-C ends this; the servers go on.", width), "dim"))
            lines = lines[: max(height - 1, 1)]
        for line in lines:
            line.no_wrap = True
            yield line


def as_json_line(state: NodeState) -> str:
    """Return the state of a node as JSON, with the names of the API."""
    last = state.last
    rows = [] if last is None else zip(last.regions, last.estimate.tolist(), last.half.tolist(), strict=True)
    return msgspec.json.encode(
        {
            "url": state.url,
            "server": None if state.network is None else state.network.server,
            "away_since": state.away_since,
            "problem": state.problem,
            "ready": state.ready,
            "slot": None if last is None else last.slot,
            "estimates": [
                {
                    "region": region,
                    "estimate": _finite(value),
                    "low": _finite(value - half),
                    "high": _finite(value + half),
                }
                for region, value, half in rows
            ],
            "budget": state.budget,
            "network": state.network,
        }
    ).decode()


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last values as bars between their least and their largest; a space where nothing is known."""
    shown = list(values)[-width:]
    known = [value for value in shown if math.isfinite(value)]
    if not known:
        return ""
    least, span = min(known), max(known) - min(known)
    steps = len(_BARS) - 1
    return "".join(
        " " if not math.isfinite(value) else _BARS[round((value - least) / span * steps) if span else 0]
        for value in shown
    )


# --------------------------------------------------------------------------------------------------------- the servers


def _header(states: Sequence[NodeState], now: datetime) -> str:
    names = list(dict.fromkeys(plain(state.network.network) for state in states if state.network is not None))
    slots = [state.network.slot for state in states if state.network is not None]
    away = sum(state.away_since is not None for state in states)
    parts = [
        ", ".join(names) or "dpcrowd watch",
        f"slot {max(slots)}" if slots else "no server has answered yet",
        f"{len(states)} server{'' if len(states) == 1 else 's'}" + (f", {away} away" if away else ""),
        f"{now.astimezone(UTC):%H:%M:%S} UTC",
    ]
    return "  ".join(parts)


def _server_lines(states: Sequence[NodeState], now: datetime, width: int, most: int | None) -> list[Any]:
    from rich.text import Text

    shown = _worst_first(states, most)
    names = max([len("server"), *(len(plain(state.name)) for state in shown)])
    names = min(names, max(12, width // 3))
    slots = max([len("slot"), *(len(str(state.last.slot)) for state in shown if state.last is not None)])
    lines = [Text(_cut(f"{'server':<{names}}  {'slot':>{slots}}  ready  {'ε spent':<27}  neighbours", width), "bold")]
    for state in shown:
        slot = "–" if state.last is None else str(state.last.slot)
        head = f"{_cut(plain(state.name), names):<{names}}  {slot:>{slots}}  "
        text, style = _state_of(state, now)
        lines.append(Text(_cut(head + text, width), style))
        reasons = state.ready.problems if state.away_since is None and state.ready is not None else ()
        if most is None or len(states) <= 2:
            lines += [Text(_cut(f"{'':<{names}}  {plain(reason)}", width), "red") for reason in reasons[:2]]
    if len(shown) < len(states):
        lines.append(
            Text(_cut(f"and {len(states) - len(shown)} more servers; a taller terminal shows them", width), "dim")
        )
    return lines


def _worst_first(states: Sequence[NodeState], most: int | None) -> list[NodeState]:
    """Return as many states as fit, in their order; if some do not fit, those with a problem are kept."""
    if most is None or len(states) <= most:
        return list(states)
    ranked = sorted(range(len(states)), key=lambda number: (states[number].away_since is None, number))
    return [states[number] for number in sorted(ranked[: most - 1])]


def _state_of(state: NodeState, now: datetime) -> tuple[str, str]:
    """Return the rest of a server's line, and its colour."""
    if state.away_since is not None:
        seconds = max(0, int((now - state.away_since).total_seconds()))
        word = "refuses" if state.refused else "away"
        since = f"{word} since {state.away_since.astimezone(UTC):%H:%M:%S} ({_duration(seconds)})"
        return f"{since}: {plain(state.problem)}", "red"
    if state.network is None or state.budget is None or state.ready is None:
        return "not asked yet", "dim"
    budget = state.budget
    gauge = f"{_gauge(budget.spent + budget.blocked, budget.epsilon)} {budget.spent:.3f} of {budget.epsilon:g}"
    neighbours, is_well = _neighbours(state)
    style = "" if state.ready.ready and is_well else "yellow" if state.ready.ready else "red"
    return f"{'yes' if state.ready.ready else 'NO':<5}  {gauge:<27}  {neighbours}", style


def _gauge(used: float, limit: float) -> str:
    filled = min(_GAUGE, max(0, round(used / limit * _GAUGE))) if limit > 0 else 0
    return "█" * filled + "░" * (_GAUGE - filled)


def _neighbours(state: NodeState) -> tuple[str, bool]:
    """Return how many neighbours are connected, servers with a problem by name, and whose word the estimate is."""
    network = state.network
    assert network is not None
    problems: dict[str, list[str]] = {
        one.name: []  # broken servers first, since the end of a long line is cut
        for one in network.servers
        if one.suspected_since is not None or one.equivocation is not None
    }
    for near in network.neighbours:
        if not near.connected:
            silent = "never heard" if near.last_slot is None else f"silent since slot {near.last_slot}"
            problems.setdefault(near.name, []).append(silent)
    for one in network.servers:
        texts = ["signed two records"] if one.equivocation is not None else []
        texts += ["suspected"] if one.suspected_since is not None else []
        if one.missing:
            texts += ["missing"]
        elif one.name not in problems and is_overdue(one.overdue, network.slot):
            texts += [f"overdue since slot {one.overdue}"]
        if texts:
            problems.setdefault(one.name, []).extend(texts)
    text = f"{sum(one.connected for one in network.neighbours)} of {len(network.neighbours)}"
    if problems:
        text += ": " + "; ".join(f"{plain(name)} {', '.join(texts)}" for name, texts in problems.items())
    if network.joined_from:
        text += f"; joined by the word of {plain(', '.join(network.joined_from))} in slot {network.joined_slot}"
    return text, not problems


# --------------------------------------------------------------------------------------------------------- the regions


def _region_lines(states: Sequence[NodeState], width: int, room: int | None) -> list[Any]:
    """Return a line per region that fits: the total first, then the largest regions in the order of the network."""
    from rich.text import Text

    lasts = [state.last for state in states]
    regions = list(dict.fromkeys(name for last in lasts if last is not None for name in last.regions))
    if not regions:
        return [Text(_cut("no estimates yet", width), "dim")]
    shown = _largest(regions, lasts, room)
    rows = [_TOTAL, *shown]
    first = max(len("region"), *(len(plain(name)) for name in rows))
    first = min(first, max(10, width // 3))
    cells = [[_cell(last, None if place == 0 else name) for last in lasts] for place, name in enumerate(rows)]
    names = [plain(state.name) for state in states]
    write, columns = _layout(names, cells, width - first)
    widths = [max(len(_cut(names[k], 24)), *(len(write(row[k])) for row in cells)) for k in range(columns)]
    used = first + sum(_GAP + one for one in widths)
    trend = min(_MOST_TREND, width - used - _GAP)
    header = f"{'region':<{first}}" + "".join(f"  {_cut(names[k], 24):>{widths[k]}}" for k in range(columns))
    guide = next((number for number, last in enumerate(lasts) if last is not None), 0)
    if trend >= _LEAST_TREND:
        title = "trend" if len(states) == 1 else f"trend of {names[guide]}"
        header += "  " + _cut(title, trend)
    lines = [Text(_cut(header, width), "bold")]
    for place, (name, row) in enumerate(zip(rows, cells, strict=True)):
        label = _TOTAL if place == 0 else _cut(plain(name), first)
        line = f"{label:<{first}}" + "".join(f"  {write(row[k]):>{widths[k]}}" for k in range(columns))
        if trend >= _LEAST_TREND:
            line += "  " + sparkline(_history(states[guide], None if place == 0 else name), trend)
        lines.append(Text(line))
    missing = [f"{len(regions) - len(shown)} more regions"] if len(shown) < len(regions) else []
    missing += [f"{len(states) - columns} more servers"] if columns < len(states) else []
    if missing:
        lines.append(Text(_cut(f"and {' and '.join(missing)}; a larger terminal shows them", width), "dim"))
    return lines


def _largest(regions: Sequence[str], lasts: Sequence[Release | None], room: int | None) -> list[str]:
    """Return the regions with the largest estimates, in the order of the network."""
    if room is None or len(regions) <= room:
        return list(regions)
    sizes = dict.fromkeys(regions, -math.inf)
    for last in lasts:
        if last is not None:
            for name, value in zip(last.regions, last.estimate.tolist(), strict=True):
                sizes[name] = max(sizes[name], value) if math.isfinite(value) else sizes[name]
    kept = set(sorted(regions, key=lambda name: -sizes[name])[: max(1, room - 1)])
    return [name for name in regions if name in kept]


def _cell(last: Release | None, region: str | None) -> Cell | None:
    """Return the estimate and half of its interval, of a region or in total; None: nothing is known."""
    if last is None or (region is not None and region not in last.regions):
        return None
    if region is None:
        value, half = last.total
    else:
        place = last.regions.index(region)
        value, half = float(last.estimate[place]), float(last.half[place])
    return (value, half) if math.isfinite(value) else None


def _history(state: NodeState, region: str | None) -> list[float]:
    cells = [_cell(release, region) for release in state.releases]
    return [math.nan if cell is None else cell[0] for cell in cells]


def _layout(names: Sequence[str], cells: Sequence[Sequence[Cell | None]], available: int) -> tuple[Writer, int]:
    """Return how numbers are written, and of how many servers: the most informative way that fits."""
    needed: list[int] = []
    for write in (_interval, _short_interval, _estimate):
        needed = [
            _GAP + max(min(len(name), 24), *(len(write(row[place])) for row in cells))
            for place, name in enumerate(names)
        ]
        if sum(needed) <= available:
            return write, len(names)
    return _estimate, max(1, sum(1 for place in range(len(names)) if sum(needed[: place + 1]) <= available))


def _interval(cell: Cell | None) -> str:
    return "–" if cell is None else f"{cell[0]:,.0f} ±{cell[1]:,.0f}"


def _short_interval(cell: Cell | None) -> str:
    return _interval(cell).replace(",", "").replace(" ", "")


def _estimate(cell: Cell | None) -> str:
    return "–" if cell is None else f"{cell[0]:,.0f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _duration(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
