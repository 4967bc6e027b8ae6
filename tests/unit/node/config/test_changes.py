"""What an operator reads of a revision: every setting that differs, old and new, and what a model asserts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.models.file import write_model
from dpcrowd.node.config import NetworkConfig, describe_changes, load_network, parse_network
from dpcrowd.node.config.revision import differing_settings
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.live.revisions import changes_text
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit

TEXT = sample_network(3)


def revised(**changes: Any) -> NetworkConfig:
    """Return the next revision, with other tables."""
    network = parse_network(TEXT)
    general = msgspec.structs.replace(network.general, revision=2, valid_from_slot=9)
    return msgspec.structs.replace(network, general=general, **changes)


def with_model(folder: Path, seed: int, source: str) -> NetworkConfig:
    regions = parse_network(TEXT).regions
    counts = np.random.default_rng(seed).poisson(50, (60, len(regions)))
    write_model(fit(counts_from_array(counts, regions=regions), source=source), folder / f"model-{seed}.toml")
    lines = [f'model = "model-{seed}.toml"' if one.startswith("process_var") else one for one in TEXT.splitlines()]
    path = folder / f"network-{seed}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_network(path)


@pytest.mark.parametrize(("setting", "value"), [("turnover", 0.25), ("samples", 3), ("lag", 9), ("groups", "auto")])
def test_each_setting_is_named_with_its_old_and_its_new_value(setting: str, value: object) -> None:
    """An operator who reloads a file would learn nothing but its digest."""
    relay = {
        "name": "relay",
        "observation": "binomial",
        "samples": 2,
        "reach": "all",
        "sampling": None,
        "interval": None,
    }
    network = parse_network(TEXT)
    method = msgspec.structs.replace(network.method, **relay)
    before = msgspec.structs.replace(network, method=method)
    after = revised(method=msgspec.structs.replace(method, **{setting: value}))
    old = getattr(method, setting)
    shown = "(not set)" if old is None else str(old)
    assert describe_changes(before, after) == [f"changed: scheme.{setting} {shown} -> {value}"]
    assert f"scheme.{setting}" in differing_settings(before, after)


def test_servers_links_and_times_are_named() -> None:
    """Shares and links decide what estimates mean, and a link is a neighbour that is believed."""
    before = parse_network(TEXT)
    first, *others = before.servers
    smaller = msgspec.structs.replace(first, share=first.share / 2)
    after = revised(servers=(smaller, *others), links=before.links[:-1])
    link = "-".join(sorted(before.links[-1].between))
    assert describe_changes(before, after) == [
        f"gone links: {link}",
        f"changed: share of {first.name} {first.share} -> {first.share / 2}",
    ]
    assert changes_text(before, revised()).startswith("nothing but its number changes. Calibration begins anew")


def test_a_model_is_named_with_what_its_users_assert(tmp_path: Path) -> None:
    """The promise contains the source: whoever takes the revision makes this assertion, and has to read it."""
    plain, old = parse_network(TEXT), with_model(tmp_path, 1, "the census of 2020")
    new = with_model(tmp_path, 2, "releases of last year")
    for before in (plain, old):
        (text,) = [part for part in describe_changes(before, new) if "model" in part]
        assert '"releases of last year"' in text
        assert "whoever takes this revision asserts" in text
    assert any("is no longer used" in part for part in describe_changes(old, plain))
    assert not describe_changes(old, old)


def test_shares_by_region_that_were_not_there_are_called_so() -> None:
    """`{}` is neither TOML nor what an operator would write."""
    before, after = parse_network(TEXT), revised()
    shares = dict.fromkeys(before.regions, before.servers[0].share)
    first = msgspec.structs.replace(after.servers[0], shares=shares)
    after = msgspec.structs.replace(after, servers=(first, *after.servers[1:]))
    (text,) = describe_changes(before, after)
    assert text.startswith(f"changed: shares of {first.name} (not set) -> {{")
