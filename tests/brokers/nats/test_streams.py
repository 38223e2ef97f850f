"""Streams: created by several at once, owned by others, trimmed, with holes, deleted and created again."""

import asyncio
import time

import pytest
from msgspec.structs import replace
from nats.js.api import RetentionPolicy, StreamConfig

from seriatim.brokers.naming import bucket_of
from seriatim.brokers.nats.api import ApiRefused
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.messages import decode_stamps
from seriatim.brokers.nats.server import NatsServer
from seriatim.model import InputError, RequestRefused, Topic
from seriatim.order import TopicNames
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Grown,
    Kept,
    Listen,
    Listening,
    Stamped,
    Trimmed,
    Voids,
    Watch,
    Write,
    Written,
)
from tests.brokers.conformance import HOME, Probe, event, probes
from tests.brokers.nats.world import jetstream_world


async def test_many_clients_use_new_topics_at_once() -> None:
    async with jetstream_world() as world:
        found = [Probe(await world.connect(), f"p{index}") for index in range(6)]
        topics = [f"t.{index}" for index in range(4)]
        for index, probe in enumerate(found):
            probe.send(*[Append(event(topic, f"{index} {topic}")) for topic in topics])
        for probe in found:
            await probe.until(lambda probe=probe: len(probe.of(Appended)) == 4, "answers")  # type: ignore[misc]
            assert not probe.errors
        for topic in topics:
            numbers = [each.number for probe in found for each in probe.of(Appended) if each.topic == topic]
            assert sorted(numbers) == [1, 2, 3, 4, 5, 6]


def names_in_one_bucket(buckets: int, count: int) -> tuple[Topic, list[Topic]]:
    bucket = bucket_of("n0", buckets)
    names = [f"n{index}" for index in range(1000) if bucket_of(f"n{index}", buckets) == bucket]
    return bucket, names[:count]


async def test_many_clients_add_names_to_one_bucket_at_once() -> None:
    bucket, names = names_in_one_bucket(16, 24)

    async with jetstream_world(streams=16) as world:
        found = [Probe(await world.connect(), name) for name in names]
        for name, probe in zip(names, found, strict=True):
            probe.send(Append(event(bucket, f"e {name}", subject=name)))
        for probe in found:
            await probe.first(Appended)
            assert not probe.errors
        numbers = [probe.of(Appended)[0].number for probe in found]
        assert sorted(numbers) == list(range(1, len(names) + 1))
        subscriber = Probe(await world.connect(), "s")
        await subscriber.ask(Listen(bucket, 0, 1), Listening)
        await subscriber.until(lambda: len(subscriber.of(Delivered)) == len(names), "all events")
        subjects = {each.event.subject for each in subscriber.of(Delivered) if each.event}
        assert subjects == set(names)


async def test_a_client_that_dies_while_it_adds_a_name_delays_nobody_and_undoes_nothing() -> None:
    """Its update may arrive at any time: before somebody takes over, or long after."""
    bucket, names = names_in_one_bucket(16, 6)

    async with jetstream_world(streams=16) as world:
        broker = await world.connect()
        probe = Probe(broker, "p")
        await probe.ask(Append(event(bucket, "e0", subject=names[0])), Appended)
        stream, members = broker.names.log_stream(bucket), broker.streams.members
        for arrives_late, name in ((False, names[1]), (True, names[2])):
            position, nobody = await members._turn(bucket)
            assert not nobody
            assert await members._set_turn(bucket, ["dead"], position)
            update = await members._next_configuration(bucket, "dead")
            if not arrives_late:
                await broker.api.update_stream(update)
            asked_at = time.monotonic()
            await probe.ask(Append(event(bucket, f"e {name}", subject=name)), Appended)
            assert time.monotonic() - asked_at < 10, "a second, on a machine with time to spare"
            if arrives_late:
                with pytest.raises(ApiRefused, match="overlap"):
                    await broker.api.update_stream(update)
            captured = (await broker.api.info(stream)).config.subjects
            assert {names[0], name} <= set(captured)


async def test_an_update_that_arrives_while_somebody_takes_over_replaces_nothing_newer() -> None:
    bucket, names = names_in_one_bucket(16, 1)

    async with jetstream_world(streams=16) as world:
        dead, broker = await world.connect(), await world.connect()
        await Probe(broker, "p").ask(Append(event(bucket, "e0", subject=names[0])), Appended)
        stream, members = broker.names.log_stream(bucket), broker.streams.members
        for attempt in range(10):
            update = await members._next_configuration(bucket, f"dead{attempt}")
            late = asyncio.create_task(dead.api.update_stream(update))
            await members._rule_out(bucket, f"dead{attempt}")
            newer = await members._next_configuration(bucket, f"new{attempt}")
            await broker.api.update_stream(newer)
            await asyncio.wait([late])
            late.exception()
            assert (await broker.api.info(stream)).config.subjects == newer["subjects"]


