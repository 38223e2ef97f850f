"""A process that runs the node on a stream, and gives itself tickets: says which numbers it was granted.

python -m tests.server.host_child URL
"""

import asyncio
import sys

import nats

from seriatim.brokers.nats_journal import NatsJournal
from tests.server.nodes import Site


async def main(url: str) -> None:
    client = await nats.connect(url, connect_timeout=60)
    site = Site()
    host = site.host(NatsJournal(client, "J", beat_s=0.05))
    await host.start()
    request = 0
    while True:
        request += 1
        granted = await site.ticket("child", request, "A")
        site.settle("child", granted)
        print(granted.first, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
