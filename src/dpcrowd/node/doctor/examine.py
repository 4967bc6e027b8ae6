"""All checks in the order in which they make sense: without a configuration there is nothing else to check."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest, load_pair
from dpcrowd.node.doctor.clock_checks import check_clock, check_synchronised
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.doctor.host_checks import check_disk, check_ports, running_process
from dpcrowd.node.doctor.ledger_checks import LedgerState, read_ledger
from dpcrowd.node.doctor.message_checks import check_heard
from dpcrowd.node.doctor.neighbour_checks import try_neighbours
from dpcrowd.node.doctor.running_checks import Ask, check_deserted, check_running
from dpcrowd.node.doctor.server_checks import (
    check_certificate,
    check_files,
    check_https,
    check_ingest,
    check_sampler,
    check_schedule,
)
from dpcrowd.node.live.revisions import current_revision

__all__ = ["examine"]


def examine(
    path: Path, *, ask: Ask | None = None, timeout: float = 5.0, listen: float = 10.0, now_ns: int | None = None
) -> list[Finding]:
    """Every check of the node of a node.toml; changes nothing, also beside a running node.

    ask      asks the running node; None: it is not asked
    timeout  seconds for a neighbour to answer
    listen   seconds to listen for neighbours' messages, if the node does not run; 0: not at all
    """
    at_ns = time.time_ns() if now_ns is None else now_ns
    try:
        node, network = load_pair(path)
        revisions = current_revision(node, network, at_ns)
    except DpcrowdError as error:
        return [
            problem("configuration", str(error), "Correct the file; 'dpcrowd node schema' describes every setting.")
        ]
    current = revisions.current
    ledger, running = read_ledger(node, current, at_ns), running_process(node.data)
    deserted = [] if running is not None or ask is None else list(check_deserted(node, ask))
    return [
        *_configured(node, current, revisions.following),
        *check_certificate(node, current, datetime.fromtimestamp(at_ns / 1e9, UTC)),
        *check_https(node, datetime.fromtimestamp(at_ns / 1e9, UTC)),
        *check_files(node),
        check_schedule(node, current),
        *check_ingest(node, current),
        *check_sampler(node),
        *check_clock(current, at_ns, ledger.sealed_ns),
        check_synchronised(),
        *check_disk(node),
        *deserted,
        *check_ports(node, running, dialled=_is_dialled(node, current, at_ns), deserted=bool(deserted)),
        *ledger.findings,
        *_around(node, current, ledger, running, ask, timeout, 0.0 if deserted else listen, at_ns),
    ]


def _configured(node: NodeConfig, network: NetworkConfig, following: NetworkConfig | None) -> Iterator[Finding]:
    text = f"'{node.server}' of '{network.id}', revision {network.revision}, digest {digest(network).hex()}."
    yield passed("configuration", text)
    if following is not None:
        text = f"network.toml is already revision {following.revision}, digest {digest(following).hex()}"
        yield note("configuration", f"{text}: valid from slot {following.valid_from_slot} on.")
    yield passed("configuration", f"promised: {network.guarantee()}")
    for warning in (*network.warnings(), *node.warnings()):
        yield note("configuration", warning)


def _is_dialled(node: NodeConfig, network: NetworkConfig, at_ns: int) -> bool:
    """Of two neighbours the one whose name comes first dials."""
    slot = max(network.clock().slot_of(at_ns), 0)
    return any(name < node.server for name in network.neighbours(node.server, slot))


def _around(
    node: NodeConfig,
    network: NetworkConfig,
    ledger: LedgerState,
    running: int | None,
    ask: Ask | None,
    timeout: float,
    listen: float,
    at_ns: int,
) -> Iterator[Finding]:
    """The neighbours: their certificates, then what the running node knows of them, or what is heard in its place."""
    slot = max(network.clock().slot_of(at_ns), 0)
    awaited = []
    for name, finding in try_neighbours(node, network, slot, datetime.fromtimestamp(at_ns / 1e9, UTC), timeout):
        yield finding
        well = finding.outcome in ("passed", "note")
        if name and (well or name < node.server):  # the one whose name comes first dials
            awaited.append(name)
    if running is not None:
        if ask is not None:
            yield from check_running(node, network, ask)
        return
    if listen > 0:
        yield from check_heard(node, network, slot, awaited, ledger.counter, listen)
    else:
        yield skipped("digest", "the neighbours are not listened to: their files and clocks are not compared.")