async def test_a_home_adds_names_that_its_bucket_has_lost() -> None:
    bucket, names = names_in_one_bucket(16, 2)

    async with jetstream_world(streams=16) as world:
        home, publisher = Probe(await world.connect(), HOME), Probe(await world.connect(), "p")
        for name in names:
            await publisher.ask(Append(event(bucket, f"e {name}", subject=name)), Appended)
        await home.ask(Watch(frozenset({bucket})), Grown)
        api, stream = world.brokers[0].api, world.brokers[0].names.log_stream(bucket)
        config = await api.configuration(stream)
        await api.update_stream({**config, "subjects": [each for each in config["subjects"] if each != names[0]]})
        home.send(Watch(frozenset({bucket})))
        while names[0] not in (await api.info(stream)).config.subjects:
            pass
        await world.publish_plainly(names[0], b"by anybody")
        await home.until(lambda: Grown(bucket, 3) in home.got, "growth")


async def test_a_name_added_to_a_bucket_later_is_watched() -> None:
    bucket, names = names_in_one_bucket(16, 2)

    async with jetstream_world(streams=16) as world:
        home, publisher = Probe(await world.connect(), HOME), Probe(await world.connect(), "p")
        await home.ask(Watch(frozenset({bucket})), Grown)
        for last, name in enumerate(names, 1):
            await publisher.ask(Append(event(bucket, f"e {name}", subject=name)), Appended)
            await home.until(lambda last=last: Grown(bucket, last) in home.got, "growth")  # type: ignore[misc]


async def test_a_bucket_whose_subjects_were_replaced_gets_them_back() -> None:
    bucket, names = names_in_one_bucket(16, 2)

    async with jetstream_world(streams=16) as world:
        broker = await world.connect()
        probe = Probe(broker, "p")
        await probe.ask(Append(event(bucket, "e1", subject=names[0])), Appended)
        config = await broker.api.configuration(broker.names.log_stream(bucket))
        without = [subject for subject in config["subjects"] if subject != names[0]]
        await broker.api.update_stream({**config, "subjects": without})
        assert (await probe.ask(Append(event(bucket, "e2", subject=names[0])), Appended)).number == 2


async def test_a_stream_that_captures_exactly_the_topic_is_used() -> None:
    async with jetstream_world() as world:
        connection = await world.plain_client()
        await connection.jetstream().add_stream(name="THEIRS", subjects=["orders"])
        await connection.jetstream().publish("orders", b"before us")
        probe = Probe(await world.connect(), "p")
        assert await probe.append("orders", "o2") == [2]
        await probe.ask(Listen("orders", 0, 1), Listening)
        await probe.until(lambda: len(probe.of(Delivered)) == 2, "both")
        assert probe.ids("orders") == ["orders-1", "o2"]
        await connection.close()


@pytest.mark.parametrize(
    ("subjects", "retention", "said"),
    [
        (["orders", "more"], RetentionPolicy.LIMITS, "captures orders, more"),
        (["orders.>"], RetentionPolicy.LIMITS, r"captures orders\.>"),
        (["orders.new"], RetentionPolicy.WORK_QUEUE, "workqueue"),
    ],
)
async def test_streams_that_cannot_be_used_are_named(
    subjects: list[str], retention: RetentionPolicy, said: str
) -> None:
    topic = "orders.new" if subjects[0].startswith("orders.") else "orders"

    async with jetstream_world() as world:
        connection = await world.plain_client()
        await connection.jetstream().add_stream(name="THEIRS", subjects=subjects, retention=retention)
        probe = Probe(await world.connect(), "p")
        for message in (Append(event(topic, "o1")), Listen(topic, 0, 1), Watch(frozenset({topic}))):
            probe.errors.clear()
            probe.send(message)
            await probe.until(lambda: probe.errors, "an error")
            refused, error = probe.errors[0]
            assert refused == message and isinstance(error, InputError)
            assert "THEIRS" in str(error)
            with pytest.raises(InputError, match=said):
                raise error
        await connection.close()


