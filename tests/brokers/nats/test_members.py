"""The names in a bucket: added by several clients at once, by clients that die, lost and put back."""

import asyncio
import time

import pytest

from seriatim.brokers.naming import bucket_of
from seriatim.brokers.nats import members as members_module
from seriatim.brokers.nats.api import ApiRefused
from seriatim.brokers.nats.members import patience_s
from seriatim.model import InputError, Topic
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Grown,
    Listen,
    Listening,
    Watch,
)
from tests.brokers.conformance import HOME, Probe, event
from tests.brokers.nats.world import jetstream_world


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


def test_only_turns_that_do_not_end_make_a_client_patient() -> None:
    assert [patience_s(turns) for turns in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert patience_s(1_000) == 8.0, "the wait is bounded"


async def test_who_lost_the_race_for_the_turn_waits_no_longer_for_a_dead_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others win three races, and their turns end; the fourth winner dies. That costs one patience, not eight."""
    monkeypatch.setattr(members_module, "PATIENCE_S", 1.0)
    bucket, names = names_in_one_bucket(16, 2)

    async with jetstream_world(streams=16) as world:
        rival, broker = await world.connect(), await world.connect()
        probe = Probe(broker, "p")
        await probe.ask(Append(event(bucket, "e0", subject=names[0])), Appended)
        loser, winner = broker.streams.members, rival.streams.members
        take, races = loser._take_turn, list[float]()

        async def lose(bucket: str, position: int, dead: list[str]) -> bool:
            """Somebody else is a little faster."""
            if len(races) < 4:
                ended_at = await winner._set_turn(bucket, [f"rival{len(races)}"], position)
                assert ended_at is not None
                if len(races) < 3:
                    assert await winner._set_turn(bucket, [], ended_at) is not None
                races.append(time.monotonic())
            return await take(bucket, position, dead)

        monkeypatch.setattr(loser, "_take_turn", lose)
        await probe.ask(Append(event(bucket, "e1", subject=names[1])), Appended)
        assert len(races) == 4
        assert "from=rival3" in caplog.text
        assert 1.0 <= time.monotonic() - races[-1] < 4.0, "eight seconds, if each lost race doubled its patience"


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
