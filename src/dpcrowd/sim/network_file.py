"""The graph and the shares of a network.toml, as far as a simulation or a plan needs them.

    [[server]]  name, share        [[link]]  between = [name, name]

Everything else in the file is for live servers, whose own reader checks it (`dpcrowd node doctor`).
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, unknown_name

__all__ = ["NetworkFile", "is_network_file", "read_network_file"]


@dataclass(frozen=True)
class NetworkFile:
    """Names, shares (None where one is missing) and links of a network's servers, by their number."""

    names: tuple[str, ...]
    shares: tuple[float, ...] | None
    links: tuple[tuple[int, int], ...]

    @property
    def text(self) -> str:
        """The links as `dpcrowd.network.adjacency` reads them."""
        return "".join(f"{a},{b}\n" for a, b in self.links)


def is_network_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a TOML file."""
    return Path(path).suffix.lower() == ".toml"


def read_network_file(path: str | os.PathLike[str]) -> NetworkFile:
    """Read the servers and links of a network.toml."""
    file = Path(path)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read network file '{file}': {error.strerror or error}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"network file '{file}' is not TOML: {error}.") from None
    servers, links = _tables(document, "server", file), _tables(document, "link", file)
    names = [server.get("name") for server in servers]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise BadInput(f"the [[server]] tables of '{file}' need different names; give each server one.")
    numbers = {str(name): number for number, name in enumerate(names)}
    shares = [server.get("share") for server in servers]
    numeric = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares)
    return NetworkFile(
        tuple(numbers),
        tuple(float(share) for share in shares if share is not None) if numeric else None,
        tuple(_ends(link, numbers, file) for link in links),
    )


def _tables(document: dict[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"'{name}' of '{file}' must be tables [[{name}]].")
    if not tables:
        raise BadInput(f"'{file}' has no [[{name}]]; give a network.toml with its servers and links.")
    return tables


def _ends(link: dict[str, Any], numbers: dict[str, int], file: Path) -> tuple[int, int]:
    ends = link.get("between")
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
        raise BadInput(f"a [[link]] of '{file}' has between = {ends!r}; allowed: the names of two servers.")
    if "from_slot" in link or "until_slot" in link:
        raise BadInput(
            f"the link {ends[0]}-{ends[1]} of '{file}' begins or ends in some slot; give a file whose links stay."
        )
    for end in ends:
        if end not in numbers:
            raise unknown_name(f"server in a [[link]] of '{file}'", end, numbers)
    return numbers[ends[0]], numbers[ends[1]]
