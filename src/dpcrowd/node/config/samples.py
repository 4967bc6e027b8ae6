"""Commented samples of both files, which load without an error; `dpcrowd init` writes them.

The basic sample has what everybody needs; the advanced one also shows every other setting, as a comment with its
default. The texts are in the two files `*.sample.toml` beside this module; in them a tab precedes the comment of a
line, and '#+' begins a line that is only in the advanced sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Literal

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.pins import key_text
from dpcrowd.schemes.base import USUAL_TURNOVER

__all__ = [
    "EPSILON",
    "POPULATION",
    "REGIONS",
    "WINDOW",
    "sample_names",
    "sample_network",
    "sample_node",
    "usual_process_var",
]

_MOST = 1_000
_COLUMN = 36
POPULATION, REGIONS = 20_000, ("north", "east", "south", "west")
WINDOW, EPSILON = 100, "1"
_ADAPTIVE = (
    '#+ sampling = "adaptive"\t# dpcrowd, dpcrowd-w; "fixed", "staggered", "lockstep" with an interval\n'
    "#+ interval = 10\t# slots from sample to sample"
)
_RECORDS = {
    "samples": ("10", "relay: per window or horizon, each with an equal part of epsilon; see `dpcrowd plan`"),
    "reach": ('"all"', "relay: how many links a record travels; see `dpcrowd plan`"),
    "lag": ("16", "relay: how many slots a record may be late"),
    "guard": ("true", "relay: whether records that are far off count less"),
    "groups": ('"off"', 'relay: "auto" lets small regions share one draw of noise'),
    "share_width": ("0.0", "relay: typical relative error of shares; above 0, servers learn them"),
    "meetings": ("false", "relay: whether servers sample together with others in turn, to compare learned shares"),
}
"""The settings of relay with their defaults, and what they mean."""
_TURNOVER = "part of a server's users who are replaced per slot; 1 where the crowd is new in every slot"


def sample_names(servers: int) -> tuple[str, ...]:
    """Return the names server-1, server-2, ..."""
    if isinstance(servers, bool) or not isinstance(servers, int) or not 1 <= servers <= _MOST:
        raise BadInput(f"a sample network has 1 to {_MOST} servers; given {servers}.")
    return tuple(f"server-{number + 1}" for number in range(servers))


def sample_network(
    servers: int | Sequence[str],
    *,
    advanced: bool = False,
    network_id: str = "sample",
    epoch: str = "2026-01-01T00:00:00Z",
    slot: str = "1m",
    grace: str = "5s",
    deadline: str = "10s",
    population: int = POPULATION,
    regions: Sequence[str] = REGIONS,
    kind: str = "window",
    length: int = WINDOW,
    epsilon: str = EPSILON,
    users: str = "pinned",
    servers_per_slot: int = 1,
    regions_per_slot: int = 1,
    correlation: float = 1.0,
    scheme: str = "dpcrowd-w",
    interval: int | None = 1,
    samples: int | None = None,
    reach: int | Literal["all"] | None = None,
    lag: int | None = None,
    groups: str | None = None,
    turnover: float | None = None,
    share_width: float | None = None,
    meetings: bool | None = None,
    process_var: float | Sequence[float] | None = None,
    model: str | None = None,
    learn: bool | None = None,
    observation: str = "binomial",
    shares: Mapping[str, float] | None = None,
    shares_by_region: Mapping[str, Mapping[str, float]] | None = None,
    links: Sequence[tuple[str, str]] | None = None,
    keys: Mapping[str, str] | None = None,
    endpoints: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a network.toml.

    servers      the number of servers, or their names
    shares       by server; default: equal shares that add up to 1
    shares_by_region  by server and region, where they differ
    links        pairs of servers; default: a ring
    keys         "ed25519:..." by server; default: placeholders that load, but have no private key
    endpoints    "tls/host:port" by server; default: ports of this machine from 7447 on
    interval     slots from sample to sample; None: adaptive sampling, the only kind that dpcrowd-plus has; relay has
                 `samples`, `reach`, `lag`, `groups`, `share_width` and `meetings` instead, and those that are None have
                 its defaults
    turnover     None: 0.05 where users may stay and filters would know it: pinned users and binomial counts
    process_var  Q, one number or one per region; default: `usual_process_var`
    model        the name of a process model's file beside the network.toml, instead of process_var
    learn        whether servers learn how well the model fits; None: the default
    """
    if turnover is None and users == "pinned" and observation == "binomial":
        turnover = USUAL_TURNOVER
    names = sample_names(servers) if isinstance(servers, int) else tuple(servers)
    variance = usual_process_var(population, len(regions)) if process_var is None else process_var
    of_relay = {
        "samples": samples,
        "reach": quoted(reach) if isinstance(reach, str) else reach,
        "lag": lag,
        "groups": None if groups is None else quoted(groups),
        "share_width": share_width,
        "meetings": None if meetings is None else str(meetings).lower(),
    }
    text = _template("network").substitute(
        id=quoted(network_id),
        epoch=quoted(epoch),
        slot=quoted(slot),
        grace=quoted(grace),
        deadline=quoted(deadline),
        population=population,
        regions=", ".join(quoted(region) for region in regions),
        kind=quoted(kind),
        length=length,
        epsilon=quoted(epsilon),
        users=_unless("users", quoted(users), quoted("pinned")),
        servers_per_slot=_unless("servers_per_slot", servers_per_slot, 1),
        regions_per_slot=_unless("regions_per_slot", regions_per_slot, 1),
        correlation=_unless("correlation", correlation, 1.0),
        scheme=quoted(scheme),
        schedule=_records(of_relay) if scheme == "relay" else _schedule(interval),
        others=_ADAPTIVE if scheme == "relay" else _records({}),
        turnover=f"{'#+ turnover = 1.0' if turnover is None else f'turnover = {turnover!r}'}\t# {_TURNOVER}",
        process_var=f"{'' if model is None else '#+ '}process_var = {_numbers(variance)}",
        model=f"{'#+ ' if model is None else ''}model = {quoted(model or 'model.toml')}",
        learn="#+ learn = true" if learn is None else f"learn = {str(learn).lower()}",
        observation=_observation(observation),
        servers="\n".join(
            _server(
                name,
                number,
                (shares or {}).get(name, _equal_share(len(names))),
                (shares_by_region or {}).get(name, {}),
                keys or {},
                endpoints or {},
            )
            for number, name in enumerate(names)
        ),
        links="\n".join(
            f"[[link]]\nbetween = [{quoted(a)}, {quoted(b)}]\n" for a, b in (_ring(names) if links is None else links)
        ),
    )
    return _format_sample(text, advanced)


