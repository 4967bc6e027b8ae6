"""Whether a certificate will work: who signed it, for which name, key and time, and what to do if it will not.

Everything is judged from bytes and a time that the caller brings; the preflight check and the renewal use the same
judgement. TLS checks signature and dates by itself, but says "handshake failed"; here each reason has a name.
"""

from __future__ import annotations

import math
import os
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.files import read_pem
from dpcrowd.node.keys.names import check_hosts, common_name, hosts_of
from dpcrowd.node.keys.signing import public_text, read_certificate, supported

__all__ = [
    "SOON",
    "Expiry",
    "Holder",
    "Problem",
    "certificate_problems",
    "expires_soon",
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
    "authority": "no link is made with a certificate of it",
    "neighbour": "its link is closed and refused until it is renewed",
}
_FIX = {
    "https": "Renew it where you had it from, then 'dpcrowd node reload'.",
    "authority": "Every server needs a certificate of a new authority; agree with its holder on a day.",
    "neighbour": "Tell that organisation.",
}


@dataclass(frozen=True)
class Problem:
    """What is wrong, and what mends it: a sentence each."""

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
    """Every reason why neighbours would refuse this certificate (PEM) of server `name`; an empty list is good.

    `key` is the public text of the private key beside it, `pins` and `host` are the keys and the endpoint's
    host that `network.toml` has for the server.
    """
    try:
        leaf = read_certificate(certificate, "the certificate")
        root = read_certificate(authority, "the authority's certificate")
        held = public_text(supported(leaf, "the certificate"))
        found, hosts = common_name(leaf, "the certificate"), hosts_of(leaf, "the certificate")
    except BadInput as error:
        return [Problem(str(error), "Ask the authority for the file again.")]
    problems = _signature_problems(leaf, root)
    if found != name:
        what = f"the certificate is for {found!r}, not for '{name}'."
        problems.append(Problem(what, "Take the certificate of this server."))
    problems += _date_problems(leaf, name, now)
    if key is not None and key != held:
        problems.append(
            Problem(
                "the certificate is not for the private key beside it.",
                "Put the certificate there that was made from this key's request.",
            )
        )
    if pins is not None and held not in pins:
        problems.append(
            Problem(
                f"network.toml does not pin the certificate's key {held} for '{name}'.",
                "Add it to the server's keys in the next revision; all servers need the same file.",
            )
        )
    if host is not None and check_hosts([host])[0] not in hosts:
        what = f"the certificate is for the hosts {', '.join(hosts) or '(none)'}, the endpoint is at '{host}'."
        problems.append(Problem(what, f"dpcrowd keys renew --node DIR --host {host}, or another endpoint."))
    if not _may_do_both(leaf):
        what = "the certificate is not for both ends of a TLS link."
        problems.append(Problem(what, "Have the request signed by 'dpcrowd keys sign'."))
    return problems


def expires_soon(certificate: bytes, name: str, now: datetime, soon: timedelta = SOON) -> Problem | None:
    """A warning while there is time: the certificate is good, but not for long."""
    left = read_certificate(certificate, "the certificate").not_valid_after_utc - now
    if not timedelta(0) <= left < soon:
        return None
    return Problem(
        f"the certificate of '{name}' expires in {time_left(left)} ({(now + left).date()}).", how_to_renew(name)
    )


