"""A stream that was deleted and created again is distinguished from the earlier one, however fast it grows."""

import json

import pytest
from nats.aio.client import Client

from seriatim.brokers.nats import readers as nats_readers
from seriatim.brokers.nats.api import NEVER, StreamAnswer, StreamState
from seriatim.brokers.nats.identity import Sighting, difference, earlier, stored_at
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.port import JetStreamPort
from seriatim.brokers.nats.stamps import LOG
from seriatim.protocols.with_broker import Append, Appended, Grown, Kept, Listen, Listening, Stamped, Watch
from tests.brokers.conformance import HOME, Probe, event
from tests.brokers.nats.world import JetStreamWorld, jetstream_world

MONDAY, TUESDAY, WEDNESDAY = (f"2026-11-{day}T08:00:00.123456789Z" for day in (16, 17, 18))


@pytest.mark.parametrize(
    ("created", "first_ts", "known", "is_another"),
    [
        pytest.param(MONDAY, MONDAY, Sighting(MONDAY, MONDAY), False, id="the same"),
        pytest.param(TUESDAY, TUESDAY, Sighting(MONDAY, MONDAY), True, id="made anew"),
        pytest.param(TUESDAY, WEDNESDAY, Sighting(MONDAY), True, id="made anew, and only its creation was known"),
        pytest.param(TUESDAY, MONDAY, Sighting(MONDAY, MONDAY), False, id="restored on a cluster"),
        pytest.param(TUESDAY, WEDNESDAY, Sighting(MONDAY, WEDNESDAY), False, id="created again while it was there"),
        pytest.param(TUESDAY, NEVER, Sighting(MONDAY, MONDAY), False, id="empty: nobody can know"),
        pytest.param(TUESDAY, TUESDAY, Sighting(), False, id="never seen before"),
        pytest.param("", NEVER, Sighting(MONDAY, MONDAY), False, id="the server does not say"),
    ],
)
def test_another_time_of_creation_is_another_stream_unless_something_speaks_against_it(
    created: str, first_ts: str, known: Sighting, is_another: bool
) -> None:
    answer = StreamAnswer(created=created, state=StreamState(first_seq=1, last_seq=9, first_ts=first_ts))
    assert ("created again" in (difference(answer, 5, known) or "")) == is_another
    assert difference(answer, 0, known) is None, "who remembers no position cannot be wrong"
    assert "ends at 9" in (difference(answer, 10, known) or "")


def test_times_of_messages_are_compared_with_times_of_creation() -> None:
    assert stored_at("1794902400123456789").startswith("2026-11-17T08:00:00.12345")
    assert stored_at("") == earlier("", 60.0) == ""
    assert earlier(TUESDAY, 60.0) == "2026-11-17T07:59:00.123456+00:00"


async def three_ordered(world: JetStreamWorld) -> tuple[JetStreamBroker, Probe]:
    """Three events, seen and stamped."""
    broker = await world.connect()
    home = Probe(broker, HOME)
    await home.append("a", "a1", "a2", "a3")
    await home.ask(Watch(frozenset({"a"})), Grown)
    await home.ask(Stamped("a", 1, 3, {}, 1), Kept)
    return broker, home


async def make_anew(world: JetStreamWorld, events: int) -> None:
    """Delete the log, and let it grow again at once."""
    connection = await world.plain_client()
    stream = world.brokers[0].names.log_stream("a")
    await connection.jsm().delete_stream(stream)
    await connection.jetstream().add_stream(name=stream, subjects=["a"], allow_direct=True)
    for number in range(events):
        await connection.jetstream().publish("a", b"new %d" % number)
    await connection.close()


async def test_a_subscriber_is_not_given_the_rest_of_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_readers, "RETRY_S", 2.0)  # it looks again when the new one has grown

    async with jetstream_world() as world:
        await three_ordered(world)
        subscriber = Probe(await world.connect(), "s")
        await subscriber.ask(Listen("a", 0, 1), Listening)
        await subscriber.until(lambda: 3 in subscriber.numbers("a"), "the events")
        await make_anew(world, 8)
        await subscriber.until(lambda: subscriber.errors, "the reader to notice")
        assert "deleted and created again" in str(subscriber.errors[0][1])
        assert subscriber.numbers("a") == [1, 2, 3]


async def test_a_home_does_not_order_another_log_as_the_rest_of_its_own() -> None:
    async with jetstream_world() as world:
        _, home = await three_ordered(world)
        await make_anew(world, 8)  # it may be seen while it is away, which is told as well
        for _ in range(2):
            home.errors.clear()
            home.send(Watch(frozenset({"a"})))
            await home.until(lambda: "deleted and created again" in str(home.errors), "the watcher to notice")


