"""One server, slot by slot: the interface that a live node uses.

    message = server.observe(slot, counts)     the server's own counts of the slot; a message for the others, or None
    release = server.hear(messages)            what arrived, by sender; estimate, variance, interval, sampled?, epsilon

The arithmetic is the batch's own with N = 1: a simulated and a live server that get the same counts, noise and messages
release the same bits. There is no clock and no I/O in here. Slots may be skipped, never repeated; skipped ones pass as
slots without a sample do, one by one, because what is remembered beside the filter moves with every slot. `save`
returns the complete state, also between the two calls, and `restore` takes it back exactly, so a server that was killed
between them continues with the noisy values it has already paid for and never draws twice for one slot. `take_over`
does the same under another setting: other regions, another share.

A live server spends from an account that outlives it (`privacy.account_ledger`): it gets a fresh one before every slot,
and its state contains none of it. So it can continue in a new horizon (`begin_horizon`), and return to earlier slots
after a clock that was ahead has been corrected (`begin_again`); the account ensures that none is drawn a second time.

A server whose scheme passes records on, and that has none from before, takes a neighbour's word (`join`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput, counted
from dpcrowd.filters import check_gain, default_gain
from dpcrowd.filters.learning import complete_banks
from dpcrowd.network.hearing import Hearing, inbox_hearing
from dpcrowd.network.mixing import Mixing
from dpcrowd.privacy import Noise, check_noise
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.account_ledger import AccountLedger
from dpcrowd.privacy.ledger import BatchLedger, FiniteLedger, WindowLedger
from dpcrowd.schemes.base import Peers, Plan, Reading, Release, Scheme, Setting, half_width
from dpcrowd.schemes.filter_state import FilterState
from dpcrowd.schemes.filtering import FilterScheme
from dpcrowd.schemes.history import Posteriors, recent_posteriors
from dpcrowd.schemes.innovations import message_innovations, record_innovations
from dpcrowd.schemes.kept_learning import begins_anew
from dpcrowd.schemes.messages import InfoMessages, Messages
from dpcrowd.schemes.perturb import check_counts
from dpcrowd.schemes.record_estimates import RecordEstimates, record_estimates
from dpcrowd.schemes.records import Mailbox, Obstacle, RecordMessages
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_bounds import least_variance
from dpcrowd.schemes.relay_filter import complete_filters
from dpcrowd.schemes.relay_join import FinalisedState, can_be_joined, finalised_state, read_finalised
from dpcrowd.schemes.relay_share_checks import check_learned
from dpcrowd.schemes.relay_shares import learning_goes_on
from dpcrowd.schemes.relay_state import (
    RelayState,
    back_in_time,
    servers_per_run,
    slot_of_base,
    with_fresh_schedule,
)
from dpcrowd.schemes.relay_transfer import take_beliefs, transfer_relay
from dpcrowd.schemes.sampled import SampledScheme
from dpcrowd.schemes.snapshot import fingerprint, from_bytes, load_into, pack, to_bytes, unpack
from dpcrowd.schemes.transfer import Run, check_transfer, estimates_only, measured, silent_on, transfer, without_prior

__all__ = ["Joined", "Server", "ServerHistory", "saved_join", "saved_slot"]


_CONFIRMED = 2  # neighbours that send the same state confirm each other
_MOST_PASSED = 1_000  # skipped slots that pass one by one, which takes a second; those before them pass at once


@dataclass(frozen=True)
class ServerHistory:
    """What one server now estimates of past slots: slots (T,), and (T, d) numbers, NaN where it has no estimate.

    measurement, measurement_var  what the records of each slot say by themselves (`schemes.history`)
    """

    slots: NDArray[np.int64]
    estimate: Floats
    variance: Floats
    low: Floats
    high: Floats
    measurement: Floats
    measurement_var: Floats


@dataclass(frozen=True)
class Joined:
    """Whose word the estimate of a server began with: names of its neighbours, and the slot of their state."""

    sources: tuple[str, ...]
    slot: int


class Server:
    """One server of a network.

    number      its place in the network's order of servers; sums run in this order
    share       the public part of the population that it sees, 0 < share <= 1
    max_degree  the largest number of neighbours of any server in the network, which sets the consensus step
    beta        the consensus step itself, instead of `max_degree`
    mixing      what the links of the network do to errors (`dpcrowd.network.mixing`), as (1, 1) arrays; without it,
                nothing is taken to be averaged away, and intervals of schemes with a consensus are rather too wide
    account     the account from which it spends; without one, it has a ledger of its own, as in a simulation

    Noise that is not private is refused, unless `allow_simulated_noise` says that this is a test or a simulation.

    >>> from dpcrowd import DPCrowdW, Guarantee, ProcessModel, SecureNoise
    >>> setting = Setting(1, ProcessModel.of(1.0, [100.0]), Guarantee.window(24, epsilon=24.0))
    >>> server = Server(DPCrowdW("fixed", interval=1), setting, SecureNoise(), number=0, share=0.5, max_degree=2)
    >>> message = server.observe(0, [1000])  # to be sent to the neighbours
    >>> release = server.hear({})  # with what they have sent
    >>> bool(abs(release.estimate[0] - 2000) < 200), release.epsilon
    (True, 1.0)
    """

    def __init__(
        self,
        scheme: Scheme,
        setting: Setting,
        noise: Noise,
        *,
        number: int,
        share: float | Floats,
        max_degree: int = 0,
        beta: float | None = None,
        mixing: Mixing | None = None,
        account: Account | None = None,
        allow_simulated_noise: bool = False,
    ) -> None:
        check_noise(noise, "a server", allow_simulated_noise=allow_simulated_noise)
        if setting.servers != 1:
            raise BadInput(f"a server's setting is for 1 server; given {setting.servers}.")
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise BadInput(f"a server's number is a whole number >= 0; given {number!r}.")
        shares = _checked_share(share, setting.regions)
        if scheme.reach == "central":
            raise BadInput(f"scheme '{scheme.name}' needs every server's samples in one place; simulate it instead.")
        if scheme.reach == "relay":
            _check_peers(setting.peers, int(number), shares[0])
        self.scheme = scheme
        self.setting = setting
        self.number = number
        self._noise = noise
        self._shares = shares
        growth = setting.model.growth
        self._gain = default_gain(max_degree, growth) if beta is None else check_gain(beta, max_degree, growth)
        self._mixing = mixing
        self._ledger = None if account is None else _live_ledger(account, scheme, setting)
        self._run = Run(scheme, setting, self._ledger)
        self._state = self._run.start()
        self._horizon = None if self._ledger is None else self._ledger.first
        self._slot = -1
        self._pending: tuple[Plan, Reading] | None = None
        self._blank = np.zeros(setting.regions, dtype=np.bool_)  # new regions of a matrix form; see `take_over`
        self._joined: Joined | None = None
        self._first: int | None = None  # the first slot that was observed
        self._innovations = np.zeros((0, setting.regions))
        self._of_sums = np.zeros((0, setting.regions), dtype=np.bool_)

    @property
    def slot(self) -> int:
        """The last slot that was observed; -1 before the first."""
        return self._slot

    @property
    def mailbox(self) -> Mailbox:
        """The records that it holds and the number that it has refused; only for a scheme that passes records on."""
        mailbox = self._relay()[1].mailbox
        assert mailbox is not None
        return mailbox

    def record_obstacle(self, origin: int, slot: int, nano: int, hops: int, now: int) -> Obstacle | None:
        """Return why a record would not be accepted in slot `now`; nothing changes."""
        scheme, state = self._relay()
        return scheme.obstacle(state, origin, slot, nano, hops, now)

    def above_account(self, origin: int, waiting: Collection[int] = ()) -> list[int]:
        """Return the slots of an origin's records that its public account does not allow: they do not count.

        waiting  slots of records that have arrived and were not given to the filter yet
        """
        _, state = self._relay()
        return self.mailbox.above_account(origin, int(state.last), waiting)

    def holds_record(self, origin: int, slot: int) -> bool:
        """Whether its filter has a record of the last L slots."""
        _, state = self._relay()
        return self.mailbox.holds(origin, slot, int(state.last))

    @property
    def account(self) -> Account | None:
        """The account from which it spends, including its own payments; None: it has a ledger of its own."""
        return None if self._ledger is None else self._ledger.account

    def use(self, account: Account) -> None:
        """Spend from this account from now on."""
        self._need_account().use(account)

    @property
    def horizon(self) -> int | None:
        """The first slot of the finite horizon for which it plans its samples; None: a window, or no account."""
        return self._horizon

    def begin_horizon(self) -> None:
        """Sample for the horizon that its account is in: sampling starts anew, the estimates continue.

        A slot that was open is released without messages first.
        """
        first = self._need_account().first
        if first is None:
            raise BadInput(f"scheme '{self.scheme.name}' has no horizon here that could begin anew.")
        self._check_begin()
        fresh = self._run.start()
        if isinstance(self._state, RelayState):
            self._state = with_fresh_schedule(self._state, fresh, first)
        else:
            self._state = estimates_only(self._state, fresh)
        self._horizon = first

    def begin_again(self, last: int) -> None:
        """Continue after slot `last`, although later ones were observed: sampling starts anew, the estimates continue.

        A slot that was open is released without messages first. Slots that were sampled before are not sampled again:
        its account knows them.
        """
        if not -1 <= last < self._slot:
            raise BadInput(f"slot {last} is not before slot {self._slot}, the last one that was observed.")
        ledger = self._need_account()
        self._check_begin()
        fresh = self._run.start()
        if isinstance(self._state, RelayState):
            state = self._state
            complete_filters(state, int(state.last) + 1, "numpy")
            self._state = back_in_time(state, fresh, last)
            take_beliefs(state, self._state, range(self.setting.regions))
            learning_goes_on(state, self._state)
        else:
            self._state = estimates_only(self._state, fresh)
        ledger.go_to(last)
        self._slot, self._horizon = last, ledger.first
        self._first = min(self._first or 0, last + 1)

    def _check_begin(self) -> None:
        """Refuse schemes that cannot begin their sampling anew; release a slot that is open."""
        if not (self.scheme.live or isinstance(self._state, RelayState)):
            raise BadInput(
                f"scheme '{self.scheme.name}' cannot begin its sampling anew; only live schemes and relay can."
            )
        if self._pending is not None:
            self.hear()

    def _need_account(self) -> AccountLedger:
        if self._ledger is None:
            raise BadInput("this server has a ledger of its own; create it with an account.")
        return self._ledger

    def remaining(self, slot: int) -> int:
        """Return the nano-epsilon that may still be spent in a slot that is not over yet."""
        ledger = getattr(self._state, "ledger", None)
        return 0 if ledger is None else int(ledger.left_in(slot).min())

    def carry_over(self, charges: Mapping[int, int], now: int, first: int = 0) -> None:
        """Begin with what was spent before: nano-epsilon by slot, up to slot `now`; `first` begins a finite horizon.

        Deprecated: an account knows what was spent. Make the server with one.
        """
        _deprecated("Server.carry_over", "make the server with account=..., which knows what was spent before")
        ledger = getattr(self._state, "ledger", None)
        if self._slot != -1 or not isinstance(ledger, BatchLedger) or ledger.slot != -1 or ledger.spent.any():
            raise BadInput("debts are taken over before the first slot, by a server with a ledger of its own.")
        if any(nano < 0 or slot > now for slot, nano in charges.items()):
            raise BadInput(f"what was spent before is >= 0 and of slots up to {now}.")
        for slot, nano in charges.items():
            if isinstance(ledger, WindowLedger) and slot > now - ledger.length:
                ledger.history[slot % ledger.length] += nano
            if not isinstance(ledger, WindowLedger) or slot > now - ledger.length:
                ledger.spent = ledger.spent + nano
        ledger.slot = now
        if isinstance(ledger, FiniteLedger):
            ledger.first = first

    def observe(self, slot: int, counts: object | None, room: int | None = None) -> Messages | None:
        """Take this slot's counts (d whole numbers); return the message for the others, or None if none is sent.

        Without counts (None: the server was down, or may not pay) nothing is sampled in this slot. Slots since the last
        one that was observed pass without counts and messages.

        room  deprecated: what the slot may cost at most, in nano-epsilon; an account knows that
        """
        if room is not None:
            return self._observe_with_room(slot, counts, room)
        slot, checked = self._check_slot(slot, counts)
        self._pass_skipped(slot)
        self._open(slot, checked, may_sample=counts is not None)
        return self.pending_message()

    def _check_slot(self, slot: int, counts: object | None) -> tuple[int, Ints]:
        """Return a slot that can be observed and its counts (1, d), or zeros; whatever is refused changes nothing."""
        if self._pending is not None:
            raise BadInput(f"slot {self._slot} is still open: call hear() before observing slot {slot}.")
        if isinstance(slot, bool) or not isinstance(slot, int | np.integer) or slot < 0:
            raise BadInput(f"a slot is a whole number >= 0; given {slot!r}.")
        if slot <= self._slot:
            raise BadInput(f"slot {slot} was given after slot {self._slot}: no slot may be observed twice.")
        nothing = np.zeros(self.setting.regions, dtype=np.int64)
        checked = check_counts(nothing if counts is None else counts, self.setting.regions)
        if counts is None and not (self.scheme.live or self.scheme.may_skip):
            raise BadInput(f"scheme '{self.scheme.name}' reads the counts of every slot and cannot go without.")
        return int(slot), checked

    def _pass_skipped(self, slot: int) -> None:
        """Let slots before this one pass that were left out, at most `_MOST_PASSED`; those before them pass at once.

        Schemes that keep records pass them by themselves; a scheme that reads every slot knows how many there were.
        """
        if self._slot < 0 or self.keeps_records or not self.scheme.live:
            return
        nothing = np.zeros((1, self.setting.regions), dtype=np.int64)
        for skipped in range(max(self._slot + 1, slot - _MOST_PASSED), slot):
            self._open(skipped, nothing, may_sample=False)
            self.hear()

    def _open(self, slot: int, counts: NDArray[np.int64], *, may_sample: bool) -> None:
        """Open a slot after the last one that was observed, and sample it if it is due and may be sampled."""
        if (filters := self._filters()) is not None:
            filters.skipped = slot - self._slot - 1 if self._slot >= 0 else 0
        plan = self.scheme.plan(self._state, slot, self._shares)
        if not may_sample:
            plan = replace(plan, due=np.zeros_like(plan.due), pivot=None, parts=None)
        self._slot = slot
        self._first = slot if self._first is None else self._first
        self._pending = plan, self.scheme.perturb(self._state, plan, counts, self._noise)

    def _filters(self) -> FilterState | None:
        """Return the state of the scheme's filter, also where flooding is around it; None: the scheme has none."""
        state = getattr(self._state, "inner", self._state)
        return state if isinstance(state, FilterState) else None

    def _observe_with_room(self, slot: int, counts: object | None, room: int) -> Messages | None:
        _deprecated(
            "room of Server.observe", "make the server with account=..., which knows what a slot may cost", stacklevel=4
        )
        ledger = getattr(self._state, "ledger", None)
        if not isinstance(ledger, BatchLedger):
            raise BadInput("a server that spends from an account takes no room: the account knows.")
        slot, checked = self._check_slot(slot, counts)
        self._pass_skipped(slot)  # before the ledger moves on to this slot
        total = ledger.total
        ledger.remaining(slot)  # what leaves the window is given back first
        ledger.total = min(total, int(ledger.spent.max()) + room)
        try:
            self._open(slot, checked, may_sample=counts is not None)
            return self.pending_message()
        finally:
            ledger.total = total

    @property
    def open_slot(self) -> int | None:
        """The slot that was observed and not yet released; None if there is none."""
        return None if self._pending is None else self._slot

    def open_sample(self) -> tuple[int, Floats] | None:
        """Return nano-epsilon paid and noisy values (d,) of the open slot; None if nothing was sampled."""
        if self._pending is None or not self._pending[1].charge.any():
            return None
        reading = self._pending[1]
        return int(reading.charge.max()), reading.noisy[0]

    @property
    def lacks_budget(self) -> bool:
        """Whether a sample is due in the open slot by the schedule that the budget does not pay for."""
        if self._pending is None or (scheduled := self._pending[0].scheduled) is None:
            return False
        return bool(scheduled.any() and not self._pending[0].due.any())

    def discard_sample(self) -> None:
        """Let the open slot's sample be neither sent nor fused; it stays paid, and the schedule goes on after it.

        For values that no other server would accept: all of them have to use the same measurements.
        """
        if self._pending is not None:
            plan, reading = self._pending
            self._pending = plan, replace(reading, discarded=np.ones((1, 1), dtype=np.bool_))

    def open_groups(self) -> Ints | None:
        """Return the groups (d,) of the regions in the open slot's sample; None: every region is by itself."""
        pivot = None if self._pending is None else self._pending[0].pivot
        return None if pivot is None or not isinstance(self.scheme, Relay) else pivot[0]

    def pending_message(self) -> Messages | None:
        """Return the message of the open slot again, from the values already drawn; None if none is sent."""
        if self._pending is None:
            return None
        message = self._own_message(*self._pending)
        return message if message.speaks.any() else None

    def _own_message(self, plan: Plan, reading: Reading) -> Messages:
        message: Messages = self.scheme.message(self._state, plan, reading)
        return without_prior(message) if self._blank.any() else message

    def hear(self, messages: Mapping[int, Messages] | None = None) -> Release:
        """Fuse the messages of other servers, by their numbers, and release: vectors of one number per region.

        The caller has checked the sender and the slot of each message; the numbers in it are checked here.
        """
        if self._pending is None:
            raise BadInput("no slot is open: call observe() first.")
        by_sender = dict(messages or {})
        if self.number in by_sender:
            raise BadInput(f"server {self.number} was given its own message as a neighbour's.")
        if by_sender and self.scheme.reach == "alone":
            raise BadInput(
                f"scheme '{self.scheme.name}' works alone and takes no messages; given "
                f"{counted(len(by_sender), 'message')}."
            )
        if self.scheme.reach == "one-hop":
            self._check_neighbours(len(by_sender))
        plan, reading = self._pending
        own = self._own_message(plan, reading)
        by_sender[self.number] = own
        for sender, message in by_sender.items():
            _check_message(sender, message, own)
        by_sender = {sender: m for sender, m in by_sender.items() if m.speaks.any() or sender == self.number}
        inbox = type(own).stack([by_sender[sender] for sender in sorted(by_sender)])
        sums = self.scheme.reach in ("one-hop", "flooding")
        hearing = inbox_hearing(self._gain, self._mixing) if sums else Hearing()
        del by_sender[self.number]
        self._innovations = self._message_innovations(plan, by_sender)
        self._of_sums = np.zeros(self._innovations.shape, dtype=np.bool_)
        self.scheme.fuse(self._state, plan, reading, inbox, hearing)
        if isinstance(self.scheme, Relay):
            self._innovations, self._of_sums = record_innovations(self._state)
        release = self.scheme.release(self._state, plan, reading)
        self._pending = None
        if self._blank.any():
            self._blank &= ~measured(inbox)
            release = silent_on(release, self._blank)
        return Release(  # one number per region; copies, since the scheme goes on with its own
            slot=release.slot,
            estimate=release.estimate[0].copy(),
            variance=release.variance[0].copy(),
            sampled=np.array(np.broadcast_to(release.sampled[0], release.estimate.shape[1:])),
            charge=release.charge[0].copy(),
            speaks=np.array(release.speaks[0]),
        )

    @property
    def innovations(self) -> Floats:
        """Normalised innovations (M, d) of what others have measured and the last `hear` has fused; NaN: no value.

        See `filters.calibration`. They are not part of the saved state.
        """
        return self._innovations

    @property
    def innovations_of_sums(self) -> Bools:
        """Which of the `innovations` (M, d) are of the sum of several regions; each is at the lowest of them."""
        return self._of_sums

    @property
    def kept_deviation(self) -> float:
        """The part of a server's deviation from its share that is left at its next sample; 0: all users are new then.

        Servers that choose their slots themselves are taken to sample in every slot.
        """
        if self.setting.turnover == 1.0 or self.setting.observation != "binomial":
            return 0.0
        interval = 1.0
        if isinstance(self._state, RelayState):
            interval = self._state.interval
        elif isinstance(self.scheme, SampledScheme) and self.scheme.interval is not None:
            interval = self.scheme.interval
        return float((1.0 - self.setting.turnover) ** interval)

    def record_estimates(self) -> RecordEstimates:
        """Return what each record of another server that the last `hear` has fused says by itself; relay only."""
        return record_estimates(self._relay()[1])

    @property
    def judges_others(self) -> bool:
        """Whether its scheme receives measurements of others, so that there can be innovations."""
        return isinstance(self.scheme, Relay) or (
            isinstance(self.scheme, FilterScheme) and self.scheme.reach != "alone"
        )

    def _message_innovations(self, plan: Plan, by_sender: Mapping[int, Messages]) -> Floats:
        """Return the innovations of neighbours' messages; before they are fused, since that changes the prior."""
        infos = [message for _, message in sorted(by_sender.items()) if isinstance(message, InfoMessages)]
        if not infos:
            return np.zeros((0, self.setting.regions))
        values = message_innovations(plan, self._state.known, InfoMessages.stack(infos))
        values[:, self._blank] = np.nan
        return values

    def _check_neighbours(self, neighbours: int) -> None:
        if self._gain * neighbours * self.setting.model.growth > 0.5:
            raise BadInput(
                f"server {self.number} was given messages of {neighbours} neighbours, too many for its consensus step "
                f"{self._gain:.6g}: give max_degree, the largest number of neighbours in this network."
            )

    @property
    def keeps_records(self) -> bool:
        """Whether its scheme passes records on, so that past slots can be smoothed and origins be judged."""
        return isinstance(self.scheme, Relay)

    def smoothed(self) -> ServerHistory:
        """Estimate the last L slots up to the last release with all records that arrived since, at no privacy cost.

        Slots before the first one that it has observed, before a new horizon, or before slots began again, are not
        among them: there is nothing to estimate, or they accept no more records.
        """
        return self.smoothing()()

    def smoothing(self) -> Callable[[], ServerHistory]:
        """Return a function that computes what `smoothed` returns now, whatever becomes of the server meanwhile.

        With full matrices it takes d^3 steps per slot, and may be called in another thread.
        """
        scheme, state = self._relay()
        posteriors = recent_posteriors(scheme, state, max(int(self.mailbox.since), self._first or 0))  # copies
        return partial(_smooth, posteriors, self.setting)

    def suspects(self) -> list[int]:
        """Return the numbers of the servers whose records count less here, because they disagreed with the others'."""
        scheme, state = self._relay()
        return [int(number) for number in np.flatnonzero(scheme.suspects(state)[0])]

    def learned_shares(self) -> tuple[Floats, Floats] | None:
        """Return the shares that it has learned from records, and their standard deviations, (servers, d) each.

        None: it takes the public shares as they are.
        """
        state = self._state
        if not isinstance(state, RelayState) or state.learned is None:
            return None
        place = max(int(state.last), 0) % state.lag
        return state.learned.shares[place][:, 0].copy(), np.sqrt(state.learned.var[place][:, 0])

    @property
    def learned_slot(self) -> int | None:
        """The slot up to whose records the `learned_shares` go, `lag` slots back: later ones may still change.

        None: no slot is final yet, so that they are the public ones, or it learns no shares.
        """
        state = self._state
        if not isinstance(state, RelayState) or state.learned is None:
            return None
        slot = slot_of_base(int(state.last), state.lag)
        return slot if slot >= 0 else None

    # --------------------------------------------------------------------------------------------------- late join

    @property
    def joined(self) -> Joined | None:
        """Whose word its estimate began with; None: nobody's."""
        return self._joined

    @property
    def can_be_joined(self) -> bool:
        """Whether a neighbour can begin with its finalised state."""
        return can_be_joined(self._relay()[1])

    def finalised_state(self) -> bytes:
        """Return what follows from final records after the last release, for a neighbour that joins (`relay_join`).

        All of it follows from records that were sent to the network. It has the same size at all servers.
        """
        return finalised_state(self._relay()[1]).to_bytes()

    def read_finalised(self, finalised: bytes, first_slot: int = 0) -> FinalisedState:
        """Return a neighbour's finalised state, checked; `BadInput` says what is wrong with it. Nothing changes.

        first_slot  since when this setting has been in use; before that, variances may have been smaller
        """
        scheme, state = self._relay()
        checked = read_finalised(finalised, state)
        scheme.check_finalised(self._run.start(), checked)
        slots = None if first_slot <= 0 else int(checked.slot) - state.lag - first_slot + 1
        checked.check_certainty(least_variance(self.setting, scheme.samples_in(self.setting), slots))
        check_learned(checked, self.setting)
        return checked

    def join(
        self,
        finalised: FinalisedState,
        records: RecordMessages | None = None,
        sources: Sequence[str] = (),
        shares: Floats | None = None,
    ) -> None:
        """Continue after the slot of a neighbour's finalised state, with it and the records after it.

        From then on it releases the same bits as that neighbour, if it has the same records. Its schedule and what it
        has spent stay its own. One neighbour's state that suspects half of the servers or more is taken without its
        suspicions, if their records would lead to another estimate. `BadInput` refuses a state with which there is no
        estimate; nothing has changed then.

        records  of the last L slots up to that slot, of all servers, its own among them
        sources  names of the neighbours that have sent this state
        shares   (L, servers) of all servers in these slots, slot s at place s mod L; default: what they are now
        """
        if self._pending is not None:
            raise BadInput(f"slot {self._slot} is still open: call hear() before joining.")
        slot = int(finalised.slot)
        if slot < self._slot:
            raise BadInput(f"a finalised state of slot {slot}; this server has released slot {self._slot} already.")
        scheme, state = self._relay()
        try:
            joined = scheme.join(state, self._run.start(), finalised, records, shares)
            if len(sources) < _CONFIRMED and finalised.suspects_most:
                without = finalised.without_suspicions()
                impartial = scheme.join(state, self._run.start(), without, records, shares)
                joined = joined if scheme.agree(joined, impartial) else impartial
        except BadInput:
            raise
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            raise BadInput("a finalised state with which the filter has no estimate.") from None
        self._state = joined
        self._slot, self._joined = slot, Joined(tuple(sources), slot)
        self._first = slot + 1 if self._first is None else self._first
        if self._ledger is not None:
            self._ledger.go_to(slot)

    def _relay(self) -> tuple[Relay, RelayState]:
        if not isinstance(self.scheme, Relay):
            raise BadInput(f"scheme '{self.scheme.name}' keeps no records; take a scheme that does, such as relay.")
        return self.scheme, self._state

    def save(self) -> bytes:
        """Return the complete state as bytes; refused for schemes whose state contains raw counts."""
        if self.scheme.keeps_raw_counts:
            raise BadInput(f"scheme '{self.scheme.name}' keeps raw counts between slots: its state must not be stored.")
        arrays = pack(self._state, "state")
        arrays["scheme"] = np.frombuffer(self.scheme.name.encode(), dtype=np.uint8)
        arrays["fingerprint"] = self._fingerprint
        arrays["slot"] = np.array(self._slot)
        if self._blank.any():
            arrays["blank"] = self._blank
        if self._joined is not None:
            names = "\n".join(self._joined.sources).encode()
            arrays["joined.sources"] = np.frombuffer(names, dtype=np.uint8)
            arrays["joined.slot"] = np.array(self._joined.slot)
        if self._horizon is not None:
            arrays["horizon"] = np.array(self._horizon)
        if self._first:
            arrays["first"] = np.array(self._first)
        if self._pending is not None:
            if (filters := self._filters()) is not None and filters.skipped:
                arrays["skipped"] = np.array(filters.skipped)
            arrays.update(pack(self._pending[0], "plan"))
            arrays.update(pack(self._pending[1], "reading"))
        return to_bytes(arrays)

    @cached_property
    def _fingerprint(self) -> NDArray[np.uint8]:
        """A digest of scheme, setting, number and shares, none of which changes during the life of a server."""
        shares = self._shares[0]
        return fingerprint(self.scheme, self.setting, self.number, float(shares[0]) if len(shares) == 1 else shares)

    def restore(self, saved: bytes) -> None:
        """Take over a state that `save` returned; scheme and setting must be the same."""
        arrays = from_bytes(saved)
        whose = arrays.get("scheme", np.zeros(0, dtype=np.uint8)).tobytes().decode(errors="replace")
        if whose != self.scheme.name or "slot" not in arrays:
            raise BadInput(f"the saved state is of scheme '{whose}'; this server runs '{self.scheme.name}'.")
        if arrays.get("fingerprint", np.zeros(0)).tobytes() != self._fingerprint.tobytes():
            raise BadInput(
                f"the saved state of scheme '{whose}' is of another server or setting (number, share, guarantee, "
                "model, tuning or options); restore it where it was made."
            )
        state = self._run.start()
        if self.setting.learn:
            complete_banks(arrays, pack(state, "state"))
        load_into(state, arrays, "state")
        if isinstance(state, RelayState):
            state.restore_groups(arrays.get("state.groups"))
        self._state = state
        if (filters := self._filters()) is not None and not any(".pilot." in name for name in arrays):
            filters.begin_pilot()  # saved before there were pilots
        self._slot = int(arrays["slot"])
        self._first = int(arrays.get("first", 0)) if self._slot >= 0 else None
        if self._ledger is not None:
            self._ledger.go_back(self._slot)
            # The states of version 0.1 hold a ledger, which knew the horizon.
            horizon = arrays.get("horizon", arrays.get("state.ledger.first"))
            self._horizon = None if horizon is None else int(horizon)
        self._blank = arrays.get("blank", np.zeros(self.setting.regions, dtype=np.bool_))
        self._joined = _saved_join(arrays)
        self._pending = None
        if (filters := self._filters()) is not None:
            filters.skipped = int(arrays.get("skipped", 0))
        if any(name.startswith("plan.") for name in arrays):
            self._pending = unpack(Plan, arrays, "plan"), unpack(Reading, arrays, "reading")

    def take_over(
        self,
        saved: bytes,
        before: Server,
        places: Sequence[int | None],
        origins: Sequence[int | None] | None = None,
    ) -> tuple[str, ...]:
        """Continue from what this server saved under an older setting of the same scheme and guarantee.

        Returns what it begins to learn anew, in words (`kept_learning`).

        before  a server with the older setting, share and number; it cannot be used afterwards
        places  for each region its number in the older order; None: a new region, without information
        origins the same for each server of the network, where servers pass records on; default: they are the same

        Slots must be counted from the same epoch, in the same length. A slot that was open is released without messages
        first. What was spent stays spent; a state that does not fit is refused and changes nothing.
        """
        if self._slot != -1:
            raise BadInput(f"a state is taken over before the first slot; this server has observed slot {self._slot}.")
        before.restore(saved)
        if before.open_slot is not None:
            before.hear()
        if origins is None:
            origins = range(servers_per_run(self.setting))
        if isinstance(before._state, RelayState):
            self._state = self._take_over_records(before, places, origins)
        else:
            runs = before._run, self._run
            self._state, self._blank = transfer(before._state, before._blank, *runs, places, before.slot)
        self._slot, self._horizon, self._joined = before.slot, before.horizon, before.joined
        self._first = before._first
        if self._ledger is not None:
            self._ledger.go_to(self._slot)
        return () if self._slot < 0 else begins_anew(before.setting, self.setting, places, origins)

    def _take_over_records(
        self, before: Server, places: Sequence[int | None], origins: Sequence[int | None]
    ) -> RelayState:
        check_transfer(before._run, self._run, places)
        scheme, fresh = self._relay()
        old_scheme, state = before._relay()
        samples = old_scheme.samples_in(before.setting), scheme.samples_in(self.setting)
        complete_filters(state, int(state.last) + 1, "numpy")
        return transfer_relay(state, fresh, places, origins, samples)


