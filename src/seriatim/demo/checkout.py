"""Takes orders, in eu. An ordinary NATS program: Seriatim is not in it, and its events are ordered all the same.

python -m seriatim.demo.checkout nats://127.0.0.1:4222
"""

import asyncio
import random
import sys

import nats

from seriatim.demo.shop import CLOSED, ORDER_INTERVAL_S, told_to_stop


async def take_orders(url: str) -> None:
    stop = told_to_stop()
    connection = await nats.connect(url, connect_timeout=30)
    jetstream = connection.jetstream(timeout=30)
    count = 0
    while not stop.is_set():
        count += 1
        pieces = random.randint(1, 5)
        await jetstream.publish("orders", f"{pieces}".encode(), headers={"Nats-Msg-Id": f"order {count}"})
        await asyncio.sleep(ORDER_INTERVAL_S)
    await jetstream.publish("orders", CLOSED, headers={"Nats-Msg-Id": "orders closed"})
    await connection.close()


if __name__ == "__main__":
    asyncio.run(take_orders(sys.argv[1]))
