"""The front of the transport with plain sockets: who is let through to the session of a neighbour, and who is not.

A Unix server that sends everything back stands for the neighbour's Zenoh session.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.node.connections.listener import bind
from dpcrowd.node.connections.tally import Tally
from dpcrowd.node.transport import front as fronts
from dpcrowd.node.transport.base import Peer
from dpcrowd.node.transport.front import Front, server_context
from dpcrowd.node.transport.known import KnownAddresses
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from node_support_tls import Authority, CertificateFiles

uvloop = pytest.importorskip("uvloop")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets")

PATIENCE = 20.0
DAY = 86_400.0


async def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"did not happen within {PATIENCE:g} s: {what}"
        await asyncio.sleep(0.01)


class Scene:
    """A front for server `b`, which `a` calls and which itself calls `c`; behind it a session that echoes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.authority = Authority(folder / "ours")
        self.path = str(folder / "a")
        self.reports: list[tuple[Counter[str], Counter[str]]] = []
        self.tally = Tally(lambda *counts: self.reports.append(counts))
        self.known = KnownAddresses()
        self.sessions: list[asyncio.StreamWriter] = []
        self.clients: list[asyncio.StreamWriter] = []
        self.heard = bytearray()
        self.reading = asyncio.Event()
        self.reading.set()
        files = self.authority.mint("b")
        self._tls = TlsFiles(files.key, files.certificate, files.ca)
        self._settings = {"waiting": 8, "rate": 1e9} | settings

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Scene]:
        server = await asyncio.start_unix_server(self._echo, self.path)
        (listening,) = bind("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.front = Front(
            [listening],
            server_context(self._tls),
            {"a": self.path},
            {"a", "c"},
            known=self.known,
            tally=self.tally,
            **self._settings,
        )
        self.front.start()
        try:
            yield self
        finally:
            server.close()
            for writer in (*self.sessions, *self.clients):
                if not writer.is_closing():
                    writer.transport.abort()
            self.reading.set()
            await self.front.close()

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions.append(writer)
        with suppress(ConnectionError):
            while await self.reading.wait() and (data := await reader.read(1 << 16)):
                self.heard += data
                writer.write(data)
                await writer.drain()
        writer.close()

    def context(self, files: CertificateFiles | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.authority.path)
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context

    async def call(
        self, files: CertificateFiles | None, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = context or self.context(files)
        connecting = asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="127.0.0.1")
        reader, writer = await asyncio.wait_for(connecting, PATIENCE)
        self.clients.append(writer)
        return reader, writer

    async def plain(self, first: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        writer.write(first)
        return reader, writer

    async def refused(self, reader: asyncio.StreamReader, reason: str) -> None:
        """The connection ends for a reason, and the session has never heard of it."""
        with suppress(OSError):  # a reset, or an alert of TLS
            await asyncio.wait_for(reader.read(), PATIENCE)
        assert self.tally.totals == {reason: 1}
        assert self.front.names() == []
        assert self.sessions == []


def play(scene: Callable[[], Scene], act: Callable[[Scene], Any]) -> None:
    """In the event loop of a node; tests of the transport over Zenoh use Python's own."""

    async def run() -> None:
        async with scene().open() as opened:
            await act(opened)
        await asyncio.sleep(0.05)  # connections that were aborted end in the next turns of the loop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 3 * PATIENCE))


def test_a_neighbour_is_connected_with_its_session(tmp_path: Path) -> None:
    """What it says arrives as it was said, in both directions, also what does not fit into any buffer."""
    long = os.urandom(3_000_000)

    async def act(scene: Scene) -> None:
        reader, writer = await scene.call(scene.authority.mint("a"))
        for text in (b"short", long):
            writer.write(text)
            assert await asyncio.wait_for(reader.readexactly(len(text)), PATIENCE) == text
        assert scene.front.names() == ["a"]
        writer.close()
        await until(lambda: scene.front.names() == [], "the end of the link")
        await until(scene.sessions[0].is_closing, "the end of the session's side")
        assert bytes(scene.heard) == b"short" + long
        assert not scene.tally.totals

    play(lambda: Scene(tmp_path), act)


def test_what_a_session_has_sent_arrives_before_the_end(tmp_path: Path) -> None:
    """A node that stops has sent its message: the front must not cut it off."""

    async def act(scene: Scene) -> None:
        reader, _ = await scene.call(scene.authority.mint("a"))
        await until(lambda: bool(scene.sessions), "the session")
        reading = asyncio.create_task(reader.read())
        scene.sessions[0].write(bytes(1_000_000))
        scene.sessions[0].close()
        await scene.front.close()
        assert len(await asyncio.wait_for(reading, PATIENCE)) == 1_000_000

    play(lambda: Scene(tmp_path), act)


def test_a_session_that_does_not_read_holds_the_caller_and_not_its_bytes(tmp_path: Path) -> None:
    """A neighbour that sends without end must not fill the memory of a node that is busy."""

    async def act(scene: Scene) -> None:
        _, writer = await scene.call(scene.authority.mint("a"))
        await until(lambda: bool(scene.sessions), "the session")
        scene.reading.clear()
        chunk, sent = bytes(100_000), 0
        for _ in range(1000):
            writer.write(chunk)
            try:
                await asyncio.wait_for(writer.drain(), 0.3)
            except TimeoutError:
                break
            sent += len(chunk)
        assert sent < 50_000_000, "it has to wait"
        scene.reading.set()
        await asyncio.wait_for(writer.drain(), PATIENCE)

    play(lambda: Scene(tmp_path), act)


@pytest.mark.slow
def test_a_caller_that_says_too_much_is_slowed_down(tmp_path: Path) -> None:
    """Bytes of a neighbour pass through the event loop, in which everything else of the node happens, too."""

    async def act(scene: Scene) -> None:
        reader, writer = await scene.call(scene.authority.mint("a"))
        began = time.monotonic()
        writer.write(bytes(1_300_000))
        await asyncio.wait_for(reader.readexactly(1_300_000), PATIENCE)
        assert time.monotonic() - began > 0.5, "800,000 at once, some on the way, and the rest at 200,000 per second"

    play(lambda: Scene(tmp_path, rate=200_000.0), act)


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x99" * 20, b"\x16\x03\x01\x00\x05\x02aaaa", b"\x00"])
def test_whoever_does_not_speak_tls_is_turned_away_at_once(tmp_path: Path, first: bytes) -> None:
    """Nobody waits for the rest of something that cannot become a handshake."""

    async def act(scene: Scene) -> None:
        reader, _ = await scene.plain(first)
        await scene.refused(reader, "not-tls")

    play(lambda: Scene(tmp_path), act)


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"])
def test_whoever_does_not_finish_is_not_waited_for(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent connection would otherwise hold its file for ever."""
    monkeypatch.setattr(fronts, "HANDSHAKE_SECONDS", 0.2)

    async def act(scene: Scene) -> None:
        reader, _ = await scene.plain(first)
        await scene.refused(reader, "unfinished")

    play(lambda: Scene(tmp_path), act)


def test_a_handshake_that_is_not_finished_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends the first message of TLS, and then nothing, costs a file as well."""
    monkeypatch.setattr(fronts, "HANDSHAKE_SECONDS", 0.2)

    async def act(scene: Scene) -> None:
        outgoing = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            scene.context(None).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
        reader, _ = await scene.plain(outgoing.read())
        await scene.refused(reader, "unfinished")

    play(lambda: Scene(tmp_path), act)


def test_who_connects_and_goes_is_not_counted(tmp_path: Path) -> None:
    """A load balancer that tries a port every second must not fill the log."""

    async def act(scene: Scene) -> None:
        _, writer = await scene.plain()
        await until(lambda: len(scene.front._callers) == 1, "the connection")
        writer.close()
        await until(lambda: len(scene.front._callers) == 0, "its end")
        assert not scene.tally.totals

    play(lambda: Scene(tmp_path), act)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        ("none", "no-certificate"),
        ("other authority", "certificate"),
        ("expired", "expired"),
        ("not yet valid", "certificate"),
        ("no neighbour", "stranger"),
    ],
)
def test_who_has_no_certificate_of_a_neighbour_is_turned_away(tmp_path: Path, certificate: str, reason: str) -> None:
    """The session behind the front believes that whoever speaks to it is its neighbour."""

    async def act(scene: Scene) -> None:
        files = {
            "none": lambda: None,
            "other authority": lambda: Authority(tmp_path / "other").mint("a"),
            "expired": lambda: scene.authority.mint("a", valid=(-2.0, -1.0)),
            "not yet valid": lambda: scene.authority.mint("a", valid=(1.0, 2.0)),
            "no neighbour": lambda: scene.authority.mint("x"),
        }[certificate]()
        reader, writer = await scene.call(files)
        writer.write(b"let me in")
        await scene.refused(reader, reason)
        assert scene.front.strangers() == (["x"] if certificate == "no neighbour" else [])
        assert scene.front.strangers() == []

    play(lambda: Scene(tmp_path), act)


