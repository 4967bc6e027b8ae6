"""`dpcrowd keys`: the way of a key from nothing to a renewal, as people type it, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from dpcrowd.cli import keys as module
from dpcrowd.cli.keys import keys
from dpcrowd.errors import DpcrowdError, MissingExtra
from dpcrowd.node.keys.identity import new_private_key
from dpcrowd.node.keys.names import subject
from project_support import ROOT

PAGE = ROOT / "docs" / "keys.md"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(keys, list(arguments))


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exception is None, result.exception
    assert "PRIVATE" not in result.output
    return result.output


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, DpcrowdError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(output: str, title: str) -> str:
    found = re.search(rf"^{re.escape(title)} +(.*)$", output, flags=re.MULTILINE)
    assert found, output
    return found[1]


def test_the_whole_way(folder: Path) -> None:
    """Without this, three organisations could not come from nothing to a renewed certificate with the tool alone."""
    made = done("init-ca", "ca")
    assert row(made, "file") == f"{Path('ca/ca.crt')} (authority)"
    assert "network.toml" not in made
    asked = done("request", "--name", "clinic-a", "--host", "a.example.org", "keys")
    pin = row(asked, "network.toml")
    assert re.fullmatch(r'keys = \["ed25519:[A-Za-z0-9+/]{43}="\]', pin)
    told = row(asked, "fingerprint")
    (folder / "post").mkdir()
    (folder / "post" / "clinic-a.csr").write_bytes((folder / "keys" / "clinic-a.csr").read_bytes())
    signed = done(
        "sign", "post/clinic-a.csr", "--ca", "ca", "--days", "90", "--name", "clinic-a", "--fingerprint", told
    )
    assert (row(signed, "network.toml"), row(signed, "fingerprint")) == (pin, told)
    assert row(signed, "hosts") == "clinic-a, a.example.org"
    assert row(signed, "valid").endswith(", 89 days left")
    assert "by phone" not in signed
    for source, target in (("post/clinic-a.crt", "keys/clinic-a.crt"), ("ca/ca.crt", "keys/ca.crt")):
        (folder / target).write_bytes((folder / source).read_bytes())
    assert row(done("show", "keys/clinic-a.key"), "network.toml") == pin

    renewed = done("renew", "--node", "keys")
    assert row(renewed, "network.toml") != pin
    assert "dpcrowd keys renew --node keys --finish" in renewed
    again = done("sign", str(Path("keys/clinic-a.next.csr")), "--ca", "ca")
    assert "had another key before" in again
    assert "by phone" in again
    assert row(done("show", "keys/clinic-a.crt"), "network.toml") == pin
    finished = done("renew", "--node", "keys", "--finish")
    assert row(finished, "network.toml") == row(renewed, "network.toml")
    assert "dpcrowd node reload" in finished


def test_a_trial_in_one_command(folder: Path) -> None:
    """Without this, a first look at a live network would need a dozen commands."""
    output = done("--dev", "trial", "--servers", "a, b,c")
    assert len(re.findall(r"ed25519:", output)) == 3
    assert "the private keys of all 3 servers" in output
    for name in "abc":
        assert {path.name for path in (folder / "trial" / name).iterdir()} == {
            f"{name}.key",
            f"{name}.csr",
            f"{name}.crt",
            "ca.crt",
        }


def test_show_as_json(folder: Path) -> None:
    """A script that watches expiry dates must not have to read a table."""
    done("--dev", "t", "--servers", "a")
    facts = json.loads(done("show", "t/a/a.crt", "--json"))
    assert (facts["kind"], facts["name"], facts["issuer"]) == ("certificate", "a", "dpcrowd local trial")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", facts["not_after"])
    assert json.loads(done("show", "t/ca/ca.crt", "--json"))["kind"] == "authority"
    assert json.loads(done("show", "t/a/a.csr", "--json"))["kind"] == "request"
    key = json.loads(done("show", "t/a/a.key", "--json"))
    assert (key["kind"], key["key"], key["name"]) == ("private key", facts["key"], None)


def test_a_name_from_outside_cannot_move_the_cursor(folder: Path) -> None:
    """A certificate from a stranger could otherwise rewrite the fingerprint that stands above it on the screen."""
    key, name = new_private_key(), subject("\x1b[31m")
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.not_valid_before(datetime(2026, 1, 1)).not_valid_after(datetime(2036, 1, 1)).serial_number(1)
    made = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True).sign(key, None)
    (folder / "x.crt").write_bytes(made.public_bytes(Encoding.PEM))
    output = done("show", "x.crt")
    assert "\x1b" not in output
    assert row(output, "name") == r"\x1b[31m"


def test_an_authority_with_a_passphrase(folder: Path) -> None:
    """The option has to reach both the making and the signing."""
    (folder / "words").write_text("secret words\n")
    done("init-ca", "ca", "--passphrase-file", "words")
    done("request", "--name", "a", "a")
    assert "protected by a passphrase" in refusal("sign", "a/a.csr", "--ca", "ca")
    assert "protected by a passphrase" in refusal("show", "ca/ca.key")
    done("sign", "a/a.csr", "--ca", "ca", "--passphrase-file", "words")
    done("show", "ca/ca.key", "--passphrase-file", "words")


def test_an_expired_certificate_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` is what people look at when a link is down."""
    done("--dev", "t", "--servers", "a")
    later = module._now().replace(year=module._now().year + 3, day=1)
    monkeypatch.setattr(module, "_now", lambda: later)
    assert re.search(r"expired \d+ days ago", row(done("show", "t/a/a.crt"), "valid"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("init-ca t/ca", "ca.key' exists and is not replaced"),
        ("request --name a t/a", "a.key' exists and is not replaced"),
        ("request --name A x", "the server name 'A' is not allowed"),
        ("request --name x --host *.org x", "the host '*.org' is not allowed"),
        ("sign t/a/a.csr --ca t/ca", "a.crt' exists already and is not replaced"),
        ("sign t/a/a.csr --ca t/ca --out x.crt --name b", "is for 'a', not for 'b'"),
        ("sign t/a/a.csr --ca t/ca --out x.crt --fingerprint 0000", "mistyped"),
        (f"sign t/a/a.csr --ca t/ca --out x.crt --fingerprint {'0' * 32}", "does not have the given fingerprint"),
        ("sign t/a/a.csr --ca t/ca --out x.crt --days 0", "0 days; allowed"),
        ("sign t/a/a.csr --ca t/a --out x.crt", "there is no private key at"),
        ("sign t/a/a.crt --ca t/ca --out x.crt", "is not a PEM certificate request"),
        ("sign nothing.csr --ca t/ca", "there is no request at 'nothing.csr'"),
        ("sign t --ca t/ca", "cannot read the request 't'"),
        ("renew --node t", "has no NAME.key"),
        ("renew --node t/a --finish", "no renewal is in progress"),
        ("renew --node t/a --finish --host x", "leave --host and --force out"),
        ("show t/nothing", "there is no key file at"),
        ("show words", "is not a PEM certificate, request or private key"),
        ("--dev t --servers a,b", "a' exists"),
        ("--dev x", "--servers a,b,c"),
        ("--servers a,b", "--servers needs --dev DIR"),
        ("--dev x --servers a show t/a/a.crt", "leave them out before 'show'"),
    ],
)
def test_refusals(folder: Path, arguments: str, says: str) -> None:
    """Each is a mistake that somebody will make; nothing may be changed by it."""
    done("--dev", "t", "--servers", "a")
    (folder / "words").write_text("hello\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert says in refusal(*arguments.split())
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_force_replaces(folder: Path) -> None:
    """Whoever really wants a new key must be able to have it without deleting by hand."""
    done("--dev", "t", "--servers", "a")
    before = {path: path.read_bytes() for path in folder.rglob("*.key")}
    done("request", "--name", "a", "t/a", "--force")
    done("init-ca", "t/ca", "--force")
    done("sign", "t/a/a.csr", "--ca", "t/ca", "--force")
    assert all(path.read_bytes() != content for path, content in before.items())


def test_without_the_library_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install dpcrowd` alone has no cryptography: help has to work, and commands to say what is missing."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "Create the key of a server" in done("--help")
    done("sign", "--help")
    for arguments in (
        ("init-ca", "x"),
        ("request", "--name", "a", "x"),
        ("sign", "x", "--ca", "x"),
        ("renew", "--node", "x"),
        ("show", "x"),
        ("--dev", "x", "--servers", "a"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, MissingExtra)
        assert 'pip install "dpcrowd[node]"' in str(result.exception)


@pytest.mark.slow
def test_help_loads_no_cryptography() -> None:
    """The command line has to start fast; NumPy and OpenSSL are for the commands that use them."""
    code = "import sys, dpcrowd.cli.keys; sys.exit(bool({'cryptography', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_page_shows_commands_that_exist() -> None:
    """A renamed command or option would leave readers with lines that fail; a new one has to be described."""
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"dpcrowd keys ([a-z-]+)([^\n`]*)", text)
    commands = keys.commands
    for name, rest in shown:
        command: click.Command = keys if name == "--dev" else commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        words = {word for word in [name, *rest.split()] if word.startswith("--")}
        assert words <= options, f"dpcrowd keys {name}: {sorted(words - options)}"
    assert set(commands) | {"--dev"} <= {name for name, _ in shown}
    every = {option for command in commands.values() for parameter in command.params for option in parameter.opts}
    for option in every:
        assert not option.startswith("--") or f"`{option}" in text or f" {option}" in text, f"{option} is not described"
