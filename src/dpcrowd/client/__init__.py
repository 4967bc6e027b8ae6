"""Python access to the HTTP API of a running node: `Client`, and `AsyncClient` for asyncio."""

from __future__ import annotations

from dpcrowd.client.aio import AsyncClient
from dpcrowd.client.client import Client
from dpcrowd.client.delivery import Delivery, RefusedRow
from dpcrowd.client.errors import (
    NodeBusy,
    NodeError,
    NodeFailed,
    NodeUnreachable,
    NotAllowed,
    NotTaken,
    RequestRefused,
    RowsRefused,
)
from dpcrowd.client.tables import Estimates
from dpcrowd.client.views import (
    Budget,
    LearnedShare,
    Neighbour,
    Network,
    NetworkServer,
    Proof,
    Quality,
    Ready,
    RefusedCheckins,
    RegionQuality,
    SignedBytes,
)

__all__ = [
    "AsyncClient",
    "Budget",
    "Client",
    "Delivery",
    "Estimates",
    "LearnedShare",
    "Neighbour",
    "Network",
    "NetworkServer",
    "NodeBusy",
    "NodeError",
    "NodeFailed",
    "NodeUnreachable",
    "NotAllowed",
    "NotTaken",
    "Proof",
    "Quality",
    "Ready",
    "RefusedCheckins",
    "RefusedRow",
    "RegionQuality",
    "RequestRefused",
    "RowsRefused",
    "SignedBytes",
]
