"""How fast one subscriber reads the past in order, against reading the same events unordered; and whether it is linear.

    python -m bench.history                       100,000 messages, by turns, five rounds
    python -m bench.history --messages 1000000    longer
    python -m bench.history --pack 10             ten events in each message

Both read from one NATS server with the same client, by turns in one run; the ratio of each round is between neighbours.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import seriatim
from seriatim.brokers.nats.server import NatsServer
from seriatim.client.history import Start
from seriatim.live.server import SequencerServer
from seriatim.server.config import parse_config

TOPICS = ("orders", "payments", "stock", "prices")
CLUSTER = "history"


async def fill(url: str, messages: int, pack: int, size: int) -> None:
    """Publish on all topics in turn; held by one subscription, so that they are ordered against each other."""
    payload = b"x" * size
    async with (
        seriatim.connect(url, cluster=CLUSTER, timeout_s=600.0) as bus,
        bus.subscribe(*TOPICS) as early,
    ):

        async def publish() -> None:
            for index in range(messages):
                await bus.ready()
                for _ in range(pack):
                    bus.publish_nowait(TOPICS[index % 4], payload)
                if index % 64 == 63:
                    await asyncio.sleep(0)
            await bus.flush()

        publishing = asyncio.create_task(publish())
        seen = 0
        async for events in early.batches(10_000):
            seen += len(events)
            if seen == messages * pack:
                break
        await publishing


async def read(url: str, count: int, start: Start, ordered: bool) -> float:
    """Events per second of one subscriber that takes everything."""
    async with seriatim.connect(url, cluster=CLUSTER, timeout_s=600.0) as bus:
        began, seen = time.perf_counter(), 0
        async with bus.subscribe(*TOPICS, start=start, ordered=ordered) as subscription:
            async for events in subscription.batches(10_000):
                seen += len(events)
                if seen >= count:
                    break
        return count / (time.perf_counter() - began)


async def measure(messages: int, pack: int, size: int, rounds: int, folder: Path) -> None:
    with NatsServer(folder / "nats") as server:
        config = parse_config(
            {
                "cluster": CLUSTER,
                "broker": server.url,
                "mode": "log",
                "nodes": {"root": {"address": "127.0.0.1:0"}},
                "default_home": "root",
            },
            folder,
        )
        sequencer = SequencerServer(config)
        await sequencer.start()
        try:
            await fill(server.url, messages, pack, size)
            count, ratios = messages * pack, []
            for number in range(1, rounds + 1):
                unordered = await read(server.url, count, "first", ordered=False)
                history = await read(server.url, count, "first", ordered=True)
                ratios.append(history / unordered)
                print(f"round {number}: unordered {unordered:,.0f}/s, history {history:,.0f}/s, {ratios[-1]:.2f}")
            print(f"{count:,} events of {size} bytes: history / unordered = {statistics.median(ratios):.2f} (median)")
        finally:
            await sequencer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--pack", type=int, default=1, help="events published together")
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options.messages, options.pack, options.bytes, options.rounds, Path(folder)))


if __name__ == "__main__":
    main()
