"""`dpcrowd keys`: private keys, requests and certificates of the servers; every private key stays where it was made."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from dpcrowd.errors import BadInput, MissingExtra

__all__ = ["keys"]

_FOLDER = click.Path(path_type=Path)
_force = click.option("--force", is_flag=True, help="Replace files that are already there; their keys are lost.")
_passphrase = click.option("--passphrase-file", type=_FOLDER, help="Its first line protects the authority's key.")


@click.group(name="keys", invoke_without_command=True)
@click.option("--dev", type=_FOLDER, metavar="DIR", help="Make everything for a local trial, in this folder.")
@click.option("--servers", metavar="A,B,C", help="The servers of the trial.")
@click.pass_context
def keys(ctx: click.Context, dev: Path | None, servers: str | None) -> None:
    """Make and sign the keys of servers; only requests and certificates travel.

    \b
    the authority, once     dpcrowd keys init-ca ca
    each organisation       dpcrowd keys request --name clinic-a --host a.example.org keys
    the authority           dpcrowd keys sign clinic-a.csr --ca ca --name clinic-a --fingerprint TOLD-BY-PHONE
    everybody               dpcrowd keys show clinic-a.crt      (the line for network.toml)
    before it expires       dpcrowd keys renew --node keys, later with --finish
    a trial on one machine  dpcrowd keys --dev trial --servers a,b,c
    """
    if ctx.invoked_subcommand is not None:
        if dev is not None or servers is not None:
            raise BadInput(f"--dev and --servers make a whole trial; '{ctx.invoked_subcommand}' does not take them.")
    elif dev is None:
        if servers is not None:
            raise BadInput("--servers was given without --dev DIR, the folder of the trial.")
        click.echo(ctx.get_help())
    else:
        _make_trial(dev, servers)


def _need_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd keys")


def _make_trial(folder: Path, servers: str | None) -> None:
    _need_cryptography()
    from dpcrowd.node.keys.signing import key_of_certificate
    from dpcrowd.node.keys.trial import make_trial

    if servers is None:
        raise BadInput("--dev needs the names of the servers: --servers a,b,c.")
    made = make_trial(folder, [name.strip() for name in servers.split(",")], _now())
    for name, files in made.items():
        click.echo(f"{name:<16}{files.folder}  {key_of_certificate(files.certificate.read_bytes())}")
    click.echo(f"For a trial on this machine only: who reads '{folder}' is all {len(made)} servers at once.")


@keys.command(name="init-ca")
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--name", default="dpcrowd authority", show_default=True, help="What the authority is called.")
@click.option("--days", type=int, default=3650, show_default=True, help="How long it is valid.")
@_passphrase
@_force
def init_ca(folder: Path, name: str, days: int, passphrase_file: Path | None, force: bool) -> None:
    """Make a certificate authority.

    Writes ca.key (keep it off the network) and ca.crt (for everybody).
    """
    _need_cryptography()
    from dpcrowd.node.keys.authority import init_authority
    from dpcrowd.node.keys.files import read_passphrase

    passphrase = read_passphrase(passphrase_file)
    made = init_authority(folder, _now(), name=name, days=days, passphrase=passphrase, force=force)
    _say(made.certificate)
    click.echo(f"Give '{made.certificate}' to every organisation; '{made.key}' to nobody.")


@keys.command()
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--name", required=True, help="The server's name in network.toml.")
@click.option("--host", "hosts", multiple=True, help="Host name or address of its endpoint; may be given repeatedly.")
@_force
def request(folder: Path, name: str, hosts: tuple[str, ...], force: bool) -> None:
    """Make a server's key and a request."""
    _need_cryptography()
    from dpcrowd.node.keys.identity import request_key

    made = request_key(folder, name, hosts, force=force)
    _say(made.request)
    click.echo(f"1. Send '{made.request}' to the authority, and read the fingerprint to them by phone.")
    click.echo(f"2. Put the certificate that comes back to '{made.certificate}', theirs to '{made.authority}'.")
    click.echo(f"3. Give the line for network.toml to the other organisations. '{made.key}' stays here.")


