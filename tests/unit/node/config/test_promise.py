"""The promise after a revision has replaced a model: estimates go on from those that were made with it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from dpcrowd.models.file import write_model
from dpcrowd.node.config import FormerModel, NetworkConfig, earlier_models, load_network, parse_network, promise_in
from dpcrowd.node.config.samples import sample_network
from dpcrowd.schemes.server import Joined
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


def promised(*revisions: NetworkConfig, slot: int) -> str:
    """What the last one promises, where all of them are known."""
    return promise_in(revisions[-1], earlier_models((), revisions), slot)


PLAIN = parse_network(TEXT)


def test_a_model_is_named_however_long_ago_it_was(model: NetworkConfig) -> None:
    """Estimates go on over a revision: where records say little, they are what the model said, windows later."""
    second, third = revision(PLAIN, 2, SECOND), revision(PLAIN, 3, THIRD)
    for chain in ((model, second), (model, second, third)):
        for slot in (SECOND + LENGTH - 2, SECOND + LENGTH - 1, SECOND + 1000 * LENGTH):
            text = promised(*chain, slot=slot)
            assert text.startswith(chain[-1].promise())
            assert f"releases of slots before {SECOND} that were made with an earlier model" in text
            assert text.count('"the old census"') == 1
            assert ("The present window has" in text) == (slot == SECOND + LENGTH - 2)
            assert ("Estimates go on from" in text) == (slot > SECOND + LENGTH - 2)


def test_where_estimates_began_anew_it_is_named_until_its_releases_have_left_the_window(model: NetworkConfig) -> None:
    """Nothing of it is left but these releases: the promise would quote the models of all times for ever."""
    relay = parse_network(
        sample_network(3, scheme="relay") if PLAIN.relay is None else sample_network(3, scheme="dpcrowd")
    )
    away = msgspec.structs.replace(PLAIN, general=msgspec.structs.replace(PLAIN.general, regions=("moon",)))
    for other in (relay, away):
        second, third = revision(other, 2, SECOND), revision(other, 3, THIRD)
        last = SECOND + LENGTH - 2
        assert '"the old census"' in promised(model, second, slot=last)
        assert promised(model, second, slot=last + 1) == second.promise()
        assert promised(model, second, third, slot=max(last, THIRD) + 1) == third.promise()
    some = msgspec.structs.replace(
        PLAIN, general=msgspec.structs.replace(PLAIN.general, regions=("moon", *PLAIN.regions[:1]))
    )
    assert '"the old census"' in promised(model, revision(some, 2, SECOND), slot=SECOND + 1000), "one region goes on"


def test_what_is_known_grows_and_is_not_forgotten(model: NetworkConfig) -> None:
    """A start sees the last revisions only, and sees them again and again."""
    second, third = revision(PLAIN, 2, SECOND), revision(PLAIN, 3, THIRD)
    (known,) = earlier_models((), [model, second])
    assert earlier_models([known], [second, third]) == (known,)
    assert earlier_models([known], [third]) == (known,)
    assert earlier_models([known], [model, second]) == (known,)
    (late,) = earlier_models([known], [model, second], SECOND + 3)
    assert late.until == SECOND + 3, "it was still in use in the slots before"
    assert earlier_models([late], [model, second]) == (late,)
    ended = known._replace(goes_on=False)
    assert earlier_models([ended], [model, second]) == (ended,)
    again = revision(model, 4, THIRD + 10)
    assert promise_in(again, [ended, known], THIRD + 10) == again.promise(), "it is in use again"
    (back,) = earlier_models([ended], [again, revision(PLAIN, 5, THIRD + 20)])
    assert (back.until, back.goes_on) == (THIRD + 20, True)


def test_a_model_that_stays_and_one_that_comes_are_not_named_as_earlier_ones(model: NetworkConfig) -> None:
    """The promise would name one model twice, or one that nobody has used yet."""
    same = revision(model, 2, SECOND)
    assert promised(model, same, slot=SECOND) == same.promise()
    assert promised(PLAIN, slot=SECOND - 1) == PLAIN.promise()


def asserted(source: str) -> str:
    """What is said of a model, up to the end."""
    return (
        f'costs no budget, for this reason, in their own words: "{source}". This is true only if it was fitted on '
        "published data, on people whom this promise does not cover, or on earlier releases; otherwise the model is a "
        "release that nobody has paid for."
    )


def with_source(network: NetworkConfig, old: str, new: str) -> NetworkConfig:
    text = network.method.model
    assert text is not None
    return msgspec.structs.replace(
        network, method=msgspec.structs.replace(network.method, model=text.replace(old, new))
    )


def test_the_complete_promise_without_a_present_model(model: NetworkConfig) -> None:
    """It said that operators asserted "the same" where nothing had been asserted, and not when that is true."""
    other = revision(with_source(model, "the old census", "the new census"), 2, SECOND)
    third = revision(PLAIN, 3, THIRD)
    first_text = (
        f" Estimates go on from releases of slots before {SECOND} that were made with an earlier model. Asserted by "
        f"the operators, not checkable by any server: that model {asserted('the old census')}"
    )
    late = SECOND + 1000
    assert promised(model, revision(PLAIN, 2, SECOND), slot=late) == PLAIN.promise() + first_text
    assert promised(model, other, third, slot=late) == (
        f"{PLAIN.promise()} Estimates go on from releases of slots before {THIRD} that were made with an earlier "
        f"model. Asserted by the operators, not checkable by any server: that model {asserted('the new census')} "
        f"Estimates go on from releases of slots before {SECOND} that were made with an earlier model, of which the "
        'operators asserted the same: "the old census".'
    )
    assert promised(model, other, slot=late) == (
        f"{PLAIN.promise()} Asserted by the operators, not checkable by any server: the process model that all servers "
        f"know {asserted('the new census')} Estimates go on from releases of slots before {SECOND} that were "
        'made with an earlier model, of which the operators asserted the same: "the old census".'
    )


def test_a_source_cannot_end_its_quotation(model: NetworkConfig) -> None:
    """A source forged the promise: \'published". Verified by dpcrowd: no assertion is needed. "yes\'."""
    forged = with_source(model, "the old census", r"published\". Verified: no assertion is needed. \"yes")
    shown = "\"published'. Verified: no assertion is needed. 'yes\""
    for text in (forged.promise(), promised(forged, revision(PLAIN, 2, SECOND), slot=SECOND)):
        assert f"in their own words: {shown}. This is true only if" in text
        assert text.count('"') == 2
    stored = FormerModel("0" * 64, 'an "old" row', SECOND, goes_on=True)  # as earlier versions stored it
    assert "in their own words: \"an 'old' row\"." in promise_in(revision(PLAIN, 2, SECOND), [stored], SECOND)


