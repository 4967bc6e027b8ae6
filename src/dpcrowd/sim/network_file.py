"""The graph, the shares and the public settings of a network.toml, as far as a simulation or a plan needs them.

    [[server]]   name, share, shares                   [[link]]   between = [name, name]
    [network]    slot, regions                  [guarantee]   all
    [scheme]     process_var or model; learn; observation; of relay also samples or interval, reach, lag, turnover,
                 groups, share_width

Everything else in the file is for live servers, whose own reader checks it (`dpcrowd node doctor`).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.arrays import Shares
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.models.file import parse_model, read_model
from dpcrowd.models.model import Model
from dpcrowd.models.season import SECOND, SlotTimes
from dpcrowd.schemes.base import check_share_width
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.data.checkins import slot_length_us
from dpcrowd.sim.data.shares import without_rounding

__all__ = ["NetworkFile", "is_network_file", "read_network_file", "read_network_process"]


@dataclass(frozen=True)
class NetworkFile:
    """Names, shares (None where one is missing) and links of a network's servers, by their number.

    shares    those that sum to 1 up to their rounding to six decimals are divided by their sum: they are a partition
    by_region the shares of each server by region; None unless every server has them
    regions   their names; empty if the file has none
    settings  what else the file states, by the names of `dpcrowd.plan`; the slot is in seconds
    crowd     turnover, groups and share_width of relay, as far as the file states them
    model     the process model of [scheme]: the name of its file beside this one, or its text, as in a node's own copy
    learn     whether servers learn how well the model fits, or without one how large Q is; None: the file does not say
    transition  A of [scheme], as the file states it
    meetings  whether [scheme] lets servers meet in turn
    scheme    the name in [scheme]; None: the file has none
    """

    path: str
    names: tuple[str, ...]
    shares: tuple[float, ...] | None
    links: tuple[tuple[int, int], ...]
    regions: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_region: tuple[Mapping[str, float], ...] | None = None
    crowd: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    learn: bool | None = None
    transition: Any = 1.0
    meetings: bool = False
    scheme: str | None = None

    def shares_of(self, regions: Sequence[str]) -> Shares | None:
        """Return the shares (m,), or (1, m, d) where the file has them by region; None: it has none."""
        if self.by_region is None:
            return None if self.shares is None else np.array(self.shares)
        for name, shares in zip(self.names, self.by_region, strict=True):
            for region in regions:
                if region not in shares:
                    raise BadInput(
                        f"'{self.path}' has no share of server '{name}' in region '{region}', which the data have; "
                        "give --shares, or data of its regions."
                    )
        return without_rounding(np.array([[[shares[region] for region in regions] for shares in self.by_region]]))

    @property
    def model_path(self) -> Path | None:
        """The file of the process model; None: there is no model, or its text is in this file."""
        if self.model is None or "\n" in self.model:
            return None
        return Path(self.path).parent / self.model

    @property
    def model_name(self) -> str:
        """What to call the process model in messages."""
        return f"model of '{self.path}'" if self.model_path is None else f"model '{self.model}' of '{self.path}'"

    def read_model(self) -> Model:
        """Return the process model, or refuse it for what a live node refuses it for."""
        assert self.model is not None
        path = self.model_path
        try:
            model = parse_model(self.model, "the model") if path is None else read_model(path)
            seconds = self.settings.get("slot")
            length = model.slot if seconds is None else round(seconds * SECOND)
            if self.regions:
                model.process_model(self.regions, None if length is None else SlotTimes(0, length))
        except BadInput as error:
            raise BadInput(f"the {self.model_name} cannot be used: {error}") from None
        return model

    @property
    def text(self) -> str:
        """The links as `dpcrowd.network.adjacency` reads them."""
        return "".join(f"{a},{b}\n" for a, b in self.links)


def is_network_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a TOML file, and not of another one, or the name of a graph."""
    if not isinstance(path, str | os.PathLike):
        raise BadInput(f"graph={path!r}; allowed: the name of a graph such as 'random', or the path of a file.")
    return Path(path).suffix.lower() == ".toml"


def read_network_file(path: str | os.PathLike[str]) -> NetworkFile:
    """Read the servers and links of a network.toml."""
    file = Path(path)
    document = _document(file)
    servers, links = _tables(document, "server", file), _tables(document, "link", file)
    names = [server.get("name") for server in servers]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise BadInput(f"the [[server]] tables of '{file}' need different names; give each server one.")
    numbers = {str(name): number for number, name in enumerate(names)}
    shares = [server.get("share") for server in servers]
    for server, share in zip(servers, shares, strict=True):
        if isinstance(share, dict):
            raise BadInput(
                f"share of server '{server['name']}' in '{file}' is a table; allowed: one number. Shares by region "
                "belong in 'shares', beside 'share'."
            )
    numeric = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares)
    regions = _regions(document, file)
    return NetworkFile(
        str(file),
        tuple(numbers),
        tuple(without_rounding(np.array(shares, dtype=np.float64)).tolist()) if numeric else None,
        tuple(_ends(link, numbers, file) for link in links),
        regions,
        _settings(document, file),
        _by_region(servers, regions, file),
        _crowd(_table(document, "scheme", file), file),
        *_model(_table(document, "scheme", file), file),
        meetings=_meetings(document, file),
        scheme=_table(document, "scheme", file).get("name"),
    )


def read_network_process(path: str | os.PathLike[str]) -> NetworkFile:
    """Read what a network.toml says of regions, slot, groups and model; whatever its servers and links are."""
    file = Path(path)
    document = _document(file)
    scheme = _table(document, "scheme", file)
    model, learn = _model(scheme, file)
    settings, regions = _settings(document, file), _regions(document, file)
    transition = scheme.get("transition", 1.0)
    return NetworkFile(str(file), (), None, (), regions, settings, None, _crowd(scheme, file), model, learn, transition)


