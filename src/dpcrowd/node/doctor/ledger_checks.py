"""Checks of the ledger: whether its database is whole, and whether every promise on it leaves room for a sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dpcrowd.errors import BadInput
from dpcrowd.node.build import load_account
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.storage import Storage, StorageFailed
from dpcrowd.privacy.account import Account, sharing_problem
from dpcrowd.privacy.allowance import by_revision
from dpcrowd.privacy.spending import Spending
from dpcrowd.privacy.units import format_epsilon
from dpcrowd.schemes.server import saved_slot

__all__ = ["LedgerState", "read_ledger"]

_DAMAGED = "Stop the node, keep the folder for inspection and restore the last backup into an empty folder."


@dataclass(frozen=True)
class LedgerState:
    """What the folder says: findings, when the last sealed slot closed, and how many samples it has paid for.

    None: nothing is known of it.
    """

    findings: list[Finding]
    sealed_ns: int | None = None
    counter: int | None = None


def read_ledger(node: NodeConfig, network: NetworkConfig, now_ns: int) -> LedgerState:
    """Reads all of the ledger's database, and changes nothing."""
    shared = node.ledger.shared
    where = (node.data if shared is None else shared) / "dpcrowd.db"
    try:
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=shared) as storage:
            wrong = storage.problems()
            if wrong:
                return LedgerState([problem("database", f"'{where}': {text}", _DAMAGED) for text in wrong[:5]])
            storage.ledger.check()
            text = f"'{where}' is whole, with {storage.ledger.payments()} payment(s)."
            findings = [passed("database", text), *_check_promises(network, storage, now_ns)]
            if shared is not None and network.guarantee().users == "roaming":
                text = f"users roam: no other network can use the ledger in '{shared}' beside '{network.id}'."
                findings.append(note("sharing", text))
            return LedgerState(findings, _sealed(network, storage), storage.ledger.counter())
    except StorageFailed as failure:
        if failure.kind == "missing" and not where.exists():
            return LedgerState(
                [skipped("database", f"'{where}' is not there: the node has not run yet, or its folder is gone.")],
                counter=0,
            )
        fix = f"{failure.fix[:1].upper()}{failure.fix[1:]}."
        return LedgerState([problem("database", f"{failure.reason}.", fix)])
    except OSError as error:  # run by another user than the node
        text = f"'{where}' cannot be seen: {error.strerror or type(error).__name__}."
        return LedgerState([problem("database", text, "Run the doctor as the user of the node.")])


def _sealed(network: NetworkConfig, storage: Storage) -> int | None:
    """When the last slot closed that the server goes on after, or, if it begins anew, that it has paid for or told."""
    state = storage.state()
    if state is not None:
        with suppress(BadInput):
            slot = saved_slot(state)
            return network.clock().closes(slot) if slot >= 0 else None
    entries = storage.ledger.spent_since(0)
    paid = [one.closes_ns for one in entries if one.kind == "sample" and one.network == network.id]
    last = storage.releases.latest()
    return max([*paid, *([] if last is None else [last.opens_ns + last.length_ns])], default=None)


def _check_promises(network: NetworkConfig, storage: Storage, now_ns: int) -> Iterator[Finding]:
    """What all networks on this ledger have spent together, against each of their promises."""
    clock = network.clock()
    slot = max(clock.slot_of(now_ns), 0)
    account = load_account(storage, network, slot)
    promises = account.promises
    declared = account.promise_of(network.id) is not None
    if not declared:
        yield note("budget", f"network '{network.id}' has not paid into this ledger yet: its promise is not there.")
    for promise in promises:
        cost = Spending(promise, clock.opens(slot), account)
        counted = account.counted(promise, clock.opens(slot))
        paid = min(sum(one.nano for one in counted if one.kind == "sample"), cost.spent)
        span = "since its horizon began" if promise.span_ns is None else "in its present window"
        counts = f", which counts as {format_epsilon(cost.spent)} for users {promise.bounds}"
        blocked = f", and blocked is {cost.text}" if cost.blocked else "."
        text = (
            f"network '{promise.network}' promises ε={format_epsilon(promise.nano)}; all networks on this ledger "
            f"together have spent {format_epsilon(paid)} {span}"
            f"{counts if cost.spent > paid else ''}{blocked}"
        )
        yield passed("budget", text)
    total = format_epsilon(account.total - account.lost)
    blocked = f", and ε={format_epsilon(account.lost)} of confirmed losses was blocked" if account.lost else ""
    text = f"since the ledger began ε={total} was spent{blocked}, over {max(len(promises), 1)} network(s)."
    yield passed("budget", text)
    shared = sharing_problem(network.id, network.guarantee().users == "roaming", promises)
    if shared:
        fix = "Give the network whose users roam a ledger of its own ('Parting two networks' in docs/operate.md)."
        yield problem("sharing", f"the server will not start: {shared}", fix)
    elif declared:
        yield from _check_allowance(network, account, slot)


def _check_allowance(network: NetworkConfig, account: Account, slot: int) -> Iterator[Finding]:
    """Whether a sample of the present slot could be paid, by the account's own judgement."""
    guarantee, allowance = network.guarantee(), account.may(network.clock().opens(slot))
    short = allowance.shortage
    if not short:
        return
    promise, own = allowance.promise, allowance.promise.network == network.id
    if guarantee.kind == "finite" and (own or allowance.is_over):
        fix = "'dpcrowd node new-horizon' begins a new horizon on top of what was spent: a new promise to your users."
        if guarantee.users == "roaming":
            how = by_revision(network.id)
            fix = f"A new horizon is a new promise to the users, for all servers alike: {how}."
        yield problem("budget", f"there is no sample any more: {short}", fix)
        return
    cost = allowance.binding
    back = f" What comes back next: {cost.comes_back}." if cost.comes_back else ""
    text = f"there is no sample for now: {short}{back}"
    if own and allowance.counted <= promise.nano and not cost.blocked:
        yield note("budget", text)  # a window whose budget is used up is what a scheme does that uses its budget
        return
    fix = "Wait: the server estimates from its neighbours meanwhile."
    if not own:
        fix = f"{fix} If that network has ended: 'dpcrowd node withdraw NODE.TOML {promise.network}'."
    yield problem("budget", text, fix)
