"""Recordings of a node's state machine: what is in them, who can read them, and that they give the same again."""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.recording import lines
from dpcrowd.node.recording.lines import AccountChange, change_of
from dpcrowd.node.recording.lines import apply_change as changed_account
from dpcrowd.node.recording.recorder import NodeRecorder
from dpcrowd.node.recording.replay import replay
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.clock_jumps import ClockSteps
from dpcrowd.privacy.payments import Payments
from node_support_live import TOKENS
from node_support_lone import COUNTS, Lone
from node_support_noninterference import make_files, observe
from node_support_stories import Body, Event, Freeze, Jump, Restart, Row, Send, Story
from node_support_world import HERE, READER, RECORDING
from schemes_support import account_for, paid_in

PEOPLE = Send((Body((Row("ann"), Row("bob", "south"), Row("eve-of-the-test"))),))
Make = Callable[..., Path]


def slot(*events: tuple[float, Event]) -> tuple[tuple[float, Event], ...]:
    return ((6.5, PEOPLE), *events)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_files(tmp_path_factory.mktemp("files") / "files")


@pytest.fixture(scope="module")
def recorded(files: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A recording of one slot, as text."""
    world = tmp_path_factory.mktemp("recorded") / "world"
    observe(files, world, Story((slot(),)), x=True)
    return (world / RECORDING).read_text(encoding="utf-8")


@pytest.fixture
def make(files: Path, tmp_path: Path) -> Make:
    """A recording of a story."""

    def made(*slots: tuple[tuple[float, Event], ...], **how: Any) -> Path:
        observe(files, tmp_path / "world", Story(slots, **how), x=True)
        return tmp_path / "world" / RECORDING

    return made


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        decoded = json.loads(line)
        if decoded["kind"] == "step":
            yield {"did": [], **decoded}


STORIES: dict[str, tuple[int, tuple[Any, ...]]] = {
    "nothing happens": (1, (slot(), slot(), slot())),
    "a kill and a restart": (2, (slot(), slot((7.5, Restart(True, 2.0))), slot(), slot())),
    "a kill in the exchange": (2, (slot(), ((1.5, PEOPLE), (2.0, Restart(True, 0.3))), slot())),
    "the clock is set ahead and back": (1, (slot((7.5, Jump(25.0))), slot((7.5, Jump(-25.0))), slot())),
    "it stands still": (1, (slot((7.5, Freeze(14.0))), slot())),
}


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", STORIES)
def test_a_recording_gives_the_same_instructions_again(make: Make, name: str, alone: bool) -> None:
    """Otherwise a failure that was recorded in the wild could not be looked at anywhere else."""
    lives, told = STORIES[name]
    path = make(*told, alone=alone)
    replayed = replay(path)
    assert replayed.difference is None
    assert (replayed.lives, replayed.ended) == (lives, "")
    kinds = {step["on"] for step in steps(path)}
    assert {"Started", "SlotEnded", "SlotSealed", "SampleStored", "LinksOpened", "MessageSent"} <= kinds
    assert alone or {"MessageArrived", "NeighbourUp", "DeadlinePassed"} <= kinds


def test_it_holds_no_key_count_token_or_user(make: Make, files: Path) -> None:
    """Whoever attaches it to a report of a fault would give these away."""
    path = make(slot(), slot())
    text = path.read_text(encoding="utf-8")
    assert "eve-of-the-test" not in text
    assert not any(token in text for token in (*TOKENS.values(), READER))
    keys = list(files.rglob("*.key"))
    assert keys
    for key in keys:
        body = key.read_text().splitlines()[1]
        assert body not in text
    sealed = [step["fields"] for step in steps(path) if step["on"] == "SlotSealed"]
    assert all(set(fields) == {"at_ns", "slot", "counted", "account", "why"} for fields in sealed)
    assert any(fields["counted"] for fields in sealed)


def test_accounts_come_out_of_it_as_they_went_in() -> None:
    """A payment, a jump or a promise that is left out, and the replayed server would have another budget."""
    account = account_for(Guarantee.window(4, 2.0))
    told = [account]
    for number in range(3):
        told.append(paid_in(told[-1], number, 5))
    told.append(told[-1].set_clock(ClockSteps(), told[-1].slots.opens(4), 10**10)[0])
    told.append(told[-1].book_loss(told[-1].slots.opens(5), told[-1].slots.opens(6), 7))
    told.append(
        replace(told[-1], payments=Payments(told[-1].payments.after(told[-1].slots.opens(2))), complete_after_ns=10**18)
    )
    told.append(replace(told[-1], network="other").declare(9, None, slot_ns=10**9))
    before = replayed = None
    for one in told:
        change = msgspec.json.decode(msgspec.json.encode(change_of(before, one)), type=AccountChange)
        before, replayed = one, changed_account(replayed, change)
        assert sorted(replayed.payments) == sorted(one.payments)
        for field in fields(Account):
            if field.name != "payments":
                assert getattr(replayed, field.name) == getattr(one, field.name), field.name
    assert len(change_of(told[1], told[2]).payments) == 1, "not all of it again"


def test_its_owner_alone_can_read_it(make: Make) -> None:
    """Messages of other organisations are in it, and the estimates."""
    assert stat.S_IMODE(make(slot()).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_path_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """Made by somebody else before, it would be theirs to read."""
    path = tmp_path / "recording"
    path.touch()
    path.chmod(mode)
    with pytest.raises(BadInput, match="others can read"):
        NodeRecorder(path, 1 << 20, lambda _: None)
    assert path.read_bytes() == b""


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """A link would lead somewhere else, a pipe to somebody who reads."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, why in (("link", "cannot be opened"), ("missing/file", "cannot be opened"), ("pipe", "not a file")):
        with pytest.raises(BadInput, match=why):
            NodeRecorder(tmp_path / name, 1 << 20, lambda _: None)
    assert not (tmp_path / "target").exists()


def test_a_draw_that_was_not_paid_for_is_not_in_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node throws it away unseen: values that no epsilon covers would be in the file, or could be guessed from
    a digest or a signature over them."""
    commit, failed = Storage.commit_sample, []

    def full(self: Storage, number: int, *given: Any) -> int:
        if len(failed) < 2 and number % 2 and number > 3:
            failed.append(number)
            raise StorageError("full", "no space", "free some")
        return commit(self, number, *given)

    monkeypatch.setattr(Storage, "commit_sample", full)
    path = make(slot(), slot(), slot(), slot(), alone=True)
    unpaid = [step for step in steps(path) if step.get("unpaid")]
    assert [step["fields"]["slot"] for step in unpaid] == failed != []
    for step in unpaid:
        assert "StoreSample" in step["did"]
        assert not {"noisy", "signed", "digest"} & step.keys()
    assert all(step["noisy"] for step in steps(path) if "StoreSample" in step["did"] and not step.get("unpaid"))
    assert replay(path).difference is None


def test_a_draw_of_which_nobody_knows_whether_it_was_paid_for_is_not_in_it(tmp_path: Path) -> None:
    """A run that is killed while it pays must not leave it behind."""
    node, recorder = Lone(()), NodeRecorder(tmp_path / "recording", 1 << 20, lambda _: "")
    recorder.start(node.machine, 0)
    recorder.begin_step()
    stimulus = on.SlotSealed(node.view.seals(0), 0, COUNTS)
    recorder.end_step(stimulus, node.machine.handle(stimulus))
    recorder.close()
    assert [line["kind"] for line in map(json.loads, (tmp_path / "recording").read_text().splitlines())] == ["start"]


def changed(path: Path, which: Callable[[dict[str, Any]], bool], change: Callable[[dict[str, Any]], None]) -> int:
    """Change the first step that is chosen; its number."""
    text = path.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(text):
        step = json.loads(line)
        if step["kind"] == "step" and which(step):
            change(step)
            text[place] = json.dumps(step)
            path.write_text("\n".join([*text, ""]), encoding="utf-8")
            return int(step["number"])
    raise AssertionError("no such step")


def test_a_difference_is_found_where_it_is(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """A comparison that overlooks something would say of every fault that it cannot be seen."""
    path = make(slot(), slot())
    before = path.read_bytes()

    def sampled(step: dict[str, Any]) -> bool:
        return "StoreSample" in step.get("did", [])

    def poorer(step: dict[str, Any]) -> None:
        account, at_ns = step["fields"]["account"], step["fields"]["at_ns"]
        loss = [account["count"] + 1, account["network"], "lost", None, at_ns - 1, at_ns, 10**15, 1, 1]
        account["payments"] = [*account.get("payments", []), loss]

    number = changed(path, sampled, poorer)
    found = replay(path).difference
    assert found is not None
    assert (found.step, found.on) == (number, "SlotSealed")
    assert "StoreSample" in found.recorded
    assert "NotSampled" in found.replayed
    assert main(["node", "replay", str(path)]) == 1
    assert f"DIFFERENT: run 1, stimulus {number} (SlotSealed" in capsys.readouterr().out

    def other_noise(step: dict[str, Any]) -> None:
        step["noisy"][0] = base64.b64encode(np.array([1.0, 2.0]).tobytes()).decode()

    path.write_bytes(before)
    number = changed(path, sampled, other_noise)
    found = replay(path).difference
    assert found is not None
    assert found.step == number
    assert "with different content" in str(found)

    def more_signatures(step: dict[str, Any]) -> None:
        step["signed"].append(step["signed"][0])

    path.write_bytes(before)
    changed(path, lambda step: bool(step.get("signed")), more_signatures)
    assert replay(path).difference is not None


def test_the_command_says_that_it_is_the_same(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, or for programs."""
    path = make(slot())
    assert main(["node", "replay", str(path)]) == 0
    assert "The same instructions came out, bit for bit." in capsys.readouterr().out
    assert main(["node", "replay", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["same"]
    assert answer["steps"] == len(list(steps(path)))


@pytest.mark.slow
def test_a_line_that_was_cut_off_is_normal_at_the_end_of_a_run(make: Make) -> None:
    """A kill comes in the middle of a line; the recording up to there is what somebody wants to see."""
    path = make(slot(), slot((7.5, Restart(True, 2.0))), slot())
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert replay(path).difference is None
    start = whole.index(b'{"kind":"start"', 1)
    path.write_bytes(whole[: start - 40] + b"\n" + whole[start:])
    replayed = replay(path)
    assert replayed.difference is None
    assert replayed.lives == 2


def test_a_new_run_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    """After a kill in the middle of a line."""
    path = tmp_path / "recording"
    path.write_bytes(b'{"kind":"step","num')
    path.chmod(0o600)
    recorder = NodeRecorder(path, 1 << 20, lambda _: "")
    recorder.start(Lone(()).machine, 0)
    recorder.close()
    assert path.read_bytes().startswith(b'{"kind":"step","num\n{"kind":"start"')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text.replace('"kind":"start"', '"kind":"start""', 1), "line 1: damaged"),
        (lambda text: text.replace('"on":"SlotEnded"', '"on":"Nothing"', 1), "the stimulus 'Nothing' is damaged"),
        (lambda text: text.split("\n", 1)[1], "begins with the start of a run"),
        (lambda text: text.replace('"format":1', '"format":2', 1), "wrote this in format 2"),
        (lambda text: "", "is not a recording of dpcrowd: it is empty"),
        (lambda text: "user,region\nann,north\n", "line 1: damaged .*: this is not a recording of dpcrowd"),
        (lambda text: "user,region\n", "line 1: damaged .*: this is not a recording of dpcrowd"),
        (
            lambda text: text.replace('"kind":"step"', '"kind":"st', 1),
            "line 2: damaged .*; only the last line of a run",
        ),
    ],
)
def test_a_damaged_file_is_told_in_one_line(
    recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[str], str], told: str
) -> None:
    """With the line, and what to do; not with a trace of the program."""
    path = tmp_path / "recording"
    path.write_text(damage(recorded), encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(BadInput, match=told):
        replay(path)
    assert main(["node", "replay", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(BadInput, match="cannot be read"):
        replay(tmp_path / "missing")


def test_the_recording_ends_at_its_limit_and_the_node_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is forgotten must not fill the disk on which payments are stored."""
    path, node = tmp_path / "recording", Lone(())
    recorder = NodeRecorder(path, 20_000, lambda _: "")
    recorder.start(node.machine, 0)
    with caplog.at_level(logging.WARNING):
        for number in range(1_000):
            recorder.begin_step()
            recorder.end_step(on.StoodStill(number), [])
    assert path.stat().st_size <= 20_000
    last = msgspec.json.decode(path.read_bytes().splitlines()[-1], type=lines.End)
    assert last.why == "debug.record_limit is reached"
    assert [record.event for record in caplog.records] == ["recording"]  # type: ignore[attr-defined]


def test_a_disk_that_fails_ends_the_recording_and_not_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a tool; the node has other ways to say that the disk is full."""
    recorder = NodeRecorder(tmp_path / "recording", 1 << 20, lambda _: "")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with caplog.at_level(logging.WARNING):
        recorder.start(Lone(()).machine, 0)
        recorder.end_step(on.StoodStill(1), [])
    assert "No space left on device. The node continues." in caplog.text


def test_without_the_setting_nothing_is_written(files: Path, tmp_path: Path) -> None:
    """It is off by default."""
    from dpcrowd.node.config import load_node

    config = load_node(files / "alone" / f"{HERE}.toml")
    assert config.debug.record is None
