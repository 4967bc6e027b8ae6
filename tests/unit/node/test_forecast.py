"""Whether a budget will last is told before the start, from public numbers alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.models.file import write_model
from dpcrowd.node.config import NetworkConfig, parse_network
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.forecast import Forecast, best_interval, forecast, schedule_warning
from dpcrowd.node.live.process import LINKS
from dpcrowd.privacy import noise_var, secure_noise
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from node_support_config import changed, network_of, tables
from node_support_doctor import change, look, of
from project_support import ROOT

GUIDE = ROOT / "docs" / "operate.md"
FIRST_GUIDE: dict[str, Any] = {
    **changed(changed(tables(), "network.slot", "15m"), "network.population", 300_000),
    "guarantee": {"kind": "window", "length": 96, "epsilon": "1"},
    "scheme": {"name": "dpcrowd-plus", "process_var": 4_000_000.0},
}
"""What the guide of 0.1.0 had: it stood still for most of a day."""


def rewritten(network: dict[str, Any], warning: str) -> NetworkConfig:
    """The network with what a warning says to write."""
    name, sampling, interval = re.findall(r'name = "(.*?)", sampling = "(.*?)", interval = (\d+);', warning)[0]
    scheme = {"name": name, "sampling": sampling, "interval": int(interval)}
    return network_of({**network, "scheme": {**scheme, "process_var": network["scheme"]["process_var"]}})


@pytest.mark.slow
def test_a_window_that_is_spent_in_its_first_quarter_is_foretold() -> None:
    """Nobody would know until the estimates stood still: the file is valid, and the first slots look well."""
    expected = forecast(network_of(FIRST_GUIDE), "a")
    assert expected is not None
    assert expected.spent_at is not None
    assert expected.slots == 3 * 96
    assert expected.spent_at < 32
    assert expected.standstill > 50
    warning = schedule_warning(network_of(FIRST_GUIDE), "a")
    assert warning is not None
    assert f"after {expected.spent_at} of the 96 slots of its window" in warning
    assert f"{expected.standstill} slots in a row ({expected.standstill / 4:g} hours)" in warning


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        (Forecast(60, 40, 12, 7), "after 12 of the 20 slots of its window, and stands still for up to 7 slots in a row "
         "(7 s). "),
        (Forecast(60, 40, 16, 12), "after 16 of the 20 slots of its window, and stands still for up to 12 slots in a "
         "row (12 s, which reaches into the next window). "),
        (Forecast(60, 40, 36, 3), "after 16 of the 20 slots of its window, and stands still for up to 3 slots in a row "
         "(3 s). "),
    ],
)  # fmt: skip
def test_a_standstill_is_told_in_numbers_that_fit(
    expected: Forecast, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 and 12 of 20 slots, or 0.117 minutes, would make an operator look for the mistake in the forecast."""
    monkeypatch.setattr("dpcrowd.node.forecast.forecast", lambda network, server: expected)
    short = changed(changed(FIRST_GUIDE, "guarantee.length", 20), "network.slot", "1s")
    short["network"] |= {"grace": "100ms", "deadline": "500ms"}
    warning = schedule_warning(network_of(short), "a")
    assert warning is not None
    assert told in warning


@pytest.mark.parametrize(
    "scheme",
    [
        {"name": "dpcrowd-plus", "process_var": 4e6},
        {"name": "dpcrowd-plus", "process_var": 4e6, "grouping": "none", "form": "matrix"},
        {"name": "dpcrowd-w", "process_var": 4e6},
        {"name": "dpcrowd-w", "process_var": [4e6, 3e6, 1e6], "blocks": "full"},
        {"name": "dpcrowd", "process_var": 4e6},
    ],
    ids=["plus", "matrix", "blocks of half", "blocks of all", "finite"],
)
def test_what_the_warning_says_to_write_has_no_warning(scheme: dict[str, Any]) -> None:
    """Advice that is refused, or that stands still as well, would be worse than none."""
    kind = "finite" if scheme["name"] == "dpcrowd" else "window"
    network = changed({**FIRST_GUIDE, "scheme": scheme}, "guarantee.kind", kind)
    warning = schedule_warning(network_of(network), "b")
    assert warning is not None
    assert f"of its {'horizon' if kind == 'finite' else 'window'}" in warning
    better = rewritten(network, warning)
    assert forecast(better, "b") is None, "its samples are fixed by the file"
    assert schedule_warning(better, "b") is None


