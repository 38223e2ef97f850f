"""A process that runs the node on a stream, and gives itself tickets: says which numbers it was granted.

python -m tests.live.tree.host_child URL
"""

import asyncio
import sys

from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.brokers.nats.link import NatsLink
from tests.live.tree.nodes import Site


async def main(url: str) -> None:
    link = NatsLink([url], connect_timeout_s=60.0)
    await link.open()
    site = Site()
    host = site.host(NatsJournal(link, "J", beat_s=0.05))
    await host.start()
    request = 0
    while True:
        request += 1
        granted = await site.ticket("child", request, "A")
        site.settle("child", granted)
        print(granted.first, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
