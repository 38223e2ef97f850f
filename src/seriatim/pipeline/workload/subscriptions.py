"""Who holds what, and who is where."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.schemas import SITES, SUBSCRIPTIONS
from seriatim.pipeline.workload.draws import Choices, Floats, Ids, Purpose, choose_distinct, uniform
from seriatim.pipeline.workload.options import Workload
from seriatim.pipeline.workload.rows import ROWS_PER_BATCH, batch_of, made, names


def subscriptions(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """SUBSCRIPTIONS. With churn also those that ended."""
    rows_per_key = workload.held + workload.common
    make = partial(_subscription_rows, workload)
    return made(spark, workload.subscribers, make, SUBSCRIPTIONS, rows_per_key, partitions)


def sites(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """SITES of subscribers and publishers."""
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
            since=pa.array(since),
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
