"""Relay: servers pass on records, never estimates, and each runs an exact filter over the records that it has.

A record is what a server pays for: (origin, slot, epsilon, noisy counts). Each counts once per receiver, so nothing is
counted twice, there is no consensus step to tune, and intervals are exact given the model.

    schedule  n samples per window or horizon, epsilon/n each, in slots that public facts fix (`sampling.schedule`)
    spread    records travel one hop per round, K rounds per slot, up to `reach` hops (`network.spread`)
    fuse      the records of the last L slots are kept. Where a late one has arrived, its slot is summed again in order
              of origin, and the filter runs again from there on (`filters.records`)
    release   posterior and variance

The level behind a binomial variance is the finalised state of slot s - L, of which no record is taken any more in slot
s; what is known of the origins (`filters.origins`) comes from finalised slots; and the guard compares with the prior
that the records before a slot lead to. So the estimate is a function of the set of records, whatever their order, and
servers with the same records release the same bits.

Every sample covers all regions, so the account is one per server, and sound, whatever the others beside it keep.

A sample that could not be taken (the server was down, or the account short) is taken in the next slot that allows it,
and all later ones move with it; in lockstep it stays missed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.filters import predict, predict_matrix, update, update_matrix
from dpcrowd.filters.ahead import predict_ahead, predict_ahead_matrix
from dpcrowd.filters.origins import OriginScores, start_penalty
from dpcrowd.filters.records import POOL, RecordSums, RecordTable, Reference, record_sums
from dpcrowd.network.bit_spread import BitSpread
from dpcrowd.network.costs import varint_bytes
from dpcrowd.network.gather import unsigned
from dpcrowd.network.hearing import Hearing
from dpcrowd.network.sparse_spread import SparseSpread
from dpcrowd.network.spread import Holdings, OneHop, Spread, Traffic
from dpcrowd.privacy import Ledger, Noise, noise_var, open_ledger
from dpcrowd.privacy.allocation import per_sample
from dpcrowd.sampling.schedule import check_interval, samples_due
from dpcrowd.schemes.base import Plan, Reading, Release, Scheme, Setting
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.perturb import perturb_counts
from dpcrowd.schemes.records import Mailbox, RecordMessages

__all__ = ["Relay", "RelayState"]

Hops = int | Literal["all"]

LIMIT = 36.0
"""Of a squared normalised innovation, from which on a record counts less: honest noise is beyond once in thousands."""

OFF = 4.0
"""Of the lower quartile of a slot's squared normalised innovations, from which on the prior is off, not the records."""

MOST_REMEMBERED = 512
"""Servers per run, up to which every receiver remembers every origin."""

_LEAST_VAR = 1e-12

MOST_IN_BITS = 8192
"""Servers per run, up to which a simulation keeps a bit for every pair of them."""


@dataclass
class RelayState:
    """Of N receivers and their origins; of the last L slots, slot t at place t mod L.

    last                  () the slot that was fused last; -1: none
    shift                 (N, 1) slots by which the schedule has moved
    spread, mailbox       who has which record: of all servers of a simulation, or of a server on its own
    noisy, var, shares    (L, origins, d), (L, origins): the records; a variance of 0: none
    y, info               (L, N, d) sums of their information
    mean, mean_var, known (L, N, d), (L, N, d) or (L, N, d, d), (L, N): posteriors
    level, level_var      (L, N, d): the finalised state as it was expected for the slot
    recent                (L, N, POOL): see `filters.records`
    scale                 (L, N) how far off the prior was, likewise
    scores, penalty       what is remembered of origins, and what it was when the slot began, (L, N, servers per run)
    suspicious            (L, N) who has penalties for anybody
    base_...              the same after the last slot that is final
    links                 in a simulation with a reach of one hop: who hears whom
    traffic               what was sent in the last slot
    value_bytes           (L, 2, runs): bytes of the integers of a slot's records, and how many records there are
    """

    setting: Setting
    ledger: Ledger
    amount: Ints
    last: Ints
    shift: Ints
    spread: Spread | None
    mailbox: Mailbox | None
    noisy: Floats
    var: Floats
    shares: Floats
    y: Floats
    info: Floats
    mean: Floats
    mean_var: Floats
    known: Bools
    level: Floats
    level_var: Floats
    recent: Floats
    scale: Floats
    base: Floats
    base_var: Floats
    base_known: Bools
    base_recent: Floats
    scores: OriginScores | None
    penalty: Floats
    suspicious: Bools
    links: OneHop | None
    value_bytes: Ints
    traffic: Traffic | None = None


