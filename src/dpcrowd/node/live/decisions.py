"""What is written when something is decided: a loss is confirmed, a clock accepted, or the next revision takes over.

Each of these is an instruction of the machine, and gives the stimulus with which it is answered. All read and write
files, and are called in a thread; if one fails, the machine goes on as before.

A finite horizon that begins anew is a promise on top of the old one, so it is said what both add up to. With pinned
users each server has its own users, and its operator decides (`dpcrowd node new-horizon`), or a revision of
network.toml does for all. With roaming users only a revision can: a user who is at another server in each slot pays

    sum over the slots of the most that any server pays in that slot

and that is bounded by the horizon's epsilon only if the horizon is the same slots at all servers. If each of two
servers began its horizons by itself, a user could be in three of them while either ledger knows of two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dpcrowd.errors import counted
from dpcrowd.node.build import load_account, stored_models
from dpcrowd.node.config import NetworkConfig, earlier_models
from dpcrowd.node.machine import Revision
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.allowance import Spending
from dpcrowd.privacy.network_guarantee import UserBounds
from dpcrowd.privacy.units import format_epsilon

__all__ = [
    "book_loss",
    "declare",
    "declare_promise",
    "horizon_text",
    "look_back",
    "paid_before",
    "remember_models",
    "store_return",
    "take_over",
]

log = logging.getLogger("dpcrowd.node")


def declare(network: NetworkConfig, storage: Storage, now_ns: int) -> None:
    """Tell the ledger what a network promises; if a new horizon begins with that, the log says so."""
    if text := declare_promise(network, storage, now_ns):
        log.warning("a new horizon begins: %s", text, extra={"event": "new-horizon"})


def remember_models(storage: Storage, revisions: Sequence[NetworkConfig], first: int = 0) -> None:
    """Store the models that the last of these revisions no longer has: the promise goes on to name them.

    revisions  those that have followed one another, oldest first
    first      as of `earlier_models`
    """
    known = stored_models(storage)
    models = earlier_models(known, revisions, first)
    if fresh := set(models) - set(known):
        storage.earlier_models.put(fresh)


def take_over(
    asked: do.TakeOver,
    at_ns: int,
    before: NetworkConfig,
    network: NetworkConfig,
    storage: Storage,
    make: Callable[[NetworkConfig], Revision],
) -> on.RevisionTaken:
    """Declare the next revision; its key is read now, and may have been renewed since it was expected."""
    revision = make(network)
    declare(network, storage, at_ns)
    remember_models(storage, (before, network), asked.slot)
    return on.RevisionTaken(at_ns, asked.slot, revision, load_account(storage, network, asked.until))


def book_loss(asked: do.BookLoss, network: NetworkConfig, storage: Storage) -> on.LossBooked:
    """Book a loss as a complete budget, up to the end of the open slot."""
    clock, remembered = network.clock(), asked.counter if asked.remembered is None else asked.remembered
    until = clock.closes(clock.slot_of(asked.at_ns))
    reason = f"a neighbour remembers {counted(remembered, 'sample')}, the folder {asked.counter}"
    if asked.remembered is None:
        reason = f"no neighbour that was heard remembers the {counted(asked.counter, 'sample')} of the folder"
    entries = storage.ledger.payments_since(0)
    last_payment_ns = max((entry.closes_ns for entry in entries), default=clock.epoch_ns)
    counter = storage.ledger.book_loss(
        min(last_payment_ns, until - clock.length_ns),
        until,
        network.guarantee().total,
        reason,
        at_ns=asked.at_ns,
        counter=remembered,
        complete_until=asked.complete_until,
    )
    slot = clock.slot_of(asked.at_ns)
    account = load_account(storage, network, slot)
    text = _loss_text(account.allowance(clock.opens(slot)).own, until)
    return on.LossBooked(asked.at_ns, counter, text, account)


def _loss_text(cost: Spending, until_ns: int) -> str:
    text = f"the time until {rfc3339(until_ns)} counts as fully spent: blocked is {cost.text}"
    if not cost.comes_back:
        return f"{text} Sampling begins again in a new horizon."
    return f"{text} Sampling begins again when budget is there: {cost.comes_back}."


def look_back(asked: do.LookBack, at_ns: int, network: NetworkConfig, storage: Storage) -> on.ClockLookedUp:
    """Look up what is known where slots begin again, the account that pays for them, and the text for the log."""
    clock = network.clock()
    again_ns = clock.opens(asked.last + 1)
    before = storage.releases.latest(before_ns=again_ns)
    released = -1 if before is None else clock.slot_of(before.opens_ns)
    account = load_account(storage, network, asked.last)
    text = _return_text(account, asked.sealed, asked.last, again_ns)
    return on.ClockLookedUp(at_ns, asked.last, released, text, account)


def store_return(asked: do.StoreReturn, network: NetworkConfig, storage: Storage) -> on.ClockReturned:
    """Store that slots begin again."""
    again_ns = network.clock().opens(asked.last + 1)
    storage.accept_clock(asked.at_ns, again_ns, asked.state, asked.complete_until, asked.text)
    return on.ClockReturned(asked.at_ns)


def _return_text(account: Account, sealed: int, last: int, again_ns: int) -> str:
    ahead = [
        entry
        for entry in account.payments_after(again_ns)
        if entry.network == account.network and entry.kind == "sample" and entry.opens_ns >= again_ns
    ]
    text = (
        f"slots up to {sealed} were sealed by a clock that was ahead; they begin again with slot {last + 1}, which "
        f"opened at {rfc3339(again_ns)}."
    )
    if not ahead:
        return f"{text} Nothing was sampled by that clock."
    epsilon, until = format_epsilon(sum(entry.nano for entry in ahead)), max(entry.closes_ns for entry in ahead)
    return (
        f"{text} That clock has sampled {len(ahead)} slot{'s' if len(ahead) > 1 else ''} for ε={epsilon}, which stays "
        f"spent. None of them is sampled again, and the payment counts until {rfc3339(until)} and for as long as the "
        "promise says after that."
    )


# ----------------------------------------------------------------------------------------------- horizons


def declare_promise(network: NetworkConfig, storage: Storage, now_ns: int) -> str:
    """Tell the durable ledger what this network promises; it refuses any payment that would break it.

    If the revision begins a new horizon that the ledger does not know yet, be it long over, it begins now; then what
    that means, for the log.
    """
    guarantee, clock = network.guarantee(), network.clock()
    first = network.guarantee_section.horizon_from_slot
    sentence = ""

    def text(account: Account) -> str:
        nonlocal sentence
        sentence = horizon_text(network, paid_before(network, account), first)
        return sentence

    storage.ledger.declare(
        guarantee.total,
        guarantee.length * clock.length_ns if guarantee.kind == "window" else None,
        bounds=UserBounds(guarantee.regions_per_slot, guarantee.servers_per_slot),
        roaming=guarantee.users == "roaming",
        slots=clock,
        horizon_slot=first,
        at_ns=now_ns,
        text=text,
    )
    return sentence


def paid_before(network: NetworkConfig, account: Account) -> int:
    """Return the nano-epsilon that a user who is in a new horizon may have paid before it.

    Pinned users have paid what is in this ledger. Roaming users may have paid all that was promised, at other servers.
    """
    if network.guarantee().users == "roaming":
        return account.total_promised()
    return account.total


def horizon_text(network: NetworkConfig, before: int, first: int) -> str:
    """Return what a new horizon from a slot on means, for the operator and the ledger's log."""
    guarantee = network.guarantee()
    new = guarantee.total
    if guarantee.users == "roaming":
        so_far = f"A user who roams may have paid ε={format_epsilon(before)} so far, at whichever servers"
    else:
        so_far = f"The ledger has spent ε={format_epsilon(before)} so far"
    return (
        f"{so_far}; the new horizon of '{network.id}', {counted(guarantee.length, 'slot')} from slot {first} on, "
        f"promises ε={format_epsilon(new)} on top. For who is in both, only the sum holds: "
        f"ε={format_epsilon(before + new)}."
    )
