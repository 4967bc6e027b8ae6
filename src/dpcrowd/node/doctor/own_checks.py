"""Checks of what belongs to this server: its certificate, its files, its ledger and what was promised on it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.config.address import host_and_port
from dpcrowd.node.doctor.findings import Finding, note, passed, problem
from dpcrowd.node.keys.checks import certificate_problems, expires_soon, key_file_problem
from dpcrowd.node.keys.files import read_pem, read_private_key
from dpcrowd.node.keys.signing import public_text
from dpcrowd.node.storage import Promise, Storage
from dpcrowd.privacy.units import format_epsilon

__all__ = ["check_certificate", "check_database", "check_files", "check_promises"]


def check_certificate(node: NodeConfig, network: NetworkConfig, now: datetime) -> Iterator[Finding]:
    """Everything that a neighbour would refuse the certificate for, dates that come near included."""
    me = network.server(node.server)
    try:
        key = public_text(read_private_key(node.keys.key))
        certificate = read_pem(node.keys.certificate, "certificate")
        authority = read_pem(node.keys.ca, "authority's certificate")
    except DpcrowdError as error:
        yield problem(
            "certificate", str(error), "Check [keys] of node.toml; 'dpcrowd keys --help' says who makes what."
        )
        return
    host = host_and_port("endpoint", me.endpoint.partition("/")[2])[0]
    found = certificate_problems(
        certificate, authority, name=me.certificate_name, now=now, key=key, pins=me.keys, host=host
    )
    for one in found:
        yield problem("certificate", one.what, one.fix)
    if found:
        return
    soon = expires_soon(certificate, me.certificate_name, now)
    if soon is not None:
        yield problem("certificate", soon.what, soon.fix)
    else:
        yield passed("certificate", f"'{me.certificate_name}' at {host}, signed by the authority, key pinned.")


def check_files(node: NodeConfig) -> Iterator[Finding]:
    """Private files are their owner's alone."""
    found = 0
    for path in (node.keys.key, node.listen.http_key):
        wrong = None if path is None or not os.path.exists(path) else key_file_problem(path)
        if wrong is not None:
            found += 1
            yield problem("files", wrong.what, wrong.fix)
    if os.name == "posix" and os.path.isdir(node.data):  # False too where one may not look
        mode = stat.S_IMODE(node.data.stat().st_mode)
        if mode & 0o077:
            found += 1
            text = f"the data folder '{node.data}' is open to others (mode {mode:o})."
            yield problem("files", text, f"chmod 700 {node.data}")
    if not found:
        yield passed("files", "the private key and the data folder are their owner's alone.")


def check_database(path: Path, storage: Storage) -> Iterator[Finding]:
    """Reads all of the ledger's database."""
    wrong = storage.problems()
    for text in wrong[:5]:
        fix = "Stop the node, keep the folder for inspection and restore the last backup into an empty folder."
        yield problem("database", f"'{path}': {text}", fix)
    if not wrong:
        storage.ledger.check()
        yield passed("database", f"'{path}' is whole, with {storage.ledger.counter()} payments.")


def check_promises(network: NetworkConfig, storage: Storage, now_ns: int) -> Iterator[Finding]:
    """What all networks on this ledger have spent together, against each of their promises."""
    promises = storage.ledger.promises.all()
    if all(promise.network != network.id for promise in promises):
        yield note("budget", f"network '{network.id}' has not paid into this ledger yet: its promise is not there.")
    for promise in promises:
        spent = _spent(storage, promise, now_ns)
        span = "since its horizon began" if promise.span_ns is None else "in its present window"
        text = (
            f"network '{promise.network}' promises ε={format_epsilon(promise.nano)}; all networks on this ledger "
            f"together have spent {format_epsilon(spent)} {span}."
        )
        if spent > promise.nano:  # a lower epsilon was configured since
            yield note("budget", f"{text} There is no sample until it is within the promise again.")
        else:
            yield passed("budget", text)
    total = format_epsilon(storage.ledger.total_spent())
    yield passed("budget", f"since the ledger began ε={total} was spent, over {max(len(promises), 1)} network(s).")


def _spent(storage: Storage, promise: Promise, now_ns: int) -> int:
    since = promise.since_ns if promise.span_ns is None else now_ns - promise.span_ns
    return sum(entry.nano for entry in storage.ledger.spent_since(since))
