"""All checks of a server, in order: without a configuration there is nothing else to check."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dpcrowd.errors import DpcrowdError
from dpcrowd.models.file import model_digest
from dpcrowd.node.build import stored_join, stored_models
from dpcrowd.node.config import FormerModel, NetworkConfig, NodeConfig, digest, earlier_models, load_pair, promise_in
from dpcrowd.node.doctor.clock_checks import check_clock, check_synchronised
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.doctor.host_checks import check_disk, check_ports, running_process
from dpcrowd.node.doctor.ledger_checks import LedgerState, read_ledger
from dpcrowd.node.doctor.message_checks import check_messages
from dpcrowd.node.doctor.neighbour_checks import try_neighbours
from dpcrowd.node.doctor.running_checks import Ask, check_lost_folder, check_running
from dpcrowd.node.doctor.server_checks import (
    check_certificate,
    check_files,
    check_https,
    check_ingest,
    check_map,
    check_sampler,
    check_schedule,
)
from dpcrowd.node.live.revisions import Revisions, current_revision
from dpcrowd.node.storage import Storage
from dpcrowd.schemes.server import Joined

__all__ = ["examine"]


def examine(
    path: Path, *, ask: Ask | None = None, timeout: float = 5.0, listen: float = 10.0, now_ns: int | None = None
) -> list[Finding]:
    """Make every check of the server that a node.toml describes; change nothing, even while the node runs.

    ask      asks the running node; None: do not ask it
    timeout  seconds for a neighbour to answer
    listen   seconds to listen for messages of neighbours if the node is not running; 0: do not listen
    """
    at_ns = time.time_ns() if now_ns is None else now_ns
    try:
        node, network = load_pair(path)
        revisions = current_revision(node, network, at_ns, _heard_until(node, network))
    except DpcrowdError as error:
        fix = "Correct the file; 'dpcrowd node schema' describes every setting."
        if ": scheme.model: " in str(error):
            fix = "Put a model there that 'dpcrowd fit' wrote, the same at all servers, or correct 'model' in [scheme]."
        elif ": network.revision: " in str(error):
            fix = "Put the network.toml there, and the model that it names, that the other servers have."
        if not path.exists():
            fix = "Give the path of an existing node.toml."
        elif "cannot be read: No such file" in str(error):
            place = (
                "'model' in [scheme] of network.toml"
                if ": scheme.model: " in str(error)
                else "the path to it in node.toml"
            )
            fix = f"Put the file there, or correct {place}."
        return [problem("configuration", str(error), fix)]
    current = revisions.current
    ledger, running = read_ledger(node, current, at_ns), running_process(node.data)
    lost_folder = [] if running is not None or ask is None else list(check_lost_folder(node, ask))
    return [
        *_check_configuration(node, revisions, at_ns),
        *check_certificate(node, current, datetime.fromtimestamp(at_ns / 1e9, UTC)),
        *check_https(node, datetime.fromtimestamp(at_ns / 1e9, UTC)),
        *check_files(node),
        check_schedule(node, current),
        *check_ingest(node, current),
        *check_map(node, current),
        *check_sampler(node),
        *check_clock(current, at_ns, ledger.sealed_ns),
        check_synchronised(),
        *check_disk(node),
        *lost_folder,
        *check_ports(node, running, dialled=_is_dialled(node, current, at_ns), lost_folder=bool(lost_folder)),
        *ledger.findings,
        *_check_neighbours(node, current, ledger, running, ask, timeout, 0.0 if lost_folder else listen, at_ns),
    ]


def _heard_until(node: NodeConfig, network: NetworkConfig) -> int | None:
    """Return the last slot in which a neighbour has reported something new; None: the node runs, or nobody can know."""
    if running_process(node.data) is not None:
        return None
    try:
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
            return storage.memory.heard_until()
    except (DpcrowdError, OSError):  # the check of the ledger says what is wrong with it
        return None


def _behind_estimates(node: NodeConfig, network: NetworkConfig) -> tuple[tuple[FormerModel, ...], Joined | None]:
    """Return the models of earlier revisions that the ledger's database knows, and whose word the estimates began with;
    nothing if it cannot be read.
    """
    try:
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
            return stored_models(storage), stored_join(storage)
    except (DpcrowdError, OSError):  # the check of the ledger says what is wrong with it
        return (), None


def _check_configuration(node: NodeConfig, revisions: Revisions, at_ns: int) -> Iterator[Finding]:
    network, following = revisions.current, revisions.following
    text = f"'{node.server}' of '{network.id}', revision {network.revision}, digest {digest(network).hex()}."
    yield passed("configuration", text)
    if revisions.corrected:
        text = "the model file is another one than when the node ran last; it is used from the next start on, since no"
        yield note("configuration", f"{text} neighbour has accepted the one before.")
    if network.fitted is not None:
        yield passed("configuration", f"the model has the digest {model_digest(network.fitted)[:32]}.")
    if following is not None:
        text = f"network.toml is already at revision {following.revision}, digest {digest(following).hex()}"
        yield note("configuration", f"{text}, which is valid from slot {following.valid_from_slot} on.")
    slot = max(network.clock().slot_of(at_ns), 0)
    known, joined = _behind_estimates(node, network)
    models = earlier_models(known, revisions.chain, slot if revisions.corrected else 0)
    yield passed("configuration", f"promised: {promise_in(network, models, slot, joined)}")
    for warning in (*network.warnings(), *node.warnings()):
        yield note("configuration", warning)


def _is_dialled(node: NodeConfig, network: NetworkConfig, at_ns: int) -> bool:
    """Whether a neighbour dials this server: of two neighbours the one whose name comes first dials."""
    slot = max(network.clock().slot_of(at_ns), 0)
    return any(name < node.server for name in network.neighbours(node.server, slot))


def _check_neighbours(
    node: NodeConfig,
    network: NetworkConfig,
    ledger: LedgerState,
    running: int | None,
    ask: Ask | None,
    timeout: float,
    listen: float,
    at_ns: int,
) -> Iterator[Finding]:
    """Check the neighbours' certificates, then what the running node knows of them, or else the messages they send."""
    slot = max(network.clock().slot_of(at_ns), 0)
    expected = []
    for name, finding in try_neighbours(node, network, slot, datetime.fromtimestamp(at_ns / 1e9, UTC), timeout):
        yield finding
        reachable = finding.outcome in ("passed", "note")
        if name and (reachable or name < node.server):  # the one whose name comes first dials
            expected.append(name)
    if running is not None:
        if ask is not None:
            yield from check_running(node, network, ask)
        return
    if listen > 0:
        yield from check_messages(node, network, slot, expected, ledger.counter, listen)
    else:
        yield skipped(
            "digest",
            "the doctor does not listen to the neighbours (--listen 0): their files and clocks are not compared.",
        )
