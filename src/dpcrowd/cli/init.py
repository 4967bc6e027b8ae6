"""`dpcrowd init`: write a commented sample network into a new folder, ready to run on one machine with --dev."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpcrowd.cli import options
from dpcrowd.errors import BadInput, MissingExtra, counted

if TYPE_CHECKING:
    from dpcrowd.cli.init_network import NewNetwork

__all__ = ["init"]

_LAST_PORT = 65_535


@click.command(name="init")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--servers", type=int, default=3, show_default=True, help="Number of servers of the network.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Make the network that `dpcrowd plan --toml FILE` has planned: servers, links, regions, guarantee and scheme.",
)
@click.option(
    "--scheme",
    default="relay",
    show_default=True,
    metavar="NAME",
    help="Scheme of the network: relay, dpcrowd (finite), dpcrowd-w or dpcrowd-plus.",
)
@click.option("--advanced", is_flag=True, help="Write every setting, those with a default as comments.")
@click.option("--slot", default="1m", show_default=True, help="Length of a slot, from 1s to 1d.")
@click.option("--dev", is_flag=True, help="Create the keys of all servers here, for a trial on this machine.")
@click.option(
    "--port",
    type=int,
    default=7447,
    show_default=True,
    help="Port on which the first server listens for neighbours; the next servers have the next ports.",
)
@click.option(
    "--http-port",
    type=int,
    default=8080,
    show_default=True,
    help="Port of the HTTP API of the first server; the next servers have the next ports.",
)
@click.option("--json", "as_json", is_flag=True, help="Print names, files and tokens as JSON.")
@click.pass_context
def init(
    ctx: click.Context,
    /,
    folder: Path,
    servers: int,
    plan_file: Path | None,
    scheme: str,
    advanced: bool,
    slot: str,
    dev: bool,
    port: int,
    http_port: int,
    as_json: bool,
) -> None:
    """Write a sample network: network.toml, and a folder with a node.toml per server.

    Tokens are created and shown once; the files contain their hashes. DIR must be new or empty.
    """
    from dpcrowd.cli.init_network import MODEL_FILE, planned_network, sample_of_scheme

    if plan_file is None:
        network = sample_of_scheme(servers, scheme, options.live_slot(slot))
    else:
        explicit = {
            name: value
            for name, value in {"servers": servers, "scheme": scheme, "slot": slot}.items()
            if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        }
        network = planned_network(plan_file, explicit, None if "slot" not in explicit else options.live_slot(slot))
    for warning in network.warnings:
        click.echo(f"warning: {warning}", err=True)
    number = len(network.names)
    for option, first in {"--port": port, "--http-port": http_port}.items():
        if not 1 <= first <= _LAST_PORT - number + 1:
            raise BadInput(
                f"{option} is {first}; allowed: 1 to {_LAST_PORT - number + 1} for {counted(number, 'server')}."
            )
    if abs(port - http_port) < number:
        raise BadInput(
            f"--port {port} and --http-port {http_port}: {number} ports from each on would overlap; set them at least "
            f"{number} apart."
        )
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise BadInput(f"'{folder}' exists already and is not replaced; choose a new or an empty folder.")
    # Everything is written beside the folder and moved at the end: whoever sees the folder sees it complete.
    temporary = folder.parent / f".{folder.name or 'network'}.{secrets.token_hex(4)}"
    try:
        temporary.mkdir(mode=0o700, parents=True)
        now = datetime.now(UTC)
        epoch = network.epoch(int(now.timestamp()) * 10**9, dev=dev)
        tokens = _write(temporary, network, port, http_port, now, epoch, advanced=advanced, dev=dev)
        if folder.is_dir():  # it may be the current folder, which cannot be replaced
            for path in sorted(temporary.iterdir()):
                path.rename(folder / path.name)
        else:
            temporary.rename(folder)
    except OSError as error:
        raise BadInput(f"cannot write '{folder}': {error.strerror or error}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    model = None if network.model is None else folder / MODEL_FILE
    _report(folder, network, tokens, http_port, model, epoch, dev=dev, as_json=as_json)


def _write(
    folder: Path,
    network: NewNetwork,
    port: int,
    http_port: int,
    now: datetime,
    epoch: int,
    *,
    advanced: bool,
    dev: bool,
) -> dict[str, dict[str, str]]:
    """Write both kinds of files, and with `dev` the keys; return the tokens by server and right."""
    from dpcrowd.cli.init_network import MODEL_FILE
    from dpcrowd.node.config import load_pair, token_hash
    from dpcrowd.node.config.samples import sample_node
    from dpcrowd.privacy.units import utc_text

    names = network.names
    endpoints = {name: f"tls/127.0.0.1:{port + number}" for number, name in enumerate(names)}
    text = network.text(
        advanced=advanced,
        network_id="trial" if dev else "sample",
        epoch=utc_text(epoch),
        keys=_make_keys(folder, names, now) if dev else {},
        endpoints=endpoints,
    )
    (folder / "network.toml").write_text(text, encoding="utf-8")
    if network.model is not None:
        (folder / MODEL_FILE).write_text(network.model, encoding="utf-8", newline="\n")
    tokens: dict[str, dict[str, str]] = {}
    for number, name in enumerate(names):
        rights = ("checkin", "admin") if dev else ("checkin", "read", "admin")
        tokens[name] = {right: secrets.token_urlsafe(24) for right in rights}
        hashed = {right: [token_hash(token)] for right, token in tokens[name].items()}
        text = sample_node(
            name,
            advanced=advanced,
            network="../network.toml",
            key=f"{name}.key",
            certificate=f"{name}.crt",
            ca="ca.crt",
            transport=endpoints[name] if dev else f"tls/0.0.0.0:{port + number}",
            http=f"127.0.0.1:{http_port + number}",
            checkin=hashed["checkin"],
            read=hashed.get("read", "open"),  # open in a trial only, which listens on the loopback of this machine
            admin=hashed["admin"],
        )
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        (folder / name / "node.toml").write_text(text, encoding="utf-8")
        load_pair(folder / name / "node.toml")  # a sample that would be refused must not be written
    return tokens


def _make_keys(folder: Path, names: tuple[str, ...], now: datetime) -> dict[str, str]:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd init --dev")
    from dpcrowd.node.keys.signing import key_of_certificate
    from dpcrowd.node.keys.trial import make_trial

    keys = make_trial(folder, names, now)
    return {name: key_of_certificate(files.certificate.read_bytes()) for name, files in keys.items()}


def _report(
    folder: Path,
    network: NewNetwork,
    tokens: dict[str, dict[str, str]],
    http_port: int,
    model: Path | None,
    epoch: int,
    *,
    dev: bool,
    as_json: bool,
) -> None:
    from dpcrowd.privacy.units import utc_text

    names = network.names
    addresses = {name: f"http://127.0.0.1:{http_port + number}" for number, name in enumerate(names)}
    if as_json:
        servers: list[dict[str, Any]] = [
            {"server": name, "node": str(folder / name / "node.toml"), "api": addresses[name], "tokens": tokens[name]}
            for name in names
        ]
        files = {"network": str(folder / "network.toml"), **({} if model is None else {"model": str(model)})}
        click.echo(json.dumps({**files, "epoch": utc_text(epoch), "servers": servers}, indent=2))
        return
    click.echo(
        f"{folder / 'network.toml'}: {counted(len(names), 'server')}. The tokens are shown only once; the files "
        "contain their hashes:"
    )
    click.echo(f"{'server':<16}{'right':<10}token")
    for name in names:
        for right, token in tokens[name].items():
            click.echo(f"{name:<16}{right:<10}{token}")
    if model is not None:
        click.echo(f"{model} is the process model: every server needs it beside its network.toml.")
    if network.horizon is not None:
        click.echo(
            f"The horizon of {counted(network.horizon, 'slot')} begins at {utc_text(epoch)} and ends at "
            f"{utc_text(epoch + network.horizon * network.slot)}. If not every server can run by then, set a later "
            f"epoch in '{folder / 'network.toml'}' before any of them starts."
        )
    if dev:
        click.echo("Start each server in a terminal of its own:")
        for name in names:
            click.echo(f"  dpcrowd node run {folder / name / 'node.toml'}        # {addresses[name]}")
        click.echo(f"For a trial on this machine only: '{folder}' contains the private keys of all servers.")
        return
    first = names[0]
    click.echo("Next:")
    steps = {
        "dpcrowd keys init-ca ca": "the authority, once",
        f"dpcrowd keys request --name {first} --host HOST {folder / first}": "each server, on its machine",
        f"dpcrowd keys sign {first}.csr --ca ca --name {first} --fingerprint READ-BY-PHONE": "the authority",
        f"dpcrowd keys show {first}.crt": "the line for network.toml",
    }
    for command, who in steps.items():
        click.echo(f"  {command:<{max(map(len, steps))}}  # {who}")
    click.echo(f"Then set endpoints, regions and population in '{folder / 'network.toml'}', and check each server:")
    click.echo(f"  dpcrowd node doctor {folder / first / 'node.toml'}")
    click.echo("Once it runs, 'dpcrowd node status' and similar commands take its read token from DPCROWD_TOKEN.")
