"""One server, slot by slot: the interface on which a live node stands.

    message = server.observe(slot, counts)     the server's own counts of the slot; a message for the others, or None
    release = server.hear(messages)            what arrived, by sender; estimate, variance, interval, sampled?, epsilon

The arithmetic is the batch's own with N = 1: a simulated and a live server that get the same counts, noise and messages
release the same bits. There is no clock and no I/O in here; slots may be skipped, never repeated. `save` gives the
whole state, also between the two calls, and `restore` takes it back exactly, so a server that was killed between them
goes on with the noisy values it has already paid for and never draws twice for one slot. `take_over` does the same
under another setting: other regions, another share. `begin_again` goes back to earlier slots, after a clock that was
ahead has come back; that none of them is drawn a second time is then the caller's matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.filters import check_gain, default_gain
from dpcrowd.network.hearing import Hearing, inbox_hearing
from dpcrowd.privacy import FiniteLedger, Noise, check_noise
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.base import Z95, Peers, Plan, Reading, Scheme, Setting
from dpcrowd.schemes.history import recent_posteriors
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.perturb import check_counts
from dpcrowd.schemes.records import Mailbox
from dpcrowd.schemes.relay import Relay, RelayState
from dpcrowd.schemes.snapshot import fingerprint, from_bytes, load_into, pack, to_bytes, unpack
from dpcrowd.schemes.transfer import Run, estimates_only, measured, silent_on, transfer, without_prior

__all__ = ["Server", "ServerHistory", "ServerRelease", "saved_slot"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ServerRelease:
    """What one server publishes for one slot; vectors have one number a region."""

    slot: int
    estimate: Floats
    variance: Floats
    low: Floats
    high: Floats
    sampled: NDArray[np.bool_]
    epsilon: float
    """Charged in this slot."""


@dataclass(frozen=True)
class ServerHistory:
    """What one server says of past slots now: slots (T,), and (T, d) numbers, NaN where it knew nothing."""

    slots: NDArray[np.int64]
    estimate: Floats
    variance: Floats
    low: Floats
    high: Floats


class Server:
    """One server of a network.

    number      its place in the network's order of servers; sums run in this order
    share       the public part of the population that it sees, 0 < share <= 1
    max_degree  the largest number of neighbours of any server in the network, which sets the consensus step
    beta        the consensus step itself, instead

    Noise that is not private is refused, unless `allow_simulated_noise` says that this is a test or a simulation.
    """

    def __init__(
        self,
        scheme: Scheme,
        setting: Setting,
        noise: Noise,
        *,
        number: int,
        share: float,
        max_degree: int = 0,
        beta: float | None = None,
        allow_simulated_noise: bool = False,
    ) -> None:
        check_noise(noise, "a server", allow_simulated_noise=allow_simulated_noise)
        if setting.servers != 1:
            raise BadInput(f"a server's setting is for 1 server; given {setting.servers}.")
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise BadInput(f"a server's number is a whole number >= 0; given {number!r}.")
        if not isinstance(share, int | float | np.floating) or not 0 < share <= 1:
            raise BadInput(f"share must be above 0 and at most 1; given {share}.")
        if scheme.reach == "central":
            raise BadInput(f"scheme '{scheme.name}' needs every server's samples in one place: simulate it instead.")
        if scheme.reach == "relay":
            _check_peers(setting.peers, int(number), float(share))
        self.scheme = scheme
        self.setting = setting
        self.number = number
        self._noise = noise
        self._shares = np.array([[float(share)]])
        growth = setting.model.growth
        self._gain = default_gain(max_degree, growth) if beta is None else check_gain(beta, max_degree, growth)
        self._state = scheme.start(setting)
        self._slot = -1
        self._pending: tuple[Plan, Reading] | None = None
        self._blank = np.zeros(setting.regions, dtype=np.bool_)  # new regions of a matrix form; see `take_over`

    @property
    def slot(self) -> int:
        """The last slot that was observed; -1 before the first."""
        return self._slot

    @property
    def mailbox(self) -> Mailbox:
        """The records that it has, and how many it has refused; of a scheme that passes records on."""
        mailbox = self._relay()[1].mailbox
        assert mailbox is not None
        return mailbox

    def carry_over(self, charges: Mapping[int, int], now: int, first: int = 0) -> None:
        """Begin with the debts of an older account: nano-epsilon by slot, up to slot `now`; see `Ledger.carry_over`."""
        if self._slot != -1:
            raise BadInput("debts are taken over before the first slot.")
        ledger = getattr(self._state, "ledger", None)
        if ledger is None:
            raise BadInput(f"scheme '{self.scheme.name}' keeps no ledger.")
        ledger.carry_over(charges, now, first)

    @property
    def horizon(self) -> int | None:
        """The first slot of the finite horizon in which it spends; None for a window, or without a ledger."""
        ledger = getattr(self._state, "ledger", None)
        return ledger.first if isinstance(ledger, FiniteLedger) else None

    def begin_horizon(self, charges: Mapping[int, int], first: int) -> None:
        """Spend in a new horizon from slot `first` on: account and sampling begin anew, the estimates go on.

        charges  what the new horizon has cost already: nano-epsilon by slot, up to the last slot that was observed

        A slot that was open is released without messages first.
        """
        if self.horizon is None:
            raise BadInput(f"scheme '{self.scheme.name}' has no horizon here that could begin anew.")
        if self._pending is not None:
            self.hear()
        self._state = estimates_only(self._state, self.scheme.start(self.setting))
        self._state.ledger.carry_over(charges, self._slot, first)

    def begin_again(self, charges: Mapping[int, int], last: int, first: int = 0) -> None:
        """Go on after slot `last`, although later ones were observed: account and sampling begin anew, estimates go on.

        charges  what counts against the window or horizon: nano-epsilon by slot, up to `last`
        first    the first slot of the present horizon, if that is finite

        A slot that was open is released without messages first. The caller sees to it that nothing is observed with
        counts that was sampled before: this server no longer knows.
        """
        if not -1 <= last < self._slot:
            raise BadInput(f"slot {last} is not before slot {self._slot}, the last one that was observed.")
        if getattr(self._state, "ledger", None) is None:
            raise BadInput(f"scheme '{self.scheme.name}' keeps no ledger.")
        if self._pending is not None:
            self.hear()
        self._state = estimates_only(self._state, self.scheme.start(self.setting))
        self._state.ledger.carry_over(charges, last, first)
        self._slot = last

    def remaining(self, slot: int) -> int:
        """Nano-epsilon that may still be spent in a slot that is not over yet."""
        ledger = getattr(self._state, "ledger", None)
        # Of a copy: a ledger that is asked of a slot goes there, and the slot before it could not be paid any more.
        return 0 if ledger is None else int(deepcopy(ledger).remaining(slot).min())

    def observe(self, slot: int, counts: object | None, room: int | None = None) -> Messages | None:
        """Take this slot's counts (d whole numbers); give the message for the others, or None if nothing is said.

        Without counts (None: the server was down, or may not pay) nothing is sampled in this slot. `room` is what the
        slot may cost at most, in nano-epsilon, where an account outside knows of more debts than this server does.
        """
        if self._pending is not None:
            raise BadInput(f"slot {self._slot} is still open: call hear() before observing slot {slot}.")
        if isinstance(slot, bool) or not isinstance(slot, int | np.integer) or slot < 0:
            raise BadInput(f"a slot is a whole number >= 0; given {slot!r}.")
        if slot <= self._slot:
            raise BadInput(f"slot {slot} was given after slot {self._slot}: no slot may be observed twice.")
        nothing = np.zeros(self.setting.regions, dtype=np.int64)
        checked = check_counts(nothing if counts is None else counts, self.setting.regions)
        ledger = getattr(self._state, "ledger", None)
        if ledger is not None:
            ledger.ceiling = room
        plan = self.scheme.plan(self._state, slot, self._shares)
        if counts is None:
            if not self.scheme.live:
                raise BadInput(f"scheme '{self.scheme.name}' reads the counts of every slot and cannot go without.")
            plan = replace(plan, due=np.zeros_like(plan.due), pivot=None, parts=None)
        self._slot = slot
        self._pending = plan, self.scheme.perturb(self._state, plan, checked, self._noise)
        return self.pending_message()

    @property
    def open_slot(self) -> int | None:
        """The slot that was observed and not yet released; None if there is none."""
        return None if self._pending is None else self._slot

    def open_sample(self) -> tuple[int, Floats] | None:
        """Of the open slot: nano-epsilon paid, and the noisy values (d,); None if nothing was sampled."""
        if self._pending is None or not self._pending[1].charge.any():
            return None
        reading = self._pending[1]
        return int(reading.charge.max()), reading.noisy[0]

    def pending_message(self) -> Messages | None:
        """The message of the open slot again, from the values already drawn; None if there is nothing to say."""
        if self._pending is None:
            return None
        message = self._own_message(*self._pending)
        return message if message.speaks.any() else None

    def _own_message(self, plan: Plan, reading: Reading) -> Messages:
        message: Messages = self.scheme.message(self._state, plan, reading)
        return without_prior(message) if self._blank.any() else message

    def hear(self, messages: Mapping[int, Messages] | None = None) -> ServerRelease:
        """Fuse the messages of other servers, by their numbers, and release.

        Who sent a message and of which slot it is, the caller has checked; the numbers in it are checked here.
        """
        if self._pending is None:
            raise BadInput("no slot is open: call observe() first.")
        heard = dict(messages or {})
        if self.number in heard:
            raise BadInput(f"server {self.number} was given its own message as a neighbour's.")
        if heard and self.scheme.reach == "alone":
            raise BadInput(f"scheme '{self.scheme.name}' works alone and hears nobody; given {len(heard)} messages.")
        if self.scheme.reach == "one-hop":
            self._check_neighbours(len(heard))
        plan, reading = self._pending
        own = self._own_message(plan, reading)
        heard[self.number] = own
        for sender, message in heard.items():
            _check_message(sender, message, own)
        heard = {sender: m for sender, m in heard.items() if m.speaks.any() or sender == self.number}
        inbox = type(own).stack([heard[sender] for sender in sorted(heard)])
        sums = self.scheme.reach in ("one-hop", "flooding")
        hearing = inbox_hearing(len(heard), self._gain) if sums else Hearing()
        self.scheme.fuse(self._state, plan, reading, inbox, hearing)
        release = self.scheme.release(self._state, plan, reading)
        self._pending = None
        if self._blank.any():
            self._blank &= ~measured(inbox)
            release = silent_on(release, self._blank)
        low, high = release.interval
        regions = release.estimate.shape[1]
        return ServerRelease(
            slot=plan.slot,
            estimate=release.estimate[0],
            variance=release.variance[0],
            low=low[0],
            high=high[0],
            sampled=np.broadcast_to(release.sampled[0], (regions,)),
            epsilon=from_nano(int(release.charge.max())),
        )

    def _check_neighbours(self, heard: int) -> None:
        if self._gain * heard * self.setting.model.growth > 0.5:
            raise BadInput(
                f"server {self.number} was given messages of {heard} neighbours, too many for its consensus step "
                f"{self._gain:.6g}: say with max_degree how many neighbours a server of this network can have."
            )

    def smoothed(self) -> ServerHistory:
        """The last L slots up to the last release, estimated with everything that has come since; costs nothing."""
        scheme, state = self._relay()
        posteriors = recent_posteriors(scheme, state)
        estimate, variance = (values[:, 0] for values in posteriors.smoothed(self.setting))
        half = Z95 * np.sqrt(variance)
        return ServerHistory(posteriors.slots, estimate, variance, estimate - half, estimate + half)

    def suspects(self) -> list[int]:
        """Numbers of the servers whose records count less here, because they have not agreed with the others'."""
        scheme, state = self._relay()
        return [int(number) for number in np.flatnonzero(scheme.suspects(state)[0])]

    def _relay(self) -> tuple[Relay, RelayState]:
        if not isinstance(self.scheme, Relay):
            raise BadInput(f"scheme '{self.scheme.name}' keeps no records; this needs one that does, such as relay.")
        return self.scheme, self._state

    def save(self) -> bytes:
        """The whole state as bytes. Refused for schemes whose state holds raw counts."""
        if self.scheme.keeps_raw_counts:
            raise BadInput(f"scheme '{self.scheme.name}' keeps raw counts between slots: its state must not be stored.")
        arrays = pack(self._state, "state")
        arrays["scheme"] = np.frombuffer(self.scheme.name.encode(), dtype=np.uint8)
        arrays["fingerprint"] = self._fingerprint()
        arrays["slot"] = np.array(self._slot)
        if self._blank.any():
            arrays["blank"] = self._blank
        if self._pending is not None:
            arrays.update(pack(self._pending[0], "plan"))
            arrays.update(pack(self._pending[1], "reading"))
        return to_bytes(arrays)

    def _fingerprint(self) -> NDArray[np.uint8]:
        return fingerprint(self.scheme, self.setting, self.number, float(self._shares[0, 0]))

    def restore(self, saved: bytes) -> None:
        """Take over a state that `save` gave; scheme and setting must be the same."""
        arrays = from_bytes(saved)
        whose = arrays.get("scheme", np.zeros(0, dtype=np.uint8)).tobytes().decode(errors="replace")
        if whose != self.scheme.name or "slot" not in arrays:
            raise BadInput(f"the saved state is of scheme '{whose}'; this server runs '{self.scheme.name}'.")
        if arrays.get("fingerprint", np.zeros(0)).tobytes() != self._fingerprint().tobytes():
            raise BadInput(
                f"the saved state of scheme '{whose}' is of another server or setting (number, share, guarantee, "
                "model, tuning or options); restore it where it was made."
            )
        state = self.scheme.start(self.setting)
        load_into(state, arrays, "state")
        self._state = state
        self._slot = int(arrays["slot"])
        self._blank = arrays.get("blank", np.zeros(self.setting.regions, dtype=np.bool_))
        self._pending = None
        if any(name.startswith("plan.") for name in arrays):
            self._pending = unpack(Plan, arrays, "plan"), unpack(Reading, arrays, "reading")

    def take_over(self, saved: bytes, before: Server, places: Sequence[int | None]) -> None:
        """Go on from what this server saved under an older setting of the same scheme and promise.

        before  a server with the older setting, share and number; it is used up
        places  for each region its number in the older order; None: a new region, of which nothing is known

        Slots must be counted from the same epoch, in the same length. A slot that was open is released without messages
        first. What was spent stays spent; a state that does not fit is refused and changes nothing.
        """
        ledger = getattr(self._state, "ledger", None)
        if self._slot != -1 or (ledger is not None and ledger.slot != -1):
            raise BadInput("a state is taken over by a server that has done nothing yet: neither slots nor debts.")
        before.restore(saved)
        if before.open_slot is not None:
            before.hear()
        old, new = Run(before.scheme, before.setting), Run(self.scheme, self.setting)
        self._state, self._blank = transfer(before._state, before._blank, old, new, places)
        self._slot = before.slot


def saved_slot(saved: bytes) -> int:
    """The last slot that was observed by the server whose state was saved; -1: none."""
    arrays = from_bytes(saved)
    if "slot" not in arrays:
        raise BadInput("the saved state is not that of a server.")
    return int(arrays["slot"])


def _check_peers(peers: Peers | None, number: int, share: float) -> None:
    if peers is None:
        raise BadInput("a server that passes records on needs the public shares of its network: give peers.")
    if peers.number != number or not number < len(peers.shares) or peers.shares[number] != share:
        raise BadInput(f"server {number} with share {share} is not the one that its peers name: {peers.number}.")


def _check_message(sender: int, message: Messages, own: Messages) -> None:
    if type(message) is not type(own):
        raise BadInput(f"server {sender} sent {type(message).__name__}; this scheme hears {type(own).__name__}.")
    message.check_shapes(own, sender)
    message.check_values(f"server {sender}")
