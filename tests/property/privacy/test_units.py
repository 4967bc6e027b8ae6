"""Budgets in words and numbers: exact, rounded down, and the same when printed and read again."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import LARGEST_EPSILON, NANO, format_epsilon, from_nano, to_nano

nanos = st.integers(1, LARGEST_EPSILON * NANO)
epsilons = st.floats(1e-9, LARGEST_EPSILON, allow_subnormal=False)


@given(nanos)
def test_printed_and_read_again(nano: int) -> None:
    """What a message says is left can be given back as a configuration, to the last unit."""
    text = format_epsilon(nano)
    assert to_nano(text) == nano
    assert Decimal(text) == Decimal(nano) / NANO
    assert not text.endswith(".")


@given(nanos)
def test_float_and_back_loses_at_most_the_last_unit(nano: int) -> None:
    """Floats are for people; up to 2^53 units they even come back exactly, and never as more."""
    back = to_nano(from_nano(nano))
    assert nano - 1 <= back <= nano


@given(epsilons)
def test_a_float_means_what_it_prints(epsilon: float) -> None:
    """Rounded down from the shortest decimal: never above what was written."""
    exact = Fraction(Decimal(repr(epsilon)))
    assert to_nano(epsilon) == math.floor(exact * NANO)
    assert Fraction(to_nano(epsilon), NANO) <= exact


@given(st.integers(1, 10**12), st.integers(1, 10**6))
def test_equal_parts_of_epsilon_never_sum_to_more(numerator: int, parts: int) -> None:
    """Each part is rounded down on its own, so a sum of parts stays below the whole."""
    whole = Fraction(numerator, 10**6)
    if whole / parts * NANO >= 1:
        assert parts * to_nano(whole / parts) <= to_nano(whole)


@given(
    st.floats(1e-3, 100),
    st.floats(1, 1e4) | st.integers(1, 1000),
    st.sampled_from(["pinned", "roaming"]),
    st.integers(1, 500),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_total_and_text_of_any_promise(
    epsilon: float, correlation: float, users: str, length: int, regions: int, servers: int
) -> None:
    """Total k times never exceeds ε, for the whole users k that the text names; the text has every number in it."""
    guarantee = Guarantee.window(
        length,
        epsilon,
        users=users,  # type: ignore[arg-type]
        regions_per_slot=regions,
        servers_per_slot=servers,
        correlation=correlation,
    )
    assert Fraction(guarantee.total) * Fraction(str(correlation)) <= to_nano(epsilon)
    assert Fraction(guarantee.total + 1) * Fraction(str(correlation)) > to_nano(epsilon)
    text = str(guarantee)
    group = math.floor(Fraction(str(correlation)))
    assert group * guarantee.total <= to_nano(epsilon)
    assert (f"group privacy for {group} users" in text) == (group > 1)
    assert f"ε = {format_epsilon(to_nano(epsilon))} " in text
    assert f"(ε = {format_epsilon(2 * to_nano(epsilon))})" in text
    assert guarantee.sensitivity == regions * servers
