"""Slots, stamps and packs that Seriatim has not written: an error by name, and the topic continues."""

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import nats
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

import seriatim
from seriatim.brokers.naming import Names
from seriatim.brokers.nats.listen import slot_subject
from seriatim.brokers.nats.messages import decode_slot, decode_stamps, encode_slot, encode_stamps
from seriatim.brokers.packs import BATCH_VERSION, Unreadable, pack, read_pack
from seriatim.model import Event, RemoteError
from seriatim.protocols.with_broker import Stamped, Write
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import data, take

EVENT = Event("an id", "a", "publisher", b"data", {"key": "value"}, "a.other")
SLOT = encode_slot(Write("a", 2, {"b": 3}, EVENT))
STAMPS = encode_stamps([Stamped("a", 1, 2, {"b": 3}, 1), Stamped("a", 3, 3, {}, 1)])
PACK = pack(1, [b"one", b"two"], {0: {"key": "value"}}, {1: "an id"})
DEEP = b"\x91" * 100_000
ENTRIES = b"\x00"


def slot(number: int, *event: Any) -> bytes:
    return msgpack.encode([number, ENTRIES, list(event) or None, None])


HOSTILE_SLOTS = {
    "an id that is not text": SLOT.replace(b"an id", b"an \xff\xfe"),
    "a header that is not text": SLOT.replace(b"value", b"val\xff\xfe"),
    "too deep": SLOT.replace(b"\x94", b"\x95", 1) + DEEP,
    "too deep for an event": b"\x94\x02\xc4\x01\x00" + DEEP,
    "no number": slot(0),
    "a number below zero": slot(-1),
    "a number of 64 bits": slot((1 << 64) - 1),
    "nothing": b"",
}
HOSTILE_STAMPS = {
    "text": msgpack.encode([[1, 1, 1, "x"]]).replace(b"x", b"\xff"),
    "too deep": b"\x91\x95\x01\x01\x01\xc4\x01\x00" + DEEP,
    "no number": msgpack.encode([[0, 0, 1, ENTRIES]]),
    "a number of 64 bits": msgpack.encode([[1, (1 << 64) - 1, 1, ENTRIES]]),
    "an epoch of 64 bits": msgpack.encode([[1, 1, (1 << 64) - 1, ENTRIES]]),
    "none": msgpack.encode([]),
}
HOSTILE_PACKS = {
    "an id that is not text": PACK.replace(b"an id", b"an \xff\xfe"),
    "too deep": PACK.replace(b"\x94", b"\x95", 1) + DEEP,
}


@pytest.mark.parametrize("what", HOSTILE_SLOTS)
def test_a_slot_that_cannot_be_read_is_named(what: str) -> None:
    with pytest.raises(RemoteError, match="slot 2 of a cannot be read"):
        decode_slot(HOSTILE_SLOTS[what], "a", 2)


@pytest.mark.parametrize("what", HOSTILE_STAMPS)
def test_stamps_that_cannot_be_read_are_named(what: str) -> None:
    with pytest.raises(RemoteError, match="the stamp channel of a holds"):
        decode_stamps(HOSTILE_STAMPS[what], "a")


@pytest.mark.parametrize("what", HOSTILE_PACKS)
def test_a_pack_that_cannot_be_read_is_named(what: str) -> None:
    with pytest.raises(Unreadable, match="a pack that cannot be read"):
        read_pack(BATCH_VERSION, HOSTILE_PACKS[what])


def damaged(body: bytes, random: Random) -> bytes:
    """The body with a few bytes changed, taken out or put in."""
    bytes_ = bytearray(body)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(bytes_) + 1)
        bytes_[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(bytes_)


def check_readers(body: bytes) -> None:
    """Every reader takes it or says by name that it does not."""
    with suppress(RemoteError):
        assert 1 <= decode_slot(body, "a").number < 1 << 63
    with suppress(RemoteError):
        for stamp in decode_stamps(body, "a"):
            assert all(0 <= each < 1 << 63 for each in (stamp.first, stamp.last, stamp.epoch, *stamp.entries.values()))
    with suppress(Unreadable):
        read_pack(BATCH_VERSION, body)


@given(st.randoms(use_true_random=False), st.sampled_from([SLOT, STAMPS, PACK]))
@settings(max_examples=2_000)
def test_damaged_messages_are_read_or_named(random: Random, body: bytes) -> None:
    check_readers(damaged(body, random))


@given(st.binary(max_size=60))
@settings(max_examples=1_000)
def test_any_bytes_are_read_or_named(body: bytes) -> None:
    check_readers(body)


@pytest.mark.parametrize("what", HOSTILE_SLOTS)
async def test_a_hostile_slot_is_a_void_and_the_topic_goes_on(tmp_path: Path, what: str) -> None:
    """Whoever may write to slots can use one up. It cannot stop the topic: not for who listens, nor who joins later."""

    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    plain = await nats.connect(server.url, connect_timeout=60)
    async with (
        sequencer(server, cluster, tmp_path, mode="ticket"),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(*topics) as one,
        bus.subscribe(*topics) as other,
    ):
        before = await bus.publish(topics[0], b"before")
        place = slot_subject(Names(cluster, 0), topics[0], before.number + 1)
        await plain.jetstream().publish(place, HOSTILE_SLOTS[what])
        after = await bus.publish(topics[0], b"after")
        assert after.number == before.number + 2, "its first slot was taken"
        await bus.publish(topics[1], b"elsewhere")
        saw = await take(one, 3)
        assert sorted(data(saw)) == ["after", "before", "elsewhere"]
        assert [each.id for each in await take(other, 3)] == [each.id for each in saw]
    await plain.close()
