"""One network's guarantee on a ledger: which payments count against a slot, and how much each of them counts.

**Which.** A guarantee is about windows, or about one horizon after another. Both begin and end where slots of the
network do. A payment may be for any slot [a, b): of another network, or of the same one under another epoch or slot
length. It reveals something about everybody who checked in during the slot, so it counts in every window and horizon
that it overlaps. If

    reach = where the earliest window (or horizon) begins that overlaps [a, b)

then every window that overlaps [a, b) begins at `reach` or later, and every payment that overlaps such a window closes
after `reach`. A payment is made only if it and all payments that close after its `reach` add up to at most epsilon.
Take any window, and the last payment in it: when it was made, all other payments of the window were counted with it. So
no window ever holds more than epsilon. Payments that are dated later than the slot count as well, however far ahead:
they were made by a clock that was wrong, perhaps a moment ago.

A network that returns with other slots, by a restored ledger and another network.toml, keeps its promise: the windows
of all slots under which it has paid bind it, in addition to its present ones, until the guarantee is withdrawn.

**How much.** A payment of epsilon_g by network p bought noise of scale c_p / epsilon_g on every count, where c_p = r_p
s_p with r_p regions and s_p servers per slot. A guarantee q holds for users who, in a slot of any network on the
ledger, count in at most max(r_p, r_q) regions at each of at most max(s_p, s_q) servers: a user within the bounds of q
everywhere is among them, and so is a user within each network's own bounds. Without such a user the counts of p's slot
differ by at most max(r_p, r_q) max(s_p, s_q) in all, and noise of scale b costs a difference D at most D / b. So the
payment counts for guarantee q as

    epsilon_g  max(r_p, r_q) max(s_p, s_q) / (r_p s_p)          >= epsilon_g, rounded up to whole nano-epsilon

Rounding up each payment is sound, since the sum is then at least the privacy that was lost. The ratio of the products,
c_q / c_p, would not be sound: with 4 regions at 1 server and 1 region at 4 servers both products are 4, and a user in 4
regions at each of 4 servers pays 4 times. Slots of different lengths change nothing: the users of networks that share a
ledger are pinned, so they are at the same servers in every slot, and how many regions count in a slot is a rule of the
network that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dpcrowd.privacy.clock_jumps import Jump, elapsed_start
from dpcrowd.privacy.units import format_epsilon

__all__ = ["NetworkGuarantee", "Slots", "UserBounds", "Windows"]


@dataclass(frozen=True)
class UserBounds:
    """In how many regions, and at how many servers, a user may count per slot.

    exact  False: an earlier version stored only the product of the two; each of them is then taken to be the product
    """

    regions: int = 1
    servers: int = 1
    exact: bool = True

    @property
    def sensitivity(self) -> int:
        """Regions times servers: by how much one user can change the counts of a slot."""
        return self.regions * self.servers if self.exact else self.regions

    def covers(self, other: UserBounds) -> bool:
        """Whether every user within the other bounds is within these bounds."""
        if self.exact and other.exact:
            return self.regions >= other.regions and self.servers >= other.servers
        return self.sensitivity >= other.sensitivity

    def cost(self, nano: int, payer: UserBounds) -> int:
        """Return what a payment with noise for the payer's bounds costs a user within these: at least `nano`."""
        factor, divisor = self.ratio(payer)
        return -(-nano * factor // divisor)

    def affordable(self, nano: int, payer: UserBounds) -> int:
        """Return the largest payment that costs a user within these bounds at most `nano`."""
        factor, divisor = self.ratio(payer)
        return nano * divisor // factor

    def ratio(self, payer: UserBounds) -> tuple[int, int]:
        """Return (factor, divisor): a payment costs a user within these bounds factor / divisor times its amount."""
        if not self.exact and not payer.covers(UserBounds(self.regions, self.servers)):
            return self.sensitivity, 1  # an upper bound, whatever the two factors are
        factor = max(self.regions, payer.regions) * max(self.servers, payer.servers)
        return factor, payer.regions * payer.servers

    def __str__(self) -> str:
        if not self.exact:
            return f"with up to {self.sensitivity} counts per slot"
        regions = "one region" if self.regions == 1 else f"up to {self.regions} regions"
        servers = "one server" if self.servers == 1 else f"each of up to {self.servers} servers"
        return f"in {regions} at {servers} per slot"


@dataclass(frozen=True)
class Windows:
    """All windows of length `span_ns` that begin at a multiple of `slot_ns` after `offset_ns`.

    With slots of 1 ns a window may begin at any moment, which covers every choice of slots.
    """

    span_ns: int
    slot_ns: int = 1
    offset_ns: int = 0

    def reach(self, opens_ns: int) -> int:
        """Return where the earliest window begins that overlaps the slot opening at `opens_ns`."""
        return self.offset_ns + ((opens_ns - self.span_ns - self.offset_ns) // self.slot_ns + 1) * self.slot_ns

    def free_from(self, closes_ns: int) -> int:
        """Return the time from which an opening slot shares no window with a payment that closed at `closes_ns`."""
        latest = self.offset_ns + (closes_ns - 1 - self.offset_ns) // self.slot_ns * self.slot_ns
        return latest + self.span_ns


@dataclass(frozen=True)
class Slots:
    """A network's slots, `count` of them per window or horizon; None: unknown, and a horizon has no end."""

    epoch_ns: int
    slot_ns: int
    count: int | None = None

    def slot_of(self, at_ns: int) -> int:
        """Return the number of the slot that is open at a time; negative before the epoch."""
        return (at_ns - self.epoch_ns) // self.slot_ns

    def opens(self, slot: int) -> int:
        """Return when a slot opens."""
        return self.epoch_ns + slot * self.slot_ns


@dataclass(frozen=True)
class NetworkGuarantee:
    """At most `nano` in any window of `span_ns`; if that is None, since `since_ns`, the start of the horizon.

    bounds        in how many regions, and at how many servers, a user may count per slot
    roaming       whether users may change servers
    slot_ns       length of the network's slots; 1: unknown
    epoch_ns      when slot 0 opens
    horizon_slot  the slot at which network.toml begins the horizon
    paid          the windows of all slots under which the network has paid
    earlier       the starts of earlier horizons, in order
    """

    network: str
    nano: int
    span_ns: int | None
    since_ns: int
    bounds: UserBounds = field(default_factory=UserBounds)
    roaming: bool = False
    slot_ns: int = 1
    epoch_ns: int = 0
    horizon_slot: int = 0
    paid: tuple[Windows, ...] = ()
    earlier: tuple[int, ...] = ()

    @property
    def windows(self) -> tuple[Windows, ...]:
        """All windows that bind: the present ones, and those of all slots under which the network has paid."""
        if self.span_ns is None:
            return self.paid
        return Windows(self.span_ns, self.slot_ns, self.epoch_ns % self.slot_ns), *self.paid

    def reach(self, opens_ns: int, jumps: Sequence[Jump] = ()) -> int:
        """Return the time after which payments have to close to count against the slot that opens at `opens_ns`."""
        starts = [elapsed_start(jumps, windows.reach(opens_ns)) for windows in self.windows]
        if self.span_ns is None:
            starts.append(self._horizon_of(opens_ns))
        return min(starts)

    def _horizon_of(self, opens_ns: int) -> int:
        """Return where the horizon of a slot begins: a slot that is paid late belongs to a horizon that has ended."""
        return max((start for start in (*self.earlier, self.since_ns) if start <= opens_ns), default=0)

    @property
    def payer(self) -> UserBounds:
        """For how many regions and servers per slot the network's noise is made; if unknown, for one of each."""
        return self.bounds if self.bounds.exact else UserBounds()

    def free_from(self, closes_ns: int) -> int | None:
        """Return when slots become free of a payment that closed at `closes_ns`; None: never within the horizon."""
        return None if self.span_ns is None else max(windows.free_from(closes_ns) for windows in self.windows)

    def slot_start(self, at_ns: int, *, after: bool = False) -> int:
        """Return when the slot that is open at a time opens; with `after`, when the first slot opens at or after it."""
        slots = (at_ns - self.epoch_ns + (self.slot_ns - 1 if after else 0)) // self.slot_ns
        return self.epoch_ns + slots * self.slot_ns

    def opens(self, slot: int) -> int:
        """Return when a slot of the network opens."""
        return self.epoch_ns + slot * self.slot_ns

    def continuing(self, old: NetworkGuarantee | None) -> NetworkGuarantee:
        """Return this guarantee, as configured, with the start of its horizon; a new epoch alone begins no horizon."""
        if self.span_ns is not None:
            return replace(self, since_ns=0)
        configured = self.opens(self.horizon_slot) if self.horizon_slot else 0
        if old is None or old.span_ns is not None:
            return replace(self, since_ns=configured)
        if self.horizon_slot > old.horizon_slot:
            return replace(self, since_ns=configured if self.roaming else max(old.since_ns, configured))
        # Roaming users need the horizon that all servers have: not one that the operator of this one began.
        return replace(self, since_ns=min(old.since_ns, configured) if self.roaming else old.since_ns)

    def weaker_than(self, old: NetworkGuarantee) -> bool:
        """Whether this guarantee promises less than `old`, which users were given before."""
        if self.nano > old.nano or not self.bounds.covers(old.bounds) or (old.roaming and not self.roaming):
            return True
        return self.span_ns is not None and (old.span_ns is None or self.span_ns < old.span_ns)

    def __str__(self) -> str:
        over = "over its complete horizon" if self.span_ns is None else f"in any {self.span_ns / 1e9:g} s"
        return f"ε={format_epsilon(self.nano)} {over} for {'roaming' if self.roaming else 'pinned'} users {self.bounds}"
