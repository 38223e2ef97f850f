"""Changes the price, in us, and publishes a whole list of prices at once when the shop closes.

python -m seriatim.demo.pricing nats://127.0.0.1:4222
"""

import asyncio
import random
import sys

import seriatim
from seriatim.demo.shop import CLOSED, LIST_PRICES, PRICE_CENTS, PRICE_INTERVAL_S, told_to_stop


async def change_prices(url: str, stop: asyncio.Event) -> None:
    async with seriatim.connect(url, name="pricing", timeout_s=30) as bus:
        count = 0
        while not stop.is_set():
            count += 1
            cents = random.randint(*PRICE_CENTS)
            await bus.publish("prices", f"{cents}".encode(), id=f"price {count} = {cents / 100:.2f}")
            await asyncio.sleep(PRICE_INTERVAL_S)
        await bus.publish_many("prices", [f"{random.randint(*PRICE_CENTS)}".encode() for _ in range(LIST_PRICES)])
        await bus.publish("prices", CLOSED, id="prices closed")


async def main(url: str) -> None:
    await change_prices(url, told_to_stop())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
