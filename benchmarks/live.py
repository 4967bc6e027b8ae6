"""What the benchmarks of live nodes share: a network in a folder, its processes, their memory and time, and raw HTTP.

Nodes are the processes that an operator would start, with TLS, exact noise, and everything on disk before it is
acknowledged: a ledger in SQLite with synchronous=FULL, and a journal of one file per slot. Their folder is a temporary
one on a disk, not in memory: set TMPDIR where /tmp is in memory, or commits cost nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpcrowd.demo.files import DemoNode, free_ports
from dpcrowd.demo.node_client import NodeClient
from dpcrowd.demo.processes import NodeProcessFailed, Processes, last_lines
from dpcrowd.node.config import load_network, token_hash
from dpcrowd.node.config.samples import sample_network, sample_node
from dpcrowd.node.keys.signing import key_of_certificate
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.slots import SlotClock, rfc3339

__all__ = [
    "TOKEN",
    "LiveNetwork",
    "Usage",
    "cores",
    "make_live",
    "pinned",
    "post",
    "started",
    "state_of_machine",
    "temporary",
    "usage",
]

TOKEN = "a-token-for-this-benchmark"
_HOST = "127.0.0.1"
_SECONDS_TO_START = 180.0


@dataclass(frozen=True)
class LiveNetwork:
    """Files of a network; `grace_ns` after a slot's close it is sealed."""

    clock: SlotClock
    grace_ns: int
    regions: tuple[str, ...]
    nodes: tuple[DemoNode, ...]

    def seals(self, slot: int) -> int:
        return self.clock.closes(slot) + self.grace_ns


def make_live(
    folder: Path,
    names: Sequence[str],
    regions: int,
    links: Sequence[tuple[str, str]],
    *,
    slot: str = "1s",
    grace: str = "100ms",
    deadline: str = "800ms",
    population: int = 20_000,
    window: int = 100,
    every_slot: bool = False,
    relay: int | None = None,
) -> LiveNetwork:
    """Keys, network.toml and a node.toml for every server; slot 0 opened at the last full second.

    every_slot  a fixed interval of 1 slot (DPCrowdW) instead of an adaptive scheme: each slot is paid for
    relay       relay with this many samples per window, instead; records travel to every server
    """
    keys = make_trial(folder / "keys", names, datetime.now(UTC), days=2)
    ports = free_ports(2 * len(names))
    endpoints = {name: f"tls/{_HOST}:{port}" for name, port in zip(names, ports[: len(names)], strict=True)}
    places = tuple(f"region-{number}" for number in range(regions))
    text = sample_network(
        names,
        network_id="bench",
        epoch=rfc3339(time.time_ns() // 10**9 * 10**9),
        slot=slot,
        grace=grace,
        deadline=deadline,
        population=population,
        regions=places,
        length=window,
        scheme="relay" if relay else "dpcrowd-w" if every_slot else "dpcrowd-plus",
        interval=1 if every_slot else None,
        samples=relay,
        reach="all" if relay else None,
        keys={name: key_of_certificate(keys[name].certificate.read_bytes()) for name in names},
        endpoints=endpoints,
    )
    head = text.partition("[[link]]")[0]  # the sample ends with links that are a ring
    joined = "".join(f'[[link]]\nbetween = ["{one}", "{other}"]\n' for one, other in links)
    (folder / "network.toml").write_text(head + joined, encoding="utf-8")
    nodes = []
    for name, port in zip(names, ports[len(names) :], strict=True):
        home = folder / name
        home.mkdir()
        node = DemoNode(name, home / "node.toml", port, home / "node.log")
        text = sample_node(
            name,
            network="../network.toml",
            key=str(keys[name].key),
            certificate=str(keys[name].certificate),
            ca=str(keys[name].authority),
            transport=endpoints[name],
            http=f"{_HOST}:{port}",
            checkin=[token_hash(TOKEN)],
            admin=[token_hash(TOKEN)],
            read="open",
        )
        node.config.write_text(f"{text}\n[ingest]\ncapacity = 20000000\n", encoding="utf-8")
        nodes.append(node)
    network = load_network(folder / "network.toml")
    return LiveNetwork(network.clock(), network.grace_ns, network.regions, tuple(nodes))


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder for the time of a benchmark."""
    made = Path(tempfile.mkdtemp(prefix="dpcrowd-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def started(nodes: Sequence[DemoNode]) -> Iterator[Processes]:
    """The processes of some nodes, once all of them answer."""
    with Processes(nodes) as processes:
        end = time.monotonic() + _SECONDS_TO_START
        for node in nodes:
            client = NodeClient(node, TOKEN)
            while not client.healthy():
                processes.check()
                if time.monotonic() > end:
                    raise NodeProcessFailed(f"{node.name} does not answer.", last_lines(node.log))
                time.sleep(0.05)
            client.close()
        yield processes


# ---------------------------------------------------------------------------------------------------- the machine


def cores() -> list[int]:
    """The cores that this process may use; [] where the system cannot tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """On one core, with all threads and processes that are started inside; None: wherever the system likes."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def state_of_machine() -> str:
    """Before a measurement: what else is going on."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    return f"{len(cores()) or os.cpu_count()} cores; load average before the run (1, 5, 15 minutes): {load}"


@dataclass(frozen=True)
class Usage:
    """Of a process: seconds of processor time since its start, megabytes resident, and of those its own alone."""

    seconds: float
    resident: float
    own: float


def usage(pid: int) -> Usage:
    """From /proc: Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    sizes = {"Rss": 0.0, "Private_Clean": 0.0, "Private_Dirty": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) * 1024 / 1e6
    return Usage(seconds, sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"])


# ------------------------------------------------------------------------------------------------------- requests


def post(path: str, kind: str, body: bytes) -> bytes:
    """A whole request as bytes, made before the clock runs."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {_HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
