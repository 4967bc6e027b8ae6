"""One scheme under one setting, run slot by slot with every step recorded for the checks."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats, Ints
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.privacy.ledger import BatchLedger
from dpcrowd.schemes.base import Release, Scheme, Setting
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.snapshot import fingerprint, pack
from dpcrowd.testing.world import Bits, BlindNoise, Read, World, bits, charges_of, hearings, play, same

__all__ = ["ContractBroken", "SecondRun", "Trial", "TrialRecord", "cost_of", "ledger_of", "overwritten"]


ABSURD = -(10**15)
"""What counts are overwritten with when a scheme may no longer read them."""


class ContractBroken(AssertionError):
    """A scheme does not keep its contract."""


@dataclass(frozen=True, eq=False)
class TrialRecord:
    """Everything that a run released, and how it used its noise.

    reads     every call of the noise, in order
    unpaid    a description of the first read that had not been charged to the ledger; None: all were paid first
    released  by slot: the release, the message and, unless the scheme declares raw counts in it, the state, by name
    charged   by slot: what the release says that each server was charged
    """

    reads: list[Read]
    unpaid: str | None
    released: list[dict[str, Bits]]
    charged: list[Ints]


@dataclass(frozen=True, eq=False)
class SecondRun:
    """A repetition of the standard run.

    meddling  a description of the first change of the counts or shares that were passed in, or of the scheme object;
              None: nothing was changed
    ledgers   copies of the ledger in the state, after each slot
    """

    releases: list[Release]
    meddling: str | None
    ledgers: list[BatchLedger | None]


@dataclass(frozen=True, eq=False)
class Trial:
    """A scheme, a setting and a world; `name` says which setting it is.

    before  fingerprint of the scheme before its first run here: after a run, a scheme that stores the same value in
            itself in every run would look as if nothing had changed
    """

    name: str
    scheme: Scheme
    setting: Setting
    world: World
    before: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "before", fingerprint(self.scheme, self.setting).tobytes())

    def play(self, **more: Any) -> list[Release]:
        """Run every slot; see `dpcrowd.testing.world.play`."""
        return play(self.scheme, self.setting, self.world, **more)

    @cached_property
    def releases(self) -> list[Release]:
        """The standard run."""
        return self.play()

    @cached_property
    def second_run(self) -> SecondRun:
        """The standard run again; determinism, unchanged inputs and the ledger are checked with it.

        If the strict run gives the releases of the standard run, it is that. Only a scheme that fails is run once more.
        """
        strict = self._strict_run
        return strict if strict is not None and same(strict.releases, self.releases) else self._watch(self.world.counts)

    @cached_property
    def reads_only_paid_counts(self) -> bool:
        """Whether nothing changes if counts are absurd where nothing was paid, and everywhere after perturb()."""
        strict = self._strict_run
        return strict is not None and same(strict.releases, self.releases)

    @cached_property
    def _strict_run(self) -> SecondRun | None:
        """The run with absurd counts wherever the scheme must not read them; None if it does not come to its end."""
        counts = self.unpaid_replaced() if self.scheme.kinds else self.world.counts
        try:
            return self._watch(counts, overwrite=True)
        except Exception:
            return None  # the check that this concerns runs it again, and reports why

    def _watch(self, counts: Ints, *, overwrite: bool = False) -> SecondRun:
        """Run every slot, and look for changes of what was passed in; `overwrite`: see `overwritten`."""
        changes: list[str] = []
        ledgers: list[BatchLedger | None] = []

        def watched(
            scheme: Scheme, state: Any, slot: int, shares: Any, counts: Any, noise: Noise, hearing: Hearing
        ) -> Release:
            def restore(name: str, array: NDArray[Any], original: NDArray[Any]) -> None:
                if not np.array_equal(array, original):
                    changes.append(f"the scheme writes into the {name} that it was given, in slot {slot}")
                    array[...] = original

            own_counts = counts.copy()
            plan = scheme.plan(state, slot, shares)
            reading = scheme.perturb(state, plan, counts, noise)
            restore("counts", counts, own_counts)
            if overwrite:
                counts[...] = own_counts[...] = ABSURD
            messages = scheme.message(state, plan, reading)
            scheme.fuse(state, plan, reading, messages, hearing)
            release: Release = scheme.release(state, plan, reading)
            restore("counts", counts, own_counts)
            restore("shares", shares, self.world.shares)
            ledgers.append(deepcopy(ledger_of(state)))
            return release

        releases = self.play(counts=counts, step=watched)
        if fingerprint(self.scheme, self.setting).tobytes() != self.before:
            changes.append("the scheme object changes during a run: keep what changes in the state")
        return SecondRun(releases, changes[0] if changes else None, ledgers)

    def unpaid_replaced(self) -> Ints:
        """Return the counts with absurd ones in place of those for which the releases say that nothing was charged."""
        charges = charges_of(self.releases, self.world.regions)
        return np.where(charges > 0, self.world.counts, 10**12)

    @property
    def window(self) -> int | None:
        """The window's length; None for a horizon."""
        guarantee = self.setting.need_guarantee()
        return guarantee.length if guarantee.kind == "window" else None

    @cached_property
    def blind(self) -> TrialRecord:
        """The run on the standard counts, under noise that ignores them."""
        return self.record(self.world.counts)

    @cached_property
    def blind_to_others(self) -> TrialRecord:
        """The run on entirely different counts, under the same noise."""
        return self.record(np.random.default_rng(1).integers(0, 5000, self.world.counts.shape))

    def record(self, counts: Ints) -> TrialRecord:
        """Run all slots on these counts under blind noise, and record every step."""
        noise = BlindNoise(self.world.noise())
        state = self.scheme.start(self.setting)
        ledger = ledger_of(state)
        unpaid: list[str] = []
        released: list[dict[str, Bits]] = []
        charged: list[Ints] = []
        audiences, shares = hearings(self.scheme, self.world), self.world.shares.copy()
        for slot in range(self.world.slots):
            watched = _PaidFirst(noise, ledger, slot, self.setting, unpaid)
            plan = self.scheme.plan(state, slot, shares)
            reading = self.scheme.perturb(state, plan, counts[slot].copy(), watched)
            values = _bits_of(pack(plan, "plan")) | _bits_of(pack(reading, "reading"))
            message = self.scheme.message(state, plan, reading)
            if not isinstance(message, Messages):
                raise ContractBroken(f"message() returned {type(message).__name__}; it must return dpcrowd.Messages")
            values |= {f"message.{name}": bits(array) for name, array in message.arrays().items()}
            if not self.scheme.keeps_raw_counts:
                values |= {f"{name} before fuse": bits(array) for name, array in _packed(state).items()}
            self.scheme.fuse(state, plan, reading, message, audiences[slot % len(audiences)])
            release = self.scheme.release(state, plan, reading)
            values |= _bits_of(pack(release, "release"))
            if not self.scheme.keeps_raw_counts:
                values |= _bits_of(_packed(state))
            released.append(values)
            charged.append(release.charge.copy())
        return TrialRecord(noise.reads, unpaid[0] if unpaid else None, released, charged)