def test_a_neighbour_that_does_not_call_is_neither_linked_nor_reported(tmp_path: Path) -> None:
    """Its doctor looks at our certificate, which is no attack; but this server dials it, so there is no session."""

    async def act(scene: Scene) -> None:
        reader, _ = await scene.call(scene.authority.mint("c"))
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        assert not scene.tally.totals
        assert scene.front.strangers() == []

    play(lambda: Scene(tmp_path), act)


@pytest.mark.slow
def test_a_link_ends_when_the_certificate_expires(tmp_path: Path) -> None:
    """TLS looks at a certificate once; a link may last for years."""

    async def act(scene: Scene) -> None:
        reader, writer = await scene.call(scene.authority.mint("a", valid=(-1.0, 2.5 / DAY)))
        writer.write(b"still valid")
        assert await asyncio.wait_for(reader.readexactly(11), PATIENCE) == b"still valid"
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE)
        assert scene.tally.totals == {"expired": 1}

    play(lambda: Scene(tmp_path), act)


def test_tls_is_of_today_and_cannot_be_resumed(tmp_path: Path) -> None:
    """A session that is resumed does not show its certificate again, which may have expired meanwhile."""

    async def act(scene: Scene) -> None:
        context = scene.context(scene.authority.mint("a"))
        reader, writer = await scene.call(None, context)
        writer.write(b"x")
        assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"x"
        tls = writer.get_extra_info("ssl_object")
        assert tls.version() == "TLSv1.3"
        assert tls.session is None or not tls.session.has_ticket
        old = scene.context(scene.authority.mint("a"))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"(?i)protocol version|reset|EOF"):
            await scene.call(None, old)
        assert scene.tally.totals == {"tls": 1}

    play(lambda: Scene(tmp_path), act)


