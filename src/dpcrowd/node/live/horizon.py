"""A finite horizon that begins anew: a promise on top of the old one, so it is said what both add up to.

With pinned users each server has its own users, and its operator decides (`dpcrowd node new-horizon`), or a revision of
network.toml does for all. With roaming users only a revision can: a user who is at another server in each slot pays

    sum over the slots of the most that any server pays in that slot

and that is bounded by the horizon's epsilon only if the horizon is the same slots at all servers. If each of two
servers began its horizons by itself, a user could be in three of them while either ledger knows of two.
"""

from __future__ import annotations

from dpcrowd.node.config import NetworkConfig
from dpcrowd.node.storage import Storage, UserBounds
from dpcrowd.privacy.units import format_epsilon

__all__ = ["by_revision", "declare_promise", "horizon_text", "paid_before"]


def declare_promise(network: NetworkConfig, storage: Storage, now_ns: int) -> str:
    """Tell the durable ledger what this network promises; it refuses any payment that would break it.

    If the revision begins a new horizon that the ledger does not know yet, be it long over, it begins now; then what
    that means, for the log.
    """
    guarantee, clock = network.guarantee(), network.clock()
    first = network.promise.horizon_from_slot
    text = horizon_text(network, paid_before(network, storage), first)
    begun = storage.ledger.promises.declare(
        guarantee.total,
        guarantee.length * clock.length_ns if guarantee.kind == "window" else None,
        bounds=UserBounds(guarantee.regions_per_slot, guarantee.servers_per_slot),
        roaming=guarantee.users == "roaming",
        slots=clock,
        horizon_slot=first,
        at_ns=now_ns,
        text=text,
    )
    return text if begun else ""


def paid_before(network: NetworkConfig, storage: Storage) -> int:
    """Nano-epsilon that a user who is in a new horizon may have paid before it.

    Pinned users have paid what is in this ledger. Roaming users may have paid all that was promised, at other servers.
    """
    if network.guarantee().users == "roaming":
        return storage.ledger.promises.promised()
    return storage.ledger.total_spent()


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


def by_revision(network: str) -> str:
    """How a horizon begins for all servers of a network alike."""
    return (
        f"write the next revision of the network.toml of '{network}' with [network] valid_from_slot and [guarantee] "
        "horizon_from_slot at the same slot, and take it at all servers with 'dpcrowd node reload'"
    )
