"""One released slot of one server, as machine, storage, API and stream pass it on, and past slots, smoothed.

Everything in it is derived from noisy, paid numbers. The interval is kept as variance and factor, and computed where it
is asked for, so that the interval of a stored release is bit for bit the one that was published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.node.slots import SlotClock
from dpcrowd.schemes.base import Z95, Release, half_width
from dpcrowd.schemes.server import Server

__all__ = ["SlotRelease", "SmoothedSlots", "Smoothing"]


@dataclass(frozen=True, eq=False)
class SlotRelease:
    """What one server published for one slot; regions may differ from slot to slot, as revisions of the network do.

    regions             names, as the configuration of that time has them
    estimate, variance  (d,), NaN where nothing is known
    sampled             whether this server itself sampled in the slot
    nano                nano-epsilon that it paid for that
    heard               number of neighbours whose messages were fused
    factor              half an interval in standard deviations
    measurement, measurement_var  (d,) of a smoothed slot: what its records say by themselves (`schemes.history`), NaN
                        and infinite where they say nothing; None: not known
    """

    slot: int
    opens_ns: int
    length_ns: int
    regions: tuple[str, ...]
    estimate: Floats
    variance: Floats
    sampled: bool
    nano: int
    heard: int = 0
    factor: float = Z95
    measurement: Floats | None = None
    measurement_var: Floats | None = None

    @classmethod
    def of(cls, release: Release, clock: SlotClock, regions: tuple[str, ...], heard: int) -> SlotRelease:
        """Return what a server released, with the time of its slot and the names of its regions."""
        return cls(
            slot=release.slot,
            opens_ns=clock.opens(release.slot),
            length_ns=clock.length_ns,
            regions=regions,
            estimate=release.estimate,
            variance=release.variance,
            sampled=bool(release.sampled.any()),
            nano=release.nano,
            heard=heard,
        )

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Low and high, never clamped."""
        half = half_width(self.variance, self.factor)
        return self.estimate - half, self.estimate + half

    def only(self, regions: Sequence[str]) -> SlotRelease:
        """Return the same for some regions, in the order given; regions that it does not have are left out."""
        places = {name: place for place, name in enumerate(self.regions)}
        names = [name for name in regions if name in places]
        at = [places[name] for name in names]
        vectors = {
            name: vector[at]
            for name in ("estimate", "variance", "measurement", "measurement_var")
            if (vector := getattr(self, name)) is not None
        }
        return replace(self, regions=tuple(names), **vectors)


@dataclass(frozen=True, eq=False)
class SmoothedSlots:
    """Past slots of one server, estimated again with the records that have arrived since; regions as in its release.

    slots               (T,), one after the other, up to the slot of the release
    estimate, variance  (T, d), NaN and infinite where nothing is known
    measurement, measurement_var  (T, d) what the records of each slot say by themselves, NaN and infinite: nothing
    """

    slots: NDArray[np.int64]
    estimate: Floats
    variance: Floats
    measurement: Floats
    measurement_var: Floats


class Smoothing:
    """The smoothing of the last slots of a server after a release, to be computed when it is stored.

    With full matrices it takes d^3 steps per slot: 56 ms for 100 regions, for which a node's event loop must not stand
    still. So the machine only takes the numbers that it needs (`Server.smoothing`), and the thread that stores the
    release computes it. The bits are those of the moment of the release.
    """

    def __init__(self, server: Server, first: int) -> None:
        """Take what is needed of a server whose scheme keeps records.

        first  the first slot of the revision in use: earlier slots may have had other regions
        """
        self._compute, self._first = server.smoothing(), first
        self._slots: SmoothedSlots | None = None

    def slots(self) -> SmoothedSlots:
        """Return the smoothed slots, from the first one on; they are computed once."""
        if self._slots is None:
            history = self._compute()
            rows = history.slots >= self._first
            names = (part.name for part in fields(SmoothedSlots))
            self._slots = SmoothedSlots(*(getattr(history, name)[rows] for name in names))
        return self._slots
