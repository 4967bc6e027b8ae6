"""What a relay server remembers: the records of the last L slots, the posteriors that they lead to, and the origins.

One object holds it, for all servers of a simulation (every record lies in one table, and `spread` or `links` says which
server has it) and for one server on its own (its `mailbox` has the records that it has received).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.filters.ahead import moved_in_time
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.learning import Bank, Beliefs, beliefs_of, reset_bank, start_bank
from dpcrowd.filters.origins import OriginScores
from dpcrowd.filters.records import POOL, RecordTable
from dpcrowd.filters.share_state import ProductMoments, ShareFilter
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.bit_spread import BitSpread, Words
from dpcrowd.network.sparse_spread import SparseSpread
from dpcrowd.network.spread import Holdings, OneHop, Spread, Traffic
from dpcrowd.privacy import Ledger, noise_var, open_ledger
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.records import Mailbox, ungrouped

__all__ = [
    "GIVEN_UP",
    "LearnedShares",
    "MovedFilter",
    "RelayState",
    "ShareLearner",
    "back_in_time",
    "considers_deviations",
    "fill_from_course",
    "reset_banks",
    "servers_per_run",
    "slot_of_base",
    "start_state",
    "with_fresh_schedule",
]


GIVEN_UP = -1

MOST_REMEMBERED = 512
"""Servers per run, up to which every receiver remembers every origin."""

MOST_CROSS = 2**26
"""Numbers per run that the memory of persistent deviations may have; without it, deviations count as fresh."""

MOST_IN_BITS = 8192
"""Servers per run, up to which a simulation keeps a bit for every pair of them."""


@dataclass
class ShareLearner:
    """The filters of C classes of receivers, each of which has had the same records, after a slot; n = 2 m + 1.

    mean, cov, scale  (C, d, n), (C, d, n, n), (C, d): see `filters.share_learning.ShareFilter`
    begun, heard      (C,), (C, m) likewise; settled (C, d)
    members           (N,) the class of each receiver
    public            (C, m, d) public shares
    """

    mean: Floats
    cov: Floats
    begun: Ints
    heard: Ints
    members: Ints
    public: Floats
    scale: Floats = field(metadata={"later": True})
    """0 in a state of an earlier build."""
    settled: Ints = field(metadata={"later": True})


@dataclass(frozen=True)
class LearnedSlot:
    """What a filter has learned from the records of a slot: the filters before and after it, and the crowd (d,)."""

    known: ShareFilter
    after: ShareFilter
    mean: Floats
    var: Floats


@dataclass(frozen=True)
class MovedFilter:
    """A filter before the records of a slot, the shares (m, d) that it believes in, and what else for products."""

    known: ShareFilter
    shares: Floats
    products: ProductMoments | None = None


@dataclass
class LearnedShares:
    """Shares that a network's receivers have learned, slot t at place t mod L; see `relay_shares`.

    shares, var  (L, servers per run, N, d) what a slot's records are compared with, and the variances of their errors
    learner      what was learned up to the last slot that is final
    base         the mean of the learner from which it was made, and the same by receiver; None: it is not made yet
    filters      by place, the filter of each receiver after the slot; None: it has to run again
    made         by place, what was learned in the slot, by the number of the filter before it and the bits of the rest:
                 whoever gets the same records later takes it
    surprises    likewise, how surprising its records were
    moved_filters  before the records of the slot that is fused
    """

    shares: Floats
    var: Floats
    learner: ShareLearner
    filters: list[list[ShareFilter] | None] = field(metadata={"saved": False})
    made: list[dict[tuple[int, bytes], LearnedSlot]] = field(metadata={"saved": False})
    surprises: list[dict[tuple[int, bytes], tuple[ShareFilter, Floats]]] = field(metadata={"saved": False})
    moved_filters: dict[tuple[int, bytes], MovedFilter] = field(default_factory=dict, metadata={"saved": False})
    base: tuple[Floats, list[ShareFilter]] | None = field(default=None, metadata={"saved": False})

    def forget_slots(self, lag: int) -> None:
        """Forget the filters of the last L slots, and what they were made of."""
        self.filters, self.moved_filters = [None] * lag, {}
        self.made, self.surprises = [{} for _ in range(lag)], [{} for _ in range(lag)]


@dataclass
class RelayState:
    """The state of N receivers: the records and posteriors of the last L slots, slot t at place t mod L.

    amount, amount_var    (1, 1) nano-epsilon of a sample, and the variance of its noise
    last                  () the slot that was fused last; -1: none
    shift                 (N, 1) slots by which the schedule has moved
    waiting               (N, 1) slots for which a missed sample has waited; `GIVEN_UP`: it does not wait
    spread, links         which server has which record, in a simulation: over several hops, or over one
    mailbox               the records of a server on its own
    noisy, var, shares    (L, origins, d), (L, origins), (L, origins): the records; a variance of 0: there is none.
                          Shares that differ by region are (L, origins, d)
    groups                (L, origins, d) of the records, as in `RecordMessages`; None: every region of every record is
                          by itself, and nothing is kept or stored of it. They name regions by number
    own_groups            (N, d) the groups of each server's last record, if servers choose groups (`relay_groups`)
    y, info               (L, N, d) sums of their information; in diagonal form (1, N, d): they are not read again
    mean, mean_var, known (L, N, d), (L, N, d) or (L, N, d, d), (L, N): posteriors
    level, level_var      (L, N, d): the finalised state, predicted for the slot; see `relay_level`
    recent                (L, N, POOL): see `filters.records`
    scale                 (L, N) how far off the prior was, likewise
    scores, penalty       what is remembered of origins, and what it was when the slot began, (L, N, servers per run)
    suspicious            (L, N) which receivers have a penalty for any origin; `penalty` of the others means nothing
    base_...              the same after the last slot that is final
    traffic               what was sent in the last slot, in a simulation
    bank                  (L, beliefs, N, d): the filters whose mean the posteriors are, if they learn
    cross                 (L, servers per run, N, d): what errors have in common with the deviations of servers
                          whose users stay (`filters.persistence`); (1, ...) where no record is late
    learned               the shares that are learned from final records; None: public shares are taken as they are
    value_bytes           (L, 2, runs): bytes of the integers of a slot's records, and how many records there are
    """

    setting: Setting
    ledger: Ledger
    amount: Ints
    amount_var: Floats
    last: Ints
    shift: Ints
    waiting: Ints
    spread: Spread | None
    mailbox: Mailbox | None
    noisy: Floats
    groups: Ints | None
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
    bank: Bank | None = None
    base_bank: Bank | None = None
    cross: Floats | None = None
    base_cross: Floats | None = None
    own_groups: Ints | None = None
    learned: LearnedShares | None = None

    @property
    def interval(self) -> float:
        """How many slots pass from one sample of a server to its next."""
        guarantee = self.setting.need_guarantee()
        return guarantee.length / max(guarantee.total // int(self.amount[0, 0]), 1)

    @property
    def beliefs(self) -> Beliefs:
        """What the filters of the banks believe."""
        return beliefs_of(self.setting.model)

    @property
    def lag(self) -> int:
        """L."""
        return len(self.var)

    @property
    def servers(self) -> int:
        """Servers per run."""
        return servers_per_run(self.setting)

    def holdings(self, slot: int, engine: Engine, rows: Bools | None = None) -> Holdings:
        """Return which records of a slot each receiver has; of receivers that are not in `rows` it need not say."""
        if self.mailbox is not None:
            return self.mailbox.holdings(slot, int(self.last))
        held = self.links if self.spread is None else self.spread
        assert held is not None
        return held.holdings(slot, engine, rows)

    def words(self, slot: int, engine: Engine) -> Words | None:
        """Return the same as bits, where the compiled engine can take them; None elsewhere."""
        return self.spread.have[slot % self.lag] if engine == "numba" and isinstance(self.spread, BitSpread) else None

    def put_groups(self, place: Ints, origins: Ints, groups: Ints) -> None:
        """Note the groups (records, d) of records; nothing is kept while every region of every record is by itself."""
        if self.groups is None and (groups == ungrouped(self.setting.regions)).all():
            return
        if self.groups is None:
            self.groups = np.tile(ungrouped(self.setting.regions), (*self.var.shape, 1))
        self.groups[place, origins] = groups

    def groups_of(self, place: Ints, origins: Ints) -> Ints:
        """Return the groups of records, (records, d)."""
        if self.groups is None:
            return np.tile(ungrouped(self.setting.regions), (len(place), 1))
        return self.groups[place, origins]

    def restore_groups(self, saved: Ints | None) -> None:
        """Take groups from a saved state, which has none if every region of every record is by itself.

        States of the first builds with relay have them in any case.
        """
        self.groups = None
        if saved is None:
            return
        shape = (*self.var.shape, self.setting.regions)
        if saved.shape != shape or saved.dtype != np.int64:
            raise BadInput(f"saved groups are {saved.dtype}{saved.shape}; this server needs int64{shape}.")
        if (saved != ungrouped(self.setting.regions)).any():
            self.groups = saved.copy()

    def table(self, slot: int) -> RecordTable:
        """The records of a slot; their groups, if any of them joins regions."""
        place = slot % self.lag
        groups = None if self.groups is None else self.groups[place]
        if groups is not None and not (groups[self.var[place] > 0.0] != ungrouped(groups.shape[1])).any():
            groups = None
        return RecordTable(self.noisy[place], self.var[place], self.shares[place], groups)


def servers_per_run(setting: Setting) -> int:
    """Servers of one network: of each run of a simulation, or of the network of a server on its own."""
    return setting.servers // setting.runs if setting.peers is None else len(setting.peers.shares)


def start_state(
    setting: Setting, amount: int, samples: int, lag: int, max_hops: int | None, guard: bool, *, grouped: bool = False
) -> RelayState:
    """The state before the first slot.

    amount    nano-epsilon of one sample, of which there are n `samples` per window or horizon
    max_hops  how far records travel; None: to every server
    grouped   whether servers join small regions into groups
    """
    peers = setting.peers
    receivers, regions, servers = setting.servers, setting.regions, servers_per_run(setting)
    origins = receivers if peers is None else servers
    length = setting.need_guarantee().length
    remembered = guard and servers <= MOST_REMEMBERED
    unknown = np.full((receivers, regions), np.inf)
    if setting.form == "matrix":
        unknown = np.tile(np.eye(regions), (receivers, 1, 1))
    spread: Spread | None = None
    if peers is None and max_hops != 1:
        if servers > MOST_IN_BITS and max_hops is None:
            raise BadInput(
                f"relay to all servers is simulated for up to {MOST_IN_BITS} of them; given {servers}. Give a "
                "reach of a few hops."
            )
        spread = (BitSpread if servers <= MOST_IN_BITS else SparseSpread)(setting.runs, servers, lag)
    sums = lag if setting.form == "matrix" or setting.learn else 1
    state = RelayState(
        setting=setting,
        ledger=open_ledger(setting.need_guarantee(), receivers, regions),
        amount=np.array([[amount]]),
        amount_var=noise_var([[amount]], setting.need_guarantee().sensitivity),
        last=np.array(-1),
        shift=np.zeros((receivers, 1), dtype=np.int64),
        waiting=np.full((receivers, 1), GIVEN_UP),
        spread=spread,
        mailbox=None if peers is None else Mailbox.start(peers.number, servers, lag, samples, length),
        noisy=np.zeros((lag, origins, regions)),
        groups=None,
        var=np.zeros((lag, origins)),
        shares=np.zeros((lag, origins)) if peers is None else np.stack([peers.shares] * lag),
        y=np.zeros((sums, receivers, regions)),
        info=np.zeros((sums, receivers, regions)),
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
        own_groups=np.tile(ungrouped(regions), (receivers, 1)) if grouped else None,
    )
    if setting.learn and setting.form == "diagonal":
        state.base_bank = start_bank(setting.model, receivers, -1)
        banks = [state.base_bank] * lag
        state.bank = Bank(*(np.stack([getattr(bank, f.name) for bank in banks]) for f in fields(Bank)))
    if considers_deviations(setting, lag):
        depth = lag if state.links is None else 1
        state.cross = np.zeros((depth, servers, receivers, regions))
        state.base_cross = np.zeros((servers, receivers, regions))
    if setting.model.course is not None:
        fill_from_course(state, 0)
    return state


def considers_deviations(setting: Setting, lag: int) -> bool:
    """Whether the filters remember what their errors have in common with the servers' persistent deviations."""
    servers, regions = servers_per_run(setting), setting.regions
    if setting.share_width > 0.0:  # the joint filter of learned shares knows the deviations
        if lag * regions * (2 * servers + 1) ** 2 > MOST_CROSS:
            raise BadInput(
                f"learned shares of {servers} servers in {regions} regions do not fit into memory; leave the share "
                "width out, or take fewer servers, regions or slots of lag."
            )
        return False
    if setting.turnover == 1.0 or setting.observation != "binomial" or setting.form != "diagonal":
        return False
    return lag * servers * (setting.servers // setting.runs) * regions <= MOST_CROSS


def fill_from_course(state: RelayState, until: int) -> None:
    """Let the slots before `until`, of which there are no records, be what the expected course says."""
    model, matrix = state.setting.model, state.setting.form == "matrix"
    for slot in range(until - state.lag, until):
        place = slot % state.lag
        mean, var = model.start(slot)
        state.mean[place], state.mean_var[place] = mean, np.diag(var) if matrix else var
        state.level[place], state.level_var[place] = mean, var
        if state.bank is not None:
            state.bank.put(place, start_bank(model, state.setting.servers, slot))
            state.mean[place], state.mean_var[place] = combined(state.bank.at(place), state.beliefs)
    state.known[:] = True
    mean, var = model.start(-1)  # slots before L rest on it; later ones on a slot that has become final
    state.base, state.base_var = np.empty_like(state.base), np.empty_like(state.base_var)
    state.base[:], state.base_var[:] = mean, np.diag(var) if matrix else var
    if state.base_bank is not None:  # the estimate is what all beliefs say together, also before any record
        state.base[:], state.base_var[:] = combined(state.base_bank, state.beliefs)
    state.base_known = np.ones_like(state.base_known)


def reset_banks(state: RelayState) -> None:
    """Let the filters that learn agree on the posteriors, and begin to learn anew."""
    if state.bank is None:
        return
    beliefs = state.beliefs
    for place in range(state.lag):
        state.bank.put(place, reset_bank(state.mean[place], state.mean_var[place], beliefs))
    state.base_bank = reset_bank(state.base, state.base_var, beliefs)


def with_fresh_schedule(state: RelayState, fresh: RelayState, first: int) -> RelayState:
    """Return the state in a new horizon that begins with slot `first`: `fresh` is a state before the first slot.

    The account, the schedule and the accounts of the origins begin anew; records, posteriors and scores go on.
    """
    anew = ("setting", "ledger", "amount", "amount_var", "shift", "waiting")
    for name in (part.name for part in fields(RelayState) if part.name not in anew):
        setattr(fresh, name, getattr(state, name))
    if fresh.mailbox is not None:
        fresh.mailbox.open_accounts(first, int(fresh.last))
    return fresh


def slot_of_base(last: int, lag: int) -> int:
    """Return the last slot that is final after slot `last`; -1: none is, and the base is what is known beforehand."""
    return max(last - lag, -1)


def back_in_time(state: RelayState, fresh: RelayState, last: int) -> RelayState:
    """Return the state after an earlier slot `last`, with the latest posterior: `fresh` is before the first slot.

    No record of slot `last` or before is accepted any more, since the posterior may contain it already.
    """
    latest = int(state.last) % state.lag
    posterior = state.mean[latest], state.mean_var[latest]
    for name in ("mean", "mean_var", "known", "recent"):
        getattr(fresh, name)[:] = getattr(state, name)[latest]
    if (model := state.setting.model).course is not None:
        for slot in range(last - state.lag + 1, last + 1):
            place, moved = slot % state.lag, moved_in_time(*posterior, model, int(state.last), slot)
            fresh.mean[place], fresh.mean_var[place] = moved
    before = slot_of_base(last, state.lag)
    fresh.base, fresh.base_var = (part.copy() for part in moved_in_time(*posterior, model, int(state.last), before))
    reset_banks(fresh)
    if fresh.cross is not None and state.cross is not None:
        depth = len(fresh.cross)
        for slot in range(last - depth + 1, last + 1):
            fresh.cross[slot % depth] = state.cross[latest] * model.ratio(int(state.last), slot)
        fresh.base_cross = state.cross[latest] * model.ratio(int(state.last), before)
    fresh.base_known, fresh.base_recent = state.known[latest].copy(), state.recent[latest].copy()
    if state.scores is not None:
        fresh.scores = state.scores
        fresh.penalty[:] = state.scores.penalty()
        fresh.suspicious[:] = state.scores.suspicious
    fresh.last = np.array(last)
    if fresh.mailbox is not None and state.mailbox is not None:
        for name in ("late", "unknown", "refused"):
            setattr(fresh.mailbox, name, getattr(state.mailbox, name))
        fresh.mailbox.open_accounts(last + 1, last)
    return fresh
