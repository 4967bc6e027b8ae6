"""Errors that people and worker processes get."""

from __future__ import annotations

import pickle

import pytest

from dpcrowd.errors import BadInput, BudgetExhausted, DpcrowdError, MissingExtra, unknown_name


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
