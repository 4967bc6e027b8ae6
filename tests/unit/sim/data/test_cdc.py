"""The publisher's formats, and what happens when the publisher cannot be reached."""

from __future__ import annotations

import io
import json
import socket
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.sim.data import download
from dpcrowd.sim.data.cdc import FLU_WEEKS, MULTI_FLU_WEEKS, STATES, parse_ilinet, parse_nchs
from dpcrowd.sim.data.weeks import mmwr_range, mmwr_week_end
from project_support import ROOT

SHARED = ROOT.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the data folder beside the project is not there")

TITLE = "PERCENTAGE OF VISITS FOR INFLUENZA-LIKE-ILLNESS REPORTED BY SENTINEL PROVIDERS\n"
ILINET = (
    "REGION TYPE,REGION,YEAR,WEEK,% WEIGHTED ILI,%UNWEIGHTED ILI,AGE 0-4,AGE 25-49,AGE 25-64,AGE 5-24,AGE 50-64,AGE 65,"
    "ILITOTAL,NUM. OF PROVIDERS,TOTAL PATIENTS\n"
)
NCHS = (
    "geoid,region,state,age,season,mmwr_year_week,deaths_from_influenza,deaths_from_pneumonia,"
    "deaths_from_pneumonia_and_influenza,all_deaths,percent_of_deaths_due_to_pneumonia_or_influenza\n"
)
TWO_WEEKS = ((2014, 53), (2015, 1))


def ilinet(*rows: tuple[str, int, int, object]) -> str:
    return TITLE + ILINET + "".join(f"{level},X,{y},{w},1.1,1.2,1,2,X,3,X,4,{n},500,90000\n" for level, y, w, n in rows)


def nchs(deaths: Mapping[tuple[str, str], object], age: str = "All") -> str:
    text = NCHS
    for (area, week), count in deaths.items():
        level = "National" if area == "" else "State"
        text += f"{level},,{area},{age},2014-15,{week},1,2,{count},999,7.1\n"
    return text


def all_states(weeks: tuple[str, ...] = ("201453", "201501")) -> dict[tuple[str, str], object]:
    return {(state, week): k + 10 * t for k, state in enumerate(STATES) for t, week in enumerate(weeks)}


def test_weeks_of_the_cdc() -> None:
    """Without this, week numbers would be read as ISO weeks and be off by up to a week."""
    assert mmwr_week_end(2002, 40) == date(2002, 10, 5)
    assert mmwr_week_end(2014, 53) == date(2015, 1, 3)
    assert mmwr_week_end(2015, 1) == date(2015, 1, 10)
    assert (len(mmwr_range(*FLU_WEEKS)), len(mmwr_range(*MULTI_FLU_WEEKS))) == (791, 441)
    for year, week in ((2015, 53), (2015, 0), (2014, 54)):
        with pytest.raises(ValueError, match="no MMWR week"):
            mmwr_week_end(year, week)


def test_ilinet_takes_national_totals_of_the_wanted_weeks() -> None:
    """Without this, regional rows, other weeks or another column would end in the series."""
    text = ilinet(
        ("National", 2014, 52, 7), ("National", 2014, 53, 11), ("States", 2014, 53, 99), ("National", 2015, 1, 12),
        ("National", 2016, 1, "X"),
    )  # fmt: skip
    series = parse_ilinet(text, TWO_WEEKS)
    assert series.weeks == ("2015-01-03", "2015-01-10")
    assert series.counts.tolist() == [[11], [12]]
    assert parse_ilinet("\ufeff" + text.removeprefix(TITLE), TWO_WEEKS).counts.tolist() == [[11], [12]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ilinet(("National", 2014, 53, 11)), r"no count for the week ending 2015-01-10"),
        (ilinet(("National", 2014, 53, "X"), ("National", 2015, 1, 2)), r"line 3: 'X' is not a count"),
        (
            ilinet(("National", 2015, 1, 2), ("National", 2015, 1, 2)),
            r"line 4: the week ending 2015-01-10 occurs twice",
        ),
        (ilinet(("National", 2015, 60, 2)), r"'2015' '60' is not a year and MMWR week"),
        ("<html>maintenance</html>", r"no header with the columns region_type, year, week, ilitotal"),
        ("", r"no header"),
    ],
)
def test_ilinet_with_holes(text: str, message: str) -> None:
    """Without this, a changed format or a missing week would give a shorter, shifted series."""
    with pytest.raises(BadInput, match=message):
        parse_ilinet(text, TWO_WEEKS)


