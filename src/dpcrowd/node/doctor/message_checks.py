"""Checks of a stopped server against the messages of its neighbours: network.toml, the clock, this server's ledger.

The doctor listens in the stopped server's place for a few seconds. A neighbour sends a message once per slot, and again
to a server that appears, inside an exchange or after it. One message is enough: it carries the digest of the
neighbour's network.toml, shows how its clock compares, and says what it remembers of this server's ledger. The doctor
sends nothing; the neighbours' logs show a server that came up and went down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from dpcrowd.errors import DpcrowdError, counted
from dpcrowd.models.file import model_digest
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.doctor.clock_checks import compare_clocks
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.keys.signing import verifier
from dpcrowd.node.transport.base import Peer
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from dpcrowd.node.wire import Body, MessageRefused, Verify, decode, peek, peek_round, proven

__all__ = ["Received", "check_messages"]

_LONGER_THAN_A_SLOT = 3.0
_STEP = 0.05
_PATIENCE = 2.5  # seconds in which a running neighbour has dialled, or was reached: it tries twice per second


def check_messages(
    node: NodeConfig, network: NetworkConfig, slot: int, expected: Collection[str], counter: int | None, seconds: float
) -> Iterator[Finding]:
    """Listen for some seconds and compare the messages of the neighbours with this server's files.

    expected  the neighbours that may be running
    counter   how many samples the ledger has paid for; None if unknown
    """
    if not expected:
        yield skipped("digest", "no neighbour can be reached now: their files and clocks are not compared.")
        return
    seconds = min(seconds, network.clock().length_ns / 1e9 + _LONGER_THAN_A_SLOT)
    try:
        received = listen(node, network, slot, expected, seconds)
    except DpcrowdError as error:
        yield skipped("digest", f"the doctor cannot listen to the neighbours: {error}")
        return
    for name in expected:
        if name in received.messages:
            yield from _judge(node, network, name, *received.messages[name], counter)
        elif name in received.present:
            text = f"'{name}' is running, but sent no message within {seconds:g} s; it sends one per slot"
            yield skipped("digest", f"{text}. Its file and clock are not compared: give a longer --listen.")
        else:
            yield skipped("digest", f"'{name}' is not running now: its file and clock are not compared.")


def _judge(
    node: NodeConfig, network: NetworkConfig, name: str, payload: bytes, received_ns: int, counter: int | None
) -> Iterator[Finding]:
    """Compare one message of a neighbour with this server's files and clock."""
    mine = digest(network)
    try:
        message_slot, theirs = peek(payload)
        if theirs != mine:
            text = f"'{name}' has a different network.toml: digest {theirs.hex()[:32]}, here {mine.hex()}."
            fix = f"Compare the two files, value by value; this server has revision {network.revision}."
            if network.fitted is not None:
                model = model_digest(network.fitted)[:32]
                fix = f"{fix} If they are the same, the model files differ: the model here has the digest {model}."
            yield problem("digest", text, fix)
            return
        body = _decode(network, name, payload)
    except MessageRefused as refusal:
        fix = "Compare keys and versions with that organisation; docs/failures.md explains each reason."
        yield problem("neighbours", f"a message of '{name}' would be refused ({refusal.reason}): {refusal}", fix)
        return
    yield passed("digest", f"'{name}' has the same network.toml (digest {mine.hex()}).")
    yield compare_clocks(name, network, message_slot, received_ns, after=body.after)
    if counter is not None:
        yield from _check_memory(network, name, network.number_of(node.server), body, counter)


def _check_memory(network: NetworkConfig, name: str, me: int, body: Body, counter: int) -> Iterator[Finding]:
    """Compare what a neighbour remembers of this server, which it has to prove if that exceeds the ledger."""
    echo = body.heard.get(me)
    proof = proven(body.proofs[me], me, _verify(network)) if me in body.proofs else None
    if proof is not None and proof[1] > counter:
        text = (
            f"'{name}' remembers {counted(proof[1], 'sample')} of this server and proves it by its signature, but the "
            f"ledger has {counter}: the folder is an old copy, or a second server runs with the same key."
        )
        fix = "Find out which. If a copy was restored: start the server, then run 'dpcrowd node confirm-loss'."
        yield problem("budget", text, fix)
    elif echo is not None and echo.counter > counter:
        text = f"'{name}' reports {counted(echo.counter, 'sample')} of this server, but the ledger has {counter}"
        yield note("budget", f"{text}; it gives no proof, which it would from the second slot without this server on.")
    elif echo is not None:
        yield passed("budget", f"'{name}' remembers no sample of this server that the ledger does not have.")


def _verify(network: NetworkConfig) -> Verify:
    return verifier(network.id, [server.keys for server in network.servers])


def _decode(network: NetworkConfig, name: str, payload: bytes) -> Body:
    """Decode a message with all checks of a running server, except that of the slot."""
    return decode(
        payload,
        sender=network.number_of(name),
        digest=digest(network),
        regions=len(network.regions),
        form=network.setting(name).form,
        verify=_verify(network),
        names={number: one.name for number, one in enumerate(network.servers)},
        relays=network.relay is not None,
    ).body


@dataclass
class Received:
    """The neighbours that had a link to this server, and the last message of each with its time of arrival."""

    present: set[str] = field(default_factory=set)
    messages: dict[str, tuple[bytes, int]] = field(default_factory=dict)


def listen(node: NodeConfig, network: NetworkConfig, slot: int, expected: Collection[str], seconds: float) -> Received:
    """Listen until all expected neighbours have sent a message, none is running, or the time is over.

    `DpcrowdError` says that the transport cannot be opened.
    """
    return asyncio.run(_listen(node, network, slot, expected, seconds))


async def _listen(
    node: NodeConfig, network: NetworkConfig, slot: int, expected: Collection[str], seconds: float
) -> Received:
    received = Received()

    def on_message(sender: str, payload: bytes) -> None:
        if peek_round(payload) == 1:  # others pass records on, at any time
            received.messages[sender] = payload, time.time_ns()

    def on_neighbour(neighbour: str, up: bool) -> None:
        if up:
            received.present.add(neighbour)

    tls = TlsFiles(key=node.keys.key, certificate=node.keys.certificate, ca=node.keys.ca)
    transport = ZenohTransport(network.id, tls, node.listen.transport)
    neighbours = [network.server(name) for name in network.neighbours(node.server, slot)]
    peers = [Peer(one.name, one.endpoint, one.certificate_name, tuple(one.keys)) for one in neighbours]
    start = time.monotonic()
    await transport.open(node.server, peers, on_message, on_neighbour)
    try:
        while (elapsed := time.monotonic() - start) < seconds:
            silent = {name for name in expected if name not in received.messages}
            if not silent or (elapsed > _PATIENCE and not silent & received.present):
                break
            await asyncio.sleep(_STEP)
    finally:
        await transport.close()
    return received
