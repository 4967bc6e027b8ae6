"""The files of a demo: keys, network.toml and one node.toml per server, in one folder, with free ports."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from dpcrowd.demo.crowd import Source
from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_network
from dpcrowd.node.config.kinds import SECOND
from dpcrowd.node.config.samples import sample_names, sample_network, sample_node
from dpcrowd.node.config.tokens import token_hash
from dpcrowd.node.config.values import duration
from dpcrowd.node.keys.signing import key_of_certificate
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.slots import SlotClock, rfc3339
from dpcrowd.sim.planner.live import settings_of_ring

__all__ = ["HOST", "DemoNetwork", "DemoNode", "free_ports", "make_network", "slot_length"]

HOST = "127.0.0.1"
_LONGEST = 3600 * SECOND
_EPSILON, _WINDOW = "1", 24
_DAYS = 90  # of the certificates; a node warns 30 days before they expire
_LEAD = 4  # seconds for the start, and 0.4 more per process: they share the cores of this machine
_GRACE, _DEADLINE = Fraction(1, 5), Fraction(1, 2)  # of a slot


@dataclass(frozen=True)
class DemoNode:
    """One server: its name, its node.toml, the port of its API, and the log file of its process."""

    name: str
    config: Path
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True)
class DemoNetwork:
    """The network of a demo; `token` may send check-ins, and everybody may read."""

    folder: Path
    clock: SlotClock
    epsilon: str
    window: int
    token: str
    nodes: tuple[DemoNode, ...]


def slot_length(text: str) -> int:
    """Return the nanoseconds of `--slot`."""
    try:
        length = int(duration(text))
    except BadInput:
        length = 0
    if not SECOND <= length <= _LONGEST:
        raise BadInput(f"--slot is '{text}'; allowed: a duration from 1s to 1h.")
    return length


def make_network(folder: Path, source: Source, servers: int, length_ns: int, now: datetime) -> DemoNetwork:
    """Write all files into an empty folder.

    Slot 0 opens some seconds later, when the nodes run. On a busy machine the first check-ins come later than that. The
    demo sends something to every node in every slot, so a slot without a request is not sampled, rather than counted as
    empty.
    """
    names, model = sample_names(servers), source.model
    relay = settings_of_ring(servers, model.level, model.process_var, _WINDOW, float(_EPSILON), model.turnover)
    keys = make_trial(folder / "keys", names, now, days=_DAYS)
    ports = free_ports(2 * servers)
    endpoints = {name: f"tls/{HOST}:{port}" for name, port in zip(names, ports[:servers], strict=True)}
    token = secrets.token_urlsafe(24)
    network = folder / "network.toml"
    text = sample_network(
        names,
        network_id="demo",
        epoch=rfc3339((int(now.timestamp()) + _LEAD + servers * 2 // 5) * SECOND),
        slot=_seconds(length_ns),
        grace=_seconds(length_ns * _GRACE),
        deadline=_seconds(length_ns * _DEADLINE),
        population=source.people,
        regions=source.regions,
        length=_WINDOW,
        epsilon=_EPSILON,
        scheme="relay",
        samples=relay.samples,
        reach=relay.reach,
        lag=relay.lag,
        turnover=model.turnover,
        process_var=model.process_var,
        keys={name: key_of_certificate(keys[name].certificate.read_bytes()) for name in names},
        endpoints=endpoints,
    )
    network.write_text(text, encoding="utf-8")
    nodes = []
    for name, port in zip(names, ports[servers:], strict=True):
        home = folder / name
        home.mkdir()
        node = DemoNode(name, home / "node.toml", port, home / "node.log")
        text = sample_node(
            name,
            network="../network.toml",
            data="data",
            key=str(keys[name].key),
            certificate=str(keys[name].certificate),
            ca=str(keys[name].authority),
            transport=endpoints[name],
            http=f"{HOST}:{port}",
            checkin=[token_hash(token)],
            read="open",
            needs_feed=True,
        )
        node.config.write_text(text, encoding="utf-8")
        nodes.append(node)
    return DemoNetwork(folder, load_network(network).clock(), _EPSILON, _WINDOW, token, tuple(nodes))


def free_ports(count: int) -> list[int]:
    """Return different free ports, which the system chooses while all are open."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _seconds(nanoseconds: int | Fraction) -> str:
    milliseconds, rest = divmod(int(nanoseconds), 1_000_000)
    return f"{milliseconds}ms" if not rest else f"{int(nanoseconds) / SECOND:.9f}s"
