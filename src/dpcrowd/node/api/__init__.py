"""The HTTP API of a node: check-ins in, estimates out, and what an operator asks for."""

from __future__ import annotations

from dpcrowd.node.api.app import make_app
from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.rows import SlotEstimates
from dpcrowd.node.api.service import Service, Tokens
from dpcrowd.node.api.views import BudgetView, NeighbourStatus, NetworkStatus, SlotRefusals

__all__ = [
    "Broadcast",
    "BudgetView",
    "Lost",
    "NeighbourStatus",
    "NetworkStatus",
    "Service",
    "SlotEstimates",
    "SlotRefusals",
    "Tokens",
    "make_app",
]
