"""One guest of the soak of atoms: holds some topics for a while, changes them, and leaves, unless it is killed before.

python -m soak.atoms.guest --url nats://127.0.0.1:4222 --log round/log --seed 7 --seconds 3
"""

import argparse
import asyncio
import random
from pathlib import Path

import seriatim
from soak.tree.rows import now

TOPICS = ("red", "green", "blue", "grey")
TIMEOUT_S = 120.0


async def visit(url: str, log: Path, seed: str, seconds: float) -> None:
    """Join, hold some topics, change them, and leave."""
    dice = random.Random(seed)
    async with (
        seriatim.connect(url, order="atoms", name="guest", publication_log=log, timeout_s=TIMEOUT_S) as bus,
        bus.subscribe(*dice.sample(TOPICS, 2), log=log) as events,
    ):
        reading = asyncio.create_task(_read(events))
        end = now() + seconds
        while now() < end and not reading.done():
            await asyncio.sleep(dice.uniform(0.1, 0.5))
            topic = dice.choice(TOPICS)
            if topic not in events.topics:
                await events.add(topic)
            elif len(events.topics) > 1:
                await events.remove(topic)
            else:
                await bus.publish(topic, b"guest")
        reading.cancel()


async def _read(events: seriatim.Subscription) -> None:
    async for _ in events:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    asyncio.run(visit(given.url, given.log, given.seed, given.seconds))
