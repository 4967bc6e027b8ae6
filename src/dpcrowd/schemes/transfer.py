"""A scheme's state under another setting: what a server knows of the regions that stay survives a new list of regions.

A network's next revision may add, drop or reorder regions, and change shares, A and Q. Which axes of a state's arrays
are regions is not declared anywhere: starting the scheme with one more region shows it. Along those axes the regions
that stay keep their numbers (of a covariance, the marginal: rows and columns), and a new region has the scheme's start
values. Everything else belongs to the server and continues unchanged, its ledger above all.

Four things are not a question of axes:
- What still has the start value of the old setting (the price of a sample) gets the start value of the new one. This
  does not hold for the filter's own arrays: with a model, estimates are known before the first slot, and that they
  still are is no sign that nothing has happened.
- What a filter remembers of errors that it does not know of depends on the setting: it divides sums of groups only
  without a model, and users stay only where the turnover is below 1. A memory that the new setting has and the old one
  had not begins anew; what one that goes has added to the variance stays in it.
- The number of past releases for the grouping is one number for all regions, and a new region has none: the server
  groups again when it has released every region that many times.
- A covariance cannot express "no information" about one region alone. A new region gets a variance beyond any that it
  could have, so that it informs nobody. It is called blank, and is not released until a server has measured it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools
from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.drift import start_drift
from dpcrowd.filters.learning import beliefs_of, reset_bank
from dpcrowd.filters.mixed import start_mixed
from dpcrowd.privacy import Ledger
from dpcrowd.schemes.base import Release, Scheme, Setting
from dpcrowd.schemes.filter_state import FilterState
from dpcrowd.schemes.kept_learning import goes_on_learning, keep_beliefs
from dpcrowd.schemes.messages import InfoMessages, Messages
from dpcrowd.schemes.snapshot import Arrays, load_into, pack

__all__ = ["Run", "check_transfer", "estimates_only", "measured", "silent_on", "transfer", "without_prior"]

Places = Sequence[int | None]

_COUNT_OF_RELEASES = "state.filled"
_SLOT_OF_POSTERIOR = "state.slot"
_BANK, _PILOT = "state.bank", "state.pilot"
_FILTER = frozenset(part.name for part in fields(FilterState) if part.name not in ("setting", "ledger"))
_MEMORIES = ("staying", "divided", "drift", "mixed")
"""Fields of a `FilterState` that it has under some settings only."""
# A blank region's variance, in squares of the total crowd: far above any count, and far below what would drown the
# other regions in rounding where people move between them.
_WIDE = 1e6
_LEAST_CROWD = 1e3


@dataclass(frozen=True)
class Run:
    """A scheme under a setting; its servers spend from ledgers of their own, unless one is given."""

    scheme: Scheme
    setting: Setting
    ledger: Ledger | None = None

    def start(self) -> Any:
        """Return the state before the first slot."""
        return self._start(self.setting)

    def _start(self, setting: Setting) -> Any:
        state = self.scheme.start(setting)
        if self.ledger is not None:
            state.ledger = self.ledger
        return state

    def arrays(self, more_regions: int = 0) -> Arrays:
        """Return the arrays of the state before the first slot, with `more_regions` additional regions."""
        setting = self.setting
        if more_regions:
            model = ProcessModel.of(1.0, np.ones(setting.regions + more_regions))
            if setting.model.course is not None:
                course = setting.model.course.with_more_regions(more_regions)
                # With what regions have in common, so that there are as many beliefs.
                known = setting.model.region_correlation, setting.model.in_common
                model = ProcessModel.around(course, 0.0, None, *known)
            setting = replace(setting, model=model)
        return pack(self._start(setting), "state")


def transfer(state: Any, blank: Bools, old: Run, new: Run, places: Places, slot: int) -> tuple[Any, Bools]:
    """Return the state with which `new` continues from a `state` of `old`, and which of its regions are blank.

    places  for each region of `new` its number in `old`; None: a new region
    slot    the last slot of the state; -1: it is the state before the first slot
    """
    check_transfer(old, new, places)
    saved, began, fresh = (_without_learning(part) for part in (pack(state, "state"), old.arrays(), new.arrays()))
    wider = new.arrays(more_regions=1)
    for part in (saved, began):  # a revision may add a model, change it or take it away
        part.pop(_SLOT_OF_POSTERIOR, None)
        if new.setting.model.course is not None:
            part[_SLOT_OF_POSTERIOR] = np.array(slot if part is saved else -1)
    begins = _fit_memories(saved, fresh)
    if saved.keys() != fresh.keys():
        raise BadInput(f"the state to take over lacks or adds {sorted(saved.keys() ^ fresh.keys())}: start anew.")
    stay = [number for number, place in enumerate(places) if place is not None]
    came = [place for place in places if place is not None]
    arrays = {}
    for name, array in saved.items():
        axes = [axis for axis, size in enumerate(fresh[name].shape) if wider[name].shape[axis] != size]
        _check_sizes(name, array, fresh[name], axes)
        of_filter = _field(name) in _FILTER
        anew = slot < 0 or _field(name) in begins if of_filter else array.tobytes() == began[name].tobytes()
        arrays[name] = fresh[name] if anew else _moved(array, fresh[name], axes, came, stay)
    if len(stay) < len(places) and _COUNT_OF_RELEASES in arrays:
        arrays[_COUNT_OF_RELEASES] = fresh[_COUNT_OF_RELEASES]
    now_blank = np.zeros(len(places), dtype=np.bool_)
    if new.setting.model.course is not None:
        _start_from_course(arrays, places, blank, new)
    elif new.setting.form == "matrix":
        now_blank = _widen(arrays, places, blank, new)
    if "drift" in begins:
        arrays |= pack(start_drift(arrays["state.posterior_var"]), "state.drift")
    if "mixed" in begins:
        arrays |= pack(start_mixed(arrays["state.posterior_var"]), "state.mixed")
    new_state = new.start()
    _learn(new_state, arrays, state, places, slot)
    load_into(new_state, arrays, "state")
    if slot >= 0:
        _keep_pilot(new_state, state, places)
    return new_state, now_blank


def _learn(state: Any, arrays: Arrays, former: Any, places: Places, slot: int) -> None:
    """Let the filters that learn, if there are any, begin with the estimates after a slot, in place.

    former  the state before, whose beliefs go on as `kept_learning` says
    """
    if state.bank is None:
        return
    if slot >= 0:
        mean, var = arrays["state.posterior"], arrays["state.posterior_var"]
        state.bank = reset_bank(mean, var, beliefs_of(state.setting.model))
        if former.bank is not None:
            where = goes_on_learning(former.setting, state.setting, places)
            keep_beliefs(state.bank, former.bank, (former.posterior, former.posterior_var), places, where)
    arrays |= pack(state.bank, _BANK)


def _keep_pilot(state: FilterState, former: FilterState, places: Places) -> None:
    """Let the pilot, if there is one, go on in the regions that it knows; elsewhere it begins with the estimates."""
    state.begin_pilot()
    if state.pilot is None or former.pilot is None:
        return
    for number, place in enumerate(places):
        if place is not None and np.isfinite(former.pilot.posterior_var[0, place]):
            state.pilot.posterior[:, number] = former.pilot.posterior[:, place]
            state.pilot.posterior_var[:, number] = former.pilot.posterior_var[:, place]


def _field(name: str) -> str:
    """Return the field of the state that an array belongs to."""
    return name.split(".")[1]


def _fit_memories(saved: Arrays, fresh: Arrays) -> set[str]:
    """Let the saved arrays have the memories of the new setting, in place; return those that begin anew."""
    had, has = ({_field(name) for name in part if _field(name) in _MEMORIES} for part in (saved, fresh))
    for name in [name for name in saved if _field(name) in had - has]:
        extra = None
        if name == "state.staying.extra":
            extra = saved[name]
        if name == "state.divided.deviation":
            extra = np.square(saved[name])
        if extra is not None:
            for variance in ("state.posterior_var", "state.mixed.shared", "state.mixed.var", "state.drift.last_var"):
                if variance in saved:
                    saved[variance] = saved[variance] + extra
        del saved[name]
    saved |= {name: array for name, array in fresh.items() if _field(name) in has - had}
    return has - had


def _without_learning(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith((f"{_BANK}.", f"{_PILOT}."))}


def estimates_only(state: Any, fresh: Any) -> Any:
    """Copy the estimates of `state`, but not its account and sampling, into a fresh state, and return that."""
    for name in (part.name for part in fields(FilterState) if part.name not in ("setting", "ledger")):
        setattr(fresh, name, getattr(state, name))
    return fresh


def _moved(old: NDArray[Any], fresh: NDArray[Any], axes: list[int], came: list[int], stay: list[int]) -> NDArray[Any]:
    """Return a fresh array with the old numbers of the regions that stay."""
    moved = fresh.copy()
    every = [range(size) for size in fresh.shape]
    here = np.ix_(*(stay if axis in axes else along for axis, along in enumerate(every)))
    there = np.ix_(*(came if axis in axes else along for axis, along in enumerate(every)))
    moved[here] = old[there]
    return moved


def _start_from_course(arrays: Arrays, places: Places, blank: Bools, new: Run) -> None:
    """Let regions of which nothing is known start with what the expected course says of the state's slot, in place."""
    unknown = np.array([place is None or bool(blank[place]) for place in places])
    mean, var = new.setting.model.start(int(arrays[_SLOT_OF_POSTERIOR]))
    posterior, posterior_var = arrays["state.posterior"].copy(), arrays["state.posterior_var"].copy()
    if new.setting.form == "matrix":
        unknown |= ~arrays["state.known"].all()
        posterior_var[:, unknown, :], posterior_var[:, :, unknown] = 0.0, 0.0
        posterior_var[:, unknown, unknown] = var[unknown]
    else:
        unknown |= ~np.isfinite(posterior_var).all(axis=0)
        posterior_var[:, unknown] = var[unknown]
    posterior[:, unknown] = mean[unknown]
    arrays["state.posterior"], arrays["state.posterior_var"] = posterior, posterior_var
    arrays["state.known"] = np.ones_like(arrays["state.known"])


