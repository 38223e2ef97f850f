"""Each home writes the stamps that it gives on its own channel; readers go from channel to channel."""

import pytest

from seriatim.brokers.nats.channels import MovedMark, decode_mark, is_mark, last_message
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.messages import decode_stamps
from seriatim.protocols.with_broker import (
    Appended,
    Begin,
    Begun,
    Discard,
    Discarded,
    Follow,
    Grown,
    Kept,
    Listen,
    Listening,
    Stamped,
    StampedTo,
    Trimmed,
    Unwatch,
    Unwatched,
    Watch,
)
from tests.brokers.conformance import HOME, Probe
from tests.brokers.nats.world import JetStreamWorld, jetstream_world

NODES = (HOME, "eu", "us")


def stamp(first: int, last: int = 0, epoch: int = 1) -> Stamped:
    return Stamped("a", first, last or first, {}, epoch)


class Homes:
    """Nodes that the topic `a` moves between. It begins on the first."""

    def __init__(self, world: JetStreamWorld, probes: dict[str, Probe]) -> None:
        self.world = world
        self.probes = probes
        self.at, self.issued, self.moves = HOME, 0, 0

    async def stamp(self, count: int = 1) -> None:
        for _ in range(count):
            self.issued += 1
            await self.probes[self.at].ask(stamp(self.issued, epoch=self.moves + 1), Kept)

    async def move(self, to: str, *, marks: bool = True) -> Unwatch:
        """`marks`: else the former home crashes before it writes its mark."""
        self.moves += 1
        left = Unwatch("a", to, self.issued, self.moves)
        if marks:
            await self.probes[self.at].ask(left, Unwatched)
        self.at = to
        self.probes[to].send(Watch(frozenset({"a"}), {"a": self.issued}))
        return left

    async def reader(self, after: int | None, *, is_kept: bool = False, home: str = HOME, name: str = "s") -> Probe:
        """A subscriber that believes the topic to live on `home`."""
        broker = await self.world.connect()
        broker.configure("log", lambda topic: home)
        probe = Probe(broker, name)
        await probe.ask(Listen("a", after, 1, is_kept=is_kept), Listening)
        return probe

    async def reads(self, probe: Probe, after: int) -> None:
        """All stamps come, each once and in order."""
        await probe.until(lambda: any(each.last == self.issued for each in probe.of(Stamped)), f"{self.issued}")
        assert [each.first for each in probe.of(Stamped)] == list(range(after + 1, self.issued + 1))
        assert not probe.errors


async def homes(world: JetStreamWorld, events: int = 40) -> Homes:
    publisher = Probe(await world.connect(), "p")
    await publisher.append("a", *[f"a{number}" for number in range(1, events + 1)])
    return Homes(world, {node: Probe(await world.connect(), node) for node in NODES})


async def test_readers_go_from_channel_to_channel() -> None:
    """Those who were there all the time, those who begin in the middle, and those who believe in any map."""
    async with jetstream_world() as world:
        topic = await homes(world)
        early = await topic.reader(0, name="early")
        follower = Probe(await world.connect(), "f")
        follower.send(Follow("a"))
        for to in ("eu", HOME, "us", "eu"):
            await topic.stamp(3)
            await topic.move(to)
        await topic.stamp(2)
        await topic.reads(early, 0)
        await follower.until(lambda: StampedTo("a", 14) in follower.of(StampedTo), "the last stamp")
        for after in range(15):
            for home in NODES:
                late = await topic.reader(after, home=home, name=f"late{after}{home}")
                if after < 14:
                    await topic.reads(late, after)
                else:
                    await late.port.close()
        waiting = [await topic.reader(14, home=home, name=f"end{home}") for home in NODES]
        await topic.stamp()
        for probe in waiting:
            await topic.reads(probe, 14)
        held = [await stamps_of(world.brokers[0], node) for node in NODES]
        assert held == [[1, 2, 3, 7, 8, 9], [4, 5, 6, 13, 14, 15], [10, 11, 12]], "each home wrote what it gave"


