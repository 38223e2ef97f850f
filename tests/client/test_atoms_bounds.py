"""What clients and nodes of sequencing atoms keep in memory is bounded, whoever is away."""

import asyncio
from pathlib import Path
from typing import Any

import seriatim
from seriatim.client import Limits
from tests.brokers.nats_world import new_cluster, shared_server
from tests.client.test_atoms import stations
from tests.client.world import run, take, until

COUNT = 1_200
PULLED = 2 * 256  # a little more than allowed is on its way


async def publish_alone(buses: list[seriatim.Bus], topics: str, count: int) -> None:
    """Each event in a message of its own."""

    async def publish(bus: seriatim.Bus, number: int) -> None:
        for place in range(number, count, len(buses)):
            await bus.publish(topics[place % len(topics)], b"%d" % place, id=f"event-{place}")

    await asyncio.gather(*(publish(bus, number) for number, bus in enumerate(buses)))


def test_a_subscriber_that_waits_does_not_read_on_what_is_ahead(tmp_path: Path) -> None:
    """The broker is slow with b. What waits for it is bounded; what does not wait for it, and all later, comes."""

    async def test() -> None:
        server, cluster = shared_server(), new_cluster()

        def connect(**more: Any) -> seriatim.Bus:
            return seriatim.connect(server.url, cluster=cluster, order="atoms", timeout_s=60.0, **more)

        async with (
            stations(server, cluster, tmp_path, ("alone",)),
            connect(limits=Limits(unread_events=50)) as one,
            connect() as two,
            connect() as three,
            connect() as four,
            one.subscribe("a", "b", "c") as slow,
            two.subscribe("a", "b") as quick,
        ):
            feed, seen = slow._opened(), list[seriatim.Event]()

            async def read() -> None:
                async for event in slow:
                    seen.append(event)

            reading = asyncio.create_task(read())
            feed._port.pause("b")
            await publish_alone([one, two, three, four], "ab", 2 * COUNT)
            await until("it reads no more", lambda: feed._blocked == {"a"})
            assert feed._machine.waiting <= 50 + PULLED < COUNT  # type: ignore[union-attr]
            assert any("not read on: a" in note for note in slow.explain().notes)
            await one.publish("c", b"meanwhile")
            await until("what waits for nothing comes", lambda: bool(seen) and seen[-1].topic == "c")
            feed._port.resume("b")
            await until("all is there", lambda: len(seen) == 2 * COUNT + 1)
            together = [event.id for event in seen if event.topic != "c"]
            assert together == [event.id for event in await take(quick, 2 * COUNT)]
            assert not feed._blocked and feed._machine.waiting == 0  # type: ignore[union-attr]
            reading.cancel()

    run(test())
