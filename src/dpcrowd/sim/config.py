"""Everything that defines a simulation, checked once, in one frozen object that is sent to the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpcrowd.arrays import Shares
from dpcrowd.errors import BadInput, check_switches, counted, unknown_name, whole_number
from dpcrowd.filters import Observation, ProcessModel, check_gain
from dpcrowd.models.model import Model
from dpcrowd.privacy import Accounting, Guarantee, Users
from dpcrowd.schemes.base import Form, Scheme
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.fitted import overlap
from dpcrowd.sim.topology import NetworkSpec

if TYPE_CHECKING:
    from dpcrowd.sim.data import DataSet

__all__ = ["DEFAULT_WINDOW", "OBSERVED_AS_PEOPLE", "Entrant", "SimulationConfig", "guarantee_for"]

DEFAULT_WINDOW = 100
OBSERVED_AS_PEOPLE = (
    "each server counts a binomial part of the people, as live servers do; this default is new in version 0.2, and "
    "observation=paper gives the one before."
)
"""A note of data that are observed like that by default."""
MOST_RUNS = 1_000_000


@dataclass(frozen=True, eq=False)
class Entrant:
    """One scheme of a comparison: a label, the scheme, and the guarantee that it runs under.

    samples        per window or horizon, where the scheme leaves that open (`dpcrowd.sim.planning`)
    reach_planned  whether the reach of relay was chosen there, too
    hops_assumed   whether the hops per slot of relay are the default of the simulator, since nobody gave a number
    model, tuning  its own parameters, from a file that was tuned for this scheme; None: those of the simulation
    """

    label: str
    scheme: Scheme
    guarantee: Guarantee | None
    samples: int | None = None
    reach_planned: bool = False
    hops_assumed: bool = False
    model: ProcessModel | None = None
    tuning: Tuning | None = None


@dataclass(frozen=True, eq=False)
class SimulationConfig:
    """A simulation of several schemes on the same runs.

    burn_in   the first slot that counts in the metrics
    fitted    the fitted model whose expectations the filters know; None: they start from nothing
    learn     whether the filters learn from releases how well their model fits
    learning_chosen  whether a user has said so; with a model, filters learn by default
    turnover  the part of the pinned users who are replaced per slot; 1: everybody chooses a server anew in every slot
    composition  how much the shares of a partition differ by region; None: not at all
    share_width  typical relative error of public shares; above 0, relay learns them; 0: it takes them as they are
    meetings     whether relay's schedules let servers meet in turn, so that shares can be compared
    """

    data: DataSet
    entrants: tuple[Entrant, ...]
    network: NetworkSpec
    runs: int
    seed: int
    shares: str | Shares
    observation: Observation
    users: Users
    accounting: Accounting
    form: Form
    beta: float | None
    burn_in: int
    tuning: Tuning
    keep_estimates: bool = False
    smoothed: bool = False
    fitted: Model | None = None
    learn: bool = False
    turnover: float = 1.0
    composition: float | None = None
    nonnegative: bool = False
    median: bool = False
    learning_chosen: bool = False
    share_width: float = 0.0
    meetings: bool = False

    def __post_init__(self) -> None:
        check_switches(keep_estimates=self.keep_estimates, smoothed=self.smoothed, nonnegative=self.nonnegative)
        check_switches(median=self.median, learn=self.learn)
        whole_number("runs", self.runs, 1, MOST_RUNS)
        whole_number("seed", self.seed, 0)
        has = f", since '{self.data.name}' has {counted(self.data.slots, 'slot')}"
        whole_number("burn-in", self.burn_in, 0, self.data.slots - 1, has)
        if not self.entrants:
            raise BadInput("no scheme was given; give at least one.")
        labels = [entrant.label for entrant in self.entrants]
        for label in labels:
            if labels.count(label) > 1:
                raise BadInput(
                    f"scheme '{label}' is given twice: name each scheme once. "
                    "In Python a dict gives the same scheme several labels."
                )
        for entrant in self.entrants:
            if entrant.scheme.needs_model and self.fitted is None:
                raise BadInput(
                    f"scheme '{entrant.scheme.name}' needs a process model; fit one on public counts or your own "
                    "releases with 'dpcrowd fit', and give it with --model FILE (in Python: model=...)."
                )
        if self.beta is not None:
            check_gain(self.beta, 0)  # the bound depends on the links, which `Networks` draws
        if self.smoothed and not any(entrant.scheme.reach == "relay" for entrant in self.entrants):
            raise BadInput(
                f"a smoothed history needs a scheme that keeps records, such as relay; given: {', '.join(labels)}."
            )

    @property
    def servers(self) -> int:
        return self.network.servers

    @property
    def has_consensus(self) -> bool:
        """Whether a scheme may have a consensus step: one whose servers hear their neighbours' estimates."""
        return any(entrant.scheme.reach == "one-hop" for entrant in self.entrants)

    @property
    def model(self) -> ProcessModel:
        return self.data.model

    def model_of(self, entrant: Entrant) -> ProcessModel:
        """Return A and Q that the filters of a scheme are given; a fitted model is for all of them."""
        return self.model if entrant.model is None or self.fitted is not None else entrant.model

    def tuning_of(self, entrant: Entrant) -> Tuning:
        """Return the parameters of a scheme."""
        return self.tuning if entrant.tuning is None else entrant.tuning

    def learn_of(self, entrant: Entrant) -> bool:
        """Return whether the filters of a scheme learn.

        Without a model, and if nobody has asked for it, relay does, whose filter is exact, if it guesses its Q. Filters
        with a consensus, or of which an average is taken, would each learn what is best for itself, and not for what
        comes of it.
        """
        if not self.learn or self.learning_chosen or self.fitted is not None:
            return self.learn
        return entrant.model is None and entrant.scheme.reach == "relay"

    @property
    def growth(self) -> float:
        """Largest growth of all schemes' models, which bounds the consensus step."""
        return max(self.model_of(entrant).growth for entrant in self.entrants)

    @property
    def in_sample(self) -> int | None:
        """How many of the scored slots the fitted model was fitted on; None without a model, or if nobody can know."""
        return None if self.fitted is None else overlap(self.fitted, self.data, self.burn_in)