async def test_what_was_refused_works_when_the_reason_is_gone() -> None:
    async with jetstream_world() as world:
        connection = await world.plain_client()
        await connection.jetstream().add_stream(name="THEIRS", subjects=["orders.>"])
        probe = Probe(await world.connect(), "p")
        messages = (Append(event("orders.new", "o1")), Listen("orders.new", 0, 1), Watch(frozenset({"orders.new"})))
        probe.send(*messages)
        await probe.until(lambda: len(probe.errors) == 3, "three errors")
        await connection.jsm().delete_stream("THEIRS")
        await connection.close()
        probe.send(*messages)
        await probe.until(lambda: probe.of(Appended) and probe.of(Listening) and probe.of(Grown), "answers")
        await probe.until(lambda: probe.numbers("orders.new") == [1], "the event")


async def test_a_topic_that_another_stream_captures_cannot_be_in_a_bucket() -> None:
    bucket, names = names_in_one_bucket(16, 2)

    async with jetstream_world(streams=16) as world:
        connection = await world.plain_client()
        await connection.jetstream().add_stream(name="THEIRS", subjects=[names[0]])
        probe = Probe(await world.connect(), "p")
        probe.send(*[Append(event(bucket, f"e{index}", subject=name)) for index, name in enumerate(names)])
        await probe.until(lambda: probe.errors and probe.of(Appended), "an error, and an answer to the one beside it")
        [(refused, error)] = probe.errors
        assert isinstance(refused, Append) and refused.event.id == "e0" and "THEIRS" in str(error)
        await probe.ask(Append(event(bucket, "e2", subject=names[1])), Appended)
        with pytest.raises(InputError, match="THEIRS"):
            await world.brokers[0].capture(names)
        await connection.close()


async def test_a_log_trimmed_while_somebody_listens_says_so() -> None:
    async with jetstream_world() as world:
        subscriber, publisher = Probe(await world.connect(), "s"), Probe(await world.connect(), "p")
        await subscriber.ask(Listen("a", 0, 1), Listening)
        await publisher.append("a", "a1")
        await subscriber.until(lambda: subscriber.numbers("a") == [1], "the first")
        subscriber.port.pause()
        for first in range(2, 2002, 500):
            publisher.send(*[Append(event("a", f"a{n}")) for n in range(first, first + 500)])
        await publisher.until(lambda: len(publisher.of(Appended)) == 2001, "answers")
        await world.trim("a", 1900)
        subscriber.port.resume()
        await subscriber.until(lambda: subscriber.numbers("a")[-1] == 2001, "the last")
        numbers = subscriber.numbers("a")
        assert Trimmed("a", 1900) in subscriber.got
        assert numbers[numbers.index(1900) :] == list(range(1900, 2002))
        assert numbers[: numbers.index(1900)] == list(range(1, numbers.index(1900) + 1))


async def test_single_deleted_messages_are_voids() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        probe = Probe(broker, "p")
        await probe.append("a", *[f"a{number}" for number in range(1, 8)])
        connection = await world.plain_client()
        for number in (3, 4, 6):
            await connection.jsm().delete_msg(broker.names.log_stream("a"), number)
        await connection.close()
        await probe.ask(Listen("a", 0, 1), Listening)
        await probe.until(lambda: 7 in probe.numbers("a"), "the last")
        assert probe.ids("a") == ["a1", "a2", "a5", "a7"]
        assert probe.numbers("a") == [1, 2, 5, 7]
        assert probe.of(Voids) == [Voids("a", 3, 4), Voids("a", 6, 6)]
        assert not probe.of(Trimmed)


async def test_a_log_made_anew_is_not_taken_for_the_old_one() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        home = Probe(broker, HOME)
        await home.append("a", "a1", "a2", "a3")
        await home.ask(Watch(frozenset({"a"})), Grown)
        await home.ask(Stamped("a", 1, 3, {}, 1), Kept)
        await home.ask(Listen("a", 0, 1), Listening)
        await home.until(lambda: 3 in home.numbers("a"), "the events")
        connection = await world.plain_client()
        await connection.jsm().delete_stream(broker.names.log_stream("a"))
        await connection.jetstream().add_stream(name=broker.names.log_stream("a"), subjects=["a"])
        await connection.close()
        await home.until(lambda: home.errors, "the reader to notice")
        home.errors.clear()
        home.send(Watch(frozenset({"a"})))
        await home.until(lambda: home.errors, "the watcher to notice")
        assert "deleted and created again" in str(home.errors[0][1])

        restarted = Probe(await world.connect(), HOME)
        restarted.send(Watch(frozenset({"a"})))
        await restarted.until(lambda: restarted.errors, "a new process to notice, too")
        assert not restarted.of(Grown)
        restarted.errors.clear()
        restarted.send(Listen("a", 3, 2))
        await restarted.until(lambda: restarted.errors, "a new subscriber to notice")


