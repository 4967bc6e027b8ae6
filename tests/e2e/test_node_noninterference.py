"""Two networks of real processes, the same but for one user: everything that holds no noisy value is the same.

Over real processes noise cannot be agreed beforehand, so estimates are not compared; in the property test of the same
name they are. Sampling is fixed here: an adaptive scheme samples by its own noisy releases, which differ. Not compared
either are the digest of the configuration (each network has keys and ports of its own) and times to a fraction of a
second.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from node_support_trial import Trial, trial_of, until

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(os.name != "posix", reason="signals and sockets of POSIX"),
]

SLOT = 3.0
"""Seconds; slots open at whole multiples of them in UTC."""
ATTEMPTS = 5
NAME = "server-1"
X = {"user": "x", "region": "north"}
ANN, EVE = {"user": "ann", "region": "north"}, {"user": "eve", "region": "south"}
OTHERS: tuple[tuple[str, Any, bool], ...] = (
    ("/v1/checkins", [ANN, EVE], True),
    ("/v1/checkins", [{"user": "eve", "region": "atlantis"}], True),
    ("/v1/checkins", [{**EVE, "time": "2020-01-01T00:00:00Z"}], True),
    ("/v1/checkins", [{**EVE, "time": "2100-01-01T00:00:00Z"}], True),
    ("/v1/checkins", [{"user": "eve"}], True),
    ("/v1/checkins", {"user": "eve"}, True),
    ("/v1/checkins", [EVE], False),
    ("/v1/counts", {"slot": 1, "counts": {"north": 3}}, True),
    ("/v1/checkins", [], True),
)
"""Of other clients: (path, body, whether the token is right); good ones, and one of each kind of error."""


@dataclass
class World:
    """A network of one server, and what was seen of it.

    answers   to other clients
    state     what readers and monitors see
    restart   which slots were sampled around an abrupt end: the one in which it was, and the two after it
    left      files and their sizes, after the last stop
    """

    trial: Trial
    answers: list[tuple[int, str]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    restart: list[bool] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)

    def tell(self, path: str, content: Any, *, known: bool = True) -> tuple[int, str]:
        token = self.trial.tokens[NAME]["checkin"] if known else "a token of nobody at all"
        answer = self.trial.ask(NAME, path, json.dumps(content).encode(), token=token)
        return answer.status, re.sub(r'"seconds_left":[\d.]+', '"seconds_left":0', answer.text)

    def look(self) -> None:
        network, rows = (self.trial.ask(NAME, path).json for path in ("/v1/network", "/v1/estimates"))
        self.state = {
            path: self.trial.ask(NAME, path).text for path in ("/readyz", "/healthz", "/v1/budget", "/metrics")
        }
        # Two processes with keys of their own: when they began, what they are called by, until when they are trusted.
        self.state["/metrics"] = [
            line
            for line in self.state["/metrics"].splitlines()
            if not line.startswith(("process_start_time", "dpcrowd_network_info", "dpcrowd_certificate_"))
        ]
        self.state["/v1/network"] = {key: value for key, value in network.items() if key != "digest"}
        self.state["/v1/estimates"] = [(row["slot"], row["region"], row["sampled"]) for row in rows]

    def stop(self) -> None:
        self.trial.stop()
        data = self.trial.config(NAME).data
        self.left = {str(file.relative_to(data)): file.stat().st_size for file in sorted(data.rglob("*"))}


def in_one_slot(action: Callable[[], None], undo: Callable[[], None] = lambda: None) -> int:
    """Do something that begins early in a slot; again, in a later one, if a busy machine let the slot pass meanwhile.

    Gives the time at which the slot opened. The worlds share a clock: what happens to both in one slot can be compared.
    The grace of the slot before, a fifth of a slot, is over: a node that starts in it would seal that slot, too.
    """
    for _ in range(ATTEMPTS):
        time.sleep((0.3 * SLOT - time.time()) % SLOT)
        slot = time.time() // SLOT
        action()
        if time.time() // SLOT == slot:
            return int(slot * SLOT)
        undo()
    raise AssertionError(f"in {ATTEMPTS} attempts this did not fit into a slot of {SLOT:g} s")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    """One story in two worlds at the same time, with x and without."""
    with ExitStack() as opened:
        folders = [tmp_path_factory.mktemp(name) for name in ("with-x", "without-x")]
        trials = [opened.enter_context(trial_of(folder, 1, "--slot", f"{SLOT:g}s")) for folder in folders]
        both = World(trials[0]), World(trials[1])
        with_x = both[0]

        def start() -> None:
            for world in both:
                world.trial.start()
            for world in both:
                world.trial.all_ready()

        def start_anew() -> None:
            for world in both:
                world.trial.stop()
                shutil.rmtree(world.trial.config(NAME).data)

        def x_comes_often_and_others_come() -> None:
            with_x.tell("/v1/checkins", [X] * 20_000)
            for world in both:
                world.answers = [world.tell(path, content, known=known) for path, content, known in OTHERS]

        def wait_for_release(slot: int) -> None:
            until(lambda: all(world.trial.released(NAME) >= slot for world in both), f"both have released slot {slot}")

        def look_and_end_abruptly() -> None:
            wait_for_release(with_x.trial.slot(NAME) - 1)
            for _ in range(ATTEMPTS):  # what a node does after a release takes a moment; what differs for good stays
                for world in both:
                    world.look()
                if both[0].state == both[1].state:
                    break
                time.sleep(0.05 * SLOT)
            with_x.tell("/v1/checkins", [X])
            for world in both:
                world.trial.kill()
            time.sleep(0.2 * SLOT)  # much of a slot, whoever is quick to start
            start()

        in_one_slot(start, start_anew)
        in_one_slot(x_comes_often_and_others_come)
        killed = in_one_slot(look_and_end_abruptly)
        wait_for_release(with_x.trial.slot(NAME) + 2)
        for world in both:
            world.stop()
            paid = {entry.opens_ns for entry in world.trial.ledger(NAME)}
            world.restart = [int((killed + number * SLOT) * 1e9) in paid for number in range(3)]
        yield both


def test_other_clients_get_the_same_answers(worlds: tuple[World, World]) -> None:
    """Whoever may send check-ins could find out whether x was there by sending some."""
    with_x, without = worlds
    assert with_x.answers == without.answers
    assert {status for status, _ in with_x.answers} > {202, 401}, "some are taken, and some are not"


def test_readers_and_monitors_see_the_same(worlds: tuple[World, World]) -> None:
    """Budget, metrics, readiness, refusals, and which slots were sampled are open to every reader."""
    with_x, without = worlds
    metrics = [set(world.state["/metrics"]) for world in worlds]
    assert sorted(metrics[0] ^ metrics[1]) == []
    assert with_x.state == without.state
    assert any(sampled for _, _, sampled in with_x.state["/v1/estimates"])


def test_an_abrupt_end_in_a_slot_is_followed_by_the_same_samples(worlds: tuple[World, World]) -> None:
    """In the slot of the end only x had checked in: a node that samples it for that reason tells that somebody was."""
    with_x, without = worlds
    assert with_x.restart == without.restart
    assert with_x.restart[2], "the node samples again"


def test_the_same_files_of_the_same_sizes_are_left(worlds: tuple[World, World]) -> None:
    """A file that keeps the size of its fullest slot tells for ever how many were there."""
    with_x, without = worlds
    assert with_x.left == without.left
    assert "dpcrowd.db" in with_x.left