def test_nchs_takes_states_of_all_ages() -> None:
    """Without this, regions, age groups or other weeks would be mixed into the states."""
    text = nchs({**all_states(), ("Guam", "201453"): 5, ("Alabama", "201452"): 77})
    text += nchs(all_states(), age="65+").removeprefix(NCHS)
    text += "Region,4,,All,2014-15,201453,1,2,555,999,7.1\n"
    series = parse_nchs(text, TWO_WEEKS)
    assert series.regions == STATES
    assert series.counts.tolist() == [list(range(51)), list(range(10, 61))]


def test_nchs_in_the_spelling_of_the_export() -> None:
    """Without this, a file saved by hand from the web page would be refused."""
    header = "geoid,Region,State,age,season,MMWR Year/Week,Deaths from influenza,Deaths from pneumonia,"
    header += "Deaths from pneumonia and influenza,All Deaths,Pecent of deaths due to pneumonia or influenza\n"
    assert parse_nchs(nchs(all_states()).replace(NCHS, header), TWO_WEEKS).counts[0, 50] == 50


def test_new_york_city_is_added_once() -> None:
    """Without this, eight million people would be missing from the nation, or be there twice."""
    new_york = STATES.index("New York")
    city = {("New York City", "201453"): 100, ("New York City", "201501"): 200}
    apart = {**all_states(), **city}
    assert parse_nchs(nchs(apart), TWO_WEEKS).counts[:, new_york].tolist() == [new_york + 100, new_york + 210]
    total = sum(range(51))
    with_city = {("", "201453"): total + 100, ("", "201501"): total + 510 + 200}
    assert parse_nchs(nchs({**apart, **with_city}), TWO_WEEKS).counts.sum(axis=1).tolist() == [total + 100, total + 710]
    without = {("", "201453"): total, ("", "201501"): total + 510}
    assert parse_nchs(nchs({**apart, **without}), TWO_WEEKS).counts.sum(axis=1).tolist() == [total, total + 510]
    del city["New York City", "201501"]
    with pytest.raises(BadInput, match="no New York City for the week ending 2015-01-10"):
        parse_nchs(nchs({**all_states(), **city}), TWO_WEEKS)


def test_nchs_with_holes() -> None:
    """Without this, 'Insufficient Data' or a missing state would become a number."""
    with pytest.raises(BadInput, match="'Insufficient Data' is not a count"):
        parse_nchs(nchs({**all_states(), ("Ohio", "201501"): "Insufficient Data"}), TWO_WEEKS)
    missing = all_states()
    del missing["Ohio", "201501"]
    with pytest.raises(BadInput, match="no Ohio for the week ending 2015-01-10"):
        parse_nchs(nchs(missing), TWO_WEEKS)


@pytest.mark.slow
@pytest.mark.data
@needs_shared
def test_the_formats_give_the_known_series() -> None:
    """Without this, regions or weeks of a download could be in another order than in the known files."""
    lines = (SHARED / "multi_flu.csv").read_text().splitlines()
    assert tuple(lines[0].split(",")[1:]) == STATES
    ends = {mmwr_week_end(y, w).isoformat(): f"{y}{w:02d}" for y in range(2009, 2019) for w in range(1, 53)}
    ends["2015-01-03"] = "201453"
    rows = [line.split(",") for line in lines[1:]]
    deaths = {(s, ends[row[0]]): n for row in rows for s, n in zip(STATES, row[1:], strict=True)}
    series = parse_nchs(nchs(deaths))
    assert list(series.weeks) == [row[0] for row in rows]
    assert series.counts.tolist() == [[int(n) for n in row[1:]] for row in rows]
    flu = [line.split(",")[0] for line in (SHARED / "flu.csv").read_text().splitlines()[1:]]
    assert [end.isoformat() for end in mmwr_range(*FLU_WEEKS)] == flu


class Answer(io.BytesIO):
    """What a publisher sends."""


def whole_flu() -> str:
    text = TITLE + ILINET
    for year in range(2002, 2018):
        for week in range(1, 54):
            try:
                mmwr_week_end(year, week)
            except ValueError:
                continue
            text += f"National,X,{year},{week},1,1,1,1,X,1,X,1,{year + week},5,9\n"
    return text


def zipped(name: str, text: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, text)
    return content.getvalue()