def guarantee_for(
    scheme: Scheme,
    *,
    epsilon: float,
    window: int | None,
    horizon: int | None,
    slots: int,
    users: Users,
    servers_per_slot: int = 1,
    regions_per_slot: int = 1,
    correlation: float = 1.0,
    beside: Sequence[frozenset[str]] = (),
) -> Guarantee | None:
    """Return the guarantee of one scheme: the one asked for, if the scheme supports it, or the default.

    A scheme that supports both kinds follows those `beside` it: a window if all others that support one kind only
    take a window, else a horizon.
    """
    if users not in ("pinned", "roaming"):
        raise unknown_name("kind of users", users, ("pinned", "roaming"))
    if window is not None and horizon is not None:
        raise BadInput("give a window or a horizon, not both.")
    more: dict[str, Any] = {
        "users": users,
        "servers_per_slot": servers_per_slot,
        "regions_per_slot": regions_per_slot,
        "correlation": correlation,
    }
    if window is not None:
        guarantee = Guarantee.window(window, epsilon, **more)
    elif horizon is not None or ("finite" in scheme.kinds and not (len(scheme.kinds) > 1 and _all_windows(beside))):
        guarantee = Guarantee.finite(slots if horizon is None else horizon, epsilon, **more)
    else:  # also where nothing is promised: what is asked for has to make sense
        guarantee = Guarantee.window(DEFAULT_WINDOW, epsilon, **more)
    if not scheme.kinds:
        return None
    if guarantee.kind not in scheme.kinds:
        accepted, offered = ("horizon", "window") if guarantee.kind == "window" else ("window", "horizon")
        raise BadInput(
            f"scheme '{scheme.name}' takes a {accepted}, not a {offered}; leave --{offered} out or take another scheme."
        )
    if guarantee.kind == "window" and guarantee.length > slots:
        raise BadInput(
            f"the data have {counted(slots, 'slot')}, fewer than the {'default ' if window is None else ''}window of "
            f"{guarantee.length} of scheme '{scheme.name}'; give a window of at most {slots}."
        )
    return guarantee


def _all_windows(kinds: Sequence[frozenset[str]]) -> bool:
    """Whether the schemes that take one kind of guarantee only all take a window."""
    choosy = [kind for kind in kinds if len(kind) == 1]
    return bool(choosy) and all("window" in kind for kind in choosy)
