"""Packs: what goes in comes out, and what other people write never does harm."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.brokers.packs import BATCH_HEADER, BATCH_VERSION, EVENTS_MAX, Unreadable, pack
from seriatim.client.events import unfold
from seriatim.model import Event as Message
from seriatim.model import Notification

headers = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), min_size=1, max_size=3)
events = st.tuples(st.binary(max_size=40), st.none() | headers, st.none() | st.text(min_size=1, max_size=10))


def packed(payload: bytes, version: str = BATCH_VERSION, subject: str | None = None) -> Notification:
    message = Message("p-1", "t", "p", payload, {BATCH_HEADER: version}, subject)
    return Notification(message, 7, {"u": 3}, out_of_order=True)


@given(st.integers(0, 2**60), st.lists(events, min_size=1, max_size=20))
def test_what_is_packed_comes_out_as_it_was(
    first: int, given: list[tuple[bytes, dict[str, str] | None, str | None]]
) -> None:
    payload = pack(
        first,
        [data for data, _, _ in given],
        {index: names for index, (_, names, _) in enumerate(given) if names is not None},
        {index: id for index, (_, _, id) in enumerate(given) if id is not None},
    )
    found = unfold(packed(payload))
    assert [(event.data, event.headers) for event in found] == [(data, names) for data, names, _ in given]
    assert [event.id for event in found] == [id or f"p-{first + index}" for index, (_, _, id) in enumerate(given)]
    assert [event.index for event in found] == list(range(len(given)))
    assert {(event.topic, event.number, event.publisher, event.out_of_order) for event in found} == {
        ("t", 7, "p", True)
    }
    assert all(event.stamp == {"u": 3} for event in found)


def test_a_plain_message_is_one_event_of_its_subject() -> None:
    message = Message("some id", "bucket-3", "", b"payload", {"a": "b"}, "orders")
    [event] = unfold(Notification(message, 4, {}))
    assert (event.topic, event.data, event.headers, event.id, event.number) == (
        "orders",
        b"payload",
        {"a": "b"},
        "some id",
        4,
    )


def test_an_event_in_a_pack_costs_three_bytes_beside_its_data() -> None:
    lone, many = pack(10**6, [b"x" * 64]), pack(10**6, [b"x" * 64] * 1000)
    assert (len(many) - len(lone)) / 999 <= 64 + 3


@given(st.binary(max_size=200))
def test_random_bytes_are_unreadable_or_events(payload: bytes) -> None:
    try:
        found = unfold(packed(payload))
    except Unreadable:
        return
    assert all(isinstance(event.data, bytes) and isinstance(event.id, str) for event in found)


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=5), st.data())
def test_a_damaged_pack_is_unreadable_or_events(data: list[bytes], draw: st.DataObject) -> None:
    payload = bytearray(pack(1, data, {0: {"a": "b"}}, {0: "id"}))
    payload[draw.draw(st.integers(0, len(payload) - 1))] = draw.draw(st.integers(0, 255))
    try:
        unfold(packed(bytes(payload)))
    except Unreadable:
        return


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        msgspec.msgpack.encode([1, []]),
        msgspec.msgpack.encode([1, [b""] * (EVENTS_MAX + 1)]),
        msgspec.msgpack.encode([1, "data"]),
        msgspec.msgpack.encode(["1", [b""]]),
        msgspec.msgpack.encode([1, [b""], {0: {"a": 1}}]),
        msgspec.msgpack.encode({"first": 1}),
        b"\x92\x01\xdd\xff\xff\xff\xff",  # an array that claims four thousand million elements
        b"\x92\x01\x91\xc6\xff\xff\xff\xff",  # data that claims four gigabytes
        b"\x91" * 10_000,  # nested deeper than anybody reads
    ],
)
def test_hostile_packs_are_unreadable(payload: bytes) -> None:
    with pytest.raises(Unreadable):
        unfold(packed(payload))


def test_a_pack_of_another_version_says_so() -> None:
    with pytest.raises(Unreadable, match="version '2'; this client reads 1"):
        unfold(packed(pack(1, [b"a"]), version="2"))


def test_indexes_beyond_the_pack_are_ignored() -> None:
    [event] = unfold(packed(msgspec.msgpack.encode([1, [b"a"], {5: {"a": "b"}}, {-1: "x"}])))
    assert (event.headers, event.id) == (None, "p-1")
