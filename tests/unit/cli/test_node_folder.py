"""`dpcrowd node` on the folder of a stopped server: budget, backup, and what only an operator can decide."""

from __future__ import annotations

import io
import json
import shutil
import time
from pathlib import Path

import pytest

from dpcrowd.node.config import load_node, load_pair
from dpcrowd.node.live.presence import Presence
from dpcrowd.node.storage import Storage
from node_support_cli import MINUTE, paid, run


@pytest.fixture(autouse=True)
def _nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


def test_budget_of_a_stopped_node_is_read_from_its_folder(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was spent is asked most when the node is down."""
    paid(file)
    code, out, _ = run(capsys, "budget", str(file), "--json")
    view = json.loads(out)
    assert code == 0
    assert (view["spent"], view["remaining"], view["total_spent"], view["samples"]) == (0.25, 0.75, 0.25, False)
    assert "folder" in view["text"]


def test_budget_of_a_node_that_never_ran(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No folder is storage's problem, 3, and none is made."""
    code, _, err = run(capsys, "budget", str(file))
    assert code == 3
    assert "no node has run here" in err
    assert not load_node(file).data.exists()


def test_backup(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backup that can be restored; one that is there is not replaced."""
    paid(file)
    to = tmp_path / "copy.db"
    code, out, _ = run(capsys, "backup", str(file), str(to), "--json")
    assert code == 0
    assert json.loads(out) == {"file": str(to), "counter": 1}
    (tmp_path / "restored").mkdir()
    shutil.copy(to, tmp_path / "restored" / "dpcrowd.db")
    with Storage.inspect(tmp_path / "restored", network_id="trial") as storage:
        assert storage.ledger.total_spent() == 250_000_000
    before = to.read_bytes()
    monkeypatch.chdir(file.parent)
    assert run(capsys, "backup", str(to.with_name("second.db")))[0] == 0, "node.toml of the present folder"
    code, _, err = run(capsys, "backup", str(file), str(to))
    assert code == 2
    assert "exists already" in err
    assert to.read_bytes() == before
    assert run(capsys, "backup", str(file), str(tmp_path / "nowhere" / "copy.db"))[0] == 2


def test_a_new_horizon_says_the_sum_and_is_logged(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a new start of the scheme the budget would stay spent; without the log nobody could tell later."""
    data = paid(file, "finite")
    code, out, err = run(capsys, "new-horizon", str(file))
    assert (code, out) == (1, "")
    assert "has spent ε=0.25 so far" in err
    with Storage.inspect(data, network_id="trial") as storage:
        assert storage.events.all() == []
        assert storage.state() == b"state"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(capsys, "new-horizon", str(file))[0] == 1
    code, out, err = run(capsys, "new-horizon", str(file), "--yes", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    _, network = load_pair(file)
    assert told["epsilon_summed"] == 1.25
    assert told["slots"] == network.guarantee().length
    assert abs(told["first_slot"] - network.clock().slot_of(time.time_ns())) <= 1, "from now on, under the same epoch"
    with Storage.inspect(data, network_id="trial") as storage:
        (event,) = storage.events.all()
        assert event.kind == "new-horizon"
        assert "1.25" in event.text
        assert storage.state() is None
        assert storage.ledger.total_spent() == 250_000_000, "what was spent stays on record"
        (promise,) = storage.ledger.account(0).guarantees
        assert promise.since_ns > 0


def test_no_new_horizon_at_one_server_alone_if_users_roam(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who roams would be in more horizons than any server knows of; what to do instead is said."""
    data = paid(file, "finite")
    path = file.parent.parent / "network.toml"
    text = path.read_text().replace("[guarantee]", '[guarantee]\nusers = "roaming"')
    path.write_text(text.replace("turnover = 0.05", "turnover = 1.0"), encoding="utf-8")  # of users who stay
    code, out, err = run(capsys, "new-horizon", str(file), "--yes")
    assert (code, out) == (2, "")
    assert "roaming users" in err
    assert "valid_from_slot" in err
    assert "horizon_from_slot" in err
    assert "dpcrowd node reload" in err
    with Storage.inspect(data, network_id="trial") as storage:
        assert storage.events.all() == []
        assert storage.ledger.account(0).guarantees[0].since_ns == 0


def test_a_slot_in_its_grace_is_the_first_of_a_new_horizon(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is sealed after the command: in neither horizon, it would be paid for by nobody."""
    data = paid(file, "finite")
    _, network = load_pair(file)
    clock = network.clock()
    slot = clock.slot_of(time.time_ns()) + 5
    monkeypatch.setattr(time, "time_ns", lambda: clock.closes(slot) + network.grace_ns // 2)
    code, out, _ = run(capsys, "new-horizon", str(file), "--yes", "--json")
    assert code == 0
    assert json.loads(out)["first_slot"] == slot
    with Storage.open(data, network_id="trial") as storage:
        assert storage.ledger.allowance(clock.opens(slot)).nano == 10**9
        storage.commit_sample(slot, clock.opens(slot), clock.length_ns, 10**9, b"", b"")
        assert storage.ledger.allowance(clock.opens(slot + 1)).nano == 0, "it is of the new horizon"


def test_no_new_horizon_of_a_window_or_beside_a_running_node(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A window's budget comes back by itself, and a running node would go on with the old state."""
    code, _, err = run(capsys, "new-horizon", str(file), "--yes")
    assert code == 2
    assert "has a window guarantee" in err
    data = paid(file, "finite")
    with Storage.open(data, network_id="trial"):
        code, _, err = run(capsys, "new-horizon", str(file), "--yes")
    assert code == 3
    assert "is in use by process" in err


def _two_on_one_ledger(file: Path) -> Path:
    """Network 'old' has paid into the ledger of 'trial', and has ended."""
    data = paid(file)
    with Storage.open(data.parent / "old", network_id="old", ledger_folder=data) as storage:
        storage.ledger.declare(500_000_000, None)
        storage.commit_sample(1, time.time_ns() - 10 * MINUTE, MINUTE, 250_000_000, b"noisy", b"state")
    return data


def test_a_promise_is_withdrawn_only_with_consent(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network that has ended would bind the others for ever; who was promised less has to be thought of first."""
    data = _two_on_one_ledger(file)
    code, out, err = run(capsys, "withdraw", str(file), "old")
    assert (code, out) == (1, "")
    assert "promised its users ε=0.5" in err
    assert "may pay more than was promised" in err
    with Storage.inspect(data, network_id="trial") as storage:
        assert len(storage.ledger.account(0).guarantees) == 2
    code, out, err = run(capsys, "withdraw", str(file), "old", "--yes", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"network": "old", "ledger": str(data), "epsilon": 0.5, "left": ["trial"]}
    with Storage.inspect(data, network_id="trial") as storage:
        assert [promise.network for promise in storage.ledger.account(0).guarantees] == ["trial"]
        assert storage.ledger.total_spent() == 500_000_000, "what was paid stays paid"
        (event,) = storage.events.all()
        assert (event.network, event.kind) == ("old", "withdrawn")


def test_two_networks_are_parted_without_forgetting_a_payment(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the operator's guide has it: a new, empty ledger for the one that leaves would be a whole budget again."""
    other = paid(file).rename(file.parent / "of the other network")
    shared = f'\n[ledger]\nshared = "{other}"\n'
    file.write_text(file.read_text() + shared, encoding="utf-8")
    node, network = load_pair(file)
    with Storage.open(node.data, network_id="trial", ledger_folder=other), Storage.open(other, network_id="flu") as flu:
        flu.ledger.declare(10**9, 100 * MINUTE)
        flu.commit_sample(1, time.time_ns() - 10 * MINUTE, MINUTE, 500_000_000, b"", b"")
    assert run(capsys, "backup", str(file), str(node.data / "dpcrowd.db"))[0] == 0
    file.write_text(file.read_text().replace(shared, ""), encoding="utf-8")
    assert run(capsys, "withdraw", str(file), "flu", "--yes")[0] == 0
    with Storage.open(node.data, network_id="trial") as storage:
        storage.ledger.declare(10**9, 100 * MINUTE, roaming=True, slots=network.clock())
        assert storage.ledger.allowance(time.time_ns()).nano == 250_000_000
    with Storage.open(other, network_id="flu") as flu:
        assert flu.ledger.allowance(time.time_ns()).nano == 250_000_000


def test_no_promise_is_withdrawn_under_a_running_server(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would go on paying without a promise; of both servers, the ledger's own and that of the network."""
    data = _two_on_one_ledger(file)
    with Storage.open(data.parent / "old", network_id="old", ledger_folder=data):
        assert run(capsys, "withdraw", str(file), "old", "--yes")[0] == 3
    with Storage.open(data, network_id="trial"):
        assert run(capsys, "withdraw", str(file), "old", "--yes")[0] == 3
    with Storage.inspect(data, network_id="trial") as storage:
        assert len(storage.ledger.account(0).guarantees) == 2


def test_withdrawing_what_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest name, no new folder, and no traceback."""
    code, _, err = run(capsys, "withdraw", str(file), "old", "--yes")
    assert code == 3
    assert "no node has run here" in err
    assert not load_node(file).data.exists()
    paid(file)
    code, _, err = run(capsys, "withdraw", str(file), "trail", "--yes")
    assert code == 2
    assert "Did you mean 'trial'?" in err


def test_forget_deletes_what_a_stopped_server_holds(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that stays down keeps the open slot's hashes beside their key, for anybody who finds the disk."""
    code, _, err = run(capsys, "forget", str(file))
    assert code == 2
    assert "no server has run here" in err
    paid(file)
    node, network = load_pair(file)
    with Storage.open(node.data, network_id=network.id) as storage:
        storage.journal.slot_key(MINUTE)
        storage.journal.append(MINUTE, b"somebody was here")
        storage.journal.stamp(MINUTE)
        code, _, err = run(capsys, "forget", str(file))
        assert code == 3, "not while the server runs"
        assert "in use" in err
    code, out, _ = run(capsys, "forget", str(file), "--json")
    assert code == 0
    folder = node.data / "journal"
    assert json.loads(out) == {"folder": str(folder), "forgotten": True}
    assert [path.name for path in folder.iterdir()] == ["alive"]
    with Storage.open(node.data, network_id=network.id) as storage:
        presence = Presence(storage.journal, network.clock(), 10 * MINUTE)
        now = network.clock().opens(5) + 1
        presence.start(now, 5)
        assert not presence.complete(5), "whoever was there before is not counted: the slot would tell of too few"
    assert run(capsys, "forget", str(file))[0] == 0