def _smooth(posteriors: Posteriors, setting: Setting) -> ServerHistory:
    estimate, variance = (values[:, 0] for values in posteriors.smoothed(setting))
    half = half_width(variance)
    measured = posteriors.measurement[:, 0], posteriors.measurement_var[:, 0]
    return ServerHistory(posteriors.slots, estimate, variance, estimate - half, estimate + half, *measured)


def _deprecated(what: str, instead: str, stacklevel: int = 3) -> None:
    warnings.warn(f"{what} goes in version 0.3: {instead}.", DeprecationWarning, stacklevel=stacklevel)


def _live_ledger(account: Account, scheme: Scheme, setting: Setting) -> AccountLedger:
    if not (scheme.live or scheme.may_skip) or setting.accounting != "sound":
        raise BadInput(
            "a server that spends from an account runs a live scheme with sound accounting; given "
            f"'{scheme.name}' with accounting '{setting.accounting}'."
        )
    return AccountLedger(account, setting.regions)


def saved_slot(saved: bytes) -> int:
    """Return the last slot that was observed by the server whose state was saved; -1: none."""
    arrays = from_bytes(saved)
    if "slot" not in arrays:
        raise BadInput("the saved state is not that of a server.")
    return int(arrays["slot"])


def saved_join(saved: bytes) -> Joined | None:
    """Return whose word the estimate of the server whose state was saved began with; None: nobody's."""
    return _saved_join(from_bytes(saved))


