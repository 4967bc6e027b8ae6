"""Checks of the ledger: whether its database is intact, and whether every guarantee on it allows a sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dpcrowd.errors import BadInput
from dpcrowd.node.build import load_account
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.node.storage.failures import RESTORE
from dpcrowd.privacy.account import Account, sharing_problem
from dpcrowd.privacy.allowance import Spending, new_horizon_by_revision
from dpcrowd.privacy.units import format_epsilon
from dpcrowd.schemes.server import saved_slot

__all__ = ["LedgerState", "read_ledger"]


@dataclass(frozen=True)
class LedgerState:
    """What the ledger's folder contains.

    sealed_ns  when the last sealed slot closed; None if unknown
    counter    how many samples the ledger has paid for; None if unknown
    """

    findings: list[Finding]
    sealed_ns: int | None = None
    counter: int | None = None


def read_ledger(node: NodeConfig, network: NetworkConfig, now_ns: int) -> LedgerState:
    """Read the complete database of the ledger, without changing anything."""
    shared = node.ledger.shared
    where = (node.data if shared is None else shared) / "dpcrowd.db"
    try:
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=shared) as storage:
            problems = storage.problems()
            if problems:
                fix = _sentence(RESTORE)
                return LedgerState([problem("database", f"'{where}' is damaged: {text}", fix) for text in problems[:5]])
            storage.ledger.check()
            text = f"'{where}' is intact, with {storage.ledger.payments()} payment(s)."
            findings = [passed("database", text), *_check_guarantees(network, storage, now_ns)]
            if shared is not None and network.guarantee().users == "roaming":
                text = f"users roam, so no other network can share the ledger in '{shared}' with '{network.id}'."
                findings.append(note("sharing", text))
            return LedgerState(findings, _sealed_until(network, storage), storage.ledger.counter())
    except StorageError as failure:
        if failure.kind == "missing" and not where.exists():
            return LedgerState(
                [skipped("database", f"'{where}' does not exist: the node has not run yet, or its folder is missing.")],
                counter=0,
            )
        return LedgerState([problem("database", f"{failure.reason}.", _sentence(failure.fix))])
    except OSError as error:  # the doctor runs as another user than the node
        text = f"'{where}' cannot be read: {error.strerror or type(error).__name__}."
        return LedgerState([problem("database", text, "Run the doctor as the user who runs the node.")])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _sealed_until(network: NetworkConfig, storage: Storage) -> int | None:
    """Return when the last slot closed after which the server continues, or else the last that it paid or released."""
    state = storage.state()
    if state is not None:
        with suppress(BadInput):
            slot = saved_slot(state)
            return network.clock().closes(slot) if slot >= 0 else None
    payments = storage.ledger.payments_since(0)
    closes = [one.closes_ns for one in payments if one.kind == "sample" and one.network == network.id]
    last = storage.releases.latest()
    return max([*closes, *([] if last is None else [last.opens_ns + last.length_ns])], default=None)


def _check_guarantees(network: NetworkConfig, storage: Storage, now_ns: int) -> Iterator[Finding]:
    """Report what all networks on this ledger have spent together, against each of their guarantees."""
    clock = network.clock()
    slot = max(clock.slot_of(now_ns), 0)
    account = load_account(storage, network, slot)
    guarantees = account.guarantees
    is_declared = account.guarantee_of(network.id) is not None
    if not is_declared:
        yield note("budget", f"network '{network.id}' has not used this ledger yet: its promise is not declared there.")
    for declared in guarantees:
        cost = Spending(declared, clock.opens(slot), account)
        counted = account.counted_payments(declared, clock.opens(slot))
        amount = min(sum(one.nano for one in counted if one.kind == "sample"), cost.spent)
        span = "since its horizon began" if declared.span_ns is None else "in its present window"
        counts = f", which counts as {format_epsilon(cost.spent)} for users {declared.bounds}"
        blocked = f", and blocked is {cost.text}" if cost.blocked else "."
        text = (
            f"network '{declared.network}' promises ε={format_epsilon(declared.nano)}; all networks on this ledger "
            f"together have spent {format_epsilon(amount)} {span}"
            f"{counts if cost.spent > amount else ''}{blocked}"
        )
        yield passed("budget", text)
    total = format_epsilon(account.total - account.lost)
    blocked = f", and ε={format_epsilon(account.lost)} of confirmed losses was blocked" if account.lost else ""
    text = f"since the ledger began ε={total} was spent{blocked}, over {max(len(guarantees), 1)} network(s)."
    yield passed("budget", text)
    shared = sharing_problem(network.id, network.guarantee().users == "roaming", guarantees)
    if shared:
        fix = "Give the network with roaming users a ledger of its own ('Parting two networks' in docs/operate.md)."
        yield problem("sharing", f"the server cannot start: {shared}", fix)
    elif is_declared:
        yield from _check_allowance(network, account, slot)


def _check_allowance(network: NetworkConfig, account: Account, slot: int) -> Iterator[Finding]:
    """Ask the account whether a sample of the present slot could be paid."""
    guarantee, allowance = network.guarantee(), account.allowance(network.clock().opens(slot))
    shortage = allowance.shortage
    if not shortage:
        return
    declared, own = allowance.guarantee, allowance.guarantee.network == network.id
    if guarantee.kind == "finite" and (own or allowance.is_over):
        fix = "'dpcrowd node new-horizon' begins a new horizon on top of what was spent: a new promise to your users."
        if guarantee.users == "roaming":
            how = new_horizon_by_revision(network.id)
            fix = f"A new horizon is a new promise to the users, for all servers alike: {how}."
        yield problem("budget", f"the budget allows no more samples: {shortage}", fix)
        return
    cost = allowance.binding
    back = f" Budget comes back: {cost.comes_back}." if cost.comes_back else ""
    text = f"the budget allows no sample now: {shortage}{back}"
    if own and allowance.counted <= declared.nano and not cost.blocked:
        yield note("budget", text)  # a scheme that uses its budget uses up a window, too
        return
    fix = "Wait; meanwhile the server estimates from its neighbours' messages."
    if not own:
        fix = f"{fix} If that network has ended, run 'dpcrowd node withdraw NODE.TOML {declared.network}'."
    yield problem("budget", text, fix)
