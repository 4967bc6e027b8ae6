"""Laws of the configuration: a digest of the meaning, links that hold when they say, one line for every mistake."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.node.config import digest, parse_network, parse_node
from dpcrowd.node.config.links import Links, TimedLink
from dpcrowd.node.config.samples import placeholder_key, quoted
from examples_support import examples
from node_support_config import changed, network_of, tables, toml

some = settings(max_examples=examples(60), deadline=None)
FULL = tables(4)
FULL["scheme"]["tuning"] = {"xi": 0.1, "tau1": 3}
FULL["link"] += [{"between": ["a", "d"], "from_slot": 3, "until_slot": 9}]
FULL["server"][0]["keys"].append(placeholder_key("new"))


def test_the_digest_of_a_fixed_file_stays() -> None:
    """Servers of two versions would refuse each other if the encoding changed by accident."""
    assert digest(network_of(FULL)).hex() == "1f6e5849af2720e9e040eb7c5524a546"


@some
@given(st.integers(0, 2**32))
def test_the_digest_is_of_the_meaning(seed: int) -> None:
    """Organisations edit the same file with different editors: layout must not separate them."""
    shuffle = random.Random(seed)
    plain = changed(FULL, "network.slot", shuffle.choice(["60s", 60, "1m", 60.0]))
    plain = changed(plain, "guarantee.epsilon", shuffle.choice(["1", 1, 1.0, "1.000"]))
    plain = changed(plain, "network.epoch", shuffle.choice(["2026-01-01T00:00:00Z", "2026-01-01T05:30:00+05:30"]))
    if shuffle.random() < 0.5:
        plain["network"]["valid_from_slot"] = 0
        plain["network"]["send_offset"] = "25ms"
        plain["scheme"]["accounting"] = "sound"
        plain["server"][1]["certificate_name"] = "b"
    for link in plain["link"]:
        shuffle.shuffle(link["between"])
    shuffle.shuffle(plain["link"])
    shuffle.shuffle(plain["server"][0]["keys"])
    assert digest(parse_network(toml(plain, shuffle))) == digest(network_of(FULL))


CHANGES: list[tuple[str, Any]] = [
    ("network.id", "other"),
    ("network.revision", 2),
    ("network.valid_from_slot", 1),
    ("network.epoch", "2026-01-01T00:00:00.000000001Z"),
    ("network.slot", "61s"),
    ("network.grace", "6s"),
    ("network.deadline", "11s"),
    ("network.send_offset", "26ms"),
    ("network.send_offset", 0),
    ("network.population", 1001),
    ("network.regions", ["region 1", "region 0", "region 2"]),
    ("guarantee.length", 101),
    ("guarantee.epsilon", "1.000000001"),
    ("guarantee.users", "roaming"),
    ("guarantee.servers_per_slot", 2),
    ("guarantee.regions_per_slot", 2),
    ("guarantee.correlation", 1.5),
    ("scheme.name", "dpcrowd-w"),
    ("scheme.process_var", 100.5),
    ("scheme.transition", 0.9),
    ("scheme.observation", "paper"),
    ("scheme.form", "matrix"),
    ("scheme.beta", 0.01),
    ("scheme.grouping", "none"),
    ("scheme.split", "even"),
    ("scheme.tuning.xi", 0.2),
    ("server.0.share", 0.19),
    ("server.0.endpoint", "tls/a.example:7448"),
    ("server.0.certificate_name", "other"),
    ("server.0.keys", [placeholder_key("a")]),
    ("server.0.name", "z"),
    ("link.3.until_slot", 10),
    ("link.3.from_slot", 4),
    ("link.3.between", ["a", "c"]),
    ("server", [FULL["server"][1], FULL["server"][0], *FULL["server"][2:]]),
]


def test_every_change_of_meaning_changes_the_digest() -> None:
    """Two servers that compute differently must not take each other's messages."""
    seen = {digest(network_of(FULL))}
    for path, value in CHANGES:
        plain = changed(FULL, path, value)
        if path == "server.0.name":
            plain["link"] = [
                {**link, "between": ["z" if n == "a" else n for n in link["between"]]} for link in plain["link"]
            ]
        seen.add(digest(network_of(plain)))
    assert len(seen) == len(CHANGES) + 1