def _document(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read network file '{file}': {error.strerror or error}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"network file '{file}' is not TOML: {error}.") from None


def _regions(document: dict[str, Any], file: Path) -> tuple[str, ...]:
    """Return the names of the regions; none if the file has none."""
    regions = _table(document, "network", file).get("regions", [])
    return tuple(str(region) for region in regions) if isinstance(regions, list) else ()


def _by_region(
    servers: list[dict[str, Any]], regions: tuple[str, ...], file: Path
) -> tuple[Mapping[str, float], ...] | None:
    """Return the shares of the servers by region; a server without them has its one share in every region."""
    if not any("shares" in server for server in servers):
        return None
    rows = []
    for server in servers:
        shares = server.get("shares", dict.fromkeys(regions, server.get("share")))
        numeric = isinstance(shares, dict) and all(
            isinstance(share, int | float) and not isinstance(share, bool) for share in shares.values()
        )
        if not numeric:
            raise BadInput(f"the shares of server '{server.get('name')}' in '{file}' must be numbers by region.")
        rows.append({region: float(share) for region, share in shares.items()})
    return tuple(rows)


def _settings(document: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return what the file states about slot, guarantee and scheme; nothing for what it leaves out."""
    general, guarantee, scheme = (_table(document, name, file) for name in ("network", "guarantee", "scheme"))
    settings: dict[str, Any] = {}
    try:
        if "slot" in general:
            settings["slot"] = _seconds(general["slot"])
        if "length" in guarantee:
            settings["horizon" if guarantee.get("kind") == "finite" else "window"] = guarantee["length"]
        if "epsilon" in guarantee:
            settings["epsilon"] = float(guarantee["epsilon"])
        names = ("users", "servers_per_slot", "regions_per_slot", "correlation")
        settings |= {name: guarantee[name] for name in names if name in guarantee}
        if scheme:
            settings["observation"] = scheme.get("observation", "binomial")  # the default of live servers
        if "process_var" in scheme:
            settings["process_var"] = scheme["process_var"]
        if "turnover" in scheme:
            settings["turnover"] = scheme["turnover"]
        if scheme.get("name") == Relay.name:
            settings |= {name: scheme[name] for name in ("samples", "lag") if name in scheme}
            settings["reach"] = scheme.get("reach", "all")
            if "interval" in scheme and "length" in guarantee:
                settings["samples"] = Relay(interval=scheme["interval"]).samples_per(guarantee["length"])
    except (BadInput, TypeError, ValueError) as error:
        raise BadInput(f"a setting of '{file}' is wrong: {str(error).rstrip('.')}; correct the file.") from None
    return settings


def _crowd(scheme: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return what the section of the scheme states of users, and relay's of regions and shares."""
    names = ("turnover", "groups", "share_width") if scheme.get("name") == Relay.name else ("turnover",)
    stated: dict[str, Any] = {name: scheme[name] for name in names if name in scheme}
    for name, value in stated.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name != "groups" and not is_number:
            raise BadInput(f"scheme.{name} of '{file}' is {value!r}; allowed: a number. Correct the file.")
    try:
        check_share_width(stated.get("share_width", 0.0))
    except BadInput as error:
        raise BadInput(f"a setting of '{file}' is wrong: {str(error).rstrip('.')}; correct the file.") from None
    return stated


def _meetings(document: dict[str, Any], file: Path) -> bool:
    """Return whether relay's schedules let servers meet in turn, or refuse what a live node refuses."""
    scheme = _table(document, "scheme", file)
    meetings = scheme.get("meetings", False)
    if not isinstance(meetings, bool):
        raise BadInput(f"scheme.meetings of '{file}' is {meetings!r}; allowed: true or false. Correct the file.")
    if not meetings:
        return False
    users = _table(document, "guarantee", file).get("users", "pinned")
    for wrong, why in (
        (scheme.get("name") != Relay.name, f"the scheme is {scheme.get('name')!r}, and they are for relay"),
        (not scheme.get("share_width"), "there is no share_width, and they are for servers that learn shares"),
        (users != "pinned", f"users are {users!r}, where all servers sample in the same slots anyway"),
    ):
        if wrong:
            raise BadInput(f"scheme.meetings of '{file}' is true, but {why}. Leave meetings out of the file.")
    return True


def _model(scheme: dict[str, Any], file: Path) -> tuple[str | None, bool | None]:
    """Return the name or text of the process model, and whether servers learn how well it fits."""
    model, learn = scheme.get("model"), scheme.get("learn")
    if model is not None and not isinstance(model, str):
        raise BadInput(f"scheme.model of '{file}' is {model!r}; allowed: the name of a file beside it.")
    if learn is not None and not isinstance(learn, bool):
        raise BadInput(f"scheme.learn of '{file}' is {learn!r}; allowed: true or false.")
    for name in ("process_var", "transition"):
        if model is not None and name in scheme:
            raise BadInput(
                f"scheme.{name} of '{file}' is given beside a model, which has its own; leave one of them out."
            )
    return model, learn


def _seconds(length: object) -> float:
    """Return the seconds of a duration such as "15m" or "1500ms"."""
    text = str(length)
    return float(text.removesuffix("ms")) / 1e3 if text.endswith("ms") else slot_length_us(text) / 1e6


def _table(document: dict[str, Any], name: str, file: Path) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise BadInput(f"'{name}' of '{file}' must be a table [{name}].")
    return table


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
