"""Accounts in a recording: what has changed since the last one that was recorded, and the next one from that.

A machine is given an account with every slot, and nearly all of it is the one before. So its payments are written once,
and what is small, promises and jumps of the clock, as often as it changes.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from msgspec import field

from dpcrowd.privacy.account import Account, Horizon
from dpcrowd.privacy.clock_jumps import Jump
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, Slots
from dpcrowd.privacy.payments import Payment, Payments

__all__ = ["AccountChange", "change_of", "changed"]


class AccountChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one account against the one before it; None: as it was there.

    payments  those that are new; or all, if it is not one more load of the same
    anew      whether they are all
    """

    network: str
    count: int
    total: int
    lost: int
    complete_after_ns: int = field(name="known_ns")
    payments: tuple[Payment, ...] = ()
    anew: bool = False
    guarantees: tuple[NetworkGuarantee, ...] | None = field(name="promises", default=None)
    jumps: tuple[Jump, ...] | None = None
    horizons: tuple[Horizon, ...] | None = None
    slots: Slots | None = field(name="given", default=None)


def change_of(before: Account | None, after: Account) -> AccountChange:
    """What has to be written so that `changed` gives the same account again."""
    anew = before is None or before.complete_after_ns != after.complete_after_ns or before.count > after.count
    known = before if before is not None and not anew else Account("")
    return AccountChange(
        network=after.network,
        count=after.count,
        total=after.total,
        lost=after.lost,
        complete_after_ns=after.complete_after_ns,
        payments=tuple(one for one in after.payments if one.number > known.count),
        anew=anew,
        guarantees=after.guarantees if known.guarantees != after.guarantees else None,
        jumps=after.jumps if known.jumps != after.jumps else None,
        horizons=after.horizons if known.horizons != after.horizons else None,
        slots=after.configured if known.configured != after.configured else None,
    )


def changed(before: Account | None, change: AccountChange) -> Account:
    """The account that `change_of` was given."""
    known = before if before is not None and not change.anew else Account(change.network)
    payments = Payments() if change.anew else known.payments
    for one in change.payments:
        payments = payments.add(one)
    return replace(
        known,
        network=change.network,
        count=change.count,
        total=change.total,
        lost=change.lost,
        complete_after_ns=change.complete_after_ns,
        payments=payments,
        guarantees=known.guarantees if change.guarantees is None else change.guarantees,
        jumps=known.jumps if change.jumps is None else change.jumps,
        horizons=known.horizons if change.horizons is None else change.horizons,
        configured=known.configured if change.slots is None else change.slots,
    )
