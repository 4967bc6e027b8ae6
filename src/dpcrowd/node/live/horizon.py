"""A finite horizon that begins anew: a promise on top of the old one, so it is said what both add up to.

With pinned users each server has its own users, and its operator decides (`dpcrowd node new-horizon`), or a revision of
network.toml does for all. With roaming users only a revision can: a user who is at another server in each slot pays

    sum over the slots of the most that any server pays in that slot

and that is bounded by the horizon's epsilon only if the horizon is the same slots at all servers. If each of two
servers began its horizons by itself, a user could be in three of them while either ledger knows of two.
"""

from __future__ import annotations

from dpcrowd.node.config import NetworkConfig
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.network_guarantee import UserBounds
from dpcrowd.privacy.units import format_epsilon

__all__ = ["declare_promise", "horizon_text", "paid_before"]


def declare_promise(network: NetworkConfig, storage: Storage, now_ns: int) -> str:
    """Tell the durable ledger what this network promises; it refuses any payment that would break it.

    If the revision begins a new horizon that the ledger does not know yet, be it long over, it begins now; then what
    that means, for the log.
    """
    guarantee, clock = network.guarantee(), network.clock()
    first = network.guarantee_section.horizon_from_slot
    told = ""

    def text(account: Account) -> str:
        nonlocal told
        told = horizon_text(network, paid_before(network, account), first)
        return told

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
    return told


def paid_before(network: NetworkConfig, account: Account) -> int:
    """Nano-epsilon that a user who is in a new horizon may have paid before it.

    Pinned users have paid what is in this ledger. Roaming users may have paid all that was promised, at other servers.
    """
    if network.guarantee().users == "roaming":
        return account.total_promised()
    return account.total


def horizon_text(network: NetworkConfig, before: int, first: int) -> str:
    """What a new horizon from a slot on means, for the operator and the ledger's log."""
    guarantee = network.guarantee()
    new = guarantee.total
    if guarantee.users == "roaming":
        so_far = f"A user who roams may have paid ε={format_epsilon(before)} so far, at whichever servers"
    else:
        so_far = f"The ledger has spent ε={format_epsilon(before)} so far"
    return (
        f"{so_far}; the new horizon of '{network.id}', {guarantee.length} slots from slot {first} on, promises "
        f"ε={format_epsilon(new)} on top. For who is in both, only the sum holds: ε={format_epsilon(before + new)}."
    )