async def test_an_alarm_does_not_keep_publishers_from_hearing_that_a_stream_is_gone() -> None:
    """A request that somebody listens to is answered by nobody, and would be waited for."""

    async with jetstream_world() as world:
        broker, home = await three_ordered(world)
        publisher = Probe(await world.connect(), "p")
        publisher.repeat_s = 0.5
        await publisher.append("a", "a4")  # so that it knows the stream
        await home.ask(Stamped("a", 4, 4, {}, 1), Kept)
        assert isinstance(home.port, JetStreamPort)
        watched = home.port.watcher._watched["a"]
        await home.until(lambda: watched.alarms, "the alarm")
        connection = await world.plain_client()
        await connection.jsm().delete_stream(broker.names.log_stream("a"))
        await connection.close()
        home.send(Watch(frozenset({"a"})))
        await home.until(lambda: home.errors, "the watcher to notice")
        assert not watched.alarms
        await publisher.ask(Append(event("a", "b1")), Appended)


async def test_who_comes_back_knows_another_log_by_the_stamps() -> None:
    """Neither a home's journal nor that of a durable subscription knows more than numbers."""

    async with jetstream_world() as world:
        await three_ordered(world)
        await world.brokers[0].close()
        await make_anew(world, 8)
        restarted = Probe(await world.connect(), HOME)
        restarted.send(Watch(frozenset({"a"})))
        await restarted.until(lambda: restarted.errors, "the home to notice")
        assert "deleted and created again" in str(restarted.errors[0][1])
        assert not restarted.of(Grown)
        returning = Probe(await world.connect(), "s")
        returning.send(Listen("a", 2, 7))
        await returning.until(lambda: returning.errors, "the subscriber to notice")
        assert "deleted and created again" in str(returning.errors[0][1])


async def test_a_log_that_nobody_has_seen_may_be_made_anew() -> None:
    async with jetstream_world() as world:
        probe = Probe(await world.connect(), HOME)
        await probe.ask(Watch(frozenset({"a"})), Grown)
        await probe.ask(Listen("a", 0, 1), Listening)
        await make_anew(world, 2)
        await probe.until(lambda: probe.numbers("a") == [1, 2], "its events")
        await probe.until(lambda: Grown("a", 2) in probe.got, "its growth")
        assert not probe.errors


async def test_stamps_without_the_time_of_a_log_are_taken_as_they_are() -> None:
    """They were written before there was such a header."""

    async with jetstream_world() as world:
        broker = await world.connect()
        probe = Probe(broker, HOME)
        await probe.append("a", "a1", "a2", "a3")
        await probe.ask(Stamped("a", 1, 2, {}, 1), Kept)  # nobody watches: the log is not known
        await probe.ask(Listen("a", 1, 1), Listening)
        await probe.ask(Watch(frozenset({"a"})), Grown)
        await probe.ask(Stamped("a", 3, 3, {}, 1), Kept)
        connection = await world.plain_client()
        stream = broker.names.stamps_stream(HOME)
        stamps = [await connection.jsm().get_msg(stream, position) for position in (1, 2)]
        created = (await connection.jsm().stream_info(broker.names.log_stream("a"))).created
        await connection.close()
        assert created is not None
        assert LOG not in (stamps[0].headers or {})
        assert (stamps[1].headers or {})[LOG].startswith(created.isoformat()[:19])


async def test_a_log_restored_from_a_backup_is_the_same_log() -> None:
    async with jetstream_world() as world:
        broker, home = await three_ordered(world)
        stream = broker.names.log_stream("a")
        subscriber = Probe(await world.connect(), "s")
        await subscriber.ask(Listen("a", 0, 1), Listening)
        await subscriber.until(lambda: 3 in subscriber.numbers("a"), "the events")
        connection = await world.plain_client()
        backup = await back_up(connection, stream)
        await connection.jsm().delete_stream(stream)
        await restore(connection, stream, *backup)
        await connection.close()
        await home.append("a", "a4")
        await subscriber.until(lambda: subscriber.numbers("a") == [1, 2, 3, 4], "the next event")
        await home.ask(Watch(frozenset({"a"})), Grown)
        await home.until(lambda: Grown("a", 4) in home.got, "the next length")
        assert not subscriber.errors


async def back_up(connection: Client, stream: str) -> tuple[dict[str, object], list[bytes]]:
    """As the server's own tools do it: what it is, and its parts."""
    inbox = connection.new_inbox()
    parts = await connection.subscribe(inbox)
    question = json.dumps({"deliver_subject": inbox}).encode()
    answer = json.loads((await connection.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", question)).data)
    backup = []
    while (part := await parts.next_msg(10.0)).data:
        backup.append(part.data)
        if part.reply:
            await part.respond(b"")
    return {"config": answer["config"], "state": answer["state"]}, backup


async def restore(connection: Client, stream: str, what: dict[str, object], parts: list[bytes]) -> None:
    reply = await connection.request(f"$JS.API.STREAM.RESTORE.{stream}", json.dumps(what).encode())
    subject = json.loads(reply.data)["deliver_subject"]
    for part in parts:
        await connection.request(subject, part)
    done = json.loads((await connection.request(subject, b"", timeout=10.0)).data)
    assert "error" not in done, done
