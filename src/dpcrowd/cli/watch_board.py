"""The table of `dpcrowd watch`: servers above, regions below, as many as fit into the terminal.

A terminal that is too narrow shows intervals without spaces, then no intervals, then fewer servers; one that is too low
shows fewer regions. What is missing is counted, and no number loses a digit. What is wrong with a server continues on
the next line where it does not fit: its end usually says what to do.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dpcrowd.cli.node_show import is_overdue
from dpcrowd.cli.watch_nodes import NodeState, SlotEstimates
from dpcrowd.client.views import Quality
from dpcrowd.errors import plain

__all__ = ["WatchBoard", "as_json_line", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_GAP = 2
_GAUGE = 10
_LEAST_TREND, _MOST_TREND = 8, 40
_TOTAL = "total"
_ABSENCES = {"away": "away", "refuses": "refusing", "fails": "failing"}  # on a server's line, and in the header
_LEAST_REGIONS, _USUAL_REGIONS = 3, 5
_MOST_LINES = 3  # of one sentence

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
        spare = None if height is None or most is None else _spare_lines(states, height, most)
        lines += _server_lines(states, now, width, most, spare)
        lines += _calibration_lines(states, width)
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
    total, total_half = (math.nan, math.nan) if last is None else last.total
    return msgspec.json.encode(
        {
            "url": state.url,
            "server": None if state.network is None else state.network.server,
            "away_since": state.away_since,
            "problem": state.problem,
            "refused": state.refused,
            "ready": state.ready,
            "slot": None if last is None else last.slot,
            "total": _interval_of(total, total_half),
            "estimates": [{"region": region, **_interval_of(value, half)} for region, value, half in rows],
            "budget": state.budget,
            "quality": state.quality,
            "network": state.network,
        }
    ).decode()


def _interval_of(value: float, half: float) -> dict[str, float | None]:
    return {"estimate": _finite(value), "low": _finite(value - half), "high": _finite(value + half)}


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
    words = [_absence(state) for state in states if state.away_since is not None]
    counts = "".join(f", {words.count(word)} {text}" for word, text in _ABSENCES.items() if word in words)
    parts = [
        ", ".join(names) or "dpcrowd watch",
        f"slot {max(slots)}" if slots else "no slot yet",
        f"{len(states)} server{'' if len(states) == 1 else 's'}{counts}",
        f"{now.astimezone(UTC):%H:%M:%S} UTC",
    ]
    return "  ".join(parts)


def _absence(state: NodeState) -> str:
    """Return in which way a server without a usable answer fails its reader: a word of `_ABSENCES`."""
    return "refuses" if state.refused else "fails" if state.answered else "away"


def _spare_lines(states: Sequence[NodeState], height: int, most: int) -> int:
    """Return how many lines sentences on servers may take beyond their first, so that the usual regions still fit."""
    regions = {name for state in states if state.last is not None for name in state.last.regions}
    servers = 1 + min(len(states), most)
    calibration = any(state.quality is not None for state in states)
    return max(0, height - 4 - servers - calibration - (2 + min(len(regions), _USUAL_REGIONS)) - 2)


def _server_lines(
    states: Sequence[NodeState], now: datetime, width: int, most: int | None, spare: int | None
) -> list[Any]:
    """Return a line per server, and further ones for what does not fit; `spare` limits those, None: no limit."""
    from rich.text import Text

    shown = _worst_first(states, most)
    names = max([len("server"), *(len(plain(state.name)) for state in shown)])
    names = min(names, max(12, width // 3))
    slots = max([len("slot"), *(len(str(state.last.slot)) for state in shown if state.last is not None)])
    indent = names + slots + 2 * _GAP
    lines = [Text(_cut(f"{'server':<{names}}  {'slot':>{slots}}  ready  {'ε spent':<27}  neighbours", width), "bold")]
    for state in shown:
        slot = "–" if state.last is None else str(state.last.slot)
        head = f"{_cut(plain(state.name), names):<{names}}  {slot:>{slots}}  "
        text, style = _state_of(state, now)
        sentences = [(text, style)]
        if state.away_since is None and state.ready is not None:
            sentences += [(plain(reason), "red") for reason in state.ready.problems[:2]]
        for place, (sentence, colour) in enumerate(sentences):
            first = 1 if place == 0 else 0  # the line of the server itself is there anyway
            allowed = _MOST_LINES if spare is None else min(_MOST_LINES, spare + first)
            if allowed == 0:
                break
            parts = _wrap(sentence, width - indent, allowed)
            spare = None if spare is None else spare - (len(parts) - first)
            for part in parts:
                lines.append(Text(_cut(head + part, width), colour))
                head = " " * indent
    if len(shown) < len(states):
        lines.append(
            Text(_cut(f"and {len(states) - len(shown)} more servers; a taller terminal shows them", width), "dim")
        )
    return lines


def _wrap(text: str, width: int, most: int) -> list[str]:
    """Return a sentence as at most `most` lines; what still does not fit is cut."""
    lines = textwrap.wrap(text, max(width, 10), break_on_hyphens=False, max_lines=most, placeholder="…")
    return lines or [""]


def _worst_first(states: Sequence[NodeState], most: int | None) -> list[NodeState]:
    """Return as many states as fit, in their order; if some do not fit, those with a problem are kept."""
    if most is None or len(states) <= most:
        return list(states)

    def rank(state: NodeState) -> int:
        if state.away_since is not None:
            return 0
        if state.network is None or state.ready is None:
            return 3
        return 1 if not state.ready.ready else 3 if _neighbours(state)[1] else 2

    ranked = sorted(range(len(states)), key=lambda number: (rank(states[number]), number))
    return [states[number] for number in sorted(ranked[: most - 1])]


def _state_of(state: NodeState, now: datetime) -> tuple[str, str]:
    """Return the rest of a server's line, and its colour."""
    if state.away_since is not None:
        seconds = max(0, int((now - state.away_since).total_seconds()))
        since = f"{_absence(state)} since {state.away_since.astimezone(UTC):%H:%M:%S} ({_duration(seconds)})"
        return f"{since}: {plain(state.problem)}", "red"
    if state.network is None or state.budget is None or state.ready is None:
        return "not asked yet", "dim"
    budget = state.budget
    gauge = f"{_gauge(budget.spent + budget.blocked, budget.epsilon)} {budget.spent:.3f} of {budget.epsilon:g}"
    neighbours, is_well = _neighbours(state)
    style = "" if state.ready.ready and is_well else "yellow" if state.ready.ready else "red"
    return f"{'yes' if state.ready.ready else 'NO':<5}  {gauge:<27}  {neighbours}", style


