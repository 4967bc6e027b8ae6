"""The interface of every scheme: five steps, the same for a batch of a million servers and for one live server.

    plan     which regions are sampled in this slot, and at what epsilon; from public facts and past releases only
    perturb  noisy counts of those regions, paid at the ledger: the only step that sees raw counts
    message  what is sent to the others, or nothing
    fuse     the posterior from the prior, the own sample and the messages heard
    release  estimate, variance, sampled, epsilon charged

Arrays have N servers first and regions last; a batch of runs is one network of N = runs x servers. The driver
(simulator or live server) provides counts, noise, messages and time. A scheme keeps its parameters, a `State` keeps
what changes; steps update the state in place. There is no clock, no I/O and no randomness in here but the noise that
is passed in.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters import Observation, ProcessModel
from dpcrowd.kernels.engine import Engine, check_engine
from dpcrowd.network.hearing import Hearing, Reach
from dpcrowd.network.spread import Traffic
from dpcrowd.privacy import Accounting, Guarantee, Noise
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.tuning import Tuning

__all__ = [
    "LEAST_SHARE_WIDTH",
    "USUAL_TURNOVER",
    "Z95",
    "Form",
    "Peers",
    "Plan",
    "Reading",
    "Release",
    "Scheme",
    "Setting",
    "any_region",
    "check_share_width",
    "every_region",
    "half_width",
    "run_slot",
]

Form = Literal["diagonal", "matrix"]

Z95 = 1.959963984540054

USUAL_TURNOVER = 0.05
"""The part of a server's pinned users who are replaced per slot, where nobody says it: in simulations, plans and new
networks. `Setting` has 1, as network files that do not state it."""
LEAST_SHARE_WIDTH = 1e-6
"""The smallest share width above 0: 1 in a million."""


def check_share_width(width: float) -> None:
    """Refuse a share width that is none, or so small that a filter divides by what rounding leaves of its square."""
    if width == 0.0 or LEAST_SHARE_WIDTH <= width <= 1.0:
        return
    raise BadInput(
        f"share_width={width!r}; allowed: from 0 (shares are right) to 1, and not between 0 and "
        f"{LEAST_SHARE_WIDTH:g}, where there would be nothing to learn."
    )


def half_width(variance: Floats, factor: float = Z95) -> Floats:
    """Return half the width of an interval of `factor` standard deviations on each side; by default a 95% interval."""
    return factor * np.sqrt(variance)


@dataclass(frozen=True)
class Peers:
    """Public facts about the network of one server: its own number, and the shares of all servers.

    shares  (m,), or (m, d) where they differ by region
    """

    number: int
    shares: Floats


@dataclass(frozen=True)
class Setting:
    """The public configuration under which a scheme runs; the same for every server of the network.

    servers    N, over all runs of a batch
    model      A and Q
    guarantee  what is promised; None only for schemes without privacy
    phases     (N,) public phases, for staggered sampling only
    runs       how many runs the batch consists of
    samples    per window or horizon, where the scheme leaves that open (relay)
    peers      for one server on its own: the network that it belongs to (relay)
    learn      whether filters learn from what is released how well the model fits (`filters.learning`)
    turnover   the part of a server's users who are replaced per slot; below 1, relay treats deviations from a share as
               persistent (`filters.persistence`), and other filters release wider intervals (`filters.staying`)
    share_width  typical relative error of public shares; above 0, relay learns them (`filters.share_learning`)
    engine     "numba" takes compiled loops, for the simulator; both give the same bits, so it is neither compared nor
               saved
    grouper, pid_loop   deprecated and ignored; give `engine` instead
    """

    servers: int
    model: ProcessModel
    guarantee: Guarantee | None
    tuning: Tuning = field(default_factory=Tuning)
    observation: Observation = "paper"
    accounting: Accounting = "sound"
    form: Form = "diagonal"
    grouper: InitVar[object] = None
    phases: Ints | None = None
    pid_loop: InitVar[object] = None
    runs: int = field(default=1, metadata={"later": True})
    samples: int | None = field(default=None, metadata={"later": True})
    peers: Peers | None = field(default=None, metadata={"later": True})
    learn: bool = field(default=False, metadata={"later": True})
    turnover: float = field(default=1.0, metadata={"later": True})
    share_width: float = field(default=0.0, metadata={"later": True})
    engine: Engine = field(default="numpy", compare=False, metadata={"saved": False})

    def __post_init__(self, grouper: object, pid_loop: object) -> None:
        for name, value in (("grouper", grouper), ("pid_loop", pid_loop)):
            if value is not None:
                text = f"Setting({name}=...) is ignored, and goes in version 0.3: engine='numba' takes compiled loops."
                warnings.warn(text, DeprecationWarning, stacklevel=3)
        if self.servers < 1:
            raise BadInput(f"a network needs at least 1 server; given {self.servers}.")
        for kind, value, allowed in (
            ("observation", self.observation, ("paper", "binomial")),
            ("accounting", self.accounting, ("sound", "per-region")),
            ("form", self.form, ("diagonal", "matrix")),
        ):
            if value not in allowed:
                raise unknown_name(kind, value, allowed)
        if not 0.0 < self.turnover <= 1.0:
            raise BadInput(f"turnover={self.turnover!r}; allowed: above 0 and at most 1.")
        check_share_width(self.share_width)
        check_engine(self.engine)

    @property
    def regions(self) -> int:
        return self.model.regions

    def need_guarantee(self) -> Guarantee:
        """Return the guarantee, or refuse a setting without one."""
        if self.guarantee is None:
            raise BadInput("this scheme needs a privacy guarantee; give epsilon, and a window or a horizon.")
        return self.guarantee


@dataclass(frozen=True)
class Plan:
    """What is decided before the raw counts are read.

    slot    the number of the slot
    shares  (N, 1) or (N, d): the public shares of the servers in this slot, as `plan` was given them
    due     (N, 1) or (N, d): which regions are sampled; (N, 1) means all regions of a server alike
    amount  nano-epsilon of each sample, broadcastable to `due`; > 0 where due
    noise_var  variance of the noise of each sample, broadcastable to (N, d)
    prior, prior_var, known   the filter's prediction, where the scheme has one
    pivot   (N, d) the region whose group each region belongs to; None: every region alone
    parts   (N, d) the part of its group's sum that each region gets back; None: even parts
    scheduled  (N, 1) or (N, d): where a sample is asked for, whatever the budget allows; None: that is not known
    """

    slot: int
    shares: Floats
    due: Bools
    amount: Ints
    noise_var: Floats
    prior: Floats | None = None
    prior_var: Floats | None = None
    known: Bools | None = None
    pivot: Ints | None = None
    parts: Floats | None = None
    scheduled: Bools | None = field(default=None, metadata={"saved": False})


@dataclass(frozen=True)
class Reading:
    """What was read from the raw counts: noisy, and paid for.

    noisy      (N, d) noisy counts, 0 where not sampled
    noise_var  variance of their noise, broadcastable to (N, d)
    charge     (N, 1) or (N, d) nano-epsilon paid in this slot, all reads together
    group_noisy, group_var   of grouped regions: the group's own value, at its pivot
    discarded  (N, 1) whose samples are neither sent nor fused, although they are paid for; None: nobody's
    """

    noisy: Floats
    noise_var: Floats
    charge: Ints
    group_noisy: Floats | None = None
    group_var: Floats | None = None
    discarded: Bools | None = None

    @property
    def used(self) -> Bools:
        """Where a sample was paid for and is not discarded, (N, 1) or (N, d)."""
        return self.charge > 0 if self.discarded is None else (self.charge > 0) & ~self.discarded


@dataclass(frozen=True)
class Release:
    """What a slot publishes, (N, d) each unless stated otherwise. `of` gives one server's, without the first axis.

    estimate  NaN where a server has no information yet; never clamped
    variance  NaN where the scheme gives none
    sampled   (N, 1) or (N, d); of one server always (d,)
    charge    (N, 1) or (N, d) nano-epsilon paid in this slot
    speaks    (N,) whether a message with data is sent
    traffic   what was sent, where that does not follow from who speaks
    """

    slot: int
    estimate: Floats
    variance: Floats
    sampled: Bools
    charge: Ints
    speaks: Bools
    traffic: Traffic | None = None

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Bounds of the 95% interval."""
        half = half_width(self.variance)
        return self.estimate - half, self.estimate + half

    @property
    def low(self) -> Floats:
        """Lower bound of the 95% interval."""
        return self.interval[0]

    @property
    def high(self) -> Floats:
        """Upper bound of the 95% interval."""
        return self.interval[1]

    @property
    def nano(self) -> int:
        """Nano-epsilon that one server was charged in this slot; of several servers, the largest charge."""
        return int(self.charge.max())

    @property
    def epsilon(self) -> float:
        """`nano` in units of epsilon."""
        return from_nano(self.nano)


