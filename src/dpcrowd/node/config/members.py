"""The rows of network.toml: [[server]], one organisation's node, and [[link]], two servers that hear each other."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import force_setattr

from dpcrowd.errors import BadInput
from dpcrowd.node.config.address import check_endpoint
from dpcrowd.node.config.kinds import CertificateName, InvalidValue, Name, Section, about
from dpcrowd.node.keys.pins import read_key

__all__ = ["LinkSection", "ServerSection"]

_SLOT = "a slot: a whole number >= 0"

Share = Annotated[
    float, about("The public part of the population that this server sees.", "above 0 and at most 1", gt=0, le=1)
]
Keys = Annotated[
    tuple[str, ...],
    about(
        "Pinned public keys: one, or the old and the new one while a key is renewed.",
        'a list of one or two texts "ed25519:BASE64", as `dpcrowd keys show` prints them',
        min_length=1,
        max_length=2,
    ),
]


class ServerSection(Section, frozen=True, kw_only=True):
    """[[server]]: one organisation's node. Its number is its place in the file."""

    name: Annotated[Name, about("The server's name.", "1 to 63 of a-z, 0-9 and '-', with no '-' at either end")]
    share: Share
    keep: Annotated[
        float,
        about(
            "To shed load: the part of its users that this server counts, chosen in each slot by their keyed hashes.",
            "above 0 and at most 1",
            gt=0,
            le=1,
        ),
    ] = 1.0
    endpoint: Annotated[str, about("Where its neighbours reach it.", '"tls/HOST:PORT"')]
    certificate_name: CertificateName = ""
    keys: Keys

    def __post_init__(self) -> None:
        check_endpoint("endpoint", self.endpoint)
        for number, key in enumerate(self.keys):
            try:
                read_key(key)
            except BadInput as error:
                raise InvalidValue(f"keys[{number}]", str(error)) from None
        if len(set(self.keys)) < len(self.keys):
            raise InvalidValue("keys", "the same key is given twice; allowed: one key, or an old and a new one.")
        if not self.certificate_name:
            force_setattr(self, "certificate_name", self.name)

    @property
    def counted_share(self) -> float:
        """The part of the population that its counts are of."""
        return self.share * self.keep


class LinkSection(Section, frozen=True, kw_only=True):
    """[[link]]: two servers that hear each other, always or for some slots."""

    between: Annotated[tuple[str, str], about("The two servers.", 'the names of two servers, ["a", "b"]')]
    from_slot: Annotated[int | None, about("The first slot of the link; without it, from the start.", _SLOT)] = None
    until_slot: Annotated[
        int | None, about("The first slot without the link again; without it, for good.", "a slot above from_slot")
    ] = None

    def __post_init__(self) -> None:
        if self.from_slot is not None and self.from_slot < 0:
            raise InvalidValue("from_slot", f"given {self.from_slot}; allowed: {_SLOT}.")
        first = self.from_slot or 0
        if self.until_slot is not None and self.until_slot <= first:
            raise InvalidValue(
                "until_slot", f"given {self.until_slot}; allowed: a slot above {first}, where the link begins."
            )
