"""Samples load, schemas accept what loads, and the reference page names every setting."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest, parse_network, parse_node, token_hash
from dpcrowd.node.config.samples import placeholder_key, sample_names, sample_network, sample_node
from dpcrowd.node.config.schema import TUNING, network_schema, node_schema, settings
from dpcrowd.schemes.tuning import Tuning
from node_support_config import changed, tables
from project_support import ROOT

PAGE = ROOT / "docs" / "configuration.md"


@pytest.mark.parametrize("servers", [1, 2, 3, 6])
@pytest.mark.parametrize("advanced", [False, True])
def test_sample_networks_load(servers: int, advanced: bool) -> None:
    """The first thing that a new operator sees has to work."""
    network = parse_network(sample_network(servers, advanced=advanced))
    assert [server.name for server in network.servers] == list(sample_names(servers))
    assert network.max_degree() == min(servers - 1, 2)
    assert sum(server.share for server in network.servers) <= 1
    assert len(network.warnings()) == (servers == 1)


def test_samples_take_what_init_gives_them() -> None:
    """Values that are lost would leave placeholders in a network that was set up with real keys."""
    key = placeholder_key("real")
    text = sample_network(
        ["x", "y"],
        network_id="town",
        slot="1s",
        grace="100ms",
        deadline="500ms",
        regions=['a "b"', "c\\d", "e  # f"],
        kind="finite",
        length=10,
        epsilon="0.5",
        scheme="dpcrowd",
        process_var=7,
        keys={"x": key},
        endpoints={"y": "tls/y.example:1"},
    )
    network = parse_network(text)
    assert network.regions == ('a "b"', "c\\d", "e  # f")
    assert network.server("x").keys == (key,)
    assert network.server("y").endpoint == "tls/y.example:1"
    assert (network.id, network.guarantee().total, network.method.process_var) == ("town", 5 * 10**8, 7)
    assert text.count("placeholder") == 1
    with pytest.raises(BadInput, match="1 to 1000 servers"):
        sample_network(0)


def test_a_sample_is_open_to_nobody_unless_it_is_said() -> None:
    """An operator who starts from a sample would otherwise show the estimates to whoever reaches the API."""
    hashed = token_hash("a token that may read")
    assert parse_node(sample_node("a")).tokens.rights_of(None) == frozenset()
    assert parse_node(sample_node("a", read=[hashed])).tokens.rights_of(None) == frozenset()
    assert parse_node(sample_node("a", read=[hashed])).tokens.rights_of("a token that may read") == {"read"}
    assert parse_node(sample_node("a", read="open")).tokens.rights_of(None) == {"read"}


def _uncommented(text: str) -> str:
    """The advanced sample with every setting that is a comment in force."""
    return re.sub(r"^# (?=[a-z_]+ = |\[)", "", text, flags=re.MULTILINE)


def test_the_advanced_sample_of_a_node_shows_every_setting_with_its_default() -> None:
    """A comment with a wrong name or default would mislead whoever takes the sign away."""
    text = _uncommented(sample_node("a", advanced=True))
    node = parse_node(text)
    plain = parse_node(sample_node("a"))
    assert _leaves(tomllib.loads(text)) == set(settings(NodeConfig)) - {"ingest.counts"}, "which is of 0.1"
    assert node.ingest.max_downtime == 6_000_000_000, "the default depends on the slot: here on one of a minute"
    assert msgspec.structs.replace(node.ingest, max_downtime=None) == plain.ingest
    assert (node.noise, node.retention) == (plain.noise, plain.retention)


def test_the_advanced_sample_of_a_network_shows_every_setting_with_its_default() -> None:
    """As for the node; what belongs to single tables or to other schemes is taken out to load it."""
    advanced = sample_network(3, advanced=True)
    for name in settings(NetworkConfig):
        last = name.rsplit(".", 1)[-1]
        assert re.search(rf"^(# )?{last} = ", advanced, flags=re.MULTILINE), f"the advanced sample lacks {name}"
    omitted = "beta model learn samples reach lag guard groups turnover share_width meetings grouping split keep keys"
    omitted += " certificate_name from_slot until_slot shares"
    others = rf"^# (?:{'|'.join(omitted.split())}) = .*\n"
    text = _uncommented(re.sub(others, "", advanced, flags=re.MULTILINE))
    assert "tau1 = 30" in text
    network, plain = parse_network(text), parse_network(sample_network(3))
    assert network.method.tuning == Tuning()
    same = {"blocks"}
    for name in network.method.__struct_fields__:
        assert name in same or getattr(network.method, name) == getattr(plain.method, name), name
    assert (network.general, network.guarantee_section) == (plain.general, plain.guarantee_section)


def test_basic_and_advanced_sample_mean_the_same() -> None:
    """A digest that differs would separate two organisations that started from different samples."""
    assert digest(parse_network(sample_network(4))) == digest(parse_network(sample_network(4, advanced=True)))


def test_a_sample_states_the_turnover_where_users_may_stay() -> None:
    """Filters that take users for new in every slot have intervals that are too narrow where they stay."""
    for text in (sample_network(3, scheme=name, advanced=more) for name in ("relay", "dpcrowd-w") for more in (0, 1)):
        assert "\nturnover = 0.05  " in text
        assert "1 where the crowd is new in every slot" in text
        assert parse_network(text).setting("server-1").turnover == 0.05
    for other in ({"users": "roaming"}, {"observation": "paper"}):
        assert "turnover" not in sample_network(3, scheme="relay", samples=4, **other)
        assert "\n# turnover = 1.0  " in sample_network(3, scheme="relay", samples=4, advanced=True, **other)
    assert "\nturnover = 0.2  " in sample_network(3, scheme="relay", samples=4, turnover=0.2)


def _leaves(raw: Any, path: str = "") -> set[str]:
    found = set()
    for key, value in raw.items():
        here = f"{path}.{key}" if path else key
        found |= _leaves(value, here) if isinstance(value, dict) else {here}
    return found


def test_schemas_accept_what_loads() -> None:
    """An editor that underlines a correct file teaches people to ignore it."""
    for schema, text in (
        (network_schema(), sample_network(3)),
        (node_schema(), _uncommented(sample_node("a", advanced=True))),
    ):
        Draft202012Validator.check_schema(schema)
        assert list(Draft202012Validator(schema).iter_errors(tomllib.loads(text))) == []
    assert not list(Draft202012Validator(network_schema()).iter_errors(changed(tables(), "scheme.tuning.xi", 1)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("network.revision", "1"),
        ("network.slot", "1 week"),
        ("server.0.share", 1.5),
        ("server.0.shar", 1),
        ("scheme.tuning.zeta", 1),
        ("guarantee", ...),
    ],
)
def test_schemas_refuse_what_does_not_load(path: str, value: Any) -> None:
    """A schema that allows everything is of no use to an editor."""
    assert list(Draft202012Validator(network_schema()).iter_errors(changed(tables(), path, value)))


def test_schemas_describe_every_setting_and_show_defaults() -> None:
    """The description is what an editor shows under the cursor."""
    for kind, schema in ((NetworkConfig, network_schema()), (NodeConfig, node_schema())):
        assert all(settings(kind).values()), settings(kind)
        for definition in [schema, *schema["$defs"].values()]:
            assert definition["description"]
            for name, entry in definition["properties"].items():
                assert entry["description"], name
                assert entry.get("default", "x") is not None, "TOML has no null"
    ingest = node_schema()["$defs"]["IngestSection"]["properties"]
    assert (ingest["max_body"]["default"], ingest["future"]["default"]) == ("8MiB", "2s")
    assert set(TUNING) == set(Tuning.__dataclass_fields__)


def test_the_reference_page_names_every_setting_in_its_table() -> None:
    """A setting without a line in the reference does not exist for an operator."""
    page = PAGE.read_text(encoding="utf-8")
    network, node = page.split("## network.toml")[1].split("## node.toml")
    for text, kind in ((network, NetworkConfig), (node, NodeConfig)):
        parts = re.split(r"^### ", text, flags=re.MULTILINE)
        tables_of = {part.split("\n")[0].strip("[] "): part for part in parts[1:]} | {"": parts[0]}
        for path in settings(kind):
            table, _, name = path.replace("[]", "").rpartition(".")
            rows = re.findall(r"^\| (`[^|]*) \|", tables_of[table], flags=re.MULTILINE)
            assert any(f"`{name}`" in row for row in rows), f"docs/configuration.md lacks {path}"


def test_the_reference_page_names_no_setting_that_is_gone() -> None:
    """A setting that only the page has costs a reader an hour."""
    page = PAGE.read_text(encoding="utf-8")
    shown = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", page, flags=re.MULTILINE)
        for name in re.findall(r"`([a-z0-9_]+)`", row)
    }
    known = {path.rsplit(".", 1)[-1] for kind in (NetworkConfig, NodeConfig) for path in settings(kind)}
    assert shown == known
