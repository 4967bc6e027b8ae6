"""What the commands of `dpcrowd node` do with a data folder, without a running node."""

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
    """Return the answer of /v1/budget, from the ledger of a node that does not run."""
    from dpcrowd.node.build import stored_join
    from dpcrowd.node.live.revisions import Revisions, current_revision
    from dpcrowd.node.live.status import budget
    from dpcrowd.node.machine.trust import Trust

    node, network = load_pair(file)
    now = time.time_ns()
    with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        try:
            revisions = current_revision(node, network, now, storage.memory.heard_until())
        except BadInput:  # no start would take it, and `doctor` says why
            revisions = Revisions(network)
        trust = Trust(storage.ledger.counter())
        *earlier, current = revisions.chain
        joined = stored_join(storage)
        view = budget(current, storage, trust, now, earlier=earlier, corrected=revisions.corrected, joined=joined)
    answer: dict[str, Any] = msgspec.to_builtins(view)
    return {**answer, "text": "the node does not answer; this is read from its data folder."}


def backup_folder(file: Path, to: Path) -> int:
    """Copy the ledger into a new file; return the number of the last payment in it."""
    node, network = load_pair(file)
    if os.path.lexists(to):
        raise BadInput(f"'{to}' exists already and is not replaced; choose another name.")
    if not to.absolute().parent.is_dir():
        raise BadInput(f"'{to.absolute().parent}' is not a folder; create it first.")
    with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        return storage.backup(to)


def forget_checkins(file: Path) -> Path:
    """Delete the check-ins of a node that does not run; return the folder of its journal."""
    node, _ = load_pair(file)
    if not node.data.is_dir():
        raise BadInput(f"'{node.data}' does not exist: no server has run here, and there are no check-ins to delete.")
    return forget_journal(node.data)


class Decision:
    """A change of the ledger that needs confirmation.

    As a context manager it keeps the folder locked, so that `text` is still true when the change is carried out.

    text   what the change means, for the operator and for the ledger's log
    facts  the same for programs
    """

    def __init__(self, storage: Storage, text: str, facts: dict[str, Any], act: Callable[[str], None]) -> None:
        self._storage, self.text, self.facts, self._act = storage, text, facts, act

    def carry_out(self) -> None:
        """Make the change; the ledger logs it with the text."""
        self._act(self.text)

    def __enter__(self) -> Decision:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._storage.close()


def new_horizon(file: Path) -> Decision:
    """Prepare a new horizon of a finite guarantee for pinned users; the node has to be stopped."""
    from dpcrowd.node.live.decisions import horizon_text, paid_before
    from dpcrowd.privacy.account import EVER
    from dpcrowd.privacy.allowance import new_horizon_by_revision

    node, network = load_pair(file)
    guarantee, clock = network.guarantee(), network.clock()
    if guarantee.kind != "finite":
        raise BadInput(
            f"network '{network.id}' has a window guarantee, whose budget comes back by itself; only a finite horizon "
            "can begin again."
        )
    if guarantee.users == "roaming":
        raise BadInput(
            f"network '{network.id}' has roaming users: if a horizon began at one server alone, they could pay more "
            "than any server reports. Begin it at all servers with the same slot: "
            f"{new_horizon_by_revision(network.id)}."
        )
    ledger = _ledger_folder(node)
    _require_folder(ledger, network.id)
    storage = Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared)
    now = time.time_ns()
    # A slot in its grace is not sealed yet, and may still be paid: it is the first one of the new horizon.
    unsealed = clock.opens(max(clock.slot_of(now - network.grace_ns), 0))
    try:
        account = storage.ledger.account(EVER)
        first = clock.slot_of(account.next_horizon_start(unsealed, now))
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
    return Decision(storage, text, facts, lambda text: storage.ledger.new_horizon(unsealed, now, text))


def withdrawal(file: Path, network: str) -> Decision:
    """Prepare the withdrawal of the promise of a network that has ended.

    The ledger's folder is locked as that network's server would lock it: neither that server nor the ledger's own runs.
    """
    node, _ = load_pair(file)
    ledger = _ledger_folder(node)
    with Storage.inspect(ledger, network_id=network) as storage:
        account = storage.ledger.account(time.time_ns())
    promises = {promise.network: promise for promise in account.guarantees}
    if not promises:
        raise BadInput(f"no network has declared a promise on the ledger in '{ledger}': there is none to withdraw.")
    if network not in promises:
        raise unknown_name("network on this ledger", network, promises)
    storage = Storage.open(ledger, network_id=network)
    nano, total = promises[network].nano, account.total - account.lost
    others = sorted(set(promises) - {network})
    remaining = f"the promises of {', '.join(map(repr, others))}" if others else "no other promise"
    text = (
        f"Network '{network}' promised its users ε={format_epsilon(nano)}. Withdrawn, this no longer limits what is "
        f"spent on the ledger, which then keeps {remaining}: who was counted in '{network}' may pay more than was "
        f"promised there. What was paid, ε={format_epsilon(total)} since the ledger began, stays paid. A server of "
        f"'{network}' that is started again declares its promise again."
    )
    facts = {"network": network, "ledger": str(ledger), "epsilon": from_nano(nano), "left": others}
    return Decision(storage, text, facts, lambda text: storage.ledger.withdraw(network, time.time_ns(), text))


def _ledger_folder(node: NodeConfig) -> Path:
    return node.data if node.ledger.shared is None else node.ledger.shared


def _require_folder(ledger: Path, network: str) -> None:
    """Refuse a folder that does not exist; `Storage.open` would create it."""
    with Storage.inspect(ledger, network_id=network):
        pass
