"""Counts in memory as data, defaults that fit what stands beside them, and settings that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dpcrowd
from dpcrowd import DPCrowd, make_scheme, simulate
from dpcrowd.errors import BadInput
from dpcrowd.sim.configure import configure

COUNTS = np.arange(60).reshape(30, 2) + 100
SMALL = {"servers": 6, "density": 0.5, "runs": 2, "burn_in": 5}


def test_an_array_is_a_data_set() -> None:
    """A Python user has counts in an array; a detour over a file would be odd."""
    result = simulate("fast", COUNTS, regions=["north", "south"], **SMALL)
    assert np.isfinite(result["fast"].are).all()
    assert any("30 slots of 2 regions: 'north', 'south'." in note for note in result.notes)
    assert configure("fast", COUNTS[:, 0].tolist(), burn_in=5).data.slots == 30
    many = simulate("fast", np.repeat(COUNTS, 4, axis=1), **SMALL)
    listed = "30 slots of 8 regions: 'region 0', 'region 1', 'region 2', 'region 3', 'region 4' and 3 more."
    assert any(listed in note for note in many.notes), "an ellipsis before a full stop is four dots"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (np.array([1.5, 2.0]), "whole numbers; given fractions"),
        (np.array([1.0, np.nan]), "given nan in row"),
        (np.array([-1, 2]), "given -1"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.array(["a", "b"]), "must be numbers"),
        (np.zeros((0, 2)), "shape"),
    ],
)
def test_an_array_that_holds_no_counts_is_refused(counts: np.ndarray, words: str) -> None:
    """The same rules as for a file."""
    with pytest.raises(BadInput, match=words):
        simulate("fast", counts, **SMALL)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2], [3]], "given 2 numbers in row 0, and 1 number in row 1."),
        ([[1], [2], [3, 4]], "given 1 number in row 0, and 2 numbers in row 2."),
        ([1, [2, 3]], "given a single number in row 0, and 2 numbers in row 1."),
        ([[[1, 2], [3]], [[1], [2, 3]]], "with one number per region; given rows of something else."),
    ],
)
def test_rows_of_different_lengths_are_refused_everywhere(rows: list[object], words: str) -> None:
    """A forgotten number ended in NumPy's "inhomogeneous shape after 1 dimensions", without the row."""
    calls: list[Callable[[], object]] = [
        lambda: dpcrowd.counts_from_array(rows),
        lambda: dpcrowd.fit(rows, source="x"),
        lambda: simulate("fast", rows, **SMALL),
        lambda: dpcrowd.plan(data=rows),
        lambda: dpcrowd.tune("dpcrowd", rows),
    ]
    for call in calls:
        with pytest.raises(BadInput) as refusal:
            call()
        assert str(refusal.value).startswith("counts must have a row per slot, ")
        assert str(refusal.value).endswith(words)


def test_other_numbers_in_rows_of_different_lengths_are_refused() -> None:
    """Shares, budgets and transitions are lists of the caller, too; a traceback does not say which is wrong."""
    with pytest.raises(
        BadInput, match=r"shares must be numbers, as many for each server; given \[\[0.5, 0.5\], \[0.3\]\]"
    ):
        dpcrowd.plan([40, 50], process_var=3, shares=[[0.5, 0.5], [0.3]])
    for wrong in ([[1, 2], [3]], ["a"], [True]):
        with pytest.raises(BadInput, match="epsilons must be numbers above 0, such as"):
            dpcrowd.plan([40, 50], process_var=3, servers=4, density=1.0, window=10, epsilons=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="transition must be numbers, in rows of the same length; given"):
        dpcrowd.ProcessModel.of([[1.0, 0.0], [1.0]], [1.0, 2.0])
    with pytest.raises(BadInput, match="process variance must be numbers, in rows of the same length; given"):
        dpcrowd.ProcessModel.of(1.0, ["a"])


def test_a_list_is_no_name_of_a_file() -> None:
    """`load_data` called an array of counts allowed when it was given one."""
    with pytest.raises(BadInput, match=r"an array of counts .* \(dpcrowd.counts_from_array makes a data set of it\)"):
        dpcrowd.load_data([[1, 2], [3, 4]])


def test_central_follows_the_schemes_beside_it() -> None:
    """A limit that has to make its epsilon last for the whole stream is none for schemes that renew it every window."""
    kinds = {e.label: e.guarantee and e.guarantee.kind for e in configure("dpcrowd-plus,central", "linear").entrants}
    assert kinds == {"dpcrowd-plus": "window", "central": "window"}
    kinds = {e.label: e.guarantee and e.guarantee.kind for e in configure("central,non-private", "linear").entrants}
    assert kinds == {"central": "finite", "non-private": None}


@pytest.mark.parametrize("graph", ["small-world", "scale-free", "geometric"])
@pytest.mark.parametrize("servers", [5, 12, 50])
def test_the_default_density_fits_every_graph(graph: str, servers: int) -> None:
    """Who gives no density should not be told that it is wrong."""
    assert configure("dpcrowd", graph=graph, servers=servers).network.density >= 0.1


def test_options_do_not_change_schemes_made_by_hand() -> None:
    """An interval that is quietly ignored would give results under a wrong name."""
    with pytest.raises(BadInput, match="interval cannot change a scheme object"):
        simulate([DPCrowd()], "linear", interval=5, **SMALL)


def test_shares_that_sum_to_one_are_a_partition_however_they_are_given() -> None:
    """Each user is at one server then, and counts have binomial variance."""
    assert configure("fast", servers=4, shares=np.full(4, 0.25)).observation == "binomial"
    assert configure("fast", servers=4, shares=[0.5] * 4).observation == "paper"


