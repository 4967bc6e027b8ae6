"""Relay: servers pass on records, never estimates, and each runs an exact filter over the records that it has.

A record is what a server pays for: (origin, slot, epsilon, groups, noisy counts). Each record counts once per
receiver, so nothing is counted twice, there is no consensus step to tune, and intervals are exact given the model.

    schedule  n samples per window or horizon, epsilon/n each, in slots that public facts fix (`sampling.schedule`)
    spread    records travel one hop per round, K rounds per slot, up to `reach` hops (`network.spread`)
    fuse      the records of the last L slots are kept. When a late record arrives, its slot is summed again in order of
              origin, and the filter runs again from that slot on (`relay_filter`, `filters.records`)
    release   posterior and variance

The estimate is a function of the set of records, whatever their order: servers with the same records release the same
bits. `relay_state` says what a server remembers.

Every sample covers all regions, so there is one account per server, and it is sound, also beside schemes with a ledger
per region.

A sample that could not be taken (the server was down, or its account had too little left) is taken in the next slot
that allows it, and all later samples move with it; in lockstep it stays missed. It also stays missed if that is an
interval later or more, or before the first sample: then the server keeps its phase, and a network whose servers start,
or come back, in the same slot stays staggered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters.origins import SUSPECT
from dpcrowd.network.hearing import Hearing
from dpcrowd.network.spread import Traffic, one_hop_holdings, record_totals
from dpcrowd.privacy import Guarantee, Noise, noise_var
from dpcrowd.privacy.allocation import per_sample
from dpcrowd.sampling.schedule import check_interval, samples_due
from dpcrowd.schemes.base import Plan, Reading, Release, Scheme, Setting, half_width
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.perturb import perturb_counts
from dpcrowd.schemes.records import Obstacle, RecordMessages, ungrouped
from dpcrowd.schemes.relay_filter import begin_slot, end_slot, skip_slots
from dpcrowd.schemes.relay_groups import choose_groups
from dpcrowd.schemes.relay_join import FinalisedState, begin_from
from dpcrowd.schemes.relay_level import diagonal, expected_level
from dpcrowd.schemes.relay_shares import begin_learning, check_learning
from dpcrowd.schemes.relay_state import GIVEN_UP, RelayState, start_state
from dpcrowd.schemes.relay_totals import join_all

__all__ = [
    "AUDIENCE_OF_RECORDS",
    "GROUPS",
    "GROUPS_NEED_A_MODEL",
    "Groups",
    "Relay",
    "RelayState",
    "schedule_offsets",
]

AUDIENCE_OF_RECORDS = (
    "The audience of a record is the complete network: whatever the reach, any server that receives a record can read "
    "it and pass it on."
)
"""A sentence of the promise."""

Hops = int | Literal["all"]

Groups = Literal["auto", "off"]
GROUPS: tuple[Groups, ...] = ("auto", "off")
"""Whether servers join small regions into groups."""

GROUPS_NEED_A_MODEL = (
    'groups "auto" with form "matrix" and without a process model: full covariances cannot tell the regions of a group '
    'apart, and have no bound. Give a model, or form "diagonal", or leave the groups "off".'
)


def check_groups_beside_learning(groups: str | None, share_width: float) -> None:
    """Refuse groups of regions whose shares are learned."""
    if share_width > 0.0 and groups not in (None, "off"):
        raise BadInput("relay: groups and learned shares do not combine; leave groups or the share width out.")


_LEAST_VAR = 1e-12


@dataclass(frozen=True)
class RecordsMade(Messages):
    """Which servers have made a record in this slot, in a simulation, where all records lie in one table."""


@dataclass(frozen=True)
class RelayPlan(Plan):
    """A plan with what `fuse` would otherwise compute from the state a second time; a restored plan does not have it.

    shift, waiting  (N, 1) of `RelayState`, when the slot begins
    """

    shift: Ints | None = field(default=None, metadata={"saved": False})
    waiting: Ints | None = field(default=None, metadata={"saved": False})


class Relay(Scheme):
    """The scheme that we recommend.

    samples        n, the samples per window or horizon; None: as many as the setting says (`schemes.prediction`)
    interval       w/n instead, where that is an integer
    reach          how many hops a record travels: 1, 2, ... or "all"
    hops_per_slot  K, in a simulation: 1, 2, ... or "all": every record reaches everybody in its own slot
    lag            L: how many slots a record may be late
    guard          whether records that are far off count less
    groups         "auto": small regions share one draw of noise (`relay_groups`); "off": every region has its own
    """

    name = "relay"
    kinds = frozenset({"finite", "window"})
    summary = (
        "records travel, hop by hop",
        "n samples, ε/n each, staggered or lockstep",
        "Kalman over records",
        "both",
    )
    reach = "relay"
    live = True
    may_skip = True
    groups: Groups = "off"

    def __init__(
        self,
        samples: int | None = None,
        interval: int | None = None,
        reach: Hops = "all",
        hops_per_slot: Hops = 1,
        lag: int = 16,
        guard: bool = True,
        groups: Groups = "off",
    ) -> None:
        if samples is not None and interval is not None:
            raise BadInput(f"give samples or an interval, not both; given {samples} and {interval}.")
        self.samples = None if samples is None else _positive_integer("samples", samples)
        self.interval = None if interval is None else check_interval(interval)
        self.max_hops = None if reach == "all" else _positive_integer("reach", reach, ' or "all"')
        self.rounds = None if hops_per_slot == "all" else _positive_integer("hops_per_slot", hops_per_slot, ' or "all"')
        self.lag = _positive_integer("lag", lag)
        self.guard = bool(guard)
        if groups not in GROUPS:
            raise unknown_name("groups", groups, GROUPS)
        if groups != "off":  # only then an attribute of the object: states that were saved before it existed stay good
            self.groups = groups

    # ------------------------------------------------------------------------------------------------- schedule

    def samples_in(self, setting: Setting) -> int:
        """Return n, the number of samples per window or horizon."""
        return self.samples_per(setting.need_guarantee().length, setting.samples)

    def samples_per(self, length: int, otherwise: int | None = None) -> int:
        """Return n, the number of samples in `length` slots; `otherwise`, if the options do not say."""
        if self.interval is not None and length % self.interval:
            raise BadInput(
                f"an interval of {self.interval} slots does not divide {length}; give the number of samples instead."
            )
        samples = length // self.interval if self.interval is not None else self.samples or otherwise
        if samples is None:
            raise BadInput("relay needs the number of samples per window or horizon: give samples or an interval.")
        if samples > length:
            raise BadInput(
                f"relay cannot take {counted(samples, 'sample')} in {counted(length, 'slot')}; allowed: at most one "
                f"per slot, so up to {length}."
            )
        return samples

    def start(self, setting: Setting) -> RelayState:
        self.check(setting)
        _check_phases(setting)
        if setting.share_width > 0.0:
            check_learning(setting, self.max_hops)
        check_groups_beside_learning(self.groups, setting.share_width)
        if self.groups != "off" and setting.form == "matrix" and setting.model.course is None:
            raise BadInput(GROUPS_NEED_A_MODEL)
        samples = self.samples_in(setting)
        amount = per_sample(setting.need_guarantee().total, samples)
        grouped = self.groups == "auto"
        if grouped and setting.peers is not None:
            _check_shares(setting.peers.shares)
        state = start_state(setting, amount, samples, self.lag, self.max_hops, self.guard, grouped=grouped)
        if setting.share_width > 0.0 and setting.peers is not None:
            shares = setting.peers.shares
            begin_learning(state, shares if shares.ndim == 2 else shares[:, None])
        return state

    def plan(self, state: RelayState, slot: int, shares: Floats) -> Plan:
        shift, waiting = self._moved(state, slot)
        scheduled = self._scheduled(state, slot, shift)
        due = scheduled & (state.ledger.remaining(slot) >= state.amount)
        pivot = None
        if self.groups == "auto" and due.any():
            _check_shares(shares[:, 0] if shares.shape[1] == 1 else shares)
            samples = self.samples_in(state.setting)
            pivot = choose_groups(state, slot, shares, due[:, 0], samples)
            pivot[join_all(state, slot, shares, due[:, 0], samples, shift)] = 0
        return RelayPlan(
            slot, shares, due, state.amount, state.amount_var, pivot=pivot, shift=shift, waiting=waiting,
            scheduled=scheduled,
        )  # fmt: skip

    def _moved(self, state: RelayState, slot: int) -> tuple[Ints, Ints]:
        """Return shift and waiting of `RelayState` when a slot begins, skipped slots included."""
        shift, waiting, last = state.shift, state.waiting, int(state.last)
        if 0 <= last < slot - 1 and state.setting.need_guarantee().users == "pinned":
            for skipped in range(last + 1, slot):
                if (waiting == GIVEN_UP).all():  # and so it stays
                    break
                shift, waiting = self._miss(state, shift, waiting, self._scheduled(state, skipped, shift))
        return shift, waiting

    def _miss(self, state: RelayState, shift: Ints, waiting: Ints, missed: Bools) -> tuple[Ints, Ints]:
        """Return shift and waiting after a slot in which some servers were due and have not sampled.

        Their samples wait, and with them the schedule, for at most one interval. After that they are given up, and the
        server goes on in its own phase when it can. If servers that were all away sampled as soon as they are back,
        they would stay in step from then on, and their records no longer complement one another.
        """
        waits = missed & (waiting != GIVEN_UP)
        shift, waiting = shift + waits, waiting + waits
        interval = -(-state.setting.need_guarantee().length // self.samples_in(state.setting))
        over = waiting >= interval
        return np.where(over, shift - waiting, shift), np.where(over, GIVEN_UP, waiting)

    def _scheduled(self, state: RelayState, slot: int, shift: Ints) -> Bools:
        setting = state.setting
        length = setting.need_guarantee().length
        offsets = np.zeros((1, 1), dtype=np.int64) if setting.phases is None else setting.phases[:, None]
        return samples_due(slot - shift, self.samples_in(setting), length, offsets)

    def perturb(self, state: RelayState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        reading = perturb_counts(state.ledger, plan, counts, noise, state.setting.need_guarantee().sensitivity)
        if reading.group_noisy is None:
            return reading
        return replace(
            reading, noisy=reading.group_noisy, noise_var=plan.noise_var, group_noisy=None, group_var=None
        )  # a record has the sums of groups, and nothing of their members

    def message(self, state: RelayState, plan: Plan, reading: Reading) -> Messages:
        """Return the server's own record and those that it has received in the slot before and passes on."""
        mailbox = state.mailbox
        if mailbox is None:
            return RecordsMade(reading.used[:, 0])
        place, origin = mailbox.outgoing(self.max_hops)
        slot = state.last - (state.last - place) % self.lag
        in_time = slot > plan.slot - self.lag  # slots may have been skipped since the last one
        place, origin, slot = place[in_time], origin[in_time], slot[in_time]
        rows = [origin, slot, mailbox.nano[place, origin], mailbox.hops[place, origin] + 1]
        noisy, groups = state.noisy[place, origin], state.groups_of(place, origin)
        if reading.used.any():
            own = np.array([mailbox.number]), np.array([plan.slot]), reading.charge[0], np.ones(1, dtype=np.int64)
            rows = [np.concatenate([one, column]) for one, column in zip(own, rows, strict=True)]
            noisy = np.concatenate([reading.noisy, noisy])
            groups = np.concatenate([_own_groups(plan, noisy.shape[1]), groups])
        return RecordMessages.of(rows[0], rows[1], rows[2], rows[3], noisy, groups)

    # ----------------------------------------------------------------------------------------------------- fuse

    def fuse(self, state: RelayState, plan: Plan, reading: Reading, messages: Messages, hearing: Hearing) -> None:
        slot, sampled = plan.slot, reading.charge > 0
        if state.own_groups is not None and plan.pivot is not None:
            by_region = sampled & plan.pivot.any(axis=1, keepdims=True)  # the sum of all is nothing to go on from
            state.own_groups = np.where(by_region, plan.pivot, state.own_groups)
        state.shift, state.waiting = self._moved_after(state, plan, sampled)
        if state.setting.share_width > 0.0 and state.learned is None:
            begin_learning(state, plan.shares)
        skip_slots(state, slot, self.guard, hearing.engine)
        begin_slot(state, slot, hearing.engine)
        if state.mailbox is None:
            oldest = self._spread(state, plan, reading, hearing)
        else:
            assert isinstance(messages, RecordMessages)
            oldest = self._receive(state, plan, reading, messages)
        end_slot(state, slot, oldest, self.guard, hearing.engine)

    def _moved_after(self, state: RelayState, plan: Plan, sampled: Bools) -> tuple[Ints, Ints]:
        """Return shift and waiting of `RelayState` when the slot of the plan ends."""
        planned = plan if isinstance(plan, RelayPlan) else None
        if planned is None or planned.shift is None or planned.waiting is None:
            shift, waiting = self._moved(state, plan.slot)
        else:
            shift, waiting = planned.shift, planned.waiting
        if state.setting.need_guarantee().users != "pinned":
            return shift, waiting
        scheduled = None if planned is None else planned.scheduled
        missed = (self._scheduled(state, plan.slot, shift) if scheduled is None else scheduled) & ~sampled
        if missed.any():
            shift, waiting = self._miss(state, shift, waiting, missed)
        return shift, waiting * ~sampled

    def _spread(self, state: RelayState, plan: Plan, reading: Reading, hearing: Hearing) -> Ints:
        """Put the records of a simulation's servers into the table, and let them travel.

        Returns the oldest slot of which each server has new records, (N,).
        """
        slot, place, graph = plan.slot, plan.slot % self.lag, hearing.graph
        assert graph is not None
        speaks = reading.charge[:, 0] > 0
        state.noisy[place] = reading.noisy
        if plan.pivot is not None:
            state.put_groups(np.full(len(plan.pivot), place), np.arange(len(plan.pivot)), plan.pivot)
        np.multiply(speaks, self._record_var(state, plan.noise_var[:, 0]), out=state.var[place])
        self._put_shares(state, place, plan.shares)
        totals = record_totals(reading.noisy, speaks, graph.degree, state.setting.runs, hearing.engine)
        state.value_bytes[place] = totals[:2]
        if state.links is not None:
            state.links.put(slot, one_hop_holdings(hearing, speaks))
            state.traffic = Traffic.one_hop(totals, speaks)
            return np.full(len(speaks), slot)
        assert state.spread is not None
        state.spread.open(slot, speaks)
        oldest, state.traffic = state.spread.exchange(
            slot, graph, self.rounds, self.max_hops, same_links=hearing.same_links, engine=hearing.engine
        )
        size, number = state.value_bytes.sum(axis=0)  # records on their way have the average size
        state.traffic.value_bytes = state.traffic.records * size / np.maximum(number, 1)
        return oldest

    @staticmethod
    def _put_shares(state: RelayState, place: int, shares: Floats) -> None:
        """Keep the shares of a slot, (N, 1) or (N, d); the first ones say whether they differ by region."""
        if shares.shape[1] == 1:
            state.shares[place] = shares[:, 0]
            return
        if state.shares.ndim == 2:
            state.shares = np.zeros((*state.shares.shape, shares.shape[1]))
        state.shares[place] = shares

    def _receive(self, state: RelayState, plan: Plan, reading: Reading, messages: RecordMessages) -> Ints:
        """Put a server's own record and those that it has received into its table.

        Returns the oldest slot of which it has new records, (1,).
        """
        mailbox, setting, slot = state.mailbox, state.setting, plan.slot
        assert mailbox is not None
        if reading.used.any():
            mailbox.put_own(slot, int(reading.charge.max()))
            own = _own_groups(plan, setting.regions)
            self._write(state, np.array([slot]), np.array([mailbox.number]), reading.charge[0], reading.noisy, own)
        return np.array([self._accept(state, slot, messages)])

    def _accept(self, state: RelayState, slot: int, messages: RecordMessages) -> int:
        """Put records that have arrived by a slot into the table; return the oldest slot that has changed."""
        mailbox = state.mailbox
        assert mailbox is not None
        before = mailbox.counting(slot)
        for number, of in zip(messages.origin[messages.nano == 0], messages.slot[messages.nano == 0], strict=True):
            if mailbox.cancel(int(number), int(of), slot):
                state.noisy[of % self.lag, number], state.var[of % self.lag, number] = 0.0, 0.0
        accepted = mailbox.accept(messages, slot, int(state.amount.max()), groups=self.groups != "off")
        if accepted.any():
            slots, origins, groups = messages.slot[accepted], messages.origin[accepted], messages.groups[accepted]
            self._write(state, slots, origins, messages.nano[accepted], messages.noisy[accepted], groups)
        changed = np.flatnonzero((before != mailbox.counting(slot)).any(axis=1))
        return int(slot - ((slot - changed) % self.lag).max(initial=0))

    def join(
        self,
        state: RelayState,
        fresh: RelayState,
        finalised: FinalisedState,
        records: RecordMessages | None,
        shares: Floats | None = None,
    ) -> RelayState:
        """Return the state with which a server continues from a neighbour's finalised state and the records after it.

        state    of the server until now: its schedule and its ledger stay its own
        fresh    its state before the first slot
        records  of the slots after the finalised one, of all servers; its own among them
        shares   (L, origins) of these slots, if some of them were others under an earlier revision
        """
        slot, mailbox = int(finalised.slot), fresh.mailbox
        assert mailbox is not None and state.mailbox is not None
        finalised.check(self.samples_in(state.setting), state.setting.need_guarantee().length, self.lag, fresh.beliefs)
        fresh.ledger = state.ledger
        fresh.shift, fresh.waiting = self._moved(state, slot + 1)
        for name in ("late", "unknown", "refused"):
            setattr(mailbox, name, getattr(state.mailbox, name).copy())
        first = begin_from(finalised, fresh, shares)
        if records is not None:
            own = (records.origin == mailbox.number) & (records.nano > 0)
            own &= (records.slot >= first) & (records.slot <= slot)
            for of, nano in zip(records.slot[own], records.nano[own], strict=True):
                mailbox.put_own(int(of), int(nano))
            own_slots, origins = records.slot[own], records.origin[own]
            self._write(fresh, own_slots, origins, records.nano[own], records.noisy[own], records.groups[own])
            self._accept(fresh, slot, records)
        with np.errstate(all="ignore"):
            end_slot(fresh, slot, np.array([first]), self.guard, "numpy")
        variance = fresh.mean_var if state.setting.form == "diagonal" else diagonal(fresh.mean_var)
        if not np.isfinite(fresh.mean).all() or not (variance >= 0.0).all():
            raise BadInput("a finalised state with which the filter has no estimate.")
        return fresh

    def check_finalised(self, fresh: RelayState, finalised: FinalisedState) -> None:
        """Refuse a neighbour's finalised state that no server could have; `fresh` is a state before the first slot."""
        finalised.check(self.samples_in(fresh.setting), fresh.setting.need_guarantee().length, self.lag, fresh.beliefs)
        begin_from(finalised, fresh)
        _check_level(fresh, int(finalised.slot))

    def agree(self, one: RelayState, other: RelayState) -> bool:
        """Whether the intervals of two states of one server overlap in every region, after the same slot."""
        place = int(one.last) % self.lag
        variances = [state.mean_var[place] for state in (one, other)]
        if one.setting.form == "matrix":
            variances = [diagonal(variance) for variance in variances]
        known = np.isfinite(variances[0]) & np.isfinite(variances[1])
        allowed = half_width(np.where(known, variances[0], 0.0)) + half_width(np.where(known, variances[1], 0.0))
        return bool((~known | (np.abs(one.mean[place] - other.mean[place]) <= allowed)).all())

    def _write(self, state: RelayState, slots: Ints, origins: Ints, nano: Ints, noisy: Floats, groups: Ints) -> None:
        setting = state.setting
        place = slots % self.lag
        state.noisy[place, origins] = noisy
        state.put_groups(place, origins, groups)
        var = noise_var(nano, setting.need_guarantee().sensitivity)
        state.var[place, origins] = self._record_var(state, var)

    def _record_var(self, state: RelayState, var: Floats) -> Floats:
        """Return alpha times the variance of the noise; above 0, which means "no record", even at a huge epsilon."""
        return np.maximum(state.setting.tuning.alpha * var, _LEAST_VAR)

    def obstacle(self, state: RelayState, origin: int, slot: int, nano: int, hops: int, now: int) -> Obstacle | None:
        """Return why a server on its own would not accept a record in slot `now`; see `Mailbox.obstacle`."""
        assert state.mailbox is not None
        return state.mailbox.obstacle(origin, slot, nano, hops, now, int(state.last), int(state.amount.max()))

    def release(self, state: RelayState, plan: Plan, reading: Reading) -> Release:
        place = plan.slot % self.lag
        estimate, variance = state.mean[place], state.mean_var[place]
        known = np.isfinite(variance) if state.setting.form == "diagonal" else state.known[place][:, None]
        if state.setting.form == "matrix":
            variance = np.where(known, diagonal(variance), np.inf)
        estimate = np.where(known, estimate, np.nan)
        sampled = reading.charge > 0
        speaks = reading.used[:, 0]
        return Release(plan.slot, estimate, variance.copy(), sampled, reading.charge, speaks, state.traffic)

    def suspects(self, state: RelayState) -> Bools:
        """Return whose records count less at each receiver, since they disagreed with the others, (N, servers per run).

        It is learned from slots that are final, so L slots late. Without a guard, and in networks of more than
        `MOST_REMEMBERED` servers, there are no scores and no suspects.
        """
        if state.scores is None:
            return np.zeros((state.setting.servers, state.servers), dtype=np.bool_)
        return np.asarray(state.scores.score > SUSPECT)


