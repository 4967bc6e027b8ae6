"""A trial of faults: three servers, a crowd with a daily wave, and one fault after another, for some minutes.

Servers are real processes on this machine, with TLS, exact noise and ledgers on disk, linked with each other through
relays that can be cut; slots are two seconds long. Each fault happens to a random server at a random moment. All the
time it is checked that

    no slot is drawn twice, in whichever of a server's lives;
    in every window of slots, and in every such span of real time, a server has spent no more than epsilon;
    the API of every server that should be up answers within two seconds;
    all servers are ready, linked, and release slot after slot within 30 seconds of a fault's end, and sample again
    once they have budget;
    intervals hold the truth about 95% of the time.

At the end a table is printed as Markdown, for docs/trust.md. The exit code is 1 if anything did not hold. Not part of
`make test` or `make bench`: `python benchmarks/faults.py --minutes 30 --seed 1`. Linux only. As root, every data folder
is a small file system of its own, in a name space that ends with the trial; otherwise "disk full" is left out, and the
table says so. Everything that the trial starts ends with it, even if it is killed.
"""

from __future__ import annotations

import harness  # noqa: F401  # isort: skip  # first: sets threads

import argparse
import ctypes
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from faults_kinds import FAULTS, Fault, Scene, Unexpected, small_disk
from faults_servers import Relays, Trial, make_trial_network, until
from faults_watch import Feed, Watch, double_draws, overspent, overspent_in_time

from dpcrowd.demo.crowd import SyntheticCrowd

PEOPLE, WINDOW, EPSILON, SLOT = 6_000, 10, "0.5", 2.0
RECOVERY = 30.0
STEADY = 2.0
SAMPLING = 2 * WINDOW * SLOT
QUIET = 2 * SLOT
WARM_UP = 90.0
COVERED = 0.9  # intervals are meant to hold the truth 95% of the time; estimates of neighbouring slots are alike
_NAME_SPACE = 0x20000


@dataclass
class Episode:
    """One fault that happened, from its beginning to the beginning of the next one.

    first     the first slot that it may have touched; `last` is the first one of the next fault
    recovery  seconds from its end until all was well; None: it was not
    """

    fault: Fault
    first: int
    last: int = 0
    recovery: float | None = None
    silent: int = 0
    problems: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="How long faults are begun; the last one ends.")
    parser.add_argument("--seed", type=int, default=1, help="Decides the order of faults, the servers and the moments.")
    parser.add_argument("--only", help="Faults whose title contains this text.")
    chosen = parser.parse_args()
    faults = [fault for fault in FAULTS if not chosen.only or chosen.only in fault.title]
    if not faults:
        parser.error(f"no fault has '{chosen.only}' in its title; there are: {', '.join(f.title for f in FAULTS)}.")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with ExitStack() as opened:
        folder = Path(opened.enter_context(temporary()))
        crowd = SyntheticCrowd(PEOPLE, np.random.default_rng(chosen.seed), np.random.default_rng(chosen.seed + 1))
        trial = make_trial_network(
            folder,
            regions=crowd.regions,
            people=PEOPLE,
            process_var=crowd.model.process_var,
            window=WINDOW,
            epsilon=EPSILON,
            seconds=SLOT,
        )
        disks = own_name_space() and all(small_disk(server.data) for server in trial.servers)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        opened.callback(trial.stop)
        inside = [server.transport for server in trial.servers]
        relays = opened.enter_context(Relays(list(zip(trial.outside, inside, strict=True))))
        for server in trial.servers:
            server.start()
        feed = opened.enter_context(Feed(trial, crowd, chosen.seed))
        watch = opened.enter_context(Watch(trial))
        if until(lambda: all_well(trial), WARM_UP) is None:
            sys.exit(f"the network did not come up: {[server.last_words() for server in trial.servers]}")
        calm = trial.slot()
        time.sleep((WINDOW + 1) * SLOT)
        scene = Scene(trial, relays, watch, random.Random(chosen.seed), disks)
        episodes = happen(scene, faults, chosen.minutes)
        held = report(scene, feed, episodes, chosen, range(calm, calm + WINDOW))
    sys.exit(0 if held else 1)


# ------------------------------------------------------------------------------------------------------- the course


def happen(scene: Scene, faults: list[Fault], minutes: float) -> list[Episode]:
    """One fault after another, each kind once per round, in another order each time."""
    end = time.monotonic() + 60 * minutes
    episodes: list[Episode] = []
    usable = [fault for fault in faults if scene.disks or fault.title != "disk full"]
    while time.monotonic() < end and usable:
        for fault in scene.chance.sample(usable, len(usable)):
            if time.monotonic() >= end:
                break
            episode = one(scene, fault)
            episodes.append(episode)
            print(describe(episode), file=sys.stderr, flush=True)
            if not all_well(scene.trial):
                mended = mend(scene.trial)
                episode.last = scene.trial.slot() - 1
                if not mended:
                    episode.problems.append("the network did not come back even after servers were started again")
                    return episodes
    return episodes


def one(scene: Scene, fault: Fault) -> Episode:
    """A fault, the recovery from it, and a quiet while."""
    # The slot before the open one may be in its grace, or in exchange: it is part of the fault.
    episode, silent = Episode(fault, scene.trial.slot() - 1), len(scene.watch.silent)
    try:
        fault.work(scene)
    except (Unexpected, RuntimeError, OSError, subprocess.SubprocessError) as error:
        episode.problems.append(f"{error}")
    episode.recovery = recovery(scene.trial)
    if episode.recovery is None:
        episode.problems.append(f"not recovered within {RECOVERY:g} s")
    elif until(lambda: all_sample(scene), SAMPLING) is None:
        episode.problems.append(f"not all servers sample again within {SAMPLING:g} s of the recovery")
    time.sleep(QUIET)
    episode.last, episode.silent = scene.trial.slot() - 1, len(scene.watch.silent) - silent
    if episode.silent:
        episode.problems.append(f"requests to servers that should be up were not answered: {episode.silent}")
    return episode


