"""What the tests of relay share: single servers, noise that is known, and a central filter written from the rules.

`CentralFilter` is an oracle: full matrices and least squares, one run from the first slot to the last over a plain set
of records, with no code of the library in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from hypothesis import assume
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.account import Account
from dpcrowd.schemes.base import Peers, Setting
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.server import Server
from schemes_support import laplace_var

Floats = NDArray[np.float64]
Records = Mapping[tuple[int, int], Floats]
"""Noisy counts by (origin, slot)."""


class KnownNoise:
    """Whole numbers that depend on slot, server and region alone; `only`: those of one server."""

    private = False

    def __init__(self, servers: int, regions: int, only: int | None = None) -> None:
        self._shape, self._only = (servers, regions), only

    def noisy(self, slot: int, counts: Any, amount: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        noise = np.random.default_rng([slot, 5]).integers(-20, 21, self._shape)
        noise = noise if self._only is None else noise[self._only : self._only + 1]
        return np.where(where, counts + noise, 0.0)


@dataclass(frozen=True)
class Network:
    """Public facts of a small network of servers that relay, and how to make one of them."""

    shares: Floats
    model: ProcessModel
    guarantee: Guarantee
    samples: int
    phases: NDArray[np.int64]
    lag: int = 5
    guard: bool = True
    form: Literal["diagonal", "matrix"] = "diagonal"
    observation: Literal["paper", "binomial"] = "paper"
    options: dict[str, Any] = field(default_factory=dict)
    learn: bool = False
    turnover: float = 1.0
    share_width: float = 0.0

    @property
    def servers(self) -> int:
        return len(self.shares)

    @property
    def price(self) -> int:
        """Nano-epsilon of one sample."""
        return self.guarantee.total // self.samples

    @property
    def noise_var(self) -> float:
        return laplace_var(self.price / 1e9, self.guarantee.sensitivity)

    def scheme(self) -> Relay:
        return Relay(samples=self.samples, lag=self.lag, guard=self.guard, **self.options)

    def setting(self, number: int | None = None) -> Setting:
        """Of the whole network in one batch, or of one server on its own."""
        lockstep = self.guarantee.users == "roaming"
        rows = slice(None) if number is None else slice(number, number + 1)
        return Setting(
            servers=self.servers if number is None else 1,
            model=self.model,
            guarantee=self.guarantee,
            observation=self.observation,
            form=self.form,
            phases=None if lockstep else self.phases[rows],
            peers=None if number is None else Peers(number, self.shares),
            learn=self.learn,
            turnover=self.turnover,
            share_width=self.share_width,
        )

    def server(self, number: int, account: Account | None = None) -> Server:
        noise = KnownNoise(self.servers, self.model.regions, number)
        share = float(self.shares[number]) if self.shares.ndim == 1 else self.shares[number]
        options: dict[str, Any] = {"number": number, "share": share, "allow_simulated_noise": True, "account": account}
        return Server(self.scheme(), self.setting(number), noise, **options)

    def due(self, slot: int, server: int) -> bool:
        """Whether a server samples in a slot, if it has never missed one."""
        length, offset = self.guarantee.length, int(self.phases[server])
        return (self.samples * slot - offset) // length > (self.samples * (slot - 1) - offset) // length


def message_of(records: Records, keys: Sequence[tuple[int, int]], nano: int, hops: int = 1) -> RecordMessages:
    """A message with these of the records, in this order; one may be there twice."""
    regions = len(records[keys[0]])
    return RecordMessages.of(
        np.array([origin for origin, _ in keys], dtype=np.int64),
        np.array([slot for _, slot in keys], dtype=np.int64),
        np.full(len(keys), nano, dtype=np.int64),
        np.full(len(keys), hops, dtype=np.int64),
        np.array([records[key] for key in keys], dtype=np.float64).reshape(len(keys), regions),
    )


@dataclass(frozen=True)
class Posterior:
    """Of one slot; mean None: nothing is known. `doubt` is the factor of the prior's covariance."""

    mean: Floats | None
    cov: Floats
    doubt: float = 1.0