def schedule_offsets(
    phases: Callable[[int], Ints], guarantee: Guarantee, samples: int, meeting: int = 0
) -> Ints | None:
    """Return the offsets of all servers' schedules; None: one phase, for users who roam.

    phases   gives, for an interval, phases that are spread over the graph
    meeting  the number of servers, if they should meet: each has its own phase, as far as there are so many, and with
             a number of samples that does not divide w it samples together with others in turn; 0: they need not
    """
    if guarantee.users == "roaming":
        return None
    interval = max(-(-guarantee.length // samples), min(meeting, guarantee.length))
    return phases(interval) * guarantee.length // interval


def _check_shares(shares: Floats) -> None:
    """Refuse groups where shares differ by region, (servers, d): the share of a group would depend on its regions."""
    if shares.ndim > 1:
        raise BadInput("relay: groups need one share per server; here the shares differ by region. Leave groups off.")


def _own_groups(plan: Plan, regions: int) -> Ints:
    """Return the groups of the record that a server on its own makes, (1, d)."""
    return ungrouped(regions)[None] if plan.pivot is None else plan.pivot


def _check_phases(setting: Setting) -> None:
    """Refuse phases with which a roaming user would pay at several servers in one window, and impossible ones."""
    phases, guarantee = setting.phases, setting.need_guarantee()
    if phases is None:
        return
    if phases.dtype.kind not in "iu" or (phases < 0).any() or (phases >= guarantee.length).any():
        raise BadInput(f"phases must be whole numbers from 0 to {guarantee.length - 1}; given {phases.tolist()}.")
    if guarantee.users == "roaming" and phases.any():
        raise BadInput(
            "with roaming users all servers sample in the same slots, or a user who visits several servers pays at "
            "each of them: leave the phases out, or make all of them 0."
        )


def _check_level(state: RelayState, slot: int) -> None:
    """Refuse a level of the last slot that does not follow from the finalised state: records would count too little."""
    if state.setting.observation == "paper":
        return
    place = slot % state.lag
    expected, expected_var = expected_level(state, slot)
    known = np.isfinite(expected_var)
    is_close = np.isclose(state.level[place], expected, rtol=1e-6, atol=1e-6)
    if (known != np.isfinite(state.level_var[place])).any() or (known & ~is_close).any():
        raise BadInput("a finalised state whose level does not follow from its estimate.")


def _positive_integer(name: str, value: object, more: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise BadInput(f"{name} must be a whole number >= 1{more}; given {value!r}.")
    return int(value)
