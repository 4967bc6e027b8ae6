"""The file of a model: it comes back to the last bit, and a mistake in it is one clear line."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.filters.course import same_course
from dpcrowd.filters.model import InCommon
from dpcrowd.models.file import model_digest, model_text, parse_model, read_model, write_model
from dpcrowd.models.model import Model
from dpcrowd.models.season import SlotTimes
from dpcrowd.sim.data.counts import counts_from_array


def fitted(season: int | str = 7) -> Model:
    days = np.arange(140) % 7
    counts = np.random.default_rng(0).poisson(np.stack([20 + 10 * (days < 5), 5 + 0 * days], axis=1))
    return dpcrowd.fit(counts_from_array(counts, regions=["hall", "garden"]), source="a test", season=season)


def test_it_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    """Servers that read another number than was written would disagree in the last digit for ever."""
    model = fitted()
    again = read_model(write_model(model, tmp_path / "model.toml"))
    assert model_text(again) == model_text(model)
    assert model_digest(again) == model_digest(model)
    first, second = (one.process_model(["hall", "garden"], None, 3) for one in (model, again))
    assert first.course is not None
    assert second.course is not None
    assert first.course.profile.tobytes() == second.course.profile.tobytes()
    assert first.course.variance.tobytes() == second.course.variance.tobytes()


def test_relative_deviations_come_back() -> None:
    """A server that carried a day's deviation into the night as it is would disagree with all others."""
    model = replace(fitted(), variance="relative")
    text = model_text(model)
    assert 'variance = "relative"' in text
    assert "per expected person squared" in text
    first, second = (one.process_model(["hall"], None).course for one in (model, parse_model(text, "m.toml")))
    assert first is not None
    assert first.scale is not None
    assert same_course(first, second)
    assert first.variance == pytest.approx(model.regions[0].variance * np.square(first.scale))
    assert not same_course(first, replace(first, scale=None))
    assert not same_course(first, replace(first, scale=2.0 * first.scale))


def test_a_file_of_an_earlier_version_means_what_it_meant() -> None:
    """Its comments are in its digest, which all servers of a network compare; and its deviations have no scale."""
    text = """# A process model from `dpcrowd fit`: what is known of a crowd before any record of it. It is public.

[model]
dpcrowd = "0.2.0"
kind = "ar1"
# none, day, week, hour-of-week, year, or a number of slots; slots are counted from Monday, UTC, or from `first`
season = 2
# of what a slot adds to a deviation: fixed, or proportional (per expected person)
variance = "proportional"
# why fitting this model costs no privacy budget: the assertion of whoever fitted it
source = "a test"
data = "counts.csv"
# fitted on `slots` slots from number `first` of the series on, which begins at `begins`
first = 0
slots = 100
digest = "abc"

[scores]
# sum of |error| / sum of counts: from the slot before, and of the model alone; and their 95% coverage
error = 0.1
past = 0.2
coverage = 0.95
past_coverage = 0.95
slots = 65

[[region]]
name = "hall"
level = 20.0
# a: the part of a deviation that is left after one slot
transition = 0.5
# of what a slot adds to a deviation: fixed, or proportional (per expected person)
variance = 0.75
change_var = 30.0
profile = [10.0, 30.0]
"""
    model = parse_model(text, "m.toml")
    assert model_digest(model) == hashlib.sha256(text.encode()).hexdigest()
    course = model.process_model(["hall"], None).course
    assert course is not None
    assert course.scale is None
    assert course.variance.ravel().tolist() == [7.5, 22.5]


def test_relative_deviations_without_variance_are_those_of_rounding() -> None:
    """A file may say 0; a division by it would let every estimate be NaN."""
    region = replace(fitted().regions[0], variance=0.0)
    course = replace(fitted(), regions=(region,), variance="relative").process_model(["hall"], None).course
    assert course is not None
    assert (course.variance > 0.0).all()
    assert np.isfinite(course.settled_var(3, np.array([0.5]))).all()


def test_files_of_earlier_versions_have_no_correlation() -> None:
    """A file that was good must stay good, and keep its digest: the servers of a network agree on it."""
    model = fitted()
    text = model_text(replace(model, region_correlation=None))
    assert "correlation" not in text
    assert parse_model(text, "m.toml").process_model(["hall", "garden"], None).region_correlation is None
    again = parse_model(model_text(replace(model, region_correlation=0.25)), "m.toml")
    assert again.process_model(["garden"], None).region_correlation == 0.25


