"""How `dpcrowd node status` prints what other servers' records show of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dpcrowd.cli.node_show import show_budget, show_quality, show_status
from dpcrowd.node.api.views import NeighbourStatus, NetworkStatus, QualityView, RegionQuality, ServerStatus

BUDGET: dict[str, Any] = {"kind": "window", "length": 10, "epsilon": 1.0, "spent": 0.25, "remaining": 0.75}


def printed(servers: list[ServerStatus], capsys: pytest.CaptureFixture[str], **more: Any) -> list[str]:
    more_quality = more.pop("quality", {})
    status = NetworkStatus(
        network="n", server="a", version="0", revision=1, digest="00", epoch="2026-01-01T00:00:00Z", slot_seconds=60.0,
        grace_seconds=5.0, slot=100, regions=["north"], neighbours=more.pop("neighbours", []), servers=servers, **more,
    )  # fmt: skip
    network: dict[str, Any] = msgspec.to_builtins(status)
    show_status({"ready": True, "problems": []}, network, BUDGET, more_quality, as_json=False)
    return capsys.readouterr().out.splitlines()


def test_only_servers_with_which_something_is_wrong_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator looks here first; fifty lines on servers that are well would hide the one that is not."""
    wrong = [
        ServerStatus(name="b", last_record=99),
        ServerStatus(name="c", overdue=71, missing=True),
        ServerStatus(name="d", overdue=99),
        ServerStatus(name="e", suspected_since=80, equivocation=95),
        ServerStatus(name="f", overdue=96),
    ]
    lines = printed(wrong, capsys, lag=16)
    assert [line for line in lines if line.split()[0] in ("missing", "overdue", "suspected", "two")] == [
        "missing     c: its record of slot 71 has not come",
        "suspected   e: from slot 80 on its records count less, since they disagree with those of others",
        "two records e: signed two different ones for slot 95",
        "overdue     f: its record of slot 96 has not come yet; it counts if it is at most 16 slots late",
    ]
    assert not [line for line in lines if " b:" in line or " d:" in line]


def test_what_runs_who_is_away_whose_word_it_is_and_what_was_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers that network.toml leaves open, and whose word an estimate is, are shown nowhere else in a terminal."""
    neighbours = [
        NeighbourStatus(name="b", connected=True, last_slot=99),
        NeighbourStatus(name="c", connected=False, last_slot=90),
        NeighbourStatus(name="d", connected=False),
    ]
    sent = {"data": 3, "heartbeat": 1200, "forward": 4, "join": 0}
    relay: dict[str, Any] = {"scheme": "relay", "samples": 4, "reach": 2, "lag": 16, "messages_sent": sent}
    lines = printed(
        [], capsys, neighbours=neighbours, joined_from=["b", "c"], joined_slot=80, join_disagreement=["d"], **relay
    )
    assert lines[4:] == [
        "scheme      relay: 4 samples per 10 slots; records travel 2 links, and may be 16 slots late",
        "neighbours  1 of 3 connected: c silent since slot 90, d never heard",
        "budget      ε=0.25 of 1 in the last 10 slots, 0.75 left",
        "joined      the estimates from slot 81 on begin with the word of b and c",
        "join        contradicting states of d; compare what these servers release",
        "messages    3 with a sample, 1,200 heartbeats, 4 with records of others since the start",
    ]
    assert "scheme      dpcrowd-w" in printed([], capsys, scheme="dpcrowd-w")
    assert (
        "scheme      relay: 1 sample per 10 slots; records travel to every server, and may be 5 slots late"
        in printed([], capsys, scheme="relay", samples=1, reach="all", lag=5)
    )


def test_what_equal_parts_leave_over_is_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """'2e-09 left' reads like a budget; it pays for nothing."""
    monkeypatch.setitem(BUDGET, "remaining", 2e-9)
    assert "budget      ε=0.25 of 1 in the last 10 slots, 0 left" in printed([], capsys)
    monkeypatch.setitem(BUDGET, "remaining", 0.0123456789)
    assert "budget      ε=0.25 of 1 in the last 10 slots, 0.0123457 left" in printed([], capsys)
    monkeypatch.setitem(BUDGET, "epsilon", 1e-6)
    monkeypatch.setitem(BUDGET, "remaining", 4e-7)
    assert "4e-07 left" in " ".join(printed([], capsys)), "of a small epsilon, that is a lot"


def test_a_horizon_that_has_ended_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """'ready yes ... 0 left' was all that said that a server samples no more; `budget` knew why."""
    ended = "the horizon of 40 slots ended with slot 39; a new one is a new promise: dpcrowd node new-horizon."
    for name, value in {"kind": "finite", "samples": False, "text": ended, "waits_for": "budget"}.items():
        monkeypatch.setitem(BUDGET, name, value)
    assert f"samples     no: {ended}" in printed([], capsys)
    monkeypatch.setitem(BUDGET, "samples", True)
    assert not [line for line in printed([], capsys) if line.startswith("samples")]
    monkeypatch.setitem(BUDGET, "samples", False)
    network = {"network": "n", "server": "a", "version": "0", "revision": 1, "digest": "00", "epoch": "", "slot": 1}
    ready = {"ready": False, "problems": [f"the node may not sample yet (/v1/budget): {ended}"]}
    show_status(ready, {**network, "slot_seconds": 60.0, "neighbours": []}, BUDGET, {}, as_json=False)
    assert capsys.readouterr().out.count(ended) == 1


def test_what_a_ledger_that_was_rolled_back_has_spent_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """'spent ε=0 of 1, 1 left' was said of a ledger that neighbours had proved to be incomplete."""
    view = {
        **{"guarantee": "a promise.", "kind": "window", "length": 10, "epsilon": 1.0, "spent": 0.0, "remaining": 1.0},
        **{"total_spent": 0.0, "samples": False, "waits_for": "operator", "text": "it is an old copy."},
    }
    show_budget(view, as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "spent       unknown until the loss is confirmed ('dpcrowd node confirm-loss'); "
        "this ledger has ε=0 of 1 in the last 10 slots",
        "in all      at least ε=0 since the ledger began",
        "samples     no: it is an old copy.",
    ]


def test_settings_of_the_crowd_are_shown_where_they_are_stated(capsys: pytest.CaptureFixture[str]) -> None:
    """Estimates of two networks differ by them, and they stood nowhere but in a file on another machine."""
    lines = printed([], capsys, scheme="relay", groups="auto", turnover=0.05, share_width=0.1)
    assert lines[5:8] == [
        "groups      auto: small regions share one draw of noise, where that is predicted to help",
        "turnover    0.05: this part of a server's users is replaced per slot",
        "share width 0.1: public shares may be wrong by 10%; servers learn them",
    ]
    meeting = printed([], capsys, scheme="relay", share_width=0.1, meetings=True)
    assert meeting[5].endswith("servers learn them, and each server samples together with others in turn")
    usual = printed([], capsys, scheme="relay", groups="off", turnover=1.0, share_width=0.0)
    assert usual[5:8] == [
        "groups      off: every region has its own noise",
        "turnover    1: everybody counts as new in every slot",
        "share width 0: public shares are right",
    ]
    plain = printed([], capsys, scheme="relay")
    assert not [line for line in plain if line.startswith(("groups", "turnover", "share width"))]


def test_quality_is_printed_in_all_and_by_region(capsys: pytest.CaptureFixture[str]) -> None:
    """It stood at /v1/quality alone, which needs a token in a header and says it in JSON."""
    regions = [
        RegionQuality(region="north", values=30, coverage=0.95, calibration=1.04),
        RegionQuality(region="south", values=0),
    ]
    view = QualityView(
        verdict="narrow", text="only few are inside.", caveats=["suspected"], values=30, window=100, since_slot=4,
        regions=regions,
    )  # fmt: skip
    show_quality(msgspec.to_builtins(view), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "verdict     narrow",
        "because     only few are inside.",
        "values      30 of 200 needed, in the last 100 slots, counted since slot 4",
        "caveats     suspected",
        "region              values    inside    mean square",
        "north               30        95.0%     1.04",
    ]
    show_quality(msgspec.to_builtins(view), as_json=True)
    assert json.loads(capsys.readouterr().out) == msgspec.to_builtins(view)


def test_calibration_and_a_suspicion_of_itself_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever has a terminal only saw neither that intervals were wrong nor that it was about this very server."""
    narrow = {"verdict": "narrow", "text": "the intervals are too narrow: 23% of 48 values."}
    lines = printed([ServerStatus(name="a", suspected_since=80)], capsys, quality=narrow)
    assert "calibration the intervals are too narrow: 23% of 48 values." in lines
    assert [line for line in lines if line.startswith("suspected   a (this server): from slot 80 on")]
    unknown = printed([], capsys, quality={"verdict": "unknown", "text": "3 values so far."})
    assert "calibration unknown: 3 values so far." in unknown
    assert not [line for line in printed([], capsys) if line.startswith("calibration")], "an earlier version"


