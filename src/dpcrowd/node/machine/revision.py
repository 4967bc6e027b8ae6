"""Revisions of the network as a server sees them, and how its estimates pass from one revision to the next.

The view holds what the protocol needs of the configuration: numbers and names, links, times, and how to sign. Where
servers pass records on, those of the last L slots are checked by the revisions that were valid in their slots
(`KnownRevisions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.wire import Sign, Verify, most_bytes
from dpcrowd.privacy.account import Account
from dpcrowd.schemes.server import Server

__all__ = ["KnownRevisions", "NetworkView", "RecordTerms", "Revision", "begin_horizon", "go_on"]

_LEAST_RECORDS = 64
_CATCH_UP_MESSAGES = 6  # a transport queues a few messages per neighbour


@dataclass(frozen=True)
class RecordTerms:
    """Public facts about the records of a network whose servers pass them on.

    samples, length  n samples in w (or T) slots
    lag              L: how many slots a record may be late
    reach            how many links it may travel; None: any number
    offsets          of the servers' schedules, by number
    moves            whether a missed sample moves the schedule: users are pinned
    ends             the first slot after the network's finite horizon; None: a window
    shares           of the servers, by number, or by number and region; empty: those of the server's own setting
    least, most      no noisy count is outside these, with noise that is rarer than one draw in 10^24
    groups           whether records may join regions into groups
    """

    samples: int
    length: int
    lag: int
    reach: int | None
    offsets: tuple[int, ...]
    moves: bool
    least: float
    most: float
    ends: int | None = None
    shares: tuple[float, ...] | tuple[tuple[float, ...], ...] = ()
    groups: bool = False

    def is_plausible(self, noisy: Floats) -> bool:
        """Whether values can be noisy counts of this network."""
        return bool(((noisy >= self.least) & (noisy <= self.most)).all())

    @property
    def expected(self) -> int:
        """How many records there are in L slots, if nobody misses a sample."""
        return len(self.offsets) * (self.lag * self.samples // self.length + 1)

    @property
    def farthest(self) -> int:
        """How many links a record travels at most: no honest one goes farther, whatever a neighbour says."""
        return len(self.offsets) - 1

    @property
    def most_checks(self) -> int:
        """How many signatures one neighbour may have this server check per slot.

        An honest neighbour passes on at most one record and one proof of each origin and slot, which are two signatures
        (`arrivals`), in at most two messages, each signed as well. The rest is for the messages of slots, for requests
        to join and for links that come up again.
        """
        return 4 * len(self.offsets) * self.lag + 64

    @property
    def per_message(self) -> int:
        """How many records one message has room for."""
        return max(_LEAST_RECORDS, -(-self.expected // _CATCH_UP_MESSAGES))


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
    records     about the records that servers pass on; None: they exchange estimates
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
    records: RecordTerms | None = None
    state_bytes: int = 0

    @property
    def most_bytes(self) -> int:
        """Upper bound on the size of a message; `state_bytes` are for a finalised state with learned shares."""
        records = 0 if self.records is None else self.records.per_message
        return most_bytes(len(self.names), len(self.regions), self.form, records) + self.state_bytes

    @property
    def name(self) -> str:
        """The name of this server."""
        return self.names[self.me]

    def number(self, name: str) -> int | None:
        """Return the number of a server by its name; None for a stranger."""
        return self.names.index(name) if name in self.names else None

    def seals(self, slot: int) -> int:
        """Return when a slot accepts no more check-ins."""
        return self.clock.closes(slot) + self.grace_ns

    def sends(self, slot: int) -> int:
        """Return when the own message leaves, however soon it is ready."""
        return self.seals(slot) + self.send_offset_ns

    def ends(self, slot: int) -> int:
        """Return when neighbours are not waited for any longer."""
        return self.seals(slot) + self.deadline_ns

    def next_seal(self, at_ns: int) -> int:
        """Return the first slot that is not sealed yet at a time."""
        return self.clock.slot_of(at_ns - self.grace_ns)


@dataclass(frozen=True)
class Revision:
    """One revision of the network.

    make_server  makes a server that knows nothing yet, as this revision describes it, and spends from an account
    """

    view: NetworkView
    make_server: Callable[[Account | None], Server]


class KnownRevisions:
    """The revision in use and those before it whose records may still count, where servers pass records on.

    earlier  revisions that were valid before it, oldest first, as far as they are known
    """

    def __init__(self, view: NetworkView, earlier: Sequence[NetworkView] = ()) -> None:
        self._views = [*earlier, view]

    @property
    def current(self) -> NetworkView:
        """The revision in use."""
        return self._views[-1]

    @property
    def terms(self) -> RecordTerms:
        """What the revision in use says about records."""
        assert self.current.records is not None
        return self.current.records

    @property
    def earlier(self) -> tuple[NetworkView, ...]:
        """Revisions that were valid before the one in use and whose records may still count, oldest first."""
        return tuple(self._views[:-1])

    @property
    def first_known(self) -> int:
        """The first slot whose revision is known; records of earlier slots cannot be checked."""
        return self._views[0].first_slot

    def account_starts(self) -> set[int]:
        """Return the slots with which accounts of origins may have begun: those of revisions, and of a horizon."""
        ends = self.terms.ends
        return {view.first_slot for view in self._views} | (set() if ends is None else {ends - self.terms.length})

    def lag_shares(self, last: int) -> Floats | None:
        """Return the shares of the last L slots up to `last`, slot s at place s mod L, (L, servers); None: as now.

        Shares that differ by region are (L, servers, d).

        A record counts with the share that its origin had in its slot, by the revision that was valid then.
        """
        terms, names = self.terms, self.current.names
        if len(self._views) == 1 or not terms.shares:
            return None
        shares = np.stack([np.array(terms.shares)] * terms.lag)
        for slot in range(max(last - terms.lag + 1, 0), last + 1):
            view = self.at(slot)
            if view is None or view.records is None or not view.records.shares:
                continue
            if np.shape(view.records.shares)[1:] != shares.shape[2:]:  # of other regions: its records are final
                continue
            for number, name in enumerate(names):
                if (before := view.number(name)) is not None:
                    shares[slot % terms.lag, number] = view.records.shares[before]
        return shares

    def at(self, slot: int) -> NetworkView | None:
        """Return the revision that was valid in a slot; None: it is not known any more."""
        return next((view for view in reversed(self._views) if view.first_slot <= slot), None)

    def by_digest(self, digest: bytes) -> NetworkView | None:
        """Return the revision in use, or one of the last L slots, by its digest."""
        return next((view for view in reversed(self._views) if view.digest == digest), None)

    def use_key(self, view: NetworkView) -> None:
        """Continue with the same revision and a renewed key."""
        self._views[-1] = view

    def add(self, view: NetworkView) -> None:
        """Continue under the next revision; records of earlier slots are checked by the one that was valid then."""
        self._views.append(view)

    def forget_before(self, first: int) -> None:
        """Forget revisions that were not valid in slot `first`, or later."""
        while len(self._views) > 1 and self._views[1].first_slot <= first:
            del self._views[0]


def go_on(revision: Revision, state: bytes, before: Revision | None, account: Account | None) -> tuple[Server, str]:
    """Return a server with a saved state, as far as that fits this revision, and a sentence on it, or two.

    before  the revision under which the state was saved, if that is another one
    """
    server = revision.make_server(account)
    try:
        server.restore(state)
        return server, f"the estimates go on after slot {server.slot}."
    except BadInput as error:
        server, reason = revision.make_server(account), str(error)
    if before is not None:
        old = {region: place for place, region in enumerate(before.view.regions)}
        names = revision.view.regions
        try:
            origins = [before.view.number(name) for name in revision.view.names]
            places = [old.get(region) for region in names]
            anew = server.take_over(state, before.make_server(account), places, origins)
            new = len(set(names) - old.keys())
            text = f"the estimates go on after slot {server.slot}" + (f"; {new} new regions" if new else "")
            return server, text + (f"; filters begin to learn anew: {' and '.join(anew)}." if anew else ".")
        except BadInput as error:
            server, reason = revision.make_server(account), str(error)
    return server, f"estimates begin anew, what was spent stays spent. The reason: {reason}"


def begin_horizon(server: Server) -> str:
    """Let a server sample for its account's horizon, if that is a new one; return a sentence on it, or nothing."""
    account = server.account
    if account is None or account.own.span_ns is not None or server.horizon == account.first_slot:
        return ""
    server.begin_horizon()
    return f" A new horizon begins with slot {account.first_slot}."
