"""A network from the text of a file: a list of links, or a 0/1 matrix.

    a,b,latency_ms          one link per line, servers numbered from 0; the header and the latency may be left out
    0,1,100.5

    0 1 1                   row i says whom server i hears; symmetric, zeros on the diagonal
    1 0 0
    1 0 0

Fields are separated by commas or by white space; empty lines and lines that begin with # are skipped. A square of
zeros and ones is a matrix: read as links it would repeat one or link a server to itself, so nothing is ambiguous.
"""

from __future__ import annotations

import math

import numpy as np

from dpcrowd.errors import BadInput, counted
from dpcrowd.network.checks import check_servers
from dpcrowd.network.graph import Graph

__all__ = ["parse_adjacency"]

Line = tuple[int, list[str]]  # (line number in the file, fields)


def parse_adjacency(text: str, servers: int | None = None) -> Graph:
    """Return the network that `text` describes; `servers`, if given, is the number of servers that it must have."""
    if servers is not None:
        check_servers(servers)
    lines = [
        (number, [field.strip() for field in (line.split(",") if "," in line else line.split())])
        for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    headed = bool(lines) and not any(_is_number(field) for field in lines[0][1])
    if headed:
        lines = lines[1:]
    if not lines:
        raise BadInput("the network file is empty; give links 'a,b[,latency_ms]' or a 0/1 matrix.")
    square = len(lines) == len(lines[0][1]) and all(field in ("0", "1") for _, fields in lines for field in fields)
    if not headed and (square or len(lines[0][1]) not in (2, 3)):
        return _matrix(lines, servers)
    return _links(lines, servers)


def _matrix(lines: list[Line], servers: int | None) -> Graph:
    size = len(lines)
    rows = np.zeros((size, size), dtype=np.bool_)
    for row, (number, fields) in enumerate(lines):
        if len(fields) != size:
            raise BadInput(
                f"line {number}: {counted(len(fields), 'column')} in a matrix of {counted(size, 'row')}; make it "
                "square."
            )
        for column, field in enumerate(fields):
            if field not in ("0", "1"):
                raise BadInput(f"line {number}, column {column + 1}: '{field}' in the matrix; allowed: 0 or 1.")
        rows[row] = [field == "1" for field in fields]
    if servers is not None and servers != size:
        raise BadInput(f"the matrix has {counted(size, 'server')}, but {servers} were asked for; make them equal.")
    check_servers(size)
    loops = np.flatnonzero(rows.diagonal())
    if loops.size:
        raise BadInput(f"line {lines[loops[0]][0]}: server {loops[0]} hears itself; put 0 on the diagonal.")
    skew = np.argwhere(rows & ~rows.T)
    if skew.size:
        a, b = (int(end) for end in skew[0])
        raise BadInput(
            f"line {lines[a][0]}: server {a} hears {b}, but line {lines[b][0]} says that {b} does not hear {a}; "
            "make the matrix symmetric."
        )
    silent = np.flatnonzero(~rows.any(axis=1))
    if silent.size:
        raise BadInput(f"line {lines[silent[0]][0]}: server {silent[0]} has no link; give every server at least one.")
    sources, targets = np.nonzero(np.triu(rows))
    return Graph.from_edges(size, sources, targets)


def _links(lines: list[Line], servers: int | None) -> Graph:
    width = len(lines[0][1])
    line_of: dict[tuple[int, int], int] = {}
    delays: list[float] = []
    for number, fields in lines:
        if len(fields) != width or width not in (2, 3):
            allowed = f"{width} as in the first line" if width in (2, 3) else "2 or 3 (a,b[,latency_ms])"
            raise BadInput(f"line {number}: {len(fields)} fields; allowed: {allowed}.")
        a, b = (_server(number, field, servers) for field in fields[:2])
        if a == b:
            raise BadInput(f"line {number}: server {a} is linked to itself; leave self-loops out.")
        pair = (min(a, b), max(a, b))
        if pair in line_of:
            raise BadInput(f"line {number}: the link {a},{b} is already on line {line_of[pair]}; give each link once.")
        line_of[pair] = number
        if width == 3:
            delays.append(_delay(number, fields[2]))
    ends = np.array(list(line_of), dtype=np.int64)
    size = int(ends.max()) + 1 if servers is None else servers
    linked = np.unique(ends)  # not a table of all numbers: a mistyped server must not cost memory
    if linked.size < size:
        gaps = np.flatnonzero(linked != np.arange(linked.size))
        missing = int(gaps[0]) if gaps.size else linked.size
        more = f" and {size - linked.size - 1} more" if size - linked.size > 1 else ""
        raise BadInput(f"no link at server {missing}{more} of {size}; number servers from 0 and link every one.")
    return Graph.from_edges(size, ends[:, 0], ends[:, 1], delays if width == 3 else None)


def _server(number: int, field: str, servers: int | None) -> int:
    if not (field.isascii() and field.isdigit() and len(field) <= 9):
        raise BadInput(f"line {number}: '{field}' is not a server; allowed: whole numbers from 0 to 999999999.")
    server = int(field)
    if servers is not None and server >= servers:
        raise BadInput(f"line {number}: unknown server {server}; allowed: 0 to {servers - 1}.")
    return server


def _delay(number: int, field: str) -> float:
    delay = float(field) if _is_number(field) else math.nan
    if not 0.0 < delay < math.inf:
        raise BadInput(f"line {number}: a latency of '{field}'; allowed: a number of milliseconds above 0.")
    return delay


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
