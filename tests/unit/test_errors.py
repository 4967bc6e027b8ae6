"""Errors that people and worker processes get."""

from __future__ import annotations

import pickle

import pytest

from dpcrowd.client.errors import NodeError
from dpcrowd.errors import BadInput, BudgetExhausted, DpcrowdError, MissingExtra, counted, plain, unknown_name
from dpcrowd.node.storage import SlotTaken, StorageError
from dpcrowd.node.transport.base import TransportFailed


@pytest.mark.parametrize(
    "error",
    [
        BadInput("servers=0; allowed: 1 or more."),
        MissingExtra("pyarrow", "parquet", "writing Parquet"),
        BudgetExhausted("slot 3 asks for too much", requested=5, remaining=2, returns_at=9),
    ],
)
def test_an_error_survives_the_way_from_a_worker_process(error: DpcrowdError) -> None:
    """joblib pickles a worker's error; without this the user would see a TypeError about arguments instead."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {key: value for key, value in vars(copy).items() if value is not None} == vars(error)


def test_an_unknown_name_gets_the_nearest_one_and_the_whole_list() -> None:
    """A person who mistypes a name should not have to look it up."""
    text = str(unknown_name("scheme", "DPcrowd-Pluss", ["fast", "dpcrowd-plus"]))
    assert "Did you mean 'dpcrowd-plus'?" in text
    assert "'DPcrowd-Pluss'" in text
    assert "fast" in text
    assert "Did you mean" not in str(unknown_name("scheme", "zzz", ["fast"]))


@pytest.mark.parametrize(
    "kind",
    [DpcrowdError, BudgetExhausted, MissingExtra, NodeError, SlotTaken, StorageError, TransportFailed],
)
def test_only_bad_input_is_a_value_error(kind: type[DpcrowdError]) -> None:
    """`except ValueError` around a conversion took a full disk, or a spent budget, for a mistyped number."""
    assert not issubclass(kind, ValueError)
    assert issubclass(kind, DpcrowdError)
    assert issubclass(BadInput, ValueError), "what callers of 0.1.0 catch"


@pytest.mark.parametrize(("number", "text"), [(0, "0 slots"), (1, "1 slot"), (2, "2 slots"), (1500, "1500 slots")])
def test_one_is_not_several(number: int, text: str) -> None:
    """Messages said "1 slots"."""
    assert counted(number, "slot") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Datei Zürich\u00a02025.csv: ε fehlt", "Datei Zürich\\xa02025.csv: ε fehlt"),
        ("Zürich\x1b[2J\n\u202eab", "Zürich\\x1b[2J\\n\\u202eab"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("ε = 0.1 \\ 'clinic-b'", "ε = 0.1 \\ 'clinic-b'"),
    ],
)
def test_only_what_would_control_a_terminal_is_escaped(text: str, shown: str) -> None:
    """One space that does not break turned every letter that is not ASCII into an escape."""
    assert plain(text) == shown
