"""Takes the payment for every order, in us: once for each, also if it is killed in the middle and started again.

python -m seriatim.demo.cashier nats://127.0.0.1:4222 journals/

The subscription is durable: after a crash it continues where it was, and only the order that may not have been
processed comes again. The payment's id is made from the order's, so the broker takes a second one for a repeat.
"""

import asyncio
import sys

import seriatim
from seriatim.demo.shop import CLOSED


async def take_payments(url: str, folder: str) -> None:
    async with (
        # The next payment need not wait until this one has its place in the order: that takes a round over the sites.
        seriatim.connect(url, name="cashier", journals=folder, timeout_s=30, confirm="stored") as bus,
        bus.subscribe("orders", durable="cashier") as orders,
    ):
        print("ready", flush=True)
        async for order in orders:
            if order.data == CLOSED:
                break
            await bus.publish("payments", b"paid", id=order.id.replace("order", "payment"))
        await bus.publish("payments", CLOSED, id="payments closed")


if __name__ == "__main__":
    asyncio.run(take_payments(*sys.argv[1:3]))
