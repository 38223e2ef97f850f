"""Stamps as bytes: what was written comes back, and nothing else than a stamp is taken for one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import Entries, InputError, RemoteError, UnknownTopic
from seriatim.order.stamp import ENTRIES_MAX, TopicIds, TopicNames, decode_entries, encode_entries, topic_id

IDS = {"A": 1, "B": 2, "C": 130, "D": 70_000, "E": 2**40}
TOPICS = {id: topic for topic, id in IDS.items()}

stamps = st.dictionaries(st.sampled_from(sorted(IDS)), st.integers(0, 2**63 - 1))


@given(stamps)
def test_what_was_encoded_is_decoded(entries: Entries) -> None:
    assert decode_entries(encode_entries(entries, IDS), TOPICS) == entries


@given(stamps)
def test_equal_stamps_are_equal_bytes_however_they_were_made(entries: Entries) -> None:
    backwards = dict(reversed(entries.items()))
    assert encode_entries(backwards, IDS) == encode_entries(entries, IDS)


@given(st.binary(max_size=12))
def test_bytes_are_refused_or_are_the_one_encoding_of_what_they_say(data: bytes) -> None:
    try:
        entries = decode_entries(data, TOPICS)
    except RemoteError:
        return
    assert encode_entries(entries, IDS) == data


@given(stamps)
def test_every_truncation_is_refused(entries: Entries) -> None:
    data = encode_entries(entries, IDS)
    for length in range(len(data)):
        with pytest.raises(RemoteError, match="ends in the middle"):
            decode_entries(data[:length], TOPICS)


@given(stamps, st.binary(min_size=1, max_size=4))
def test_whatever_follows_a_stamp_is_refused(entries: Entries, junk: bytes) -> None:
    with pytest.raises(RemoteError, match=f"{len(junk)} bytes follow"):
        decode_entries(encode_entries(entries, IDS) + junk, TOPICS)


@given(stamps, st.data())
def test_one_flipped_bit_is_refused_or_changes_the_stamp(entries: Entries, data: st.DataObject) -> None:
    good = encode_entries(entries, IDS)
    at = data.draw(st.integers(0, 8 * len(good) - 1))
    bad = bytearray(good)
    bad[at // 8] ^= 1 << at % 8
    try:
        assert decode_entries(bytes(bad), TOPICS) != entries
    except RemoteError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes([1, 3, 1]), "unknown topic id 3"),
        (bytes([2, 1, 1, 0, 5]), "topic id 1 twice"),
        (bytes([0x81, 0x00, 1, 1]), "shortest form"),
        (b"\xff" * 10, "too long"),
        (msgspec.msgpack.encode({"A": 1}), "stamp"),
    ],
)
def test_a_forged_stamp_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RemoteError, match=reason):
        decode_entries(data, TOPICS)


def test_a_stamp_that_claims_too_many_entries_is_refused_before_they_are_read() -> None:
    ids = {f"t{i}": i for i in range(ENTRIES_MAX + 1)}
    data = encode_entries(dict.fromkeys(ids, 1), ids)
    with pytest.raises(RemoteError, match=f"at most {ENTRIES_MAX}"):
        decode_entries(data, {id: topic for topic, id in ids.items()})


def test_a_topic_without_an_id_is_named() -> None:
    with pytest.raises(UnknownTopic, match="Z"):
        encode_entries({"A": 1, "Z": 1}, IDS)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_that_cannot_be_read_again_is_not_written(number: int) -> None:
    with pytest.raises(InputError, match=r"stamp"):
        encode_entries({"A": number}, IDS)


def test_hashed_ids_need_no_table() -> None:
    names = TopicNames()
    names.know(["orders", "prices"])
    data = encode_entries({"orders": 3, "secret": 7, "prices": 1}, TopicIds())
    decoded = decode_entries(data, names)
    opaque = f"~{topic_id('secret'):014x}"
    assert decoded == {"orders": 3, "prices": 1, opaque: 7}, "whoever does not hold a topic does not see its name"
    assert topic_id(opaque) == topic_id("secret"), "an opaque name stands for the same id"
    assert encode_entries(decoded, TopicIds()) == data
    assert b"secret" not in data and len(data) <= 1 + 3 * 9


@pytest.mark.parametrize("topic", ["~", "~orders", "~zzzzzzzzzzzzzz", "~0123456789abc"])
def test_a_name_that_only_looks_opaque_is_a_name(topic: str) -> None:
    names = TopicNames()
    names.know([topic])
    assert decode_entries(encode_entries({topic: 5}, TopicIds()), names) == {topic: 5}