def test_files_of_earlier_versions_do_not_say_how_long_a_common_deviation_lasts() -> None:
    """Their digest, their beliefs and the states of live servers stay as they were."""
    model = fitted()
    assert "common_transition" not in model_text(replace(model, in_common=None))
    again = parse_model(model_text(replace(model, region_correlation=0.3, in_common=InCommon(0.75))), "m.toml")
    assert again.process_model(["hall", "garden"], None).in_common == InCommon(0.75)
    assert again.in_common == InCommon(0.75)
    stormy = replace(model, region_correlation=0.3, in_common=InCommon(0.75, 0.25, 0.125))
    assert "common_usual = 0.25" in model_text(stormy)
    assert parse_model(model_text(stormy), "m.toml").in_common == stormy.in_common


def test_files_of_earlier_versions_have_no_mean_counts() -> None:
    """A file that was good must stay good, and keep its digest; a mean that is not a number is refused."""
    model = fitted()
    text = model_text(model)
    assert [region.mean for region in parse_model(text, "m.toml").regions] == [region.mean for region in model.regions]
    assert model.regions[1].mean == pytest.approx(5, abs=1)
    earlier = model_text(replace(model, regions=tuple(replace(region, mean=None) for region in model.regions)))
    assert "mean" not in earlier
    assert all(region.mean is None for region in parse_model(earlier, "m.toml").regions)
    wrong = text.replace(f"mean = {model.regions[1].mean!r}", "mean = -1.0")
    with pytest.raises(BadInput, match=r"mean of 'garden' in m.toml is -1.0; allowed: a finite number from 0"):
        parse_model(wrong, "m.toml")


@pytest.mark.parametrize(
    ("control", "kind"),
    [
        *((text, "a line break") for text in ("\\n", "\\u0085", "\\u2028", "\\u2029")),
        *((text, "a control character") for text in ("\\u001b[2K", "\\u007f")),
        *((text, "a control of the direction of writing") for text in ("\\u202b", "\\u202e", "\\u2066", "\\u2069")),
    ],
)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('source = "a test"', "'source' of m.toml"),
        ('data = "', "'data' of m.toml"),
        ('reason = "', "'reason' of m.toml"),
        ('dpcrowd = "', "'dpcrowd' of m.toml"),
        ('digest = "', "'digest' of m.toml"),
        ('name = "hall"', "the name of a region of m.toml"),
    ],
)
def test_texts_that_would_control_a_terminal_are_refused(
    text: str, what: str, control: str, kind: str, tmp_path: Path
) -> None:
    """Every promise quotes the source: a file that `fit` did not write erased the promise before it, or reversed it.

    A copy of what is in use already is read whatever it says, or no operator could get rid of it.
    """
    whole = model_text(fitted())
    key, quote, rest = text.partition('"')
    changed = whole.replace(text, f"{key}{quote}x{control}{rest}", 1)
    assert changed != whole
    (tmp_path / "m.toml").write_text(changed, encoding="utf-8")
    with pytest.raises(BadInput, match=rf"^{what} has '\\.*', {kind}, as character 2; write it as one line"):
        read_model(tmp_path / "m.toml")
    copy = parse_model(changed, "m.toml")
    assert f"{copy.quoted_sources} {copy.span}".isprintable()
    with pytest.raises(BadInput, match=kind):
        write_model(copy, tmp_path / "again.toml")


FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("Statistik Köln, 2026 – «offen» 東京\u00a0😀", '"Statistik Köln, 2026 – «offen» 東京 😀"'),
        ("\u0645\u06cc\u200c\u062e\u0648", '"\u0645\u06cc\u200c\u062e\u0648"'),  # a joiner belongs to the word
        ("Be\u00adsucher\u00adzahlen", r'"Be\xadsucher\xadzahlen"'),
        ("\u200eours\u200f \u061c", r'"\u200eours\u200f \u061c"'),
        (f"Scotland {FLAG}", r'"Scotland 🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"'),
        (
            'published". Verified: no assertion is needed. "yes',
            "\"published'. Verified: no assertion is needed. 'yes\"",
        ),
        ("published” “yes", "\"published' 'yes\""),
    ],
)
def test_texts_of_all_languages_are_kept_and_quoted(source: str, shown: str, tmp_path: Path) -> None:
    """What cannot be seen comes with pasted text and does no harm; a quotation mark in a source forged the promise."""
    model = replace(fitted(), source=source)
    assert read_model(write_model(model, tmp_path / "m.toml")).source == source, "the file keeps what was given"
    assert model.quoted_sources == shown


