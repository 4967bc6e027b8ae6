"""Links whose certificates expire while they are open, over real Zenoh sessions: closed, refused, and open again.

Zenoh itself closes a link when the certificate of the other side expires. But a certificate is still accepted in the
very second in which it expires, and a link that is made in that second is often never closed: here the transport has
to see to it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node_support_expiring import issue_files, old_authority
from node_support_transport import Server, free_ports, until

pytest.importorskip("zenoh")

LONG = 86_400.0
SOON = 5.0


def test_a_neighbour_that_is_dialled_is_refused_once_its_certificate_has_expired(
    tmp_path: Path,
) -> None:
    """Zenoh dials again at once, in that same second, and such a link stayed up for good in most trials."""

    async def run() -> None:
        authority, ports = old_authority(tmp_path / "ca"), free_ports("abcde")
        a = Server("a", ports, issue_files(authority, tmp_path / "a", "a", LONG))
        lives = dict.fromkeys("bcd", SOON) | {"e": LONG}
        others = {
            name: Server(name, ports, issue_files(authority, tmp_path / name, name, life))
            for name, life in lives.items()
        }
        async with a:
            try:
                for other in others.values():
                    await other.open(["a"])
                await a.open(list(others))
                await until(lambda: a.present == set(others), "all neighbours")
                await until(lambda: a.present == {"e"}, "the three that expire are gone")
                await asyncio.sleep(2.5)  # dialled again meanwhile, several times
                assert a.present == {"e"}
                assert await a.transport.certificates() == ("e",)
                assert [await others[name].transport.certificates() for name in "bcd"] == [(), (), ()]
                assert a.changes.count(("e", True)) == 1, "the others' links are left alone"
                await others["b"].close()
                renewed = Server("b", ports, issue_files(authority, tmp_path / "renewed", "b", LONG))
                async with renewed:
                    await renewed.open(["a"])
                    await until(lambda: a.present == {"b", "e"}, "the one that was renewed")
                    await a.transport.send(b"welcome back", ["b"])
                    await until(lambda: renewed.heard("a") == [b"welcome back"], "a message")
            finally:
                for other in others.values():
                    await other.close()

    asyncio.run(run())


def test_a_link_that_comes_back_at_once_is_made_once_more_and_stays(tmp_path: Path) -> None:
    """Whose certificate is good loses nothing but a moment: it is not dialled again and again."""

    async def run() -> None:
        authority, ports = old_authority(tmp_path / "ca"), free_ports("ab")
        a, b = (Server(name, ports, issue_files(authority, tmp_path / name, name, LONG)) for name in "ab")
        async with a, b:
            await b.open(["a"])
            await a.open(["b"])
            await until(lambda: "b" in a.present and "a" in b.present, "the link")
            await b.close()
            await b.open(["a"])
            await until(lambda: a.changes.count(("b", True)) == 3, "the link, and the link once more")
            await asyncio.sleep(2.5)
            assert a.changes.count(("b", True)) == 3
            assert (a.present, b.present) == ({"b"}, {"a"})
            await a.transport.send(b"still here", ["b"])
            await until(lambda: b.heard("a") == [b"still here"], "a message")
            assert len(await b.transport.certificates()) == 1

    asyncio.run(run())


def test_closing_does_not_wait_for_a_link_that_is_to_be_made_again(tmp_path: Path) -> None:
    """A session that were opened after `close` would keep the process from ending."""

    async def run() -> None:
        authority, ports = old_authority(tmp_path / "ca"), free_ports("ab")
        a, b = (Server(name, ports, issue_files(authority, tmp_path / name, name, LONG)) for name in "ab")
        async with a, b:
            await b.open(["a"])
            await a.open(["b"])
            await until(lambda: "b" in a.present, "the link")
            await b.close()
            await b.open(["a"])
            await until(lambda: a.changes.count(("b", True)) == 2, "the link again")
            await a.close()
            await asyncio.sleep(2.0)
            assert await b.transport.certificates() == ()
            assert a.changes.count(("b", True)) == 2

    asyncio.run(run())
