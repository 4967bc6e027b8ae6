"""`[scheme] name = "relay"`: its options, the schedule that follows from public facts, and the change-over to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd import plan
from dpcrowd.errors import BadInput
from dpcrowd.node.build import view_of
from dpcrowd.node.config import NetworkConfig, check_next, digest
from dpcrowd.sampling.schedule import all_meet
from dpcrowd.schemes.relay import AUDIENCE_OF_RECORDS, Relay
from node_support import fake_sign
from node_support_config import changed, network_of, tables


def relay_tables(servers: int = 5, **options: Any) -> dict[str, Any]:
    """A ring whose servers pass records on."""
    plain = tables(servers)
    plain["scheme"] = {"name": "relay", "process_var": 100.0, **options}
    names = [server["name"] for server in plain["server"]]
    plain["link"] = [{"between": [name, names[(place + 1) % servers]]} for place, name in enumerate(names)]
    return plain


def relay_of(network: NetworkConfig) -> Relay:
    assert network.relay is not None
    return network.relay


def test_options_arrive() -> None:
    """An option that is read and not used would change nothing, and nobody would know."""
    network = network_of(relay_tables(samples=20, reach=2, lag=9, guard=False))
    scheme = relay_of(network)
    assert (scheme.samples, scheme.max_hops, scheme.lag, scheme.guard) == (20, 2, 9, False)
    assert network.scheme() is scheme
    setting = network.setting("b")
    assert setting.peers is not None
    assert setting.peers.number == 1
    assert setting.peers.shares.tolist() == [server.share for server in network.servers]
    assert setting.phases is not None
    assert setting.phases.tolist() == [network.offsets[1]]
    assert len(set(network.offsets)) == 5, "staggered"
    assert relay_of(network_of(relay_tables(interval=10))).samples_per(100) == 10


def test_turnover() -> None:
    """It changes what servers compute from the same records, so it is in the digest, and refused where unused."""
    plain, network = network_of(relay_tables(samples=20)), network_of(relay_tables(samples=20, turnover=0.05))
    assert (plain.setting("b").turnover, network.setting("b").turnover) == (1.0, 0.05)
    assert digest(plain) != digest(network)
    for options, reason in (
        ({"turnover": 0.0}, "above 0, at most 1"),
        ({"turnover": 0.1, "observation": "paper"}, 'observation = "binomial"'),
        ({"turnover": 0.1, "form": "matrix"}, 'form = "diagonal"'),
    ):
        with pytest.raises(BadInput, match=reason):
            network_of(relay_tables(samples=20, **options))
    with pytest.raises(BadInput, match="roaming users"):
        network_of(changed(relay_tables(samples=10, turnover=0.1), "guarantee.users", "roaming"))


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_turnover_of_other_schemes(name: str) -> None:
    """Users stay whatever the scheme is; with intervals of users who do not, a live server would promise too much."""
    plain, staying = ({"name": name, "process_var": 100.0, **more} for more in ({}, {"turnover": 0.05}))
    one, other = (network_of({**tables(), "scheme": scheme}) for scheme in (plain, staying))
    assert (one.setting("b").turnover, other.setting("b").turnover) == (1.0, 0.05)
    assert digest(one) != digest(other)
    later = {**tables(), "scheme": staying}
    later["network"] = {**later["network"], "revision": 2, "valid_from_slot": 10}
    check_next(one, network_of(later))


@pytest.mark.parametrize(
    ("name", "default"), [("turnover", 1.0), ("share_width", 0.0), ("groups", "off"), ("meetings", False)]
)
def test_a_default_that_is_written_out_is_the_same_configuration(name: str, default: object) -> None:
    """Whoever takes a comment sign away from the advanced sample would be refused by all neighbours."""
    plain, explicit = relay_tables(samples=20), relay_tables(samples=20, **{name: default})
    assert digest(network_of(plain)) == digest(network_of(explicit))


def test_groups() -> None:
    """Servers that join regions make records that others would refuse, so it is in the digest, unless it is off."""
    plain, network = network_of(relay_tables(samples=20)), network_of(relay_tables(samples=20, groups="auto"))
    assert (relay_of(plain).groups, relay_of(network).groups) == ("off", "auto")
    assert relay_of(network_of(relay_tables(groups="auto"))).groups == "auto", "also with a computed number of samples"
    assert digest(plain) != digest(network)
    assert digest(plain) == digest(network_of(relay_tables(samples=20, groups="off"))), "as earlier versions"
    with pytest.raises(BadInput, match="groups"):
        network_of(relay_tables(samples=20, groups="on"))
    with pytest.raises(BadInput, match="Give a model"):
        network_of(relay_tables(samples=20, groups="auto", form="matrix"))


def test_users_who_roam_are_sampled_in_lockstep() -> None:
    """Otherwise a user who visits several servers would pay at each of them."""
    network = network_of(changed(relay_tables(samples=10), "guarantee.users", "roaming"))
    assert network.setting("a").phases is None
    assert set(network.offsets) == {0}


def test_a_number_that_is_not_given_is_computed_and_part_of_the_digest() -> None:
    """All servers have to find the same one; whoever finds another is refused, and not heard at another price."""
    plain = network_of(relay_tables())
    computed = relay_of(plain).samples
    assert computed is not None
    assert 1 <= computed <= 100
    stated, other = (network_of(relay_tables(samples=number)) for number in (computed, computed + 1))
    assert digest(plain) == digest(stated) != digest(other)
    assert relay_of(network_of(relay_tables())).samples == computed


@pytest.mark.slow
def test_a_reach_that_is_not_given_is_what_plan_recommends() -> None:
    """In a large network records to every server cost many times the bytes; whoever finds another reach is refused."""
    plain = network_of(relay_tables(20))
    scheme = relay_of(plain)
    settings = {"servers": 20, "graph": "ring", "window": 100, "hops_per_slot": "all", "epsilons": [1.0]}
    planned = plan(1000.0, process_var=100.0, turnover=1.0, **settings)  # the file states none
    assert planned.reach == scheme.max_hops == 9
    stated = network_of(relay_tables(20, samples=scheme.samples, reach=9))
    assert digest(plain) == digest(stated) == digest(network_of(relay_tables(20, samples=scheme.samples)))
    assert digest(plain) != digest(network_of(relay_tables(20, samples=scheme.samples, reach="all")))
    assert relay_of(network_of(relay_tables(20, interval=20))).max_hops == 9


def test_small_networks_without_a_reach_mean_what_they_meant() -> None:
    """Their digest was made when records always travelled to every server; servers of both kinds of version talk."""
    for servers, text in ((3, "bd8a168433d601eab6e265d36b1b7b9a"), (12, "c9d32b452ab41118622f184ddd4a1ed9")):
        network = network_of(relay_tables(servers))
        assert relay_of(network).max_hops is None
        assert digest(network).hex() == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be a whole number >= 1"),
        ({"samples": 101}, "101 samples in 100 slots"),
        ({"samples": 5, "interval": 20}, "not both"),
        ({"interval": 7}, "does not divide 100"),
        ({"reach": 0}, "reach must be a whole number >= 1"),
        ({"lag": 0}, "allowed: 1 to 1000 slots"),
        ({"lag": 1001}, "allowed: 1 to 1000 slots"),
        ({"sampling": "fixed", "samples": 3}, "schedule of its own"),
        ({"blocks": "half", "samples": 3}, "has no option 'blocks'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    """In one line that names the setting: a network that started with them would not be the one that was meant."""
    with pytest.raises(BadInput, match=message):
        network_of(relay_tables(**options))


def test_options_of_relay_are_for_relay() -> None:
    """Somebody who limits the reach of another scheme would believe that it is limited."""
    with pytest.raises(BadInput, match="has no option 'reach'"):
        network_of(changed(tables(), "scheme.reach", 2))


def test_the_promise_names_the_audience() -> None:
    """With relay a record is not for neighbours alone."""
    assert network_of(relay_tables(samples=3)).promise().endswith(AUDIENCE_OF_RECORDS)
    plain = network_of(tables())
    assert plain.promise() == str(plain.guarantee())


def test_terms_of_records() -> None:
    """What the state machine knows of records is what the file says."""
    network = network_of(relay_tables(samples=20, reach=3, lag=9))
    terms = view_of(network, "a", fake_sign(0)).records
    assert terms is not None
    assert (terms.samples, terms.length, terms.lag, terms.reach) == (20, 100, 9, 3)
    assert terms.offsets == network.offsets
    assert terms.moves
    assert terms.least < -100 < 10 * network.population < terms.most
    assert view_of(network_of(tables()), "a", fake_sign(0)).records is None


def test_hops() -> None:
    """A server that a record does not reach must not count on it."""
    links = network_of(relay_tables(samples=3)).timed
    assert links.hops().max() == 2
    assert np.count_nonzero(links.hops(1) >= 0) == 15
    assert network_of(tables(4)).timed.hops()[0].tolist() == [0, 1, 2, 3]


def next_of(plain: dict[str, Any]) -> NetworkConfig:
    return network_of(changed(changed(plain, "network.revision", 2), "network.valid_from_slot", 40))


def test_a_network_may_change_over_to_relay_and_not_back() -> None:
    """Its state would mean something else under a scheme that exchanges estimates."""
    before, after = tables(5), relay_tables(samples=10)
    check_next(network_of(before), next_of(after))
    with pytest.raises(BadInput, match=r"scheme\.name"):
        check_next(network_of(after), next_of(before))


def test_a_revision_may_change_how_far_records_travel() -> None:
    """And how often servers sample: nothing of it is promised. What is promised may not change."""
    plain = relay_tables(samples=10)
    for path, value in (("scheme.reach", 1), ("scheme.lag", 4), ("scheme.samples", 20), ("scheme.guard", False)):
        check_next(network_of(plain), next_of(changed(plain, path, value)))
    with pytest.raises(BadInput, match=r"guarantee\.epsilon"):
        check_next(network_of(plain), next_of(changed(plain, "guarantee.epsilon", "2")))


def test_a_share_width_is_for_relay_whose_users_are_partitioned() -> None:
    """Where users are at several servers, records cannot say how large the crowd is."""
    plain = relay_tables(4, share_width=0.1, samples=2, reach="all")
    plain["server"] = [{**server, "share": 0.25} for server in plain["server"]]
    network = network_of(plain)
    name = network.servers[0].name
    assert network.setting(name).share_width == 0.1
    assert digest(network) != digest(network_of(changed(plain, "scheme.share_width", 0.2)))
    without = network_of(changed(plain, "scheme.share_width", ...))
    sizes = [view_of(one, name, fake_sign(0)).most_bytes for one in (network, without)]
    assert sizes[0] > sizes[1]  # room for what who joins has to know
    for path, value, words in (
        ("server.0.share", 0.15, "shares that sum to 0.9; share_width needs every user at one server"),
        ("scheme.reach", 1, 'with reach 1; share_width needs reach = "all"'),
        ("scheme.observation", "paper", 'with observation "paper"'),
        ("scheme.share_width", 2.0, "given 2; allowed: from 0 to 1"),
        ("scheme.share_width", 1e-200, "given 1e-200; allowed: from 0 to 1, and not between 0 and 1e-06"),
    ):
        with pytest.raises(BadInput, match=words):
            network_of(changed(plain, path, value))


def test_meetings() -> None:
    """Servers with other phases expect records in other slots, so it is in the digest; without it, phases and samples
    are those of earlier versions."""
    plain = relay_tables(8, share_width=0.1, reach="all")
    plain["server"] = [{**server, "share": 0.125} for server in plain["server"]]
    plain = changed(plain, "guarantee.length", 12)
    former, network = network_of(plain), network_of(changed(plain, "scheme.meetings", True))
    samples, length = relay_of(network).samples_per(network.guarantee().length), network.guarantee().length
    assert digest(network) != digest(former)
    assert len(set(network.offsets)) == 8, "each server has its own phase"
    assert all_meet(samples, length, np.array(network.offsets))
    assert not all_meet(relay_of(former).samples_per(length), length, np.array(former.offsets))
    assert not any("never sample together" in text for text in network.warnings())
    (warning,) = [text for text in former.warnings() if "never sample together" in text]
    assert "meetings = true" in warning, "whoever learns shares so is told what helps"
    named = int(warning.partition("all servers meet is ")[2].partition(".")[0].partition(",")[0])
    assert all_meet(named, length, former.offsets_with(named)), "and a number of samples that does"
    fixed = changed(plain, "scheme.samples", 6)
    before, after = network_of(fixed), network_of(changed(fixed, "scheme.meetings", True))
    assert set(before.offsets) != set(after.offsets), "only what is asked for changes"
    check_next(network_of(plain), next_of(changed(plain, "scheme.meetings", True)))
    with pytest.raises(BadInput, match="all servers sample in the same slots anyway"):
        network_of(changed(changed(plain, "scheme.meetings", True), "guarantee.users", "roaming"))
    with pytest.raises(BadInput, match="meetings"):
        network_of(changed(plain, "scheme.meetings", 1))
    with pytest.raises(BadInput, match="without a share_width"):
        network_of(changed(relay_tables(), "scheme.meetings", True))
    with pytest.raises(BadInput, match="it is for relay only"):
        network_of(changed(tables(), "scheme.meetings", True))