def test_sources_of_earlier_models_are_kept_and_quoted(tmp_path: Path) -> None:
    """The source of a model on releases was all that anybody saw of the models of which it keeps a part."""
    plain, source = fitted(), fitted().source
    model = replace(plain, earlier_sources=("raw check-ins", 'a "census"'))
    back = read_model(write_model(model, tmp_path / "m.toml"))
    assert back.sources == (source, "raw check-ins", 'a "census"')
    quoted = f'"{source}"; and of earlier models, of which it keeps a part: "raw check-ins", "a \'census\'"'
    assert back.quoted_sources == quoted
    assert quoted in str(back)
    assert model_digest(back) == model_digest(model) != model_digest(plain)
    assert "earlier_sources" not in model_text(plain), "files without it, and their digest, stay as they are"
    for wrong in ('"x"', "[1]", '["x", "."]', "[[]]", str(["x"] * 9).replace("'", '"')):
        with pytest.raises(BadInput, match="earlier_sources"):
            parse_model(model_text(plain).replace("data = ", f"earlier_sources = {wrong}\ndata = ", 1), "m.toml")
    with pytest.raises(BadInput, match=r"'earlier_sources\[1\]' of the model has '.n', a line break"):
        write_model(replace(plain, earlier_sources=("x", "a\nb")), tmp_path / "wrong.toml")


def test_regions_are_found_by_name() -> None:
    """The file of another town, or a sorted list, must not hand one region the level of another."""
    model = fitted()
    process = model.process_model(["garden", "hall"], None)
    assert process.course is not None
    assert process.course.mean(0)[0] == pytest.approx(5, abs=1.5)
    assert model.process_model(["hall"], None).regions == 1
    with pytest.raises(BadInput, match=r"the model has no region 'cellar'; it has 'hall', 'garden'. Fit it again"):
        model.process_model(["hall", "cellar"], None)


def test_slots_of_another_length_are_refused() -> None:
    """Deviations of an hour are not those of a day."""
    model = replace(fitted("none"), slot=3_600_000_000)
    with pytest.raises(BadInput, match="was fitted on slots of 1h, but slots are 1d long here"):
        model.process_model(["hall"], SlotTimes(0, 86_400_000_000))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "ar1"', 'kind = "ar2"', "m.toml: unknown kind 'ar2'. Did you mean 'ar1'"),
        ("season = 7", 'season = "moon"', "season of m.toml is 'moon'; allowed: none, day, week"),
        ("slots = 140", "slots = 0", "'slots' of m.toml is 0; allowed: a whole number from 1"),
        ('source = "a test"\n', "", "m.toml has no source; .*dpcrowd fit --source TEXT"),
        ('source = "a test"', 'source = " "', "m.toml has no source; .*dpcrowd fit --source TEXT"),
        ('source = "a test"', "source = []", r"'source' of m.toml is \[\]; allowed: a text in quotation marks"),
        ('source = "a test"', "source = 5", "'source' of m.toml is 5; allowed: a text in quotation marks"),
        ('source = "a test"', "source = false", "'source' of m.toml is False; allowed: a text in quotation marks"),
        ('digest = "', 'digest = 1 # "', "'digest' of m.toml is 1; allowed: a text"),
        ('reason = "', 'reason = [] # "', r"'reason' of m.toml is \[\]; allowed: a text"),
        ('dpcrowd = "', 'dpcrowd = 0.2 # "', "'dpcrowd' of m.toml is 0.2; allowed: a text"),
        ('data = "', 'data = false # "', "'data' of m.toml is False; allowed: a text"),
        ("\nerror = ", f"\nerror = 1{'0' * 400} # ", r"'error' in \[scores\] .*; allowed: from 0 to 1e18, or nan"),
        ("\ncoverage = 0", "\ncoverage = 7", r"'coverage' in \[scores\] .* is 7.*; allowed: from 0 to 1, or nan"),
        ("past_coverage = 0", "past_coverage = -1", r"'past_coverage' in \[scores\] .* is -1.*; allowed: from 0"),
        ("transition = 0", "transition = -1", "transition of 'hall' in m.toml is -1.*; allowed: from 0 to below 1"),
        ("region_correlation = 0.0", 'region_correlation = "x"', "region_correlation in m.toml is 'x'; .*from 0 to 1"),
        (
            "region_correlation = 0.0",
            "region_correlation = 0.5\ncommon_transition = 1",
            "common_transition in m.toml is 1; allowed: from 0 to 0.9999",
        ),
        (
            "region_correlation = 0.0",
            "region_correlation = 0.5\ncommon_transition = 0.5\ncommon_usual = 2\ncommon_unusual = 0.1",
            "common_usual and common_unusual in m.toml are 2 and 0.1; allowed: both, the first from 1e-6 to 1",
        ),
        (
            "region_correlation = 0.0",
            "region_correlation = 0.5\ncommon_usual = 0.2",
            "m.toml has common_usual or common_unusual without common_transition",
        ),
        ('name = "garden"', 'name = "hall"', "m.toml has region 'hall' twice"),
        ("level = ", "levl = ", r"m.toml, \[\[region\]\] of 'hall': unknown key 'levl'. Did you mean 'level'"),
        ("transition = 0", "transition = 1", "transition of 'hall' in m.toml is 1.*; allowed: from 0 to below 1"),
        ("# a: ", "sauce = 1\n# a: ", r"m.toml, \[\[region\]\] of 'hall': unknown key 'sauce'"),
        ("season = ", "sauce = 1\nseason = ", r"m.toml, \[model\]: unknown key 'sauce'"),
        ("change_var = ", "# ", r"m.toml has no 'change_var' in \[\[region\]\] of 'hall'; give a file"),
        ('name = "hall"', "", r"m.toml has no 'name' in \[\[region\]\] number 1; give a file"),
        ("[scores]", "[score]", "m.toml: unknown section 'score'. Did you mean 'scores'"),
        ("[[region]]", "[region]", "is not TOML|has no \\[\\[region\\]\\]"),
        ('variance = "', 'variance = "x', "m.toml: unknown variance 'xproportional'"),
        (
            "region_correlation = 0.0",
            "region_correlation = 1.5",
            "region_correlation in m.toml is 1.5; allowed: from 0 to 1",
        ),
    ],
)
def test_a_mistake_is_one_clear_line(old: str, new: str, why: str) -> None:
    """Whoever edits a file by hand needs the place and what is allowed."""
    text = model_text(fitted())
    assert old in text
    with pytest.raises(BadInput, match=why):
        parse_model(text.replace(old, new, 1), "m.toml")