pairs = st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda pair: pair[0] < pair[1])
spans = st.tuples(st.integers(0, 12), st.none() | st.integers(1, 8)).map(
    lambda span: (span[0], None if span[1] is None else span[0] + span[1])
)


@some
@given(st.dictionaries(pairs, spans, max_size=10), st.integers(0, 10), st.integers(0, 20), st.integers(1, 10))
def test_links_agree_with_looking_at_every_slot(
    links: dict[tuple[int, int], tuple[int, int | None]], start: int, first: int, length: int
) -> None:
    """The sweep over beginnings and ends, against a plain count; a wrong degree lets the filter diverge."""
    timed = Links(5, [TimedLink(*pair, *span) for pair, span in links.items()], start)

    def heard(server: int, slot: int) -> list[int]:
        holds = [pair for pair, (a, b) in links.items() if a <= slot and (b is None or slot < b)]
        return sorted(sum(pair) - server for pair in holds if server in pair)

    def most(slots: range) -> int:
        return max((len(heard(server, slot)) for server in range(5) for slot in slots), default=0)

    for slot in range(start, 30):
        for server in range(5):
            assert timed.neighbours(server, slot) == heard(server, slot)
    assert timed.max_degree() == most(range(start, 40))
    assert timed.max_degree(first, first + length) == most(range(max(first, start), first + length))
    assert timed.isolated() == [s for s in range(5) if not any(heard(s, slot) for slot in range(start, 40))]


PATHS = [
    f"{table}.{name}" if not isinstance(rows, list) else f"{table}.0.{name}"
    for table, rows in FULL.items()
    for name in (rows[0] if isinstance(rows, list) else rows)
] + ["network", "server", "link", "guarantee", "scheme", "scheme.beta", "scheme.transition", "server.0.nothing", "x"]
values = st.recursive(
    st.none().map(lambda _: ...)
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["1s", "matrix", "a", "b", "2026-01-01T00:00:00Z", "tls/a:1", "lockstep", "dpcrowd"]),
    lambda inner: (
        st.lists(inner.filter(lambda value: value is not ...), max_size=4)
        | st.dictionaries(
            st.sampled_from(["name", "share", "xi", "between"]), inner.filter(lambda v: v is not ...), max_size=3
        )
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(PATHS), values)
def test_whatever_is_in_the_file_it_loads_or_is_refused_in_one_line(path: str, value: Any) -> None:
    """A traceback for a typing error is the one thing that an operator must never see."""
    text = _inline(changed(FULL, path, value))
    line = refusal(lambda: (digest(parse_network(text, "n.toml")), parse_network(text).warnings()))
    assert line is None or (line.startswith("n.toml: ") and line.isprintable())


def refusal(load: Callable[[], object]) -> str | None:
    """The line of the refusal; None if it loads."""
    try:
        load()
    except BadInput as error:
        return str(error)
    return None


def _inline(plain: dict[str, Any]) -> str:
    """Everything as values in one line each: any mixture of types has a text."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, list):
            return f"[{', '.join(text(item) for item in value)}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{quoted(key)} = {text(item)}" for key, item in value.items()) + "}"
        return str(value)

    return "".join(f"{quoted(key)} = {text(value)}\n" for key, value in plain.items())


@pytest.mark.slow
@some
@given(st.text(max_size=80))
def test_any_text_is_refused_in_one_line(text: str) -> None:
    """Somebody will give a certificate, or yesterday's log, instead of the file."""
    for parse in (parse_network, parse_node):
        line = refusal(lambda parse=parse: parse(text, "file.toml"))  # type: ignore[misc]
        assert line is not None
        assert line.startswith("file.toml: ")
        assert line.isprintable()