@dataclass(frozen=True)
class RecordsMade(Messages):
    """In a simulation: who has made a record in this slot. Everybody's records lie in one table."""


class Relay(Scheme):
    """The scheme that we recommend.

    samples        n per window or horizon; without: as many as the setting says (see `schemes.prediction`)
    interval       w/n instead, where that is a whole number
    reach          how many hops a record travels: 1, 2, ... or "all"
    hops_per_slot  K, in a simulation: 1, 2, ... or "all": every record reaches everybody in its own slot
    lag            L: how many slots a record may be late
    guard          whether records that are far off count less
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
    may_skip = True

    def __init__(
        self,
        samples: int | None = None,
        interval: int | None = None,
        reach: Hops = "all",
        hops_per_slot: Hops = 1,
        lag: int = 16,
        guard: bool = True,
    ) -> None:
        if samples is not None and interval is not None:
            raise BadInput(f"give samples or an interval, not both; given {samples} and {interval}.")
        self.samples = None if samples is None else _whole("samples", samples)
        self.interval = None if interval is None else check_interval(interval)
        self.max_hops = None if reach == "all" else _whole("reach", reach, ' or "all"')
        self.rounds = None if hops_per_slot == "all" else _whole("hops_per_slot", hops_per_slot, ' or "all"')
        self.lag = _whole("lag", lag)
        self.guard = bool(guard)

    # ------------------------------------------------------------------------------------------------- schedule

    def samples_in(self, setting: Setting) -> int:
        """n: samples per window or horizon."""
        return self.samples_per(setting.need_guarantee().length, setting.samples)

    def samples_per(self, length: int, otherwise: int | None = None) -> int:
        """n: samples in `length` slots; `otherwise`, where this scheme leaves it open."""
        if self.interval is not None and length % self.interval:
            raise BadInput(
                f"an interval of {self.interval} slots does not divide {length}; give the number of samples instead."
            )
        samples = length // self.interval if self.interval is not None else self.samples or otherwise
        if samples is None:
            raise BadInput("relay needs the number of samples per window or horizon, or an interval.")
        if samples > length:
            raise BadInput(f"{samples} samples in {length} slots; allowed: at most one per slot.")
        return samples

    def start(self, setting: Setting) -> RelayState:
        self.check(setting)
        guarantee, peers = setting.need_guarantee(), setting.peers
        receivers, regions, lag = setting.servers, setting.regions, self.lag
        servers = receivers // setting.runs if peers is None else len(peers.shares)
        origins = receivers if peers is None else servers
        remembered = self.guard and servers <= MOST_REMEMBERED
        unknown = np.full((receivers, regions), np.inf)
        if setting.form == "matrix":
            unknown = np.tile(np.eye(regions), (receivers, 1, 1))
        spread: Spread | None = None
        if peers is None and self.max_hops != 1:
            if servers > MOST_IN_BITS and self.max_hops is None:
                raise BadInput(
                    f"relay to all servers is simulated for up to {MOST_IN_BITS} of them; given {servers}. Give a "
                    "reach of a few hops."
                )
            spread = (BitSpread if servers <= MOST_IN_BITS else SparseSpread)(setting.runs, servers, lag)
        return RelayState(
            setting=setting,
            ledger=open_ledger(guarantee, receivers, regions),
            amount=np.array([[per_sample(guarantee.total, self.samples_in(setting))]]),
            last=np.array(-1),
            shift=np.zeros((receivers, 1), dtype=np.int64),
            spread=spread,
            mailbox=None if peers is None else Mailbox.start(peers.number, servers, lag),
            noisy=np.zeros((lag, origins, regions)),
            var=np.zeros((lag, origins)),
            shares=np.zeros((lag, origins)) if peers is None else np.tile(peers.shares, (lag, 1)),
            y=np.zeros((lag, receivers, regions)),
            info=np.zeros((lag, receivers, regions)),
            mean=np.zeros((lag, receivers, regions)),
            mean_var=np.tile(unknown, (lag, *np.ones(unknown.ndim, dtype=int))),
            known=np.zeros((lag, receivers), dtype=np.bool_),
            level=np.zeros((lag, receivers, regions)),
            level_var=np.full((lag, receivers, regions), np.inf),
            recent=np.full((lag, receivers, POOL), np.nan),
            scale=np.ones((lag, receivers)),
            base=np.zeros((receivers, regions)),
            base_var=unknown,
            base_known=np.zeros(receivers, dtype=np.bool_),
            base_recent=np.full((receivers, POOL), np.nan),
            scores=OriginScores.start(receivers, servers) if remembered else None,
            penalty=np.ones((lag, receivers, servers) if remembered else (lag, 0, 0)),
            suspicious=np.zeros((lag, receivers), dtype=np.bool_),
            links=OneHop(receivers, lag) if peers is None and spread is None else None,
            value_bytes=np.zeros((lag, 2, setting.runs), dtype=np.int64),
        )

    def plan(self, state: RelayState, slot: int, shares: Floats) -> Plan:
        scheduled = self._scheduled(state, slot, self._shift(state, slot))
        due = scheduled & (state.ledger.remaining(slot) >= state.amount)
        sensitivity = state.setting.need_guarantee().sensitivity
        return Plan(slot, shares, due, state.amount, noise_var(state.amount, sensitivity))

    def _shift(self, state: RelayState, slot: int) -> Ints:
        """By how much the schedule has moved when a slot begins; samples of slots that were skipped are missing."""
        shift = state.shift
        if 0 <= state.last < slot - 1 and state.setting.need_guarantee().users == "pinned":
            for skipped in range(int(state.last) + 1, slot):
                missing = self._scheduled(state, skipped, shift)
                if missing.all():  # and in every later slot, too
                    return shift + (slot - skipped)
                shift = shift + missing
        return shift

    def _scheduled(self, state: RelayState, slot: int, shift: Ints) -> Bools:
        setting = state.setting
        length = setting.need_guarantee().length
        offsets = np.zeros((1, 1), dtype=np.int64) if setting.phases is None else setting.phases[:, None]
        return samples_due(slot - shift, self.samples_in(setting), length, offsets)

    def perturb(self, state: RelayState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        return perturb_counts(state.ledger, plan, counts, noise, state.setting.need_guarantee().sensitivity)

    def message(self, state: RelayState, plan: Plan, reading: Reading) -> Messages:
        """Of one server: its own record and those that it has heard in the slot before and passes on."""
        mailbox = state.mailbox
        if mailbox is None:
            return RecordsMade(reading.charge[:, 0] > 0)
        place, origin = mailbox.outgoing(self.max_hops)
        slot = state.last - (state.last - place) % self.lag
        in_time = slot > plan.slot - self.lag  # slots may have been skipped since the last one
        place, origin, slot = place[in_time], origin[in_time], slot[in_time]
        rows = [origin, slot, mailbox.nano[place, origin], mailbox.hops[place, origin] + 1]
        noisy = state.noisy[place, origin]
        if reading.charge.any():
            own = np.array([mailbox.number]), np.array([plan.slot]), reading.charge[0], np.ones(1, dtype=np.int64)
            rows = [np.concatenate([one, column]) for one, column in zip(own, rows, strict=True)]
            noisy = np.concatenate([reading.noisy, noisy])
        return RecordMessages.of(rows[0], rows[1], rows[2], rows[3], noisy)

    # ----------------------------------------------------------------------------------------------------- fuse

    def fuse(self, state: RelayState, plan: Plan, reading: Reading, messages: Messages, hearing: Hearing) -> None:
        slot, sampled = plan.slot, reading.charge > 0
        shift = self._shift(state, slot)
        if state.setting.need_guarantee().users == "pinned":
            shift = shift + (self._scheduled(state, slot, shift) & ~sampled)
        state.shift = shift
        self._pass(state, slot, hearing.engine)
        self._open(state, slot, hearing.engine)
        if state.mailbox is None:
            oldest = self._spread(state, plan, reading, hearing)
        else:
            assert isinstance(messages, RecordMessages)
            oldest = self._take(state, plan, reading, messages)
        self._close(state, slot, oldest, hearing.engine)

    def _open(self, state: RelayState, slot: int, engine: str) -> None:
        """A slot takes the place of the one that is final now."""
        self._finalise(state, slot, engine)
        place = slot % self.lag
        state.noisy[place], state.var[place] = 0.0, 0.0
        if state.mailbox is not None:
            state.mailbox.open(slot, self.samples_in(state.setting), state.setting.need_guarantee().length)

    def _close(self, state: RelayState, slot: int, oldest: Ints, engine: str) -> None:
        """The records of a slot are there."""
        state.last = np.array(slot)
        self._filter(state, slot, oldest, engine)

    def _pass(self, state: RelayState, until: int, engine: str) -> None:
        """Slots in which a server was not there: nothing sampled, nothing heard.

        After L of them all its records are final, and it only predicts. Whoever begins later than its network has
        missed nothing: it keeps its phase.
        """
        if state.last < 0:
            state.last = np.array(until - 1)
        for slot in range(int(state.last) + 1, min(until, int(state.last) + 1 + self.lag)):
            self._open(state, slot, engine)
            self._close(state, slot, np.full(state.setting.servers, slot), engine)
        if state.last + 1 < until:
            self._jump(state, until - 1)

    def _jump(self, state: RelayState, slot: int) -> None:
        """Go on to a slot, when there are no records but final ones: everything that is held is predicted."""
        setting, steps = state.setting, slot - int(state.last)
        ahead = predict_ahead_matrix if setting.form == "matrix" else predict_ahead
        first = (int(state.last) + 1) % self.lag
        state.base, state.base_var = ahead(state.mean[first], state.mean_var[first], setting.model, steps - 1)
        state.base_known, state.base_recent = state.known[first].copy(), state.recent[first].copy()
        if state.scores is not None:
            state.penalty[:] = state.scores.penalty()
            state.suspicious[:] = state.scores.suspicious
        for name, mean, var in (("mean", state.mean, state.mean_var), ("level", state.level, state.level_var)):
            one = predict_ahead if name == "level" else ahead
            for array, values in zip((mean, var), one(mean, var, setting.model, steps), strict=True):
                array[:] = np.roll(values, steps, axis=0)
        state.last = np.array(slot)

    def _spread(self, state: RelayState, plan: Plan, reading: Reading, hearing: Hearing) -> Ints:
        """In a simulation: everybody's records are in the table, and travel.

        Gives of each server the oldest slot of which it has new records, (N,).
        """
        slot, place, graph = plan.slot, plan.slot % self.lag, hearing.graph
        assert graph is not None
        speaks = reading.charge[:, 0] > 0
        state.noisy[place] = reading.noisy
        state.var[place] = np.where(speaks, self._record_var(state, plan.noise_var[:, 0]), 0.0)
        state.shares[place] = plan.shares[:, 0]
        runs = state.setting.runs
        sizes = np.zeros(len(speaks), dtype=np.int64)
        sizes[speaks] = varint_bytes(reading.noisy[speaks]).sum(axis=1)
        state.value_bytes[place] = sizes.reshape(runs, -1).sum(axis=1), speaks.reshape(runs, -1).sum(axis=1)
        if state.links is not None:
            state.links.put(slot, Holdings(unsigned(hearing.matrix.indptr), unsigned(hearing.matrix.indices)))
            state.traffic = Traffic.one_hop(graph.degree, speaks, sizes, runs)
            return np.full(len(speaks), slot)
        assert state.spread is not None
        state.spread.open(slot, speaks)
        oldest, state.traffic = state.spread.exchange(
            slot, graph, self.rounds, self.max_hops, same_links=hearing.same_links, engine=hearing.engine
        )
        size, number = state.value_bytes.sum(axis=0)  # those on their way are taken to be as large as all on average
        state.traffic.value_bytes = state.traffic.records * size / np.maximum(number, 1)
        return oldest

    def _take(self, state: RelayState, plan: Plan, reading: Reading, messages: RecordMessages) -> Ints:
        """Of one server: its own record and those that it has heard. Gives the oldest slot that has changed, (1,)."""
        mailbox, setting, slot = state.mailbox, state.setting, plan.slot
        assert mailbox is not None
        guarantee, samples = setting.need_guarantee(), self.samples_in(setting)
        oldest = slot
        if reading.charge.any():
            mailbox.put_own(slot, int(reading.charge.max()))
            self._write(state, np.array([slot]), np.array([mailbox.number]), reading.charge[0], reading.noisy)
        taken = mailbox.accept(messages, slot, int(state.amount.max()), samples, guarantee.length)
        if taken.any():
            slots = messages.slot[taken]
            self._write(state, slots, messages.origin[taken], messages.nano[taken], messages.noisy[taken])
            oldest = min(oldest, int(slots.min()))
        return np.array([oldest])

    def _write(self, state: RelayState, slots: Ints, origins: Ints, nano: Ints, noisy: Floats) -> None:
        setting = state.setting
        place = slots % self.lag
        state.noisy[place, origins] = noisy
        var = noise_var(nano, setting.need_guarantee().sensitivity)
        state.var[place, origins] = self._record_var(state, var)

    def _record_var(self, state: RelayState, var: Floats) -> Floats:
        """alpha times the variance of the noise; never 0, which stands for "no record", not even at a huge epsilon."""
        return np.maximum(state.setting.tuning.alpha * var, _LEAST_VAR)

    def _holdings(self, state: RelayState, slot: int, engine: str) -> Holdings:
        if state.mailbox is not None:
            return state.mailbox.holdings(slot)
        held = state.links if state.spread is None else state.spread
        assert held is not None
        return held.holdings(slot, engine)

    def _table(self, state: RelayState, slot: int) -> RecordTable:
        place = slot % self.lag
        return RecordTable(state.noisy[place], state.var[place], state.shares[place])

    def _filter(self, state: RelayState, last: int, oldest: Ints, engine: str) -> None:
        """Run the filter again from the first slot that has changed.

        The guard's priors change with it, so a server sums all slots from its oldest change on again.
        """
        model, lag, matrix = state.setting.model, self.lag, state.setting.form == "matrix"
        for slot in range(int(oldest.min()), last + 1):
            place, before = slot % lag, (slot - 1) % lag
            mean, var, known = state.mean[before], state.mean_var[before], state.known[before]
            recent = state.recent[before]
            if slot in (0, last - lag + 1):
                mean, var, known, recent = state.base, state.base_var, state.base_known, state.base_recent
            if matrix:
                prior, prior_var = predict_matrix(mean, var, model)
                if not known.all():
                    prior_var = np.where(known[:, None, None], prior_var, var)
            else:
                prior, prior_var = predict(mean, var, model)
            spread = np.where(known[:, None], _diagonal(prior_var), np.inf) if matrix else prior_var
            self._sum(state, slot, oldest <= slot, prior, spread, recent, engine)
            off = state.scale[place]
            if (off > OFF).any():
                off = np.where(off > OFF, off, 1.0)
                prior_var = prior_var * off.reshape(-1, *np.ones(prior_var.ndim - 1, dtype=int))
            y, info = state.y[place], state.info[place]
            if matrix:
                full = np.zeros((*info.shape, info.shape[1]))
                _diagonal(full)[:] = info
                state.mean[place], state.mean_var[place], state.known[place] = update_matrix(
                    prior, prior_var, known, y, full
                )
            else:
                state.mean[place], state.mean_var[place] = update(prior, prior_var, y, info)
                state.known[place] = np.isfinite(state.mean_var[place]).all(axis=1)

    def _sum(
        self,
        state: RelayState,
        slot: int,
        active: Bools,
        prior: Floats,
        prior_var: Floats,
        recent: Floats,
        engine: str,
    ) -> None:
        """The information of a slot's records, and what the guard says of them, for the servers that are `active`."""
        place, setting, table = slot % self.lag, state.setting, self._table(state, slot)
        held = self._holdings(state, slot, engine)
        reference = Reference(state.level[place], state.level_var[place])
        if self.guard:
            penalty = state.penalty[place] if state.suspicious[place].any() else None
            if state.scores is not None and not np.isfinite(prior_var).all():
                unknown = ~np.isfinite(prior_var).all(axis=1, keepdims=True)
                first = start_penalty(
                    setting.servers, _servers(state), held.indptr, held.indices, table, reference,
                    setting.observation, setting.model.noise_var, LIMIT,
                )  # fmt: skip
                penalty = np.where(unknown, first, state.penalty[place])
            reference = replace(
                reference, prior=prior, prior_var=prior_var, penalty=penalty, limit=LIMIT, recent=recent
            )
        record_sums(
            held.indptr, held.indices, table, reference, setting.observation, setting.model.noise_var,
            _servers(state), engine, RecordSums(state.y[place], state.info[place], state.recent[place],
            state.scale[place]), active,
        )  # fmt: skip

    # -------------------------------------------------------------------------------------------- what is final

    def _finalise(self, state: RelayState, slot: int, engine: str) -> None:
        """No record of slot - L is taken from now on: its state is what the filter starts from."""
        place, setting = slot % self.lag, state.setting
        if slot >= self.lag:
            if state.scores is not None:
                held, table = self._holdings(state, slot - self.lag, engine), self._table(state, slot - self.lag)
                mean_var = state.mean_var[place]
                spread = _diagonal(mean_var) if setting.form == "matrix" else mean_var
                state.scores.judge(
                    held.indptr, held.indices, table, Reference(state.level[place], state.level_var[place]),
                    setting.observation, setting.model.noise_var,
                    (state.mean[place], spread, state.known[place]), engine,
                )  # fmt: skip
            state.base, state.base_var = state.mean[place].copy(), state.mean_var[place].copy()
            state.base_known, state.base_recent = state.known[place].copy(), state.recent[place].copy()
        state.level[place], state.level_var[place] = self._expected(state)
        if state.scores is not None:
            now = state.scores.suspicious
            rows = now | state.suspicious[place]
            if rows.any():
                state.penalty[place, rows] = state.scores.penalty(rows)
            state.suspicious[place] = now

    def _expected(self, state: RelayState) -> tuple[Floats, Floats]:
        """The finalised state as it is expected to be L slots later: means and variances, (N, d)."""
        model, mean, var = state.setting.model, state.base, state.base_var
        if state.setting.observation == "paper":
            return mean, np.full_like(mean, np.inf)  # nobody looks at it
        if state.setting.form == "diagonal":
            for _ in range(self.lag):
                mean, var = predict(mean, var, model)
            return mean, var
        ahead = np.linalg.matrix_power(model.matrix_transition, self.lag)
        known = np.broadcast_to(state.base_known[:, None], mean.shape)
        return (ahead @ mean[..., None])[..., 0], np.where(known, 1.0, np.inf)

    def release(self, state: RelayState, plan: Plan, reading: Reading) -> Release:
        place = plan.slot % self.lag
        estimate, variance = state.mean[place], state.mean_var[place]
        known = np.isfinite(variance) if state.setting.form == "diagonal" else state.known[place][:, None]
        if state.setting.form == "matrix":
            variance = np.where(known, _diagonal(variance), np.inf)
        estimate = np.where(known, estimate, np.nan)
        sampled = reading.charge > 0
        return Release(plan.slot, estimate, variance.copy(), sampled, reading.charge, sampled[:, 0], state.traffic)

    def suspects(self, state: RelayState) -> Bools:
        """Whose records count less at each receiver, since they have not agreed with the others'; (N, servers per run).

        It is learned from slots that are final, so L slots late. Without a guard, and in networks of more than
        `MOST_REMEMBERED` servers, nobody is remembered and nobody suspected.
        """
        if state.scores is None:
            return np.zeros((state.setting.servers, _servers(state)), dtype=np.bool_)
        return state.scores.penalty() > 1.0


def _servers(state: RelayState) -> int:
    """Servers per run."""
    peers = state.setting.peers
    return state.setting.servers // state.setting.runs if peers is None else len(peers.shares)


def _diagonal(matrices: Floats) -> Floats:
    """The diagonals of the last two axes, as a view."""
    return np.asarray(np.einsum("...kk->...k", matrices))


def _whole(name: str, value: object, more: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise BadInput(f"{name} must be a whole number >= 1{more}; given {value!r}.")
    return int(value)