def https_problem(certificate: Path, key: Path, now: datetime) -> Problem | None:
    """Why the HTTP API could not answer, or would not be trusted, with these files."""
    for name, path in (("http_certificate", certificate), ("http_key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            return Problem(f"listen.{name} {path}: {error.strerror or error}.", "Correct the path or its rights.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=b"")
        leaf = read_certificate(certificate.read_bytes(), "listen.http_certificate")
    except (ssl.SSLError, BadInput):
        text = f"listen.http_certificate {certificate} and listen.http_key {key} do not fit one another."
        return Problem(text, "Give PEM files of one pair, the key without a password.")
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        span = f"{leaf.not_valid_before_utc.date()} to {leaf.not_valid_after_utc.date()}"
        return Problem(
            f"listen.http_certificate {certificate} is valid from {span} only.", "Renew it where you had it from."
        )
    return None


def key_file_problem(path: Path) -> Problem | None:
    """Whether others on this machine may read the private key (where files have owners)."""
    if os.name != "posix":
        return None
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return Problem(f"the private key '{path}' cannot be seen: {error.strerror}.", "Check the path in node.toml.")
    if mode & 0o077 == 0:
        return None
    return Problem(f"the private key '{path}' is open to others (mode {mode:o}).", f"chmod 600 {path}")


def how_to_renew(name: str) -> str:
    """What to do about a server's certificate that expires: the same key is the quickest, since everybody pins it."""
    return (
        f"Quickest, with the same key: the authority signs the same request again ('dpcrowd keys sign {name}.csr --ca "
        f"ca --name {name} --force'), its answer replaces {name}.crt, and 'dpcrowd node reload' takes it. With another "
        f"key: 'dpcrowd keys renew --node DIR', then give the authority the request ({name}.next.csr) and nothing else."
    )


def time_left(left: timedelta) -> str:
    """In whole days."""
    return "less than a day" if left < timedelta(days=1) else f"{left.days} day{'s' if left.days > 1 else ''}"


def minute(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


def _signature_problems(leaf: x509.Certificate, root: x509.Certificate) -> list[Problem]:
    if not _is_authority(root):
        return [Problem("the file of the authority holds no authority's certificate.", "Take the authority's ca.crt.")]
    try:
        leaf.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        what = "the certificate was not signed by this authority, or was changed since."
        return [Problem(what, "Compare the fingerprint of ca.crt by phone, and ask for both files again.")]
    if _is_authority(leaf):
        return [Problem("the certificate is an authority's own.", "Take the certificate of the server.")]
    return []


def _date_problems(leaf: x509.Certificate, name: str, now: datetime) -> list[Problem]:
    if now < leaf.not_valid_before_utc:
        what = f"the certificate of '{name}' is valid only from {minute(leaf.not_valid_before_utc)}."
        return [Problem(what, f"Check this machine's clock: it says {minute(now)}.")]
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


def _may_do_both(certificate: x509.Certificate) -> bool:
    """A server of the network accepts links and makes them."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False
    return {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= set(uses)


@dataclass(frozen=True)
class Expiry:
    """Whose certificate is valid until when.

    name  the server's or the authority's; of HTTPS, the host that it is for
    soon  how long before its end there is something to do
    """

    holder: Holder
    name: str
    at: datetime
    soon: timedelta = SOON

    def days_left(self, now: datetime) -> float:
        """In hundredths, rounded down: below zero once it has expired."""
        return math.floor((self.at - now) / _HUNDREDTH) / 100

    def over(self, now: datetime) -> bool:
        return now > self.at

    def problem(self, now: datetime) -> Problem | None:
        """None as long as there is nothing to do."""
        whose = _WHOSE[self.holder].format(name=self.name)
        if self.over(now):
            what = f"{whose} expired on {minute(self.at)}: {_OVER[self.holder]}."
        elif self.at - now < self.soon:
            what = f"{whose} expires in {time_left(self.at - now)} ({self.at.date()})."
        else:
            return None
        return Problem(what, how_to_renew(self.name) if self.holder == "server" else _FIX[self.holder])


def read_expiry(path: Path, holder: Holder, name: str | None = None) -> Expiry:
    """Of a certificate file (PEM), of any kind; without a name, that which it gives itself.

    Certificates of HTTPS come from elsewhere, and may live for some weeks only: there is something to do in the last
    third of such a life.
    """
    certificate = read_certificate(read_pem(path, "certificate"), f"'{path}'")
    try:
        subject = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:  # read when it is asked for
        raise BadInput(f"'{path}' is not a PEM certificate.") from None
    said = str(subject[0].value) if subject else path.name
    end = certificate.not_valid_after_utc
    soon = min(SOON, (end - certificate.not_valid_before_utc) / 3) if holder == "https" else SOON
    return Expiry(holder, said if name is None else name, end, soon)
