"""Wrong settings of network.toml: one line with the file, the setting, what was given and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config.samples import placeholder_key
from node_support_config import changed, network_of, tables


def refusal(plain: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        network_of(plain)
    line = str(caught.value)
    assert line.startswith("network.toml: ")
    assert "\n" not in line
    assert "`" not in line.replace("`dpcrowd keys show`", "")  # msgspec's own texts have types in backticks
    return line.removeprefix("network.toml: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("server.2.share", 1.5, "server[2].share (of 'c'): given 1.5; allowed: above 0 and at most 1."),
        ("server.2.share", 0, "server[2].share (of 'c'): given 0; allowed: above 0 and at most 1."),
        ("server.2.share", float("nan"), "server[2].share (of 'c'): given nan; allowed: above 0"),
        ("server.0.share", "x", "server[0].share (of 'a'): given 'x'; allowed: above 0"),
        (
            "server.0.share",
            {"north": 0.5},
            "server[0].share (of 'a'): given a table; allowed: above 0 and at most 1. A table belongs in 'shares', "
            "beside 'share'.",
        ),
        ("server.0.share", ..., "server[0].share (of 'a'): missing; needed: above 0"),
        ("server.0.shar", 1, "server[0] (of 'a'): unknown setting 'shar'. Did you mean 'share'? Allowed: cert"),
        ("server.0.name", "A", "server[0].name (of 'A'): given 'A'; allowed: 1 to 63 of a-z"),
        ("server.0.name", "a\n", "server[0].name: given 'a\\n'; allowed: 1 to 63 of a-z"),
        ("server.0.name", "b", "server[1].name (of 'b'): given 'b', as server[0]; each server needs its own."),
        ("server.0.endpoint", "tcp/x:1", 'allowed: "tls/HOST:PORT". Servers identify each other by their certificates'),
        ("server.0.endpoint", "tls/x:0", "server[0].endpoint (of 'a'): given 'x:0'; allowed: HOST:PORT with a port"),
        (
            "server.0.endpoint",
            "tls/b.example:7447",
            "server[1].endpoint (of 'b'): given 'tls/b.example:7447', as server[0]",
        ),
        ("server.0.keys", [], "server[0].keys (of 'a'): given []; allowed: a list of one or two"),
        ("server.0.keys", ["rsa:AAAA"], "server[0].keys[0] (of 'a'): the public key 'rsa:AAAA' does not begin with"),
        ("server.0.keys", ["ed25519:AAAA"], "server[0].keys[0] (of 'a'): the public key 'ed25519:AAAA' has 3 bytes"),
        (
            "server.0.keys",
            ["ed25519:" + "A" * 43 + "="],
            "is one for which anybody can forge signatures; 'dpcrowd keys show",
        ),
        ("server.0.keys", [placeholder_key("b")], "server[1].keys (of 'b'): given the key of server[0]"),
        ("server.0.keys", [placeholder_key("x")] * 2, "server[0].keys (of 'a'): the same key is given twice"),
        ("server.1.certificate_name", "a", "server[1].certificate_name (of 'b'): given 'a', as server[0]"),
        ("server", [], "server: given []; allowed: at least one [[server]] table."),
        ("link.0.between", ["a", "a"], "link[0].between: 'a' is linked to itself"),
        ("link.0.between", ["a", "bb"], "link[0].between[1]: unknown server 'bb'. Did you mean 'b'?"),
        ("link.0.between", ["a"], "link[0].between: given ['a']; allowed: the names of two servers"),
        ("link.1.between", ["b", "a"], "link[1]: joins the same two servers as link[0] in the same slots"),
        ("link.0.until_slot", 0, "link[0].until_slot: given 0; allowed: a slot above 0"),
        ("link.0.from_slot", -1, "link[0].from_slot: given -1; allowed: a slot"),
        (
            "link",
            [{"between": ["a", "b"]}],
            "server[2] (of 'c'): 'c' has no neighbours; add a [[link]] for it, or remove the server.",
        ),
        ("network.slot", "2d", "network.slot: given 2d; allowed: 1s to 1d."),
        ("network.slot", "999ms", "network.slot: given 999ms; allowed: 1s to 1d."),
        ("network.slot", "1 week", "network.slot: given '1 week'; allowed: 1s to 1d: a duration such as"),
        ("network.slot", True, "network.slot: given true; allowed: 1s to 1d"),
        ("scheme.groups", True, 'scheme.groups: given true; allowed: "auto" or "off"'),
        ("network.grace", "1m", "network.grace: given 1m; allowed: 0s to below the slot of 1m."),
        ("network.deadline", "56s", "network.deadline: given 56s; allowed: above 0s and at most 55s"),
        ("network.deadline", 0, "network.deadline: given 0s; allowed: above 0s"),
        (
            "network.send_offset",
            "10s",
            "network.send_offset: given 10s; allowed: 0s to below the deadline of 10s, since neighbours need "
            "the message before the exchange of the slot is over.",
        ),
        ("network.send_offset", "soon", "network.send_offset: given 'soon'; allowed: 0s to below the deadline"),
        (
            "network.epoch",
            "2026-01-01T00:00:00",
            "network.epoch: given '2026-01-01T00:00:00'; allowed: a time with an off",
        ),
        ("network.epoch", "2026-02-30T00:00:00Z", "network.epoch: given '2026-02-30T00:00:00Z'; allowed: a time"),
        ("network.epoch", "1969-12-31T23:59:59Z", "network.epoch: given '1969-12-31T23:59:59Z'; allowed: a time"),
        ("network.epoch", 0, "network.epoch: given 0; allowed: a time"),
        ("network.revision", 0, "network.revision: given 0; allowed: a whole number >= 1."),
        ("network.revision", 10**30, "network.revision: given a whole number of more than 64 bits"),
        ("network.regions", [], "network.regions: given []; allowed: a list of 1 to 100000"),
        ("network.regions", ["x", "y", "x"], "network.regions[2]: 'x' is given twice"),
        ("network.regions", ["x", " y"], "network.regions[1]: given a text of 2 characters that is not a name"),
        ("network.epsilon", 1, "network: 'epsilon' is not a setting of this table; it belongs in [guarantee]."),
        ("share", 1, "'share' is not a setting of this table; it belongs in [[server]]."),
        ("guarantee", ..., "guarantee: missing; needed: a table [guarantee]."),
        ("guarantee", 3, "guarantee: given 3; allowed: a table [guarantee]."),
        ("guarantee.kind", "windows", "given 'windows'; allowed: \"finite\" or \"window\". Did you mean 'window'?"),
        ("guarantee.epsilon", 0, "guarantee.epsilon: given 0; allowed: a number from"),
        ("guarantee.epsilon", "1/3", "guarantee.epsilon: given '1/3'; allowed: a number from"),
        ("guarantee.epsilon", float("inf"), "guarantee.epsilon: given inf; allowed: a number from"),
        ("guarantee.correlation", 0.5, "guarantee.correlation: given 0.5; allowed: 1 to 1000000000."),
        ("guarantee.length", 2_000_000, "guarantee.length: a window of 2000000 slots; allowed: at most 1000000."),
        ("scheme.name", "rescuedp", "scheme.name: 'rescuedp' is for the simulator only; a live node runs dpcrowd, dp"),
        ("scheme.name", "dpcrowd-pls", "scheme.name: unknown scheme 'dpcrowd-pls'. Did you mean 'dpcrowd-plus'?"),
        ("scheme.name", "dpcrowd", "scheme: scheme 'dpcrowd' takes a horizon"),
        ("scheme.accounting", "per-region", "since a user who moves between regions would pay more than epsilon."),
        ("scheme.accounting", "soun", "scheme.accounting: given 'soun'; a live node allows only \"sound\"."),
        (
            "scheme.process_var",
            [1, 2],
            "scheme.process_var: given 2 numbers; allowed: one number, or 3, one per region.",
        ),
        (
            "scheme.process_var",
            -1,
            "scheme.process_var: given -1; allowed: a number from 0 to 1e18, or a list of one number per region.",
        ),
        (
            "scheme.transition",
            [[1, 2, 3], [1, 2], [1]],
            "scheme.transition: allowed: a number, 3 numbers, or 3 rows of 3",
        ),
        ("scheme.transition", [1, 2, [3]], "scheme.transition: allowed: a number, 3 numbers, or 3 rows of 3."),
        (
            "scheme.process_var",
            ...,
            "scheme.process_var: missing; needed: a number from 0 to 1e18, or a list of one number per region, or a "
            'process model instead: model = "model.toml".',
        ),
        ("scheme.process_var", float("inf"), "scheme.process_var: given inf; allowed: a number from 0 to 1e18"),
        (
            "scheme.transition",
            [[1, 0, 0], [0, 11, 0], [0, 0, 1]],
            "scheme.transition[1][1]: given 11; allowed: a number",
        ),
        ("guarantee.regions_per_slot", 10_001, "guarantee.regions_per_slot: given 10001; allowed: 1 to 10000."),
        ("scheme.name", "x\x1b[2J\n", "scheme.name: unknown scheme 'x\\x1b[2J\\n'. Allowed:"),
        ("scheme.name", "x" * 10**6, "xxx..."),
        ("scheme.beta", 0.3, "scheme.beta: beta = 0.3 can diverge: a server here has up to 2 neighbours"),
        ("network.epoch", "2201-01-01T00:00:00Z", "network.epoch: given '2201-01-01T00:00:00Z'; allowed: a time"),
        ("network.grace", "0.0000001ms", "network.grace: given '0.0000001ms'; allowed: 0s to below the slot"),
        ("network.regions", ["x\ty"], "network.regions[0]: given a text of 3 characters that is not a name"),
        ("server.0.keys", ["ed25519:" + "A" * 42 + "B="], "is mistyped: its last character has stray bits"),
        ("scheme.interval", 5, "scheme: scheme 'dpcrowd-plus' takes no sampling interval"),
        ("scheme.tuning.xi", -1, "scheme.tuning: tuning parameter xi must be a finite number > 0"),
        ("scheme.tuning.tau", 1, "scheme.tuning: unknown setting 'tau'. Did you mean 'tau"),
        ("scheme.tuning.history", 10**15, "scheme.tuning.history: given 1000000000000000; allowed: at most 3333333"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(path: str, value: Any, expected: str) -> None:
    """Operators of several organisations edit this file by hand: each slip has to explain itself."""
    assert expected in refusal(changed(tables(), path, value))


def test_beta_is_held_against_a_process_that_grows() -> None:
    """Where A enlarges errors, a step that is safe otherwise diverges."""
    plain = changed(tables(), "scheme.beta", 0.2)
    assert network_of(plain).beta == 0.2
    assert "beta must be at most 1/(2*2*2) = 0.125" in refusal(changed(plain, "scheme.transition", 2.0))


def test_a_matrix_of_too_many_regions_is_refused() -> None:
    """A covariance of 100,000 regions would take 80 GB at start."""
    assert "at most 1000 regions" in refusal(changed(tables(regions=1001), "scheme.form", "matrix"))


def test_staggered_sampling_is_for_pinned_users() -> None:
    """With roaming users the sum over servers would exceed epsilon."""
    plain = changed(tables(), "guarantee.users", "roaming")
    plain["scheme"] |= {"name": "dpcrowd-w", "sampling": "staggered", "interval": 5}
    assert "staggered sampling is for pinned users" in refusal(plain)


def test_the_same_servers_may_be_linked_twice_at_different_times() -> None:
    """A timed list of links switches a link off and on again."""
    plain = tables(2)
    plain["link"] = [
        {"between": ["a", "b"], "until_slot": 5},
        {"between": ["b", "a"], "from_slot": 5, "until_slot": 7},
        {"between": ["a", "b"], "from_slot": 9},
    ]
    network = network_of(plain)
    assert [bool(network.neighbours("a", slot)) for slot in range(4, 11)] == [
        True,
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    plain["link"].reverse()
    assert network_of(plain).max_degree() == 1
    plain["link"].reverse()
    plain["link"][1]["until_slot"] = 10
    assert "link[2]: joins the same two servers as link[1]" in refusal(plain)


# ---------------------------------------------------------------------------------------------------------- warnings


def test_a_short_send_offset_is_warned_of_and_a_long_one_is_not() -> None:
    """Too short, and the moment of a message tells how many people there were."""
    (warning,) = network_of(changed(tables(), "network.send_offset", "5ms")).warnings()
    assert "send_offset of 5ms" in warning
    assert "25ms" in warning
    assert network_of(changed(tables(), "network.send_offset", "2s")).warnings() == ()


def test_shares_beyond_servers_per_slot_are_warned_of() -> None:
    """The printed promise would be about the network, and hold for single servers only."""
    plain = changed(tables(2), "server.0.share", 0.9)
    (warning,) = network_of(changed(plain, "server.1.share", 0.9)).warnings()
    assert "add up to 1.8" in warning
    assert "Set servers_per_slot to 2" in warning
    covered = changed(changed(plain, "server.1.share", 0.9), "guarantee.servers_per_slot", 2)
    assert network_of(covered).warnings() == ()
    assert network_of(tables()).warnings() == ()


def test_other_warnings() -> None:
    """A weak epsilon, a horizon that is over and a lonely server run, but hardly as meant."""
    plain = changed(tables(1), "guarantee.epsilon", 50)
    plain["scheme"]["name"] = "dpcrowd"
    plain["guarantee"]["kind"] = "finite"
    plain["network"]["valid_from_slot"] = 100
    weak, over, lonely = network_of(plain).warnings()
    assert "promises little" in weak
    assert "horizon ended at slot 100" in over
    assert "is the only server" in lonely
