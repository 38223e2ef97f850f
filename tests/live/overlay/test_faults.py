"""Connections that break, brokers that restart, clients that are forgotten: nothing is lost in silence."""

import asyncio
from pathlib import Path

import pytest

from seriatim.live.overlay import LiveBroker, load_overlay
from seriatim.model import Gap, TimedOut
from tests.live.overlay.world import brokers, bus_of, session_of, until, write_overlay
from tests.waiting import a_moment

PAIR = {"A": "", "B": "A"}


async def test_a_broken_connection_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR)
    async with (
        brokers(path) as running,
        bus_of(path, "A") as publisher,
        bus_of(path, "B") as subscriber,
        subscriber.subscribe("t") as events,
    ):
        for n in range(30):
            if n % 10 == 5:
                for broker in running.values():
                    assert broker._listener is not None
                    for visitor in list(broker._listener.connected.values()):
                        visitor.abort("broken by the test")
            await publisher.publish("t", str(n).encode())
        got = [await events.next() for _ in range(30)]
        assert [int(event.data) for event in got] == list(range(30))
        assert [event.number for event in got] == list(range(1, 31)) and not events.gaps


async def test_a_broker_goes_on_from_its_journal(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"A": "", "B": "A", "C": "A"})
    config = load_overlay(path)
    async with brokers(path, "A", "C") as running, bus_of(path, "C") as publisher:
        first = LiveBroker(config, "B")
        await first.start()
        await until(lambda: "B" in running["A"].connected, "B is connected")
        async with bus_of(path, "B") as subscriber, subscriber.subscribe(where="n > 1") as events:
            await publisher.publish("t", b"", attributes={"n": 2})
            assert (await events.next()).number == 1
            await first.stop()
            for n in range(1, 4):
                await publisher.publish("t", str(n).encode(), attributes={"n": n})
            second = LiveBroker(config, "B")
            await second.start()
            try:
                assert second.epoch > first.epoch
                got = [await events.next() for _ in range(2)]
                assert [(event.data, event.number) for event in got] == [(b"2", 2), (b"3", 3)]
                assert not events.gaps
            finally:
                await subscriber.close()
                await second.stop()


async def test_a_snapshot_stands_for_what_came_before(tmp_path: Path) -> None:
    """Restarted from a snapshot and the records behind it, a broker is the same as from all records."""

    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    async with brokers(path, "A") as running, bus_of(path, "A") as publisher:
        first = LiveBroker(config, "B")
        await first.start()
        assert first._driver is not None
        first._driver._snapshot_bytes_min = 2_000
        async with bus_of(path, "B") as subscriber, subscriber.subscribe("t") as events:
            for _ in range(60):
                await publisher.publish("t", b"x" * 100)
            for n in range(60):
                assert (await events.next()).number == n + 1
            await first.stop()
            assert list(config.journal("B").glob("snapshot-*.bin")), "there was a snapshot"
            await publisher.publish("t", b"after")
            second = LiveBroker(config, "B")
            await second.start()
            try:
                event = await events.next()
                assert (event.data, event.number) == (b"after", 61) and not events.gaps
                assert running["A"].machine.amnesiacs == {}
            finally:
                await subscriber.close()
                await second.stop()


async def test_a_forgotten_client_is_told_of_a_gap_and_goes_on(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    async with brokers(path, "A"), bus_of(path, "A") as publisher:
        first = LiveBroker(config, "B")
        await first.start()
        async with bus_of(path, "B") as subscriber, subscriber.subscribe("t", show_gaps=True) as events:
            await publisher.publish("t", b"before")
            assert (await events.next()).data == b"before"
            first._forget(subscriber.name, "the test says so")
            gap = await events.next()
            assert isinstance(gap, Gap) and "has forgotten" in gap.reason
            async with asyncio.timeout(30):
                while events.unread == 0:  # what is published before it has begun anew is missed
                    await publisher.publish("t", b"after")
                    await a_moment(0.01)
            event = await events.next()
            assert (event.data, event.number) == (b"after", 1)
            await subscriber.publish("t", b"mine")
        await first.stop()


async def test_who_stays_away_is_forgotten_and_nothing_is_kept_for_it(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"A": ""}, options="remember_s = 0.2\n")
    async with brokers(path) as running, bus_of(path, "A") as bus, bus.subscribe("t"):
        await session_of(bus).attached._dialer.stop()  # it is cut off
        machine = running["A"].machine
        await until(lambda: not machine.clients, "the client is forgotten")
        assert machine.inner.state.routes.wanted == {} and machine.inner.state.clients == {}


