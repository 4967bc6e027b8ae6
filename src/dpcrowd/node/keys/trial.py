"""All keys of a local trial: an authority and one folder per server, in one step, on one machine.

Whoever has this folder can act as every server. Organisations that do not trust one another must not use it: each makes
its own key (`dpcrowd keys request`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.authority import init_authority, sign_request
from dpcrowd.node.keys.files import NewFile, is_there, read_pem, write_all
from dpcrowd.node.keys.identity import KeyFolder, request_key
from dpcrowd.node.keys.names import check_server_name

__all__ = ["LOOPBACK", "make_trial"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def make_trial(
    folder: Path, servers: Sequence[str], now: datetime, *, hosts: Sequence[str] = LOOPBACK, days: int = 365
) -> dict[str, KeyFolder]:
    """Make `folder/ca` and `folder/NAME` for each server, with keys, certificates and the authority's certificate."""
    if not servers:
        raise BadInput("a trial needs at least one server; give their names, such as --servers a,b,c.")
    repeated = sorted({name for name in servers if list(servers).count(name) > 1})
    if repeated:
        raise BadInput(f"the server '{repeated[0]}' is named twice; each server needs a name of its own.")
    for name in servers:
        check_server_name(name)
        if is_there(folder / name):  # before anything is written: an incomplete trial would block the next attempt
            raise BadInput(f"'{folder / name}' exists and is not replaced; give another folder.")
    authority = init_authority(folder / "ca", now, name="dpcrowd local trial")  # outlives what it signs
    root = read_pem(authority.certificate, "authority's certificate")
    folders: dict[str, KeyFolder] = {}
    for name in servers:
        files = request_key(folder / name, name, hosts)
        signed = sign_request(authority, read_pem(files.request, "request"), now, days=days, name=name)
        write_all([NewFile(files.certificate, signed.pem), NewFile(files.authority, root)], force=False)
        folders[name] = files
    return folders