async def stamps_of(broker: JetStreamBroker, node: str) -> list[int]:
    stream = broker.names.stamps_stream(node)
    last = (await broker.api.info(stream)).state.last_seq
    found = [await broker.api.message(stream, {"seq": position}) for position in range(1, last + 1)]
    return [
        each.first
        for stored in found
        if stored is not None and not is_mark(stored.data)
        for each in decode_stamps(stored.data, "a")
    ]


@pytest.mark.parametrize("events", [0, 2])
async def test_a_topic_that_moves_twice_before_it_is_used(events: int) -> None:
    async with jetstream_world() as world:
        topic = await homes(world)
        early = await topic.reader(0, name="early")
        await topic.stamp(events)
        await topic.move("eu")
        await topic.move(HOME)
        between = [await topic.reader(events, home=home, name=f"between{home}") for home in NODES[:2]]
        await topic.stamp(2)
        for probe in between:
            await topic.reads(probe, events)
        await topic.reads(early, 0)


async def test_a_mark_is_written_behind_all_stamps_and_once() -> None:
    async with jetstream_world() as world:
        topic = await homes(world)
        await topic.stamp(2)
        left = await topic.move("eu")
        stored = await last_message(world.brokers[0], HOME, "a")
        assert stored is not None
        assert decode_mark(stored.data, "a") == MovedMark("eu", 2, 1, 1)
        restarted = Probe(await world.connect(), HOME)
        begun = await restarted.ask(Begin(5), Begun)
        assert begun.stamped == {"a": 2}, "what it had stamped when the topic left"
        await restarted.ask(left, Unwatched)
        again = await last_message(world.brokers[0], HOME, "a")
        assert again is not None
        assert again.seq == stored.seq, "a repeat"
        assert await world.brokers[0].stamped_epoch(HOME) == 5


