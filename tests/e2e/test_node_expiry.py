"""Certificates that expire while servers run, over real Zenoh sessions: told, closed on both sides, refused."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.keys.authority import Authority
from dpcrowd.node.keys.identity import KeyFolder, finish_renewal, renew
from dpcrowd.node.keys.signing import key_of_certificate, verifier
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.open import open_node
from node_support_expiring import expire_in, issue, old_authority
from node_support_live import write_network

pytest.importorskip("zenoh")

SECOND = 1_000_000_000
LONG = 40 * 86_400.0


def network_in(folder: Path, names: str) -> tuple[Authority, dict[str, Path], dict[str, KeyFolder]]:
    """A line of servers; their certificates are of an authority that can sign as if yesterday."""
    files = write_network(
        folder,
        dict.fromkeys(names, 1 / len(names)),
        [(names[place], names[place + 1]) for place in range(len(names) - 1)],
        epoch_ns=(time.time_ns() // SECOND) * SECOND,
        regions=["north", "south"],
        guarantee={"kind": "window", "length": 10, "epsilon": "10"},
        scheme={"name": "dpcrowd-plus", "process_var": 100.0},
    )
    authority = old_authority(folder / "authority")
    network = (folder / "network.toml").read_text()
    keys = {}
    for name in names:
        old = folder / "keys" / name
        before = key_of_certificate((old / f"{name}.crt").read_bytes())
        for path in old.iterdir():
            path.unlink()
        keys[name] = issue(authority, old, name, LONG)
        network = network.replace(before, key_of_certificate(keys[name].certificate.read_bytes()))
    (folder / "network.toml").write_text(network)
    return authority, files, keys


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[LiveNode]:
    with open_node(path) as node:
        stop = asyncio.Event()
        task = asyncio.create_task(node.run(stop))
        try:
            yield node
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)


async def until(what: Callable[[], bool], told: str) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, f"in vain: {told}"
        await asyncio.sleep(0.02)


async def certificates(node: LiveNode) -> tuple[str, ...]:
    found: tuple[str, ...] = await node._transport.certificates()  # type: ignore[attr-defined]
    return found


def days_left(metrics: str) -> dict[tuple[str, str], float]:
    found = re.findall(r'dpcrowd_certificate_days_left\{certificate="(.*?)",name="(.*?)"\} (\S+)', metrics)
    return {(holder, name): float(days) for holder, name, days in found}


def told(caplog: pytest.LogCaptureFixture, holder: str, subject: str) -> list[str]:
    fields = [record.__dict__ | {"text": record.getMessage()} for record in caplog.records]
    return [
        one["text"]
        for one in fields
        if (one.get("event"), one.get("certificate"), one.get("subject")) == ("certificate", holder, subject)
    ]


NETWORKS = {"ab": "a", "cd": "d", "ef": "ef"}
"""Networks of two servers, by their names, and whose certificates end soon. All are tried at the same time."""


def test_an_expired_certificate_closes_the_link_on_both_sides_and_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS looks at dates when a link is made, and never again: a network would run on for years, until a restart."""
    caplog.set_level(logging.INFO, "dpcrowd")

    async def scenario(names: str, short: str) -> None:
        (tmp_path / names).mkdir()
        authority, files, keys = network_in(tmp_path / names, names)
        first, second = names
        others = {first: second, second: first}
        for name in short:
            expire_in(authority, keys[name], 10)
        async with running(files[first]) as a, running(files[second]) as b:
            nodes = {first: a, second: b}
            await until(lambda: a.expiries().keys() == {second} and b.expiries().keys() == {first}, "both have spoken")
            for name, node in nodes.items():
                soon = f"the certificate of '{name}' expires in less than a day"
                assert any(soon in text for text in node.warnings()) == (name in short)
                assert not [text for text in node.ready()[1] if "certificate" in text]
                left = days_left(await node.metrics())
                other = others[name]
                assert set(left) == {("server", name), ("authority", "dpcrowd authority"), ("neighbour", other)}
                assert left["server", name] == 0 if name in short else 39 < left["server", name] < 40
                assert node.expiries() == {other: nodes[other].certificates.expires}
            await until(lambda: not (a.executor.machine.present or b.executor.machine.present), "the link is closed")
            await asyncio.sleep(2)  # a neighbour would be dialled again within a second
            for name, node in nodes.items():
                other = others[name]
                assert node.executor.machine.present == set()
                assert await certificates(node) == ()
                assert (node.links.opened_for is None) == (name in short), (
                    "whose certificate has expired does not even try"
                )
                expired = [text for text in node.ready()[1] if "expired on" in text]
                assert len(expired) == (name in short), "503 is for whoever has to renew, not for its neighbours"
                assert (days_left(await node.metrics())["server", name] < 0) == (name in short)
                assert any("expired on" in text for text in told(caplog, "server", name)) == (name in short)
                assert any("expired on" in text for text in told(caplog, "neighbour", other)) == (other in short)
            slot = a.executor.last.slot if a.executor.last is not None else -1
            await until(lambda: a.executor.last is not None and a.executor.last.slot > slot, "it goes on alone")
            for name in short:
                ends = expire_in(authority, keys[name], LONG)
                text = await nodes[name].reload()
                assert "Links are opened anew now, with the server's renewed certificate, which is valid until" in text
                assert nodes[name].certificates.expires == ends.timestamp()
            await until(
                lambda: [node.executor.machine.present for node in (a, b)] == [{second}, {first}],
                "the link is there again",
            )
            for name, node in nodes.items():
                await until(lambda n=node, o=others[name]: n.expiries()[o] > time.time() + 86_400, "it says so")  # type: ignore[misc]
                assert not [text for text in (*node.ready()[1], *node.warnings()) if "certificate" in text]

    async def all_at_once() -> None:
        await asyncio.gather(*(scenario(names, short) for names, short in NETWORKS.items()))

    asyncio.run(all_at_once())