class _PaidFirst:
    """Noise of one slot that asks the ledger, before each read, whether all reads so far have been charged."""

    private = False

    def __init__(
        self, noise: BlindNoise, ledger: BatchLedger | None, slot: int, setting: Setting, unpaid: list[str]
    ) -> None:
        self._noise, self._ledger, self._slot, self._unpaid = noise, ledger, slot, unpaid
        self._unit = 1 if setting.guarantee is None else setting.guarantee.sensitivity
        self._before = self._remaining()
        self._cost = np.zeros(setting.servers)

    def _remaining(self) -> Ints | None:
        # Without advancing the ledger to the slot: schemes look at where their ledger is.
        return None if self._ledger is None else self._ledger.left_in(self._slot)

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        value = self._noise.noisy(slot, counts, charge, sensitivity, where, read)
        if self._ledger is None or self._unpaid:
            return value
        self._cost += cost_of(self._noise.reads[-1], self._unit)
        now = self._remaining()
        assert self._before is not None and now is not None
        charge = (self._before - now).max(axis=1)
        if (self._cost > charge * (1 + 1e-9)).any():
            server = int(np.argmax(self._cost - charge))
            self._unpaid.append(
                f"in slot {self._slot} server {server} reads counts for {self._cost[server] / 1e9:.6g} ε when its "
                f"ledger has been charged {charge[server] / 1e9:.6g} ε for that slot: spend before reading"
            )
        return value


def overwritten(
    scheme: Scheme, state: Any, slot: int, shares: Any, counts: Ints, noise: Noise, hearing: Hearing
) -> Release:
    """Run a slot in which the counts are overwritten as soon as perturb() has returned."""
    plan = scheme.plan(state, slot, shares)
    reading = scheme.perturb(state, plan, counts, noise)
    counts[:] = ABSURD
    messages = scheme.message(state, plan, reading)
    scheme.fuse(state, plan, reading, messages, hearing)
    return scheme.release(state, plan, reading)


def cost_of(read: Read, unit: int) -> Floats:
    """Return the nano-epsilon that a read costs a user of each server whose presence changes the counts by `unit`."""
    cost = np.where(read.where, read.charge * (unit / np.maximum(read.sensitivity, 1)), 0.0)
    return np.asarray(cost.max(axis=1))


def ledger_of(state: Any) -> BatchLedger | None:
    """Return the ledger in a state: its field `ledger`, or that of a state inside it."""
    own = getattr(state, "ledger", None)
    if isinstance(own, BatchLedger):
        return own
    inside: Sequence[Any] = [getattr(state, f.name) for f in fields(state)] if is_dataclass(state) else []
    ledgers = (ledger_of(value) for value in inside if is_dataclass(value) and not isinstance(value, Setting))
    return next((ledger for ledger in ledgers if ledger is not None), None)


def _bits_of(arrays: dict[str, NDArray[Any]]) -> dict[str, Bits]:
    return {name: bits(array) for name, array in arrays.items()}


def _packed(state: Any) -> dict[str, NDArray[Any]]:
    try:
        return pack(state, "state")
    except TypeError as error:
        raise ContractBroken(
            f"its state cannot be saved ({error}); allowed in a state: a dataclass of arrays, numbers, dataclasses of "
            "them and ledgers"
        ) from None
