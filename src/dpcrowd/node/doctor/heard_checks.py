"""Checks of a stopped server against what its neighbours say: the same network.toml, the time, this server's ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.doctor.clock_checks import compare_clocks
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.doctor.listening import listen
from dpcrowd.node.keys.words import verifier
from dpcrowd.node.wire import Body, MessageRefused, Verify, decode, peek, proven

__all__ = ["check_heard"]

_LONGER_THAN_A_SLOT = 3.0


def check_heard(
    node: NodeConfig, network: NetworkConfig, slot: int, awaited: Collection[str], counter: int | None, seconds: float
) -> Iterator[Finding]:
    """awaited: neighbours that may be there; counter: what the ledger has paid for, None if that is not known."""
    if not awaited:
        yield skipped("digest", "no neighbour can be reached now: their files and clocks are not compared.")
        return
    seconds = min(seconds, network.clock().length_ns / 1e9 + _LONGER_THAN_A_SLOT)
    try:
        heard = listen(node, network, slot, awaited, seconds)
    except DpcrowdError as error:
        yield skipped("digest", f"the neighbours cannot be listened to: {error}")
        return
    for name in awaited:
        if name in heard.said:
            yield from _judge(node, network, name, *heard.said[name], counter)
        elif name in heard.present:
            text = f"'{name}' is there and said nothing within {seconds:g} s, since it speaks once a slot"
            yield skipped("digest", f"{text}: its file and clock are not compared. Give a longer --listen.")
        else:
            yield skipped("digest", f"'{name}' is not there now: its file and clock are not compared.")


def _judge(
    node: NodeConfig, network: NetworkConfig, name: str, payload: bytes, came_ns: int, counter: int | None
) -> Iterator[Finding]:
    mine = digest(network)
    try:
        said, theirs = peek(payload)
        if theirs != mine:
            text = f"'{name}' has another network.toml: digest {theirs.hex()[:32]}, here {mine.hex()}."
            fix = f"Compare the files, value by value: here it is revision {network.revision}."
            yield problem("digest", text, fix)
            return
        body = _checked(network, name, payload, said)
    except MessageRefused as refused:
        fix = "Compare keys and versions with that organisation; the page on failures explains each reason."
        yield problem("neighbours", f"a message of '{name}' would be refused ({refused.reason}): {refused}", fix)
        return
    yield passed("digest", f"'{name}' has the same network.toml (digest {mine.hex()}).")
    yield compare_clocks(name, network, said, came_ns, after=body.after)
    if counter is not None:
        yield from _remembers(network, name, network.number_of(node.server), body, counter)


def _remembers(network: NetworkConfig, name: str, me: int, body: Body, counter: int) -> Iterator[Finding]:
    """What a neighbour remembers of this server, which it has to prove if that is more than the ledger knows."""
    echoed = body.heard.get(me)
    shown = proven(body.proofs[me], me, _verify(network)) if me in body.proofs else None
    if shown is not None and shown[1] > counter:
        text = (
            f"'{name}' remembers {shown[1]} samples of this server and shows its signature, its ledger knows "
            f"{counter}: the folder is an old copy, or a second server runs with the same key."
        )
        fix = "Find out which. After a restored copy: start the server, then 'dpcrowd node confirm-loss'."
        yield problem("budget", text, fix)
    elif echoed is not None and echoed[1] > counter:
        text = f"'{name}' says that it remembers {echoed[1]} samples of this server, its ledger knows {counter}"
        yield note("budget", f"{text}; it shows no proof, as it would from the second slot without this server on.")
    elif echoed is not None:
        yield passed("budget", f"'{name}' remembers no sample of this server that its ledger does not know.")


def _verify(network: NetworkConfig) -> Verify:
    return verifier(network.id, [server.keys for server in network.servers])


def _checked(network: NetworkConfig, name: str, payload: bytes, slot: int) -> Body:
    """As a running server would check it, but for the slot."""
    return decode(
        payload,
        sender=network.number_of(name),
        digest=digest(network),
        slot=slot,
        regions=len(network.regions),
        form=network.setting(name).form,
        verify=_verify(network),
        names={number: one.name for number, one in enumerate(network.servers)},
    ).body
