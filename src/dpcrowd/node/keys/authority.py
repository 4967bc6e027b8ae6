"""The certificate authority: one key that signs the servers' requests, after a person has compared fingerprints.

Its folder contains `ca.key` (private; best kept off the network), `ca.crt` (public) and `issued/`, a copy of every
certificate that it has signed. Only the name, the hosts and the key of a request are copied into the certificate; its
allowed uses are decided here. The pins in `network.toml` limit what a dishonest authority can do; see docs/keys.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from dpcrowd.errors import BadInput, counted
from dpcrowd.node.keys.files import NewFile, is_there, private_pem, read_pem, read_private_key, write_all
from dpcrowd.node.keys.identity import new_private_key
from dpcrowd.node.keys.names import alternative_names, common_name, hosts_of, subject
from dpcrowd.node.keys.requests import Request, read_request
from dpcrowd.node.keys.signing import PublicKey, fingerprint, public_text, read_certificate, supported_key

__all__ = ["Authority", "Signed", "init_authority", "sign_request"]

_LONGEST_DAYS = 36_500
_FINGERPRINT = 32  # hexadecimal digits
_CLOCKS_APART = timedelta(hours=1)  # a new certificate has to work on a machine whose clock is behind


@dataclass(frozen=True)
class Authority:
    """The files of an authority."""

    folder: Path

    @property
    def key(self) -> Path:
        """The private key."""
        return self.folder / "ca.key"

    @property
    def certificate(self) -> Path:
        """The certificate, signed by itself."""
        return self.folder / "ca.crt"

    @property
    def issued(self) -> Path:
        """The folder with a copy of every certificate that was signed."""
        return self.folder / "issued"


@dataclass(frozen=True)
class Signed:
    """A new certificate, and the keys that its name had before: of a renewal, or of an impostor's request."""

    pem: bytes
    name: str
    hosts: tuple[str, ...]
    key: str
    not_after: datetime
    earlier_keys: tuple[str, ...]


def init_authority(
    folder: Path,
    now: datetime,
    *,
    name: str = "dpcrowd authority",
    days: int = 3650,
    passphrase: bytes | None = None,
    force: bool = False,
) -> Authority:
    """Make an authority's key and its self-signed certificate."""
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise BadInput(f"the authority's name has {len(name)} characters; allowed: 1 to 64 printable ones.")
    _check_days(days)
    authority = Authority(folder)
    if any(authority.issued.glob("*.crt")) and not is_there(authority.key) and not force:
        raise BadInput(
            f"'{authority.issued}' holds certificates of an authority whose key is missing; give another folder."
        )
    key = new_private_key()
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and lists
    builder = _builder(name, name, key.public_key(), key.public_key(), now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = builder.add_extension(usage, critical=True).sign(key, None).public_bytes(Encoding.PEM)
    files = [NewFile(authority.key, private_pem(key, passphrase), private=True), NewFile(authority.certificate, pem)]
    write_all(files, force=force)
    return authority


def sign_request(
    authority: Authority,
    request: bytes,
    now: datetime,
    *,
    days: int = 365,
    name: str | None = None,
    expected_fingerprint: str | None = None,
    passphrase: bytes | None = None,
    where: str = "the request",
) -> Signed:
    """Check a request (PEM), sign it and store a copy in `issued/`.

    `name` and `expected_fingerprint` are what the signer knows from another source; a request that differs is refused.
    """
    _check_days(days)
    content = read_request(request, where)
    text = public_text(content.key)
    if name is not None and content.name != name:
        raise BadInput(f"{where} is for '{content.name}', not for {name!r}; ask the sender before you sign.")
    if expected_fingerprint is not None and _digits(expected_fingerprint) != _digits(fingerprint(text)):
        # The right one is not shown: a signer who could copy it from here would not phone the sender.
        raise BadInput(f"{where} does not have the given fingerprint: it may have been replaced; phone the sender.")
    earlier = _earlier_keys(authority, content, where)
    key = read_private_key(authority.key, passphrase)
    root = _own_certificate(authority, key.public_key())
    if text == public_text(key):
        raise BadInput(f"{where} is for the authority's own key; a server needs a key of its own.")
    remaining = (root.not_valid_after_utc - now.replace(microsecond=0)).days
    if days > remaining:
        allowed = f"allowed: up to {counted(max(remaining, 0), 'day')}, or make a new authority."
        raise BadInput(f"{days} days is longer than the authority's own certificate is valid; {allowed}")
    builder = _builder(content.name, common_name(root, "ca.crt"), content.key, key.public_key(), now, days)
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # TLS 1.3 signs, nothing else
    both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True).add_extension(both_ends, critical=False)
    certificate = builder.add_extension(alternative_names(content.hosts), critical=False).sign(key, None)
    pem = certificate.public_bytes(Encoding.PEM)
    write_all([NewFile(authority.issued / f"{content.name}-{certificate.serial_number:x}.crt", pem)], force=False)
    return Signed(pem, content.name, content.hosts, text, certificate.not_valid_after_utc, earlier)


