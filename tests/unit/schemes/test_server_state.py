"""Saving and restoring one server: exact, complete, without raw counts, and never for another scheme."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.pegasus import PeGaSus
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.tuning import Tuning
from schemes_support import COUNTS, TUNING, bits, lone_server, make_setting, watched_noise


class LoudNoise:
    """Noise that is never 0, so that a noisy value is never the count itself."""

    private = False

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        return np.where(where, counts + 1000.0, 0.0)


def test_a_restored_server_never_draws_again() -> None:
    """The noisy values of an open slot are paid for; a second draw would reveal more than was paid."""
    watched = watched_noise()
    server = lone_server(noise=watched)
    first = server.observe(0, COUNTS)
    saved, drawn = server.save(), len(watched.reads)
    restored = lone_server(noise=watched)
    restored.restore(saved)
    again = restored.pending_message()
    assert first is not None
    assert again is not None
    assert bits(first.arrays()["info_vec"]) == bits(again.arrays()["info_vec"])
    release = restored.hear()
    assert len(watched.reads) == drawn
    assert release.epsilon > 0
    with pytest.raises(BadInput, match="slot 0 was given after slot 0"):
        restored.observe(0, COUNTS)
    assert restored.save() != saved


def test_restored_ledgers_remember() -> None:
    """A restart that refilled the budget would break the promise at every crash."""
    server = lone_server("sample")
    server.observe(0, COUNTS)
    server.hear()
    restored = lone_server("sample")
    restored.restore(server.save())
    ledger = restored._state.ledger
    assert ledger.remaining(1).tolist() == [[0]]
    assert ledger.remaining(8).tolist() == [[3 * 10**9]]


@pytest.mark.parametrize("saver", ["bd", "uniform", "dsample", "dpcrowd-w", "rescuedp"])
def test_the_state_of_another_scheme_is_refused(saver: str) -> None:
    """BD's numbers mean something else to BA, even where all shapes agree; a refusal leaves the server as it was."""
    other = lone_server(saver)
    other.observe(4, COUNTS)
    for name in ("ba", "sample", "uniform", "dpcrowd-plus"):
        if name == saver:
            continue
        server = lone_server(name)
        with pytest.raises(BadInput, match=f"the saved state is of scheme '{saver}'; this server runs '{name}'"):
            server.restore(other.save())
        assert server.slot == -1
        server.observe(0, COUNTS)


@pytest.mark.parametrize(
    "other",
    [
        {"regions": 2},
        {"window": 9},
        {"tuning": Tuning(history=5)},
        {"tuning": replace(TUNING, tau1=31.0)},
        {"share": 0.6},
        {"number": 1},
    ],
    ids=["regions", "window", "history", "threshold", "share", "number"],
)
def test_the_state_of_another_configuration_is_refused(other: dict[str, Any]) -> None:
    """Arrays of another shape would broadcast, or fail many slots later; another share would skew every release."""
    with pytest.raises(BadInput, match=r"the saved state .* is of another server or setting"):
        lone_server().restore(lone_server(**other).save())


@pytest.mark.parametrize("saved", [b"", b"\x80", b"nonsense", b"\x81\xa4slot\xc0", bytes(100)])
def test_what_is_no_state_is_refused(saved: bytes) -> None:
    """A damaged file is a message to the operator, never a traceback."""
    with pytest.raises(BadInput, match="saved"):
        lone_server().restore(saved)


@pytest.mark.parametrize("end", [10, 200, 500, -1])
def test_a_state_that_was_cut_off_is_refused(end: int) -> None:
    """A disk that filled up leaves half a file."""
    saved = lone_server().save()
    with pytest.raises(BadInput, match="not a saved server state"):
        lone_server().restore(saved[:end])


@pytest.mark.parametrize(
    "scheme",
    [PeGaSus(), make_scheme("dpegasus"), Flooding(PeGaSus()), make_scheme("non-private")],
    ids=["pegasus", "dpegasus", "flooding", "non-private"],
)
def test_raw_counts_are_never_stored(scheme: Any) -> None:
    """PeGaSus keeps raw counts of its open group, NonPrivate those it sends: saving would write them to a disk."""
    server = Server(
        scheme,
        make_setting(1, 3, Guarantee.window(8, 3.0)),
        watched_noise(),
        number=0,
        share=0.5,
        allow_simulated_noise=True,
    )
    server.observe(0, COUNTS)
    server.hear()
    with pytest.raises(BadInput, match="keeps raw counts between slots: its state must not be stored"):
        server.save()


def test_a_saved_open_slot_holds_no_raw_count() -> None:
    """What is stored beyond the slot is noised and paid: the counts themselves must not be in it."""
    counts = [123_456_789_012_345, 234_567_890_123_456, 345_678_901_234_567]
    for name in ("dpcrowd-plus", "bd", "uniform", "dsample", "rescuedp"):
        server = lone_server(name, noise=LoudNoise())
        server.observe(0, counts)
        saved = server.save()
        for count in counts:
            assert np.int64(count).tobytes() not in saved
            assert np.float64(count).tobytes() not in saved
