"""Checks of this machine: disk and ports, and whether the node is running."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from dpcrowd.node.config import NodeConfig
from dpcrowd.node.config.address import host_and_port
from dpcrowd.node.doctor.findings import Finding, note, passed, problem
from dpcrowd.node.storage.identity import journal_in_the_way
from dpcrowd.node.storage.storage import JOURNAL_FOLDER

__all__ = ["check_disk", "check_ports", "running_process"]

_LEAST_SPACE = 200 << 20


def check_disk(node: NodeConfig) -> Iterator[Finding]:
    """Check the free space and the permissions of the data folder."""
    folder = node.data
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield problem("disk", f"'{folder}' cannot be read: {error.strerror}.", "Check 'data' in node.toml.")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield problem("disk", f"this user cannot write to '{folder}'.", "Check the folder's owner and permissions.")
    elif free < _LEAST_SPACE:
        text = f"'{folder}' has {free >> 20} MiB free; a server that cannot write cannot pay, and stops sampling."
        yield problem("disk", text, f"Free at least {_LEAST_SPACE >> 20} MiB, or shorten retention.releases.")
    else:
        yield passed("disk", f"'{folder}' has {_size(free)} free.")
    if os.path.isfile(node.data / JOURNAL_FOLDER):
        failure = journal_in_the_way(node.data / JOURNAL_FOLDER, running=running_process(node.data) is not None)
        yield problem("disk", f"{failure.reason}.", f"{failure.fix[:1].upper()}{failure.fix[1:]}.")


def check_ports(
    node: NodeConfig, running: int | None, *, dialled: bool = True, lost_folder: bool = False
) -> Iterator[Finding]:
    """Check that the node can listen at its addresses.

    running      the process id of the running node, which may use its ports
    dialled      whether any neighbour dials it
    lost_folder  whether a node that has lost its data folder answers there
    """
    addresses = [("listen.http", *node.listen.http_address)]
    for endpoint in node.listen.transport:
        addresses.append(("listen.transport", *host_and_port("listen.transport", endpoint.partition("/")[2])))
    for setting, host, port in addresses:
        error = _listening_error(host, port)
        if setting == "listen.transport" and not dialled:
            yield _unused(f"{setting} {host}:{port}", error)
        elif error is None and running is not None:
            why = f"although the node is running (process {running}): it is starting or stopping."
            yield passed("ports", f"{setting} {host}:{port} is free, {why}")
        elif error is None:
            yield passed("ports", f"{setting} {host}:{port} is free.")
        elif error == errno.EADDRINUSE and running is not None:
            yield passed("ports", f"{setting} {host}:{port} is in use by the running node (process {running}).")
        elif error == errno.EADDRINUSE and lost_folder:
            yield note("ports", f"{setting} {host}:{port} is in use by the node that has lost its data folder.")
        else:
            fix = f"Stop the program that listens there, or set another {setting} in node.toml."
            text = f"the node cannot listen at {setting} {host}:{port}: {os.strerror(error).lower()}."
            yield problem("ports", text, fix)


def _unused(place: str, error: int | None) -> Finding:
    """Return the finding on a port that the node does not open, since nobody dials it."""
    why = "this server dials all its neighbours, and none of them dials it, so that it does not listen there"
    if error is None:
        return passed("ports", f"{place} is free, and stays free: {why}.")
    reason = os.strerror(error).lower()
    return note("ports", f"{place} cannot be opened ({reason}), which does not matter now: {why}.")


def running_process(data: Path) -> int | None:
    """Return the process that uses the data folder, by the id in its lock file; the lock itself is not touched."""
    try:
        holder = int((data / "node.lock").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    if os.name != "posix":  # elsewhere no harmless signal tells whether it runs
        return holder
    try:
        os.kill(holder, 0)
    except ProcessLookupError:  # it was killed and could not clear its id
        return None
    except OSError:
        return holder
    return holder


def _listening_error(host: str, port: int) -> int | None:
    """Return the number of the error of listening at an address; None if it works."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        return errno.EADDRNOTAVAIL
    try:
        with socket.socket(family, kind, protocol) as trial:
            if os.name == "posix":  # a port with connections in TIME_WAIT is free
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    return None


def _size(count: int) -> str:
    """Return a number of bytes in GiB or MiB."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"
