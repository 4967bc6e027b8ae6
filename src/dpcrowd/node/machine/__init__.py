"""The protocol as a state machine without I/O."""

from __future__ import annotations

from dpcrowd.node.machine.machine import Machine
from dpcrowd.node.machine.revision import NetworkView, Revision

__all__ = ["Machine", "NetworkView", "Revision"]
