"""The lines of a recording: what a life began with, and every stimulus, as one JSON object per line.

    start  the saved state at the start of a life: network.toml, the server's name, its estimates and account, what
           neighbours have said, and how far the ledger is trusted
    step   one stimulus; what went into it from outside, that is noisy values and own signatures; and which instructions
           came out, as a digest
    end    why nothing more was written; the life went on

A recording is for whoever looks for a fault. It holds no key, no token, no user and no raw count: of counts it says
whether there were any. Noisy values stand in it only once they are paid for: a draw that could not be stored is marked
as `unpaid`, without its values, its signatures and the digest, all of which would tell of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import msgspec
import numpy as np
from msgspec import field

from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.instructions import Instruction
from dpcrowd.node.machine.neighbours import Remembered
from dpcrowd.privacy.account import Account, Horizon
from dpcrowd.privacy.clock_jumps import Jump
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, Slots
from dpcrowd.privacy.payments import Payment, Payments

__all__ = [
    "FORMAT",
    "KINDS",
    "AccountChange",
    "Booked",
    "End",
    "Failed",
    "Line",
    "LookedUp",
    "NewKey",
    "NewRevision",
    "Sealed",
    "Start",
    "Step",
    "change_of",
    "changed",
    "digest_of",
    "kinds_of",
]

FORMAT = 1


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


class Start(msgspec.Struct, frozen=True, tag="start", tag_field="kind", kw_only=True):
    """A life begins.

    version    of dpcrowd
    network    the text of network.toml, of the revision in use
    expires    when the server's certificate does
    following  number and first slot of the next revision, if one is known
    """

    format: int
    version: str
    at_ns: int
    server: str
    network: str
    expires: int
    state: bytes
    counter: int
    remembered: dict[str, Remembered]
    vouched: bool
    complete_until: int
    following: tuple[int, int] | None = None
    account: AccountChange | None = None


class Step(msgspec.Struct, frozen=True, tag="step", tag_field="kind", kw_only=True, omit_defaults=True):
    """A stimulus, by the name of its class and its fields.

    number   counted from 1 in each life
    noisy    arrays that were drawn, float64
    signed   own signatures, in the order in which they were made
    did      the kinds of instructions that came out
    digest   of these instructions
    refused  what the operator was told instead, whose decision was refused
    unpaid   something was drawn that could not be stored
    """

    number: int
    on: str
    fields: msgspec.Raw
    noisy: tuple[bytes, ...] = ()
    signed: tuple[bytes, ...] = ()
    did: tuple[str, ...] = ()
    digest: bytes = b""
    refused: str = ""
    unpaid: bool = False


class End(msgspec.Struct, frozen=True, tag="end", tag_field="kind", kw_only=True):
    """The rest of this life was not written."""

    why: str


Line = Start | Step | End


# Stimuli that hold more than can be written, or less than is needed to make them again.


class Sealed(msgspec.Struct, frozen=True):
    """`SlotSealed`, without its counts."""

    at_ns: int
    slot: int
    counted: bool
    account: AccountChange | None
    why: str | None


class Failed(msgspec.Struct, frozen=True):
    """`StorageFailed`: which instruction of which step could not be carried out."""

    at_ns: int
    text: str
    step: int
    place: int


class NewRevision(msgspec.Struct, frozen=True):
    """`RevisionTaken`, with the text of its network.toml."""

    at_ns: int
    slot: int
    network: str
    expires: int
    account: AccountChange | None


class Booked(msgspec.Struct, frozen=True):
    """`LossBooked`."""

    at_ns: int
    counter: int
    text: str
    account: AccountChange | None


class LookedUp(msgspec.Struct, frozen=True):
    """`ClockLookedUp`."""

    at_ns: int
    last: int
    known: int
    text: str
    account: AccountChange | None


class NewKey(msgspec.Struct, frozen=True):
    """`KeyRenewed`, without the key."""

    at_ns: int
    expires: int


KINDS: dict[str, type[on.Stimulus]] = {kind.__name__: kind for kind in get_args(on.Stimulus)}
"""All stimuli by name."""


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


def kinds_of(instructions: Sequence[Instruction]) -> tuple[str, ...]:
    return tuple(type(one).__name__ for one in instructions)


def digest_of(instructions: Sequence[Instruction]) -> bytes:
    """Equal for equal instructions, down to the last bit of a number."""
    named = [(type(one).__name__, one) for one in instructions]
    return hashlib.blake2b(_encoder.encode(named), digest_size=16).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(type(value).__name__)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
