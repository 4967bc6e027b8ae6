"""The lines of a recording: the state at the start of a run, and every stimulus, as one JSON object per line.

    start  the saved state at the start of a run: network.toml, the server's name, its estimates and account, what
           neighbours have reported, and how far the ledger is trusted
    step   one stimulus; its external inputs, that is noisy values and own signatures; and a digest of the resulting
           instructions
    end    why nothing more was recorded, although the run continued

A recording is for finding faults. It contains no key, no token, no user and no raw count: of counts it says only
whether there were any. It contains noisy values only if they are paid for: a draw that could not be stored is marked as
`unpaid`, without its values, its signatures and the digest, all of which would reveal it.

A machine gets an account with every slot, and nearly all of it is unchanged. So each payment is recorded once, and
guarantees and jumps of the clock, which are small, whenever they change.
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
from dpcrowd.node.machine.instructions import Instruction, StoredRecord
from dpcrowd.node.machine.neighbours import Remembered
from dpcrowd.node.release import Smoothing
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
    "apply_change",
    "change_of",
    "digest_of",
    "kinds_of",
]

FORMAT = 1


class AccountChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed from one account to the next; None: unchanged. The names in the file are those of format 1.

    payments  the new payments, or all of them
    anew      whether `payments` are all payments, because the account was not loaded on top of the one before
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
    """The start of a run.

    version    the version of dpcrowd
    network    the text of network.toml, of the revision in use
    expires    when the server's certificate expires
    following  number and first slot of the next revision, if there is one
    records    records of the last slots that were on disk
    earlier    the texts of network.toml of the revisions before it that were known, oldest first
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
    records: tuple[StoredRecord, ...] = ()
    earlier: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True, tag="step", tag_field="kind", kw_only=True, omit_defaults=True):
    """A stimulus, by the name of its class and its fields.

    number   counted from 1 in each run
    on       the class of the stimulus
    noisy    the arrays that were drawn, float64
    signed   own signatures, in the order in which they were made
    did      the kinds of the resulting instructions
    digest   the digest of these instructions
    refused  the error message instead, if an operator's decision was refused
    unpaid   whether something was drawn that could not be stored
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
    """The end of the recording: the rest of this run was not recorded."""

    why: str


Line = Start | Step | End


# Stimuli with content that must not be recorded, or that need more than their fields to be reconstructed.


class Sealed(msgspec.Struct, frozen=True):
    """`SlotSealed`, without its counts."""

    at_ns: int
    slot: int
    counted: bool
    account: AccountChange | None
    why: str | None


class Failed(msgspec.Struct, frozen=True):
    """`StorageFailed`, with the place of the instruction that could not be carried out."""

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
    """`LossBooked`, with the change of the account instead of the account."""

    at_ns: int
    counter: int
    text: str
    account: AccountChange | None


class LookedUp(msgspec.Struct, frozen=True):
    """`ClockLookedUp`, with the change of the account instead of the account."""

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
"""All stimuli by the names of their classes."""


def change_of(before: Account | None, after: Account) -> AccountChange:
    """Return what has to be recorded so that `apply_change` returns the same account."""
    anew = before is None or before.complete_after_ns != after.complete_after_ns or before.count > after.count
    base = before if before is not None and not anew else Account("")
    return AccountChange(
        network=after.network,
        count=after.count,
        total=after.total,
        lost=after.lost,
        complete_after_ns=after.complete_after_ns,
        payments=tuple(one for one in after.payments if one.number > base.count),
        anew=anew,
        guarantees=after.guarantees if base.guarantees != after.guarantees else None,
        jumps=after.jumps if base.jumps != after.jumps else None,
        horizons=after.horizons if base.horizons != after.horizons else None,
        slots=after.configured if base.configured != after.configured else None,
    )


def apply_change(before: Account | None, change: AccountChange) -> Account:
    """Return the account from which `change_of` made the change."""
    base = before if before is not None and not change.anew else Account(change.network)
    payments = Payments() if change.anew else base.payments
    for one in change.payments:
        payments = payments.add(one)
    return replace(
        base,
        network=change.network,
        count=change.count,
        total=change.total,
        lost=change.lost,
        complete_after_ns=change.complete_after_ns,
        payments=payments,
        guarantees=base.guarantees if change.guarantees is None else change.guarantees,
        jumps=base.jumps if change.jumps is None else change.jumps,
        horizons=base.horizons if change.horizons is None else change.horizons,
        configured=base.configured if change.slots is None else change.slots,
    )


def kinds_of(instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """Return the names of the instructions' classes."""
    return tuple(type(one).__name__ for one in instructions)


def digest_of(instructions: Sequence[Instruction]) -> bytes:
    """Return a digest that is equal only for equal instructions, down to the last bit of a number."""
    pairs = [(type(one).__name__, one) for one in instructions]
    return hashlib.blake2b(_encoder.encode(pairs), digest_size=16).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Smoothing):
        return value.slots()
    raise NotImplementedError(type(value).__name__)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
