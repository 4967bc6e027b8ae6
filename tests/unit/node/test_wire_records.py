"""Records as they travel: every bit arrives, one encoding per record, small, and signed by their origin."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.messages import check_message
from dpcrowd.node.wire import FORMAT_1, VERSION, Body, MessageRefused, encode
from dpcrowd.node.wire_records import (
    MOST_BESIDES,
    SignedRecord,
    most_record_bytes,
    pack,
    pack_integers,
    read_values,
    sign_record,
    signed_parts,
    unpack_integers,
    unpack_record,
)
from node_support import DIGEST, fake_sign, fake_verify, make_view
from node_support_relay import RING, facts_of, terms_of
from node_support_wire import info, signed_record

LARGEST = 1 << 53
integers = st.lists(st.one_of(st.integers(-LARGEST, LARGEST), st.integers(-200, 200)), min_size=1, max_size=60)


def record_of(values: Any, **other: Any) -> SignedRecord:
    fields: dict[str, Any] = {"origin": 40, "slot": 5000, "nano": 10**9, **other}
    return sign_record(np.asarray(values, dtype=np.float64), digest=DIGEST, sign=fake_sign(fields["origin"]), **fields)


@given(integers)
def test_integers_arrive(values: list[int]) -> None:
    """A rounding here, and a live network no longer computes what the simulator computes."""
    packed = pack_integers(np.array(values, dtype=np.int64))
    assert unpack_integers(packed, len(values)).tolist() == values
    assert len(packed) <= 8 * len(values)


@given(st.binary(max_size=40), st.integers(1, 12))
def test_there_is_one_encoding(packed: bytes, number: int) -> None:
    """Bytes that are read are the bytes that would be written: nobody can make two records of one."""
    try:
        values = unpack_integers(packed, number)
    except BadInput:
        return
    assert pack_integers(values) == packed


@pytest.mark.parametrize(
    ("packed", "number"),
    [
        (b"", 1),
        (b"\x02", 2),
        (b"\x02\x02", 1),
        (b"\x80\x00", 1),  # longer than it needs to be
        (b"\x82", 1),  # unfinished
        (b"\x02\x82", 1),  # trailing
        (b"\xff" * 8 + b"\x01", 1),
        (b"\xff" * 7 + b"\x7f", 1),  # beyond 2^53
    ],
)
def test_other_bytes_are_refused(packed: bytes, number: int) -> None:
    """Canonical varints, exactly as many as there are groups, and nothing after them."""
    with pytest.raises(BadInput):
        unpack_integers(packed, number)


@pytest.mark.parametrize("regions", [1, 51, 1000])
def test_a_record_is_small(regions: int) -> None:
    """At most 150 bytes besides the integers, whatever the numbers; of a usual one, below 100."""
    usual, huge = (
        record_of(np.full(regions, 300)),
        record_of(np.full(regions, 300), origin=10**6, slot=LARGEST, nano=LARGEST),
    )
    assert len(pack(usual)) - len(usual.values) < 100
    assert len(pack(huge)) - len(huge.values) <= MOST_BESIDES
    assert len(usual.values) == 2 * regions
    assert len(pack(record_of(np.full(regions, LARGEST)))) <= most_record_bytes(regions)
    assert unpack_record(pack(usual)) == usual
    if regions > 1:
        groups = np.arange(regions)
        groups[-1] = 0
        joined = record_of(np.full(regions, LARGEST), groups=groups)
        assert len(pack(joined)) <= most_record_bytes(regions)
        assert read_values(msgspec.structs.replace(joined, hops=1), regions).groups.tolist() == groups.tolist()


def test_what_is_signed() -> None:
    """Everything but the hops, which every forwarder changes, and the configuration of its slot."""
    record = record_of([5, -3, 0])
    assert fake_verify(40, record.signature, *signed_parts(record, DIGEST))
    travelled = msgspec.structs.replace(record, hops=3)
    assert fake_verify(40, record.signature, *signed_parts(travelled, DIGEST))
    changes: dict[str, Any] = {
        "origin": 41,
        "slot": 5001,
        "nano": 5,
        "groups": b"\x00\x01\x00",
        "values": b"\x02\x02\x02",
    }
    for name, value in changes.items():
        changed = msgspec.structs.replace(record, **{name: value})
        assert not fake_verify(40, record.signature, *signed_parts(changed, DIGEST)), name
    assert not fake_verify(40, record.signature, *signed_parts(record, bytes(16)))


def test_groups() -> None:
    """A group is named by its lowest region, and has one value."""
    plain = msgspec.structs.replace(record_of([1, 2, 3, 4]), hops=1)
    grouped = msgspec.structs.replace(plain, groups=b"\x00\x00\x02\x02", values=pack_integers(np.array([7, -9])))
    values = read_values(grouped, 4)
    assert values.noisy.tolist() == [7.0, -9.0, 0.0, 0.0]
    assert values.groups.tolist() == [0, 1, 0, 1]
    assert values.is_grouped
    assert not read_values(plain, 4).is_grouped
    for groups in (b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00", b"\x00\x01\x01\x00", b"\x00\x00\x02"):
        with pytest.raises(BadInput):
            read_values(msgspec.structs.replace(grouped, groups=groups), 4)


@pytest.mark.parametrize(
    "change",
    [{"origin": -1}, {"slot": -1}, {"hops": 0}, {"nano": 0}, {"nano": 1 << 54}, {"signature": bytes(63)}],
)
def test_impossible_fields_are_refused(change: dict[str, Any]) -> None:
    """Nothing is computed from numbers that no server has."""
    record = msgspec.structs.replace(
        record_of([1]), hops=1, **{name: value for name, value in change.items() if name != "hops"}
    )
    record = msgspec.structs.replace(record, **change)
    with pytest.raises(BadInput):
        read_values(record, 1)


# ------------------------------------------------------------------------------------------------------ whole messages

VIEW = make_view(0, 5, lambda slot: RING[0], regions=3, records=terms_of(facts_of()))
PLAIN = make_view(0, 5, lambda slot: RING[0], regions=3)


def message(view: Any = VIEW, **other: Any) -> Any:
    fields: dict[str, Any] = {"version": VERSION, "digest": DIGEST, "server": 1, "slot": 7, "round": 1, "counter": 2}
    body = Body(**{**fields, "heard": {}, **other})
    return check_message(view, 1, encode(body, fake_sign(1)))


def test_a_message_of_format_2() -> None:
    """The own record is what makes it data: neighbours remember a sample by it."""
    own = msgspec.structs.replace(record_of([1, 2, 3], origin=1, slot=7), hops=1)
    assert message(relayed=(own,)).has_sample
    assert not message().has_sample
    assert not message(relayed=(msgspec.structs.replace(own, origin=2),)).has_sample
    assert message(relayed=(own,)).body.relayed == (own,)


def test_each_network_has_one_format() -> None:
    """A vector in a network of records, or a record in a network of vectors, is nobody's message."""
    own = record_of([1, 2, 3], origin=1, slot=7)
    with pytest.raises(MessageRefused, match="format 1") as refused:
        message(version=FORMAT_1)
    assert refused.value.reason == "version"
    with pytest.raises(MessageRefused) as refused:
        message(PLAIN, relayed=(own,))
    assert refused.value.reason == "version"
    with pytest.raises(MessageRefused) as refused:
        message(records=(signed_record(info()),))
    assert refused.value.reason == "malformed"
    assert message(PLAIN).message is None, "a heartbeat of a later version is understood"


def test_a_heartbeat_of_format_2_is_as_small() -> None:
    """Nothing is added to a message without records."""
    fields: dict[str, Any] = {"digest": DIGEST, "server": 1, "slot": 7, "round": 1, "counter": 2, "heard": {}}
    sizes = {len(encode(Body(version=version, **fields), fake_sign(1))) for version in (FORMAT_1, VERSION)}
    assert len(sizes) == 1
