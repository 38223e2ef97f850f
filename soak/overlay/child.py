"""One process of the soak of an overlay: clients that publish and subscribe by content.

    python -m soak.overlay.child --folder round --kind steady --seed 7 --rate 5

The *steady* one has a client at every broker, subscribes before anything is published, and is never harmed: whatever
its filters match must come, if every broker had heard of its advertisement; else a gap may be told instead. The
*fleeting* one has a client somewhere, for a short while, over and over; it is killed as others are.

It is told what to do by files in the folder: `begin` (publish), `stop` (publish nothing more, and say `drained-steady`
when everything that is owed has come), `end` (leave).
"""

import argparse
import asyncio
import os
import random
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from seriatim.filters import parse
from soak.launch import take_on_faults

REGIONS = ("EU", "US", "ASIA")
FILTERS = (
    "price >= 0",
    "price > 50",
    "price < 30",
    'region = "EU"',
    'region != "EU" and price > 20',
    'region in ("US", "ASIA")',
    'topic = "trades" and price >= 10',
    'topic prefix "quo"',
)
TOPICS = ("trades", "quotes")
POLL_S = 0.05
TIMEOUT_S = 120.0
DRAIN_S = 180.0


class Sent(Struct, frozen=True):
    """An event that its broker has confirmed. `is_owed`: every broker had heard of its advertisement."""

    id: str
    topic: str
    price: int
    region: str
    is_owed: bool


class Stream(Struct):
    """A subscription that was there all the time: its name in the log, its filter, and the gaps it was told of."""

    subscriber: str
    where: str
    gaps: list[tuple[int, int, str]]


def count_gaps(gaps: list[tuple[int, int, str]]) -> int:
    """How many numbers never come; a gap from 0 on does not say."""
    return sum(last - first + 1 for first, last, _ in gaps if first)


def matching(where: str, sent: list[Sent]) -> set[str]:
    """Of the owed events: those that this filter asks for."""
    filter = parse(where)
    return {
        each.id
        for each in sent
        if each.is_owed and filter.matches({"topic": each.topic, "price": each.price, "region": each.region})
    }


def read_sent(folder: Path) -> list[Sent]:
    """What all processes have published; a line that was cut off by a kill was not confirmed."""
    found = []
    for path in sorted(folder.glob("sent-*.jsonl")):
        lines = path.read_bytes().split(b"\n")[:-1]
        found += [msgspec.json.decode(line, type=Sent) for line in lines]
    return found


class Publisher:
    """One bus that publishes, and writes down what was confirmed."""

    def __init__(self, bus: Any, folder: Path, source: random.Random, is_owed: bool) -> None:
        self._bus = bus
        self._source = source
        self._is_owed = is_owed
        self._file = folder / f"sent-{os.getpid()}.jsonl"

    def send(self) -> None:
        """Publish one event without waiting for the answer."""
        topic, price, region = self._source.choice(TOPICS), self._source.randrange(100), self._source.choice(REGIONS)

        def settled(receipt: "asyncio.Future[Any]") -> None:
            if not receipt.cancelled() and receipt.exception() is None:
                sent = Sent(receipt.result().id, topic, price, region, self._is_owed)
                with self._file.open("ab") as file:
                    file.write(msgspec.json.encode(sent) + b"\n")

        payload = b"x" * self._source.randrange(200)
        attributes = {"price": price, "region": region}
        self._bus.publish_nowait(topic, payload, attributes=attributes).add_done_callback(settled)


