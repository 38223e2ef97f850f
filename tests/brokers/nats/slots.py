"""The part of the conformance suite that is about ticket mode: write-once slots."""

import pytest

from seriatim.model import Event
from seriatim.protocols.with_broker import Delivered, Listen, Listening, Write, Written
from tests.brokers.conformance import Conformance, event, probes


class SlotConformance(Conformance):
    """For brokers whose slots only the first writer fills; run with the broker in ticket mode."""

    def mode(self) -> str:
        return "ticket"

    def log_only(self) -> None:
        pytest.skip("these tests are about ticket mode")

    def slots_only(self) -> None:
        if not self.has_slots:
            pytest.skip(
                "this broker keeps nothing, so a slot cannot be write-once: repeats are told apart by subscribers"
            )

    async def test_the_first_writer_of_a_slot_wins_for_everybody(self) -> None:
        self.slots_only()

        async with self.world() as world, probes(world, "p", "root", "s") as (publisher, home, subscriber):
            subscriber.broker.know({"u"})
            broker = await world.connect()
            a = self.topic(broker, "a")
            await subscriber.ask(Listen(a, None, 1), Listening)
            for number in range(1, 21):
                write, void = (
                    Write(a, number, {"u": number}, event(a, f"e{number}")),
                    Write(a, number, {"u": number}),
                )
                first, second = ((publisher, write), (home, void))[:: 1 if number % 2 else -1]
                told_first = await first[0].ask(first[1], Written)
                told_second = await second[0].ask(second[1], Written)
                winner = f"e{number}" if number % 2 else None
                assert told_first == told_second == Written(a, number, winner)
                assert await publisher.ask(write, Written) == Written(a, number, winner), "a repeat learns the same"
            await subscriber.until(lambda: len(subscriber.numbers(a)) >= 20, "all slots")
            assert subscriber.numbers(a) == list(range(1, 21)), "every slot once"
            assert subscriber.ids(a) == [f"e{number}" if number % 2 else None for number in range(1, 21)]
            assert [message.entries for message in subscriber.of(Delivered)] == [{"u": n} for n in range(1, 21)]

    async def test_two_writers_at_the_same_moment_hear_the_same(self) -> None:
        self.slots_only()

        async with self.world() as world, probes(world, "p", "root") as (publisher, home):
            broker = await world.connect()
            a = self.topic(broker, "a")
            await publisher.ask(Write(a, 1, {}, event(a, "e1")), Written)
            count = 200
            for number in range(2, count + 2):
                publisher.send(Write(a, number, {}, event(a, f"e{number}")))
                home.send(Write(a, number, {}))
            await publisher.until(lambda: len(publisher.of(Written)) == count + 1, "answers for the publisher")
            await home.until(lambda: len(home.of(Written)) == count, "answers for the home")
            heard = {written.number: written for written in publisher.of(Written)}
            assert all(heard[written.number] == written for written in home.of(Written))

    async def test_slots_out_of_order_are_all_replayed(self) -> None:
        if not self.replays:
            pytest.skip("this broker replays nothing")

        async with self.world() as world, probes(world, "p", "s") as (publisher, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "a")
            for number in (5, 6, 1, 9, 2, 4, 3, 8):
                await publisher.ask(Write(a, number, {"u": number}, event(a, f"e{number}")), Written)
            await subscriber.ask(Listen(a, 4, 1), Listening)
            await subscriber.until(lambda: {5, 6, 8, 9} <= set(subscriber.numbers(a)), "everything above 4")
            await publisher.ask(Write(a, 7, {}, None), Written)
            await subscriber.until(lambda: 7 in subscriber.numbers(a), "the void")
            assert sorted(subscriber.numbers(a)) == [5, 6, 7, 8, 9]

    async def test_an_event_in_a_slot_survives_whole(self) -> None:
        async with self.world() as world, probes(world, "p", "s") as (publisher, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "a")
            each = Event("id ü", a, "pub", bytes(range(256)), {"any key": "any\nvalue "}, "other.name")
            subscriber.broker.know({"u", "v w"})
            await subscriber.ask(Listen(a, None, 1), Listening)
            await publisher.ask(Write(a, 1, {"u": 3, "v w": 1 << 40}, each), Written)
            delivered = await subscriber.first(Delivered)
            assert (delivered.number, delivered.entries, delivered.event) == (1, {"u": 3, "v w": 1 << 40}, each)
