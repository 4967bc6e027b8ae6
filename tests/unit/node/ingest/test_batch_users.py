"""One person is one user, however an id was typed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.node.ingest.batch import are_plain, user_bytes

SPACES = [" ", "\t", "\n", "\r\n", "\v", "\f", "\x1c", "\x1f", "\x85", "\u00a0", "\u2003", "\u3000"]
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from([*"aé\u0301 \t\n\u00a0\x1f"]), max_size=6)


def of(user: str | int) -> bytes:
    (found,) = user_bytes([user])
    return found


def test_two_forms_of_a_character_are_one_user() -> None:
    """One telephone writes ë as one character, another as two: the person would count twice, and pay for one."""
    composed, decomposed = "Zoë", "Zoe\u0308"
    assert composed != decomposed
    assert of(decomposed) == of(composed) == composed.encode()
    assert of("\u212b") == of("\u00c5") == of("A\u030a")  # an Ångström sign, too
    assert of("가") == of("\u1100\u1161")


def test_letters_that_only_look_alike_stay_different() -> None:
    """Normal form C, not KC: merging "²" and "2", or upper and lower case, would make one user of two people."""
    assert len({of(text) for text in ("x2", "x²", "X2", "\uff58\uff12", "x\u200b2")}) == 5


@pytest.mark.parametrize("space", SPACES)
def test_spaces_around_an_id_are_dropped(space: str) -> None:
    """A column that was padded, or a line end that was left on, must not make a second user."""
    for name in ("ann", "Zoë", "ann b"):
        assert of(space + name + space) == of(name) == name.encode()
    assert of(space) == of(space * 3) == b""


def test_spaces_within_an_id_are_kept() -> None:
    """ "ann b" and "annb" may be two people."""
    assert user_bytes(["ann b", "annb", "ann  b"]) == [b"ann b", b"annb", b"ann  b"]


def test_a_number_and_its_text_are_one_user() -> None:
    """A user of two feeds, one with numbers and one with texts, would count twice."""
    assert user_bytes([42, "42", " 42 ", -7, "-7", 2**70, str(2**70)]) == [
        b"42", b"42", b"42", b"-7", b"-7", b"1180591620717411303424", b"1180591620717411303424"
    ]  # fmt: skip
    assert user_bytes([1, 2]) == [b"1", b"2"]
    assert of("042") != of(42)


def test_what_is_no_user_is_empty_and_the_others_stay_where_they_are() -> None:
    """All ids are looked at together: an empty one, or one with a line end in it, must not move its neighbours."""
    assert user_bytes([]) == []
    assert user_bytes([""]) == [b""]
    assert user_bytes(["", "ann", "", "bob", ""]) == [b"", b"ann", b"", b"bob", b""]
    assert user_bytes(["", "a\nb"]) == [b"", b"a\nb"]
    assert user_bytes(["a\nb", ""]) == [b"a\nb", b""]
    assert user_bytes(["a\0b", " ", "é", 5]) == [b"a\0b", b"", "é".encode(), b"5"]


@given(st.lists(texts | st.integers(), max_size=5))
def test_no_user_depends_on_the_others(users: list[str | int]) -> None:
    """The quick way for many plain ids and the careful one for each have to agree."""
    assert user_bytes(users) == [of(user) for user in users]
    for user, found in zip(users, user_bytes(users), strict=True):
        text = found.decode()
        assert text == text.strip() == unicodedata.normalize("NFC", text)
        assert text == unicodedata.normalize("NFC", str(user).strip()).strip()
        assert of(text) == found


@given(st.lists(texts, max_size=4))
def test_plain_texts_need_no_change(users: list[str]) -> None:
    """An Arrow column whose users are plain is taken as it is: were it not so, a person would count twice."""
    raw = [user.encode() for user in users]
    if are_plain(raw):
        assert user_bytes(users) == raw
    assert are_plain([b"ann", b"42", b"u-1_2@example.org"])
    assert not are_plain([b"ann", b"ann "])
    assert not are_plain([b"ann", "Zoë".encode()])