def all_well(trial: Trial) -> bool:
    return all(server.well() for server in trial.servers)


def recovery(trial: Trial) -> float | None:
    """Seconds until all was well, and stayed so: a server that stood still notices only after a moment."""
    began = time.monotonic()
    since: float | None = None
    while time.monotonic() - began < RECOVERY + STEADY:
        if not all_well(trial):
            since = None
        elif since is None:
            since = time.monotonic()
        if since is not None and time.monotonic() - since >= STEADY:
            return since - began
        time.sleep(0.1)
    return None


def all_sample(scene: Scene) -> bool:
    """Whether each server has sampled one of the last slots: a loss that was confirmed costs a window's budget."""
    last = scene.trial.slot() - 2
    return len({draw.server for draw in scene.watch.all_draws() if draw.slot >= last}) == len(scene.trial.servers)


def mend(trial: Trial) -> bool:
    """As an operator would: start anew whatever is not well."""
    for server in trial.servers:
        if not server.well():
            server.kill()
            try:
                server.start()
            except RuntimeError:
                return False
    return until(lambda: all_well(trial), WARM_UP) is not None


# ------------------------------------------------------------------------------------------------------- the report


def report(scene: Scene, feed: Feed, episodes: list[Episode], chosen: argparse.Namespace, calm: range) -> bool:
    """Print the table; whether everything held. `calm` are slots before the first fault."""
    for server in scene.trial.servers:
        scene.watch.collect(server)
    watch, draws = scene.watch, scene.watch.all_draws()
    nano = scene.trial.network.guarantee().total
    twice, over = double_draws(draws), overspent(draws, nano, WINDOW)
    in_time = overspent_in_time(draws, nano, (WINDOW - 2) * SLOT)
    hits, estimates = watch.covered(feed.truth, feed.regions)
    print(f"\n`benchmarks/faults.py --minutes {chosen.minutes:g} --seed {chosen.seed}`\n")
    for line in table(scene, episodes):
        print(line)
    lost = len(list(watch.unsampled(calm)))
    print(
        f"\n{len(draws):,} samples of {len(scene.trial.servers)} servers. Slots drawn twice: {len(twice)}. Windows in "
        f"which more than ε was spent: {len(over)}; by real time: {len(in_time)}. Requests whether a server answers: "
        f"{watch.asked:,}, of which {len(watch.silent)} were not answered within 2 s. Intervals that hold the truth: "
        f"{hits:,} of {estimates:,} ({hits / max(estimates, 1):.1%}). Before the first fault, {lost} of "
        f"{len(calm) * len(scene.trial.servers)} samples were lost."
    )
    for episode in episodes:
        for problem in episode.problems:
            print(f"- **{episode.fault.title}**: {problem.rstrip('.')}.")
    coverage = estimates > 0 and hits / estimates >= COVERED
    return not (twice or over or in_time or watch.silent or any(one.problems for one in episodes)) and coverage


def table(scene: Scene, episodes: list[Episode]) -> Iterator[str]:
    """In Markdown, one line for each kind of fault."""
    yield "| fault | how often tried | what the servers did | lost samples | double draws | recovery | API silent |"
    yield "|---|---|---|---|---|---|---|"
    by_kind: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        by_kind[episode.fault.title].append(episode)
    twice = double_draws(scene.watch.all_draws())
    for fault in FAULTS:
        kind = by_kind[fault.title]
        if not kind:
            why = "not tried: needs root" if fault.title == "disk full" and not scene.disks else "not tried"
            yield f"| {fault.title} | {why} | | | | | |"
            continue
        lost = sum(len(list(scene.watch.unsampled(range(one.first, one.last)))) for one in kind)
        double = sum(1 for _, slot in twice for one in kind if one.first <= slot < one.last)
        times = [one.recovery for one in kind if one.recovery is not None]
        failed = len(kind) - len(times)
        recovery = f"median {statistics.median(times):.1f} s, longest {max(times):.1f} s" if times else ""
        recovery += f"{'; ' if times else ''}{failed} not within {RECOVERY:g} s" if failed else ""
        odd = sum(1 for one in kind if one.problems)
        did = fault.does if not odd else f"{fault.does} **Not so in {odd} of {len(kind)}**, see below."
        silent = sum(one.silent for one in kind)
        yield f"| {fault.title} | {len(kind)} | {did} | {lost} | {double} | {recovery} | {silent} |"


def describe(episode: Episode) -> str:
    """One line while the trial runs."""
    after = "not recovered" if episode.recovery is None else f"well after {episode.recovery:.1f} s"
    problems = f"; {'; '.join(episode.problems)}" if episode.problems else ""
    return f"slot {episode.first}: {episode.fault.title}: {after}{problems}"


# ------------------------------------------------------------------------------------------------------ the machine


def own_name_space() -> bool:
    """File systems that are mounted from now on are seen by the trial and its servers alone, and end with them."""
    if os.geteuid() != 0 or ctypes.CDLL(None).unshare(_NAME_SPACE) != 0:
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False).returncode == 0


@contextmanager
def temporary() -> Iterator[str]:
    """A folder, until the trial ends; what is mounted in it goes first."""
    folder = tempfile.mkdtemp(prefix="dpcrowd-faults-")
    try:
        yield folder
    finally:
        for data in Path(folder).glob("*/data"):
            if os.path.ismount(data):
                subprocess.run(["umount", "-l", str(data)], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
