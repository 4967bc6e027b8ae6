"""Limits of connections without a socket: who has a place, who loses it, and what is told of it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter

import pytest

from dpcrowd.node.connections.descriptors import open_files, shares
from dpcrowd.node.connections.listener import Listener, bind, limited_address
from dpcrowd.node.connections.tally import Tally
from dpcrowd.node.connections.waiting import WaitingConnections


def test_the_newest_is_let_in_and_the_oldest_of_the_greediest_address_leaves() -> None:
    """If the newest were turned away, whoever fills all places first would keep everybody else out."""
    waiting: WaitingConnections[str] = WaitingConnections(3)
    assert waiting.enter("greedy 1", "greedy", 1.0) is None
    assert waiting.enter("honest", "honest", 2.0) is None
    assert waiting.enter("greedy 2", "greedy", 3.0) is None
    assert waiting.enter("newest", "another", 4.0) == "greedy 1"
    assert waiting.enter("greedy 3", "greedy", 5.0) in {"greedy 2", "honest", "newest"}
    assert len(waiting) == 3
    assert "greedy 3" in waiting


def test_a_flood_from_one_address_displaces_itself_alone() -> None:
    """A connection from elsewhere keeps its place for as long as it needs it."""
    waiting: WaitingConnections[object] = WaitingConnections(10)
    waiting.enter("honest", "honest", 0.0)
    for number in range(1000):
        waiting.enter(number, "flood", float(number))
    assert "honest" in waiting
    assert len(waiting) == 10
    assert 999 in waiting


def test_a_known_address_keeps_its_places_whoever_else_comes() -> None:
    """A neighbour that comes back during an attack from a thousand addresses has to get in."""
    waiting: WaitingConnections[object] = WaitingConnections(
        10, per_address=2, is_known=lambda address: address == "neighbour"
    )
    waiting.enter("neighbour", "neighbour", 0.0)
    for number in range(1000):
        waiting.enter(number, f"address {number}", float(number))
    assert "neighbour" in waiting
    assert len(waiting) == 11
    waiting.enter("second", "neighbour", 0.0)
    assert waiting.enter("third", "neighbour", 0.0) == "neighbour", "it has a limit of its own"


def test_who_has_begun_as_it_should_leaves_last() -> None:
    """Behind one address there may be a neighbour and somebody who only connects."""
    waiting: WaitingConnections[str] = WaitingConnections(2)
    waiting.enter("handshake", "same", 0.0)
    waiting.advance("handshake")
    waiting.enter("silent", "same", 1.0)
    assert waiting.enter("newest", "same", 2.0) == "silent"
    waiting.advance("newest")
    assert waiting.enter("another", "same", 3.0) == "handshake", "if all have begun, the oldest"
    waiting.advance("gone")  # it has left meanwhile


def test_a_place_is_free_again_after_it_was_left() -> None:
    """Places that leak would fill up in the end, and everybody would displace everybody."""
    waiting: WaitingConnections[object] = WaitingConnections(4, is_known=lambda address: address == "known")
    for turn in range(100):
        for address in ("known", "other"):
            waiting.enter((turn, address), address, float(turn))
            assert waiting.leave((turn, address))
            assert not waiting.leave((turn, address))
    assert len(waiting) == 0
    assert [waiting.enter(number, "other", 0.0) for number in range(4)] == [None] * 4


def test_those_who_wait_too_long_are_named() -> None:
    """Without it a silent connection would hold its place until the next crowd."""
    waiting: WaitingConnections[str] = WaitingConnections(4)
    for number in range(3):
        waiting.enter(f"{number}", "address", float(number))
    assert waiting.overdue(2.0) == ["0", "1"]


def test_a_report_comes_at_once_and_then_once_per_minute() -> None:
    """An operator must not wait for the first one, and a flood must not fill the log."""
    reports: list[tuple[Counter[str], Counter[str]]] = []
    tally = Tally(lambda reasons, addresses: reports.append((reasons, addresses)))
    tally.report_if_due(0.0)
    assert reports == [], "nothing happened"
    tally.add("not-tls", "192.0.2.1")
    tally.report_if_due(0.5)
    for _ in range(3):
        tally.add("stranger", "192.0.2.2")
    for now in (1.0, 30.0, 60.4):
        tally.report_if_due(now)
    assert len(reports) == 1
    tally.report_if_due(60.5)
    assert reports == [({"not-tls": 1}, {"192.0.2.1": 1}), ({"stranger": 3}, {"192.0.2.2": 3})]
    tally.report_if_due(200.0)
    assert len(reports) == 2, "nothing more happened"
    assert tally.totals == {"not-tls": 1, "stranger": 3}


def test_a_report_does_not_grow_with_the_number_of_addresses() -> None:
    """An attacker has as many addresses as it likes; the memory of a node is limited."""
    reports: list[Counter[str]] = []
    tally = Tally(lambda _, addresses: reports.append(addresses))
    for number in range(5000):
        tally.add("not-tls", f"address {number}")
    tally.report_if_due(0.0)
    assert len(reports[0]) == 1001
    assert reports[0]["others"] == 4000


@pytest.mark.parametrize("limit", [64, 128, 256, 1024, 4096, 65536, 1 << 20])
@pytest.mark.parametrize("neighbours", [0, 2, 50])
def test_shares_leave_enough_for_the_node_itself(limit: int, neighbours: int) -> None:
    """A node of two neighbours has about 50 files open; storage and links must find one whatever comes from outside."""
    parts = shares(limit, neighbours)
    assert parts.http >= 16
    assert parts.waiting >= 8
    if limit >= 128 + 8 * neighbours:
        assert parts.http + parts.waiting <= limit - 64 - 8 * neighbours


@pytest.mark.slow
def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """The usual soft limit, 1,024, is far below what a machine has, and the first thing that a crowd uses up."""
    code = (
        "import resource; from dpcrowd.node.connections.descriptors import limit, raise_limit; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200)); "
        "print(limit(), raise_limit(), raise_limit(100), limit())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["64", "200", "200", "200"]


@pytest.mark.skipif(os.name != "posix", reason="no list of open files")
def test_open_files_are_counted() -> None:
    """The node looks at this number to notice that something uses up its files."""
    before = open_files()
    assert before is not None
    with open(os.devnull, "rb"):
        assert open_files() == before + 1


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        (("192.0.2.7", 4711), "192.0.2.7"),
        (("::ffff:192.0.2.7", 4711, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 4711, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 4711, 0, 2), "fe80::/64"),
        (("::1", 4711, 0, 0), "::1"),
        ("", ""),
    ],
)
def test_whoever_has_many_addresses_of_one_network_is_one(peer: object, shown: str) -> None:
    """A single IPv6 customer has 2^64 addresses: a limit per address would be none."""
    assert limited_address(peer) == shown


@pytest.mark.slow
def test_a_listener_accepts_few_at_a_time() -> None:
    """If all that have arrived were accepted at once, they would use up the files before anybody could decide."""

    async def run() -> None:
        accepted: list[tuple[socket.socket, str]] = []
        turns: list[int] = []
        (listening,) = bind("127.0.0.1", 0)
        listener = Listener([listening], lambda *one: accepted.append(one), places=32)
        address = listening.getsockname()
        clients = [socket.create_connection(address) for _ in range(20)]
        listener.start()
        async with asyncio.timeout(30):
            while len(accepted) < 20:
                await asyncio.sleep(0)
                turns.append(len(accepted))
        listener.close()
        steps = [after - before for before, after in zip([0, *turns], turns, strict=False)]
        assert max(steps) <= 4
        assert {address for _, address in accepted} == {"127.0.0.1"}
        for one in (*clients, *(connection for connection, _ in accepted)):
            one.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    asyncio.run(run())


@pytest.mark.slow
def test_a_listener_without_a_file_to_accept_with_tries_again() -> None:
    """Zenoh's own listener never recovers from that; this one goes on as soon as a file is free."""
    code = """
import asyncio, os, resource, socket
from dpcrowd.node.connections.listener import Listener, bind

async def run():
    accepted = []
    (listening,) = bind("127.0.0.1", 0)
    listener = Listener([listening], lambda *one: accepted.append(one), places=8)
    client = socket.create_connection(listening.getsockname())
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    listener.start()
    while not listener.starved:
        await asyncio.sleep(0.01)
    os.close(held.pop())
    while not accepted:
        await asyncio.sleep(0.01)
    print("accepted")

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
asyncio.run(asyncio.wait_for(run(), 20))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "accepted\n", done.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_an_error() -> None:
    """Two nodes on one port must not both believe that they listen."""
    (first,) = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    with first, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", port)
    (again,) = bind("127.0.0.1", port)
    again.close()