def test_a_crowd_does_not_keep_a_neighbour_out(tmp_path: Path) -> None:
    """All places are taken by silent connections from the same address; the newest gets in all the same."""

    async def act(scene: Scene) -> None:
        for _ in range(40):
            await scene.plain()
        await until(lambda: scene.tally.totals["crowded"] >= 40 - 16, "those for whom there is no place")
        assert len(scene.front._callers) <= 16
        for _ in range(3):
            reader, writer = await scene.call(scene.authority.mint("a"))
            writer.write(b"x")
            assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"x"
            writer.close()
        assert "127.0.0.1" in scene.known

    play(lambda: Scene(tmp_path), act)


def test_one_neighbour_has_a_few_links_and_the_newest_count(tmp_path: Path) -> None:
    """A neighbour that was cut off may not know that its old link is over; one that is dishonest gets no more files."""

    async def act(scene: Scene) -> None:
        files = scene.authority.mint("a")
        links = []
        for number in range(6):
            links.append(await scene.call(files))
            await until(lambda number=number: len(scene.sessions) > number, "the session")  # type: ignore[misc]
        await until(lambda: len(scene.front.names()) == 4, "four links")
        for reader, writer in links[2:]:
            writer.write(b"x")
            assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"x"
        assert scene.tally.totals == {"crowded": 2}

    play(lambda: Scene(tmp_path), act)


def test_failures_are_reported_by_reason_and_address(tmp_path: Path) -> None:
    """The operator has to see what happens at the port."""

    async def act(scene: Scene) -> None:
        for _ in range(3):
            await scene.plain(b"nonsense")
        await until(lambda: bool(scene.reports), "a report")
        assert scene.reports == [({"not-tls": 3}, {"127.0.0.1": 3})]

    play(lambda: Scene(tmp_path), act)


@pytest.mark.slow
def test_closing_ends_everything_and_frees_the_port(tmp_path: Path) -> None:
    """Links change between two slots: the port has to be free for the next front at once."""

    async def act(scene: Scene) -> None:
        reader, _ = await scene.plain()
        linked, _ = await scene.call(scene.authority.mint("a"))
        await until(lambda: scene.front.names() == ["a"], "the link")
        assert scene.front.alive
        await scene.front.close()
        assert not scene.front.alive
        for one in (reader, linked):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(one.readexactly(1), PATIENCE)
        for listening in bind("127.0.0.1", scene.port):
            listening.close()

    play(lambda: Scene(tmp_path), act)


def test_addresses_of_neighbours_are_known_and_those_of_former_ones_forgotten() -> None:
    """Places are kept for them while others crowd the port; what is learned must not grow for ever."""
    known = KnownAddresses()
    endpoints = {"a": "tls/127.0.0.9:7447", "b": "tls/[::1]:7447", "c": "tls/no.invalid:1"}
    known.look_up([Peer(name, endpoint, name) for name, endpoint in endpoints.items()])
    deadline = time.monotonic() + PATIENCE
    while not ("127.0.0.9" in known and "::1" in known):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "127.0.0.8" not in known
    for number in range(6):
        known.learn("a", f"192.0.2.{number}")
    assert [f"192.0.2.{number}" in known for number in range(6)] == [False, False, True, True, True, True]
    known.look_up([Peer("b", "tls/[::1]:7447", "b")])
    assert "192.0.2.5" not in known
    assert "127.0.0.9" not in known
    assert "::1" in known


def test_the_folder_of_sockets_is_private_and_left_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can open a socket in it is believed to be a neighbour; and a killed node cannot clean up."""
    from dpcrowd.node.transport import folder as folders

    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(folders, "_LONGEST", 1000)
    first = folders.PrivateFolder()
    assert first.path.stat().st_mode & 0o777 == 0o700
    second = folders.PrivateFolder()
    assert first.path.exists(), "it is in use"
    first._lock.close()  # as the end of a process does
    third = folders.PrivateFolder()
    assert not first.path.exists()
    assert second.path.exists()
    for one in (second, third):
        one.close()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path / "missing"))
    with pytest.raises(folders.TransportFailed, match="cannot create a folder for sockets"):
        folders.PrivateFolder()
