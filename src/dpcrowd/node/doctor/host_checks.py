"""Checks of this machine: disk and ports, and whether the node runs already."""

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
    """Room and rights of the data folder."""
    folder = node.data
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield problem("disk", f"'{folder}' cannot be seen: {error.strerror}.", "Check 'data' in node.toml.")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield problem("disk", f"'{folder}' cannot be written by this user.", "Check the folder's owner and rights.")
    elif free < _LEAST_SPACE:
        text = f"'{folder}' has {free >> 20} MiB left; a server that cannot write cannot pay, and stops sampling."
        yield problem("disk", text, f"Free at least {_LEAST_SPACE >> 20} MiB, or shorten retention.releases.")
    else:
        yield passed("disk", f"'{folder}' has {_size(free)} left.")
    if os.path.isfile(node.data / JOURNAL_FOLDER):
        failure = journal_in_the_way(node.data / JOURNAL_FOLDER, running=running_process(node.data) is not None)
        yield problem("disk", f"{failure.reason}.", f"{failure.fix[:1].upper()}{failure.fix[1:]}.")


def check_ports(
    node: NodeConfig, running: int | None, *, dialled: bool = True, deserted: bool = False
) -> Iterator[Finding]:
    """Whether the node can listen where it should.

    running   the process id of the node, which may hold its ports
    dialled   whether any neighbour dials it
    deserted  whether a node answers there that has lost its data folder
    """
    wanted = [("listen.http", *node.listen.http_address)]
    for endpoint in node.listen.transport:
        wanted.append(("listen.transport", *host_and_port("listen.transport", endpoint.partition("/")[2])))
    for setting, host, port in wanted:
        reason = _why_not(host, port)
        if reason is None and running is not None:
            why = f"although the node runs (process {running}): it starts or stops just now."
            if setting == "listen.transport" and not dialled:
                why = "and stays so: this server dials all its neighbours, none of them dials it."
            yield passed("ports", f"{setting} {host}:{port} is free, {why}")
        elif reason is None:
            yield passed("ports", f"{setting} {host}:{port} is free.")
        elif reason == errno.EADDRINUSE and running is not None:
            yield passed("ports", f"{setting} {host}:{port} is in use, and the node runs (process {running}).")
        elif reason == errno.EADDRINUSE and deserted:
            yield note("ports", f"{setting} {host}:{port} is in use by the node that has lost its data folder.")
        else:
            fix = f"Stop what listens there, or set another {setting} in node.toml."
            yield problem("ports", f"{setting} {host}:{port}: {os.strerror(reason).lower()}.", fix)


def running_process(data: Path) -> int | None:
    """The process that holds the data folder, by the id in its lock file; the lock itself is left alone."""
    try:
        holder = int((data / "node.lock").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    if os.name != "posix":  # elsewhere there is no harmless signal to ask with
        return holder
    try:
        os.kill(holder, 0)
    except ProcessLookupError:  # it was killed and could not clear its id
        return None
    except OSError:
        return holder
    return holder


def _why_not(host: str, port: int) -> int | None:
    """The number of the error of listening here; None if it works."""
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
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"