async def test_a_slot_can_be_filled_once_by_anybody() -> None:
    async with jetstream_world(mode="ticket") as world:
        broker = await world.connect()
        probe = Probe(broker, "p")
        await probe.ask(Listen("a", None, 1), Listening)
        await probe.ask(Write("a", 1, {}, event("a", "e1")), Written)
        connection = await world.plain_client()
        prefix = broker.names.slots_subject("a")
        refusal = await connection.request(f"{prefix}.0.1", b"nonsense", timeout=60)
        assert b"maximum messages per subject" in refusal.data
        await connection.request(f"{prefix}.0.2", b"nonsense", timeout=60)
        await connection.close()
        assert await probe.ask(Write("a", 2, {}, event("a", "e2")), Written) == Written("a", 2, None)
        await probe.until(lambda: probe.numbers("a") == [1, 2], "both")
        assert probe.ids("a") == ["e1", None], "nonsense counts as a void"


async def test_slots_far_apart_are_found() -> None:
    """Blocks are searched one after the other; a far one that was written first must not be missed."""

    async with jetstream_world(mode="ticket") as world:
        probe = Probe(await world.connect(), "p")
        for number in (70_000, 5, 20_000, 9_000, 6):
            await probe.ask(Write("a", number, {}, event("a", f"e{number}")), Written)
        await probe.ask(Listen("a", 5, 1), Listening)
        await probe.until(lambda: len(probe.numbers("a")) == 4, "all above 5")
        assert sorted(probe.numbers("a")) == [6, 9_000, 20_000, 70_000]


async def test_nonsense_on_the_stamp_channel_is_reported_and_passed_over() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        home = Probe(broker, HOME)
        await home.append("a", "a1", "a2")
        await home.ask(Stamped("a", 1, 1, {}, 1), Kept)
        subscriber = Probe(await world.connect(), "s")
        await subscriber.ask(Listen("a", 0, 1), Listening)
        await subscriber.first(Stamped)
        broker.link.publish(broker.names.stamps_subject(HOME, "a"), b"nonsense")
        await subscriber.until(lambda: subscriber.errors, "a report")
        assert "not a stamp" in str(subscriber.errors[0][1])


async def test_without_jetstream_the_error_says_what_to_do() -> None:
    async with NatsServer(config="jetstream: disabled") as server:
        broker = JetStreamBroker(server.url)
        await broker.open()
        probe = Probe(broker, "p")
        for message in (Append(event("a", "a1")), Listen("a", 0, 1), Watch(frozenset({"a"}))):
            probe.errors.clear()
            probe.send(message)
            await probe.until(lambda: probe.errors, "an error")
            assert isinstance(probe.errors[0][1], RequestRefused) and "-js" in str(probe.errors[0][1])
        await broker.close()


async def test_replicas_that_the_server_cannot_give_are_refused() -> None:
    async with jetstream_world() as world:
        broker = JetStreamBroker(world.server.url, cluster=world.cluster, options=world.options(replicas=3))
        await broker.open()
        probe = Probe(broker, "p")
        probe.send(Append(event("a", "a1")))
        await probe.until(lambda: probe.errors, "an error")
        assert "replicas" in str(probe.errors[0][1])
        await broker.close()


async def test_headers_that_would_not_arrive_are_refused() -> None:
    async with jetstream_world() as world:
        probe = Probe(await world.connect(), "p")
        for headers in (
            {"a b": "x"},
            {"Nats-Rollup": "all"},
            {"a": "x\ny"},
            {"a": " x"},
            {"seriatim-publisher": "x"},
        ):
            probe.errors.clear()
            probe.send(Append(replace(event("a", "bad"), headers=headers)))
            await probe.until(lambda: probe.errors, "an error")
            assert isinstance(probe.errors[0][1], InputError)
        assert await probe.append("a", "a1") == [1]


async def test_asyncio_tasks_end_with_the_broker() -> None:
    async with jetstream_world() as world:
        before = asyncio.all_tasks()
        broker = await world.connect()
        probe = Probe(broker, HOME)
        await probe.append("a", "a1")
        await probe.ask(Listen("a", 0, 1), Listening)
        await probe.ask(Watch(frozenset({"a"})), Grown)
        await broker.close()
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert not left, left