def _builder(
    name: str, issuer: str, key: PublicKey, issuer_key: PublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    begin = now.replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject(name))
        .issuer_name(subject(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _CLOCKS_APART)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _earlier_keys(authority: Authority, request: Request, where: str) -> tuple[str, ...]:
    """Return other keys that this name has had; refuse what would let one server impersonate another."""
    earlier: dict[str, None] = {}
    key = public_text(request.key)
    for name, hosts, other_key in _issued(authority):
        if name == request.name:
            earlier[other_key] = None
        elif other_key == key:
            raise BadInput(f"{where} for '{request.name}' has the key of '{name}'; each server needs a key of its own.")
        elif name in request.hosts:
            raise BadInput(f"{where} for '{request.name}' asks for the host '{name}', which is another server's name.")
        elif request.name in hosts:
            raise BadInput(
                f"{where} is for '{request.name}', a host in the certificate of '{name}'; ask both organisations."
            )
    earlier.pop(key, None)
    return tuple(earlier)


def _issued(authority: Authority) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield name, hosts and key of every certificate that this authority has signed."""
    for path in sorted(authority.issued.glob("*.crt")):
        where = f"'{path}'"
        pem = read_pem(path, "certificate")
        try:
            certificate = read_certificate(pem, where)
        except BadInput:
            raise BadInput(
                f"{where}, a copy of an issued certificate, is damaged; restore it before you sign."
            ) from None
        yield (
            common_name(certificate, where),
            hosts_of(certificate, where),
            public_text(supported_key(certificate, where)),
        )


def _own_certificate(authority: Authority, key: PublicKey) -> x509.Certificate:
    root = read_certificate(read_pem(authority.certificate, "authority's certificate"), f"'{authority.certificate}'")
    if public_text(supported_key(root, "ca.crt")) != public_text(key):
        raise BadInput(
            f"'{authority.certificate}' does not belong to '{authority.key}': the folder mixes two authorities."
        )
    return root


def _digits(spoken: str) -> str:
    """Return the digits of a fingerprint as people write it down: with spaces, colons, capitals."""
    digits = "".join(character for character in spoken.lower() if character not in " :-\t\n")
    invalid = sum(character not in "0123456789abcdef" for character in digits)
    if invalid or len(digits) != _FINGERPRINT:
        length = f"{len(digits)} characters" + (f", {invalid} of which are not hexadecimal digits" if invalid else "")
        raise BadInput(
            f"the given fingerprint is mistyped: it has {length}; allowed: {_FINGERPRINT} hexadecimal digits."
        )
    return digits


def _check_days(days: int) -> None:
    if not 1 <= days <= _LONGEST_DAYS:
        raise BadInput(f"a certificate cannot be valid for {days} days; allowed: 1 to {_LONGEST_DAYS}.")
