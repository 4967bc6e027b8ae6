"""Key files on disk: private files are readable only by their owner, and nothing is replaced without `force`.

A lost key cannot be made again: everybody has pinned its public half. So an existing file is refused, even if it
appears between the check and the write.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.signing import PrivateKey, load_private_key

__all__ = ["NewFile", "is_there", "private_pem", "read_passphrase", "read_pem", "read_private_key", "write_all"]

_LARGEST = 1 << 20  # a PEM file has a few hundred bytes; a wrong path must not load a disk image


@dataclass(frozen=True)
class NewFile:
    """A file to be written, and whether only its owner may read it."""

    path: Path
    content: bytes
    private: bool = False


def write_all(files: Sequence[NewFile], *, force: bool) -> None:
    """Write all files or none, durably; refuse a file that exists, unless `force`."""
    for file in files:
        if not force and is_there(file.path):
            raise _already_there(file.path)
    written: list[Path] = []
    try:
        for file in files:
            _make_folder(file.path.parent)
            _write(file, force)
            written.append(file.path)
            _sync_folder(file.path.parent)
    except (OSError, BadInput) as error:
        if not force:  # new files can be removed, replaced ones cannot be brought back
            for path in written:
                path.unlink(missing_ok=True)
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"cannot write '{file.path}': {error.strerror or error}.") from None


def is_there(path: Path) -> bool:
    """Whether anything has this name, a dangling link included; False in a folder that cannot be read."""
    return os.path.lexists(path)


def _write(file: NewFile, force: bool) -> None:
    mode = 0o600 if file.private else 0o644
    if not force:
        try:
            _create(file.path, file.content, mode)
        except FileExistsError:
            raise _already_there(file.path) from None
        return
    beside = file.path.with_name(f".{file.path.name}.{secrets.token_hex(4)}")
    try:
        _create(beside, file.content, mode)
        os.replace(beside, file.path)
    finally:
        beside.unlink(missing_ok=True)


def _create(path: Path, content: bytes, mode: int) -> None:
    # The mode is set at creation: a file that is restricted afterwards was readable for a moment.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make the names durable too, on systems where folders can be synced."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_folder(folder: Path) -> None:
    if not is_there(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # file systems without modes
            folder.chmod(0o700)


def _already_there(path: Path) -> BadInput:
    return BadInput(f"'{path}' exists and is not replaced; give another folder, or --force to overwrite it.")


def read_pem(path: Path, what: str) -> bytes:
    """Return the content of a small file; refuse one that cannot be read, naming `what` it should be."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise BadInput(f"there is no {what} at '{path}'.") from None
    except OSError as error:
        raise BadInput(f"cannot read the {what} '{path}': {error.strerror or error}.") from None
    if len(content) > _LARGEST:
        raise BadInput(f"'{path}' is larger than 1 MiB, so it is not a {what}.")
    return content


def read_private_key(path: Path, passphrase: bytes | None = None) -> PrivateKey:
    """Return the private key in a file."""
    return load_private_key(read_pem(path, "private key"), f"'{path}'", passphrase)


def read_passphrase(path: Path | None) -> bytes | None:
    """Return the first line of a file, or None if no file is given; an empty passphrase is refused."""
    if path is None:
        return None
    lines = read_pem(path, "passphrase file").splitlines()
    if not lines or not lines[0]:
        raise BadInput(f"the first line of '{path}' is empty; write the passphrase there.")
    return lines[0]


def private_pem(key: PrivateKey, passphrase: bytes | None = None) -> bytes:
    """Return a private key as PEM (PKCS #8), encrypted if there is a passphrase."""
    encryption = (
        serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
