"""Attacks on a running server over the real transport: refused with their reasons, and the server goes on.

A ring of four: `server-2` is attacked, `server-3` runs beside it, and the test is `server-1`, a neighbour with a valid
certificate and a pinned key, `server-4`, which is of the network but no neighbour, or somebody else.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.keys.identity import new_private_key
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.zenoh_settings import key_of_pair
from node_support_liar import Liar, minted, soon
from node_support_tls import CertificateFiles
from node_support_transport import raw_session
from node_support_trial import Trial, change, trial_of, until
from project_support import ROOT

zenoh = pytest.importorskip("zenoh")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

VICTIM, LIAR, ALIVE, FAR = "server-2", "server-1", "server-3", "server-4"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with trial_of(tmp_path_factory.mktemp("net"), 4) as made:
        change(made.files[VICTIM], ('format = "pretty"', 'format = "json"'))
        made.start(VICTIM, ALIVE)
        until(lambda: made.ready(VICTIM) and made.released(VICTIM) >= 0, "the server that is attacked releases")
        yield made


@pytest.fixture(autouse=True)
def _goes_on(trial: Trial) -> Iterator[None]:
    """After every attack: the slots since are released, with finite numbers; ready, and no fault in the log."""
    yield
    slot = trial.slot(VICTIM)
    until(lambda: trial.released(VICTIM) >= slot - 1, "the server goes on releasing")
    rows = trial.ask(VICTIM, "/v1/estimates/latest").json
    assert all(row["estimate"] is None or abs(row["estimate"]) < 1e6 for row in rows), rows
    assert trial.ready(VICTIM)
    assert trial.processes[VICTIM].poll() is None
    assert "Traceback" not in trial.log(VICTIM)
    assert '"level": "critical"' not in trial.log(VICTIM)


def _neighbour(trial: Trial) -> dict[str, Any]:
    """What /v1/network says of the liar."""
    neighbours = trial.ask(VICTIM, "/v1/network").json["neighbours"]
    found: dict[str, Any] = next(one for one in neighbours if one["name"] == LIAR)
    return found


def _count(trial: Trial, reason: str) -> int:
    return int(_neighbour(trial)["refused"].get(reason, 0))


def _is(trial: Trial, reason: str, expected: int) -> bool:
    return _count(trial, reason) == expected


def _heard(trial: Trial) -> dict[int, int]:
    """How many neighbours' messages each release of the victim has fused."""
    with Storage.inspect(trial.config(VICTIM).data, network_id="trial") as storage:
        return {one.slot: one.heard for one in storage.releases.between(0, 1 << 62, limit=1000)}


Lie = Callable[[Liar], bytes]


def _prior(me: Liar, people: float) -> dict[str, bytes]:
    regions = len(me.network.regions)
    return {"prior": np.full(regions, people).tobytes(), "prior_known": b"\1" * regions}


def _flipped(payload: bytes) -> bytes:
    """With one bit of the signature, which comes last, changed: a fixed byte would be the true one now and then."""
    return payload[:-1] + bytes([payload[-1] ^ 1])


LIES: list[tuple[str, Lie]] = [
    ("not-finite", lambda me: me.payload(message=me.sample(np.nan))),
    ("not-finite", lambda me: me.payload(message=me.sample(matrix=np.inf))),
    ("negative-information", lambda me: me.payload(message=me.sample(matrix=-0.01))),
    ("wrong-length", lambda me: me.payload(message=me.sample(regions=9))),
    ("wrong-length", lambda me: me.payload(message=me.sample(), prior=b"")),
    ("absurd", lambda me: me.payload(message=me.sample(1e300, 1e10))),
    ("absurd", lambda me: me.payload(message=me.sample(1e9, 1e-3))),  # 10^12 people in each region
    ("absurd", lambda me: me.payload(message=me.sample(), **_prior(me, 1e12))),  # the consensus would follow it
    ("other-configuration", lambda me: me.payload(digest=bytes(16))),
    ("wrong-sender", lambda me: me.payload(server=me.network.number_of(ALIVE))),
    ("wrong-sender", lambda me: me.payload(server=77)),
    ("wrong-sender", lambda me: me.heard[-1]),  # the server's own words, thrown back
    ("bad-signature", lambda me: me.payload(key=new_private_key())),
    ("bad-signature", lambda me: _flipped(me.payload(message=me.sample()))),
    ("wrong-slot", lambda me: me.payload(slot=me.slot() + 50)),
    ("late", lambda me: me.payload(slot=me.slot() - 50)),
    ("version", lambda me: me.payload(version=9)),
    ("malformed", lambda _: b"hello"),
    ("malformed", lambda _: b""),
    ("malformed", lambda _: b"\x91" * 5_000),  # arrays inside one another
    ("flood", lambda _: b"\x91" * 100_000),  # larger than any message of this network: not even read
    ("malformed", lambda me: me.payload(round=0)),
    ("malformed", lambda me: me.payload(counter=1 << 63)),
]