async def test_a_mark_that_comes_too_late_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that the stamps go on elsewhere, behind stamps that came later."""
    monkeypatch.setattr("seriatim.brokers.nats.stamps.PREDECESSOR_S", 0.0)
    async with jetstream_world() as world:
        topic = await homes(world)
        await topic.stamp(2)
        left = await topic.move("eu", marks=False)
        await topic.stamp(2)
        await topic.move(HOME)
        topic.probes[HOME] = Probe(await world.connect(), HOME)
        await topic.stamp()
        stored = await last_message(world.brokers[0], HOME, "a")
        assert stored is not None
        assert not is_mark(stored.data)
        restarted = Probe(await world.connect(), HOME)
        await restarted.ask(left, Unwatched)
        again = await last_message(world.brokers[0], HOME, "a")
        assert again is not None
        assert again.seq == stored.seq


async def test_without_the_mark_a_subscriber_that_listens_again_finds_the_way() -> None:
    """The former home crashed between the switch and its mark, and stays away."""
    async with jetstream_world() as world:
        topic = await homes(world)
        await topic.stamp(2)
        stuck = await topic.reader(0, name="stuck")
        await topic.reads(stuck, 0)
        left = await topic.move("eu", marks=False)
        await topic.stamp(2)
        again = await topic.reader(2, is_kept=True, name="again")
        await topic.reads(again, 2)
        assert not again.of(Trimmed)
        follower = Probe(await world.connect(), "f")
        follower.send(Follow("a"))
        await follower.until(lambda: StampedTo("a", 2) in follower.of(StampedTo), "as far as that channel goes")
        follower.send(Follow("a"))
        await follower.until(lambda: StampedTo("a", 4) in follower.of(StampedTo), "all")
        fresh = await topic.reader(2, home="eu", name="fresh")
        await topic.reads(fresh, 2)
        restarted = Probe(await world.connect(), HOME)
        await restarted.ask(left, Unwatched)
        await topic.reads(stuck, 0)


async def test_without_the_mark_a_hole_is_filled_from_another_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.brokers.nats.stamps.PREDECESSOR_S", 0.0)
    async with jetstream_world() as world:
        topic = await homes(world)
        await topic.stamp(2)
        early = await topic.reader(0, name="early")
        await topic.reads(early, 0)
        await topic.move("eu", marks=False)
        await topic.stamp(3)
        await topic.move(HOME)
        topic.probes[HOME] = Probe(await world.connect(), HOME)
        await topic.stamp(2)
        await topic.reads(early, 0)
        late = await topic.reader(3, name="late")
        await topic.reads(late, 3)


async def test_stamps_that_no_channel_has_any_more_are_missed_by_name() -> None:
    async with jetstream_world() as world:
        topic = await homes(world)
        await topic.stamp(2)
        await topic.move("eu")
        await topic.stamp(4)
        broker = world.brokers[0]
        await broker.api.purge_stream(broker.names.stamps_stream("eu"), 4)
        probe = await topic.reader(2, is_kept=True)
        assert probe.of(Trimmed) == [Trimmed("a", 6)]
        await probe.until(lambda: probe.of(Stamped), "what is left")
        assert [each.first for each in probe.of(Stamped)] == [6]


async def test_a_home_that_follows_hears_at_once_of_what_comes() -> None:
    """What was stamped elsewhere meanwhile is not taken for growth that it must stamp first."""
    async with jetstream_world() as world:
        topic = await homes(world, 0)
        publisher = Probe(await world.connect(), "p")
        for number in range(1, 7):
            home = topic.probes[topic.at]
            home.clear()
            home.send(Watch(frozenset({"a"}), {"a": topic.issued}))
            await home.first(Grown)
            assert not home.port.watcher._watched["a"].waits_for, "for a stamp of what was stamped elsewhere"  # type: ignore[attr-defined]
            await publisher.append("a", f"a{number}")
            await home.until(lambda home=home, number=number: Grown("a", number) in home.of(Grown), "news")  # type: ignore[misc]
            await topic.stamp()
            await topic.move(NODES[number % 2])
            assert not home.errors


async def test_a_log_that_was_made_anew_while_its_topic_moved_is_noticed() -> None:
    async with jetstream_world() as world:
        topic = await homes(world, 3)
        await topic.stamp(3)
        broker = world.brokers[0]
        connection = await world.plain_client()
        await connection.jetstream().delete_stream(broker.names.log_stream("a"))
        await connection.close()
        await topic.move("eu")
        new = topic.probes["eu"]
        await new.until(lambda: new.errors, "the error")
        assert "3 positions of it were seen already" in str(new.errors[0][1])


async def test_a_topic_that_was_removed_where_it_had_moved_goes_on_behind_its_last_number() -> None:
    """The mark on its first channel is of the log that was removed: nobody takes the new one for a wrong one."""
    async with jetstream_world() as world:
        topic = await homes(world, 3)
        first, new = topic.probes[HOME], topic.probes["eu"]
        await first.ask(Watch(frozenset({"a"})), Grown)  # so its stamps and its mark name the log
        await topic.stamp(3)
        await topic.move("eu")
        await new.until(lambda: new.of(Grown), "it is watched")
        await new.ask(Discard("a", 3, 2), Discarded)
        publisher = Probe(await world.connect(), "p")  # it still takes the first home for the home
        await publisher.append("a", "a4", "a5")
        assert [each.number for each in publisher.of(Appended)] == [4, 5]
        publisher.send(Follow("a"))
        assert (await publisher.first(StampedTo)) == StampedTo("a", 3)
        new.send(Watch(frozenset({"a"}), {"a": 3}))
        await new.until(lambda: Grown("a", 5) in new.of(Grown), "the new log")
        await topic.stamp(2)
        for home in (HOME, "eu"):
            for after in (0, 3, 4):
                reader = await topic.reader(after, is_kept=after == 4, home=home, name=f"{home}{after}")
                await topic.reads(reader, max(after, 3))
        assert not [error for probe in (publisher, new) for error in probe.errors]
