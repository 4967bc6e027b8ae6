"""`dpcrowd keys`: private keys, requests and certificates of servers; a private key never leaves its machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from dpcrowd.errors import BadInput, MissingExtra, counted, plain

__all__ = ["keys"]

_FOLDER = click.Path(path_type=Path)
_force = click.option("--force", is_flag=True, help="Replace existing files; the keys in them are lost.")
_passphrase = click.option(
    "--passphrase-file", type=_FOLDER, help="File whose first line is the passphrase of the authority's key."
)


@click.group(name="keys", invoke_without_command=True)
@click.option(
    "--dev",
    type=_FOLDER,
    metavar="DIR",
    help="Create an authority and the keys of all --servers in this folder, for a local trial.",
)
@click.option("--servers", metavar="A,B,C", help="Names of the servers of the trial.")
@click.pass_context
def keys(ctx: click.Context, dev: Path | None, servers: str | None) -> None:
    """Create and sign the keys of servers; only requests and certificates travel.

    \b
    the authority, once     dpcrowd keys init-ca ca
    each organisation       dpcrowd keys request --name clinic-a --host a.example.org keys
    the authority           dpcrowd keys sign clinic-a.csr --ca ca --name clinic-a --fingerprint READ-BY-PHONE
    everybody               dpcrowd keys show clinic-a.crt      (the line for network.toml)
    before it expires       dpcrowd keys renew --node keys, later with --finish
    a trial on one machine  dpcrowd keys --dev trial --servers a,b,c
    """
    if ctx.invoked_subcommand is not None:
        if dev is not None or servers is not None:
            raise BadInput(
                f"--dev and --servers create a complete trial; leave them out before '{ctx.invoked_subcommand}'."
            )
    elif dev is None:
        if servers is not None:
            raise BadInput("--servers needs --dev DIR, the folder of the trial.")
        click.echo(ctx.get_help())
    else:
        _make_trial(dev, servers)


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd keys")


def _make_trial(folder: Path, servers: str | None) -> None:
    _require_cryptography()
    from dpcrowd.node.keys.signing import key_of_certificate
    from dpcrowd.node.keys.trial import make_trial

    if servers is None:
        raise BadInput("--dev needs the names of the servers: --servers a,b,c.")
    folders = make_trial(folder, [name.strip() for name in servers.split(",")], _now())
    for name, files in folders.items():
        click.echo(f"{name:<16}{files.folder}  {key_of_certificate(files.certificate.read_bytes())}")
    click.echo(f"For a trial on this machine only: '{folder}' contains the private keys of all {len(folders)} servers.")


@keys.command(name="init-ca")
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--name", default="dpcrowd authority", show_default=True, help="Name of the authority.")
@click.option("--days", type=int, default=3650, show_default=True, help="Days for which its certificate is valid.")
@_passphrase
@_force
def init_ca(folder: Path, name: str, days: int, passphrase_file: Path | None, force: bool) -> None:
    """Create a certificate authority.

    It writes ca.key, which you keep off the network, and ca.crt, which every organisation gets.
    """
    _require_cryptography()
    from dpcrowd.node.keys.authority import init_authority
    from dpcrowd.node.keys.files import read_passphrase

    passphrase = read_passphrase(passphrase_file)
    authority = init_authority(folder, _now(), name=name, days=days, passphrase=passphrase, force=force)
    _print_facts(authority.certificate)
    click.echo(f"Give '{authority.certificate}' to every organisation, and '{authority.key}' to nobody.")


@keys.command()
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--name", required=True, help="Name of the server in network.toml.")
@click.option("--host", "hosts", multiple=True, help="Host name or address of its endpoint; may be repeated.")
@_force
def request(folder: Path, name: str, hosts: tuple[str, ...], force: bool) -> None:
    """Create the key of a server, and a request for its certificate."""
    _require_cryptography()
    from dpcrowd.node.keys.identity import request_key

    files = request_key(folder, name, hosts, force=force)
    _print_facts(files.request)
    click.echo(f"1. Send '{files.request}' to the authority, and read the fingerprint to them by phone.")
    click.echo(f"2. Save the certificate that they return as '{files.certificate}', and theirs as '{files.authority}'.")
    click.echo(f"3. Give the line for network.toml to the other organisations. '{files.key}' stays here.")


@keys.command()
@click.argument("request_file", metavar="REQUEST", type=_FOLDER)
@click.option("--ca", "folder", required=True, type=_FOLDER, help="Folder of the authority.")
@click.option("--days", type=int, default=365, show_default=True, help="Days for which the certificate is valid.")
@click.option("--name", help="Refuse a request for another server than this.")
@click.option(
    "--fingerprint", help="Refuse a request with another fingerprint than this, which was read to you by phone."
)
@click.option("--out", type=_FOLDER, help="File of the certificate.  [default: that of the request, with .crt]")
@_passphrase
@click.option("--force", is_flag=True, help="Replace an existing certificate.")
def sign(
    request_file: Path,
    folder: Path,
    days: int,
    name: str | None,
    fingerprint: str | None,
    out: Path | None,
    passphrase_file: Path | None,
    force: bool,
) -> None:
    """Sign a request, as the authority.

    Only the name, the hosts and the key are taken from the request, and only if it is signed by that key.
    """
    _require_cryptography()
    from dpcrowd.node.keys.authority import Authority, sign_request
    from dpcrowd.node.keys.files import NewFile, is_there, read_passphrase, read_pem, write_all

    target = request_file.with_suffix(".crt") if out is None else out
    if (
        is_there(target) and not force
    ):  # before signing: the authority's list should not name a certificate that was not written
        raise BadInput(f"'{target}' exists already and is not replaced; give --force, or another --out.")
    signed = sign_request(
        Authority(folder),
        read_pem(request_file, "request"),
        _now(),
        days=days,
        name=name,
        expected_fingerprint=fingerprint,
        passphrase=read_passphrase(passphrase_file),
        where=f"'{request_file}'",
    )
    write_all([NewFile(target, signed.pem)], force=force)
    _print_facts(target)
    if signed.earlier_keys:
        click.echo(f"'{signed.name}' had another key before: this is a renewal, or somebody else uses its name.")
    if fingerprint is None:
        click.echo(f"Compare the fingerprint with '{signed.name}' by phone before you send '{target}' and ca.crt.")


@keys.command()
@click.option("--node", "folder", required=True, type=_FOLDER, metavar="DIR", help="Folder with the key of the server.")
@click.option("--name", help="Name of the server, if the folder has the keys of several.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Host name or address of its endpoint; may be repeated.  [default: as before]",
)
@click.option("--finish", is_flag=True, help="Put the renewed key and certificate in place of the old ones.")
@_force
def renew(folder: Path, name: str | None, hosts: tuple[str, ...], finish: bool, force: bool) -> None:
    """Create the next key of a server, and its request.

    The current ones stay valid and in use until --finish.
    """
    _require_cryptography()
    from dpcrowd.node.keys.identity import KeyFolder, finish_renewal
    from dpcrowd.node.keys.identity import renew as renew_key

    if finish:
        if hosts or force:
            raise BadInput("--finish only puts the signed renewal in place; leave --host and --force out.")
        old = finish_renewal(folder, _now(), name=name)
        _print_facts(KeyFolder.find(folder, name).certificate)
        click.echo("Make the running node use it: dpcrowd node reload node.toml")
        click.echo(f"The old key is kept as '{old.key}': delete it once no revision of network.toml pins it.")
        return
    files = renew_key(folder, hosts or None, name=name, force=force)
    _print_facts(files.request)
    click.echo(f"1. Send '{files.request}' to the authority; save the certificate as '{files.certificate}'.")
    click.echo("2. Add the key to this server's keys in the next revision of network.toml, beside the old one.")
    option = "" if name is None else f" --name {name}"
    click.echo(f"3. When that revision is valid: dpcrowd keys renew --node {folder}{option} --finish")


@keys.command()
@click.argument("file", type=_FOLDER)
@_passphrase
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Show what a key file contains.

    It prints name, hosts, dates, fingerprint and the line for network.toml of a certificate, a request or a private key
    (of which only the public half is shown).
    """
    _require_cryptography()
    from dpcrowd.node.keys.files import read_passphrase

    _print_facts(file, read_passphrase(passphrase_file), as_json=as_json)