class Scheme(ABC):
    """A composition of privacy, filters, sampling, grouping and network."""

    name: ClassVar[str]
    """The name on the command line."""
    kinds: ClassVar[frozenset[str]]
    """The kinds of guarantee that it supports: "finite", "window"; empty for a scheme without privacy."""
    summary: ClassVar[tuple[str, str, str, str]]
    """Architecture, sampling and budget, fusion, guarantee: a row of `dpcrowd schemes`."""
    reach: Reach = "alone"
    """Who hears a server's message."""
    message_vectors: ClassVar[int] = 0
    """How many vectors of d numbers a message holds, in the diagonal form."""
    live: ClassVar[bool] = False
    """Whether a live server may run it."""
    may_skip: ClassVar[bool] = False
    """Whether a server can go without the counts of a slot, and so spend from an account; live schemes can."""
    independent_errors: ClassVar[bool] = False
    """Whether different servers' errors are independent, so that averaging them divides the variance."""
    independent_samples: ClassVar[bool] = False
    """Whether all servers sample in the same slots with independent errors, and miss the same changes in between."""
    needs_model: ClassVar[bool] = False
    """Whether it cannot run without a process model that has an expected course."""
    keeps_raw_counts: bool = False
    """Whether its state holds raw counts across slots: such a state may never be stored."""

    @abstractmethod
    def start(self, setting: Setting) -> Any:
        """Return the state before the first slot."""

    @abstractmethod
    def plan(self, state: Any, slot: int, shares: Floats) -> Plan:
        """Decide what to sample, from public facts and past releases.

        shares  (N, 1), or (N, d) where they differ by region
        """

    @abstractmethod
    def perturb(self, state: Any, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        """Pay, read the raw counts (N, d), and add noise."""

    @abstractmethod
    def message(self, state: Any, plan: Plan, reading: Reading) -> Any:
        """Return the messages of all N servers; see `dpcrowd.schemes.messages`."""

    @abstractmethod
    def fuse(self, state: Any, plan: Plan, reading: Reading, messages: Any, hearing: Hearing) -> None:
        """Update the state with the messages that each server hears."""

    @abstractmethod
    def release(self, state: Any, plan: Plan, reading: Reading) -> Release:
        """Return what this slot publishes."""

    def message_numbers(self, regions: int, form: Form) -> int:
        """Return how many numbers of 8 bytes a message holds, for counting bytes."""
        return self.message_vectors * regions

    def value_bytes(self, regions: int, form: Form) -> int:
        """Return the bytes of the values in a message; a scheme whose values are not all of 8 bytes overrides this."""
        return 8 * self.message_numbers(regions, form)

    def data_bytes(self, setting: Setting) -> int:
        """Return the bytes of the values in a message under a setting."""
        return self.value_bytes(setting.regions, setting.form)

    def check(self, setting: Setting) -> None:
        """Refuse a guarantee of a kind that the scheme does not support."""
        if not self.kinds:
            return
        guarantee = setting.need_guarantee()
        if guarantee.kind not in self.kinds:
            accepted = "a horizon (a finite stream)" if "finite" in self.kinds else "a window (w-event privacy)"
            span = "window" if guarantee.kind == "window" else "horizon"
            raise BadInput(
                f"scheme '{self.name}' takes {accepted}; given a {span} of {counted(guarantee.length, 'slot')}."
            )


def any_region(mask: Bools) -> Bools:
    """Return which servers have any region in a mask (N, 1) or (N, d), (N,)."""
    if mask.shape[1] == 1:
        return mask[:, 0]
    return np.asarray(mask.any(axis=1))


def every_region(mask: Bools, regions: int) -> Bools:
    """Return a mask (N, 1) or (N, d) as (N, d)."""
    return mask if mask.shape[1] == regions else np.broadcast_to(mask, (len(mask), regions))


def run_slot(
    scheme: Scheme, state: Any, slot: int, shares: Floats, counts: NDArray[np.int64], noise: Noise, hearing: Hearing
) -> Release:
    """Run all five steps of one slot, for a driver that has every server in one place."""
    plan = scheme.plan(state, slot, shares)
    reading = scheme.perturb(state, plan, counts, noise)
    messages = scheme.message(state, plan, reading)
    scheme.fuse(state, plan, reading, messages, hearing)
    return scheme.release(state, plan, reading)
