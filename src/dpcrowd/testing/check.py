"""`check_scheme`: one scheme under every setting that it accepts, against every check."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.arrays import Ints
from dpcrowd.errors import BadInput
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.plugins import make_scheme
from dpcrowd.privacy import Accounting, Guarantee, Users
from dpcrowd.schemes.base import Form, Scheme, Setting
from dpcrowd.schemes.registry import staggered_interval
from dpcrowd.schemes.relay import Relay
from dpcrowd.testing import contract, distinguish, privacy
from dpcrowd.testing.trial import ContractBroken, Trial
from dpcrowd.testing.world import SAMPLES, SERVERS, SLOTS, TUNING, WINDOW, make_world

__all__ = ["Failure", "Report", "check_scheme", "examine_scheme"]


@dataclass(frozen=True)
class Failure:
    """A check that a scheme does not pass, the setting in which that showed, and why."""

    check: str
    setting: str
    reason: str

    def __str__(self) -> str:
        return f"{self.check} ({self.setting}): {self.reason}"


@dataclass(frozen=True)
class Report:
    """The results of the checks.

    settings  the settings under which the scheme was checked
    refused   the settings that it refuses with `BadInput`, and its reason
    passed    names of the checks that it passed in all of them
    failures  the first failure of each other check
    skipped   checks that the caller left out
    """

    scheme: str
    settings: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every check was run, and passed."""
        return not self.failures and not self.skipped

    def __str__(self) -> str:
        lines = [f"scheme '{self.scheme}' under {len(self.settings)} settings:"]
        lines += [f"  passed  {name}" for name in self.passed]
        lines += [f"  skipped {name}" for name in self.skipped]
        by_reason: dict[tuple[str, str], list[str]] = {}
        for failure in self.failures:  # a scheme that crashes fails every check for the same reason
            by_reason.setdefault((failure.setting, failure.reason), []).append(failure.check)
        lines += [f"  FAILED  {', '.join(names)} ({setting}): {why}" for (setting, why), names in by_reason.items()]
        return "\n".join(lines)


def check_scheme(scheme: Scheme | type[Scheme] | str, *, skip: Collection[str] = ()) -> Report:
    """Check that a scheme keeps its contract and its promise; if not, raise `ContractBroken` with all failures.

    scheme  an instance, a class that needs no arguments, a name, or `package:Class`
    skip    names of checks to leave out, for a scheme whose privacy has another proof than the one that is checked

    It takes a second or two and is meant for the tests of whoever writes a scheme:

    >>> from dpcrowd import Uniform
    >>> check_scheme(Uniform()).ok
    True

    What the checks show, for the worlds, streams and noise that they try (all seeded, so a failure repeats):

    - shapes, values, determinism, batches, inputs, dropped counts: the scheme fits the simulator.
    - noise, saved state: plans, messages, releases and saved states depend on raw counts through the noise only.
    - paid first, charges, fresh draws, ledger, budget, unpaid counts, empty account: every read of counts is charged
      to the ledger before it happens and in full, the ledger is obeyed, and nobody pays more than was promised, also
      one who moves between regions (sound accounting) or servers (roaming users).
    - composition: for several pairs of streams that differ in one user, the privacy loss of all reads together is at
      most ε. This is exact for the outputs that were tried.
    - distinguishability: thousands of servers with and without a user cannot be told apart by more than was charged.
    - refusals: a guarantee of a kind that the scheme does not support is refused.

    What they cannot show: that the promise holds. A few streams of 28 slots are not all streams: a scheme that
    misbehaves in slot 1000, for counts above a million, or when it notices that it is being checked passes.
    `composition` adds up reads of discrete Laplace noise, so a scheme whose proof is another one (the sparse vector
    technique, for example) may fail it although it is private. Noise that is drawn elsewhere than from the `Noise` that
    is passed in counts as none. Nothing is said about side channels such as time, memory or logs, nor about accuracy.
    A scheme that passes has not been refuted; the proof remains its author's.
    """
    report = examine_scheme(scheme, skip=skip)
    if report.failures:
        raise ContractBroken(str(report))
    return report


def examine_scheme(scheme: Scheme | type[Scheme] | str, *, skip: Collection[str] = ()) -> Report:
    """Run all checks of `check_scheme` and return a report, without raising anything."""
    if isinstance(scheme, str):
        scheme = make_scheme(scheme)
    elif isinstance(scheme, type):
        scheme = scheme()
    checks = _checks(scheme)
    failures: dict[str, Failure] = {}
    tried, refused = [], {}
    for trial in _trials(scheme):
        try:
            scheme.start(trial.setting)
        except BadInput as error:
            refused[trial.name] = str(error)
            continue
        except Exception as error:
            failures.setdefault("start", _failure("start", trial, error))
            continue
        tried.append(trial.name)
        for name, check in checks.items():
            if name in skip or name in failures:
                continue
            try:
                check(trial)
            except Exception as error:
                failures[name] = _failure(name, trial, error)
    if not tried and "start" not in failures:
        failures["start"] = Failure("start", "all settings", f"it refuses every setting: {refused}")
    return Report(
        scheme.name,
        tuple(tried),
        refused,
        tuple(name for name in checks if name not in failures and name not in skip),
        tuple(failures.values()),
        tuple(name for name in checks if name in skip),
    )


