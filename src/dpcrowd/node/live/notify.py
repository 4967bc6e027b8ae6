"""What systemd is told by a service of Type=notify: ready, stopping, alive."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["notify"]


def notify(text: str) -> None:
    """Tell systemd, where it has asked to be told (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect("\0" + address[1:] if address.startswith("@") else address)
        out.send(text.encode())
