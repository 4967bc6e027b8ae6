"""Network addresses in a configuration, checked before anything tries to use them."""

from __future__ import annotations

import re

from dpcrowd.node.config.kinds import InvalidValue

__all__ = ["check_endpoint", "host_and_port", "is_loopback"]

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?):([0-9]{1,5})")


def host_and_port(path: str, text: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[IPv6]:port", without the brackets."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= 65_535:
        raise InvalidValue(path, f"given {_quoted(text)}; allowed: HOST:PORT with a port from 1 to 65535.")
    return match[1].strip("[]"), int(match[3])


def check_endpoint(path: str, text: str) -> None:
    """Refuse what is not an address of the transport; only TLS is allowed, since certificates identify servers."""
    protocol, slash, address = text.partition("/")
    if not slash or protocol != "tls":
        why = " Servers identify each other by their certificates, so there is no transport without TLS."
        raise InvalidValue(path, f'given {_quoted(text)}; allowed: "tls/HOST:PORT".{why if slash else ""}')
    host_and_port(path, address)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _quoted(text: str) -> str:
    plain = repr(text)
    return plain if len(plain) <= 70 else f"{plain[:70]}..."
