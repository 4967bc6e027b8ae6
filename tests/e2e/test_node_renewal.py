"""A key is renewed while the network runs: old and new overlap, nobody is refused, and in the end the old one is."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.keys.identity import KeyFolder
from dpcrowd.node.keys.signing import key_of_certificate
from node_support_liar import Liar, soon
from node_support_trial import Trial, change, trial_of, until

pytest.importorskip("zenoh")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

MINE, OTHER = "server-1", "server-2"


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with trial_of(tmp_path, 2) as made:
        made.start()
        made.all_ready()
        yield made


def _next_revision(trial: Trial, pins: list[str]) -> int:
    """Write it, have both servers take it, and wait until it is valid; its number."""
    text = trial.network.read_text(encoding="utf-8")
    number = int(re.search(r"revision = (\d+)", text)[1]) + 1  # type: ignore[index]
    keys = ", ".join(f'"{pin}"' for pin in pins)
    place = text.index(f'name = "{MINE}"')
    text = text[:place] + re.sub(r"keys = \[.*\]", f"keys = [{keys}]", text[place:], count=1)
    text = re.sub(r"revision = \d+", f"revision = {number}", text)
    text = re.sub(r"valid_from_slot = .*\n", "", text)
    first = trial.slot(OTHER) + 2
    trial.network.write_text(text.replace("[network]", f"[network]\nvalid_from_slot = {first}"), encoding="utf-8")
    for name in trial.files:
        told = trial.ask(name, "/v1/admin/reload", b"", token=trial.tokens[name]["admin"])
        assert told.status == 200, told.text
        assert f"revision {number} takes over with slot {first}" in told.json["text"]
        assert f"changed: keys of {MINE} " in told.json["text"], "whoever takes it reads what it changes"
    until(
        lambda: all(trial.ask(name, "/v1/network").json["revision"] == number for name in trial.files),
        f"revision {number}",
    )
    for name in trial.files:
        assert f"revision {number} after revision {number - 1}: changed: keys of {MINE} " in trial.log(name)
    return number


def _both_talk(trial: Trial) -> None:
    """A slot whose release both made of both: nothing is refused, and each hears the other in time."""
    trial.all_ready()
    slots = {name: trial.slot(name) for name in trial.files}
    until(lambda: all(trial.released(name) >= slots[name] for name in trial.files), "releases")
    for name in trial.files:
        (neighbour,) = trial.ask(name, "/v1/network").json["neighbours"]
        assert neighbour["last_slot"] >= slots[name]
        assert not {"bad-signature", "other-configuration"} & set(trial.refused(name)), trial.log(name)


def _days_left(trial: Trial) -> float:
    """Of the certificate that is renewed, by what its server has told the other one."""
    line = rf'certificate_days_left{{certificate="neighbour",name="{MINE}"}} (\S+)'
    found = re.search(line, trial.ask(OTHER, "/metrics").text)
    return float(found[1]) if found else float("nan")


def test_renewal_with_overlap(trial: Trial) -> None:
    """Certificates end after a year: a network that had to stop for that, all at once, would not be renewed."""
    folder = trial.network.parent / MINE
    keys = KeyFolder(folder, MINE)
    old = key_of_certificate(keys.certificate.read_bytes())
    assert main(["keys", "renew", "--node", str(folder)]) == 0
    authority = ["--ca", str(folder.parent / "ca"), "--name", MINE, "--days", "300"]
    assert main(["keys", "sign", str(keys.next.request), *authority]) == 0
    new = key_of_certificate(keys.next.certificate.read_bytes())
    assert new != old

    # Finished too early: nobody pins the new key, and the node says so instead of being refused by everybody.
    kept = [(path, path.read_bytes()) for path in (keys.key, keys.certificate)]
    keys.key.write_bytes(keys.next.key.read_bytes())
    keys.certificate.write_bytes(keys.next.certificate.read_bytes())
    told = trial.process(MINE, "run")
    assert told.returncode == 4, told.stderr
    for path, content in kept:
        path.write_bytes(content)

    _next_revision(trial, [old, new])
    _both_talk(trial)  # with the old key
    assert 364 < _days_left(trial) < 365
    assert main(["keys", "renew", "--node", str(folder), "--finish"]) == 0
    process = trial.processes[MINE]
    taken = trial.tool(MINE, "reload", "--token", trial.tokens[MINE]["admin"])
    assert taken.returncode == 0, taken.stderr
    assert "with the server's renewed certificate, which is valid until" in taken.stdout
    again = trial.tool(MINE, "reload", "--token", trial.tokens[MINE]["admin"])
    assert again.stdout == "network.toml is that of revision 2, which is in use.\n"
    until(lambda: 299 < _days_left(trial) < 300, "word of the new certificate")
    _both_talk(trial)  # with the new one
    assert process.poll() is None
    assert trial.tool(MINE, "doctor").returncode == 0

    number = _next_revision(trial, [new])
    _both_talk(trial)

    # The old key, which somebody may have kept, or stolen: no server starts with it, and no neighbour believes it.
    trial.stop(MINE)
    gone = next(folder.glob(f"{MINE}.old-*.key"))
    thief = KeyFolder(folder, MINE, gone.name.removeprefix(MINE).removesuffix(".key"))
    assert key_of_certificate(thief.certificate.read_bytes()) == old

    async def steal() -> None:
        async with Liar(trial, MINE, OTHER, thief) as me:
            await soon(lambda: me.present, "the thief's link: its certificate is still valid")
            await me.say(me.payload())
            await me.say(me.payload(message=me.sample()))
            await soon(lambda: trial.refused(OTHER).get("bad-signature", 0) == 2, "both refused")

    asyncio.run(steal())
    for path, stolen in ((keys.key, thief.key), (keys.certificate, thief.certificate)):
        change(trial.files[MINE], (f'"{path.name}"', f'"{stolen.name}"'))
    told = trial.process(MINE, "run")
    assert told.returncode == 4, told.stderr
    assert "pin" in told.stderr
    assert trial.ask(OTHER, "/v1/network").json["revision"] == number
    assert trial.ready(OTHER)
