"""A subscriber that keeps the shop's books: every order at the price of that moment.

python -m seriatim.demo.books nats://127.0.0.1:4222 billing logs/ orders prices

It keeps them twice, from the same streams: once in the order Seriatim gives, once as events arrive. The totals of all
subscribers are the same if, and only if, they saw orders and prices in the same order (or were very lucky).
"""

import asyncio
import json
import sys

import seriatim
from seriatim.demo.shop import CLOSED


async def keep_books(url: str, name: str, folder: str, *topics: str) -> dict[str, int]:
    async with (
        seriatim.connect(url, name=name, timeout_s=30) as bus,
        bus.subscribe(*topics, log=f"{folder}/with") as ordered,
        bus.subscribe(*topics, log=f"{folder}/without", ordered=False) as unordered,
    ):
        print("ready", flush=True)
        with_cents, without_cents = await asyncio.gather(total_of(ordered), total_of(unordered))
        return {"with": with_cents, "without": without_cents}


async def total_of(events: seriatim.Subscription) -> int:
    """What the shop has sold, in cents, when all its topics have closed."""
    price = total = 0
    still_open = set(events.topics)
    async for event in events:
        if event.data == CLOSED:
            still_open.remove(event.topic)
            if not still_open:
                break
        elif event.topic == "prices":
            price = int(event.data)
        elif event.topic == "orders":
            total += int(event.data) * price
    return total


if __name__ == "__main__":
    print(json.dumps(asyncio.run(keep_books(*sys.argv[1:]))))
