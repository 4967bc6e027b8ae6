"""Shares from a file: a CSV with the columns `server,share`, or `server,region,share` where they differ by region.

    server,region,share
    clinic-a,north,0.6
    clinic-a,south,0.1

Cells may be separated by semicolons or tabs, as in files of counts; the shares may then have a decimal comma, as
spreadsheets write them.

Servers are those of a network.toml, by their names, or numbers from 0; other names are numbered as they come. Every
server needs a share in every region. Shares of a region that sum to 1 up to their rounding to six decimals are divided
by their sum: they are a partition.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np

from dpcrowd.arrays import Shares
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.sim.data.shares import without_regions, without_rounding
from dpcrowd.sim.data.tables import delimiter_of

__all__ = ["ShareFile", "is_share_file", "read_shares"]

_COLUMNS = ({"server", "share"}, {"server", "region", "share"})


@dataclass(frozen=True)
class ShareFile:
    """The contents of a file of shares.

    servers    their names, in the order of their first lines
    by_region  whether the file has a column of regions
    values     shares by server and region; without that column the region is None
    """

    path: str
    servers: tuple[str, ...]
    by_region: bool
    values: dict[tuple[str, str | None], float]

    def shares(self, names: Sequence[str] | None, regions: Sequence[str], *, selected: bool = False) -> Shares:
        """Return the shares (m,), or (1, m, d) where they differ by region.

        names     of the servers, by number; None: they have none
        regions   of the data
        selected  whether these are some regions of the data, so that the file may have others
        """
        servers = self._order() if names is None else tuple(names)
        unknown = [name for name in self.servers if name not in set(servers)]
        if unknown:
            raise BadInput(f"'{self.path}': {unknown_name('server', unknown[0], servers)}")
        if not self.by_region:
            missing = [name for name in servers if (name, None) not in self.values]
            if missing:
                raise BadInput(f"'{self.path}' has no share of server '{missing[0]}'; add a line for it.")
            return without_rounding(np.array([self.values[name, None] for name in servers]))
        others = [region for _, region in self.values if region is not None and region not in set(regions)]
        if others and not selected:
            raise BadInput(f"'{self.path}': {unknown_name('region', others[0], regions)}")
        for name in servers:
            for region in regions:
                if (name, region) not in self.values:
                    raise BadInput(
                        f"'{self.path}' has no share of server '{name}' in region '{region}'; add a line for it. Every "
                        "server needs a share in every region."
                    )
        values = np.array([[[self.values[name, region] for region in regions] for name in servers]])
        return without_rounding(without_regions(values))

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the servers, by number; None: the file has numbers from 0 instead of names."""
        numbers = {str(number) for number in range(len(self.servers))}
        return None if numbers == set(self.servers) else self.servers

    def _order(self) -> tuple[str, ...]:
        """Return the servers by number: numbers from 0 are those numbers, other names are numbered as they come."""
        return self.names or tuple(str(number) for number in range(len(self.servers)))


def is_share_file(shares: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether shares are given as the path of a CSV file, and not as a kind or as numbers."""
    return isinstance(shares, os.PathLike) or (isinstance(shares, str) and shares.lower().endswith(".csv"))


def read_shares(path: str | os.PathLike[str]) -> ShareFile:
    """Read a file of shares."""
    where = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(
            f"cannot read the file of shares '{where}': {error.strerror or error}. Give a CSV file with the columns "
            "server,share or server,region,share."
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"the file of shares '{where}' is not UTF-8 text; give a CSV file.") from None
    if not text.strip():
        raise BadInput(
            f"'{where}' is empty; expected a header, server,share or server,region,share, and one line per server, or "
            "server and region."
        )
    delimiter = delimiter_of(text)
    lines = csv.reader(text.splitlines(), delimiter=delimiter)
    header = [name.strip().lower() for name in next(lines, [])]
    if set(header) not in _COLUMNS or len(set(header)) < len(header):
        raise BadInput(
            f"'{where}' has the columns {','.join(header) or '(none)'}; allowed: server,share, or server,region,share, "
            "separated by commas, semicolons or tabs."
        )
    values: dict[tuple[str, str | None], float] = {}
    for row in lines:
        if not any(cell.strip() for cell in row):
            continue
        here = f"'{where}', line {lines.line_num}"
        if len(row) != len(header):
            raise BadInput(f"{here} has {counted(len(row), 'cell')}; allowed: {len(header)}, as in the header.")
        cells = dict(zip(header, (cell.strip() for cell in row), strict=True))
        key = cells["server"], cells.get("region")
        if key in values:
            place = f"server '{key[0]}'" + (f" in region '{key[1]}'" if key[1] is not None else "")
            raise BadInput(f"{here} has a second share of {place}; give one.")
        share = cells["share"] if delimiter == "," else cells["share"].replace(",", ".")
        values[key] = _share(share, here)
    if not values:
        raise BadInput(f"'{where}' has no shares below its header; give one line per server, or server and region.")
    return ShareFile(where, tuple(dict.fromkeys(server for server, _ in values)), "region" in header, values)


def _share(text: str, here: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise BadInput(f"{here} has the share '{text}'; allowed: a number above 0 and at most 1.") from None
    if not 0.0 < share <= 1.0:
        raise BadInput(
            f"{here} has the share {share:g}; allowed: above 0 and at most 1. Where a server sees nobody, give a small "
            "share such as 0.0001."
        )
    return share