async def test_what_was_acknowledged_before_a_restart_does_not_count_as_waiting(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"A": ""}, options="suspect_after_ms = 600000\nremember_events = 10\n")
    async with (
        brokers(path) as running,
        bus_of(path, "A") as publisher,
        bus_of(path, "A") as subscriber,
        subscriber.subscribe("t") as events,
    ):
        for _ in range(30):
            await publisher.publish("t", b"")
            await events.next()
        await running["A"].stop()
        broker = running["A"] = LiveBroker(load_overlay(path), "A")
        await broker.start()
        assert broker.machine.unacknowledged(subscriber.name) > 10
        for _ in range(3):
            broker._look(asyncio.get_running_loop().time())  # before anybody is back
        await publisher.publish("t", b"")
        assert (await events.next()).number == 31 and not events.gaps
        await until(lambda: not broker._unheard, "all have answered")
        await until(lambda: broker.machine.unacknowledged(subscriber.name) == 0, "and have everything")
        await session_of(subscriber).attached._dialer.stop()  # it is cut off, and now too much does wait
        for _ in range(30):
            await publisher.publish("t", b"")
        for _ in range(2):
            broker._look(asyncio.get_running_loop().time())
        await until(lambda: not broker.machine.knows(subscriber.name), "it is forgotten")


async def test_nobody_waits_for_a_dead_broker_and_it_is_told(tmp_path: Path) -> None:
    """A subscription beyond which a broker is dead begins, says so, and gets everything once the broker is back."""

    path = write_overlay(tmp_path, {"A": "", "B": "A", "C": "A"}, options="suspect_after_ms = 300\n")
    config = load_overlay(path)
    async with brokers(path, "A", "C") as running, bus_of(path, "C") as subscriber:
        first = LiveBroker(config, "B")
        await first.start()
        async with bus_of(path, "B") as publisher:
            await publisher.publish("t", b"nobody wants it")
            await first.stop()
            await until(lambda: "B" in running["A"].machine.inner.state.suspected, "B is suspected")
            async with subscriber.subscribe("t") as events:
                assert "B did not answer" in events.gaps[-1].reason
                second = LiveBroker(config, "B")
                await second.start()
                try:
                    await until(lambda: not running["A"].machine.inner.state.suspected, "B is back")
                    async with asyncio.timeout(30):
                        while events.unread == 0:
                            await publisher.publish("t", b"again")
                            await a_moment(0.01)
                    assert (await events.next()).data == b"again"
                finally:
                    await publisher.close()
                    await second.stop()


async def test_who_could_not_hear_of_an_advertisement_is_told_of_a_gap(tmp_path: Path) -> None:
    """A publisher that begins while a broker is dead is not kept waiting; who was beyond that broker is told."""

    path = write_overlay(tmp_path, {"A": "", "B": "A", "C": "B"}, options="suspect_after_ms = 300\n")
    config = load_overlay(path)
    async with brokers(path, "A", "C") as running:
        first = LiveBroker(config, "B")
        await first.start()
        await until(lambda: "B" in running["C"].connected, "C is connected")
        async with (
            bus_of(path, "C") as subscriber,
            subscriber.subscribe("t", show_gaps=True) as events,
            subscriber.subscribe("u") as others,
            bus_of(path, "A") as publisher,
        ):
            await first.stop()
            await publisher.publish("t", b"missed")
            assert any("B did not answer" in line for line in publisher.explain().notes)
            second = LiveBroker(config, "B")
            await second.start()
            try:
                gap = await events.next()
                assert isinstance(gap, Gap) and (gap.first, gap.last) == (1, 1)
                assert "before C had heard of its advertisement" in gap.reason
                await publisher.publish("t", b"comes")
                last = gap.last
                while isinstance(event := await events.next(), Gap):  # B too was slow to reach C: told once more
                    assert event.first == last + 1 and event.reason == gap.reason
                    last = event.last
                assert (event.data, event.number) == (b"comes", last + 1) and not others.gaps
            finally:
                await subscriber.close()
                await publisher.close()
                await second.stop()


async def test_what_timed_out_or_was_cancelled_is_taken_back_at_the_broker(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR, options="suspect_after_ms = 600000\n")
    async with brokers(path) as running, bus_of(path, "A") as publisher:
        routes = running["B"].machine.inner.state.routes
        await publisher.advertise('topic = "t"')
        async with bus_of(path, "B", timeout_s=1.0) as bus:
            await running["A"].stop()  # and is not suspected: who needs its answer waits
            cancelled = asyncio.ensure_future(bus.subscribe("t")._open())
            await until(lambda: any(routes.wanted.get(bus.name, {})), "it has come to the broker")
            cancelled.cancel()
            await until(lambda: not any(routes.wanted.get(bus.name, {})), "the one that was cancelled is gone")
            with pytest.raises(TimedOut):
                await bus.subscribe("t")._open()
            await until(lambda: not any(routes.wanted.get(bus.name, {})), "the one that timed out is gone")
            with pytest.raises(TimedOut):
                await bus.advertise('topic = "u"')
            assert any(routes.offered.get(bus.name, {}))
            running["A"] = LiveBroker(load_overlay(path), "A")
            await running["A"].start()
            await until(lambda: not any(routes.offered.get(bus.name, {})), "so is the advertisement")