def _widen(arrays: Arrays, places: Places, blank: Bools, new: Run) -> Bools:
    """Give new regions of a known covariance their variance, in place; return which regions are blank now."""
    none = np.array([place is None for place in places])
    now_blank = np.array([place is None or bool(blank[place]) for place in places])
    if not arrays["state.known"].all():
        return np.zeros_like(none)  # nothing is known of any region: a placeholder says no more of the new ones
    cov, crowd = arrays["state.posterior_var"].copy(), np.abs(arrays["state.posterior"][0, ~now_blank]).sum()
    known_var, changes = np.diagonal(cov[0])[~now_blank], new.setting.model.noise_var
    sizes = np.concatenate([[_LEAST_CROWD**2, crowd * crowd], known_var, changes])
    cov[0, none, none] = _WIDE * sizes.max()
    arrays["state.posterior_var"] = cov
    return now_blank


def measured(messages: Messages) -> Bools:
    """Return which regions the messages, in the matrix form, contain measurements of."""
    assert isinstance(messages, InfoMessages)
    return np.asarray(np.einsum("mkk->mk", messages.info_mat).any(axis=0))


def silent_on(release: Release, blank: Bools) -> Release:
    """Return the release without its values of blank regions."""
    estimate, variance = np.where(blank, np.nan, release.estimate), np.where(blank, np.inf, release.variance)
    return replace(release, estimate=estimate, variance=variance)


