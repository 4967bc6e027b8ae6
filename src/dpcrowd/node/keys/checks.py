"""Whether a certificate will work and until when: who signed it, for which name, key and time; and what to do if not.

`certificate_problems` judges bytes at a time that the caller gives; the doctor and the renewal use the same judgement.
TLS checks signature and dates by itself, but reports only "handshake failed"; here each reason has a sentence. `Expiry`
says what the end of a certificate means to whom: a warning while there is time, then a problem.
"""

from __future__ import annotations

import math
import os
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.files import read_pem
from dpcrowd.node.keys.names import check_hosts, common_name, hosts_of
from dpcrowd.node.keys.signing import public_text, read_certificate, supported_key

__all__ = [
    "SOON",
    "Expiry",
    "Holder",
    "Problem",
    "certificate_problems",
    "expiry_of",
    "how_to_renew",
    "https_problem",
    "key_file_problem",
    "minute",
    "read_expiry",
    "time_left",
]

SOON = timedelta(days=30)

Holder = Literal["server", "https", "authority", "neighbour"]

_HUNDREDTH = timedelta(days=1) / 100
_WHOSE = {
    "server": "the certificate of '{name}'",
    "https": "the certificate of HTTPS ({name}, listen.http_certificate)",
    "authority": "the certificate of the authority '{name}'",
    "neighbour": "the certificate of the neighbour '{name}'",
}
_OVER = {
    "server": "this server has no links until it is renewed",
    "https": "clients refuse it",
    "authority": "no link can be opened with a certificate that it has signed",
    "neighbour": "its link is closed and refused until it is renewed",
}
_FIX = {
    "https": "Renew it where you got it, then run 'dpcrowd node reload'.",
    "authority": "Every server needs a certificate of a new authority; agree on a day with whoever runs it.",
    "neighbour": "Tell that organisation.",
}


@dataclass(frozen=True)
class Problem:
    """What is wrong, and how to fix it, in one sentence each."""

    what: str
    fix: str


def certificate_problems(
    certificate: bytes,
    authority: bytes,
    *,
    name: str,
    now: datetime,
    key: str | None = None,
    pins: Sequence[str] | None = None,
    host: str | None = None,
) -> list[Problem]:
    """Return every reason why neighbours would refuse this certificate (PEM) of server `name`; empty if there is none.

    key   the public half of the private key beside it, as text
    pins  the keys that `network.toml` pins for the server
    host  the host of the server's endpoint in `network.toml`
    """
    try:
        leaf = read_certificate(certificate, "the certificate")
        root = read_certificate(authority, "the authority's certificate")
        leaf_key = public_text(supported_key(leaf, "the certificate"))
        leaf_name, hosts = common_name(leaf, "the certificate"), hosts_of(leaf, "the certificate")
    except BadInput as error:
        return [Problem(str(error), "Ask the authority for the file again.")]
    problems = _signature_problems(leaf, root)
    if leaf_name != name:
        what = f"the certificate is for {leaf_name!r}, not for '{name}'."
        problems.append(Problem(what, "Use the certificate of this server."))
    problems += _date_problems(leaf, name, now)
    if key is not None and key != leaf_key:
        problems.append(
            Problem(
                "the certificate does not belong to the private key.",
                "Use the certificate that was made from this key's request.",
            )
        )
    if pins is not None and leaf_key not in pins:
        problems.append(
            Problem(
                f"network.toml does not pin the certificate's key {leaf_key} for '{name}'.",
                "Add it to the server's keys in the next revision of network.toml; all servers need the same file.",
            )
        )
    if host is not None and check_hosts([host])[0] not in hosts:
        what = f"the certificate is for the hosts {', '.join(hosts) or '(none)'}, but the endpoint is at '{host}'."
        problems.append(Problem(what, f"Run 'dpcrowd keys renew --node DIR --host {host}', or change the endpoint."))
    if not _allows_both_ends(leaf):
        what = "the certificate does not allow both ends of a TLS link."
        problems.append(Problem(what, "Have the request signed by 'dpcrowd keys sign'."))
    return problems


def https_problem(certificate: Path, key: Path, now: datetime) -> Problem | None:
    """Return why the HTTP API could not use these files, or clients would not trust them; None if all is well."""
    for name, path in (("http_certificate", certificate), ("http_key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            return Problem(
                f"listen.{name} {path} cannot be read: {error.strerror or error}.",
                "Correct the path, or the permissions of the file.",
            )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=b"")
        leaf = read_certificate(certificate.read_bytes(), "listen.http_certificate")
    except (ssl.SSLError, BadInput):
        text = f"listen.http_certificate {certificate} and listen.http_key {key} do not belong together."
        return Problem(text, "Give the PEM files of one pair, the key without a passphrase.")
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        span = f"{leaf.not_valid_before_utc.date()} to {leaf.not_valid_after_utc.date()}"
        return Problem(
            f"listen.http_certificate {certificate} is valid only from {span}.", "Renew it where you got it."
        )
    return None


