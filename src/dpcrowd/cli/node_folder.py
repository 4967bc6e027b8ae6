"""What the tools of a node do with its data folder, without asking the node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.node.config import NodeConfig, load_pair
from dpcrowd.node.storage import Storage, forget_journal
from dpcrowd.privacy.units import format_epsilon, from_nano

__all__ = ["Decision", "backup_folder", "budget_of_folder", "forget_checkins", "new_horizon", "withdrawal"]


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


def forget_checkins(file: Path) -> Path:
    """Of a node that does not run; gives the folder of its journal."""
    node, _ = load_pair(file)
    if not node.data.is_dir():
        raise BadInput(f"'{node.data}' does not exist: no server has run here, and there is nothing to forget.")
    return forget_journal(node.data)


class Decision:
    """A with block that holds the folder, so that what `text` says is still true when it is carried out."""

    def __init__(self, storage: Storage, text: str, facts: dict[str, Any], act: Callable[[str], None]) -> None:
        self._storage, self.text, self.facts, self._act = storage, text, facts, act

    def carry_out(self) -> None:
        """From now on; logged with the text."""
        self._act(self.text)

    def __enter__(self) -> Decision:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._storage.close()


def new_horizon(file: Path) -> Decision:
    """Of a finite guarantee for pinned users, by the operator of a stopped node."""
    from dpcrowd.node.live.decisions import horizon_text, paid_before
    from dpcrowd.privacy.account import EVER
    from dpcrowd.privacy.allowance import by_revision

    node, network = load_pair(file)
    guarantee, clock = network.guarantee(), network.clock()
    if guarantee.kind != "finite":
        raise BadInput(
            f"network '{network.id}' promises a window, whose budget comes back by itself; only a finite horizon "
            "can begin anew."
        )
    if guarantee.users == "roaming":
        raise BadInput(
            f"network '{network.id}' has roaming users: a horizon that begins at one server alone lets them pay more "
            "than any server reports. It begins at all servers with the same slot: "
            f"{by_revision(network.id)}."
        )
    ledger = _ledger(node)
    _refuse_missing(ledger, network.id)
    storage = Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared)
    now = time.time_ns()
    # A slot in its grace is not sealed yet, and may still be paid: it is the first one of the new horizon.
    unsealed = clock.opens(max(clock.slot_of(now - network.grace_ns), 0))
    try:
        account = storage.ledger.account(EVER)
        first = clock.slot_of(account.next_horizon(unsealed, now))
        spent, new = paid_before(network, account), guarantee.total
    except BaseException:
        storage.close()
        raise
    facts = {
        "network": network.id,
        "ledger": str(ledger),
        "first_slot": first,
        "slots": guarantee.length,
        "epsilon_spent": from_nano(spent),
        "epsilon_new": from_nano(new),
        "epsilon_summed": from_nano(spent + new),
    }
    text = horizon_text(network, spent, first)
    return Decision(storage, text, facts, lambda told: storage.ledger.new_horizon(unsealed, now, told))


def withdrawal(file: Path, network: str) -> Decision:
    """Of the promise of a network that has ended.

    The ledger's folder is held as that network's server would hold it: neither it nor the ledger's own server runs.
    """
    node, _ = load_pair(file)
    ledger = _ledger(node)
    with Storage.inspect(ledger, network_id=network) as storage:
        account = storage.ledger.account(time.time_ns())
    promises = {promise.network: promise for promise in account.promises}
    if not promises:
        raise BadInput(f"no network has declared a promise on the ledger in '{ledger}': there is none to withdraw.")
    if network not in promises:
        raise unknown_name("network on this ledger", network, promises)
    storage = Storage.open(ledger, network_id=network)
    nano, total = promises[network].nano, account.total - account.lost
    others = sorted(set(promises) - {network})
    left = f"the promises of {', '.join(map(repr, others))}" if others else "no other promise"
    text = (
        f"Network '{network}' promised its users ε={format_epsilon(nano)}. Withdrawn, this no longer limits what is "
        f"spent on the ledger, which then keeps {left}: who was counted in '{network}' may pay more than was promised "
        f"there. What was paid, ε={format_epsilon(total)} since the ledger began, stays paid. A server of '{network}' "
        "that is started again declares its promise anew."
    )
    facts = {"network": network, "ledger": str(ledger), "epsilon": from_nano(nano), "left": others}
    return Decision(storage, text, facts, lambda told: storage.ledger.withdraw(network, time.time_ns(), told))


def _ledger(node: NodeConfig) -> Path:
    return node.data if node.ledger.shared is None else node.ledger.shared


def _refuse_missing(ledger: Path, network: str) -> None:
    with Storage.inspect(ledger, network_id=network):
        pass  # `open` would make a folder where none is
