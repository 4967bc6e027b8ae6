"""A node as a process: checks first, then runs until it is told to stop; every way to end has a number.

0  stopped, by SIGTERM, SIGINT or Control-C
2  wrong input or configuration
3  storage: the folder is in use, damaged, or cannot be written
4  keys, certificates, ports or transport
5  the node broke: a fault of dpcrowd
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.config import NetworkConfig, NodeConfig, load_node, load_pair
from dpcrowd.node.connections.descriptors import raise_limit
from dpcrowd.node.forecast import schedule_warning
from dpcrowd.node.live.health import notify
from dpcrowd.node.live.logs import set_up
from dpcrowd.node.storage import StorageError
from dpcrowd.node.transport.base import TransportFailed

if TYPE_CHECKING:
    from dpcrowd.node.live.node import LiveNode

__all__ = [
    "BROKE",
    "CONFIGURATION",
    "LINKS",
    "STOPPED",
    "STORAGE",
    "check_http_files",
    "check_keys",
    "check_port",
    "notify",
    "run_node",
]

log = logging.getLogger("dpcrowd.node")

STOPPED, CONFIGURATION, STORAGE, LINKS, BROKE = 0, 2, 3, 4, 5
_STDERR = 2


class _CannotLink(DpcrowdError):
    """Keys, certificates or ports do not let the node speak to anybody."""


def run_node(path: Path, say: Callable[[str], None]) -> int:
    """Run the node of a node.toml until a signal; return the exit code.

    `say` gets the one line on why it did not work, unless the log is one of JSON: then that line is JSON, too.
    """
    try:
        node = load_node(path)
        set_up(node.log.format, node.log.level)
        say = _log_end if node.log.format == "json" else say
        node, network = load_pair(path)
        raise_limit()
        for text in (*network.warnings(), *node.warnings(), schedule_warning(network, node.server)):
            if text is not None:
                log.warning(text, extra={"event": "configuration"})
        check_keys(node, network, datetime.now(UTC))
        check_http_files(node, datetime.now(UTC))
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_until_signal(path, node))
        return STOPPED
    except StorageError as error:
        say(f"{error} Then start the node again." if error.kind == "full" else str(error))
        return STORAGE
    except _CannotLink as error:
        say(str(error))
        return LINKS
    except DpcrowdError as error:
        say(str(error))
        return CONFIGURATION
    except (Exception, SystemExit) as error:  # uvicorn calls sys.exit where it cannot listen
        log.critical("the node broke", exc_info=error, extra={"event": "broke"})
        say(f"the node broke ({type(error).__name__}); its log says where. Nothing is drawn twice after a restart.")
        return BROKE


def _log_end(text: str) -> None:
    log.critical(" ".join(text.split()), extra={"event": "ended"})


async def _until_signal(path: Path, node: NodeConfig) -> None:
    from dpcrowd.node.live.open import open_node

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        notify("STOPPING=1")
        stop.set()

    hung_up, terminal = asyncio.Event(), os.isatty(_STDERR)

    def hang_up() -> None:
        if terminal and not os.isatty(_STDERR):  # the window was closed in which it ran
            end()
        else:
            hung_up.set()

    handlers = {signal.SIGTERM: end, signal.SIGINT: end}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = hang_up
    for number, handler in handlers.items():  # before anything is opened: a stop during the start is one too
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_, handler=handler: loop.call_soon_threadsafe(handler))
    with open_node(path) as live:
        check_port(node)  # after the folder: a second start of the same node is told of the first one
        ready = asyncio.create_task(_notify_when_ready(node))
        reloading = asyncio.create_task(_reload_on_signal(live, ready, hung_up))
        try:
            await live.run(stop)
        except TransportFailed as error:
            raise _CannotLink(str(error)) from error
        finally:
            reloading.cancel()
            ready.cancel()


async def _reload_on_signal(live: LiveNode, ready: asyncio.Task[None], hung_up: asyncio.Event) -> None:
    """Reload at every SIGHUP, as `dpcrowd node reload` does; the log has the answer."""
    await ready
    while True:
        await hung_up.wait()
        hung_up.clear()
        try:
            await live.reload()
        except Exception as error:
            own = isinstance(error, DpcrowdError)
            text = f"nothing was reloaded: {error}" if own else "nothing was reloaded"
            log.error(text, exc_info=None if own else error, extra={"event": "reload"})


def check_keys(node: NodeConfig, network: NetworkConfig, now: datetime) -> None:
    """Refuse keys that no neighbour would accept: better before the start than as "handshake failed" in a log."""
    from dpcrowd.node.live.reload import key_problem

    try:
        problem = key_problem(node, network, now)
    except DpcrowdError as error:
        raise _CannotLink(str(error)) from None
    if problem is not None:
        raise _CannotLink(f"{problem.what} {problem.fix}")


def check_http_files(node: NodeConfig, now: datetime) -> None:
    """Refuse a certificate or key of the HTTP API with which nobody could be answered."""
    from dpcrowd.node.keys.checks import https_problem

    certificate, key = node.listen.http_certificate, node.listen.http_key
    problem = None if certificate is None or key is None else https_problem(certificate, key, now)
    if problem is not None:
        raise _CannotLink(f"{problem.what} {problem.fix}")


def check_port(node: NodeConfig) -> None:
    """Refuse a port of the HTTP API that another program has."""
    host, port = node.listen.http_address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        if os.name == "posix":  # a port whose last connections are still in TIME_WAIT is free
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise _CannotLink(
                f"listen.http {node.listen.http}: {reason}; stop what listens there, or set another port."
            ) from None


async def _notify_when_ready(node: NodeConfig) -> None:
    """Tell systemd when the API answers: by then the transport is open, too."""
    host, port = node.listen.http_address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while True:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 1)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        notify("READY=1")
        return


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop where it is installed; None, the standard loop, elsewhere."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