def sample_node(
    server: str,
    *,
    advanced: bool = False,
    network: str = "network.toml",
    data: str = "data",
    key: str = "keys/node.key",
    certificate: str = "keys/node.crt",
    ca: str = "keys/ca.crt",
    transport: str = "tls/0.0.0.0:7447",
    http: str = "127.0.0.1:8080",
    checkin: Sequence[str] = (),
    read: Literal["open"] | Sequence[str] = (),
    admin: Sequence[str] = (),
    needs_feed: bool = False,
) -> str:
    """Return the text of a node.toml, with tokens as they are written there, see `token_hash`."""
    values = {
        name: quoted(value)
        for name, value in (
            ("server", server),
            ("network", network),
            ("data", data),
            ("key", key),
            ("certificate", certificate),
            ("ca", ca),
            ("transport", transport),
            ("http", http),
        )
    }
    lists = {name: _list(tokens) for name, tokens in (("checkin", checkin), ("admin", admin))}
    text = _template("node").substitute(
        values,
        read=quoted(read) if isinstance(read, str) else _list(read),
        ingest="[ingest]" if needs_feed else "#+ [ingest]",
        needs_feed=_unless("needs_feed", str(needs_feed).lower(), "false"),
        **lists,
    )
    return _format_sample(text, advanced)