@pytest.mark.slow
def test_a_budget_that_lasts_is_not_warned_of() -> None:
    """A warning that always comes is not read: capped slots, and crowds that hardly move, are fine."""
    roaming = network_of(changed(FIRST_GUIDE, "guarantee.users", "roaming"))
    expected = forecast(roaming, "a")
    assert expected is not None
    assert expected.samples > 250
    assert schedule_warning(roaming, "a") is None
    calm = {"name": "dpcrowd-w", "process_var": 1.0, "tuning": {"theta": 20.0, "xi": 0.5}}
    assert schedule_warning(network_of({**FIRST_GUIDE, "scheme": calm}), "a") is None


@pytest.mark.slow
def test_no_draw_of_the_node_and_no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast that used up the node's entropy, or that changed from start to start, would be of no use."""

    def forbidden(_: int) -> bytes:
        raise AssertionError("the kernel was asked for entropy")

    monkeypatch.setattr(secure_noise.os, "urandom", forbidden)
    assert forecast(network_of(FIRST_GUIDE), "c") == forecast(network_of(FIRST_GUIDE), "c")


@pytest.mark.slow
def test_the_largest_networks_take_no_longer() -> None:
    """A window of a million slots or a hundred thousand regions would hold up every start for hours."""
    long = changed(FIRST_GUIDE, "guarantee.length", 1_000_000)
    wide = changed(FIRST_GUIDE, "network.regions", [f"place {number}" for number in range(100_000)])
    wide = changed(wide, "network.population", 2**50)
    expected = forecast(network_of(long), "a")
    assert isinstance(expected, Forecast)
    assert expected.spent_at is not None
    assert expected.slots <= 1_500
    assert expected.standstill == 1_000_000 - expected.spent_at, "nothing comes back before the window is over"
    assert schedule_warning(network_of(wide), "a") is not None


def test_the_interval_follows_noise_and_movement() -> None:
    """One sample per slot would drown a small crowd in noise; one in many would miss a large one's day."""
    assert best_interval(network_of(FIRST_GUIDE), "a") == 1
    small = {**changed(FIRST_GUIDE, "network.population", 300), "scheme": {"name": "dpcrowd-plus", "process_var": 1.0}}
    assert best_interval(network_of(small), "a") > 10
    assert best_interval(network_of(changed(FIRST_GUIDE, "scheme.process_var", 0.0)), "a") == 1
    endless = changed(FIRST_GUIDE, "guarantee.length", 1_000_000)
    assert best_interval(network_of(endless), "a") > 50, "an even share of each slot would be all noise"


def with_model(folder: Path, scheme: str, spread: float, season: int = 1) -> NetworkConfig:
    """A network whose servers know a process model of a crowd that moves so much."""
    kind = "finite" if scheme == "dpcrowd" else "window"
    network = changed(FIRST_GUIDE, "guarantee.kind", kind)
    regions = network_of(FIRST_GUIDE).regions
    rng, mean = np.random.default_rng(0), 100_000 * (1 + np.arange(200) % season)[:, None]
    counts = np.maximum(mean + spread * rng.standard_normal((200, len(regions))), 0).round()
    write_model(fit(counts_from_array(counts, regions=regions), source="a survey"), folder / "model.toml")
    text = (folder / "model.toml").read_text(encoding="utf-8")
    return network_of({**network, "scheme": {"name": scheme, "model": text}})


@pytest.mark.parametrize("scheme", ["dpcrowd", "dpcrowd-w", "dpcrowd-plus"])
def test_servers_that_know_a_model_have_a_forecast(tmp_path: Path, scheme: str) -> None:
    """They have no process variance of their own: reading it, no such server with adaptive sampling would start."""
    lively, calm = (forecast(with_model(tmp_path, scheme, spread), "a") for spread in (20_000.0, 10.0))
    assert lively is not None
    assert calm is not None
    assert 0 < calm.samples < lively.samples, "the crowd is the one that the model expects"
    warning = schedule_warning(with_model(tmp_path, scheme, 20_000.0), "a")
    assert warning is None or "interval = " in warning


