"""When a certificate expires, and what that means to whom: a warning while there is time, then a problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography.x509.oid import NameOID

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.checks import SOON, Problem, how_to_renew, minute, time_left
from dpcrowd.node.keys.files import read_pem
from dpcrowd.node.keys.signing import read_certificate

__all__ = ["Expiry", "Holder", "read_expiry"]

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
