"""Certificates that end while a test runs, made by the project's own tools: signed as if yesterday, for a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from dpcrowd.node.keys.authority import Authority, init_authority, sign_request
from dpcrowd.node.keys.identity import KeyFolder, request_key
from node_support_tls import CertificateFiles

__all__ = ["expire_in", "issue", "issue_files", "old_authority"]

DAY = timedelta(days=1)
HOSTS = ("localhost", "127.0.0.1")


def old_authority(folder: Path, *, days: int = 3650) -> Authority:
    """An authority that was made two days ago, so that it may sign as if yesterday."""
    return init_authority(folder, datetime.now(UTC) - 2 * DAY, days=days)


def issue(authority: Authority, folder: Path, name: str, seconds: float) -> KeyFolder:
    """A server's key and its certificate, which ends in so many seconds (whole ones: the rest is cut off)."""
    files = request_key(folder, name, HOSTS)
    files.authority.write_bytes(authority.certificate.read_bytes())
    expire_in(authority, files, seconds)
    return files


def expire_in(authority: Authority, files: KeyFolder, seconds: float) -> datetime:
    """Another certificate for the same key, in place of the one before; when it ends."""
    days = max(1, -(-int(seconds) // 86_400))
    begin = datetime.now(UTC) + timedelta(seconds=seconds) - timedelta(days=days)
    signed = sign_request(authority, files.request.read_bytes(), begin, days=days)
    files.certificate.write_bytes(signed.pem)
    return signed.not_after


def issue_files(authority: Authority, folder: Path, name: str, seconds: float) -> CertificateFiles:
    """The same, as the tests of the transport name files."""
    made = issue(authority, folder, name, seconds)
    return CertificateFiles(made.key, made.certificate, made.authority)