def test_the_interval_with_a_model_is_that_of_a_simulated_filter(tmp_path: Path) -> None:
    """A deviation fades around a course: with the formula of a random walk, the advice would be to sample too often."""
    network = with_model(tmp_path, "dpcrowd-w", 20_000.0)
    assert network.model().diagonal_transition.max() < 0.5
    walk = network_of({**FIRST_GUIDE, "scheme": {"name": "dpcrowd-w", "process_var": 4e8}})
    assert mean_var(network, best_interval(network, "a")) == min(mean_var(network, length) for length in range(1, 97))
    assert mean_var(walk, best_interval(walk, "a")) == min(mean_var(walk, length) for length in range(1, 97))


def mean_var(network: NetworkConfig, interval: int) -> float:
    """The mean variance of a filter with a sample every so many slots, when it has settled: slot by slot."""
    guarantee, model = network.guarantee(), network.model()
    kept = 1.0 if model.course is None else float(np.mean(np.square(model.diagonal_transition)))
    names = ["a", *network.neighbours("a", network.valid_from_slot)]
    shares = [network.server(name).counted_share for name in names]
    noise = float(noise_var(guarantee.total // -(-guarantee.length // interval), guarantee.sensitivity))
    people = network.population / len(network.regions)
    var, variances = float(np.mean(model.noise_var)), []
    for slot in range(30 * interval):
        var = kept * var + float(np.mean(model.noise_var))
        if slot % interval == 0:
            var = 1 / (1 / var + sum(share**2 / (noise + share * (1 - share) * people) for share in shares))
        variances.append(var)
    return round(float(np.mean(variances[-interval:])), 3)


def test_what_we_tell_people_to_write_lasts() -> None:
    """The guide's file and the sample of `dpcrowd init` are what networks begin with."""
    (text,) = re.findall(r"^```toml\n(\[network\].*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for network in (parse_network(text), parse_network(sample_network(3)), parse_network(sample_network(1))):
        assert schedule_warning(network, network.servers[0].name) is None
        assert forecast(network, network.servers[0].name) is None


@pytest.mark.slow
def test_the_doctor_tells_of_it(net: Path) -> None:
    """Whoever asks before the start has to be told, with what to write; and of a budget that lasts that it does."""
    (good,) = of(look(net), "schedule")
    assert (good.outcome, good.fix) == ("passed", "")
    assert good.text.startswith("34 of any 100 slots are sampled, each time with an equal part of ε; records travel to")
    with_scheme(net, 'name = "relay"\n')
    (good,) = of(look(net), "schedule")
    assert good.text.endswith(
        "records travel to every server (network.toml leaves samples and reach open: computed from it)."
    )
    with_scheme(net, 'name = "dpcrowd-w"\nsampling = "fixed"\ninterval = 1\n')
    (good,) = of(look(net), "schedule")
    assert good.text.startswith("every slot is sampled")
    adaptive(net)
    (warning,) = of(look(net), "schedule")
    assert warning.outcome == "note", "it is allowed, and a network of 0.1.0 has it"
    assert 'sampling = "fixed"' in warning.text


@pytest.mark.slow
def test_the_log_of_a_start_tells_of_it(net: Path) -> None:
    """Most operators never call the doctor."""
    adaptive(net)
    node = net / "server-1" / "node.toml"
    change(node, '"pretty"', '"json"')
    (net / "server-1" / "server-1.key").unlink()  # the start ends soon
    command = [sys.executable, "-m", "dpcrowd.cli.main", "node", "run", str(node)]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ended.returncode == LINKS
    lines = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines if "budget will not last" in line["message"]] == ["configuration"]


def adaptive(net: Path) -> None:
    with_scheme(net, 'name = "dpcrowd-plus"\n')


def with_scheme(net: Path, settings: str) -> None:
    text = (net / "network.toml").read_text(encoding="utf-8")
    scheme = re.findall(r"^\[scheme\]\n(?:.*\n)*?(?=process_var)", text, re.MULTILINE)[0]
    change(net / "network.toml", scheme, f"[scheme]\n{settings}")
