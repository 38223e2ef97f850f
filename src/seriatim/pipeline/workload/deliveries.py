"""Deliveries as a right run would have logged them, and a few violations put in on purpose: what auditors are tried on.

There is one order of all events, that of their ids, and each subscriber is notified of the events of its topics in it.
A subscriber's rows follow from its own key and from the topics of all events, which every Python worker computes for
itself. Churn is left out: every subscription lasts from the beginning to the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from seriatim.model import InputError
from seriatim.pipeline.schemas import DELIVERIES, PLACEMENTS, PUBLICATIONS, SUBSCRIPTIONS
from seriatim.pipeline.workload.draws import Ids, Purpose, counts_within, uniform
from seriatim.pipeline.workload.options import EVENTS_MAX, Injection, Kind, Workload
from seriatim.pipeline.workload.tables import (
    ROWS_PER_BATCH,
    batch_of,
    chosen,
    made,
    names,
    publication_columns,
    sizes_of,
    subscriptions,
    time_of_events,
    topic_of_events,
)

CANDIDATES = 2_000  # subscribers among which a place for a violation is looked for
Injected = Mapping[int, Sequence[tuple[Kind, int]]]  # by subscriber: what, and before which of its events


class Events(NamedTuple):
    """All events by topic: those of topic t are `order[ends[t - 1]:ends[t]]`, in their order."""

    topics: Ids
    numbers: Ids
    order: Ids
    ends: Ids


def deliveries(
    spark: SparkSession, workload: Workload, injected: Sequence[Injection] = (), partitions: int | None = None
) -> DataFrame:
    """DELIVERIES of all subscribers. `injected`: what `injections` has drawn for the same workload."""
    workload = _without_churn(workload)
    places: dict[int, list[tuple[Kind, int]]] = {}
    for each in injected:
        places.setdefault(int(each.subscriber[1:]), []).append((each.kind, each.position))
    rows_per_key = workload.events * min(1.0, (workload.held + workload.common) / workload.topics)
    make = partial(_delivery_rows, workload, places)
    return made(spark, workload.subscribers, make, DELIVERIES, rows_per_key, partitions)


def delivered_publications(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """PUBLICATIONS of the same events, with the numbers that deliveries show."""
    make = partial(_numbered_rows, _without_churn(workload))
    return made(spark, workload.events, make, PUBLICATIONS, 1.0, partitions)


def delivered_subscriptions(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """SUBSCRIPTIONS of the same subscribers: each begins with its topic's first event."""
    found = subscriptions(spark, _without_churn(workload), partitions)
    return found.selectExpr("subscriber", "topic", "since", "until", "0L as start", "end").to(SUBSCRIPTIONS)


