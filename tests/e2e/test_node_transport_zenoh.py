"""Real Zenoh sessions with mutual TLS on loopback: neighbours hear one another, whatever comes and goes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import node_support_transport as support
from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import Peer, TransportFailed
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import MAX_MESSAGE
from node_support_tls import CertificateFiles
from node_support_transport import Line, Server, free_ports, until

pytest.importorskip("zenoh")


@contextmanager
def process(
    me: str, neighbours: str, ports: dict[str, int], files: CertificateFiles
) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own, killed at the end."""
    paths = [str(files.key), str(files.certificate), str(files.ca)]
    given = {"me": me, "neighbours": list(neighbours), "ports": ports, "files": paths}
    command = [sys.executable, str(support.__file__), json.dumps(given)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def test_a_message_reaches_exactly_the_neighbours_it_is_sent_to(tmp_path: Path) -> None:
    """Without keys of pairs and access control, Zenoh would bring what a says to c as well, and back to a itself."""

    async def run() -> None:
        async with Line(tmp_path) as line:
            await line["a"].transport.send(b"of a", ["b"])
            await line["b"].transport.send(b"to both", ["a", "c"])
            await line["b"].transport.send(b"to c", ["c"])
            await line.round_trip("a", "b", b"end")
            await line.round_trip("b", "c", b"end")
            assert line["a"].got == [("b", b"to both"), ("b", b"end")]
            assert sorted(line["b"].got) == [("a", b"end"), ("a", b"of a"), ("c", b"end")]
            assert line["c"].got == [("b", b"to both"), ("b", b"to c"), ("b", b"end")]

    asyncio.run(run())


def test_links_go_to_neighbours_alone(tmp_path: Path) -> None:
    """With gossip or multicast, a and c would find each other through b and connect."""

    async def run() -> None:
        async with Line(tmp_path) as line:
            await asyncio.sleep(0.5)  # what discovery would need; it is on by default
            ends = {name: await line[name].transport.certificates() for name in "abc"}
            assert ends == {"a": ("b",), "b": ("a", "c"), "c": ("b",)}

    asyncio.run(run())


def test_what_is_sent_on_presence_arrives(tmp_path: Path) -> None:
    """A put before the other has subscribed is lost: presence must mean that it has. Tried at every re-opening."""

    async def run() -> None:
        async with Line(tmp_path, "ab") as line:
            for turn in range(8):
                coming, staying = line["ab"[turn % 2]], line["ba"[turn % 2]]
                await coming.close()
                await until(lambda gone=coming, left=staying: gone.name not in left.present, "absence")  # type: ignore[misc]
                await coming.open([staying.name])
                await until(lambda there=coming, left=staying: there.name in left.present, "presence")  # type: ignore[misc]
                await staying.transport.send(b"turn %d" % turn, [coming.name])
                await until(
                    lambda there=coming, left=staying, turn=turn: b"turn %d" % turn in there.heard(left.name),  # type: ignore[misc]
                    "a message that was sent as soon as the neighbour was present",
                )

    asyncio.run(run())


def test_links_change_when_the_transport_is_opened_anew(tmp_path: Path) -> None:
    """Access control is fixed in a session: without a new one a removed neighbour would go on hearing."""

    async def run() -> None:
        async with Line(tmp_path) as line:
            b, c = line["b"], line["c"]
            for turn in range(3):
                await b.close()
                await until(lambda: "b" not in c.present, "c sees b go")
                await b.open(["a"])
                await until(lambda: b.present == {"a"}, "b and a")
                with pytest.raises(BadInput, match="unknown neighbour 'c'"):
                    await b.transport.send(b"for c", ["c"])
                await c.transport.send(b"not wanted", ["b"])
                await line.round_trip("a", "b", b"turn %d" % turn)
                assert "b" not in c.present
                await b.close()
                await b.open(["a", "c"])
                await until(line.all_present, "the line again")
            assert not b.heard("c")
            assert not c.heard("b")

    asyncio.run(run())


def test_a_neighbour_that_comes_late_is_reached_soon(tmp_path: Path) -> None:
    """By default Zenoh would wait up to 4 s between attempts; with timeout 0 it would never try again."""

    async def run() -> None:
        ports, line = free_ports("ab"), Line(tmp_path, "ab")
        a, b = (Server(name, ports, line.authority.mint(name)) for name in "ab")
        async with a, b:
            await a.open(["b"])
            await asyncio.sleep(3.3)  # by default the attempts would be at 0, 1, 3 and 7 s
            await b.open(["a"])
            waited = await until(lambda: "a" in b.present and "b" in a.present, "the late neighbour")
        assert waited < 2.0

    asyncio.run(run())


@pytest.mark.parametrize("killed", ["a", "b"])
def test_a_killed_neighbour_is_missed_at_once_and_comes_back(tmp_path: Path, killed: str) -> None:
    """The side that dials and the side that listens: kill -9, absence seen, restart, presence, messages."""
    other = "ba"["ab".index(killed)]

    async def run() -> None:
        line = Line(tmp_path, "ab")
        ports, server, files = line.ports, line[other], line[killed].files
        async with server:
            await server.open([killed])
            for turn in (b"first", b"second"):
                with process(killed, other, ports, files) as running:
                    await until(lambda: killed in server.present, "the process is present")
                    await server.transport.send(turn, [killed])
                    await until(lambda turn=turn: b"answer " + turn in server.heard(killed), "its answer")  # type: ignore[misc]
                    running.kill()
                    waited = await until(lambda: killed not in server.present, "its death is seen")
                    assert waited < 5.0  # a lease would take 10 s
        assert server.changes == [(killed, True), (killed, False)] * 2

    asyncio.run(run())


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP on this system")
def test_a_frozen_neighbour_delays_nobody(tmp_path: Path) -> None:
    """A put to a neighbour that does not read blocks for seconds: in the event loop it would stop the node."""

    async def run() -> None:
        line = Line(tmp_path)
        a, b = line["a"], line["b"]
        async with a, b:
            await a.open(["b"])
            await b.open(["a", "c"])
            with process("c", "b", line.ports, line["c"].files) as running:
                await until(lambda: b.present == {"a", "c"}, "both neighbours")
                os.kill(running.pid, signal.SIGSTOP)
                for turn in range(40):
                    await b.transport.send(b"%d" % turn + bytes(2_000_000), ["a", "c"])
                    await until(lambda turn=turn: len(a.heard("b")) > turn, "the neighbour that reads")  # type: ignore[misc]
                assert b.transport.dropped()["c"] > 0
                assert b.transport.dropped()["a"] == 0
                start = asyncio.get_running_loop().time()
                await b.close()
                assert asyncio.get_running_loop().time() - start < 8.0  # Zenoh's own close takes 10 s here

    asyncio.run(run())


def test_long_messages_arrive_whole_and_in_order(tmp_path: Path) -> None:
    """With Zenoh's default congestion control a burst loses messages, and a long one is sent in pieces."""
    messages = [bytes([n]) * 3_000_000 for n in range(16)]

    async def run() -> None:
        async with Line(tmp_path, "ab") as line:
            for message in messages:
                await line["a"].transport.send(message, ["b"])
            await until(lambda: len(line["b"].got) == len(messages), "a burst of long messages")
            assert line["b"].heard("a") == messages

    asyncio.run(run())


def test_close_sends_what_was_handed_over_and_is_final(tmp_path: Path) -> None:
    """A node that stops inside a slot has sent its message; after `close` nothing calls back into it."""

    async def run() -> None:
        async with Line(tmp_path, "ab") as line:
            a, b = line["a"], line["b"]
            await a.transport.send(b"last words", ["b"])
            await a.close()
            await until(lambda: b.heard("a") == [b"last words"], "the last message")
            await until(lambda: "a" not in b.present, "its absence")
            assert a.changes == [("b", True)]
            await b.transport.send(b"into the void", ["a"])
            await a.close()
            with pytest.raises(BadInput, match="closed"):
                await a.transport.send(b"too late", ["b"])
            assert a.got == []

    asyncio.run(run())
    closing = [each for each in threading.enumerate() if each.name == "dpcrowd-close"]
    for each in closing:
        each.join(30)  # it may be in its last line, which tells that it has closed
    assert not [each for each in closing if each.is_alive()]


def test_a_process_ends_after_close(tmp_path: Path) -> None:
    """A Zenoh session that is left open keeps the process from ending."""
    line = Line(tmp_path, "ab")
    files = line["b"].files
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from node_support_transport import *\nfrom node_support_tls import CertificateFiles\n"
        "ports, files = dict(zip('ab', map(int, sys.argv[2:4]))), CertificateFiles(*map(Path, sys.argv[4:]))\n"
        "server = Server('b', ports, files)\n"
        "async def run():\n    await server.open(['a'])\n    await server.close()\n"
        "asyncio.run(run())\nprint('ended')\n"
    )
    arguments = [
        Path(support.__file__).parent,
        line.ports["a"],
        line.ports["b"],
        files.key,
        files.certificate,
        files.ca,
    ]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_mistakes_are_named_in_one_line(tmp_path: Path) -> None:
    """Zenoh's own errors name neither the file nor what to do, and carry lines of its source."""
    line = Line(tmp_path, "ab")
    b = line["b"]

    async def run() -> None:
        async with b:
            await b.open(["a"])
            with pytest.raises(BadInput, match="open already"):
                await b.open(["a"])
            with pytest.raises(BadInput, match="Did you mean 'a'"):
                await b.transport.send(b"", ["A"])
            with pytest.raises(BadInput, match="at most"):
                await b.transport.send(bytes(MAX_MESSAGE + 1), ["a"])
            second = Server("b", line.ports, line.authority.mint("b"))
            with pytest.raises(TransportFailed, match=str(line.ports["b"])) as caught:
                await second.open(["a"])
            assert "\n" not in str(caught.value)
            assert "cargo" not in str(caught.value)
            await b.close()
            await second.open(["a"])  # a failed opening leaves nothing behind
            await second.close()
            deaf = ZenohTransport("trial", support.tls_files(b.files), [])
            with pytest.raises(BadInput, match="does not listen"):
                await deaf.open("b", [Peer("a", "tls/127.0.0.1:7447", "a")], b._hear, b._see)

    asyncio.run(run())


@pytest.mark.parametrize("which", ["key", "certificate", "ca"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, which: str) -> None:
    """A missing or mangled file is the commonest mistake of a first start."""
    line = Line(tmp_path, "ab")
    good = line["b"].files
    path: Path = getattr(good, which)

    async def refused(why: str) -> None:
        with pytest.raises(TransportFailed, match=why) as caught:
            await line["b"].open(["a"])
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)

    whole = path.read_bytes()
    path.write_bytes(b"not a certificate")
    asyncio.run(refused("not a PEM file"))
    path.unlink()
    asyncio.run(refused("No such file"))
    path.write_bytes(whole[: len(whole) // 2] + b"\n-----END NOTHING-----\n")
    asyncio.run(refused("see `dpcrowd keys"))


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    """A server that only dials would never say so: every handshake would fail, for ever."""
    line = Line(tmp_path, "ab")
    mine, other = line["a"].files, line["b"].files
    mixed = Server("a", line.ports, CertificateFiles(other.key, mine.certificate, mine.ca))
    with pytest.raises(TransportFailed, match="do not match"):
        asyncio.run(mixed.open(["b"]))