@keys.command()
@click.argument("request_file", metavar="REQUEST", type=_FOLDER)
@click.option("--ca", "folder", required=True, type=_FOLDER, help="The authority's folder.")
@click.option("--days", type=int, default=365, show_default=True, help="How long the certificate is valid.")
@click.option("--name", help="The server that you mean to sign for; another one is refused.")
@click.option("--fingerprint", help="What you were told by phone; another one is refused.")
@click.option("--out", type=_FOLDER, help="The certificate.  [default: beside the request, .crt]")
@_passphrase
@click.option("--force", is_flag=True, help="Replace a certificate that is already there.")
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

    Only the name, the hosts and the key are taken from it, and only if its own key has signed it.
    """
    _need_cryptography()
    from dpcrowd.node.keys.authority import Authority, sign_request
    from dpcrowd.node.keys.files import NewFile, is_there, read_passphrase, read_pem, write_all

    target = request_file.with_suffix(".crt") if out is None else out
    if is_there(target) and not force:  # before signing: the authority's list should not name what nobody got
        raise BadInput(f"'{target}' is already there and is not replaced; give --force, or another --out.")
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
    _say(target)
    if signed.earlier_keys:
        click.echo(f"'{signed.name}' had another key before: a renewal, or somebody else asks in its name.")
    if fingerprint is None:
        click.echo(f"Compare the fingerprint with '{signed.name}' by phone before you send '{target}' and ca.crt.")


@keys.command()
@click.option("--node", "folder", required=True, type=_FOLDER, metavar="DIR", help="The folder with the server's key.")
@click.option("--name", help="The server, if the folder holds the keys of several.")
@click.option("--host", "hosts", multiple=True, help="New hosts of the endpoint.  [default: as before]")
@click.option("--finish", is_flag=True, help="Put the renewed key and certificate in place of the old ones.")
@_force
def renew(folder: Path, name: str | None, hosts: tuple[str, ...], finish: bool, force: bool) -> None:
    """Make the next key and its request.

    The present ones stay valid and in use until --finish.
    """
    _need_cryptography()
    from dpcrowd.node.keys.identity import KeyFolder, finish_renewal
    from dpcrowd.node.keys.identity import renew as renew_key

    if finish:
        if hosts or force:
            raise BadInput("--finish takes neither --host nor --force; it only puts the signed renewal in place.")
        old = finish_renewal(folder, _now(), name=name)
        _say(KeyFolder.find(folder, name).certificate)
        click.echo("Have the running node take it: dpcrowd node reload node.toml")
        click.echo(f"The old key is kept as '{old.key}': delete it once no revision pins it.")
        return
    made = renew_key(folder, hosts or None, name=name, force=force)
    _say(made.request)
    click.echo(f"1. Send '{made.request}' to the authority; put what comes back to '{made.certificate}'.")
    click.echo("2. Add the key to this server's keys in the next revision of network.toml, beside the old one.")
    named = "" if name is None else f" --name {name}"
    click.echo(f"3. When that revision is valid: dpcrowd keys renew --node {folder}{named} --finish")


@keys.command()
@click.argument("file", type=_FOLDER)
@_passphrase
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show(file: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Show what a key file is.

    Name, hosts, dates, fingerprint and the line for network.toml of a certificate, a request or a private key (of which
    only the public half is shown).
    """
    _need_cryptography()
    from dpcrowd.node.keys.files import read_passphrase

    _say(file, read_passphrase(passphrase_file), as_json=as_json)


def _say(file: Path, passphrase: bytes | None = None, *, as_json: bool = False) -> None:
    """The facts of a file, none of them secret."""
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
        rows += [("valid", f"{facts.not_before:%Y-%m-%d} to {facts.not_after:%Y-%m-%d}, {_left(facts.not_after)}")]
    rows += [("fingerprint", facts.fingerprint)]
    if facts.kind != "authority":  # nobody pins the authority's key
        rows += [("network.toml", f'keys = ["{facts.key}"]')]
    for title, text in rows:
        if text:  # a name from outside may hold what moves the cursor of a terminal
            click.echo(f"{title:<14}{text if text.isprintable() else ascii(text)}")


def _left(until: datetime) -> str:
    days = (until - _now()).days
    return f"{days} days left" if days >= 0 else f"expired {-days} days ago"


def _now() -> datetime:
    return datetime.now(UTC)
