"""What a durable journal costs a sequencer: tickets per second with and without one, in the same run.

The real machine, driver and journal; 50 publishers keep some tickets under way, settle what they are granted and ask
again. A ticket is two inputs of the node (Ticket, Settled), so two records of its journal. The rows are measured by
turns in short slices, of which the fastest counts: other work on the same machine only ever makes a slice slower, and
it hits all rows alike. Few tickets under way show the latency of the disk, many show what the journal costs.

Run: python bench/journal.py
"""

import asyncio
import tempfile
from collections import deque
from pathlib import Path
from time import perf_counter, process_time

from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Granted, Settled, Ticket, Update
from seriatim.runtime import Clock, Driver, FileJournal, Journal
from seriatim.runtime.journal.interface import MemoryJournal

TOPICS = [f"coupled {index}" for index in range(21)]  # each has the 20 others in its group
PUBLISHERS = 50
SLICE = 2_000
TURN = 64  # answers that publishers react to in one turn of the loop, as sockets would bring them
SLICES = 40
RECORD_BYTES_MAX = 1 << 40  # no snapshots


class Load:
    """One node under load. `under_way`: tickets that each publisher has open at a time."""

    def __init__(self, name: str, journal: Journal | None, under_way: int) -> None:
        self.name = name
        self.under_way = under_way
        self.journal = journal
        self.requests = dict.fromkeys(((f"p{p}", topic) for p in range(PUBLISHERS) for topic in TOPICS), 0)
        self.granted: deque[tuple[Address, Granted]] = deque()
        self.news = asyncio.Event()
        self.tickets = 0
        self.seconds = self.processor_seconds = float("inf")
        self.commits = 0
        self.driver: Driver

    async def start(self) -> None:
        if self.journal is not None:
            await self.journal.open()
        machine = SequencerNode(SequencingTree.single(TOPICS), "root", TreeOptions(mode="ticket"))
        clock = Clock()
        self.driver = Driver(
            "root", machine, clock, send=self._send, journal=self.journal, snapshot_bytes_min=RECORD_BYTES_MAX
        )
        self.driver.start()
        for twin in "ab":
            self.driver.deliver(twin, Update(1, frozenset(TOPICS)))
        for publisher in range(PUBLISHERS):
            for topic in range(self.under_way):
                self._ask(f"p{publisher}", TOPICS[(publisher + topic) % len(TOPICS)])

    def _send(self, source: Address, target: Address, message: Payload) -> None:
        if type(message) is Granted:
            self.granted.append((target, message))
            if not self.news.is_set():
                self.news.set()

    def _ask(self, publisher: Address, topic: str) -> None:
        self.requests[publisher, topic] = request = self.requests[publisher, topic] + 1
        self.driver.deliver(publisher, Ticket(request, topic, 1))

    async def measure(self) -> None:
        """One slice: run until this many more tickets are granted."""
        appends, began, processor_began = self.driver.appends, perf_counter(), process_time()
        tickets = 0
        while tickets < SLICE:
            if not self.granted:
                self.news.clear()
                await self.news.wait()
            for _ in range(min(TURN, len(self.granted))):
                publisher, grant = self.granted.popleft()
                self.driver.deliver(publisher, Settled(grant.topic, grant.first))
                self._ask(publisher, grant.topic)
                tickets += 1
            await asyncio.sleep(0)  # the journal's turn; a server looks at its sockets here
        self.seconds = min(self.seconds, (perf_counter() - began) / tickets)
        self.processor_seconds = min(self.processor_seconds, (process_time() - processor_began) / tickets)
        self.tickets += tickets
        self.commits += self.driver.appends - appends

    async def pause(self) -> None:
        """Pause the load while others are measured."""
        await self.driver.settled()

    async def stop(self) -> None:
        await self.driver.stop()
        if self.journal is not None:
            await self.journal.close()


async def table(under_way: int, folder: Path) -> None:
    loads = [
        Load("no journal", None, under_way),
        Load("journal in memory: records encoded, not written", MemoryJournal(), under_way),
        Load("file journal, not synchronous", FileJournal(folder / "buffered", fsync=False), under_way),
        Load("file journal, every append durable", FileJournal(folder / "durable"), under_way),
    ]
    for load in loads:
        await load.start()
        await load.pause()
    for _ in range(SLICES):
        for load in loads:
            await load.measure()
            await load.pause()
    print(f"\n{PUBLISHERS} publishers, {under_way} tickets each under way")
    print(f"{'':<50} {'tickets/s':>10} {'speed':>7} {'processor':>13} {'ratio':>6} {'per append':>11}")
    first = loads[0]
    for load in loads:
        appends = f"{load.tickets / load.commits:>11.0f}" if load.commits else f"{'':>11}"
        speed = f"{1 / load.seconds:>10,.0f} {first.seconds / load.seconds:>6.2f}x"
        cost = f"{load.processor_seconds * 1e6:>10.2f} us {load.processor_seconds / first.processor_seconds:>5.2f}x"
        print(f"{load.name:<50} {speed} {cost} {appends}")
        await load.stop()


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for under_way in (1, 4, 20):
            await table(under_way, Path(folder) / str(under_way))


if __name__ == "__main__":
    print(f"Tickets granted and settled, the fastest of {SLICES} slices of {SLICE:,}.")
    asyncio.run(main())
