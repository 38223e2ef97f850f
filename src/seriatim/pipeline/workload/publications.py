"""What is published, by whom, when, and how often on each topic."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.schemas import PUBLICATIONS, RATES
from seriatim.pipeline.workload.draws import Floats, Ids, Purpose, choose, popularities, uniform
from seriatim.pipeline.workload.options import Workload
from seriatim.pipeline.workload.rows import batch_of, made, names
from seriatim.pipeline.workload.subscriptions import site_of_publishers


def publications(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """PUBLICATIONS, without the numbers that a broker would give. Publishers take turns; `sequence` is their own order.

    A publisher chooses topics as subscribers do: by popularity, and with `local_share` among those of its site.
    """
    return made(spark, workload.events, partial(_publication_rows, workload), PUBLICATIONS, 1.0, partitions)


def rates(spark: SparkSession, workload: Workload, partitions: int | None = None) -> DataFrame:
    """RATES that `publications` has in expectation, per topic and site of publishers."""
    return made(spark, workload.topics, partial(_rate_rows, workload), RATES, workload.sites, partitions)


def topic_of_events(workload: Workload, events: Ids) -> Ids:
    """On which topic each event is published."""
    site = site_of_publishers(workload, events % workload.publishers)
    places = uniform(workload.seed, Purpose.EVENT_TOPIC, events)
    local = uniform(workload.seed, Purpose.EVENT_LOCAL, events) < workload.local_share
    return choose(workload, places, local, site)


def time_of_events(workload: Workload, events: Ids) -> Floats:
    """Milliseconds since the beginning; they grow with the event."""
    return (events + uniform(workload.seed, Purpose.EVENT_TIME, events)) * (1000.0 / workload.events_per_s)


def publication_columns(workload: Workload, events: Ids) -> dict[str, pa.Array]:
    """Everything but the topic and its number."""
    return {
        "event_id": names("e", events),
        "publisher": names("p", events % workload.publishers),
        "published_at": pa.array(time_of_events(workload, events)),
        "sequence": pa.array(events // workload.publishers),
        "index": pa.array(np.zeros(len(events), np.int32)),
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
        yield batch_of(
            RATES,
            topic=names("t", topics),
            events_per_s=pa.array(rate),
            site=names("site", np.full(len(topics), site)),
        )