def key_file_problem(path: Path) -> Problem | None:
    """Return a problem if others on this machine may read the private key, where files have owners."""
    if os.name != "posix":
        return None
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return Problem(f"the private key '{path}' cannot be read: {error.strerror}.", "Check the path in node.toml.")
    if mode & 0o077 == 0:
        return None
    return Problem(f"others can read the private key '{path}' (mode {mode:o}).", f"chmod 600 {path}")


def how_to_renew(name: str) -> str:
    """Say how to renew a server's certificate: quickest with the same key, since everybody pins it."""
    return (
        f"Quickest, with the same key: the authority signs the same request again ('dpcrowd keys sign {name}.csr --ca "
        f"ca --name {name} --force'), the result replaces {name}.crt, and 'dpcrowd node reload' loads it. With another "
        f"key: 'dpcrowd keys renew --node DIR', then give the authority the request ({name}.next.csr) and nothing else."
    )


def time_left(remaining: timedelta) -> str:
    """Return the remaining time in complete days."""
    days = remaining.days
    return "less than a day" if days < 1 else f"{days} day{'s' if days > 1 else ''}"


def minute(when: datetime) -> str:
    """Return a time to the minute, in UTC."""
    return f"{when:%Y-%m-%d %H:%M} UTC"


def _signature_problems(leaf: x509.Certificate, root: x509.Certificate) -> list[Problem]:
    if not _is_authority(root):
        return [Problem("the authority's file is not the certificate of an authority.", "Use the authority's ca.crt.")]
    try:
        leaf.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        what = "the certificate was not signed by this authority, or was changed since."
        return [Problem(what, "Compare the fingerprint of ca.crt by phone, and ask for both files again.")]
    if _is_authority(leaf):
        return [Problem("the certificate is the authority's own.", "Use the certificate of the server.")]
    return []


def _date_problems(leaf: x509.Certificate, name: str, now: datetime) -> list[Problem]:
    if now < leaf.not_valid_before_utc:
        what = f"the certificate of '{name}' is valid only from {minute(leaf.not_valid_before_utc)}."
        return [Problem(what, f"Check this machine's clock, which reads {minute(now)}.")]
    if now > leaf.not_valid_after_utc:
        return [
            Problem(f"the certificate of '{name}' expired on {minute(leaf.not_valid_after_utc)}.", how_to_renew(name))
        ]
    return []


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False


def _allows_both_ends(certificate: x509.Certificate) -> bool:
    """Whether a server may accept and open links with the certificate."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False
    return {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= set(uses)


@dataclass(frozen=True)
class Expiry:
    """The end of a certificate.

    holder  whose certificate it is
    name    the name of the server or authority; for HTTPS, the host
    at      when it expires
    soon    how long before that the operator is warned
    """

    holder: Holder
    name: str
    at: datetime
    soon: timedelta = SOON

    def days_left(self, now: datetime) -> float:
        """Return the remaining days to two decimals, rounded down: below 0 once it has expired."""
        return math.floor((self.at - now) / _HUNDREDTH) / 100

    def is_over(self, now: datetime) -> bool:
        """Whether the certificate has expired."""
        return now > self.at

    def problem(self, now: datetime) -> Problem | None:
        """Return what to do about the end of the certificate; None as long as there is nothing to do."""
        whose = _WHOSE[self.holder].format(name=self.name)
        if self.is_over(now):
            what = f"{whose} expired on {minute(self.at)}: {_OVER[self.holder]}."
        elif self.at - now < self.soon:
            what = f"{whose} expires in {time_left(self.at - now)} ({self.at.date()})."
        else:
            return None
        return Problem(what, how_to_renew(self.name) if self.holder == "server" else _FIX[self.holder])


def read_expiry(path: Path, holder: Holder, name: str | None = None) -> Expiry:
    """Return the end of the certificate in a PEM file; without a name, with its common name or else the file's."""
    expiry = expiry_of(read_pem(path, "certificate"), f"'{path}'", holder, name)
    return expiry if expiry.name else replace(expiry, name=path.name)


def expiry_of(pem: bytes, where: str, holder: Holder, name: str | None = None) -> Expiry:
    """Return the end of a PEM certificate; without a name, with its own common name, which may be empty.

    Certificates of HTTPS come from elsewhere and may be valid for some weeks only: the operator is warned in the last
    third of that time.
    """
    certificate = read_certificate(pem, where)
    try:
        subject = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:  # read when it is asked for
        raise BadInput(f"{where} is not a PEM certificate.") from None
    common = str(subject[0].value) if subject else ""
    end = certificate.not_valid_after_utc
    soon = min(SOON, (end - certificate.not_valid_before_utc) / 3) if holder == "https" else SOON
    return Expiry(holder, common if name is None else name, end, soon)