def _calibration_lines(states: Sequence[NodeState], width: int) -> list[Any]:
    """Return a line on the intervals of all servers, the wrong ones first; none if no server says anything of them."""
    from rich.text import Text

    known = [(state.name, state.quality) for state in states if state.quality is not None and state.away_since is None]
    if not known:
        return []
    known.sort(key=lambda one: not _is_off(one[1]))  # stable: the end of a long line is cut
    parts = [f"{plain(name)} {_verdict(quality)}" for name, quality in known]
    style = "yellow" if any(_is_off(quality) for _, quality in known) else ""
    return [Text(_cut(f"intervals: {'; '.join(parts)}", width), style)]


def _is_off(quality: Quality) -> bool:
    return quality.verdict == "narrow" or bool(quality.caveats)


def _verdict(quality: Quality) -> str:
    """Return the verdict on a server's intervals in a few words."""
    word = {"calibrated": "about right", "narrow": "TOO NARROW", "wide": "wide", "unknown": "unknown"}[quality.verdict]
    word += ", some values far off" * ("far-off" in quality.caveats)
    word += ", too narrow in single regions" * ("regions" in quality.caveats)
    word += f", without {plain(', '.join(quality.suspected))}" if quality.suspected else ""
    return word if quality.coverage is None else f"{word} ({quality.coverage:.0%} of {quality.values} inside)"


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
    if network.join_disagreement:
        text += f"; contradicting states for a join: {plain(', '.join(network.join_disagreement))}"
    return text, not problems and not network.join_disagreement


# --------------------------------------------------------------------------------------------------------- the regions


def _region_lines(states: Sequence[NodeState], width: int, room: int | None) -> list[Any]:
    """Return a line per region that fits: the total first, then the largest regions in the order of the network."""
    from rich.text import Text

    states = [state for state in states if state.last is not None]  # others have their line above, and no numbers
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
    if trend >= _LEAST_TREND:
        title = f"trend of {names[0]}"
        header += "  " + (title if len(states) > 1 and len(title) <= trend else "trend")
    lines = [Text(_cut(header, width), "bold")]
    for place, (name, row) in enumerate(zip(rows, cells, strict=True)):
        label = _TOTAL if place == 0 else _cut(plain(name), first)
        line = f"{label:<{first}}" + "".join(f"  {write(row[k]):>{widths[k]}}" for k in range(columns))
        if trend >= _LEAST_TREND:
            line += "  " + sparkline(_history(states[0], None if place == 0 else name), trend)
        lines.append(Text(line))
    missing = [f"{len(regions) - len(shown)} more regions"] if len(shown) < len(regions) else []
    missing += [f"{len(states) - columns} more servers"] if columns < len(states) else []
    if missing:
        lines.append(Text(_cut(f"and {' and '.join(missing)}; a larger terminal shows them", width), "dim"))
    return lines


def _largest(regions: Sequence[str], lasts: Sequence[SlotEstimates | None], room: int | None) -> list[str]:
    """Return the regions with the largest estimates, in the order of the network."""
    if room is None or len(regions) <= room:
        return list(regions)
    sizes = dict.fromkeys(regions, -math.inf)
    for last in lasts:
        if last is not None:
            for name, value in zip(last.regions, last.estimate.tolist(), strict=True):
                sizes[name] = max(sizes[name], value) if math.isfinite(value) else sizes[name]
    largest = set(sorted(regions, key=lambda name: -sizes[name])[: max(1, room - 1)])
    return [name for name in regions if name in largest]


def _cell(last: SlotEstimates | None, region: str | None) -> Cell | None:
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