def test_what_the_message_advises_brings_the_link_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In an outage operators copy commands: one that did not work, or asked for a new revision, would cost days."""

    async def scenario() -> None:
        authority, files, keys = network_in(tmp_path, "ab")
        ends = expire_in(authority, keys["a"], 4)
        pins = (tmp_path / "network.toml").read_bytes()
        async with running(files["a"]) as a, running(files["b"]) as b:
            await until(lambda: any("expired on" in text for text in a.ready()[1]), "it has expired")
            await until(lambda: not (a.executor.machine.present or b.executor.machine.present), "the link is closed")
            (text,) = [text for text in a.ready()[1] if "expired on" in text]
            (command,) = re.findall(r"'(dpcrowd keys sign .*?)'", text)
            assert "'dpcrowd node reload'" in text
            words = [{"ca": str(authority.folder), "a.csr": str(keys["a"].request)}.get(w, w) for w in command.split()]
            assert main(words[1:]) == 0, capsys.readouterr().err
            assert "had another key before" not in capsys.readouterr().out
            assert "renewed certificate" in await a.reload()
            assert a.certificates.expires > ends.timestamp() + 300 * 86_400
            await until(
                lambda: (a.executor.machine.present, b.executor.machine.present) == ({"b"}, {"a"}),
                "the link is there again",
            )
            assert (tmp_path / "network.toml").read_bytes() == pins, "no revision is needed"

    asyncio.run(scenario())


def test_who_is_linked_with_an_expired_certificate_all_the_same_is_parted_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A neighbour that does not close by itself, of an older version say, may have come back in the last second."""
    caplog.set_level(logging.INFO, "dpcrowd")

    async def scenario() -> None:
        _, files, _ = network_in(tmp_path, "abc")
        async with running(files["a"]) as a, running(files["b"]) as b, running(files["c"]) as c:
            await until(lambda: b.expiries().keys() == {"a", "c"}, "both have spoken")
            opened = b._transport._links  # type: ignore[attr-defined]
            b.executor.machine.expires["a"] = int(time.time()) - 1  # its link is up, whatever TLS thinks of it
            await until(lambda: b._transport._links not in (opened, None), "handshakes of their own")  # type: ignore[attr-defined]
            everybody = {"a": a, "b": b, "c": c}
            linked = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}}
            await until(
                lambda: {name: node.executor.machine.present for name, node in everybody.items()} == linked,
                "whose certificate is good is back",
            )
            assert any("its link is closed and refused" in text for text in told(caplog, "neighbour", "a"))

    asyncio.run(scenario())


