"""The server is killed, again and again, while events are appended, watched, stamped and listened to."""

import asyncio
import random
import time

import pytest

from seriatim.brokers.lives import Life
from seriatim.brokers.nats import watch as nats_watch
from seriatim.brokers.nats.port import JetStreamPort
from seriatim.brokers.nats.readers import UNKNOWN_S
from seriatim.brokers.nats.server import NatsServer
from seriatim.model import Topic
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Grown,
    Kept,
    Listen,
    Listening,
    Stamped,
    Watch,
    Write,
    Written,
)
from tests.brokers.conformance import HOME, WAIT_S, Probe, event
from tests.brokers.nats.world import JetStreamWorld, jetstream_world
from tests.waiting import a_moment, until

OUTAGES = 3


class Insistent(Probe):
    """Repeats soon, because here much is lost."""

    repeat_s = 1.0


class Publisher:
    """Appends one event after the other and repeats what is not answered, as the publisher's machine does."""

    def __init__(self, probe: Probe, topic: Topic, patience_s: float = WAIT_S) -> None:
        self.probe = probe
        self.topic = topic
        self.patience_s = patience_s
        self.numbers: dict[str, int] = {}
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            event_id = f"e{len(self.numbers) + 1}"
            answer = await self.probe.ask(Append(event(self.topic, event_id)), Appended, self.patience_s)
            self.numbers[event_id] = answer.number


class Home:
    """Watches a topic and stamps each range once, repeating what is not kept.

    It asks for the length again, too, as a sequencer does when a subscriber misses a stamp: the news of the last event
    may be lost with a server, and no other event comes after it here.
    """

    def __init__(self, probe: Probe, topic: Topic) -> None:
        self.probe = probe
        self.topic = topic
        self.issued = 0
        self.open: dict[int, Stamped] = {}
        self.seen = 0

    async def run(self) -> None:
        self.probe.send(Watch(frozenset({self.topic})))
        repeat_at = time.monotonic() + 0.5
        while True:
            for message in self.probe.got[self.seen :]:
                self.step(message)
            self.seen = len(self.probe.got)
            if time.monotonic() > repeat_at:
                repeat_at = time.monotonic() + 0.5
                self.probe.send(Watch(frozenset({self.topic})), *self.open.values())
            await a_moment(0.001)

    def step(self, message: object) -> None:
        if isinstance(message, Grown) and message.last > self.issued:
            stamp = Stamped(self.topic, self.issued + 1, message.last, {"u": message.last}, 1)
            self.issued = message.last
            self.open[stamp.first] = stamp
            self.probe.send(stamp)
        elif isinstance(message, Kept):
            self.open.pop(message.first, None)


async def kill_now_and_then(server: NatsServer, dice: random.Random) -> None:
    for _ in range(OUTAGES):
        await asyncio.sleep(dice.uniform(0.1, 0.5))
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(dice.uniform(0.0, 0.3))
        await server.restart()


@pytest.mark.parametrize("seed", [2])
async def test_nothing_that_was_acknowledged_is_lost_and_everything_goes_on_in_order(seed: int) -> None:
    async with NatsServer() as server, jetstream_world(server=server) as world:
        publisher = Publisher(Insistent(await world.connect(), "p"), "a")
        home = Home(Insistent(await world.connect(), HOME), "a")
        subscriber = Probe(await world.connect(), "s")
        await subscriber.ask(Listen("a", 0, 1), Listening)
        tasks = [asyncio.create_task(publisher.run()), asyncio.create_task(home.run())]
        await kill_now_and_then(server, random.Random(seed))
        publisher.stopped = True
        await tasks[0]
        last = max(publisher.numbers.values())
        assert last >= 3, "something was published"
        await subscriber.until(lambda: subscriber.numbers("a")[-1:] == [last], f"number {last}")
        await home.probe.until(lambda: home.issued == last, "the home to hear of everything")
        await home.probe.until(lambda: not home.open, "all stamps to be kept")
        await subscriber.until(lambda: subscriber.of(Stamped)[-1].last == last, "the last stamp")
        tasks[1].cancel()

        assert subscriber.numbers("a") == list(range(1, last + 1)), "every number once, in order"
        got = {message.event.id: message.number for message in subscriber.of(Delivered) if message.event}
        assert got == publisher.numbers, "what was acknowledged is there, where it was said to be"
        ranges = [(stamp.first, stamp.last) for stamp in subscriber.of(Stamped)]
        assert ranges[0][0] == 1
        assert [first for first, _ in ranges[1:]] == [last + 1 for _, last in ranges[:-1]], "each stamp once"
        assert not publisher.probe.errors and not home.probe.errors and not subscriber.errors