class Clients:
    """The clients of this process."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder: Path = arguments.folder
        self.rate: float = arguments.rate
        self.random = random.Random(f"{arguments.seed}/{arguments.kind}/{os.getpid()}")
        self.brokers = sorted(msgspec.toml.decode((self.folder / "overlay.toml").read_bytes())["brokers"])
        self.received: dict[str, set[str]] = {}
        self.gaps: dict[str, list[tuple[int, int, str]]] = {}

    def _bus(self, broker: str) -> Any:
        import seriatim

        url = f"overlay://{(self.folder / 'overlay.toml').resolve()}?broker={broker}"
        return seriatim.connect(url, name=f"at-{broker}", publication_log=self.folder / "log", timeout_s=TIMEOUT_S)

    # ── steady ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def steady(self) -> None:
        """Stay subscribed from before the first event until after the last."""
        from contextlib import AsyncExitStack

        async with AsyncExitStack() as stack:
            publishers, streams = [], []
            for broker in self.brokers:
                bus = await stack.enter_async_context(self._bus(broker))
                advertisement = await bus.advertise("price >= 0")
                publishers.append(Publisher(bus, self.folder, self.random, not advertisement.unreachable))
                for where in self.random.sample(FILTERS, 2):
                    stream = bus.subscribe(where=where, log=self.folder / "log", show_gaps=True)
                    streams.append(await stack.enter_async_context(stream))
            taking = [asyncio.create_task(self._take(stream)) for stream in streams]
            (self.folder / "ready-steady").touch()
            await self._until("begin", taking)
            while not (self.folder / "stop").exists():
                await asyncio.sleep(self.random.expovariate(self.rate))
                self.random.choice(publishers).send()
            await asyncio.gather(*(publisher._bus.flush() for publisher in publishers))
            await self._until("fleeting-over", taking)
            await self._until_all_came(streams, taking)
            rows = [Stream(each.log_name, str(each.filter), self.gaps.get(each.name, [])) for each in streams]
            (self.folder / "streams.json").write_bytes(msgspec.json.encode(rows))
            (self.folder / "drained-steady").touch()
            await self._until("end", taking)
            for task in taking:
                task.cancel()

    async def _take(self, stream: Any) -> None:
        from seriatim.model import Gap

        async for event in stream:
            if isinstance(event, Gap):
                self.gaps.setdefault(stream.name, []).append((event.first, event.last, event.reason))
            else:
                self.received.setdefault(stream.name, set()).add(event.id)

    async def _until_all_came(self, streams: list[Any], taking: "list[asyncio.Task[None]]") -> None:
        """Wait until every event came, or until it is clear that some never will. The judge finds out which."""
        end = asyncio.get_running_loop().time() + DRAIN_S
        sent = read_sent(self.folder)
        owed = {stream.name: matching(str(stream.filter), sent) for stream in streams}
        while asyncio.get_running_loop().time() < end:
            await self._look(taking)
            lacking = [owed[each.name] - self.received.get(each.name, set()) for each in streams]
            if not any(lacking):
                return

    async def _until(self, name: str, tasks: "list[asyncio.Task[None]]") -> None:
        """Wait for a file that the harness writes. The harness has a time limit."""
        while not (self.folder / name).exists():
            await self._look(tasks)

    async def _look(self, tasks: "list[asyncio.Task[None]]") -> None:
        for task in tasks:
            if task.done():
                task.result()
                raise RuntimeError("a part of this process ended by itself")
        await asyncio.sleep(POLL_S)

    # ── fleeting ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def fleeting(self) -> None:
        """Subscribe and leave again, repeatedly."""
        from seriatim.model import SeriatimError

        while not (self.folder / "stop").exists():
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._visit(self.random.choice(self.brokers))
            except SeriatimError:
                await asyncio.sleep(POLL_S)  # its broker is down, most likely

    async def _visit(self, broker: str) -> None:
        async with self._bus(broker) as bus:
            advertisement = await bus.advertise("price >= 0")
            publisher = Publisher(bus, self.folder, self.random, not advertisement.unreachable)
            where = self.random.choice(FILTERS)
            async with bus.subscribe(where=where, log=self.folder / "log") as events:
                end = asyncio.get_running_loop().time() + self.random.expovariate(0.5)
                while asyncio.get_running_loop().time() < end and not (self.folder / "stop").exists():
                    publisher.send()
                    try:
                        await events.next(self.random.expovariate(self.rate))
                    except TimeoutError:
                        continue
                await bus.flush()


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kind", choices=["steady", "fleeting"], required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    arguments = parser.parse_args()
    from seriatim.runtime.logs import configure_logging
    from seriatim.runtime.loop import run

    configure_logging(level="WARNING")
    clients = Clients(arguments)
    run(clients.steady() if arguments.kind == "steady" else clients.fleeting())


if __name__ == "__main__":
    take_on_faults()
    main()
