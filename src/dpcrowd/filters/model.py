"""The process model r(t+1) = A r(t) + w(t), w ~ N(0, Q) (Eqs. state and multistate).

One small object carries A and Q to every filter. A is a number, a vector (diagonal) or a d x d matrix; Q is a
vector of variances or a d x d covariance. The diagonal form of a filter takes the diagonals, the matrix form the full
matrices.

With an expected course (`course`), A and Q are those of the deviation from it, and every slot has its own Q.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters.course import Course
from dpcrowd.filters.tails import NORMAL, Tails

__all__ = ["InCommon", "ProcessModel"]


@dataclass(frozen=True)
class InCommon:
    """How that part of deviations moves which all regions have in common.

    transition      the part of it that is left after one slot
    usual, unusual  where it is mostly small and sometimes large, such as storms: see `tails`
    """

    transition: float
    usual: float = NORMAL[0]
    unusual: float = NORMAL[1]

    def __post_init__(self) -> None:
        if not 0.0 <= self.transition < 1.0:
            raise BadInput(f"the part in common that is left after a slot is {self.transition}; allowed: 0 to below 1.")
        Tails(np.array([self.usual]), np.array([self.unusual]))  # refuses what cannot be

    @property
    def tails(self) -> Tails:
        """How it is distributed, as of one region."""
        return Tails(np.array([self.usual]), np.array([self.unusual]))


@dataclass(frozen=True)
class ProcessModel:
    """How the population's counts move from one slot to the next.

    transition   A: scalar, (d,) or (d, d)
    process_var  Q: (d,) variances or (d, d) covariance; with a course, the mean of its variances over the season
    course       what is expected of every slot; None: that the counts move by A and Q alone, from an unknown start
    change_var   (d,) mean square of the change of a count in one slot, where that is not Q: with a course
    region_correlation  of the deviations of two regions from their course, on average; None: unknown. It says whether
                 joining regions into groups is worth it, and how wide the interval of a total is
    in_common    how what all regions have in common moves; None: unknown. With it filters that learn follow that
                 (`common_deviation`)

    >>> ProcessModel.of(1.0, [100.0, 25.0]).regions
    2
    """

    transition: Floats
    process_var: Floats
    course: Course | None = field(default=None, metadata={"later": True})
    change_var: Floats | None = field(default=None, metadata={"later": True})
    region_correlation: float | None = field(default=None, metadata={"later": True})
    in_common: InCommon | None = field(default=None, metadata={"later": True})

    @classmethod
    def of(cls, transition: object, process_var: object) -> ProcessModel:
        """Build a model from anything array-like, and check it."""
        a = _array("transition", transition)
        q = np.atleast_1d(_array("process variance", process_var))
        if q.ndim not in (1, 2) or (q.ndim == 2 and q.shape[0] != q.shape[1]):
            raise BadInput(f"process variance has shape {q.shape}; allowed: (d,) or (d, d).")
        d = q.shape[0]
        if d == 0:
            raise BadInput("process variance is empty; give one number per region, for at least one region.")
        if a.ndim > 2 or (a.ndim == 1 and a.shape != (d,)) or (a.ndim == 2 and a.shape != (d, d)):
            raise BadInput(f"transition has shape {a.shape}; allowed for {d} regions: (), ({d},) or ({d}, {d}).")
        for name, values in (("transition", a), ("process variance", q)):
            if not np.isfinite(values).all():
                raise BadInput(f"{name} must be finite numbers; given {float(values[~np.isfinite(values)].flat[0])}.")
        variances = q if q.ndim == 1 else np.diag(q)
        if (variances < 0).any():
            raise BadInput(f"process variance must be >= 0; given {float(variances.min())}.")
        if q.ndim == 2 and (not np.allclose(q, q.T) or np.linalg.eigvalsh(q).min() < -1e-9 * max(1.0, abs(q).max())):
            raise BadInput("process covariance must be symmetric and positive semi-definite.")
        return cls(a, q)

    @classmethod
    def around(
        cls,
        course: Course,
        transition: object,
        change_var: object | None = None,
        region_correlation: float | None = None,
        in_common: InCommon | None = None,
    ) -> ProcessModel:
        """Build the model of counts that deviate from a course; `transition` a: a number or (d,), each |a| < 1.

        >>> course = Course(np.array([[40.0, 7.0]]), np.array([[9.0, 4.0]]))
        >>> ProcessModel.around(course, 0.5).regions
        2
        """
        plain = cls.of(transition, course.variance.mean(axis=0))
        if plain.transition.ndim > 1 or (np.abs(plain.transition) >= 1.0).any():
            raise BadInput("with an expected course, the transition is one number per region, above -1 and below 1.")
        change = None if change_var is None else np.asarray(change_var, dtype=np.float64)
        if change is not None and (change.shape != (plain.regions,) or not (change >= 0).all()):
            raise BadInput(f"change_var has shape {change.shape}; allowed: ({plain.regions},), each >= 0.")
        if region_correlation is not None and not 0.0 <= region_correlation <= 1.0:
            raise BadInput(
                f"region_correlation is {region_correlation}; allowed: from 0 to 1, or None if it is unknown."
            )
        return cls(plain.transition, plain.process_var, course, change, region_correlation, in_common)

    def carried(self, slot: int | None, steps: int = 1) -> Floats:
        """Return A of the step to a slot in the diagonal form, or of `steps` of them, () or (d,).

        With a course, that is the part of a deviation that is left; without one, the slot makes no difference.
        """
        if self.course is not None:
            assert slot is not None
            return self.course.carried(self.diagonal_transition, slot, steps)
        return self.diagonal_transition if steps == 1 else self.diagonal_transition**steps

    def ratio(self, before: int, slot: int) -> Floats | float:
        """Return by what a deviation is larger if it lasts from one slot to another, () or (d,); see `course`."""
        return 1.0 if self.course is None else self.course.ratio(before, slot)

    def start(self, slot: int) -> tuple[Floats, Floats]:
        """Return mean and variance (d,) of a slot before any record: what the course says, or no information."""
        if self.course is None:
            return np.zeros(self.regions), np.full(self.regions, np.inf)
        return self.course.mean(slot), self.course.settled_var(slot, self.transition)

    @property
    def regions(self) -> int:
        return int(self.process_var.shape[0])

    @cached_property
    def diagonal_transition(self) -> Floats:
        """A of the diagonal form, shape () or (d,).

        A full matrix A moves people between regions, which the diagonal form cannot follow: it predicts that each
        region stays as it is (A = 1), and Q has to cover the rest.
        """
        return self.transition if self.transition.ndim < 2 else np.ones(())

    @cached_property
    def growth(self) -> float:
        """By how much A can enlarge an error of the diagonal form in one slot, at least 1."""
        return max(1.0, float(np.abs(self.diagonal_transition).max()))

    @cached_property
    def noise_var(self) -> Floats:
        """The diagonal of Q, shape (d,)."""
        return self.process_var if self.process_var.ndim == 1 else np.diag(self.process_var).copy()

    @property
    def one_step_var(self) -> Floats:
        """The mean square of a count's change in one slot, (d,): Q, unless a course explains a part of the change."""
        return self.noise_var if self.change_var is None else self.change_var

    @cached_property
    def diagonal_var(self) -> Floats:
        """Q of the diagonal form, shape (d,): the variance of a region's change in one slot.

        With a full matrix A, people who move between regions add to it. In the steady state the change is
        (A - I) r + w, whose covariance is Q + sum_k D A^k Q (D A^k)^T with D = A - I; the sum is cut after 500 terms,
        which matters only for a process that never settles.
        """
        if self.transition.ndim < 2:
            return self.noise_var
        total = self.matrix_var.copy()
        step = self.transition - np.eye(self.regions)
        for _ in range(500):
            term = step @ self.matrix_var @ step.T
            total += term
            if abs(term).max() <= 1e-12 * abs(total).max():
                break
            step = step @ self.transition
        return np.diag(total).copy()

    @cached_property
    def matrix_transition(self) -> Floats:
        """A as a (d, d) matrix."""
        d = self.regions
        if self.transition.ndim == 2:
            return self.transition
        return np.diag(np.broadcast_to(self.transition, (d,)).astype(np.float64))

    @cached_property
    def matrix_var(self) -> Floats:
        """Q as a (d, d) matrix."""
        return self.process_var if self.process_var.ndim == 2 else np.diag(self.process_var)


def _array(name: str, values: object) -> Floats:
    """Return numbers as an array; refuse texts, and rows of different lengths."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name} must be numbers, in rows of the same length; given {values!r}.") from None