def test_flu_download_asks_for_the_right_thing() -> None:
    """Without this, the request could ask for other seasons or levels, or wait for ever."""
    asked: list[tuple[urllib.request.Request, float]] = []

    def open_url(request: urllib.request.Request, timeout: float) -> Answer:
        asked.append((request, timeout))
        return Answer(zipped("ILINet.csv", whole_flu()))

    series = download.fetch("flu", open_url)
    assert series.counts.shape == (791, 1)
    assert series.counts[0, 0] == 2042
    request, timeout = asked[0]
    assert 0 < timeout <= 60
    assert isinstance(request.data, bytes)
    question = json.loads(request.data)
    assert request.get_method() == "POST"
    assert question["RegionTypeId"] == 3
    assert question["DatasourceDT"] == [{"ID": 1, "Name": "ILINet"}]
    assert [season["ID"] for season in question["SeasonsDT"]] == list(range(42, 58))


@pytest.mark.slow
def test_multi_flu_download_reads_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a table that grows beyond one page would be cut short."""
    weeks = [f"{y}{w:02d}" for y in range(2009, 2019) for w in range(1, 54) if not (w == 53 and y != 2014)]
    lines = nchs({(s, week): 1 for week in weeks for s in STATES}).splitlines(keepends=True)
    monkeypatch.setattr(download, "PAGE", 20_000)
    offsets = []

    def open_url(request: urllib.request.Request, timeout: float) -> Answer:
        assert timeout > 0
        query = urllib.parse.parse_qs(urllib.parse.urlparse(request.full_url).query)
        offset = int(query["$offset"][0])
        offsets.append(offset)
        return Answer("".join([lines[0], *lines[1 + offset : 1 + offset + 20_000]]).encode())

    assert download.fetch("multi-flu", open_url).counts.sum() == 441 * 51
    assert offsets == [0, 20_000]


def failing(error: BaseException) -> Any:
    def open_url(*_: object, **__: object) -> Answer:
        raise error

    return open_url


@pytest.mark.parametrize("name", ["flu", "multi-flu"])
@pytest.mark.parametrize(
    ("open_url", "reason"),
    [
        (failing(urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))), "Name or service not known"),
        (failing(urllib.error.HTTPError("u", 503, "Service Unavailable", None, None)), "503"),  # type: ignore[arg-type]
        (failing(TimeoutError("timed out")), "timed out"),
        (failing(ConnectionResetError("reset\nby peer")), "reset by peer"),
        (lambda *_, **__: Answer(b"<html>"), "zip|header"),
        (lambda *_, **__: Answer(b"\xff\xff"), "zip|utf-8"),
        (lambda *_, **__: Answer(zipped("other.csv", "")), r"no ILINet\.csv|utf-8|header"),
    ],
)
def test_a_failed_download_says_what_to_do(name: str, open_url: Any, reason: str) -> None:
    """Without this, a machine without network would show a traceback and no way on."""
    with pytest.raises(DpcrowdError, match=reason) as caught:
        download.fetch(name, open_url)
    message = str(caught.value)
    assert f"cannot download {name} from the CDC" in message
    assert f"dpcrowd data {name} --from" in message
    assert "\n" not in message


def test_an_endless_trickle_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a server that sends a byte now and then would hang the command for ever."""

    class Trickle(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return b"x"

    monkeypatch.setattr(download, "TOTAL_SECONDS", 0.01)
    with pytest.raises(DpcrowdError, match="not finished after"):
        download.fetch("flu", lambda *_, **__: Trickle())
    monkeypatch.setattr(download, "TOTAL_SECONDS", 60)
    monkeypatch.setattr(download, "LARGEST_BYTES", 1_000)
    with pytest.raises(DpcrowdError, match="more than"):
        download.fetch("multi-flu", lambda *_, **__: Trickle())


def test_converting_a_file_got_by_hand(tmp_path: Path) -> None:
    """Without this, the advice in the error message would lead nowhere."""
    (tmp_path / "ILINet.csv").write_text(whole_flu())
    (tmp_path / "FluViewPhase2Data.zip").write_bytes(zipped("ILINet.csv", whole_flu()))
    for name in ("ILINet.csv", "FluViewPhase2Data.zip"):
        assert download.convert("flu", tmp_path / name).counts.shape == (791, 1)
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    with pytest.raises(BadInput, match="cannot read"):
        download.convert("flu", tmp_path / "bad.zip")
    with pytest.raises(BadInput, match="does not exist"):
        download.convert("multi-flu", tmp_path / "none.csv")