def test_a_neighbour_that_lies_is_refused_by_name_and_reason(trial: Trial) -> None:
    """One broken or dishonest neighbour would otherwise end everybody's filter, or the process."""

    before = _neighbour(trial)["last_heard"]

    async def run() -> None:
        async with Liar(trial, LIAR, VICTIM) as me:
            await soon(lambda: me.present and bool(me.heard), "the link, and a word of the server")
            for reason, lie in LIES:
                expected = _count(trial, reason) + 1
                await me.say(lie(me))
                await soon(partial(_is, trial, reason, expected), f"a refusal as {reason}")

    asyncio.run(run())
    assert sum(_neighbour(trial)["refused"].values()) == len(LIES), "each once, and nothing else of this neighbour"
    assert _neighbour(trial)["last_heard"] == before, "what is refused was not heard"
    metrics = trial.ask(VICTIM, "/metrics").text
    explained = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    for reason in {reason for reason, _ in LIES}:
        assert re.search(rf'dpcrowd_messages_refused_total{{reason="{reason}"}} [1-9]', metrics)
        assert f"| `{reason}` |" in explained
    lines = [json.loads(line) for line in trial.log(VICTIM).splitlines() if "message refused" in line]
    lines = [line for line in lines if line["reason"] != "late"]  # an honest server's, on a machine that is too busy
    assert {line["sender"] for line in lines} == {LIAR}
    assert all(re.search(rf"{LIAR}|not a message", line["text"]) for line in lines)
    log = trial.log(VICTIM)
    assert max(len(line) for line in log.splitlines()) < 1000, "what they send does not come out in the log"
    assert log.replace("\n", "").isprintable()


def test_words_are_used_once(trial: Trial) -> None:
    """A recorded message must not count twice: not in its own slot, and not in a later one; nor may it be changed."""

    async def run() -> None:
        async with Liar(trial, LIAR, VICTIM) as me:
            await soon(lambda: me.present, "the link")
            replays, lates = _count(trial, "replay"), _count(trial, "late")
            slot = me.slot() + 1
            await soon(lambda: me.slot() == slot, "a slot that has just begun to be the next one")
            recorded = me.payload(message=me.sample(1.0, 0.01))
            for _ in range(3):
                await me.say(recorded)
            await me.say(me.payload(message=me.sample(2.0, 0.01), slot=slot))
            await soon(lambda: _count(trial, "replay") == replays + 1, "two different messages for one slot")
            await soon(lambda: trial.released(VICTIM) >= slot + 1, "the slot and the next are released")
            await me.say(recorded)
            await soon(lambda: _count(trial, "late") == lates + 1, "the recording, later")
            assert _count(trial, "replay") == replays + 1, "the same again in its slot is neither used nor refused"
            assert _heard(trial)[slot] == 2, "server-3, and the recording, once"

    asyncio.run(run())


def test_a_key_that_the_authority_minted_is_not_believed(trial: Trial, tmp_path: Path) -> None:
    """The holder of the authority can make a certificate of any name; what is believed is the pinned key."""
    files = minted(trial, LIAR, tmp_path / "minted")

    async def run() -> None:
        async with Liar(trial, LIAR, VICTIM, files) as me:
            await soon(lambda: me.present, "the impostor's link: Zenoh sees names only")
            before = _count(trial, "bad-signature")
            await me.say(me.payload())
            await me.say(me.payload(message=me.sample()))
            await soon(lambda: _count(trial, "bad-signature") == before + 2, "both refused")
            slot = me.slot()
            await soon(lambda: trial.released(VICTIM) >= slot, "the slot is released")
            assert _heard(trial)[slot] == 1, "server-3 alone"

    asyncio.run(run())


def test_another_network_on_the_same_door_hears_and_says_nothing(trial: Trial) -> None:
    """Two networks of one authority: the id is part of every key and, through the digest, of every message."""

    async def run() -> None:
        before = trial.refused(VICTIM)
        async with Liar(trial, LIAR, VICTIM, network_id="another") as me:
            for _ in range(3):
                await me.say(me.payload(message=me.sample()))
                await asyncio.sleep(0.3)
            assert not me.present
            assert not me.heard
        assert trial.refused(VICTIM) == before

    asyncio.run(run())


def test_who_is_no_neighbour_gets_nothing_and_is_not_heard(trial: Trial, tmp_path: Path) -> None:
    """A certificate of the authority must not let anybody speak, or listen, who is no neighbour."""
    true = Liar(trial, FAR, VICTIM)  # for its words, which are signed with a pinned key
    door = int(true.network.server(VICTIM).endpoint.rpartition(":")[2])
    before, last = trial.refused(VICTIM), trial.released(VICTIM)
    heard: list[Any] = []
    with ExitStack() as stack:
        spies = []
        for files in (minted(trial, "stranger", tmp_path / "x"), true.files):
            pem = CertificateFiles(files.key, files.certificate, files.authority)
            spies.append(raw_session(pem, door))
            stack.callback(spies[-1].close)
            spies[-1].declare_subscriber("**", heard.append, allowed_origin=zenoh.Locality.REMOTE)
        until(lambda: trial.released(VICTIM) > last + 1 or _shout(spies, true), "slots pass while they shout")
        until(lambda: trial.refused(VICTIM).get("stranger", 0) > 0, "the operator sees that somebody is there")
    assert heard == []
    after = {reason: count for reason, count in trial.refused(VICTIM).items() if reason != "stranger"}
    assert after == before, "the front keeps them from the server altogether"
    counter = r'dpcrowd_connections_refused_total\{port="transport",reason="stranger"\} [1-9]'
    assert re.search(counter, trial.ask(VICTIM, "/metrics").text)
    neighbours = trial.ask(VICTIM, "/v1/network").json["neighbours"]
    assert {one["name"] for one in neighbours} == {LIAR, ALIVE}
    assert _heard(trial)[last + 1] == 1, "server-3 alone"


def _shout(spies: list[Any], true: Liar) -> bool:
    """Words of the server that is no neighbour, as its own and in the names of others."""
    for spy in spies:
        for name in (FAR, LIAR, ALIVE, "stranger"):
            key = key_of_pair(true.network.id, name, VICTIM)
            spy.put(key, true.payload(), congestion_control=zenoh.CongestionControl.BLOCK)
    return False
