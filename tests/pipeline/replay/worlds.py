"""Simulated runs, and what an archive of them would hold."""

from random import Random
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from seriatim.lab.sim import Options, Simulation, draw
from seriatim.lab.sim.tree_world import TreeWorld
from seriatim.model import Delivery, History, Placement
from seriatim.pipeline.replay.merger import Merger, Placed
from seriatim.pipeline.schemas import EVENTS, PLACED, STAMPS
from tests.pipeline.replay.stamp_worlds import Stamp


class Archived(NamedTuple):
    """A run that went well: its history, and what the broker holds in the end."""

    history: History
    stamps: list[Stamp]  # stored at random times: order must not need them
    events: dict[tuple[str, int], str]  # (log, number) → id
    order: list[Placement]  # the order log

    def merged(self, logs: set[str]) -> Merger:
        """All stamps of these logs."""
        merger = Merger(logs)
        for stamp in self.stamps:
            if stamp.log in logs:
                merger.feed(*stamp)
        return merger

    def replayed(self, placed: list[Placed]) -> list[Delivery]:
        """As if somebody had been notified of what is placed."""
        ranges = sorted(placed, key=lambda each: (each.ordinal, each.log, each.first))
        places = [(each.log, number) for each in ranges for number in range(each.first, each.last + 1)]
        found = [(log, number, self.events[log, number]) for log, number in places if (log, number) in self.events]
        return [Delivery("replay", at, event_id, log, number) for at, (log, number, event_id) in enumerate(found)]


def archived(seed: int, options: Options) -> Archived:
    """Simulation the scenario of this seed."""
    run = Simulation(draw(seed, options))
    outcome = run.finish()
    assert outcome.is_fine, f"seed {seed}"
    assert isinstance(run.world, TreeWorld)
    random = Random(seed)
    stamps: list[Stamp] = []
    events: dict[tuple[str, int], str] = {}
    for log, topic in run.world.broker.state.topics.items():
        ranges = [(each.first, each.last, each.entries) for each in topic.stamps]
        ranges += [(slot.number, slot.number, slot.entries) for slot in topic.slots]  # a void too has its place
        stamps += [Stamp(log, first, last, entries, random.randint(0, 1_000)) for first, last, entries in ranges]
        events |= {(log, index + 1): event.id for index, event in enumerate(topic.log) if event is not None}
        events |= {(log, slot.number): slot.event.id for slot in topic.slots if slot.event is not None}
    stamps.sort(key=lambda each: (each.first, each.log))
    written = run.world.broker.state.order
    order = [
        Placement(begin + 1, each.topic, each.first, each.last)
        for begin, each in zip(written.begins, written.ranges, strict=True)
    ]
    return Archived(outcome.history, stamps, events, order)


def stamps_table(spark: SparkSession, stamps: list[Stamp]) -> DataFrame:
    """Rows of the archive's stamps."""
    rows = [(each.log, each.first, each.last, each.entries, "node", each.received_us / 1000) for each in stamps]
    return spark.createDataFrame(rows, STAMPS)


def events_table(spark: SparkSession, events: dict[tuple[str, int, int], str]) -> DataFrame:
    """Rows of the archive's events, by (log, number, index). They are stored at the time of their number."""
    rows = [
        (log, number, index, log, event_id, "p", float(number), {"kind": "test"}, event_id.encode())
        for (log, number, index), event_id in events.items()
    ]
    return spark.createDataFrame(rows, EVENTS)


def order_table(spark: SparkSession, order: list[Placement], stored_at: float = 0.0) -> DataFrame:
    """Rows of the archive's order log."""
    rows = [(each.position, each.topic, each.first, each.last, 1, stored_at) for each in order]
    return spark.createDataFrame(rows, PLACED)