def _print_facts(file: Path, passphrase: bytes | None = None, *, as_json: bool = False) -> None:
    """Print what a key file contains, apart from secrets."""
    from dataclasses import asdict

    from dpcrowd.node.keys.describe import describe
    from dpcrowd.node.keys.files import read_pem

    facts = describe(read_pem(file, "key file"), f"'{file}'", passphrase)
    if as_json:
        click.echo(json.dumps(asdict(facts), default=lambda when: when.isoformat(), indent=2))
        return
    rows = [("file", f"{file} ({facts.kind})"), ("name", facts.name), ("hosts", ", ".join(facts.hosts))]
    rows += [("signed by", facts.issuer)]
    if facts.not_before is not None and facts.not_after is not None:
        rows += [("valid", f"{facts.not_before:%Y-%m-%d} to {facts.not_after:%Y-%m-%d}, {_validity(facts.not_after)}")]
    rows += [("fingerprint", facts.fingerprint)]
    if facts.kind != "authority":  # the authority's key is not pinned
        rows += [("network.toml", f'keys = ["{facts.key}"]')]
    for title, text in rows:
        if text:
            click.echo(f"{title:<14}{plain(text)}")


def _validity(until: datetime) -> str:
    days = (until - _now()).days
    return f"{counted(days, 'day')} left" if days >= 0 else f"expired {counted(-days, 'day')} ago"


def _now() -> datetime:
    return datetime.now(UTC)
