"""From configuration and storage to a state machine: who the node is, what it had, and from what it pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.node.config import FormerModel, NetworkConfig, NodeConfig, digest
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.signing import signer, verifier
from dpcrowd.node.machine import Machine, NetworkView, Revision
from dpcrowd.node.machine.instructions import StoredRecord
from dpcrowd.node.machine.revision import RecordTerms, begin_horizon, go_on
from dpcrowd.node.storage import Storage
from dpcrowd.node.wire import DEVIATIONS, Sign, most_counted
from dpcrowd.privacy import Noise
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.allocation import per_sample
from dpcrowd.privacy.network_guarantee import Slots
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.server import Joined, Server, saved_join, saved_slot

__all__ = [
    "configured_slots",
    "load_account",
    "make_machine",
    "make_view",
    "revision_of",
    "stored_join",
    "stored_models",
    "view_of",
]


def make_view(node: NodeConfig, network: NetworkConfig, expires: int = 0) -> NetworkView:
    """Return one revision as this server sees it; reads the private key.

    expires  when its certificate does, in seconds since 1970; neighbours are told
    """
    return view_of(network, node.server, signer(network.id, read_private_key(node.keys.key)), expires)


def view_of(network: NetworkConfig, server: str, sign: Sign, expires: int = 0) -> NetworkView:
    """Return the same, with whatever signs for the server."""

    def links(slot: int) -> frozenset[int]:
        return frozenset(network.number_of(name) for name in network.neighbours(server, slot))

    return NetworkView(
        me=network.number_of(server),
        names=tuple(one.name for one in network.servers),
        digest=digest(network),
        clock=network.clock(),
        grace_ns=network.grace_ns,
        deadline_ns=network.deadline_ns,
        send_offset_ns=network.send_offset_ns,
        regions=network.regions,
        form=network.setting(server).form,
        links=links,
        sign=sign,
        population=network.population,
        coarsest=_coarsest(network),
        verify=verifier(network.id, [one.keys for one in network.servers]),
        expires=expires,
        revision=network.revision,
        first_slot=network.valid_from_slot,
        records=_record_terms(network),
        state_bytes=_learner_bytes(network),
    )


def _learner_bytes(network: NetworkConfig) -> int:
    """Return the bytes of what is known of learned shares in a finalised state; 0: none are learned."""
    if not network.method.share_width or network.relay is None:
        return 0
    servers, regions = len(network.servers), len(network.regions)
    size = 2 * servers + 1
    numbers = regions * (size * (size + 1) // 2 + size + 3 * network.relay.lag * servers) + size
    return 8 * numbers + 1024


def _record_terms(network: NetworkConfig) -> RecordTerms | None:
    """Return the public facts about records, if servers pass them on."""
    relay, guarantee = network.relay, network.guarantee()
    if relay is None:
        return None
    samples = relay.samples_per(guarantee.length)
    noise = DEVIATIONS * math.sqrt(2.0) * guarantee.sensitivity / (per_sample(guarantee.total, samples) / NANO)
    return RecordTerms(
        samples=samples,
        length=guarantee.length,
        lag=relay.lag,
        reach=relay.max_hops,
        offsets=network.offsets,
        moves=guarantee.users == "pinned",
        least=-noise,
        most=most_counted(network.population, guarantee.sensitivity) + noise,
        ends=None if guarantee.kind == "window" else network.guarantee_section.horizon_from_slot + guarantee.length,
        shares=_plain_shares(network),
        groups=relay.groups != "off",
    )


def _plain_shares(network: NetworkConfig) -> tuple[float, ...] | tuple[tuple[float, ...], ...]:
    shares = network.shares
    return tuple(shares.tolist()) if shares.ndim == 1 else tuple(tuple(row) for row in shares.tolist())


def _coarsest(network: NetworkConfig) -> float:
    """Return the deviation of the noisiest sample: an even part of the budget, at the smallest share of people."""
    guarantee = network.guarantee()
    even = max(guarantee.total // guarantee.length, 1) / NANO
    smallest = float(network.shares.min())
    return math.sqrt(2.0) * guarantee.sensitivity / (even * smallest)


def revision_of(
    network: NetworkConfig, view: NetworkView, noise: Noise, *, allow_simulated_noise: bool = False
) -> Revision:
    """Return what the machine needs of one revision. For `allow_simulated_noise` see `Server`."""
    name = view.names[view.me]

    def make_server(account: Account | None) -> Server:
        return Server(
            network.scheme(),
            network.setting(name),
            noise,
            number=view.me,
            share=_share_of(network, view.me),
            max_degree=network.max_degree(),
            beta=network.beta,
            mixing=network.mixing(name),
            account=account,
            allow_simulated_noise=allow_simulated_noise,
        )

    return Revision(view, make_server)


def _share_of(network: NetworkConfig, number: int) -> float | Floats:
    """Return the share of a server, or its shares by region."""
    shares = network.shares
    return float(shares[number]) if shares.ndim == 1 else np.asarray(shares[number])


def make_machine(
    revision: Revision,
    network: NetworkConfig,
    storage: Storage,
    now_ns: int,
    *,
    before: Revision | None = None,
    following: NetworkConfig | None = None,
    earlier: Sequence[NetworkView] = (),
) -> tuple[Machine, str]:
    """Return the machine that goes on where the folder stopped, and a sentence on what it found there.

    before     the revision under which the state was stored, if that is another one
    following  the one that takes over later
    earlier    those that were valid before this one, oldest first
    """
    view, state = revision.view, storage.state()
    over = max(view.next_seal(now_ns) - 1, -1)
    account = load_account(storage, network, min(_slot_of(state, over), over))
    if state is None:
        server, text = revision.make_server(account), "no estimates are stored: begins anew."
        if storage.is_new:
            text = "the folder is new: nothing is known, nothing was spent."
        elif not storage.ledger.payments():
            text = f"{text} Nothing was spent."
    else:
        server, text = go_on(revision, state, before, account)
    text += begin_horizon(server)
    last = server.slot if server.slot >= 0 else over
    complete_until = storage.memory.complete_until()
    machine = Machine(
        revision,
        server,
        counter=storage.ledger.counter(),
        heard=storage.memory.remembered(),
        vouched=len(view.names) == 1,
        complete_until=last if complete_until is None else complete_until,  # version 0.1 did not keep it
        following=None if following is None else (following.revision, following.valid_from_slot),
        stored=_stored_records(storage, server.slot),
        earlier=earlier,
    )
    return machine, text


def _stored_records(storage: Storage, last: int) -> list[StoredRecord]:
    """Return the records on disk, up to the last slot that the server knows."""
    return [
        StoredRecord(row.slot, row.origin, "proof" if row.kind == "proof" else "record", row.content)
        for row in storage.records.all()
        if row.slot <= last
    ]


def stored_models(storage: Storage) -> tuple[FormerModel, ...]:
    """Return the models of earlier revisions, as far as the ledger's database knows them."""
    return tuple(FormerModel(*row) for row in storage.earlier_models.all())


def stored_join(storage: Storage) -> Joined | None:
    """Return whose word the stored estimates began with; None: nobody's, or there are none that can be read."""
    state = storage.state()
    if state is not None:
        with suppress(BadInput):
            return saved_join(state)
    return None


def load_account(storage: Storage, network: NetworkConfig, slot: int) -> Account:
    """Load the account of a network's server, with all that counts against a slot, or a later one."""
    slots = configured_slots(network)
    return storage.ledger.account(slots.opens(slot), slots)


def configured_slots(network: NetworkConfig) -> Slots:
    """Return a network's slots, and how many are in its window or horizon."""
    clock = network.clock()
    return Slots(clock.epoch_ns, clock.length_ns, network.guarantee().length)


def _slot_of(state: bytes | None, otherwise: int) -> int:
    """Return the last slot that a stored state knows, if it is one."""
    if state is not None:
        with suppress(BadInput):
            return saved_slot(state)
    return otherwise