def _saved_join(arrays: Mapping[str, NDArray[Any]]) -> Joined | None:
    if "joined.slot" not in arrays:
        return None
    names = arrays["joined.sources"].tobytes().decode()
    return Joined(tuple(names.split("\n")) if names else (), int(arrays["joined.slot"]))


def _checked_share(share: object, regions: int) -> Floats:
    """Return the share of a server as (1, 1), or its shares by region as (1, d)."""
    values = np.asarray(share)
    fits = values.dtype.kind in "iuf" and values.shape in ((), (regions,))
    if not fits or not ((values > 0) & (values <= 1)).all():
        raise BadInput(
            f"share must be above 0 and at most 1; given {share}. Allowed are one number, or one per region."
        )
    return np.array(values, dtype=np.float64).reshape(1, -1)


def _check_peers(peers: Peers | None, number: int, share: Floats) -> None:
    if peers is None:
        raise BadInput("a server that passes records on needs the public shares of its network; give peers.")
    named = peers.number == number and number < len(peers.shares)
    if not named or not np.array_equal(np.atleast_1d(peers.shares[number]), share):
        text = ", ".join(f"{part:g}" for part in share)
        raise BadInput(f"server {number} with share {text} is not the one that its peers name: {peers.number}.")


def _check_message(sender: int, message: Messages, own: Messages) -> None:
    if type(message) is not type(own):
        raise BadInput(f"server {sender} sent {type(message).__name__}; this scheme hears {type(own).__name__}.")
    message.check_shapes(own, sender)
    message.check_values(f"server {sender}")
