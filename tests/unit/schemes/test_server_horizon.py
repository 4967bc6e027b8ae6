"""A server whose finite horizon begins anew: the account is new, what it knows of the crowd stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from schemes_support import COUNTS, account_for, bits, make_setting, paid_in, watched_noise

LENGTH, EPSILON = 6, 3.0

users = pytest.mark.parametrize("whose", ["pinned", "roaming"])
sampling = pytest.mark.parametrize("options", [{}, {"sampling": "fixed", "interval": 2}], ids=["adaptive", "fixed"])


def finite_server(whose: Any = "pinned", **options: Any) -> Server:
    guarantee = Guarantee.finite(LENGTH, EPSILON, users=whose)
    return Server(
        make_scheme("dpcrowd", **options),
        make_setting(1, len(COUNTS), guarantee),
        watched_noise(),
        number=0,
        share=0.5,
        max_degree=3,
        account=account_for(guarantee),
        allow_simulated_noise=True,
    )


def begin(server: Server, first: int) -> None:
    """A revision of the network begins a horizon."""
    account = server.account
    assert account is not None
    own = account.own
    server.use(
        account.declare(
            own.nano, None, roaming=own.roaming, slot_ns=own.slot_ns, epoch_ns=own.epoch_ns, horizon_slot=first
        )
    )
    server.begin_horizon()


def at_the_end(whose: Any, options: dict[str, Any]) -> Server:
    """A server that has lived through a horizon and three slots more."""
    server = finite_server(whose, **options)
    lives(server, range(LENGTH + 3))
    return server


def lives(server: Server, slots: range) -> list[Any]:
    releases = []
    for slot in slots:
        server.observe(slot, COUNTS)
        releases.append(server.hear())
    return releases


@users
@sampling
def test_a_new_horizon_has_a_budget_of_its_own(whose: str, options: dict[str, Any]) -> None:
    """With the old account, or the old count of samples, the server would stay silent; with none it would overspend."""
    server = at_the_end(whose, options)
    first = server.slot + 1
    assert server.horizon == 0
    begin(server, first)
    assert server.horizon == first
    releases = lives(server, range(first, first + LENGTH + 4))
    spent = [release.epsilon for release in releases]
    assert 0 < sum(spent) <= EPSILON
    assert any(spent[:LENGTH])
    assert not any(spent[LENGTH:]), "it ends where it ends"


@users
@sampling
def test_what_is_known_of_the_crowd_goes_on(whose: str, options: dict[str, Any]) -> None:
    """Estimates are paid for: to forget them would cost a horizon's first samples, at all servers at once."""
    server, other = at_the_end(whose, options), at_the_end(whose, options)
    begin(server, server.slot + 1)
    for one in (server, other):
        one.observe(one.slot + 1, None)
    assert bits(server.hear().estimate) == bits(other.hear().estimate)


@users
def test_what_the_new_horizon_has_cost_already_is_counted(whose: str) -> None:
    """A revision that is taken late: slots of the new horizon were paid for under the old revision."""
    server = at_the_end(whose, {})
    assert server.account is not None
    server.use(paid_in(server.account, server.slot, int(EPSILON) * NANO))
    begin(server, server.slot - 1)
    assert server.remaining(server.slot + 1) == 0
    assert not any(release.epsilon for release in lives(server, range(server.slot + 1, server.slot + 4)))


def test_a_new_horizon_survives_a_restart() -> None:
    """The state is stored with the next release: what it does not hold would begin the old horizon again."""
    server = at_the_end("pinned", {})
    begin(server, server.slot + 1)
    again = finite_server()
    again.restore(server.save())
    assert again.horizon == server.horizon
    assert again.save() == server.save()


def test_an_open_slot_is_released_first() -> None:
    """A server that was killed with a sample in its hands has paid for it in the old horizon."""
    server = finite_server()
    assert server.observe(0, COUNTS) is not None
    begin(server, 1)
    assert server.open_slot is None
    server.observe(1, None)
    assert np.isfinite(server.hear().estimate).all()


def test_a_window_has_no_horizon() -> None:
    """Its account would be emptied in the middle of a window."""
    guarantee = Guarantee.window(LENGTH, EPSILON)
    server = Server(
        make_scheme("dpcrowd-plus"),
        make_setting(1, len(COUNTS), guarantee),
        watched_noise(),
        number=0,
        share=0.5,
        max_degree=3,
        account=account_for(guarantee),
        allow_simulated_noise=True,
    )
    assert server.horizon is None
    with pytest.raises(BadInput, match="no horizon"):
        server.begin_horizon()