async def test_slots_survive_outages_and_stay_write_once() -> None:
    async with NatsServer() as server, jetstream_world(mode="ticket", server=server) as world:
        one, other = Insistent(await world.connect(), "p"), Insistent(await world.connect(), HOME)
        subscriber = Probe(await world.connect(), "s")
        await subscriber.ask(Listen("a", None, 1), Listening)
        outages = asyncio.create_task(kill_now_and_then(server, random.Random(3)))
        holds: dict[int, str | None] = {}
        number = 0
        while not outages.done():
            number += 1
            write, void = Write("a", number, {}, event("a", f"e{number}")), Write("a", number, {})
            told = await asyncio.gather(one.ask(write, Written), other.ask(void, Written))
            assert told[0] == told[1]
            holds[number] = told[0].event_id
        await outages
        await subscriber.until(lambda: len(set(subscriber.numbers("a"))) == number, "all slots")
        assert dict(zip(subscriber.numbers("a"), subscriber.ids("a"), strict=True)) == holds


async def test_a_subscriber_that_starts_while_the_server_is_away_starts_when_it_is_back() -> None:
    async with NatsServer() as server, jetstream_world(server=server) as world:
        broker = await world.connect()
        probe = Probe(broker, "p")
        await probe.append("a", "a1", "a2")
        await asyncio.to_thread(server.kill)
        probe.send(Listen("a", 1, 1), Watch(frozenset({"b"})))
        await probe.until(lambda: not broker.link.is_up, "the outage to be noticed")
        assert not probe.of(Listening)
        await server.restart()
        await probe.until(lambda: probe.of(Listening), "the answer")
        await probe.until(lambda: probe.numbers("a") == [2], "the event")
        await probe.until(lambda: probe.of(Grown) == [Grown("b", 0)], "the length")


async def test_lives_are_read_when_the_server_is_back() -> None:
    """A node that starts while the server is restarted asks who had its name before."""
    async with NatsServer() as server, jetstream_world(server=server) as world:
        broker = await world.connect()
        assert broker.lives is not None
        await broker.lives.claim("node", "eu").register(Life(epoch=1, holder="h1"))
        await asyncio.to_thread(server.kill)
        await until(lambda: not broker.link.is_up, "the outage to be noticed")
        asked = asyncio.create_task(broker.lives.claim("node", "eu").look())
        await server.restart()
        life = await asked
        assert life is not None and life.holder == "h1"


async def test_alarms_work_again_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the slow round, which finds everything in the end, only the alarm can tell."""
    monkeypatch.setattr(nats_watch, "ROUND_S", 3600.0)

    async with NatsServer() as server, jetstream_world(server=server) as world:
        home, publisher = Insistent(await world.connect(), HOME), Insistent(await world.connect(), "p")
        await home.ask(Watch(frozenset({"a"})), Grown)
        await server.restart()
        await publisher.append("a", "a1")
        await home.until(lambda: Grown("a", 1) in home.got, "growth after the outage")
        home.send(Stamped("a", 1, 1, {}, 1))
        await home.first(Kept)
        assert isinstance(home.port, JetStreamPort) and home.port._watcher is not None
        watched = home.port._watcher._watched["a"]

        def is_at_rest() -> bool:
            return not watched.asking and watched.due is not None and watched.due > time.monotonic() + 60.0

        await home.until(is_at_rest, "nothing to be due but the slow round")
        await publisher.append("a", "a2")
        await home.until(lambda: Grown("a", 2) in home.got, "growth")


async def test_consumers_that_vanish_are_made_again() -> None:
    async with jetstream_world() as world:
        subscriber, publisher = Probe(await world.connect(), "s"), Probe(await world.connect(), "p")
        await subscriber.ask(Listen("a", 0, 1), Listening)
        await publisher.append("a", "a1")
        await subscriber.until(lambda: subscriber.numbers("a") == [1], "the first")
        await delete_consumers(world, "a")
        await publisher.append("a", "a2")
        await subscriber.until(lambda: subscriber.numbers("a") == [1, 2], "the second")


async def delete_consumers(world: JetStreamWorld, topic: Topic) -> None:
    connection = await world.plain_client()
    manager = connection.jsm()
    stream = world.brokers[0].names.log_stream(topic)
    consumers = await manager.consumers_info(stream)
    assert consumers, "there was one to delete"
    for consumer in consumers:
        await manager.delete_consumer(stream, consumer.name)
    await connection.close()


async def test_a_consumer_that_our_server_does_not_know_yet_is_asked_again() -> None:
    """At another site of a super-cluster: word of a new consumer travels, and a question may be there before it."""

    async with jetstream_world() as world:
        broker = await world.connect()
        subscriber, publisher = Probe(broker, "s"), Probe(await world.connect(), "p")
        await subscriber.ask(Listen("t", 0, 1), Listening)
        readers = [reader for reader in broker.readers.by_number.values() if reader._consumer]
        consumers = [reader._consumer for reader in readers]
        assert consumers
        for reader in readers:
            reader.take_status({"Status": "503"})
        await publisher.ask(Append(event("t", "e1")), Appended)
        await subscriber.until(lambda: len(subscriber.of(Delivered)) == 1, "the event")
        assert [reader._consumer for reader in readers] == consumers, "no need for another one"
        for reader in readers:
            for _ in range(len(UNKNOWN_S) + 1):  # nobody ever answers: it is gone
                reader.take_status({"Status": "503"})
        await publisher.ask(Append(event("t", "e2")), Appended)
        await subscriber.until(lambda: len(subscriber.of(Delivered)) == 2, "the event after it")
        assert not set(consumers) & {reader._consumer for reader in readers}
