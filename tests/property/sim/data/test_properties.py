"""Laws that hold for all data: files round-trip, splits are partitions, labels find every gap."""

from __future__ import annotations

import tempfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dpcrowd.errors import BadInput
from dpcrowd.sim.data import CheckIns, draw_shares, load, observe
from dpcrowd.sim.data.counts import write_counts
from dpcrowd.sim.data.shares import is_partition
from examples_support import examples

counts = arrays(np.int64, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6), elements=st.integers(0, 2**53))
some = settings(max_examples=examples(60), deadline=None)


def load_text(text: str, **options: object) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_text(text, encoding="utf-8")
        return load(path, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@some
@given(counts)
def test_counts_survive_a_file(values: np.ndarray) -> None:
    """Without this, large counts would lose digits on their way through a CSV file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        regions = [f"r {k}" for k in range(values.shape[1])]
        write_counts(path, values, regions, [str(t) for t in range(len(values))])
        data = load(path)
    assert (data.truth(np.random.default_rng(0)) == values).all()
    assert list(data.regions) == regions


@pytest.mark.slow
@some
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    """Without this, some odd file would end in a traceback."""
    try:
        load_text(text)
    except BadInput as error:
        assert "\n" not in str(error)  # noqa: PT017


@some
@given(st.text(alphabet="user,time,region\n0123456789-:TZ+.e \t;\"'", max_size=80))
def test_any_check_in_is_read_or_refused_in_one_line(text: str) -> None:
    """Without this, some odd check-in would end in a traceback."""
    try:
        load_text("user,time,region\na,2020-01-01,A\n" + text)
    except BadInput as error:
        assert "\n" not in str(error)  # noqa: PT017


@some
@given(st.dates(date(1950, 1, 1), date(2100, 1, 1)), st.sampled_from([1, 7]), st.integers(5, 30), st.data())
def test_every_missing_date_is_found(start: date, step: int, length: int, draw: st.DataObject) -> None:
    """Without this, a gap at some place of the series would pass."""
    days = [(start + timedelta(days=step * t)).isoformat() for t in range(length)]
    text = "week,a\n" + "".join(f"{day},1\n" for day in days)
    load_text(text)
    gap = draw.draw(st.integers(1, length - 2))
    with pytest.raises(BadInput, match=f"'{days[gap]}' is missing before '{days[gap + 1]}'"):
        load_text(text.replace(f"{days[gap]},1\n", ""))


checkin = st.tuples(st.integers(0, 6), st.integers(0, 5 * 86_400), st.integers(0, 3))


@some
@given(st.lists(checkin, min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 2**32), st.booleans())
def test_check_ins_are_split_exactly(rows: list[tuple[int, int, int]], m: int, seed: int, roaming: bool) -> None:
    """Without this, a user could be lost, doubled, or counted where an earlier check-in of the slot was."""
    text = "user,time,region\n" + "".join(f"{u},{t},{r}\n" for u, t, r in rows)
    data = load_text(text, process_var=1.0)
    assert isinstance(data, CheckIns)
    first = min(t for _, t, _ in rows) // 86_400
    last: dict[tuple[int, int], str] = {}
    for user, time, region in sorted(rows, key=lambda row: row[1]):  # stable: later rows win at equal times
        last[time // 86_400 - first, user] = str(region)
    expected = np.zeros((data.slots, len(data.regions)), dtype=np.int64)
    for (slot, _), name in last.items():
        expected[slot, data.regions.index(name)] += 1
    rng = np.random.default_rng(seed)
    assert (data.truth(rng) == expected).all()
    shares = draw_shares("partition", m, data.slots, rng)
    split = data.split(shares, "roaming" if roaming else "pinned", rng)
    assert (split.sum(axis=1) == expected).all()
    assert split.min() >= 0


@some
@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_a_partition_splits_the_truth_exactly(slots: int, m: int, d: int, per_slot: bool, seed: int) -> None:
    """Without this, people would be lost or doubled in the honest setting for network-wide claims."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 50, (slots, d))
    shares = rng.uniform(0.05, 1, (slots, m) if per_slot else m)
    shares = shares / shares.sum(axis=-1, keepdims=True)
    assert is_partition(shares)
    split = observe("binomial", truth, shares, np.ones(d), rng)
    assert split.shape == (slots, m, d)
    assert split.min() >= 0
    assert (split.sum(axis=1) == truth).all()