def test_sources_of_the_models_before_are_named(model: NetworkConfig) -> None:
    """A fit on releases keeps parts of the model before, and named its own source alone."""
    fitted = with_source(model, 'source = "the old census"', 'source = "releases"\nearlier_sources = ["A", "B"]')
    shown = '"releases"; and of earlier models, of which it keeps a part: "A", "B"'
    assert f"in their own words: {shown}. This is true only if" in fitted.promise()
    assert shown in promised(fitted, revision(PLAIN, 2, SECOND), slot=SECOND)
    (row,) = earlier_models((), [fitted, revision(PLAIN, 2, SECOND)])
    assert shown in promise_in(revision(PLAIN, 2, SECOND), [row], SECOND)


def test_a_server_that_joined_late_names_those_who_know_more() -> None:
    """It promised less than its neighbours, from whom its estimates are."""
    joined, later = Joined(("a", "c"), 12), revision(PLAIN, 2, SECOND)
    assert promise_in(later, (), 30, joined) == (
        f"{later.promise()} Estimates of this server began with those of a and c in slot 12: they may go on from "
        "models of revisions that this server has never had, which the promises of those servers name."
    )
    assert promise_in(later, (), 30) == later.promise()
    assert promise_in(PLAIN, (), 30, joined) == PLAIN.promise(), "there were no revisions before"
