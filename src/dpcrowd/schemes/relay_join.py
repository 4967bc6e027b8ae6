"""The finalised state of a relay server: what a server that has no records from before takes from a neighbour.

A relay server estimates from the records of the last L slots, and from what all earlier records have led to. Nobody has
those earlier records any more. So a server that begins later than its network, or was away for L slots or more, takes a
neighbour's state at the start of the lag, and the signed records after it from anybody. From then on it releases the
same bits as its neighbours, since everything in this state is a function of final records:

    base      the posterior of slot t - L, the last one that is final: mean, variance, and what the guard remembers;
              of filters that learn also their beliefs, and what the error has in common with each server's deviation
    level     of each slot after it, the finalised state that was expected for it: behind a binomial variance where
              the records of the slots before say little (`relay_level`)
    scores    of the origins, and the penalties with which each slot after it began
    accounts  of the origins (`Mailbox.paid_until`, `Mailbox.since`)

Nothing in it belongs to the sender alone: neither its schedule nor its ledger nor its number. Shares are not part of
it: every server has them from its own configuration.

It is the neighbour's word and is checked as such (`FinalisedState.check`): shapes, finite numbers, symmetric and
positive covariances, numbers that follow from one another, accounts that the public schedule can explain, and no more
certainty than the public schedule, shares and epsilon allow (`relay_bounds`). Where several neighbours send theirs,
`most_trusted` says which is taken.

What is taken is gated. The records after it run through the filter with its guard: where they agree with one another,
but not with the state, the state is doubted, as any prior is. Only records of origins that nobody suspects take part in
that. So if one neighbour's state suspects half of the servers or more, and the estimate would be another one without
that, it is taken without its suspicions (`Server.join`): it would silence those who can contradict it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.learning import Bank, Beliefs
from dpcrowd.filters.origins import SUSPECT, penalty_of
from dpcrowd.schemes.base import half_width
from dpcrowd.schemes.records import NOTHING_PAID
from dpcrowd.schemes.relay_shares import finalised_shares, full_matrices, take_shares
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.schemes.snapshot import from_bytes, to_bytes

__all__ = ["FinalisedState", "begin_from", "can_be_joined", "finalised_state", "most_trusted", "read_finalised"]

_LARGEST = 2.0**53
_MOST_SCORE, _MOST_USUAL, _MOST_PENALTY = 100.0, 4.0, 1e4
_ASYMMETRY = 1e-9  # of a covariance, in units of its largest number: rounding
_ROUNDING = 1e-6  # of numbers that follow from others, which another machine may have computed
_SAFETY = 4.0
"""A variance may be this much below the least one: that is computed for even intervals between samples."""
_FORMER_FIELDS = {"shares"}
"""Builds before 0.2 have sent them; they are not read."""


@dataclass(frozen=True, eq=False)
class FinalisedState:
    """What follows from the final records of a network, when a slot has been released; slot s at place s mod L.

    slot            () t, the last slot that the sender has released
    since           () the first slot of the accounts; earlier records are too late
    settled         () whether slots before `since` have no records of their own: each is what `base` says
    base            (d,), (d,) or (d, d), (), (POOL,): the posterior of slot t - L, as in `RelayState`
    paid_until      (origins,)
    level           (L, d); level_var: (L, d), in matrix form (L,) whether it is known; None: the observation is
                    "paper", which does not look at it
    bank            (3, beliefs, d): means, variances and weights of the base's beliefs; None: the filters do not learn
    cross           (origins, d) of the base, as in `RelayState`; None: deviations are not remembered
    learned         (2, L, origins, d) learned shares and their variances; None: they are not learned, and there is
                    none of the next three
    learner         (d, n + 2), n = 2 origins + 1: what is known of crowd, shares and deviations, its scale, and
                    whether it is settled (`filters.share_learning.ShareFilter`)
    learner_cov     (d, n (n + 1)/2): lower halves of its covariances; learner_begun (1 + origins,): whether it
                    knows a crowd, and whom it has heard
    score, usual    (origins,), (); penalty (L, origins), suspicious (L,); None: nothing is remembered of origins
    """

    slot: Ints
    since: Ints
    settled: Bools
    base: Floats
    base_var: Floats
    base_known: Bools
    base_recent: Floats
    paid_until: Ints
    level: Floats | None
    level_var: Floats | None
    score: Floats | None
    usual: Floats | None
    penalty: Floats | None
    suspicious: Bools | None
    bank: Floats | None = None
    cross: Floats | None = None
    learned: Floats | None = None
    learner: Floats | None = None
    learner_cov: Floats | None = None
    learner_begun: Ints | None = None

    def to_bytes(self) -> bytes:
        """Return it as one block of bytes: the same for the same numbers."""
        arrays = {one.name: getattr(self, one.name) for one in fields(self)}
        return to_bytes({name: array for name, array in arrays.items() if array is not None})

    @property
    def variance(self) -> Floats:
        """Variances of the base, (d,); infinite: nothing is known."""
        if self.base_var.ndim == 1:
            return self.base_var
        return np.where(self.base_known, np.diagonal(self.base_var), np.inf)

    def largest(self) -> float:
        """Return the largest count, above or below 0, that it claims of any region of which it knows something."""
        parts = [self.base[np.isfinite(self.variance)]]
        if self.level is not None and self.level_var is not None:
            known = np.isfinite(self.level_var) if self.level_var.ndim == 2 else self.level_var > 0.0
            parts.append(self.level[known].ravel())
        return float(np.abs(np.concatenate(parts)).max(initial=0.0))

    def agrees_with(self, other: FinalisedState) -> bool:
        """Whether two states of one slot can both be right: their 95% intervals overlap in every region.

        Where one of them knows nothing, they agree.
        """
        apart = np.abs(self.base - other.base)
        known = np.isfinite(self.variance) & np.isfinite(other.variance)
        allowed = half_width(self.variance[known]) + half_width(other.variance[known])
        return bool((apart[known] <= allowed).all())

    @property
    def certainty(self) -> float:
        """The sum of the information on all regions: how much it claims to know."""
        known = self.variance[np.isfinite(self.variance)]
        return float(np.sum(1.0 / np.maximum(known, 1e-12)))

    @property
    def suspects_most(self) -> bool:
        """Whether half of the servers or more are suspected, now or in a slot whose records still count."""
        if self.score is None or self.penalty is None:
            return False
        suspected = np.vstack([self.score[None] >= SUSPECT, self.penalty > 1.0])
        return bool((2 * np.count_nonzero(suspected, axis=1) >= suspected.shape[1]).any())

    def without_suspicions(self) -> FinalisedState:
        """Return the same state with nobody suspected."""
        if self.score is None or self.usual is None or self.penalty is None or self.suspicious is None:
            return self
        return replace(
            self,
            score=np.ones_like(self.score),
            usual=np.ones_like(self.usual),
            penalty=np.ones_like(self.penalty),
            suspicious=np.zeros_like(self.suspicious),
        )

    def check(self, samples: int, length: int, lag: int, beliefs: Beliefs) -> None:
        """Refuse numbers that no server could have.

        n `samples` are allowed per `length` slots, L is `lag`, and `beliefs` are those of filters that learn.
        """
        slot, since = int(self.slot), int(self.since)
        if not lag - 1 <= slot <= _LARGEST or not 0 <= since <= slot + 1:
            raise BadInput(
                f"a finalised state of slot {slot} with accounts from slot {since} on; allowed: slots from {lag - 1} "
                "on, and accounts that have begun."
            )
        _check_means("base", self.base)
        if self.base_var.ndim == 1:
            _check_variances("base_var", self.base_var)
        else:
            _check_covariance(self.base_var)
        if np.isinf(self.base_recent).any() or (self.base_recent < 0.0).any():
            raise BadInput("a finalised state with residuals below 0 or infinite.")
        self._check_accounts(samples, length, lag)
        if self.level is not None and self.level_var is not None:
            _check_means("level", self.level)
            if self.level_var.ndim == 2:
                _check_variances("level_var", self.level_var)
        self._check_memory(beliefs)
        self._check_scores()

    def check_certainty(self, least: Floats) -> None:
        """Refuse a variance below what public facts allow; `least` is that of each region, (d,)."""
        variances = self.variance if self.bank is None else np.minimum(self.variance, self.bank[1].min(axis=0))
        if (below := variances * _SAFETY < least).any():
            region = int(np.flatnonzero(below)[0])
            raise BadInput(
                f"a finalised state that is too certain: the variance of region {region} is {variances[region]:.3g}, "
                f"and the public schedule, shares and epsilon allow no less than {least[region]:.3g}."
            )

    def _check_accounts(self, samples: int, length: int, lag: int) -> None:
        """Refuse accounts that no records of slots from `since` to t - L could lead to."""
        slot, since = int(self.slot), int(self.since)
        has_paid = self.paid_until != NOTHING_PAID
        if (has_paid & (self.paid_until >= (slot - lag + 1) * samples + length)).any():
            raise BadInput("a finalised state in which an origin has paid for slots to come.")
        if (has_paid & (self.paid_until < since * samples + length)).any():
            raise BadInput("a finalised state in which an origin has paid for less than one sample.")

    def _check_scores(self) -> None:
        """Refuse scores that no comparison of records could lead to, and penalties that do not follow from them."""
        if self.score is None or self.usual is None or self.penalty is None or self.suspicious is None:
            return
        for name, array, least, most in (
            ("score", self.score, 0.0, _MOST_SCORE),
            ("usual", self.usual, 0.0, _MOST_USUAL),
            ("penalty", self.penalty, 1.0, _MOST_PENALTY),
        ):
            if not ((array >= least) & (array <= most)).all():
                raise BadInput(f"a finalised state with a {name} outside {least:g} to {most:g}.")
        latest = self.penalty[int(self.slot) % len(self.penalty)]
        expected = penalty_of(self.score)
        if not np.isclose(latest, expected, rtol=_ROUNDING, atol=0.0).all():
            raise BadInput("a finalised state whose penalties do not follow from its scores.")
        if (self.suspicious != (self.penalty > 1.0).any(axis=1)).any():
            raise BadInput("a finalised state that suspects without a penalty, or the other way round.")

    def _check_memory(self, beliefs: Beliefs) -> None:
        """Refuse beliefs and common errors that no filter could have."""
        if self.bank is not None:
            _check_means("bank", self.bank[0])
            _check_variances("bank", self.bank[1])
            if not (self.bank[2] <= 0.0).all() or not np.isfinite(self.bank[2]).all():
                raise BadInput("a finalised state whose beliefs have weights above 1, or none.")
            self._check_beliefs(self.bank, beliefs)
        if self.cross is not None:
            _check_means("cross", self.cross)
        if self.learned is not None and self.learner is not None and self.learner_cov is not None:
            shares, var = self.learned
            if not ((shares > 0.0) & (shares <= 1.0)).all() or not ((var >= 0.0) & (var <= _LARGEST)).all():
                raise BadInput("a finalised state with learned shares that are not above 0 and at most 1.")
            _check_means("learner", self.learner)
            for covariance in full_matrices(self.learner_cov):
                _check_covariance(covariance)

    def _check_beliefs(self, bank: Floats, beliefs: Beliefs) -> None:
        """Refuse an estimate that is not the mean of the beliefs: the filter goes on with these."""
        if bank.shape[1] != len(beliefs.factor):
            raise BadInput(
                f"a finalised state with {bank.shape[1]} beliefs; this version has {len(beliefs.factor)}: "
                "all servers of a network that learns need the same version."
            )
        with np.errstate(invalid="ignore"):
            mean, variance = combined(Bank(*(part[:, None] for part in bank)), beliefs)
        known = np.isfinite(self.variance)
        scale = np.sqrt(np.where(known, self.variance, 1.0)) + np.abs(self.base)
        apart = np.abs(mean[0] - self.base) > _ROUNDING * np.maximum(scale, 1.0)
        unlike = ~np.isclose(variance[0], self.variance, rtol=_ROUNDING, atol=_ROUNDING)
        if (known != np.isfinite(variance[0])).any() or (known & (apart | unlike)).any():
            raise BadInput("a finalised state whose estimate does not follow from its beliefs.")


def _check_means(name: str, means: Floats) -> None:
    if not (np.abs(means) <= _LARGEST).all():
        raise BadInput(f"a finalised state whose {name} is not finite or beyond 2^53.")


def _check_variances(name: str, variances: Floats) -> None:
    if not (variances >= 0.0).all():
        raise BadInput(f"a finalised state whose {name} is not a number or below 0.")


def _check_covariance(covariance: Floats) -> None:
    if not np.isfinite(covariance).all():
        raise BadInput("a finalised state whose covariance is not finite.")
    largest = float(np.abs(covariance).max())
    if not (np.abs(covariance - covariance.T) <= _ASYMMETRY * largest).all():
        raise BadInput("a finalised state whose covariance is not symmetric.")
    if not float(np.linalg.eigvalsh(covariance).min()) > -_ASYMMETRY * largest:
        raise BadInput("a finalised state whose covariance is not positive.")


def finalised_state(state: RelayState) -> FinalisedState:
    """Return what follows from the final records of a server on its own; it shares no memory with the server."""
    mailbox, scores, bank = state.mailbox, state.scores, state.base_bank
    assert mailbox is not None
    matrix, paper = state.setting.form == "matrix", state.setting.observation == "paper"
    level_var = np.isfinite(state.level_var[:, 0, 0]) if matrix else state.level_var[:, 0]
    parts: dict[str, NDArray[Any] | None] = {
        "slot": state.last,
        "since": mailbox.since,
        "settled": np.array(_is_settled(state)),
        "base": state.base[0],
        "base_var": state.base_var[0],
        "base_known": state.base_known[0],
        "base_recent": state.base_recent[0],
        "paid_until": mailbox.paid_until,
        "level": None if paper else state.level[:, 0],
        "level_var": None if paper else level_var.astype(np.float64),
        "score": None if scores is None else scores.score[0],
        "usual": None if scores is None else scores.usual[0],
        "penalty": None if scores is None else _penalties(state),
        "suspicious": None if scores is None else state.suspicious[:, 0],
        "bank": None if bank is None else np.stack([bank.mean[:, 0], bank.var[:, 0], bank.weight[:, 0]]),
        "cross": None if state.base_cross is None else state.base_cross[:, 0],
        **finalised_shares(state),
    }
    return FinalisedState(**{name: None if part is None else np.array(part) for name, part in parts.items()})  # type: ignore[arg-type]


def _penalties(state: RelayState) -> Floats:
    """Return the penalties of the slots, (L, origins); where nobody is suspected they mean nothing, and are 1."""
    return np.where(state.suspicious[:, 0, None], state.penalty[:, 0], 1.0)


def _is_settled(state: RelayState) -> bool:
    """Whether all slots before the first one of the accounts are what the base says; see `relay_transfer`."""
    assert state.mailbox is not None
    places = [slot % state.lag for slot in _before_accounts(int(state.last), int(state.mailbox.since), state.lag)]
    return all(
        np.array_equal(mine[places], np.broadcast_to(base, mine[places].shape))
        for mine, base in ((state.mean, state.base), (state.mean_var, state.base_var))
    )


def _before_accounts(slot: int, since: int, lag: int) -> range:
    """Return the slots of the lag before the first one of the accounts."""
    return range(max(slot - lag + 1, 0), min(since, slot + 1))


def can_be_joined(state: RelayState) -> bool:
    """Whether somebody can begin with the finalised state of a server.

    In the first L slots of a network there is none, and every record can still be had. Less than L slots after a new
    horizon, records before it count, but are not accepted any more.
    """
    assert state.mailbox is not None
    early = _before_accounts(int(state.last), int(state.mailbox.since), state.lag)
    return int(state.last) >= state.lag - 1 and (not early or _is_settled(state))


def read_finalised(payload: bytes, fresh: RelayState) -> FinalisedState:
    """Return the state that a neighbour has sent; `BadInput` says what is wrong with it.

    fresh  a state of the receiver, whose shapes it must have
    """
    expected = finalised_state(fresh)
    arrays = {name: array for name, array in from_bytes(payload).items() if name not in _FORMER_FIELDS}
    names = [one.name for one in fields(FinalisedState)]
    present = {name for name in names if getattr(expected, name) is not None}
    if arrays.keys() != present:
        raise BadInput(f"a finalised state that lacks or adds {sorted(arrays.keys() ^ present)}.")
    for name in present:
        mine, theirs = getattr(expected, name), arrays[name]
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise BadInput(
                f"a finalised state whose {name} is {theirs.dtype}{theirs.shape}; allowed: {mine.dtype}{mine.shape}."
            )
    return FinalisedState(**{name: arrays.get(name) for name in names})  # type: ignore[arg-type]


def begin_from(finalised: FinalisedState, fresh: RelayState, shares: Floats | None = None) -> int:
    """Let a fresh state begin with what a neighbour has sent; return the first slot whose records are still to come.

    shares  (L, origins) or (L, origins, d) of the slots, if some of them were others under an earlier revision
    """
    slot, since, lag, setting = int(finalised.slot), int(finalised.since), fresh.lag, fresh.setting
    early = _before_accounts(slot, since, lag)
    if early and not finalised.settled:
        raise BadInput("a finalised state of less than L slots after a new horizon: records before it cannot be had.")
    mailbox = fresh.mailbox
    assert mailbox is not None
    fresh.last = np.array(slot)
    fresh.base[0], fresh.base_var[0] = finalised.base, finalised.base_var
    fresh.base_known[0], fresh.base_recent[0] = finalised.base_known, finalised.base_recent
    if fresh.base_bank is not None and finalised.bank is not None:
        for beliefs, values in zip(vars(fresh.base_bank).values(), finalised.bank, strict=True):
            beliefs[:, 0] = values
    if fresh.base_cross is not None and finalised.cross is not None:
        fresh.base_cross[:, 0] = finalised.cross
    take_shares(fresh, finalised.learned, finalised.learner, finalised.learner_cov, finalised.learner_begun)
    for one in early:
        place = one % lag
        if fresh.cross is not None and fresh.base_cross is not None:
            fresh.cross[place] = fresh.base_cross
        if fresh.bank is not None and fresh.base_bank is not None:
            fresh.bank.put(place, fresh.base_bank)
        fresh.mean[place], fresh.mean_var[place] = fresh.base, fresh.base_var
        fresh.known[place], fresh.recent[place] = fresh.base_known, fresh.base_recent
    if shares is not None:
        fresh.shares[:] = shares
    mailbox.paid_until, mailbox.since = finalised.paid_until.copy(), finalised.since.copy()
    if finalised.level is not None and finalised.level_var is not None:
        fresh.level[:, 0] = finalised.level
        if setting.form == "matrix":
            fresh.level_var[:, 0] = np.where(finalised.level_var > 0.0, 1.0, np.inf)[:, None]
        else:
            fresh.level_var[:, 0] = finalised.level_var
    _take_scores(finalised, fresh)
    return early.stop if early else max(slot - lag + 1, 0)


def _take_scores(finalised: FinalisedState, fresh: RelayState) -> None:
    scores = fresh.scores
    if scores is None:
        return
    assert finalised.score is not None and finalised.usual is not None
    assert finalised.penalty is not None and finalised.suspicious is not None
    scores.score[0], scores.usual[0] = finalised.score, finalised.usual
    scores.suspicious[0] = bool((finalised.score >= SUSPECT).any())
    fresh.penalty[:, 0], fresh.suspicious[:, 0] = finalised.penalty, finalised.suspicious


def most_trusted(states: Mapping[str, FinalisedState]) -> tuple[list[str], list[str]]:
    """Return the senders of the state to take, and those who contradict it; nobody, if no majority agrees.

    Two states agree if their intervals overlap in every region. A state can be taken if more than half of all senders
    agree with it, its own ones included; a single one, if there is no other. So as long as most neighbours are honest,
    what is taken agrees with an honest one. Of several such states

    - the one that most neighbours have sent, bit for bit, is taken: servers that have the same records send the same,
    - and where several were sent equally often, the one in the middle by what they claim to know, of two the one that
      claims less. So a neighbour gains nothing by claiming certainty, and little by claiming none. A state without any
      information is taken only if there is no other.
    """
    groups: dict[bytes, list[str]] = {}
    for name, state in sorted(states.items()):
        groups.setdefault(state.to_bytes(), []).append(name)
    eligible: list[tuple[int, float, bytes]] = []
    contradicting: dict[bytes, list[str]] = {}
    for content, names in groups.items():
        state = states[names[0]]
        contradicting[content] = sorted(name for name, other in states.items() if not state.agrees_with(other))
        if 2 * len(contradicting[content]) < len(states):
            eligible.append((len(names), state.certainty, content))
    if not eligible:
        return [], sorted(states)
    informed = [one for one in eligible if one[1] > 0.0] or eligible
    most = max(number for number, _, _ in informed)
    tied = sorted((certainty, content) for number, certainty, content in informed if number == most)
    taken = tied[(len(tied) - 1) // 2][1]
    return groups[taken], contradicting[taken]
