"""The limit on requests per token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.node.api.limits import RequestLimit
from dpcrowd.node.slots import SECOND

NOW = 1_767_225_600 * SECOND


def test_no_limit() -> None:
    """Zero means that nobody is held back, and nothing is kept of any token."""
    limit = RequestLimit(0.0)
    assert all(limit.take("a", NOW) for _ in range(10_000))
    assert not limit._tokens


def test_as_many_at_once_as_come_in_a_second() -> None:
    """A feed that sends its requests together once a second must not be refused."""
    limit = RequestLimit(3.0)
    for second in range(5):
        now = NOW + second * SECOND
        assert [limit.take("a", now) for _ in range(4)] == [True, True, True, False]


def test_requests_come_back_with_time() -> None:
    """A refused request costs nothing: whoever goes on asking would otherwise never be heard again."""
    limit = RequestLimit(2.0)
    assert [limit.take("a", NOW) for _ in range(5)] == [True, True, False, False, False]
    assert not limit.take("a", NOW + SECOND // 2 - 1)
    assert limit.take("a", NOW + SECOND // 2)
    assert not limit.take("a", NOW + SECOND // 2)


def test_fewer_than_one_a_second() -> None:
    """One request in ten seconds is a limit, too; without a burst of at least one nothing would ever be taken."""
    limit = RequestLimit(0.1)
    assert limit.take("a", NOW)
    assert not limit.take("a", NOW + 9 * SECOND)
    assert limit.take("a", NOW + 10 * SECOND)


def test_one_token_does_not_use_up_anothers_requests() -> None:
    """Otherwise whether a feed is refused would tell how much another one sends."""
    limit = RequestLimit(1.0)
    assert limit.take("a", NOW)
    assert not limit.take("a", NOW)
    assert limit.take("b", NOW)


def test_a_clock_that_is_set() -> None:
    """Back: nobody is locked out until the time has come again. Ahead: nothing is saved up beyond one second."""
    limit = RequestLimit(2.0)
    assert [limit.take("a", NOW) for _ in range(3)] == [True, True, False]
    back = NOW - 86_400 * SECOND
    assert not limit.take("a", back)
    assert limit.take("a", back + SECOND)
    ahead = NOW + 86_400 * SECOND
    assert [limit.take("a", ahead) for _ in range(3)] == [True, True, False]


@pytest.mark.slow
@given(
    st.floats(0.05, 50.0),
    st.lists(st.integers(0, 2 * SECOND), min_size=1, max_size=60),
    st.lists(st.sampled_from("ab"), min_size=60, max_size=60),
)
def test_never_more_than_the_rate(per_second: float, pauses: list[int], tokens: list[str]) -> None:
    """Over any stretch of time a token makes at most its rate times the stretch, and one burst."""
    limit, now = RequestLimit(per_second), NOW
    taken: dict[str, list[int]] = {"a": [], "b": []}
    for pause, token in zip(pauses, tokens, strict=False):
        now += pause
        if limit.take(token, now):
            taken[token].append(now)
    for times in taken.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                allowed = max(per_second, 1.0) + per_second * (times[last] - times[first]) / SECOND
                assert last - first + 1 <= allowed + 1e-6


@pytest.mark.parametrize("per_second", [1.0, 7.0])
def test_whoever_keeps_to_the_rate_is_never_refused(per_second: float) -> None:
    """Rounding must not add up until a feed that does as it was told is refused."""
    limit = RequestLimit(per_second)
    pause = -(-SECOND // int(per_second))
    assert all(limit.take("a", NOW + number * pause) for number in range(2_000))
