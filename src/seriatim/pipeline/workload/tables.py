"""The tables of a workload: subscriptions, sites, publications and rates.

Every row follows from its own key: `made` runs a function over the keys from 0 on, wherever Spark puts them.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from seriatim.pipeline.schemas import PUBLICATIONS, RATES, SITES, SUBSCRIPTIONS
from seriatim.pipeline.workload.draws import (
    Choices,
    Floats,
    Ids,
    Purpose,
    choose,
    choose_distinct,
    popularities,
    uniform,
)
from seriatim.pipeline.workload.options import Workload

ROWS_PER_TASK = 2_000_000
ROWS_PER_BATCH = 100_000

Make = Callable[[Ids], Iterator[pa.RecordBatch]]


def made(
    spark: SparkSession, keys: int, make: Make, schema: StructType, rows_per_key: float, partitions: int | None
) -> DataFrame:
    """The rows of the keys from 0 on. `make` is a function of a module, or a `partial` of one: workers import it."""
    if partitions is None:
        partitions = max(spark.sparkContext.defaultParallelism, int(keys * rows_per_key / ROWS_PER_TASK) + 1)
    return spark.range(0, keys, 1, min(partitions, max(keys, 1))).mapInArrow(partial(_batches, make), schema)


def _batches(make: Make, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from make(batch.column(0).to_numpy(zero_copy_only=False))


def batch_of(schema: StructType, **columns: Any) -> pa.RecordBatch:
    """A batch with the columns of the schema, from arrays of Arrow or numpy. Columns that are not given are null."""
    wanted = to_arrow_schema(schema)
    size = len(next(iter(columns.values())))
    given = {name: pa.array(column).cast(wanted.field(name).type) for name, column in columns.items()}
    arrays = [given[field.name] if field.name in given else pa.nulls(size, field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def names(prefix: str, ids: Ids) -> pa.Array:
    """`t0`, `t1`, … for the prefix `t`."""
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(ids), pa.string()), "")


def subscriptions(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """SUBSCRIPTIONS. With churn also those that ended."""
    rows_per_key = workload.held + workload.common
    make = partial(_subscription_rows, workload)
    return made(spark, workload.subscribers, make, SUBSCRIPTIONS, rows_per_key, partitions)


def sites(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    clients = workload.subscribers + workload.publishers
    return made(spark, clients, partial(_site_rows, workload), SITES, 1.0, partitions)


def site_of_subscribers(workload: Workload, subscribers: Ids) -> Ids:
    """Where a subscriber is: anywhere, with the same probability."""
    return (uniform(workload.seed, Purpose.SUBSCRIBER_SITE, subscribers) * workload.sites).astype(np.int64)


def site_of_publishers(workload: Workload, publishers: Ids) -> Ids:
    """Where a publisher is: the first one at the first site, and so on, so that no site lacks one."""
    return publishers % workload.sites


def chosen(workload: Workload, subscribers: Ids, sizes: Ids) -> Choices:
    """What subscribers choose, in their order of choice, beside the common topics."""
    return choose_distinct(workload, subscribers, site_of_subscribers(workload, subscribers), sizes)


def sizes_of(workload: Workload, subscribers: Ids) -> Ids:
    """How many topics each holds at any time, beside the common ones."""
    if not workload.held_max:
        return np.full(len(subscribers), workload.held, np.int64)
    least, most = workload.held, workload.held_max + 1
    places = uniform(workload.seed, Purpose.SIZE, subscribers)
    drawn: Floats = 1.0 / (1.0 / least - places * (1.0 / least - 1.0 / most))
    return np.minimum(drawn.astype(np.int64), workload.held_max)


def _subscription_rows(workload: Workload, subscribers: Ids) -> Iterator[pa.RecordBatch]:
    step = max(1, ROWS_PER_BATCH // (workload.held + workload.common))
    for start in range(0, len(subscribers), step):
        part = subscribers[start : start + step]
        sizes = sizes_of(workload, part)
        choices = chosen(workload, part, sizes * 2 if workload.churn else sizes)
        owner, topic, since, until = _with_churn(workload, part, sizes, choices)
        common = np.tile(np.arange(workload.common), len(part))
        owner = np.concatenate([np.repeat(np.arange(len(part)), workload.common), owner])
        since = np.concatenate([np.zeros(len(common), np.int64), since])
        until = np.concatenate([np.full(len(common), -1), until])
        yield batch_of(
            SUBSCRIPTIONS,
            subscriber=names("s", part[owner]),
            topic=names("t", np.concatenate([common, topic])),
            since=since,
            until=pa.array(until, mask=until < 0),
        )


def _with_churn(workload: Workload, subscribers: Ids, sizes: Ids, choices: Choices) -> tuple[Ids, Ids, Ids, Ids]:
    """A topic that is left is replaced by one chosen later. `until` is -1 for those that last."""
    owner, place, topic = choices
    if not workload.churn:
        return owner, topic, np.zeros(len(owner), np.int64), np.full(len(owner), -1)
    is_later = place >= sizes[owner]
    slot = np.where(is_later, place - sizes[owner], place)
    client = subscribers[owner]
    is_left = uniform(workload.seed, Purpose.LEFT, client, slot) < workload.churn
    moment = (uniform(workload.seed, Purpose.MOMENT, client, slot) * workload.notifications).astype(np.int64) + 1
    since = np.where(is_later, moment, 0)
    until = np.where(is_left & ~is_later, moment, -1)
    exists: NDArray[np.bool_] = is_left | ~is_later
    return owner[exists], topic[exists], since[exists], until[exists]


def _site_rows(workload: Workload, clients: Ids) -> Iterator[pa.RecordBatch]:
    is_subscriber = clients < workload.subscribers
    publishers = np.maximum(clients - workload.subscribers, 0)
    name = pc.if_else(pa.array(is_subscriber), names("s", clients), names("p", publishers))
    here = site_of_subscribers(workload, clients)
    site = np.where(is_subscriber, here, site_of_publishers(workload, publishers))
    yield batch_of(SITES, client=name, site=names("site", site))


def publications(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """PUBLICATIONS, without the numbers that a broker would give. Publishers take turns; `sequence` is their own order.
    A publisher chooses topics as subscribers do: by popularity, and with `local_share` among those of its site."""
    return made(spark, workload.events, partial(_publication_rows, workload), PUBLICATIONS, 1.0, partitions)


def rates(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """RATES that `publications` has in expectation, per topic and site of publishers."""
    return made(spark, workload.topics, partial(_rate_rows, workload), RATES, workload.sites, partitions)


def topic_of_events(workload: Workload, events: Ids) -> Ids:
    site = site_of_publishers(workload, events % workload.publishers)
    places = uniform(workload.seed, Purpose.EVENT_TOPIC, events)
    local = uniform(workload.seed, Purpose.EVENT_LOCAL, events) < workload.local_share
    return choose(workload, places, local, site)


def time_of_events(workload: Workload, events: Ids) -> Floats:
    """Milliseconds since the beginning; they grow with the event."""
    return (events + uniform(workload.seed, Purpose.EVENT_TIME, events)) * (1000.0 / workload.events_per_s)


def publication_columns(workload: Workload, events: Ids) -> dict[str, Any]:
    """The columns of publications, except topic and number."""
    return {
        "event_id": names("e", events),
        "publisher": names("p", events % workload.publishers),
        "published_at": time_of_events(workload, events),
        "sequence": events // workload.publishers,
        "index": np.zeros(len(events), np.int32),
    }


def _publication_rows(workload: Workload, events: Ids) -> Iterator[pa.RecordBatch]:
    topics = names("t", topic_of_events(workload, events))
    yield batch_of(PUBLICATIONS, topic=topics, **publication_columns(workload, events))


def _rate_rows(workload: Workload, topics: Ids) -> Iterator[pa.RecordBatch]:
    popular = popularities(workload)
    publishers = np.bincount(site_of_publishers(workload, np.arange(workload.publishers)), minlength=workload.sites)
    for site in np.flatnonzero(publishers):
        weights = popular.weights[topics] * (1.0 - workload.local_share)
        own = topics % workload.sites == site
        weights = weights + own * (workload.local_share * popular.weights[topics] / popular.site_weights[site])
        rate = weights * (workload.events_per_s * publishers[site] / workload.publishers)
        here = names("site", np.full(len(topics), site))
        yield batch_of(RATES, topic=names("t", topics), events_per_s=rate, site=here)
