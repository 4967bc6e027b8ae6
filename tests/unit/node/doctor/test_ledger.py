"""The doctor and the ledger: damage, what was spent, and every reason for which there would be no sample."""

from __future__ import annotations

import re
import time
from pathlib import Path

from dpcrowd.cli.main import main
from dpcrowd.node.config import load_pair
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.doctor import has_problem
from dpcrowd.node.live.status import budget
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.network_guarantee import UserBounds
from node_support_doctor import MINUTE, look, of, pay, problems


def test_the_ledger_is_read_and_damage_is_found(net: Path) -> None:
    """A damaged ledger has to be found before a slot needs it."""
    data = pay(net, time.time_ns() // MINUTE * MINUTE - MINUTE)
    findings = look(net)
    assert not has_problem(findings)
    assert "with 1 payment(s)" in of(findings, "database")[0].text
    assert "together have spent 0.25 in its present window" in of(findings, "budget")[0].text
    content = bytearray((data / "dpcrowd.db").read_bytes())
    content[:100] = bytes(100)
    (data / "dpcrowd.db").write_bytes(content)
    assert "not a database" in problems(look(net))["database"]


def test_spending_of_several_networks_is_summed(net: Path) -> None:
    """Two networks over the same people: what counts for a person is what both spent together."""
    opens = time.time_ns() // MINUTE * MINUTE - 3 * MINUTE
    data = pay(net, opens)
    with Storage.open(data.parent / "other", network_id="other", ledger_folder=data) as storage:
        storage.ledger.declare(2 * 10**9, None)
        storage.commit_sample(1, opens + MINUTE, MINUTE, 500_000_000, b"noisy", b"state")
    texts = [one.text for one in of(look(net), "budget")]
    assert any("'trial' promises ε=1;" in text and "spent 0.75 in its present window" in text for text in texts)
    assert any("'other' promises ε=2;" in text and "spent 0.75 since its horizon began" in text for text in texts)


def _finite(net: Path, opens: int, nano: int, *, horizon: int = 1_000_000) -> Path:
    """The same for a network with a horizon."""
    text = sample_network(3, network_id="trial", kind="finite", scheme="dpcrowd")
    text = re.sub(r"^length = .*$", f"length = {horizon}", text, flags=re.MULTILINE)
    (net / "network.toml").write_text(text, encoding="utf-8")
    return pay(net, opens, nano=nano, kind="finite")


def _a_while_ago() -> int:
    return time.time_ns() // MINUTE * MINUTE - 3 * MINUTE


def _back(net: Path, at: int) -> str:
    """A whole budget, at a slot and its time."""
    _, network = load_pair(net / "server-1" / "node.toml")
    slot = network.clock().slot_of(at)
    return f"ε=1 at slot {slot}, {rfc3339(network.clock().opens(slot))}"


def test_a_spent_window_is_no_alarm_but_said(net: Path) -> None:
    """A scheme that uses its budget is often there; when some comes back is what the operator wants to know."""
    opens = _a_while_ago()
    pay(net, opens, nano=10**9)
    findings = look(net)
    assert "budget" not in problems(findings)
    (said,) = [one for one in of(findings, "budget") if one.outcome == "note"]
    assert f"no sample now: ε=1 of 1 is spent. Budget comes back: {_back(net, opens + 101 * MINUTE)}" in said.text


def test_a_loss_that_was_confirmed(net: Path) -> None:
    """A whole budget is booked, and nothing is sampled for a whole window: no ordinary state.

    What the server itself says of it has to be the same, or the operator believes neither.
    """
    opens = _a_while_ago()
    data = pay(net, opens)
    with Storage.open(data, network_id="trial") as storage:
        storage.ledger.book_loss(opens + MINUTE, opens + 3 * MINUTE, 10**9, "an old copy", at_ns=opens + 3 * MINUTE)
    findings, ends = look(net), rfc3339(opens + 103 * MINUTE)
    told = problems(findings)["budget"]
    blocked = f"blocked is ε=1 for confirmed losses, until {ends}."
    assert f"no sample now: ε=0.25 of 1 is spent, and {blocked}" in told
    assert f"together have spent 0.25 in its present window, and {blocked}" in of(findings, "budget")[0].text
    assert "began ε=0.25 was spent, and ε=1 of confirmed losses was blocked" in of(findings, "budget")[1].text
    back = _back(net, opens + 103 * MINUTE)
    assert f"Budget comes back: {back}." in told, "only when the loss has left the window, not with the payment"
    _, network = load_pair(net / "server-1" / "node.toml")
    with Storage.open(data, network_id="trial") as storage:
        view = budget(network, storage, Trust(0, vouched=True), time.time_ns())
    assert view.text in told
    assert f"ε={view.returns:g} at slot {view.returns_slot}, {view.returns_at}" == back
    assert (view.spent, view.blocked, view.total_spent, view.total_blocked) == (0.25, 1.0, 0.25, 1.0)
    assert (view.blocked_until, view.blocked_text) == (ends, blocked.removeprefix("blocked is "))


def test_a_spent_horizon(net: Path) -> None:
    """Nothing comes back: only an operator can decide on a new promise."""
    _finite(net, _a_while_ago(), 10**9)
    findings = look(net)
    assert "no more samples: ε=1 of 1 is spent" in problems(findings)["budget"]
    assert any("new-horizon" in one.fix for one in of(findings, "budget"))


def test_a_horizon_that_is_over_and_a_new_one(net: Path) -> None:
    """With budget left, and nobody who would say why nothing is sampled; a new horizon needs no new epoch."""
    _finite(net, _a_while_ago(), 250_000_000, horizon=10)
    assert "the horizon of 10 slots ended with slot 9" in problems(look(net))["budget"]
    assert main(["node", "new-horizon", str(net / "server-1" / "node.toml"), "--yes"]) == 0
    assert "budget" not in problems(look(net))


def _roaming(net: Path) -> None:
    path = net / "network.toml"
    text = path.read_text().replace("[guarantee]", '[guarantee]\nusers = "roaming"')
    path.write_text(text.replace("turnover = 0.05", "turnover = 1.0"), encoding="utf-8")  # of users who stay


def test_a_horizon_of_roaming_users_that_is_over(net: Path) -> None:
    """The command that pinned users have is refused here: advice that leads nowhere."""
    _finite(net, _a_while_ago(), 250_000_000, horizon=10)
    _roaming(net)
    findings = look(net)
    assert "the horizon of 10 slots ended with slot 9" in problems(findings)["budget"]
    (fix,) = [one.fix for one in of(findings, "budget") if one.outcome == "problem"]
    assert "horizon_from_slot" in fix
    assert "new-horizon" not in fix


def test_a_ledger_that_roaming_users_share_is_found_before_the_start(net: Path) -> None:
    """The server will refuse to start; the doctor is asked before."""
    data = pay(net, _a_while_ago())
    with Storage.open(data.parent / "other", network_id="other", ledger_folder=data) as storage:
        storage.ledger.declare(10**9, None)
    assert "sharing" not in problems(look(net))
    _roaming(net)
    assert "'trial' shares its ledger with 'other', and the users of 'trial' roam" in problems(look(net))["sharing"]


def test_a_roaming_network_on_a_shared_ledger_keeps_others_away(net: Path) -> None:
    """Nobody else is there yet: this server starts, and the one that is meant to share would not."""
    data = pay(net, _a_while_ago()).rename(net / "shared")
    _roaming(net)
    file = net / "server-1" / "node.toml"
    file.write_text(f'{file.read_text()}\n[ledger]\nshared = "{data}"\n', encoding="utf-8")
    (said,) = of(look(net), "sharing")
    assert said.outcome == "note"
    assert "no other network can share the ledger" in said.text


def test_users_at_more_servers_are_counted_as_such(net: Path) -> None:
    """What was spent, and what it costs whom: without it "spent 0.25" beside "no sample" would be a riddle."""
    data = pay(net, _a_while_ago())
    with Storage.open(data.parent / "other", network_id="other", ledger_folder=data) as storage:
        storage.ledger.declare(10**9, None, bounds=UserBounds(1, 4))
    findings = look(net)
    text = "spent 0.25 since its horizon began, which counts as 1 for users in one region at each of up to 4 servers"
    assert any(text in one.text for one in of(findings, "budget"))
    assert (
        "promises ε=1 for users in one region at each of up to 4 servers per slot, of which 1 is"
        in problems(findings)["budget"]
    )


def test_the_guarantee_of_another_network_binds(net: Path) -> None:
    """The own budget looks fine, and yet nothing is sampled: the other network has to be named."""
    data = pay(net, _a_while_ago())
    with Storage.open(data.parent / "other", network_id="other", ledger_folder=data) as storage:
        storage.ledger.declare(250_000_000, None)
    findings = look(net)
    assert "network 'other' shares this ledger and promises ε=0.25, of which 0.25" in problems(findings)["budget"]
    assert any("dpcrowd node withdraw NODE.TOML other" in one.fix for one in findings)
