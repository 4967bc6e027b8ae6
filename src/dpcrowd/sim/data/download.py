"""Download the CDC series from their publisher, with limits on time and size, by the standard library alone.

The addresses are here and nowhere else. A failure is one line: what failed, and how to get the file by hand and
import it (`dpcrowd data NAME --from FILE`).
"""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.sim.data.cdc import FLU_WEEKS, WeeklyCounts, parse_ilinet, parse_nchs
from dpcrowd.sim.data.tables import read_text

__all__ = ["DownloadFailed", "convert", "fetch", "fetch_flu", "fetch_multi_flu"]

FLUVIEW_URL = "https://gis.cdc.gov/grasp/flu2/PostPhase02DataDownload"
FLUVIEW_PAGE = "https://gis.cdc.gov/grasp/fluview/fluportaldashboard.html"
NCHS_URL = "https://data.cdc.gov/resource/pp7x-dyj2.csv"
NCHS_EXPORT = "https://data.cdc.gov/api/views/pp7x-dyj2/rows.csv?accessType=DOWNLOAD"

NATIONAL = 3  # FluView's number for the national level
FIRST_SEASON_YEAR = 1960  # FluView numbers the season that starts in year y as y - 1960
PAGE = 50_000  # the most rows that the Socrata API gives at once
PAGES = 10
SILENCE_SECONDS = 30.0  # without a byte for this long: give up
TOTAL_SECONDS = 180.0
LARGEST_BYTES = 100_000_000

Opener = Callable[..., Any]

BY_HAND = {
    "flu": f"By hand: download ILINet (national, all seasons) from {FLUVIEW_PAGE}, then run "
    "'dpcrowd data flu --from ILINet.csv'.",
    "multi-flu": f"By hand: save {NCHS_EXPORT} as pp7x-dyj2.csv, then run "
    "'dpcrowd data multi-flu --from pp7x-dyj2.csv'.",
}


class DownloadFailed(DpcrowdError):
    """The publisher could not be reached, or sent something unexpected."""


def fetch(name: str, open_url: Opener = urllib.request.urlopen) -> WeeklyCounts:
    """Download flu or multi-flu; DownloadFailed says what failed and what to do instead."""
    steps = {"flu": fetch_flu, "multi-flu": fetch_multi_flu}
    try:
        return steps[name](open_url)
    except (OSError, HTTPException, zipfile.BadZipFile, UnicodeDecodeError, BadInput) as error:
        # URLError, HTTPError and timeouts are OSErrors. The reason may have line breaks: the message is one line.
        text = str(error.reason if type(error) is urllib.error.URLError else error)
        reason = " ".join(text.split()) or type(error).__name__
        raise DownloadFailed(f"cannot download {name} from the CDC: {reason.rstrip('.')}. {BY_HAND[name]}") from None


def fetch_flu(open_url: Opener = urllib.request.urlopen) -> WeeklyCounts:
    """Download the national ILINet data of FluView: a POST whose answer is a zip of CSV files."""
    first, last = FLU_WEEKS[0][0] - FIRST_SEASON_YEAR, FLU_WEEKS[1][0] - FIRST_SEASON_YEAR
    question = {
        "AppVersion": "Public",
        "DatasourceDT": [{"ID": 1, "Name": "ILINet"}],
        "RegionTypeId": NATIONAL,
        "SubRegionsDT": [{"ID": 0, "Name": ""}],
        "SeasonsDT": [{"ID": season, "Name": str(season)} for season in range(first, last + 1)],
    }
    headers = {"Content-Type": "application/json;charset=UTF-8", "Referer": FLUVIEW_PAGE}
    request = urllib.request.Request(FLUVIEW_URL, data=json.dumps(question).encode(), headers=headers, method="POST")
    return parse_ilinet(_unzip(_download(request, open_url), "ILINet.csv"))


def fetch_multi_flu(open_url: Opener = urllib.request.urlopen) -> WeeklyCounts:
    """Download table pp7x-dyj2 of data.cdc.gov, page by page."""
    text = ""
    for page in range(PAGES):
        query = urllib.parse.urlencode({"$limit": PAGE, "$offset": page * PAGE, "$order": ":id"})
        part = _download(urllib.request.Request(f"{NCHS_URL}?{query}"), open_url).decode("utf-8-sig")
        lines = part.splitlines(keepends=True)
        text += part if page == 0 else "".join(lines[1:])
        if len(lines) - 1 < PAGE:
            break
    return parse_nchs(text)


def convert(name: str, path: Path) -> WeeklyCounts:
    """Read the series from a file that the user got from the publisher: CSV, or FluView's zip."""
    if name == "flu" and path.suffix.lower() == ".zip":
        try:
            return parse_ilinet(_unzip(path.read_bytes(), "ILINet.csv"))
        except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read '{path}': {error}.") from None
    text = read_text(path)
    try:
        return parse_ilinet(text) if name == "flu" else parse_nchs(text)
    except BadInput as error:
        raise BadInput(f"'{path}': {error}") from None


def _unzip(content: bytes, member: str) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            if info.filename.lower().endswith(member.lower()) and info.file_size <= LARGEST_BYTES:
                return archive.read(info).decode("utf-8-sig")
    raise BadInput(f"the zip file has no {member}")


def _download(request: urllib.request.Request, open_url: Opener) -> bytes:
    """Return the complete answer; besides the socket's timeout there is a deadline, for an answer that never ends."""
    request.add_header("User-Agent", "dpcrowd")
    deadline = time.monotonic() + TOTAL_SECONDS
    content = bytearray()
    with open_url(request, timeout=SILENCE_SECONDS) as answer:
        while piece := answer.read(65_536):
            content += piece
            if len(content) > LARGEST_BYTES:
                raise OSError(f"more than {LARGEST_BYTES // 1_000_000} MB")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not finished after {TOTAL_SECONDS:.0f} s")
    return bytes(content)
