"""The promise after a revision has replaced a model: releases that were made with it are still in the window."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from dpcrowd.models.file import write_model
from dpcrowd.node.config import NetworkConfig, load_network, parse_network, promise_in
from dpcrowd.node.config.samples import sample_network
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit

TEXT = sample_network(3)
LENGTH = parse_network(TEXT).guarantee().length
SECOND, THIRD = 10, 20  # the first slots of the later revisions


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> NetworkConfig:
    """Return revision 1, with a model."""
    folder, regions = tmp_path_factory.mktemp("model"), parse_network(TEXT).regions
    counts = np.random.default_rng(0).poisson(50, (60, len(regions)))
    write_model(fit(counts_from_array(counts, regions=regions), source="the old census"), folder / "model.toml")
    lines = ['model = "model.toml"' if one.startswith("process_var") else one for one in TEXT.splitlines()]
    path: Path = folder / "network.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_network(path)


def revision(network: NetworkConfig, number: int, first: int) -> NetworkConfig:
    general = msgspec.structs.replace(network.general, revision=number, valid_from_slot=first)
    return msgspec.structs.replace(network, general=general)


def test_a_model_is_named_until_its_releases_have_left_the_window(model: NetworkConfig) -> None:
    """The operators would take an assertion back on which the promise about these releases still rests."""
    plain = parse_network(TEXT)
    chain = [model, revision(plain, 2, SECOND), revision(plain, 3, THIRD)]
    last = SECOND + LENGTH - 2
    for current in chain[1:]:
        text = promise_in(current, chain, last)
        assert text.startswith(current.promise())
        assert f"slots before {SECOND} that were made with an earlier model" in text
        assert text.count('"the old census"') == 1
        assert promise_in(current, chain, last + 1) == current.promise(), "the window has none of them any more"


def test_a_model_that_stays_and_one_that_comes_are_not_named_as_earlier_ones(model: NetworkConfig) -> None:
    """The promise would name one model twice, or one that nobody has used yet."""
    same = revision(model, 2, SECOND)
    assert promise_in(same, [model], SECOND) == same.promise()
    plain = parse_network(TEXT)
    assert promise_in(plain, [plain, same], SECOND - 1) == plain.promise()