def test_a_tuning_file_is_called_one() -> None:
    """Both are TOML files with a [model]; whoever confuses the options has to learn which one takes the file."""
    with pytest.raises(BadInput, match=r"'flu.toml' is a tuning file of 'dpcrowd tune', not .* as --tuning \(tuning="):
        parse_model('[tuned]\nscheme = "dpcrowd"\n[model]\n', "flu.toml")


@pytest.mark.parametrize("text", ["[network]\nid = 'a'\n", "[scheme]\nname = 'relay'\n"])
def test_a_network_is_called_one(text: str) -> None:
    """Of network.toml and plan.toml, the sections of a model were listed as what is allowed."""
    with pytest.raises(BadInput, match=r"'net.toml' describes a network, .* give a file that 'dpcrowd fit' wrote"):
        parse_model(text, "net.toml")


def test_profiles_have_one_length() -> None:
    """A profile with a line too few would end in a traceback of NumPy; a region without one stays at its level."""
    model = fitted()
    short = replace(model.regions[1], profile=(1.0, 2.0))
    third = replace(model.regions[0], name="cellar")
    text = model_text(replace(model, regions=(short, model.regions[0], third), change_var=(1.0, 1.0, 1.0)))
    with pytest.raises(BadInput, match=r"profile of 'garden' in m.toml has 2 rows, but those of other regions have 7"):
        parse_model(text, "m.toml")
    flat = model_text(replace(model, regions=(model.regions[0], replace(short, profile=()))))
    course = parse_model(flat, "m.toml").process_model(["hall", "garden"], None).course
    assert course is not None
    assert course.profile[:, 1].tolist() == [short.level] * 7


