"""node.toml: paths, tokens, addresses, and what is wrong with them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NodeConfig, load_node, load_pair, parse_node, token_hash
from dpcrowd.node.config.samples import sample_node
from node_support_config import tables, toml

BASIC = """
server = "a"
network = "network.toml"
data = "data"
[keys]
key = "k"
certificate = "/etc/c"
ca = "../ca"
"""
TOKEN = "correct-horse-battery"


def refusal(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse_node(text)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("node.toml: ")


def test_defaults_are_safe() -> None:
    """An API that listens to the world or exact counters by default would leak."""
    node = parse_node(BASIC)
    assert node.listen.http_address == ("127.0.0.1", 8080)
    assert node.listen.transport == ("tls/0.0.0.0:7447",)
    assert node.tokens.rights_of(None) == node.tokens.rights_of("") == frozenset()
    assert not node.ingest.exact_counters
    assert node.ingest.accepts == "checkins"
    assert (node.ingest.capacity, node.ingest.max_body, node.ingest.future) == (1_000_000, 8 << 20, 2 * 10**9)
    assert (node.log.format, node.log.level) == ("json", "info")
    assert node.retention.releases == 90 * 86_400 * 10**9
    assert node.ledger.shared is None
    assert node.noise.sampler == "exact"


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service started elsewhere would make a second, empty ledger in its working folder: a refilled budget."""
    home = tmp_path / "node"
    home.mkdir()
    (home / "node.toml").write_text(BASIC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    node = load_node("node/node.toml")
    assert node.data == home / "data"
    assert node.keys.certificate == Path("/etc/c")
    assert node.keys.ca == tmp_path / "ca"
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("USERPROFILE", "/home/x")
    assert parse_node(BASIC.replace('"data"', '"~/data"')).data == Path("/home/x/data")
    assert node.data.is_absolute()
    assert load_node("node.toml").data == node.data


def test_a_pair_belongs_together(tmp_path: Path) -> None:
    """A node of a server that the network does not know could never be heard."""
    (tmp_path / "node.toml").write_text(BASIC, encoding="utf-8")
    (tmp_path / "network.toml").write_text(toml(tables()), encoding="utf-8")
    node, network = load_pair(tmp_path / "node.toml")
    assert network.server(node.server).name == "a"
    (tmp_path / "node.toml").write_text(BASIC.replace('"a"', '"bb"', 1), encoding="utf-8")
    with pytest.raises(BadInput, match=r"node\.toml: server: revision 1 of 'trial' has no server 'bb', only a, b, c\."):
        load_pair(tmp_path / "node.toml")


def test_tokens_give_their_own_right_only() -> None:
    """A check-in token that can also operate the node would be in the hands of every sensor."""
    hashed = hashlib.sha256(TOKEN.encode()).hexdigest()
    node = parse_node(
        BASIC + f'[tokens]\ncheckin = ["{"x" * 16}", "sha256:{hashed.upper()}"]\nadmin = ["{"y" * 16}"]\n'
    )
    assert node.tokens.rights_of(TOKEN) == {"checkin"}
    assert node.tokens.rights_of("x" * 16) == {"checkin"}
    assert node.tokens.rights_of("y" * 16) == {"admin"}
    assert node.tokens.rights_of("x" * 15) == frozenset()
    assert node.tokens.rights_of(f"sha256:{hashed}") == frozenset()  # the hash in the file opens nothing
    assert node.tokens.rights_of("\ud800") == frozenset()
    assert token_hash(TOKEN) == f"sha256:{hashed}"


def test_open_reading_opens_reading_only() -> None:
    """A word that is taken for a list of letters would make 'o' a token."""
    node = parse_node(BASIC + '[tokens]\nread = "open"\n')
    assert node.tokens.rights_of(None) == node.tokens.rights_of("o") == {"read"}


def test_no_plain_token_stays_anywhere() -> None:
    """Configurations are printed in logs and bug reports."""
    node = parse_node(BASIC + f'[tokens]\ncheckin = ["{TOKEN}"]\nread = ["{TOKEN}"]\n')
    assert TOKEN not in repr(node)


def test_a_token_that_no_header_carries_is_refused() -> None:
    """The client could not send it: the operator would see "unknown token" for ever."""
    for token in ("correct horse battery staple", "correct-hörse-battery-staple"):
        assert "without spaces" in refusal(BASIC + f'[tokens]\ncheckin = ["{token}"]\n')


@pytest.mark.parametrize(
    "tokens", ['["secret"]', '["sha256:secret"]', '"secret"', '["a long one with a \\t", 5]', '[["secret"]]']
)
@pytest.mark.parametrize("right", ["checkin", "read", "admin"])
def test_errors_never_show_a_token(tokens: str, right: str) -> None:
    """An error goes to a log; a token in it is a token lost."""
    line = refusal(BASIC + f"[tokens]\n{right} = {tokens}\n")
    assert line.startswith(f"tokens.{right}")
    assert "secret" not in line
    assert "long one" not in line


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('[listen]\nhttp = "8080"', "listen.http: given '8080'; allowed: HOST:PORT"),
        ('[listen]\nhttp = "x:99999"', "listen.http: given 'x:99999'; allowed: HOST:PORT"),
        ('[listen]\nhttp_key = "x"', "listen.http_certificate: missing; HTTPS needs both"),
        ('[listen]\ntransport = ["tls/x"]', "listen.transport[0]: given 'x'; allowed: HOST:PORT"),
        ("[listen]\ntransport = []", "listen.transport: given []; allowed: a list of at least one"),
        (
            '[log]\nlevel = "warn"',
            'given \'warn\'; allowed: "debug", "info", "warning" or "error". Did you mean \'warning\'?',
        ),
        ("[ingest]\ncapacity = 0", "ingest.capacity: given 0; allowed: 1 to 1000000000."),
        ('[ingest]\nmax_body = "2GiB"', "ingest.max_body: given 2GiB; allowed: 1KiB to 1GiB."),
        ('[ingest]\nmax_body = "many"', "ingest.max_body: given 'many'; allowed: a size"),
        ('[ingest]\nfuture = "2d"', "ingest.future: given 2d; allowed: 0s to 1d."),
        ("[ingest]\nexact_counters = 1", "ingest.exact_counters: given 1; allowed: true or false."),
        ('[retention]\nreleases = "1s"', "retention.releases: given 1s; allowed: 1h to 36500d."),
        ('[retention]\nreleases = "99999d"', "retention.releases: given '99999d'; allowed: a duration"),
        ('[ledger]\nshared = "data"', "ledger.shared: given this node's own data folder"),
        ('[ledger]\nshared = ""', "ledger.shared: given ''; allowed: the path of a folder."),
        ("[tokens]\ncheckins = []", "tokens: unknown setting 'checkins'. Did you mean 'checkin'?"),
        ('[ingest]\nlevel = "info"', "ingest: 'level' is not a setting of this table; it belongs in [log]."),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(more: str, expected: str) -> None:
    """The same clear line as for the public file."""
    assert expected in refusal(BASIC + more + "\n")


def test_a_missing_key_file_setting_is_named() -> None:
    """Without the path the operator would look for a wrong file instead of a missing line."""
    assert (
        refusal(BASIC.replace('ca = "../ca"', ""))
        == "keys.ca: missing; needed: the path of a file, relative to this one."
    )


def test_an_address_may_be_ipv6() -> None:
    """A split at the first colon would take '[' for the host."""
    node = parse_node(BASIC + '[listen]\nhttp = "[::1]:80"\n')
    assert node.listen.http_address == ("::1", 80)
    assert len(node.warnings()) == 1  # loopback: no word about TLS


def test_what_is_allowed_but_dangerous_is_warned_of() -> None:
    """Tokens in the clear and raw counts as metrics are choices that nobody should make by accident."""
    text = '[listen]\nhttp = "0.0.0.0:80"\n[tokens]\nread = "open"\n[ingest]\nexact_counters = true\n'
    clear, opened, nobody, raw = parse_node(BASIC + text).warnings()
    assert "without TLS" in clear
    assert "tokens.read is open" in opened
    assert "tokens.checkin is empty" in nobody
    assert "raw counts" in raw
    assert parse_node(sample_node("a", checkin=[token_hash(TOKEN)])).warnings() == ()


def test_no_noise_but_exact_noise_can_be_configured() -> None:
    """A file that could ask for the simulator's noise would void the promise; OpenDP's comes with its hazard."""
    basic = sample_node("a", checkin=[token_hash(TOKEN)])
    for sampler in ("seeded", "simulated", "none", ""):
        text = refusal(basic + f'[noise]\nsampler = "{sampler}"\n')
        assert text.startswith("noise.sampler: ")
        assert '"exact" or "opendp"' in text
    assert "allow_simulated_noise" in refusal(basic + "[noise]\nallow_simulated_noise = true\n")
    chosen = parse_node(basic + '[noise]\nsampler = "opendp"\n')
    assert chosen.noise.sampler == "opendp"
    (hazard,) = chosen.warnings()
    assert "noise.sampler is opendp" in hazard
    assert "repeats its noise" in hazard


def test_a_configuration_cannot_be_changed_by_mistake() -> None:
    """Everybody holds the same object."""
    node: NodeConfig = parse_node(BASIC)
    with pytest.raises(AttributeError):
        node.server = "b"  # type: ignore[misc]


def test_a_setting_of_the_first_version_is_taken_and_named(tmp_path: Path) -> None:
    """A node.toml of 0.1.0 must load; but counts that it was sent are refused now, which its operator has to know."""
    for value in ("true", "false"):
        node = parse_node(BASIC + f"\n[ingest]\ncounts = {value}\n")
        assert node.ingest.accepts == "checkins"
        assert any("ingest.counts has no effect" in warning for warning in node.warnings())
    assert not any("ingest.counts" in warning for warning in parse_node(BASIC).warnings())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('accepts = "both"', 'accepts: given \'both\'; allowed: "checkins" or "counts"'),
        ('journal_limit = "1KiB"', "journal_limit: given 1KiB; allowed: 1MiB to 1024GiB"),
        ('max_downtime = "2d"', "max_downtime: given 2d; allowed: 0s to 1d"),
        ("requests_per_second = -1", "requests_per_second: given -1; allowed: a number from 0 to 1000000"),
    ],
)
def test_limits_of_ingest_are_checked(line: str, text: str) -> None:
    """A limit that cannot be meant would show as people who are not counted."""
    with pytest.raises(BadInput, match=re.escape(text)):
        parse_node(BASIC + f"\n[ingest]\n{line}\n")