def delivered_order(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """PLACEMENTS: the order log of the same events, each in a row of its own."""
    make = partial(_order_rows, _without_churn(workload))
    return made(spark, workload.events, make, PLACEMENTS, 1.0, partitions)


def injections(workload: Workload, kinds: Mapping[Kind, int]) -> list[Injection]:
    """Draw so many violations of each kind, at most one per subscriber, each of which a right auditor must find. Two
    neighbouring events change places only where somebody else is notified of both: else it would be no violation."""
    workload = _without_churn(workload)
    subscribers = np.arange(min(workload.subscribers, CANDIDATES))
    holdings = [frozenset(topics.tolist()) for topics in _holdings(workload, subscribers)]
    order = np.argsort(uniform(workload.seed, Purpose.INJECTION, subscribers), kind="stable")
    wanted: list[Kind] = [kind for kind, count in kinds.items() for _ in range(count)]
    found: list[Injection] = []
    for subscriber in order.tolist():
        if len(found) == len(wanted):
            break
        others = [held for index, held in enumerate(holdings) if index != subscriber]
        place = _place(workload, wanted[len(found)], subscriber, holdings[subscriber], others)
        if place is not None:
            found.append(place)
    if len(found) < len(wanted):
        problem = f"{len(wanted)} violations do not fit into this workload, only {len(found)}"
        raise InputError("inject", problem, "ask for fewer, or for more subscribers that share topics, or more events")
    return found


def _place(
    workload: Workload, kind: Kind, subscriber: int, held: frozenset[int], others: Sequence[frozenset[int]]
) -> Injection | None:
    """A place among this subscriber's events that others can see, or None if it has no such place."""
    mine = _notified(workload, np.asarray(sorted(held)))
    if len(mine) < 2:
        return None
    start = int(uniform(workload.seed, Purpose.INJECTION, np.asarray([subscriber]), np.asarray([1]))[0] * len(mine))
    topics = events_of(workload).topics
    for offset in range(len(mine)):
        position = 1 + (start + offset) % (len(mine) - 1)
        before, event = int(mine[position - 1]), int(mine[position])
        name = f"s{subscriber}"
        if kind == "gap":
            return Injection(kind, name, position, f"e{event}")
        if kind == "duplicate":
            return Injection(kind, name, position, f"e{before}")
        both = {int(topics[before]), int(topics[event])}
        if len(both) == 2 and any(both <= other for other in others):
            return Injection(kind, name, position, f"e{event}", f"e{before}")
    return None


def _without_churn(workload: Workload) -> Workload:
    if workload.events > EVENTS_MAX:
        fix = f"give at most {EVENTS_MAX:,}, and more subscribers for more rows"
        raise InputError("events", f"{workload.events:,} events are too many for deliveries", fix)
    return structs.replace(workload, churn=0.0)


@lru_cache(maxsize=2)
def events_of(workload: Workload) -> Events:
    """Computed once by every Python worker."""
    topics = topic_of_events(workload, np.arange(workload.events))
    order = np.argsort(topics, kind="stable")
    counts = np.bincount(topics, minlength=workload.topics)
    numbers = np.empty(workload.events, np.int64)
    numbers[order] = counts_within(counts) + 1
    return Events(topics, numbers, order, np.cumsum(counts))


def _holdings(workload: Workload, subscribers: Ids) -> list[Ids]:
    choices = chosen(workload, subscribers, sizes_of(workload, subscribers))
    bounds = np.searchsorted(choices.owner, np.arange(1, len(subscribers)))
    common = np.arange(workload.common)
    return [np.concatenate([common, topics]) for topics in np.split(choices.topic, bounds)]


def _notified(workload: Workload, topics: Ids) -> Ids:
    """The events of these topics, in order."""
    events = events_of(workload)
    parts = [events.order[events.ends[topic - 1] if topic else 0 : events.ends[topic]] for topic in topics.tolist()]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _delivery_rows(workload: Workload, injected: Injected, subscribers: Ids) -> Iterator[pa.RecordBatch]:
    waiting: list[tuple[int, Ids]] = []
    rows = 0
    for start in range(0, len(subscribers), CANDIDATES):
        part = subscribers[start : start + CANDIDATES]
        for subscriber, topics in zip(part.tolist(), _holdings(workload, part), strict=True):
            waiting.append((subscriber, _injected(_notified(workload, topics), injected.get(subscriber, ()))))
            rows += len(waiting[-1][1])
            if rows >= ROWS_PER_BATCH:
                yield from _delivery_batches(workload, waiting)
                waiting, rows = [], 0
    if rows:
        yield from _delivery_batches(workload, waiting)


def _injected(mine: Ids, changes: Sequence[tuple[Kind, int]]) -> Ids:
    for kind, position in sorted(changes, key=lambda change: -change[1]):
        if kind == "swap":
            mine[[position - 1, position]] = mine[[position, position - 1]]
        elif kind == "duplicate":
            mine = np.insert(mine, position, mine[position - 1])
        else:
            mine = np.delete(mine, position)
    return mine


def _delivery_batches(workload: Workload, waiting: list[tuple[int, Ids]]) -> Iterator[pa.RecordBatch]:
    events = events_of(workload)
    sizes = np.asarray([len(mine) for _, mine in waiting])
    subscriber = np.repeat([name for name, _ in waiting], sizes)
    delays = 5.0 + 20.0 * uniform(workload.seed, Purpose.DELAY, np.asarray([each for each, _ in waiting]))
    delay = np.repeat(delays, sizes)
    event = np.concatenate([mine for _, mine in waiting])
    position = counts_within(sizes)
    for start in range(0, len(event), ROWS_PER_BATCH):
        part = slice(start, start + ROWS_PER_BATCH)
        mine = event[part]
        received_at = time_of_events(workload, mine) + delay[part]
        nothing = np.zeros(len(mine), np.bool_)
        yield batch_of(
            DELIVERIES,
            subscriber=names("s", subscriber[part]),
            position=position[part],
            event_id=names("e", mine),
            topic=names("t", events.topics[mine]),
            number=events.numbers[mine],
            received_at=received_at,
            notified_at=received_at,
            out_of_order=nothing,
            filtered=nothing,
            index=nothing.astype(np.int32),
        )


def _numbered_rows(workload: Workload, ids: Ids) -> Iterator[pa.RecordBatch]:
    events = events_of(workload)
    columns = publication_columns(workload, ids)
    yield batch_of(PUBLICATIONS, topic=names("t", events.topics[ids]), number=events.numbers[ids], **columns)


def _order_rows(workload: Workload, ids: Ids) -> Iterator[pa.RecordBatch]:
    events = events_of(workload)
    numbers = events.numbers[ids]
    yield batch_of(PLACEMENTS, position=ids + 1, topic=names("t", events.topics[ids]), first=numbers, last=numbers)
