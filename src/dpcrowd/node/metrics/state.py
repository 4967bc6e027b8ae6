"""The state of a node as metrics, set at each scrape from the views of the API."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from dpcrowd.node.api.views import BudgetView, NetworkStatus, QualityView, Verdict
from dpcrowd.node.metrics import families
from dpcrowd.node.metrics.registry import Registry
from dpcrowd.node.storage import StorageError

__all__ = ["free_bytes", "set_budget", "set_network", "set_storage"]


def set_budget(registry: Registry, view: BudgetView) -> None:
    """Set the metrics of the budget, as the ledger has it."""
    registry.set(families.MAY_SAMPLE, view.samples)
    registry.set(families.GUARANTEE_INFO, 1, kind=view.kind, length=str(view.length))
    registry.set(families.EPSILON, view.epsilon)
    registry.set(families.EPSILON_SPENT, view.spent)
    registry.set(families.EPSILON_BLOCKED, view.blocked)
    registry.set(families.EPSILON_REMAINING, view.remaining)
    registry.set(families.EPSILON_SPENT_TOTAL, view.total_spent)


def set_network(registry: Registry, status: NetworkStatus, offsets: Mapping[str, float]) -> None:
    """Set the metrics of the network, from the answer of `/v1/network`, and those of the neighbours' clocks."""
    registry.set(families.SLOT, status.slot)
    registry.set(families.BUILD_INFO, 1, version=status.version, python=platform.python_version())
    registry.set(
        families.NETWORK_INFO,
        1,
        network=status.network,
        server=status.server,
        revision=str(status.revision),
        digest=status.digest,
    )
    registry.set_counts(families.MESSAGES_REFUSED, status.refused_messages)
    for neighbour in status.neighbours:
        registry.set(families.NEIGHBOUR_UP, neighbour.connected, neighbour=neighbour.name)
        if neighbour.name in offsets:
            registry.set(families.CLOCK_OFFSET, offsets[neighbour.name], neighbour=neighbour.name)
    registry.set_counts(families.MESSAGES_BY_KIND, status.messages_sent)
    if status.lag is not None:
        _set_records(registry, status)


def _set_records(registry: Registry, status: NetworkStatus) -> None:
    """Set the metrics of a network whose servers pass records on."""
    for neighbour in status.neighbours:
        registry.set(families.RECORDS_RECEIVED, neighbour.records_received, neighbour=neighbour.name)
        registry.set(families.RECORDS_FORWARDED, neighbour.records_forwarded, neighbour=neighbour.name)
        registry.set(families.RECORDS_LATE, neighbour.records_late, neighbour=neighbour.name)
    for name in status.joined_from:
        assert status.joined_slot is not None
        registry.set(families.JOINED_SLOT, status.joined_slot, neighbour=name)
    for name in status.join_disagreement:
        registry.set(families.JOIN_DISAGREEMENT, 1, neighbour=name)
    refused: Counter[str] = Counter()
    for server in status.servers:
        refused.update(server.records_refused)
        registry.set(families.SERVER_MISSING, server.missing, server=server.name)
        registry.set(families.SERVER_SUSPECTED, server.suspected_since is not None, server=server.name)
        registry.set(families.SERVER_EQUIVOCATES, server.equivocation is not None, server=server.name)
    registry.set_counts(families.RECORDS_REFUSED, refused)


def set_quality(registry: Registry, view: QualityView) -> None:
    """Set the metrics of the calibration, from the answer of `/v1/quality`; without records there is none."""
    registry.set(families.CALIBRATION_VALUES, view.values)
    for verdict in get_args(Verdict):
        registry.set(families.CALIBRATION_VERDICT, verdict == view.verdict, verdict=verdict)
    registry.set(families.CALIBRATION_NARROW_REGIONS, sum(region.narrow for region in view.regions))
    if view.coverage is not None and view.calibration is not None:
        registry.set(families.CALIBRATION_COVERAGE, view.coverage)
        registry.set(families.CALIBRATION_RATIO, view.calibration)


def set_storage(registry: Registry, failure: StorageError | None, free: int | None) -> None:
    """Set whether the node can write, and how much space is free on its disk."""
    registry.set(families.STORAGE_UP, failure is None)
    if free is not None:
        registry.set(families.STORAGE_FREE, free)


def free_bytes(folder: Path) -> int | None:
    """Return the free space on the disk of a folder; None if it cannot be read."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
