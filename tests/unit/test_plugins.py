"""Schemes, data sets and topologies of other packages: found, refused with the package's name, and out of the way."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow.parquet
import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput, BrokenPlugin
from dpcrowd.experiments.claims.slot_cost import measure_slot_cost
from dpcrowd.experiments.figures import ADDED, FIGURES, RELAY_TABLE, find_figures
from dpcrowd.plugins import find_plugin, make_scheme, package_of, plugin_digest, scheme_class
from dpcrowd.schemes.flooding import DUniform, Flooding
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.schemes.uniform import Uniform
from dpcrowd.sim.data import load
from dpcrowd.sim.simulate import simulate
from dpcrowd.testing import examine_scheme
from plugin_support import Install
from sim_support import NAMES, TINY, tiny_words

SOURCE = """
import numpy as np
import dpcrowd

class Lazy(dpcrowd.Uniform):
    name = "lazy"
    summary = ("alone", "every slot", "last value", "as good as it gets")

def market(slots=None):
    return np.arange(80).reshape(40, 2)[:slots]

def star(servers, density, rng):
    return np.zeros(servers - 1, dtype=int), np.arange(1, servers)

def ring(servers, density, rng):
    return dpcrowd.build_graph("ring", servers, rng)

def sad(*arguments):
    raise RuntimeError("no data today")

text = "text"
def few(servers, density, rng):
    return [0], [1]
"""


def install_extras(install: Install) -> None:
    install(
        "crowd-extras",
        SOURCE,
        schemes={"lazy": "crowd_extras:Lazy"},
        data={"market": "crowd_extras:market", "sad": "crowd_extras:sad"},
        topologies={"star": "crowd_extras:star", "circle": "crowd_extras:ring", "few": "crowd_extras:few"},
    )


@pytest.mark.slow
def test_all_three_are_simulated_by_their_names(install: Install) -> None:
    """The whole point: one package brings a scheme, data and a network, and no line of dpcrowd changes."""
    install_extras(install)
    settings = {**TINY, "slots": 15, "density": None, "window": 5}
    result = simulate("lazy,uniform", "market", graph="star", **settings)
    assert list(result.records) == ["lazy", "uniform"]
    np.testing.assert_array_equal(result["lazy"].are, result["uniform"].are)
    assert any("'market' comes from the package crowd-extras" in note for note in result.notes)
    by_reference = simulate("crowd_extras:Lazy", "crowd_extras:market", graph="crowd_extras:star", **settings)
    np.testing.assert_array_equal(by_reference["lazy"].are, result["lazy"].are)


def test_they_are_listed(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Users choose from `dpcrowd schemes` and `dpcrowd data`; the claim is the package's, never dpcrowd's."""
    install_extras(install)
    assert main(["schemes", "--json"]) == 0
    *own, lazy = json.loads(capsys.readouterr().out)["schemes"]
    assert len(own) == len(NAMES) + 1, "and past"
    assert (lazy["scheme"], lazy["guarantee"], lazy["claimed_by"]) == ("lazy", "window", "crowd-extras")
    assert main(["schemes"]) == 0
    assert "window, claimed by crowd-extras" in capsys.readouterr().out
    assert main(["data", "--json"]) == 0
    out, err = capsys.readouterr()
    market = json.loads(out)["data"][-1]
    assert (market["name"], market["slots"], market["regions"]) == ("market", 40, 2)
    assert err.startswith("problem: the data set 'sad' of the package crowd-extras cannot be used: ")
    assert main(["data", "market"]) == 0
    assert capsys.readouterr().out.startswith("market comes from the package crowd-extras, which is installed. Use it ")


def test_a_data_set_takes_the_usual_options(install: Install) -> None:
    """`--slots`, `--regions` and `--process-var` work for files; nobody should have to look up where they do not."""
    install_extras(install)
    data = load("market", slots=10, regions=["region 1"], process_var=7.0)
    assert (data.slots, data.regions, data.model.process_var.tolist()) == (10, ("region 1",), [7.0])
    assert data.truth(np.random.default_rng(0))[:, 0].tolist() == list(range(1, 20, 2))
    with pytest.raises(
        BadInput, match="a slot length, rounding, gaps or a header were given, but 'market' is not a file"
    ):
        load("market", slot_length="1h")
    with pytest.raises(BadInput, match=r"unknown data set 'markt'\. Did you mean 'market'\?"):
        load("markt")


