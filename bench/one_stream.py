"""The obvious alternative: one JetStream stream over all subjects, with nats-py alone. The peer of bench/live.py.

Everything an experienced user would do to make it fast is done: pipelined publishing (`publish_async`), an ordered push
consumer per subscriber with all its subjects as filters, callbacks that only take a time and an id.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy, StreamConfig

STREAM = "everything"
PENDING_MAX = 4_000  # nats-py's own default for unacknowledged messages


async def prepare(url: str, topics: Sequence[str]) -> None:
    """Make the one stream."""
    client = await nats.connect(url)
    await client.jetstream().add_stream(StreamConfig(name=STREAM, subjects=list(topics)))
    await client.close()


async def publish(url: str, topics: Sequence[str], payloads: Sequence[bytes]) -> float:
    """Publish all payloads, topics by turns, as fast as acknowledgements allow. Returns the start."""
    client = await nats.connect(url)
    stream = client.jetstream(publish_async_max_pending=PENDING_MAX)
    began = time.monotonic()
    count = len(topics)
    for index, payload in enumerate(payloads):
        await stream.publish_async(topics[index % count], payload)
    await stream.publish_async_completed()
    await client.close()
    return began


async def subscribe(
    url: str, topics: Sequence[str], expected: int, ready: Any
) -> tuple[list[tuple[str, bytes]], float]:
    """Take `expected` events. Returns them in order, and the time of the last one."""
    client = await nats.connect(url)
    seen: list[tuple[str, bytes]] = []
    finished = asyncio.get_running_loop().create_future()

    async def notified(message: Any) -> None:
        seen.append((message.subject, message.data))
        if len(seen) == expected:
            finished.set_result(time.monotonic())

    config = ConsumerConfig(filter_subjects=list(topics), deliver_policy=DeliverPolicy.ALL)
    await client.jetstream().subscribe(
        topics[0], stream=STREAM, config=config, ordered_consumer=True, cb=notified, pending_msgs_limit=1_000_000
    )
    ready.set()
    ended = await asyncio.wait_for(finished, 120)
    await client.close()
    return seen, ended