def quoted(text: str) -> str:
    """Return a text as a TOML basic string."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain) + '"'


def placeholder_key(name: str) -> str:
    """Return a text that looks like a public key, but for which nobody can sign."""
    return key_text(hashlib.sha256(f"placeholder of {name}".encode()).digest())


def usual_process_var(population: int, regions: int) -> float:
    """Return the process variance of a sample network: a change of 3% of a region's people per slot."""
    return float((0.03 * population / max(1, regions)) ** 2)


def _equal_share(servers: int) -> float:
    """Return the share of each server, rounded down: the sum of all shares must not exceed 1."""
    return int(1e6 / servers) / 1e6


def _unless(name: str, value: object, default: object) -> str:
    """Return a setting, as a comment of the advanced sample if it has its default."""
    return f"{'#+ ' if value == default else ''}{name} = {value}"


def _observation(name: str) -> str:
    """Return the setting with a comment on the value that it has; the default is in the advanced sample only."""
    comments = {
        "binomial": 'a share is a random sample of the crowd; "paper": the paper\'s model',
        "paper": 'the paper\'s model, too narrow for real counts; "binomial": a share is a random sample of the crowd',
    }
    return f"{_unless('observation', quoted(name), quoted('binomial'))}\t# {comments[name]}"


def _numbers(value: float | Sequence[float]) -> str:
    if isinstance(value, Sequence):
        return "[" + ", ".join(f"{number!r}" for number in value) + "]"
    return f"{value:.12g}"


def _server(
    name: str,
    number: int,
    share: float,
    shares: Mapping[str, float],
    keys: Mapping[str, str],
    endpoints: Mapping[str, str],
) -> str:
    by_region = ", ".join(f"{quoted(region)} = {part!r}" for region, part in shares.items())
    lines = [
        "[[server]]",
        f"name = {quoted(name)}",
        f"share = {share!r}",
        *([f"shares = {{ {by_region} }}"] if shares else []),
        f"endpoint = {quoted(endpoints.get(name, f'tls/127.0.0.1:{7447 + number}'))}",
        f"keys = [{quoted(keys.get(name, placeholder_key(name)))}]"
        + ("" if name in keys else "\t# a placeholder; `dpcrowd keys show` prints the real one"),
        "",
    ]
    return "\n".join(lines)


def _schedule(interval: int | None) -> str:
    """Return the settings of the schedule; equal parts of epsilon last longest, see `dpcrowd.node.forecast`."""
    if interval is None:
        return _ADAPTIVE
    return (
        'sampling = "fixed"\t# an equal part of epsilon for every sample; also "staggered", "lockstep", "adaptive"\n'
        f"interval = {interval}\t# slots from sample to sample; leave it out if adaptive"
    )


def _records(values: Mapping[str, object]) -> str:
    """Return the settings of relay; those that are missing or None as comments of the advanced sample."""
    return "\n".join(
        f"#+ {name} = {default}\t# {text}" if values.get(name) is None else f"{name} = {values[name]}\t# {text}"
        for name, (default, text) in _RECORDS.items()
    )


def _ring(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the links of a ring: every server to the next; two servers have one link, one server none."""
    ring = [(names[i], names[(i + 1) % len(names)]) for i in range(len(names))]
    return ring if len(names) > 2 else ring[: len(names) - 1]


def _list(tokens: Sequence[str]) -> str:
    return "[" + ", ".join(quoted(token) for token in tokens) + "]"


def _template(name: str) -> Template:
    return Template(files("dpcrowd.node.config").joinpath(f"{name}.sample.toml").read_text(encoding="utf-8"))


def _format_sample(text: str, advanced: bool) -> str:
    """Return a sample with its comments in one column; lines of the advanced sample (#+) become comments."""
    lines = []
    for line in text.splitlines():
        if not advanced and line.startswith("#+"):
            continue
        bare = line.replace("#+", "#", 1) if line.startswith("#") else line
        setting, tab, comment = bare.partition("\t# ")  # `quoted` leaves no tab in a value
        lines.append(f"{setting:<{_COLUMN}}  # {comment}" if tab else setting)
    return "\n".join(lines).rstrip() + "\n"
