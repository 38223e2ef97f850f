"""Streams of slots and stamps that somebody else has created: used if they keep all messages, otherwise named in an
error."""

from typing import Any

import pytest
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig

from seriatim.brokers.nats.streams import Streams
from seriatim.model import InputError
from seriatim.protocols.with_broker import Listen, Listening, Stamped, Write, Written
from tests.brokers.conformance import HOME, Probe, event
from tests.brokers.nats.world import jetstream_world

ONCE: dict[str, Any] = {"discard": DiscardPolicy.NEW, "max_msgs_per_subject": 1, "discard_new_per_subject": True}
CAPTURED = "{}.>"
WRONG: list[tuple[str, dict[str, Any], str]] = [
    (CAPTURED, {}, "has discard = 'old', but needs 'new'"),
    (CAPTURED, {"discard": DiscardPolicy.NEW}, "has max_msgs_per_subject = -1, but needs 1"),
    (CAPTURED, {**ONCE, "max_msgs_per_subject": 2}, "has max_msgs_per_subject = 2, but needs 1"),
    (CAPTURED, {**ONCE, "discard_new_per_subject": False}, "has discard_new_per_subject = False, but needs True"),
    (CAPTURED, {**ONCE, "allow_rollup_hdrs": True}, "has allow_rollup_hdrs = True, but needs False"),
    (CAPTURED, {**ONCE, "retention": RetentionPolicy.WORK_QUEUE}, "has retention 'workqueue'"),
    ("{}.0.*", ONCE, "captures "),
]


@pytest.mark.parametrize(("captured", "settings", "said"), WRONG)
async def test_slots_that_are_not_write_once_are_refused(captured: str, settings: dict[str, Any], said: str) -> None:
    async with jetstream_world(mode="ticket") as world:
        broker = await world.connect()
        stream, subject = broker.names.slots_stream("a"), captured.format(broker.names.slots_subject("a"))
        connection = await world.plain_client()
        await connection.jetstream().add_stream(StreamConfig(name=stream, subjects=[subject], **settings))
        probe = Probe(broker, "p")
        for message in (Write("a", 1, {}, event("a", "e1")), Listen("a", None, 1)):
            probe.errors.clear()
            probe.send(message)
            await probe.until(lambda: probe.errors, "an error")
            refused, error = probe.errors[0]
            assert refused == message and isinstance(error, InputError)
            assert str(error).startswith(f"stream {stream}: it was made by somebody else and {said}")
            assert error.fix.startswith("change it, or delete it")
        await connection.jetstream().delete_stream(stream)
        written = await probe.ask(Write("a", 1, {}, event("a", "e1")), Written)
        assert written == Written("a", 1, "e1"), "then it is made as it must be"
        await connection.close()


async def test_slots_that_somebody_made_as_they_must_be_are_used() -> None:
    """An administrator may make them in advance, with limits of their own."""

    async with jetstream_world(mode="ticket") as world:
        broker = await world.connect()
        stream, subject = broker.names.slots_stream("a"), f"{broker.names.slots_subject('a')}.>"
        connection = await world.plain_client()
        await connection.jetstream().add_stream(StreamConfig(stream, subjects=[subject], max_bytes=1 << 20, **ONCE))
        probe = Probe(broker, "p")
        await probe.ask(Listen("a", None, 1), Listening)
        assert await probe.ask(Write("a", 1, {}, event("a", "e1")), Written) == Written("a", 1, "e1")
        assert await probe.ask(Write("a", 1, {}), Written) == Written("a", 1, "e1")
        await connection.close()


async def test_slots_made_by_somebody_at_the_same_moment_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_yet(self: Streams, stream: str) -> None:
        return None

    async with jetstream_world(mode="ticket") as world:
        broker = await world.connect()
        stream, subject = broker.names.slots_stream("a"), f"{broker.names.slots_subject('a')}.>"
        connection = await world.plain_client()
        await connection.jetstream().add_stream(StreamConfig(stream, subjects=[subject]))
        monkeypatch.setattr(Streams, "_find", nothing_yet)
        probe = Probe(broker, "p")
        probe.send(Write("a", 1, {}, event("a", "e1")))
        await probe.until(lambda: probe.errors, "an error")
        assert "has discard = 'old'" in str(probe.errors[0][1])
        await connection.close()


async def test_stamps_that_would_be_forgotten_are_refused() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        stream, subject = broker.names.stamps_stream(HOME), broker.names.stamps_subject(HOME)
        connection = await world.plain_client()
        theirs = StreamConfig(stream, subjects=[subject], retention=RetentionPolicy.INTEREST)
        await connection.jetstream().add_stream(theirs)
        home = Probe(broker, HOME)
        await home.append("a", "a1")
        home.send(Stamped("a", 1, 1, {}, 1))
        await home.until(lambda: home.errors, "an error")
        assert f"stream {stream}: it was made by somebody else and has retention" in str(home.errors[0][1])
        await connection.close()