def test_scores_may_be_unknown() -> None:
    """The file of a series that was too short to hold slots out has nan for its coverage, and must be read."""
    model = fitted()
    text = model_text(replace(model, scores=replace(model.scores, coverage=float("nan"), past_coverage=float("nan"))))
    assert np.isnan(parse_model(text, "m.toml").scores.coverage)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A path with a typing mistake is the most frequent error of all."""
    with pytest.raises(BadInput, match=r"cannot read model file .*: No such file"):
        read_model(tmp_path / "none.toml")
    (tmp_path / "image.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="is not UTF-8 text; give a file that 'dpcrowd fit' wrote"):
        read_model(tmp_path / "image.toml")
    with pytest.raises(BadInput, match="cannot write"):
        write_model(fitted(), tmp_path / "nowhere" / "model.toml")


@pytest.mark.parametrize("begins", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_beginning_outside_the_calendar_is_refused(begins: str) -> None:
    """It is a time as text, and none in UTC: whoever computed with it later would end with an error of its own."""
    lines = model_text(fitted()).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("digest = "))
    text = "\n".join([*lines[:place], f'begins = "{begins}"', *lines[place:]])
    with pytest.raises(BadInput, match=r"begins of m\.toml is '.*'; allowed: a time in the years 1 to 9999, in UTC"):
        parse_model(text, "m.toml")
    for allowed in ("0001-01-01T00:00:00Z", "9999-12-31T09:59:59-14:00"):
        model = parse_model(text.replace(begins, allowed), "m.toml")
        assert model_digest(parse_model(model_text(model), "m.toml")) == model_digest(model)


def test_a_mark_of_the_encoding_is_no_fault(tmp_path: Path) -> None:
    """Some editors put it in front of every file."""
    model, path = fitted(), tmp_path / "model.toml"
    path.write_text("\ufeff" + model_text(model), encoding="utf-8")
    assert model_digest(read_model(path)) == model_digest(model)


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    """A file that `fit` has written and no server takes would be found when the network is set up."""
    counts = np.random.default_rng(0).poisson(20, (60, 2)) * 10**9
    model, path = dpcrowd.fit(counts_from_array(counts, regions=["hall", "garden"]), source="x"), tmp_path / "m.toml"
    with pytest.raises(BadInput, match=r"cannot write '.*m\.toml': .* of region 'hall' is .*, and a model holds"):
        write_model(model, path)
    assert not path.exists()
    assert read_model(write_model(fitted(), path)).names == ("hall", "garden")


@pytest.mark.parametrize("source", [".", "--", "\u200b", "\u00a0?"])
def test_a_source_has_a_word(source: str) -> None:
    """It is an assertion that others rely on; a full stop asserts nothing."""
    with pytest.raises(BadInput, match="the source is without a letter or digit; say why"):
        dpcrowd.fit(np.ones((40, 2)), source=source)
    with pytest.raises(BadInput, match="has no source"):
        replace(fitted(), source=source)
    assert replace(fitted(), source="市").source == "市"


def test_the_comment_says_what_the_time_is_of() -> None:
    """With a span, the series begins earlier; the digest of models of earlier versions stays."""
    assert "from number `first` of the series on, whose time is `begins`" in model_text(fitted())


def test_every_key_is_explained_where_it_is_first_used() -> None:
    """A file whose first region has no rare deviations had two numbers in later ones that nothing explained."""
    model = fitted()
    hall, garden = model.regions
    comment = "# where deviations are mostly small: "
    assert comment not in model_text(model)
    model = replace(model, regions=(replace(hall, mean=None), replace(garden, tails=(0.25, 0.1))))
    text = model_text(model)
    assert text.count(comment) == text.count("# the mean count") == text.count("# a: the part") == 1
    assert text.index('name = "garden"') < text.index(comment) < text.index("usual = 0.25")
    both = replace(model, regions=(replace(hall, tails=(0.5, 0.1)), *model.regions[1:]))
    assert model_text(both).count(comment) == 1
    assert model_text(both).index(comment) < model_text(both).index('name = "garden"')


def test_comments_of_later_regions_are_not_part_of_the_digest() -> None:
    """All servers of a network compare it, also those that write fewer comments."""
    model = fitted()
    model = replace(model, regions=(model.regions[0], replace(model.regions[1], tails=(0.25, 0.1))))
    lines = model_text(model).replace("series on, whose time is", "series on, which begins at").split("\n")
    explained = [line for line in lines if not line.startswith("# where deviations are mostly small")]
    assert len(explained) == len(lines) - 1
    assert model_digest(model) == hashlib.sha256("\n".join(explained).encode()).hexdigest()


def test_two_that_write_one_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that fit the same model would use one temporary file, and the second find it gone."""
    model, path = fitted(), tmp_path / "model.toml"
    real, parts = Path.replace, []

    def replace_after_another(self: Path, target: Path) -> Path:
        parts.append(self)
        if len(parts) == 1:
            write_model(model, path)  # another one begins and ends in between
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace_after_another)
    write_model(model, path)
    assert len(set(parts)) == 2
    assert read_model(path).digest == model.digest
    assert list(tmp_path.iterdir()) == [path], "nothing is left behind"