async def test_messages_larger_than_one_question_asks_for_are_delivered() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        publisher, subscriber = Probe(broker, "p"), Probe(await world.connect(), "s")
        sizes = [100, 5_000_000, 10, 3_000_000, 3_000_000, 20]
        for index, size in enumerate(sizes):
            await publisher.ask(Append(event("a", f"e{index}", b"x" * size)), Appended)
        await subscriber.ask(Listen("a", 0, 1), Listening)
        await subscriber.until(lambda: len(subscriber.numbers("a")) == len(sizes), "all of them")
        assert [len(each.event.payload) for each in subscriber.of(Delivered) if each.event] == sizes


async def test_stamps_that_retention_took_are_said_to_be_gone_when_their_home_has_kept_them() -> None:
    """A stream of somebody else may keep events for longer than the cluster keeps stamps."""

    async with jetstream_world() as world:
        broker = await world.connect()
        probe = Probe(broker, HOME)
        await probe.append("a", *[f"a{number}" for number in range(1, 7)])
        for number in range(1, 6):
            await probe.ask(Stamped("a", number, number, {}, 1), Kept)
        connection = await world.plain_client()
        stamps = broker.names.stamps_stream(HOME)

        async def trimmed_for(after: int, version: int, is_kept: bool) -> list[Trimmed]:
            probe.clear()
            await probe.ask(Listen("a", after, version, is_kept=is_kept), Listening)
            return list(probe.of(Trimmed))

        assert await trimmed_for(0, 1, is_kept=True) == [], "all are there"
        await connection.jetstream().purge_stream(stamps, seq=4)
        assert await trimmed_for(1, 2, is_kept=True) == [Trimmed("a", 4)]
        assert await trimmed_for(3, 3, is_kept=True) == []
        await connection.jetstream().purge_stream(stamps)
        assert await trimmed_for(1, 4, is_kept=True) == [Trimmed("a", 3)], "no more is known to be gone"
        assert await trimmed_for(5, 5, is_kept=False) == [], "this one may be to come"
        await connection.close()


async def test_slots_that_retention_took_are_said_to_be_gone() -> None:
    async with jetstream_world(mode="ticket") as world:
        broker = await world.connect()
        probe = Probe(broker, "p")
        for number in range(1, 8):
            await probe.ask(Write("a", number, {}, event("a", f"e{number}")), Written)
        connection = await world.plain_client()
        await connection.jetstream().purge_stream(broker.names.slots_stream("a"), seq=5)
        await connection.close()
        await probe.ask(Listen("a", 2, 1), Listening)
        await probe.until(lambda: probe.numbers("a") == [5, 6, 7], "what is left")
        assert probe.of(Trimmed) == [Trimmed("a", 5)]
        probe.clear()
        await probe.ask(Listen("a", 5, 2), Listening)
        await probe.until(lambda: probe.numbers("a") == [6, 7], "what is asked for")
        assert not probe.of(Trimmed)
        await probe.ask(Listen("a", 7, 3), Listening)
        assert not probe.of(Trimmed), "it may be to come"
        await probe.ask(Listen("a", 7, 4, is_kept=True), Listening)
        assert probe.of(Trimmed) == [Trimmed("a", 9)]


async def test_a_stamp_that_was_refused_is_not_passed_over() -> None:
    """The disk is full for a moment, say. What follows must not be kept before it: then it would count as kept."""

    async with jetstream_world() as world, probes(world, "root") as (home,):
        names = world.brokers[0].names
        plain = await world.plain_client()
        config = StreamConfig(
            name=names.stamps_stream("root"), subjects=[names.stamps_subject("root")], max_msg_size=100
        )
        await plain.jetstream().add_stream(config)
        await home.ask(Watch(frozenset({"a"})), Grown)
        large = Stamped("a", 1, 5, {f"topic {i}": i for i in range(100)}, 1)
        home.send(large, Stamped("a", 6, 9, {}, 1))
        await home.until(lambda: home.errors, "a refusal")
        config.max_msg_size = -1
        await plain.jetstream().update_stream(config)
        home.send(large, Stamped("a", 6, 9, {}, 1))
        await home.until(lambda: {kept.first for kept in home.of(Kept)} == {1, 6}, "both are kept")
        first = await plain.jetstream().get_msg(names.stamps_stream("root"), 1)
        names_known = TopicNames()
        names_known.know(large.entries)
        assert decode_stamps(first.data or b"", "a", names_known)[0] == large
        await plain.close()


async def test_of_many_processes_that_register_a_layout_at_once_one_succeeds() -> None:
    for _ in range(8):
        async with jetstream_world() as world:
            brokers = [await world.connect() for _ in range(6)]
            versions = await asyncio.gather(*(each.register("layout").write(b"mine", 0) for each in brokers))
            assert sorted(versions, key=bool) == [None] * 5 + [1]