def _failure(check: str, trial: Trial, error: Exception) -> Failure:
    """Return what a check has found; for a crash also where, since that is what its author needs."""
    if isinstance(error, ContractBroken):
        return Failure(check, trial.name, str(error))
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return Failure(check, trial.name, f"{type(error).__name__}: {error}{place}")


def _checks(scheme: Scheme) -> dict[str, Callable[[Trial], None]]:
    checks: dict[str, Callable[[Trial], None]] = dict(contract.CHECKS)
    if scheme.kinds:
        checks |= privacy.CHECKS
        checks |= {"distinguishability": _check_distinguishability, "refusals": _check_refusals}
    return checks


def _check_distinguishability(trial: Trial) -> None:
    """See `dpcrowd.testing.distinguish`; one region and pinned users are enough to examine the noise."""
    guarantee = trial.setting.need_guarantee()
    if trial.world.regions > 1 or guarantee.users == "roaming":
        return
    servers = distinguish.SERVERS
    phases = None if trial.setting.phases is None else np.resize(trial.setting.phases, servers)
    alone = replace(trial.setting, servers=servers, runs=servers, phases=phases)
    distinguish.check_distinguishability(trial.scheme, alone)


def _check_refusals(trial: Trial) -> None:
    """Check that a guarantee that the scheme does not support, or none, is refused with `BadInput`."""
    kinds: dict[str, Guarantee | None] = {
        "finite": Guarantee.finite(40, 1.0),
        "window": Guarantee.window(WINDOW, 1.0),
        "none": None,
    }
    for kind, guarantee in kinds.items():
        if kind in trial.scheme.kinds:
            continue
        try:
            trial.scheme.start(replace(trial.setting, guarantee=guarantee))
        except BadInput:
            continue
        raise ContractBroken(
            f"it starts with {'no guarantee' if guarantee is None else f'a guarantee of kind {kind!r}'}, which it does "
            "not declare in kinds: call self.check(setting) in start()"
        )


def _trials(scheme: Scheme) -> Iterator[Trial]:
    """Yield every setting to try, with one region and with several: each shows what the other hides."""
    for kind in sorted(scheme.kinds) or [""]:
        every: tuple[Users, ...] = ("pinned", "roaming") if kind else ("pinned",)
        for users in every:
            yield _trial(scheme, kind, 1, users)
            yield _trial(scheme, kind, 4, users)
            if kind:
                yield _trial(scheme, kind, 4, users, accounting="per-region")
        yield _trial(scheme, kind, 4, form="matrix")
        if kind:
            yield _trial(scheme, kind, 4, per_slot=2)


def _trial(
    scheme: Scheme,
    kind: str,
    regions: int,
    users: Users = "pinned",
    *,
    accounting: Accounting = "sound",
    form: Form = "diagonal",
    per_slot: int = 1,
) -> Trial:
    more: dict[str, Any] = {"users": users, "regions_per_slot": per_slot, "servers_per_slot": per_slot}
    more["correlation"] = 1.0 if per_slot == 1 else 1.5
    guarantee = None
    if kind == "window":
        guarantee = Guarantee.window(WINDOW, 3.0, **more)
    elif kind == "finite":
        guarantee = Guarantee.finite(SLOTS - 4, 12.0, **more)
    model = ProcessModel.of(1.0, np.linspace(200.0, 20.0, regions))
    if scheme.needs_model:
        levels, variances = np.linspace(400.0, 8.0, regions)[None], np.linspace(200.0, 20.0, regions)[None]
        model = ProcessModel.around(Course(levels, variances), 0.5)
    setting = Setting(
        SERVERS,
        model,
        guarantee,
        TUNING,
        accounting=accounting,
        form=form,
        phases=_phases(scheme, guarantee),
        samples=SAMPLES,
    )
    words = [kind or "no privacy", f"{users} users", f"{regions} region{'s' if regions > 1 else ''}"]
    words += [word for word in (accounting, form) if word not in ("sound", "diagonal")]
    words += [f"{per_slot} regions and servers per slot"] if per_slot > 1 else []
    return Trial(", ".join(words), scheme, setting, make_world(regions=regions))


def _phases(scheme: Scheme, guarantee: Guarantee | None) -> Ints | None:
    """Return the public phases of a scheme that samples staggered, spread evenly over the servers."""
    if isinstance(scheme, Relay) and guarantee is not None and guarantee.users == "pinned":
        return np.arange(SERVERS) * guarantee.length // SERVERS
    interval = staggered_interval(scheme)
    return None if interval is None else np.arange(SERVERS) % interval
