"""What the machine has to know of the network: numbers and names, links, times, and how to sign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpcrowd.node.slots import SlotClock
from dpcrowd.node.wire import Sign, Verify, most_bytes

__all__ = ["NetworkView"]


@dataclass(frozen=True)
class NetworkView:
    """One revision of the network as one of its servers sees it.

    me          its own number
    names       of all servers, by number
    digest      of the revision
    grace_ns    how long after its close a slot takes late check-ins
    deadline_ns how long after the seal neighbours are waited for
    send_offset_ns  how long after the seal the own message leaves
    regions     their names, in the order of the vectors
    links       the numbers of the neighbours in a slot
    sign        with the own key; what is signed, or verified, is of this network alone: its id is signed with it
    population  people at most, in all regions; None: not known, and no sample is too large
    coarsest    standard deviation of the noisiest honest sample of any server, in people
    expires     when the own certificate expires, in seconds since 1970; 0: not known
    revision    its number
    first_slot  the first slot in which it is valid
    """

    me: int
    names: tuple[str, ...]
    digest: bytes
    clock: SlotClock
    grace_ns: int
    deadline_ns: int
    regions: tuple[str, ...]
    form: str
    links: Callable[[int], frozenset[int]]
    sign: Sign
    verify: Verify
    population: int | None = None
    coarsest: float = 0.0
    send_offset_ns: int = 0
    expires: int = 0
    revision: int = 1
    first_slot: int = 0

    @property
    def most_bytes(self) -> int:
        """Upper bound on the size of a message."""
        return most_bytes(len(self.names), len(self.regions), self.form)

    def number(self, name: str) -> int | None:
        """Of a server by its name; None for a stranger."""
        return self.names.index(name) if name in self.names else None

    def seals(self, slot: int) -> int:
        """When a slot takes no more check-ins."""
        return self.clock.closes(slot) + self.grace_ns

    def sends(self, slot: int) -> int:
        """When the own message leaves, however soon it is ready."""
        return self.seals(slot) + self.send_offset_ns

    def ends(self, slot: int) -> int:
        """When neighbours are not waited for any longer."""
        return self.seals(slot) + self.deadline_ns

    def next_seal(self, at_ns: int) -> int:
        """The first slot that is not sealed yet at a time."""
        return self.clock.slot_of(at_ns - self.grace_ns)
