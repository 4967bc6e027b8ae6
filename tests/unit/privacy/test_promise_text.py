"""The printed promise. Each phrase is one that an operator would be wrong without."""

from __future__ import annotations

import pytest

from dpcrowd.privacy import Guarantee


def test_finite() -> None:
    """User level names the length of the stream and deletes the user from every slot."""
    text = str(Guarantee.finite(1000, 0.5))
    assert text.startswith("Pure user-level differential privacy with ε = 0.5 ")
    assert "of a stream of 1000 slots" in text
    assert "deleting or adding all check-ins of one user in every slot" in text
    assert "by a factor of at most e^0.5." in text
    assert "endless" not in text


def test_window() -> None:
    """w-event names w, and that only w consecutive slots of a user are hidden."""
    text = str(Guarantee.window(120, 1))
    assert text.startswith("Pure 120-event differential privacy with ε = 1 ")
    assert "of an endless stream" in text
    assert "all check-ins of one user in any 120 consecutive slots" in text
    assert "user-level" not in text


def test_window_of_one_slot_is_event_level() -> None:
    """A window of 1 hides one slot of a user; calling that anything more would overstate it."""
    text = str(Guarantee.window(1, 1))
    assert text.startswith("Pure event-level differential privacy")
    assert "in any one slot" in text


@pytest.mark.parametrize(("epsilon", "double"), [(1, "2"), (0.05, "0.1"), (0.75, "1.5")])
def test_changing_a_place_costs_twice(epsilon: float, double: str) -> None:
    """The neighbouring relation is deletion: to hide where a user was instead costs 2ε, which must be said."""
    text = str(Guarantee.window(10, epsilon))
    assert f"Changing where a user was, instead of deleting, costs twice that (ε = {double})." in text


def test_assumptions_of_pinned_users() -> None:
    """No server can check at how many servers a user is: the promise must call it an assumption."""
    text = str(Guarantee.window(10, 1))
    assert "for everything that one server releases" in text
    assert "A user counts in at most one region of a slot (the last check-in of the slot wins)." in text
    assert "Assumed, not checkable by any server: a user checks in at no more than one server during one slot" in text
    assert "and always at the same one; a user who moves between servers may pay up to ε at each of them." in text


def test_assumptions_of_roaming_users() -> None:
    """With roaming users the promise is about all servers together, and must not claim that users stay."""
    text = str(Guarantee.window(10, 1, users="roaming"))
    assert "for everything that all servers together release" in text
    assert "which may be another in every slot." in text
    assert "always at the same" not in text


def test_several_regions_and_servers() -> None:
    """The bounds that the sensitivity rests on are named by number."""
    text = str(Guarantee.window(10, 1, regions_per_slot=4, servers_per_slot=3))
    assert "A user counts in at most 4 regions of a slot." in text
    assert "last check-in" not in text
    assert "a user checks in at no more than 3 servers during one slot, and always at the same ones" in text


def test_correlation_is_group_privacy_and_an_assertion() -> None:
    """Dividing ε by k proves group privacy for k; that it covers correlated data is not proven by anybody."""
    text = str(Guarantee.window(10, 1, correlation=4))
    assert "Budgets are spent at ε/4 = 0.25" in text
    assert "this proves group privacy for 4 users or windows at ε = 1" in text
    assert "correlated data is the operator's assertion" in text
    assert "group" not in str(Guarantee.window(10, 1))
    assert "ε/4 =" in str(Guarantee.window(10, 1, correlation=4.0))


@pytest.mark.parametrize(("factor", "group"), [(2.5, 2), (2.9999999, 2), (3.0, 3), (1234567.0, 1234567)])
def test_a_group_is_a_whole_number_of_users(factor: float, group: int) -> None:
    """ε/2.9999999 does not cover three users at ε: three would pay a hair more. Round the group down."""
    text = str(Guarantee.window(10, 1, correlation=factor))
    assert f"group privacy for {group} users or windows" in text


def test_a_factor_below_two_proves_no_group() -> None:
    """ε/1.5 covers no second user: it must not be sold as group privacy for 1.5 of them."""
    text = str(Guarantee.window(10, 1, correlation=1.5))
    assert "Budgets are spent at ε/1.5 = 0.666666666: this proves nothing more for groups" in text
    assert "the operator's assertion" in text
    assert "group privacy" not in text


def test_one_paragraph() -> None:
    """Command line and page print it as it is."""
    text = str(Guarantee.finite(3, 1, users="roaming", correlation=2, servers_per_slot=2))
    assert "\n" not in text
    assert "  " not in text
    assert text.endswith(".")


def test_a_user_at_several_servers_is_promised_something_about_all_of_them() -> None:
    """The noise is scaled to c servers, so the promise covers what they release together, not one of them alone."""
    text = str(Guarantee.finite(10, 1.0, servers_per_slot=3))
    assert "for everything that the 3 servers of any user together release" in text
    assert "for everything that one server releases" in str(Guarantee.finite(10, 1.0))