def test_an_array_of_shares_sets_the_number_of_servers() -> None:
    """A list and a file did, while an array by region was refused for want of 47 more servers."""
    data = np.full((30, 2), 500)
    for shares in (np.full((3, 2), 1 / 3), np.full((1, 3, 2), 1 / 3), [[1 / 3] * 2] * 3, np.full((30, 3), 1 / 3)):
        assert configure("relay", data, shares=shares, window=10).servers == 3
    with pytest.raises(BadInput, match=r"shares have shape \(3, 2\); allowed: one for each of 4 servers"):
        configure("relay", data, shares=np.full((3, 2), 1 / 3), window=10, servers=4)
    with pytest.raises(BadInput, match=r"for each of 50 servers, .* \(50, 3\)\. 50 is the default; the number of"):
        configure("relay", np.full((30, 3), 500), shares=np.full((2, 2), 0.5), window=10)
    with pytest.raises(BadInput, match=r"for each of 4 servers, .* \(4, 3\)\.$"):
        configure("relay", np.full((30, 3), 500), shares=np.full((2, 2), 0.5), window=10, servers=4)
    with pytest.raises(BadInput, match="shares must be numbers"):
        configure("relay", data, shares=[[0.5, 0.5], [0.5]], window=10)


def test_a_promise_about_the_network_is_not_made_for_shares_that_contradict_it() -> None:
    """With roaming users and shares that sum to 3, all servers together release three times what was promised."""
    text = simulate("dpcrowd", "linear", users="roaming", slots=30, **SMALL).guarantees["dpcrowd"]
    assert text is not None
    assert text.startswith("Not for these shares, which sum to about 3.15 and put users at several servers at once")
    honest = simulate("dpcrowd", "linear", users="roaming", slots=30, shares="partition", **SMALL).guarantees["dpcrowd"]
    assert honest is not None
    assert honest.startswith("Pure user-level")


def test_a_column_that_only_numbers_the_rows_is_no_region(tmp_path: object) -> None:
    """A region that grows by one each slot would be simulated, and nobody would notice."""
    path = f"{tmp_path}/counts.csv"
    with open(path, "w", encoding="utf-8") as file:
        file.write("t,a\n" + "".join(f"{slot},{slot * 3 % 7 + 5}\n" for slot in range(30)))
    assert configure("fast", path, burn_in=5).data.regions == ("a",)


def test_a_full_matrix_is_paid_for_in_bytes() -> None:
    """info_mat is d x d numbers in the matrix form; counted as a vector it would look cheap."""
    sizes = {}
    for form in ("diagonal", "matrix"):
        row = simulate("dpcrowd", "multi-linear", slots=30, form=form, **SMALL).summary()[0]
        sizes[form] = row["bytes_per_slot"] / row["packets_per_slot"]
    assert sizes["diagonal"] == pytest.approx(215 + (8 * 3 + 1) * 6)
    assert sizes["matrix"] == pytest.approx(215 + (8 * 2 + 1) * 6 + 8 * 6 * 6)


def test_servers_without_an_estimate_are_named_in_a_note() -> None:
    """They are left out of the mean errors; a reader should know how many."""
    result = simulate("fast", COUNTS, interval=20, sampling="staggered", **{**SMALL, "burn_in": 0})
    assert result["fast"].missing.mean() > 0
    assert any("had no estimate yet and are left out" in note for note in result.notes)
    assert not any("no estimate" in note for note in simulate("fast", COUNTS, **SMALL).notes)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"beta": "x"}, "beta must be a finite number"),
        ({"interval": "x"}, "interval must be a whole number"),
        ({"tuning": 5}, "tuning must be a Tuning or a dictionary"),
        *(
            ({switch: "no"}, f"{switch}='no' is neither True nor False; give one of them, or leave it out")
            for switch in ("learn", "median", "nonnegative", "keep_estimates", "smoothed", "round_counts", "dynamic")
        ),
    ],
)
def test_settings_of_the_wrong_type_are_refused_in_one_line(setting: dict[str, object], words: str) -> None:
    """A library user gets the same clear line as one of the command line; "no" would count as yes."""
    with pytest.raises(BadInput, match=words):
        simulate("dpcrowd", COUNTS, **{**SMALL, **setting})


def test_central_refuses_grouping_on_a_fixed_schedule() -> None:
    """It would be ignored: a fixed schedule reads every region alone."""
    with pytest.raises(BadInput, match="leave grouping out"):
        make_scheme("central", interval=5, grouping="none")


@pytest.mark.parametrize("regions", [1, 3])
def test_columns_without_names_are_the_same_in_arrays_and_files(tmp_path: Path, regions: int) -> None:
    """A model of an array was refused for the same counts in a file without a header: 'region 0' is its 'region-1'."""
    counts = np.random.default_rng(4).poisson(30.0, (60, regions))
    path = tmp_path / "counts.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in counts.tolist()) + "\n", encoding="utf-8")
    of_array, of_file = (dpcrowd.fit(data, source="drawn", season="none") for data in (counts, path))
    for model, data in ((of_array, path), (of_file, counts)):
        config = configure("relay", data, model=model, window=10, servers=4)
        assert config.fitted is not None
        assert config.fitted.names == config.data.regions
        assert config.in_sample == 60 - config.burn_in
        assert [note for note in config.data.notes if "columns without names, which are taken in their order" in note]
    named = dpcrowd.fit(counts, source="drawn", season="none", regions=[f"hall {k}" for k in range(regions)])
    for model, data in ((named, path), (of_array, np.hstack([counts, counts]))):
        with pytest.raises(BadInput, match="has no region"):
            configure("relay", data, model=model, window=10, servers=4)
