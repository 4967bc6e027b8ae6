"""All checks in the order in which they make sense: without a configuration there is nothing else to check."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest, load_pair
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.doctor.machine_checks import check_clock, check_disk, check_ports, running_process
from dpcrowd.node.doctor.neighbour_checks import check_digest, check_neighbours
from dpcrowd.node.doctor.own_checks import check_certificate, check_database, check_files, check_promises
from dpcrowd.node.storage import Storage, StorageFailed

__all__ = ["examine"]


def examine(path: Path, *, token: str | None = None, timeout: float = 5.0, now_ns: int | None = None) -> list[Finding]:
    """Every check of the node of a node.toml; changes nothing, also beside a running node."""
    try:
        node, network = load_pair(path)
    except DpcrowdError as error:
        return [
            problem("configuration", str(error), "Correct the file; 'dpcrowd node schema' describes every setting.")
        ]
    at_ns = time.time_ns() if now_ns is None else now_ns
    return list(_examine(node, network, token, timeout, at_ns))


def _examine(
    node: NodeConfig, network: NetworkConfig, token: str | None, timeout: float, at_ns: int
) -> Iterator[Finding]:
    now = datetime.fromtimestamp(at_ns / 1e9, UTC)
    text = f"'{node.server}' of '{network.id}', revision {network.revision}, digest {digest(network).hex()}."
    yield passed("configuration", text)
    yield passed("configuration", f"promised: {network.guarantee()}")
    for warning in (*network.warnings(), *node.warnings()):
        yield note("configuration", warning)
    yield from check_certificate(node, network, now)
    yield from check_files(node)
    last_paid, ledger = _ledger(node, network, at_ns)
    yield from check_clock(network, at_ns, last_paid)
    yield from check_disk(node)
    yield from check_ports(node, running_process(node.data))
    yield from ledger
    yield from check_neighbours(node, network, max(network.clock().slot_of(at_ns), 0), now, timeout)
    yield from check_digest(node, network, token, timeout)


def _ledger(node: NodeConfig, network: NetworkConfig, at_ns: int) -> tuple[int | None, list[Finding]]:
    """When the last paid slot opened, and what the ledger's database is like."""
    shared = node.ledger.shared
    where = (node.data if shared is None else shared) / "dpcrowd.db"
    try:
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=shared) as storage:
            findings = list(check_database(where, storage))
            if findings[0].outcome == "problem":
                return None, findings
            findings += check_promises(network, storage, at_ns)
            paid = [entry.opens_ns for entry in storage.ledger.spent_since(0) if entry.kind == "sample"]
            return max(paid, default=None), findings
    except StorageFailed as failure:
        if failure.kind == "missing" and not where.exists():
            return None, [skipped("database", f"'{where}' is not there yet: the node has not run.")]
        return None, [problem("database", f"{failure.reason}.", f"{failure.fix[:1].upper()}{failure.fix[1:]}.")]
    except OSError as error:  # run by another user than the node
        text = f"'{where}' cannot be seen: {error.strerror or type(error).__name__}."
        return None, [problem("database", text, "Run the doctor as the user of the node.")]