BROKEN = [
    ("nowhere:Lazy", "nowhere:Lazy cannot be imported \\(ModuleNotFoundError"),
    ("crowd_extras:Missing", "crowd_extras:Missing cannot be imported \\(AttributeError"),
    ("crowd_extras:text", "crowd_extras:text is not a subclass of dpcrowd.Scheme"),
    ("dpcrowd.schemes.base:Scheme", "does not implement fuse, message, perturb, plan, release, start"),
    ("crowd_extras:Lazy", "crowd_extras:Lazy is named 'lazy'; the entry point must have the same name"),
]


@pytest.mark.parametrize(("target", "reason"), BROKEN)
def test_a_broken_scheme_names_its_package_and_leaves_the_rest_working(
    target: str, reason: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback from somebody else's package, or a `dpcrowd` that no longer starts, tells nobody whom to ask."""
    install("crowd-extras", SOURCE, schemes={"odd": target, "lazy": "crowd_extras:Lazy"})
    with pytest.raises(BrokenPlugin, match=reason) as refused:
        make_scheme("odd")
    assert refused.value.package == "crowd-extras"
    assert str(refused.value).startswith("the scheme 'odd' of the package crowd-extras cannot be used: ")
    assert main(["schemes", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [row["scheme"] for row in json.loads(out)["schemes"]] == [*NAMES, "past", "lazy"]
    assert err.count("\n") == 1
    assert main(tiny_words("uniform", "--json")) == 0
    capsys.readouterr()
    assert main(tiny_words("odd")) == 2
    assert "of the package crowd-extras cannot be used" in capsys.readouterr().err


RELAYS = """
import dpcrowd

class Shouting(dpcrowd.Relay):
    name = "shouting"

class Pretending(dpcrowd.Uniform):
    name = "pretending"
    reach = "relay"
"""


@pytest.mark.slow
def test_records_travel_for_subclasses_of_relay_and_for_nobody_else(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheme without records to pass on would fail in the middle of a simulation, with an error about its insides."""
    # Whether relay keeps its contract is tested elsewhere, and takes ten seconds.
    monkeypatch.setattr("dpcrowd.sim.notes.examine_scheme", lambda _: examine_scheme("uniform"))
    install(
        "crowd-relays", RELAYS, schemes={name: f"crowd_relays:{name.title()}" for name in ("shouting", "pretending")}
    )
    settings = {**TINY, "slots": 15, "window": 5}
    assert np.isfinite(simulate("shouting", "linear", **settings)["shouting"].are).all()
    with pytest.raises(BrokenPlugin, match=r"subclasses of dpcrowd\.Relay"):
        scheme_class("pretending")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"data": "sad"}, "the data set 'sad' of the package crowd-extras .* failed \\(RuntimeError: no data today\\)"),
        ({"data": "crowd_extras:text"}, "the package crowd_extras cannot be used: crowd_extras:text is str"),
        ({"data": "crowd_extras:dpcrowd.unknown"}, "cannot be imported \\(AttributeError"),
        ({"graph": "few"}, "the topology 'few' of the package crowd-extras .* neither a dpcrowd.Graph nor links"),
        ({"graph": "crowd_extras:sad"}, "failed \\(RuntimeError: no data today\\)"),
        ({"graph": "strar"}, "unknown graph 'strar'. Did you mean 'star'?"),
    ],
)
def test_broken_data_sets_and_topologies_name_their_package(
    settings: dict[str, str], reason: str, install: Install
) -> None:
    """What another package returns is checked before a simulation of hours begins."""
    install_extras(install)
    with pytest.raises(BadInput if "graph 'str" in reason else BrokenPlugin, match=reason):
        simulate(
            "uniform", settings.get("data", "linear"), **{**TINY, "graph": settings.get("graph", "ring")}, window=5
        )


def test_own_names_come_first(install: Install) -> None:
    """A package must not be able to put its own scheme in the place of dpcrowd's."""
    install("crowd-extras", SOURCE, schemes={"dpcrowd": "crowd_extras:Lazy"}, data={"linear": "crowd_extras:market"})
    assert scheme_class("dpcrowd") is SCHEMES["dpcrowd"]
    assert load("linear").slots == 1000


class Mine(Uniform):
    """A scheme that a user writes in a script."""

    name = "mine"


def test_whose_scheme_it_is(install: Install) -> None:
    """Whoever answers for a promise is named with it; a subclass of ours, or a wrapper around it, is not ours."""
    install_extras(install)
    lazy = make_scheme("lazy")
    assert package_of(lazy) == package_of(Flooding(lazy)) == "crowd-extras"
    assert package_of(Mine()) == __name__.partition(".")[0]
    assert all(package_of(make_scheme(name)) is None for name in NAMES)
    assert package_of(Flooding(make_scheme("uniform"))) is None
    assert package_of(Flooding) is None


@pytest.mark.parametrize("name", ["uniform", "duniform"])
def test_a_replaced_method_makes_it_somebody_elses(name: str) -> None:
    """One line of a script replaces the noise of one of our schemes; its promise used to be printed as ours."""

    def publish(*arguments: object) -> None:
        """Release the counts themselves."""

    here = __name__.partition(".")[0]
    scheme = make_scheme(name)
    scheme.perturb = publish  # type: ignore[assignment, method-assign]
    assert package_of(scheme) == here
    flooded = make_scheme("duniform")
    assert isinstance(flooded, Flooding)
    flooded.inner.perturb = publish  # type: ignore[assignment, method-assign]
    assert package_of(flooded) == here
    assert package_of(DUniform(Mine())) == here
    publish.__module__ = "dpcrowd.schemes.uniform"
    assert package_of(scheme) == "an unknown package"


@pytest.mark.parametrize("module", ["dpcrowd.schemes.uniform", "dpcrowd", "DPCrowd", None])
def test_nobody_claims_in_our_name(module: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class can say that it was defined in dpcrowd: "claimed by dpcrowd" would be read as our own word."""
    monkeypatch.setattr(Mine, "__module__", module)
    assert package_of(Mine()) == package_of(Flooding(Mine())) == "an unknown package"


def test_nobody_registers_in_our_name(install: Install) -> None:
    """The name of a distribution is what its author writes into a file."""
    install("dp-crowd", SOURCE, schemes={"lazy": "dp_crowd:Lazy"})
    assert package_of(scheme_class("lazy")) == "an unknown package"


def test_what_is_no_plugin_is_none() -> None:
    """A path with a colon, or a misspelt name, must reach the error that suggests the right one."""
    for name in ("C:\\data", "a:b:c", "median", ""):
        assert find_plugin("data set", name) is None


def test_the_digest_follows_the_source(install: Install, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Results on disk must not be taken for those of a changed plug-in."""
    install_extras(install)
    before = plugin_digest(scheme_class("lazy"))
    import crowd_extras  # type: ignore[import-not-found]

    with open(crowd_extras.__file__, "a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert plugin_digest(scheme_class("lazy")) != before


@pytest.mark.slow
def test_they_are_compared_with_the_paper_in_a_report(
    install: Install, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dpcrowd reproduce --scheme ...` puts somebody's scheme beside the paper's; the curve says whose claim it is."""
    install_extras(install)
    out = tmp_path_factory.mktemp("report")
    words = ["reproduce", "plugins", "--quick", "--runs", "2", "--jobs", "1", "--out", str(out)]
    words += ["--scheme", "lazy", "--data", "crowd_extras:market", "--graph", "star"]
    monkeypatch.setattr("dpcrowd.experiments.points.plan.RunPlan.servers", 6)
    monkeypatch.setattr("dpcrowd.experiments.draw.canvas._DPI", 40)
    monkeypatch.setattr("dpcrowd.experiments.reproduce.measure_slot_cost", partial(measure_slot_cost, 5))
    assert main(words) == 0
    assert "lazy" in (out / "figure10-plugins.svg").read_text(encoding="utf-8")
    table = pyarrow.parquet.read_table(out / "figure10-plugins.parquet")
    assert table.column_names[-1] == "claimed_by"
    claims = dict(zip(table["scheme"].to_pylist(), table["claimed_by"].to_pylist(), strict=True))
    assert {scheme for scheme, package in claims.items() if package == "crowd-extras"} == {"lazy"}
    assert claims["dpcrowd"] is None
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "--scheme lazy --data crowd_extras:market --graph star" in page


def test_what_is_added_is_drawn_whatever_else_is() -> None:
    """`reproduce 4 --scheme NAME` ignored the scheme, and its user looked for it in figure 4."""
    assert [figure.number for figure in find_figures(("4",), added=True)] == [4, 10]
    assert [figure.number for figure in find_figures((RELAY_TABLE,), added=True)] == [10]
    assert [figure.number for figure in find_figures(("plugins", "10"), added=True)] == [10]


def test_the_help_of_reproduce_names_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """The list ended at 9; and figure 10 is refused with its reason if nothing was added."""
    assert main(["reproduce", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for figure in (*FIGURES, ADDED):
        assert f"{figure.number} {figure.name}" in text
    assert main(["reproduce", "plugins", "--quick"]) == 2
    assert "figure 10 (plugins) compares schemes, data sets or a topology" in capsys.readouterr().err