def without_prior(message: Messages) -> Messages:
    """Return the message with a prior that takes no part in the consensus, because one of its regions is blank."""
    assert isinstance(message, InfoMessages)
    return replace(message, prior_known=np.zeros_like(message.prior_known))


def check_transfer(old: Run, new: Run, places: Places) -> None:
    """Refuse a state that cannot go on under the new setting."""
    _check_runs(old, new)
    _check_places(places, old.setting.regions, new.setting.regions)


def _check_runs(old: Run, new: Run) -> None:
    if old.scheme.name != new.scheme.name:
        before, now = old.scheme.name, new.scheme.name
        raise BadInput(f"the state to take over is of scheme '{before}'; this server runs '{now}': start anew.")
    if not new.scheme.live:
        raise BadInput(f"scheme '{new.scheme.name}' cannot go on under another setting; only live schemes can.")
    for name in ("guarantee", "form", "accounting"):
        before, now = getattr(old.setting, name), getattr(new.setting, name)
        if before != now:
            raise BadInput(f"the state to take over has {name} {before}; this server has {now}: start anew.")


def _check_places(places: Places, old: int, new: int) -> None:
    if len(places) != new:
        raise BadInput(f"one place per region is needed, {new} in all; given {len(places)}.")
    came = [place for place in places if place is not None]
    for place in came:
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or not 0 <= place < old:
            raise BadInput(f"a region's place before is a whole number from 0 to {old - 1}, or None; given {place!r}.")
    if len(set(came)) < len(came):
        raise BadInput(f"two regions cannot come from one place; given {came}.")


def _check_sizes(name: str, old: NDArray[Any], fresh: NDArray[Any], axes: list[int]) -> None:
    """Refuse arrays of which more than the number of regions has changed."""
    alike = old.ndim == fresh.ndim and old.dtype == fresh.dtype
    if not alike or any(old.shape[axis] != size for axis, size in enumerate(fresh.shape) if axis not in axes):
        raise BadInput(
            f"'{name}' of the state to take over is {old.dtype}{old.shape}; this server needs {fresh.dtype}"
            f"{fresh.shape}, and only the number of regions may differ: keep the tuning, or start anew."
        )