class CentralFilter:
    """One filter that has all the records at once, in plain matrices."""

    def __init__(self, network: Network) -> None:
        self.network = network
        model, d = network.model, network.model.regions
        if network.form == "matrix":
            self.a, self.q = model.matrix_transition, model.matrix_var
        else:
            self.a = np.diag(np.broadcast_to(model.diagonal_transition, (d,)))
            self.q = np.diag(model.diagonal_var)

    def offset(self, slot: int) -> Floats:
        """What the expected course adds between the slot before and this one: b(t) = mu(t) - A mu(t-1)."""
        course = self.network.model.course
        return np.zeros(len(self.a)) if course is None else course.mean(slot) - self.step(slot) @ course.mean(slot - 1)

    def step(self, slot: int) -> Floats:
        """A of the step to a slot: if deviations follow a scale, it is multiplied by the ratio of the scales."""
        course = self.network.model.course
        if course is None or course.scale is None:
            return self.a
        now, before = (course.scale[course.row(one)] for one in (slot, slot - 1))
        return np.asarray(self.a * (now / before)[:, None])

    def process_cov(self, slot: int) -> Floats:
        """Q of a slot."""
        course = self.network.model.course
        return self.q if course is None else np.diag(course.noise_var(slot))

    @cached_property
    def start(self) -> Posterior:
        """What is known before slot 0: nothing, or the course and the sum of all that past slots have added."""
        course = self.network.model.course
        if course is None:
            return Posterior(None, np.eye(len(self.a)))
        cov = np.zeros_like(self.a)
        for slot in range(-2000, 0):
            cov = self.step(slot) @ cov @ self.step(slot).T + self.process_cov(slot)
        return Posterior(course.mean(-1), cov)

    def run(self, records: Records, last: int) -> list[Posterior]:
        """Posteriors of slots 0 to `last`, given all these records."""
        network, lag = self.network, self.network.lag
        posteriors: list[Posterior] = []
        recent: list[float] = []
        scores = np.ones(network.servers)
        usual = 1.0
        levels: list[Floats | None] = []
        for slot in range(last + 1):
            if slot >= lag:
                old = slot - lag
                final = posteriors[old]
                level = None if final.mean is None else self._crowd(final.mean, final.cov, levels[old])
                usual = self._judge(records, old, final, level, scores, usual)
            level = posteriors[slot - lag].mean if slot >= lag else self.start.mean
            if level is not None:
                for one in range(max(slot - lag, -1) + 1, slot + 1):
                    level = self.step(one) @ level + self.offset(one)
            levels.append(level)
            penalty = np.where(scores >= 3.5, scores**2, 1.0)
            before = posteriors[-1] if posteriors else self.start
            posteriors.append(self._step(records, slot, before, levels[slot], penalty, recent))
        return posteriors

    @staticmethod
    def _crowd(mean: Floats, cov: Floats, level: Floats | None) -> Floats:
        """What the binomial variance takes for the crowd: the mean where it is known better than its own size."""
        otherwise = np.full(len(mean), np.nan) if level is None else level
        certain = np.diag(cov) < np.maximum(mean, 1.0) ** 2
        return np.where(certain, np.maximum(mean, 0.0), otherwise)

    def _held(self, records: Records, slot: int) -> list[tuple[int, Floats]]:
        return sorted((origin, values) for (origin, s), values in records.items() if s == slot)

    def _honest_var(self, origin: int, values: Floats, level: Floats | None) -> Floats:
        """R of a record, region by region."""
        network, share = self.network, self.network.shares[origin]
        if network.observation == "paper":
            spread: Floats = share**2 * network.model.one_step_var
        else:
            crowd = values / share if level is None else np.where(np.isnan(level), values / share, level)
            spread = share * (1 - share) * np.maximum(crowd, 1.0)
        return network.noise_var + np.maximum(spread, 1 / 12)

    def _step(
        self,
        records: Records,
        slot: int,
        before: Posterior,
        level: Floats | None,
        penalty: Floats,
        recent: list[float],
    ) -> Posterior:
        held = self._held(records, slot)
        shares = self.network.shares
        doubt = 1.0
        if before.mean is not None:
            mean = self.step(slot) @ before.mean + self.offset(slot)
            cov = self.step(slot) @ before.cov @ self.step(slot).T + self.process_cov(slot)
            level = self._crowd(mean, cov, level)
        variances = [self._honest_var(origin, values, level) for origin, values in held]
        if self.network.guard:
            factors = penalty if before.mean is not None else self._first_penalty(held, variances)
            ratios = [np.zeros(len(self.a)) for _ in held]
            if before.mean is not None:
                ratios = [
                    (values - shares[o] * mean) ** 2 / (var + shares[o] ** 2 * np.diag(cov))
                    for (o, values), var in zip(held, variances, strict=True)
                ]
            voters = [(float(r.mean()), o, z) for (o, z), r in zip(held, ratios, strict=True) if factors[o] == 1.0]
            trusted = [ratio for ratio, _, _ in voters]
            pool = trusted if len(trusted) >= 5 else (recent + trusted)[-5:]
            scale = 1.0
            if trusted and len(pool) >= 5:
                scale = max(sorted(pool)[len(pool) // 4], 1.0)
            elif trusted and before.mean is not None:
                scale = self._vote(recent, voters, float(mean.sum()))
            if 3 <= len(trusted) < 5 and min(trusted) > 36.0:
                scale = max(scale, min(trusted))
            recent[:] = (recent + trusted)[-5:]
            if len(pool) < 5 and scale > 1.0:
                recent[:] = [0.0 if ratio > 36.0 else 72.0 for ratio in recent]
            doubt = scale if scale > 4.0 else 1.0
            variances = [
                var * np.maximum(np.maximum(r / scale, np.minimum(z, 0) ** 2 / self.network.noise_var) / 36.0, 1.0)
                for (_, z), var, r in zip(held, variances, ratios, strict=True)
            ]
            variances = [var * factors[o] for (o, _), var in zip(held, variances, strict=True)]
        if not held:
            return before if before.mean is None else Posterior(mean, cov, doubt)
        # Least squares on whitened rows, by QR: exact where a doubted prior is a million times wider than a record.
        d = len(self.a)
        deviations = np.sqrt(np.concatenate(variances))
        rows = np.concatenate([shares[o] * np.eye(d) for o, _ in held]) / deviations[:, None]
        values = np.concatenate([v for _, v in held]) / deviations
        known = before.mean is not None
        if known:
            values = np.concatenate([np.zeros(d), values - rows @ mean])
            rows = np.concatenate([np.linalg.inv(np.linalg.cholesky(cov * doubt)), rows])
        q, r = np.linalg.qr(rows)
        root = np.linalg.inv(r)
        found = root @ (q.T @ values)
        return Posterior(mean + found if known else found, root @ root.T, doubt)

    def _vote(self, recent: list[float], voters: list[tuple[float, int, Floats]], total: float) -> float:
        """With few records: whether more are against the prior than for it; in a tie the smaller claim wins."""
        opponents = [
            (ratio, values.sum() / self.network.shares[o].mean()) for ratio, o, values in voters if ratio > 36.0
        ]
        if not opponents:
            return 1.0
        against = len(opponents) + sum(ratio > 36.0 for ratio in recent)
        others = len(recent) + len(voters) - against
        claims = [claim for _, claim in opponents if claim >= 0]
        if against == others:  # a total of 0 is positive or negative by rounding alone, and decides
            assume(abs(total) > 1e-6)
        smaller = bool(claims) and (total < 0 or min(claims) < total)
        outvoted = against > others or (against == others and smaller)
        return min(ratio for ratio, _ in opponents) if outvoted else 1.0

    def _first_penalty(self, held: list[tuple[int, Floats]], variances: list[Floats]) -> Floats:
        """Where nothing is known: records are compared with their lower median."""
        penalty, shares = np.ones(self.network.servers), self.network.shares
        if len(held) < 2:
            return penalty
        totals, spreads = {}, {}
        for (o, values), var in zip(held, variances, strict=True):
            totals[o], spreads[o] = values.sum() / shares[o].mean(), var.sum() / shares[o].mean() ** 2
            if totals[o] < 0 and totals[o] ** 2 > 36.0 * spreads[o]:
                totals[o] = np.inf  # nobody counts fewer than none
        ranked = sorted(totals, key=lambda o: totals[o])
        middle = ranked[(len(ranked) - 1) // 2]
        median = totals[middle]
        if np.isinf(median):
            return penalty
        width = 1.4826 * sorted(abs(total - median) for total in totals.values())[(len(ranked) - 1) // 2]
        for o, total in totals.items():
            ratio = (total - median) ** 2 / (36.0 * (width**2 + spreads[o] + spreads[middle]))
            penalty[o] = min(max(1.0, ratio), 1e12)
        return penalty

    def _judge(
        self, records: Records, slot: int, final: Posterior, level: Floats | None, scores: Floats, usual: float
    ) -> float:
        """Learn from a slot that is final; changes `scores`, gives `usual`."""
        held = self._held(records, slot)
        if final.mean is None or not held or not self.network.guard:
            return usual
        residuals = {}
        for o, values in held:
            share = self.network.shares[o]
            spread = self._honest_var(o, values, level) + share**2 * np.diag(final.cov)
            residuals[o] = float(((values - share * final.mean) ** 2 / spread).mean())
        typical = float(np.mean([min(r, 4.0) for r in residuals.values()]))
        usual += (typical - usual) * (1 - (1 - 1 / 64) ** len(held))
        for o, squared in residuals.items():
            residual = min(squared / max(usual, 1.0), 100.0)
            rate = 1 / 32 if scores[o] > 3.5 and residual < scores[o] else 1 / 8
            after = scores[o] + (residual - scores[o]) * rate
            scores[o] = min(after, 3.5) if scores[o] <= 2.5 else after  # one record alone makes nobody suspected
        return float(usual)