def test_whether_servers_learn_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Two networks with one model and different estimates: which of them learns stood nowhere but in network.toml."""
    model: dict[str, Any] = {"scheme": "relay", "model_data": "counts.csv", "model_source": "public"}
    assert "learn       yes: servers learn from releases how well the model fits" in printed(
        [], capsys, learn=True, **model
    )
    assert "learn       no: servers take the model as it is" in printed([], capsys, learn=False, **model)
    assert not [line for line in printed([], capsys, scheme="relay") if line.startswith("learn")]


def test_names_of_servers_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """They come from other organisations' files."""
    lines = printed([ServerStatus(name="c\x1b[2J", overdue=71, missing=True)], capsys)
    assert not [line for line in lines if "\x1b" in line]


def test_a_process_model_is_named_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Estimates rest on it, and whether it was public is what the operators say: who looks at the state must see it."""
    lines = printed([], capsys, scheme="relay", model_data="survey.csv", model_source="the town's own survey")
    assert lines[5] == (
        "model       fitted on 'survey.csv'; why it costs no budget is asserted by the operators: "
        '"the town\'s own survey"'
    )
    assert not [line for line in printed([], capsys, scheme="relay") if line.startswith("model")]
    model = {"model_data": "survey.csv", "model_source": 'a "b'}
    assert printed([], capsys, scheme="relay", **model)[5].endswith(""" by the operators: "a 'b\""""), (
        "an earlier version"
    )
    quoted = '"ours"; and of earlier models, of which it keeps a part: "a census"'
    assert printed([], capsys, scheme="relay", model_assertion=quoted, **model)[5].endswith(f" operators: {quoted}")


def test_what_groups_do_depends_on_what_the_model_says(capsys: pytest.CaptureFixture[str]) -> None:
    """With a model that says nothing of regions none are joined, and with one that does a record may be one sum."""

    def line(**more: Any) -> str:
        (text,) = (one for one in printed([], capsys, scheme="relay", **more) if one.startswith("groups"))
        return text

    model = {"model_data": "survey.csv", "model_source": "a survey"}
    assert "no regions are joined, since the model has no region_correlation" in line(groups="auto", **model)
    known = line(groups="auto", region_correlation=0.3, **model)
    assert "records may have the sum of all regions" in known
    assert "small regions" not in known
    assert line(groups="off", **model) == "groups      off: every region has its own noise"
