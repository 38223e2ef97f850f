"""The stamps of a topic stay on the channel of its first home, whoever writes them."""

from seriatim.protocols.with_broker import Follow, Grown, Kept, Listen, Listening, Stamped, StampedTo, Unwatch, Watch
from tests.brokers.conformance import HOME, Probe
from tests.brokers.nats.world import jetstream_world


def stamp(number: int, epoch: int = 1) -> Stamped:
    return Stamped("a", number, number, {}, epoch)


async def test_the_homes_of_a_topic_write_one_channel_one_after_the_other() -> None:
    async with jetstream_world() as world:
        first, second = Probe(await world.connect(), HOME), Probe(await world.connect(), "eu")
        publisher, early = Probe(await world.connect(), "p"), Probe(await world.connect(), "early")
        await early.ask(Listen("a", 0, 1), Listening)
        publisher.send(Follow("a"))
        await publisher.append("a", *[f"a{number}" for number in range(1, 9)])
        await first.ask(stamp(1), Kept)
        await first.ask(stamp(2), Kept)
        first.send(Unwatch("a"))
        second.send(Watch(frozenset({"a"})))
        for number in (3, 4, 5):
            await second.ask(stamp(number, 7), Kept)
        second.send(Unwatch("a"))
        first.send(Watch(frozenset({"a"})))
        await first.until(lambda: Grown("a", 8) in first.of(Grown), "the length of the log")
        first.send(stamp(6, 2))
        await first.until(lambda: Kept("a", 6) in first.of(Kept), "the stamp behind those of the other home")
        first.send(Unwatch("a"))
        second.send(stamp(4, 8), stamp(7, 8))
        await second.until(lambda: Kept("a", 7) in second.of(Kept), "the same the other way round")
        assert Kept("a", 4) in second.of(Kept), "it was there"

        late = Probe(await world.connect(), "late")
        await late.ask(Listen("a", 3, 1), Listening)
        for probe, after in ((early, 0), (late, 3)):
            await probe.until(lambda probe=probe: any(each.last == 7 for each in probe.of(Stamped)), "all")  # type: ignore[misc]
            assert [each.first for each in probe.of(Stamped)] == list(range(after + 1, 8))
        await publisher.until(lambda: StampedTo("a", 7) in publisher.of(StampedTo), "the last stamp")
        names = world.brokers[0].names
        assert await world.brokers[0].api.streams_with(names.stamps_subject("eu")) == []
        assert await world.brokers[0].stamped_epoch(HOME) == 0, "the last stamp there is of another node"


async def test_a_home_that_follows_hears_at_once_of_what_comes() -> None:
    """It was home before. What was stamped meanwhile is not taken for growth that it must stamp first."""
    async with jetstream_world() as world:
        first, second = Probe(await world.connect(), HOME), Probe(await world.connect(), "eu")
        publisher = Probe(await world.connect(), "p")
        for number in range(1, 7):
            home, other = (first, second) if number % 2 else (second, first)
            home.clear()
            home.send(Watch(frozenset({"a"})))
            await home.first(Grown)
            assert not home.port.watcher._watched["a"].waits_for, "for a stamp of what was stamped elsewhere"  # type: ignore[attr-defined]
            await publisher.append("a", f"a{number}")
            await home.until(lambda home=home, number=number: Grown("a", number) in home.of(Grown), "news")  # type: ignore[misc]
            await home.ask(stamp(number), Kept)
            home.send(Unwatch("a"))
            assert not other.errors
