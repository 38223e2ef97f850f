"""Random worlds: publishers, subscribers that change and lag, a broker that reorders; the audit finds nothing.

The logs are written by the clients themselves, so this also tests that a log tells what happened.
"""

import asyncio
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client import Bus, Limits, Subscription
from seriatim.model import Closed
from seriatim.order import SequencingTree
from seriatim.protocols.tree.options import TreeOrder
from tests.client.world import until, world

TOPICS = "abcd"
PROMISED = ["fifo", "per-topic", "tno", "integrity"]
TREES = [
    SequencingTree.single(TOPICS),
    SequencingTree.star({"a": 1, "b": 2, "c": 3, "d": 1}, 3),
    SequencingTree.chain({"a": 1, "b": 2, "c": 3, "d": 2}, 3),
]


class Reader:
    """A subscriber's application: reads in its own rhythm, changes what it holds."""

    def __init__(self, events: Subscription, dice: random.Random) -> None:
        self.events = events
        self.count = 0
        self._dice = dice
        self._size = dice.choice([1, 10, 1_000])

    async def read(self) -> None:
        async for batch in self.events.batches(self._size):
            self.count += len(batch)
            if self._dice.random() < 0.1:
                await asyncio.sleep(self._dice.choice([0.0, 0.002, 0.01]))

    async def change(self) -> None:
        held = self.events.topics
        others = sorted(set(TOPICS) - held)
        if others and (len(held) == 1 or self._dice.random() < 0.5):
            await self.events.add(*self._dice.sample(others, self._dice.randint(1, len(others))))
        else:
            await self.events.remove(self._dice.choice(sorted(held)))


async def publish(bus: Bus, dice: random.Random) -> int:
    """Some events, alone or in bursts."""
    count = 0
    for _ in range(dice.randint(3, 12)):
        burst = [(dice.choice(TOPICS), b"x" * dice.randint(0, 30)) for _ in range(dice.choice([1, 1, 5, 40]))]
        count += len(await bus.publish_many(burst))
        if dice.random() < 0.5:
            await asyncio.sleep(dice.choice([0.0, 0.001, 0.003]))
    return count


async def live(seed: int, folder: Path) -> TreeOrder:
    """Run a world; what it promised."""
    dice = random.Random(seed)
    chance = dice.random()
    causal = chance < 0.2
    order: TreeOrder = "global" if chance < 0.9 else "pairwise"
    mode = "ticket" if causal else dice.choice(["log", "ticket"])
    broker = MemoryBroker(
        seed=seed,
        reordering=dice.choice([0.0, 0.3]),
        duplication=dice.choice([0.0, 0.2]),
        delay_ms=dice.choice([0.0, 0.5, 2.0]),
        buckets=dice.choice([0, 0, 2]),
    )
    tree = SequencingTree.single() if broker.ordered_topic("a") != "a" else dice.choice(TREES)
    limits = Limits(unread_events=dice.choice([20, 100_000]))
    async with world(broker, mode=mode, order=order, causal=causal, tree=tree) as w:
        buses = [w.bus(publication_log=folder, limits=limits) for _ in range(dice.randint(2, 4))]
        for bus in buses:
            await bus.__aenter__()
        readers = []
        for bus in buses:
            wanted = dice.sample(TOPICS, dice.randint(1, len(TOPICS)))
            readers.append(Reader(await bus.subscribe(*wanted, log=folder).__aenter__(), dice))
        reading = [asyncio.ensure_future(reader.read()) for reader in readers]
        publishing = [asyncio.ensure_future(publish(bus, dice)) for bus in buses]
        for _ in range(dice.randint(0, 6)):
            await asyncio.sleep(dice.choice([0.0, 0.002]))
            await dice.choice(readers).change()
        await asyncio.gather(*publishing)
        await until("all is notified", lambda: is_quiet(broker, readers))
        for bus in buses:
            await bus.close()
        await asyncio.gather(*reading)
    return order


def is_quiet(broker: MemoryBroker, readers: list[Reader]) -> bool:
    """Nothing is on its way, held or unread."""
    return not broker.under_way and not any(
        reader.events.unread or reader.events.explain().held or reader.events.explain().notes for reader in readers
    )


@settings(max_examples=30)
@given(st.integers(0, 2**32))
async def test_the_audit_finds_nothing(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        order = await live(seed, Path(folder))
        history = read_history(folder)
        report = audit(history)
        causal = any(row.seen is not None for row in history.publications)
        wanted = [*PROMISED, "completeness", *(["causal-total"] if causal else [])]
        if order == "global":
            wanted.append("acyclic")
        assert {name: report.verdicts[name].answer for name in wanted} == dict.fromkeys(wanted, "valid"), [
            anomaly.sentence for anomaly in report.anomalies
        ] + [report.verdicts[name].reason for name in wanted]


async def test_a_closed_bus_ends_its_readers() -> None:
    async with world() as w:
        bus = w.bus()
        await bus.__aenter__()
        events = await bus.subscribe("a").__aenter__()
        reading = asyncio.ensure_future(Reader(events, random.Random(0)).read())
        await asyncio.sleep(0)
        await bus.close()
        await reading
        try:
            await events.next()
        except Closed:
            return
        raise AssertionError("a closed subscription gave an event")