def test_a_renewed_certificate_opens_links_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A neighbour that dials makes a link that is back within a second once more: every reload cut the link twice."""
    caplog.set_level(logging.INFO, "dpcrowd")

    async def scenario() -> None:
        authority, files, keys = network_in(tmp_path, "ab")
        async with running(files["a"]) as a, running(files["b"]) as b:
            await until(lambda: a.executor.machine.present == {"b"} and b.executor.machine.present == {"a"}, "the link")
            await asyncio.sleep(2.5)  # a link of the start may be made once more, too
            seen: list[bool] = []
            before = a._link_log.change
            a._link_log.change = lambda name, up: (seen.append(up), before(name, up))[1]  # type: ignore[method-assign]
            expire_in(authority, keys["b"], LONG + 86_400)
            machine, clock = b.executor.machine, b.clock
            await until(
                lambda: machine.exchanging is None and 0.3 < (time.time_ns() - clock.epoch_ns) / SECOND % 2 < 0.6,
                "time enough before the next seal",
            )
            assert "Links are opened anew" in await b.reload()  # now, or on a slow machine after the next exchange
            await until(lambda: seen[-1:] == [True], "the link again")
            await asyncio.sleep(3.0)
            assert seen == [False, True]
            assert (a.executor.machine.present, b.executor.machine.present) == ({"b"}, {"a"})
            await until(lambda: a.expiries() == {"b": b.certificates.expires}, "word of the new certificate")

    asyncio.run(scenario())


def test_a_renewed_key_signs_and_links_between_two_slots(tmp_path: Path) -> None:
    """A renewal that needs a restart is put off; what the old key signs is refused once nobody pins it any more."""

    async def scenario() -> None:
        authority, files, keys = network_in(tmp_path, "ab")
        folder = keys["a"].folder
        old = key_of_certificate(keys["a"].certificate.read_bytes())
        renewal = renew(folder)
        expire_in(authority, renewal, LONG + 86_400)
        new = key_of_certificate(renewal.certificate.read_bytes())
        text = (tmp_path / "network.toml").read_text()
        (tmp_path / "network.toml").write_text(text.replace(f'"{old}"', f'"{old}", "{new}"'))
        async with running(files["a"]) as a:

            def signs(key: str) -> bool:
                return verifier("trial", [[key]])(0, a.executor.machine.view.sign(b"words"), b"words")

            finish_renewal(folder, datetime.now(UTC))
            await until(lambda: a.executor.machine.exchanging is not None, "a slot whose neighbour is waited for")
            busy, opened = a.executor.machine.exchanging, a.links.opened_for
            assert busy is not None
            assert f"Links are opened anew after the exchange of slot {busy}" in await a.reload()
            assert signs(old)
            assert a.links.opened_for is opened, "messages of this slot may still come over the links that there are"
            await until(lambda: signs(new), "the new key")
            assert time.time_ns() >= a.executor.machine.view.ends(busy)
            assert not signs(old)
            async with running(files["b"]) as b:
                await until(lambda: b.expiries() == {"a": a.certificates.expires}, "b hears it, over a new link")
                assert a.certificates.expires > time.time() + LONG
                assert ("a", "bad-signature") not in b.executor.refused
                assert await certificates(b) == ("a",)

    asyncio.run(scenario())
