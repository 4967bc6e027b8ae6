"""network.toml: what a loaded network answers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import check_member, check_next, digest
from dpcrowd.node.config.digest import canonical
from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.server import Server
from node_support_config import changed, network_of, tables

MINUTE = 60 * 10**9


def test_times_are_whole_nanoseconds_however_they_are_written() -> None:
    """Two servers that read "1m" and 60 differently would cut time differently."""
    plain = tables()
    for slot in ("1m", "60s", 60, 60.0, "60000ms"):
        network = network_of(changed(plain, "network.slot", slot))
        assert network.clock().length_ns == MINUTE
    assert network.grace_ns == 5 * 10**9
    assert network.deadline_ns == 10 * 10**9


@pytest.mark.parametrize(
    "epoch", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00", "2025-12-31t19:00:00.000-05:00"]
)
def test_the_epoch_is_utc(epoch: str) -> None:
    """An offset that is ignored would shift the slots of one organisation by hours."""
    network = network_of(changed(tables(), "network.epoch", epoch))
    assert network.clock().epoch_ns == 1_767_225_600 * 10**9
    assert network.clock().slot_of(1_767_225_600 * 10**9 + 3 * MINUTE) == 3


def test_an_epoch_keeps_its_nanoseconds() -> None:
    """Rounding to microseconds would give two servers two epochs, and two digests."""
    network = network_of(changed(tables(), "network.epoch", "1970-01-01T00:00:01.000000007Z"))
    assert network.clock().epoch_ns == 1_000_000_007


@pytest.mark.parametrize(
    ("epsilon", "nano"),
    [("0.1", 10**8), (0.1, 10**8), (1, 10**9), ("0.29999999999999999", 299_999_999), (1e-9, 1), ("1000000", 10**15)],
)
def test_epsilon_is_exact(epsilon: object, nano: int) -> None:
    """A budget that is rounded up, by however little, breaks the promise."""
    assert network_of(changed(tables(), "guarantee.epsilon", epsilon)).guarantee().total == nano


def test_every_nano_epsilon_survives_the_float_in_between() -> None:
    """The guarantee takes a float; a budget that came back larger would be overspent."""
    plain = tables()
    for nano in (1, 7, 123_456_789, 999_999_999, 10**15 - 1, 123_456_789_012_345):
        text = f"{nano // 10**9}.{nano % 10**9:09d}"
        guarantee = network_of(changed(plain, "guarantee.epsilon", text)).guarantee()
        assert guarantee.total == nano == Fraction(text) * 10**9


def test_the_guarantee_has_everything_that_the_file_says() -> None:
    """A setting that is read but not passed on would promise more than is kept."""
    plain = tables()
    plain["guarantee"] |= {"users": "roaming", "servers_per_slot": 2, "regions_per_slot": 3, "correlation": 4}
    guarantee = network_of(plain).guarantee()
    assert (guarantee.kind, guarantee.length, guarantee.users) == ("window", 100, "roaming")
    assert guarantee.sensitivity == 6
    assert guarantee.total == 10**9 // 4


@pytest.mark.parametrize(
    ("regions", "deadline", "milliseconds"), [(3, "10s", 25), (500, "10s", 25), (501, "10s", 75), (501, "100ms", 50)]
)
def test_messages_leave_a_while_after_the_seal(regions: int, deadline: str, milliseconds: int) -> None:
    """Long enough to draw and store whatever was counted; and within any deadline that version 0.1.0 allowed."""
    plain = changed(tables(regions=regions), "network.deadline", deadline)
    network = network_of(plain)
    assert network.send_offset_ns == milliseconds * 10**6
    assert network.warnings() == ()
    written = network_of(changed(plain, "network.send_offset", f"{milliseconds}ms"))
    assert written == network
    assert digest(written) == digest(network)


def test_the_next_revision_may_have_another_send_offset() -> None:
    """It is a time of the exchange, like grace and deadline: a network that is too slow has to be able to change it."""
    plain = tables()
    later = changed(changed(plain, "network.revision", 2), "network.valid_from_slot", 10)
    check_next(network_of(plain), network_of(changed(later, "network.send_offset", "100ms")))


def test_a_server_can_start_from_its_setting() -> None:
    """The node builds its server from these calls alone."""
    plain = tables(regions=4)
    plain["scheme"] |= {"process_var": [1, 2, 3, 4], "tuning": {"tau1": 99, "gains": [1, 0, 0]}, "form": "matrix"}
    network = network_of(plain)
    setting = network.setting("b")
    assert setting.observation == "binomial"
    assert network_of(changed(plain, "scheme.observation", "paper")).setting("b").observation == "paper"
    assert setting.accounting == "sound"
    assert setting.form == "matrix"
    assert setting.tuning.tau1 == 99
    assert setting.tuning.gains == (1.0, 0.0, 0.0)
    assert setting.model.noise_var.tolist() == [1, 2, 3, 4]
    noise = SeededNoise([np.random.SeedSequence(1)], servers=1, regions=4)
    number, share = network.number_of("b"), network.server("b").share
    degree = network.max_degree()
    server = Server(
        network.scheme(), setting, noise, number=number, share=share, max_degree=degree, allow_simulated_noise=True
    )
    server.observe(0, [1, 2, 3, 4])
    assert server.hear().estimate.shape == (4,)


def test_a_matrix_transition_arrives_row_by_row() -> None:
    """A transposed matrix moves the crowd the wrong way."""
    plain = changed(tables(regions=2), "scheme.transition", [[0.9, 0.2], [0.1, 0.8]])
    assert network_of(plain).model().transition.tolist() == [[0.9, 0.2], [0.1, 0.8]]


def test_scheme_options_reach_the_scheme() -> None:
    """An option that is lost leaves the operator with another scheme than the one agreed on."""
    plain = tables()
    plain["scheme"] |= {"grouping": "none", "split": "proportional"}
    scheme = network_of(plain).scheme()
    assert (scheme.name, scheme.grouping, scheme.split) == ("dpcrowd-plus", "none", "proportional")  # type: ignore[attr-defined]
    plain["scheme"] = {"name": "dpcrowd-w", "process_var": 1, "sampling": "lockstep", "interval": 5, "blocks": "full"}
    scheme = network_of(plain).scheme()
    assert (scheme.sampling, scheme.interval, scheme.block_parts) == ("lockstep", 5, 1)  # type: ignore[attr-defined]


def test_timed_links_are_half_open() -> None:
    """A link that holds one slot too long lets a server hear what it must not."""
    plain = tables()
    plain["link"] += [{"between": ["c", "a"], "from_slot": 10, "until_slot": 20}]
    network = network_of(plain)
    assert [network.neighbours("a", slot) for slot in (9, 10, 19, 20)] == [("b",), ("b", "c"), ("b", "c"), ("b",)]
    assert network.neighbours("c", 10) == ("a", "b")  # by number, whatever the order in the file
    assert network.max_degree() == 2


def test_max_degree_sees_the_busiest_slot() -> None:
    """The consensus step comes from it: too small a degree lets the filter diverge."""
    plain = tables(5)
    plain["link"] += [
        {"between": ["b", "d"], "from_slot": 10, "until_slot": 20},
        {"between": ["b", "e"], "from_slot": 20, "until_slot": 30},
        {"between": ["a", "e"], "from_slot": 0, "until_slot": 30},
    ]
    network = network_of(plain)
    assert network.max_degree() == 3
    assert network.max_degree(0, 10) == 2
    assert network.max_degree(29, 30) == 3
    assert network.max_degree(30) == 2


def test_links_that_ended_before_the_revision_count_for_nothing() -> None:
    """They would hide that a server has become isolated, and shrink the consensus step."""
    plain = tables()
    plain["network"]["valid_from_slot"] = 50
    plain["link"] += [{"between": ["a", "c"], "until_slot": 50}]
    network = network_of(plain)
    assert network.max_degree() == 2
    assert any("link[2] ended at slot 50" in line for line in network.warnings())
    plain["link"] = [{"between": ["a", "b"]}, {"between": ["b", "c"], "until_slot": 50}]
    with pytest.raises(BadInput, match="'c' has no neighbours from slot 50 on"):
        network_of(plain)


def _finite() -> dict[str, Any]:
    plain = tables()
    plain["guarantee"]["kind"] = "finite"
    plain["scheme"]["name"] = "dpcrowd"
    return plain


def test_a_horizon_begins_with_a_revision() -> None:
    """From a slot to come, servers would begin it by different files; of a window it would forget what was paid."""
    plain = _finite()
    plain["network"]["valid_from_slot"] = 7
    for slot in (0, 3, 7):
        assert (
            network_of(changed(plain, "guarantee.horizon_from_slot", slot)).guarantee_section.horizon_from_slot == slot
        )
    with pytest.raises(
        BadInput, match=r"guarantee\.horizon_from_slot: given 8; allowed: at most 7 \(valid_from_slot\)"
    ):
        network_of(changed(plain, "guarantee.horizon_from_slot", 8))
    window = changed(tables(), "network.valid_from_slot", 7)
    with pytest.raises(BadInput, match=r'horizon_from_slot: given 7 with kind = "window"'):
        network_of(changed(window, "guarantee.horizon_from_slot", 7))


def test_a_horizon_is_part_of_the_digest_once_there_is_one() -> None:
    """Servers with different horizons must not hear each other; a file of version 0.1.0 must mean what it meant."""
    plain = _finite()
    plain["network"]["valid_from_slot"] = 7
    without, none, some, other = (
        digest(network_of(changed(plain, "guarantee.horizon_from_slot", slot))) for slot in (..., 0, 6, 7)
    )
    assert without == none
    assert b"horizon" not in canonical(network_of(plain))
    assert len({without, some, other}) == 3


def test_a_horizon_that_is_over_is_counted_from_its_own_start() -> None:
    """Otherwise each revision after the first horizon would warn that nobody samples."""
    plain = changed(_finite(), "network.valid_from_slot", 150)
    assert any("horizon ended at slot 100" in line for line in network_of(plain).warnings())
    assert network_of(changed(plain, "guarantee.horizon_from_slot", 150)).warnings() == ()
    over = changed(changed(plain, "guarantee.horizon_from_slot", 40), "guarantee.length", 110)
    assert any("horizon ended at slot 150" in line for line in network_of(over).warnings())


def test_a_next_revision_may_change_members_but_not_the_promise() -> None:
    """A reload that moves slots or weakens the promise would turn the ledger into nonsense."""
    plain = tables()
    plain["network"] |= {"revision": 2, "valid_from_slot": 10, "regions": ["x"], "population": 5, "grace": "1s"}
    plain["server"][0]["share"] = 0.5
    plain["scheme"] |= {"process_var": 1, "transition": 0.9, "beta": 0.01}
    current, following = network_of(tables()), network_of(plain)
    check_next(current, following)
    for path, value in [
        ("network.revision", 1),
        ("network.valid_from_slot", 0),
        ("network.id", "other"),
        ("network.slot", "2m"),
        ("network.epoch", "2026-01-02T00:00:00Z"),
        ("guarantee.epsilon", 2),
        ("guarantee.length", 99),
        ("scheme.form", "matrix"),
        ("scheme.tuning.xi", 1),
    ]:
        name = path.removesuffix(".xi")
        with pytest.raises(BadInput, match=f"^next.toml: {name}: "):
            check_next(current, network_of(changed(plain, path, value)), "next.toml")


def test_a_next_revision_without_its_first_slot_is_told_so() -> None:
    """ "Given 0", of somebody who has given nothing, does not say what to do."""
    following = network_of(changed(tables(), "network.revision", 2))
    words = "valid_from_slot: missing, or 0; a new revision needs the first slot in which it is valid; allowed: above"
    with pytest.raises(BadInput, match=words):
        check_next(network_of(tables()), following)


def test_names_that_do_not_exist_are_refused() -> None:
    """A KeyError would reach the operator as a traceback."""
    with pytest.raises(BadInput, match=r"unknown server 'aa'\. Did you mean 'a'"):
        network_of(tables()).server("aa")


def test_a_server_that_was_removed_is_told_so() -> None:
    """'Did you mean 'clinic-c'?' would have its operator run a server in the name of another organisation."""
    network = network_of(changed(tables(), "network.revision", 7))
    check_member(network, "b")
    with pytest.raises(BadInput) as caught:
        check_member(network, "bb", "next.toml")
    told = str(caught.value)
    assert told.startswith("next.toml: revision 7 of 'trial' has no server 'bb', only a, b, c. If it has left")
    assert "stop it for good" in told
    assert "Did you mean" not in told
    with pytest.raises(BadInput, match=r", x and 2 more\. If it"):
        check_member(network_of(tables(26)), "bb")


def test_a_map_makes_no_difference_to_the_protocol() -> None:
    """Servers that draw their regions differently still talk to each other; regions that do not exist are refused."""
    plain = tables()
    region = plain["network"]["regions"][0]
    drawn = network_of({**plain, "map": {"coordinates": {f'"{region}"': [52.5, 13.4]}, "geojson": "regions.geojson"}})
    assert drawn.region_map.coordinates == {region: (52.5, 13.4)}
    assert digest(drawn) == digest(network_of(plain))
    with pytest.raises(BadInput, match=r"map\.coordinates: .*'nowhere'"):
        network_of({**plain, "map": {"coordinates": {"nowhere": [0.0, 0.0]}}})
    with pytest.raises(BadInput, match=r"given \[91, 0\]; allowed: a latitude from -90 to 90"):
        network_of({**plain, "map": {"coordinates": {f'"{region}"': [91.0, 0.0]}}})


def _with_shares(regions: list[str], **shares: Any) -> dict[str, Any]:
    plain = changed(tables(), "network.regions", regions)
    by_region = {region: 0.1 * number for number, region in enumerate(regions, start=1)} | shares
    servers = [{**server, "share": 0.15, "shares": dict(by_region)} for server in plain["server"]]
    return changed(plain, "server", servers)


def test_shares_by_region_reach_the_servers_and_the_digest() -> None:
    """Two servers with other shares of a region would draw other conclusions from the same records."""
    plain = _with_shares(["north", "south"])
    network = network_of(plain)
    assert network.shares.tolist() == [[0.1, 0.2]] * len(network.servers)
    without = network_of(changed(plain, "server", [{**server, "shares": {}} for server in plain["server"]]))
    assert digest(without) == digest(
        network_of(changed(plain, "server", [{k: v for k, v in s.items() if k != "shares"} for s in plain["server"]]))
    )
    assert digest(network) != digest(without)
    name = network.servers[0].name
    server = Server(
        network.scheme(),
        network.setting(name),
        SeededNoise([np.random.SeedSequence(0)], 1, 2),
        number=0,
        share=network.shares[0],
        allow_simulated_noise=True,
    )
    assert server.setting.regions == 2


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"south": 1.5}, "given 1.5; allowed: above 0 and at most 1"),
        ({"south": 0.0}, "write a small share such as 0.0001"),
        ({"wset": 0.1}, "unknown region 'wset'"),
        ({"north": 0.4, "south": 0.3}, "given 0.15; allowed: a number between its smallest"),
    ],
)
def test_wrong_shares_by_region_are_refused(shares: dict[str, float], words: str) -> None:
    """A region without a share, or with a wrong one, would be estimated wrongly for ever."""
    with pytest.raises(BadInput, match=words):
        network_of(_with_shares(["north", "south"], **shares))


def test_shares_by_region_stand_beside_a_share() -> None:
    """A page of the documentation had them in its place, and 'missing' does not say that both are needed."""
    plain = _with_shares(["north", "south"])
    del plain["server"][0]["share"]
    words = "share .*: missing; needed: above 0 and at most 1. 'shares' stands beside 'share', and not in its place."
    with pytest.raises(BadInput, match=words):
        network_of(plain)


def test_a_missing_share_of_a_region_is_named() -> None:
    """Nobody knows how many people a server without a share stands for."""
    plain = _with_shares(["north", "south"])
    del plain["server"][0]["shares"]["south"]
    with pytest.raises(BadInput, match="no share of region 'south'; needed: one of every region"):
        network_of(plain)


def test_an_older_file_is_called_one() -> None:
    """Whoever followed the advice and raised the number of an old file brought its settings back."""
    current = changed(changed(tables(), "network.revision", 6), "network.valid_from_slot", 60)
    with pytest.raises(BadInput, match=r"given 1, but revision 6 is in use: this is an older file") as refused:
        check_next(network_of(current), network_of(changed(tables(), "network.population", 900)))
    assert "allowed" not in str(refused.value)
    assert "Take the newest network.toml" in str(refused.value)


def test_what_no_revision_may_change_is_not_to_be_renumbered() -> None:
    """A higher number was advised, with which the file was refused again, for another reason."""
    current = network_of(tables())
    for path, value in (("guarantee.epsilon", "2"), ("network.slot", "2m"), ("network.epoch", "2026-01-02T00:00:00Z")):
        with pytest.raises(BadInput, match=rf"{path}: differs .* create a new network with an id of its own"):
            check_next(current, network_of(changed(tables(), path, value)))
