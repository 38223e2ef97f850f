"""How fast a replay is published again: `python bench/replay.py [--events 100000] [--bytes 200]`.

A NATS server of its own, on disk; events of three topics in turn, into one stream, each acknowledged and each naming
its position, with 1, 100 and 2,000 under way. Beside it a plain client of nats-py that publishes the same messages with
acknowledgements in batches of 2,000 and promises no order.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import nats

from seriatim.brokers.capabilities import ReplayedEvent, ReplayPlace
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.replay import NatsReplay
from seriatim.brokers.nats.server import NatsServer

TOPICS = ("orders", "payments", "stock")
BATCH = 500
UNDER_WAY = 2_000


async def batches(count: int, size: int) -> AsyncIterator[Sequence[ReplayedEvent]]:
    """Made as they are needed."""
    data = b"x" * size
    for begin in range(0, count, BATCH):
        yield [
            ReplayedEvent(ReplayPlace(n, TOPICS[n % 3], n, 0), TOPICS[n % 3], f"e{n}", "shop", None, data)
            for n in range(begin, min(begin + BATCH, count))
        ]


async def replayed(url: str, prefix: str, count: int, size: int, in_flight: int) -> tuple[float, float]:
    """Events per second, by the clock and by this process's time."""
    broker = JetStreamBroker(url)
    await broker.open()
    publisher = NatsReplay(broker.api, "bench", prefix, in_flight=in_flight)
    await publisher.reached()
    start, start_cpu = time.monotonic(), time.process_time()
    stored = await publisher.publish(batches(count, size))
    elapsed, elapsed_cpu = time.monotonic() - start, time.process_time() - start_cpu
    assert stored == count
    await broker.close()
    return count / elapsed, count / elapsed_cpu


async def plain(url: str, count: int, size: int) -> tuple[float, float]:
    """The same with nats-py alone."""
    client = await nats.connect(url)
    stream = client.jetstream(publish_async_max_pending=UNDER_WAY)
    await stream.add_stream(name="plain", subjects=["plain.>"])
    start, start_cpu = time.monotonic(), time.process_time()
    under_way = []
    async for batch in batches(count, size):
        under_way += [
            await stream.publish_async(f"plain.{each.topic}", each.data, headers={"Nats-Msg-Id": each.event_id})
            for each in batch
        ]
        if len(under_way) >= UNDER_WAY:
            await asyncio.gather(*under_way)
            under_way.clear()
    await asyncio.gather(*under_way)
    elapsed, elapsed_cpu = time.monotonic() - start, time.process_time() - start_cpu
    await client.close()
    return count / elapsed, count / elapsed_cpu


async def measure(count: int, size: int) -> None:
    async with NatsServer() as server:
        print(f"{'':24} {'events':>10} {'events/s':>10} {'events/s of processor time':>28}")
        for in_flight in (1, 100, UNDER_WAY):
            events = count if in_flight > 1 else max(1, count // 20)
            rate, cpu = await replayed(server.url, f"bench-{in_flight}", events, size, in_flight)
            print(f"{f'replay, {in_flight:,} under way':24} {events:10,} {rate:10,.0f} {cpu:28,.0f}", flush=True)
        rate, cpu = await plain(server.url, count, size)
        print(f"{'plain nats-py':24} {count:10,} {rate:10,.0f} {cpu:28,.0f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=200, help="of each event's data")
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.events, arguments.bytes))


if __name__ == "__main__":
    main()
