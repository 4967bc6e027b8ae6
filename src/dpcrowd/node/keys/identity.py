"""A server's own key and request, and their renewal: the private key is made here and never leaves its folder.

The folder of server `clinic-a` contains `clinic-a.key` (private), `clinic-a.csr` (the request, for the authority),
`clinic-a.crt` (the certificate that the authority returns) and `ca.crt` (the authority's certificate). The files of a
renewal are called `clinic-a.next.*` until it is finished, so that the server runs on the old pair in the meantime.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.checks import certificate_problems
from dpcrowd.node.keys.files import NewFile, is_there, private_pem, read_pem, read_private_key, write_all
from dpcrowd.node.keys.names import check_server_name, common_name, hosts_of
from dpcrowd.node.keys.requests import make_request, read_request
from dpcrowd.node.keys.signing import (
    PrivateKey,
    fingerprint,
    key_of_certificate,
    public_text,
    read_certificate,
    supported_key,
)

__all__ = ["KeyFolder", "finish_renewal", "new_private_key", "renew", "request_key"]


@dataclass(frozen=True)
class KeyFolder:
    """The files of one server's identity; `next` are those of its renewal, if one is in progress."""

    folder: Path
    name: str
    suffix: str = ""

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}{self.suffix}.key"

    @property
    def request(self) -> Path:
        return self.folder / f"{self.name}{self.suffix}.csr"

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}{self.suffix}.crt"

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def next(self) -> KeyFolder:
        return KeyFolder(self.folder, self.name, ".next")

    @classmethod
    def find(cls, folder: Path, name: str | None = None) -> KeyFolder:
        """Return the identity of a server in a folder: the one of this name, or the only one.

        Server names have no dots, so `NAME.next.key` is not another server's. The folder may contain other keys, that
        of HTTPS for instance: of several, a server's key is the one whose certificate or request has the file's name.
        """
        if not folder.is_dir():
            raise BadInput(f"'{folder}' is not a folder; give the folder with the server's NAME.key.")
        names = sorted(path.stem for path in folder.glob("*.key") if "." not in path.stem and path.stem != "ca")
        if len(names) > 1:
            names = [one for one in names if cls(folder, one)._has_own_name()] or names
        content = f"the keys of {', '.join(names)}" if names else "no NAME.key"
        if name is not None:
            if name not in names:
                raise BadInput(f"'{folder}' has no {name}.key; it has {content}.")
            return cls(folder, name)
        if not names:
            raise BadInput(f"'{folder}' has {content}; give the folder with the server's key.")
        if len(names) > 1:
            raise BadInput(f"'{folder}' has {content}; choose one with --name.")
        return cls(folder, names[0])

    def _has_own_name(self) -> bool:
        """Whether the certificate, or else the request, is for a key of our kind under the name of the files."""
        try:
            if is_there(self.certificate):
                certificate = read_certificate(read_pem(self.certificate, "certificate"), "the certificate")
                supported_key(certificate, "the certificate")
                return common_name(certificate, "the certificate") == self.name
            return read_request(read_pem(self.request, "request")).name == self.name
        except BadInput:
            return False


def new_private_key() -> PrivateKey:
    """Return a new key from the operating system's randomness."""
    return PrivateKey.generate()


def request_key(folder: Path, name: str, hosts: Sequence[str] = (), *, force: bool = False) -> KeyFolder:
    """Make a private key and a request for it, in the server's own folder."""
    return _write_request(KeyFolder(folder, check_server_name(name)), hosts, force)


def renew(
    folder: Path, hosts: Sequence[str] | None = None, *, name: str | None = None, force: bool = False
) -> KeyFolder:
    """Make the next key and its request, for the name and (unless others are given) the hosts of the present one."""
    present = KeyFolder.find(folder, name)
    where = f"'{present.certificate}'"
    if not is_there(present.certificate):
        raise BadInput(f"there is no {where}, so there is nothing to renew; have '{present.request}' signed first.")
    pem = read_pem(present.certificate, "certificate")
    if key_of_certificate(pem, where) != public_text(read_private_key(present.key)):
        raise BadInput(
            f"{where} does not belong to the key '{present.key}'; put the certificate of that key there first."
        )
    certificate = read_certificate(pem, where)
    if common_name(certificate, where) != present.name:
        raise BadInput(f"{where} is for {common_name(certificate, where)!r}, but the file name says '{present.name}'.")
    if is_there(present.next.certificate) and not force:
        raise BadInput(f"'{present.next.certificate}' exists: finish that renewal, or give --force to start another.")
    renewal = _write_request(present.next, hosts_of(certificate, where) if hosts is None else hosts, force)
    renewal.certificate.unlink(missing_ok=True)  # of an abandoned renewal: it belongs to no key any more
    return renewal


def finish_renewal(folder: Path, now: datetime, *, name: str | None = None) -> KeyFolder:
    """Put the renewed pair in the place of the old one, which is kept under another name.

    A new certificate that would not work is refused, and nothing changes. The two files cannot be swapped in one step:
    after a crash between them the operator repeats the command, which continues from there.
    """
    present = KeyFolder.find(folder, name)
    renewal = present.next
    if not is_there(renewal.key):
        raise BadInput(f"no renewal is in progress in '{folder}'; begin one with: dpcrowd keys renew --node {folder}")
    key = read_private_key(renewal.key)
    stopped_halfway = not is_there(renewal.certificate) and _is_for(present.certificate, key)
    new_certificate = present.certificate if stopped_halfway else renewal.certificate
    pem = read_pem(new_certificate, "renewed certificate")
    authority = read_pem(present.authority, "authority's certificate")
    problems = certificate_problems(pem, authority, name=present.name, now=now, key=public_text(key))
    if problems:
        raise BadInput(f"'{new_certificate}' cannot be used: {problems[0].what} {problems[0].fix}")
    old_key = read_private_key(present.key)
    old = KeyFolder(folder, present.name, f".old-{fingerprint(old_key).replace(' ', '')[:12]}")
    try:
        if not stopped_halfway:
            # Copies first: at no moment is a key without a copy, or the usual place without a certificate.
            copies = [NewFile(old.key, private_pem(old_key), private=True)]
            if is_there(present.certificate):
                copies.append(NewFile(old.certificate, read_pem(present.certificate, "certificate")))
            write_all(copies, force=True)
            os.replace(renewal.certificate, present.certificate)
        os.replace(renewal.key, present.key)
        if is_there(renewal.request):
            os.replace(renewal.request, present.request)
    except OSError as error:
        raise BadInput(
            f"cannot move the files in '{folder}': {error.strerror or error}; correct that and try again."
        ) from None
    return old


def _is_for(certificate: Path, key: PrivateKey) -> bool:
    return is_there(certificate) and key_of_certificate(read_pem(certificate, "certificate")) == public_text(key)


def _write_request(files: KeyFolder, hosts: Sequence[str], force: bool) -> KeyFolder:
    key = new_private_key()
    request = make_request(key, files.name, hosts)
    write_all([NewFile(files.key, private_pem(key), private=True), NewFile(files.request, request)], force=force)
    return files
