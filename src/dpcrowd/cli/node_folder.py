"""What the tools of a node do with its data folder, without asking the node."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_pair
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.units import format_epsilon, from_nano

__all__ = ["NewHorizon", "backup_folder", "budget_of_folder"]


def budget_of_folder(file: Path) -> dict[str, Any]:
    """The answer of /v1/budget, from the ledger of a node that does not run."""
    from dpcrowd.node.live.status import budget
    from dpcrowd.node.machine.trust import Trust

    node, network = load_pair(file)
    with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        view = budget(network, storage, Trust(storage.ledger.counter()), time.time_ns())
    answer: dict[str, Any] = msgspec.to_builtins(view)
    return {**answer, "text": "the node does not answer; this is what its folder says."}


def backup_folder(file: Path, to: Path) -> int:
    """One new file; the number of the last payment in it."""
    node, network = load_pair(file)
    if os.path.lexists(to):
        raise BadInput(f"'{to}' is already there and is not replaced; give another name.")
    if not to.absolute().parent.is_dir():
        raise BadInput(f"'{to.absolute().parent}' is no folder; make it first.")
    with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        return storage.backup(to)


class NewHorizon:
    """A with block that holds the folder, so that what `text` says is still true when `begin` is called."""

    def __init__(self, file: Path) -> None:
        node, network = load_pair(file)
        guarantee = network.guarantee()
        if guarantee.kind != "finite":
            raise BadInput(
                f"network '{network.id}' promises a window, whose budget comes back by itself; only a finite horizon "
                "can begin anew."
            )
        ledger = node.data if node.ledger.shared is None else node.ledger.shared
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared):
            pass  # `open` would make a folder where none is
        self._storage = Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared)
        spent, new = self._storage.ledger.total_spent(), guarantee.total
        self.facts = {
            "network": network.id,
            "ledger": str(ledger),
            "epsilon_spent": from_nano(spent),
            "epsilon_new": from_nano(new),
            "epsilon_summed": from_nano(spent + new),
        }
        self.text = (
            f"The ledger has spent ε={format_epsilon(spent)} so far; the new horizon of '{network.id}' promises "
            f"ε={format_epsilon(new)} on top. For who is in both, only the sum holds: ε={format_epsilon(spent + new)}."
        )
        slot = network.clock().slot_of(time.time_ns())
        self.next = ""
        if slot >= guarantee.length:
            self.next = (
                f"It is slot {slot}, after the horizon of {guarantee.length}: set a new epoch in network.toml, "
                "the same at all servers, before you start the node."
            )

    def begin(self) -> None:
        """From now on; logged with the sum."""
        now = time.time_ns()
        self._storage.ledger.promises.new_horizon(now, now, self.text)

    def __enter__(self) -> NewHorizon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._storage.close()
