"""Frames: whatever arrives, in whatever pieces, is either exactly what was sent or an error by name."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from seriatim.live.tree.wire import TREE
from seriatim.model import UNREADABLE, InputError, RemoteError
from seriatim.protocols.link import Frame
from seriatim.protocols.tree.messages import Finished, Granted, Pass, Routed, Subscribe, Ticket
from seriatim.runtime.net.wire import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    UNWRITABLE,
    VERSION,
    Envelope,
    Framing,
    Hello,
    Ping,
    Refusal,
    Welcome,
    decode_hello,
    encode_body,
    encode_frame,
)

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "decode_hello": decode_hello,
    "decode_from_client": TREE.from_client,
    "decode_from_node": TREE.from_node,
    "decode_for_client": TREE.for_client,
    "decode_for_node": TREE.for_node,
}
NODE_FRAME = Frame(2, 3, 1, Routed("left", Finished("orders", 4, 5, {"prices": 7})))
SAMPLES: dict[str, list[Any]] = {
    "decode_hello": [Hello(VERSION, "seriatim", "client", "me", "secret")],
    "decode_from_client": [
        Ping(),
        Envelope("me", "root", Ticket(1, "orders", 2)),
        Envelope("me", "root", Subscribe(1, "orders", frozenset({"orders", "prices"}))),
    ],
    "decode_from_node": [Ping(), Envelope("left", "root", NODE_FRAME), Envelope("left", "root", Frame(1, 0, 7))],
    "decode_for_client": [
        Ping(),
        Welcome(VERSION, "seriatim", ["root"]),
        Refusal("because", True),
        Envelope("root", "me", Granted(1, "orders", 4, 5, {"prices": 7}, 2)),
    ],
    "decode_for_node": [
        Ping(),
        Welcome(VERSION, "seriatim", ["root"]),
        Envelope("root", "left", Frame(1, 1, 1, Pass("orders", 1, 2, "root", {}, frozenset({"prices"})))),
    ],
}


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_encoded_is_decoded(name: str) -> None:
    for sample in SAMPLES[name]:
        (body,) = Framing(FRAME_BYTES_MAX).feed(encode_frame(sample))
        assert DECODERS[name](body) == sample
        assert type(DECODERS[name](body)) is type(sample)


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("decode_hello", {"hello"}),
        ("decode_from_client", {"ping", "ticket"}),
        ("decode_from_node", {"ping", "link"}),
        ("decode_for_client", {"ping", "granted", "welcome", "refusal"}),
        ("decode_for_node", {"ping", "link", "welcome", "refusal"}),
    ],
)
def test_nobody_can_say_what_is_not_theirs_to_say(name: str, may: set[str]) -> None:
    frames = {
        "hello": Hello(VERSION, "seriatim", "node", "left"),
        "welcome": Welcome(VERSION, "seriatim", ["root"]),
        "refusal": Refusal("because"),
        "ping": Ping(),
        "ticket": Envelope("me", "root", Ticket(1, "orders", 2)),
        "granted": Envelope("root", "me", Granted(1, "orders", 4, 5, {})),
        "link": Envelope("left", "root", NODE_FRAME),
        "bare pass": Envelope("left", "root", Pass("orders", 1, 2, "root", {})),
    }
    said = set()
    for what, frame in frames.items():
        try:
            DECODERS[name](encode_body(frame))
        except UNREADABLE:
            continue
        said.add(what)
    assert said == may


@given(st.lists(st.binary(max_size=50), max_size=20), st.lists(st.integers(0, 60), max_size=40))
def test_frames_survive_any_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    framing, found = Framing(50), []
    position = 0
    for cut in cuts:
        found += framing.feed(stream[position : position + cut])
        position += cut
    found += framing.feed(stream[position:])
    assert found == bodies
    assert len(framing._rest) == 0


@given(st.lists(st.binary(max_size=100), max_size=30))
def test_no_stream_makes_us_hold_more_than_one_frame_and_one_piece(pieces: list[bytes]) -> None:
    framing = Framing(20)
    for piece in pieces:
        try:
            bodies = framing.feed(piece)
        except RemoteError as error:
            assert "at most 20" in str(error)
            return
        assert all(len(body) <= 20 for body in bodies)
        assert len(framing._rest) < LENGTH_BYTES + 20


@pytest.mark.parametrize("length", [21, 2**31, 2**32 - 1])
def test_a_length_that_is_too_large_is_refused_before_anything_is_kept(length: int) -> None:
    framing = Framing(20)
    with pytest.raises(RemoteError, match=f"a frame of {length} bytes is announced; at most 20"):
        framing.feed(framed(b"fine") + length.to_bytes(LENGTH_BYTES, "big") + b"x" * 1_000)
    assert len(framing._rest) == 0


def test_what_is_too_long_to_send_is_refused() -> None:
    with pytest.raises(InputError, match="send at most"):
        encode_frame(Envelope("me", "root", Ticket(1, "t" * FRAME_BYTES_MAX, 1)))


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)
TAGS = st.sampled_from(["Hello", "Welcome", "Refusal", "Ping", "Envelope"])
TYPES = st.sampled_from(["Ticket", "Settled", "Subscribe", "Update", "Refresh", "Inquire", "Frame", "Granted", "Pass"])
FIELDS = ["request", "topic", "count", "first", "version", "topics", "at", "number", "epoch", "received", "body"]
MESSAGES = st.builds(
    lambda name, fields: {"type": name, **fields}, TYPES, st.dictionaries(st.sampled_from(FIELDS), JUNK)
)
ALMOST = st.builds(lambda tag, fields: [tag, *fields], TAGS, st.lists(MESSAGES | JUNK, max_size=6))


@settings(max_examples=60)
@given(st.one_of(st.binary(max_size=200), JUNK.map(msgpack.encode), ALMOST.map(msgpack.encode)))
@example(b"\x91" * 100_000)  # arrays in arrays
@example(b"\x81\xa1x" * 50_000)  # maps in maps
@example(encode_body(["Envelope", "me", "root"])[:-1] + b"\x82\xa4type\xa6Ticket\xa1x" + b"\x91" * 100_000)
@example(b"\x94\xa8Envelope\xa1m\xa4root\x82\xa4type\xa6Ticket\xa1x" + b"\x91" * 100_000)  # deep, in a field we skip
@example(b"\x94\xa8Envelope\xa2\xff\xfe\xa4root\xc0")  # not UTF-8
@example(b"\x94\xa7Welcome\x01\xa1c\xdd\xff\xff\xff\xff")  # a list of four thousand million
@example(b"\x94\xa8Envelope\xa1m\xa4root\x83\xa4type\xa9Subscribe\xa6topics\xdd\xff\xff\xff\xff")
@example(b"\x94\xa8Envelope\xdb\xff\xff\xff\xff")
@example(b"\xc9\xff\xff\xff\xff\x00")
def test_any_bytes_are_decoded_or_refused_by_name(body: bytes) -> None:
    for decode in DECODERS.values():
        try:
            frame = decode(body)
        except UNREADABLE:
            continue
        assert isinstance(frame, Hello | Welcome | Refusal | Ping | Envelope)
        encode_body(frame)  # what was understood can be said again


@pytest.mark.parametrize("name", DECODERS)
@given(data=st.data())
def test_flipped_bits_never_surprise(name: str, data: st.DataObject) -> None:
    body = bytearray(encode_body(data.draw(st.sampled_from(SAMPLES[name]))))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        frame = DECODERS[name](bytes(body))
    except UNREADABLE:
        return
    encode_body(frame)


@pytest.mark.parametrize("message", [Ticket(2**64, "t", 1), Ticket(1, "\ud800", 1), Ticket(object(), "t", 1)])  # type: ignore[arg-type]
def test_what_cannot_be_encoded_is_an_error_by_name(message: Ticket) -> None:
    with pytest.raises(UNWRITABLE):
        encode_body(Envelope("me", "root", message))
