"""A plan made from the archive of a live run, applied to the next run: do the wide-area hops drop as it predicted?

A NATS server and a tree of sequencer nodes, one at each of three sites. Clients of a site mostly use the site's own
topics. First run: homes by hash, as one would without a plan. While its subscribers are still there, the run is
archived, and a plan is made from the archive: subscriptions, rates and sites as they were. Second run: the same
clients, other events, with that plan. Counted are

- messages between nodes of different sites, by the nodes themselves (`links` of their status), after all have joined;
- ranges stamped at another site than where their event was published, from the archive: two hops each.

Each seed is another world (who holds what, who is where) and other events. All that are asked for are printed, and so
is how far the forecast was off: of the drop, and of what is left.

Run: python -m bench.plan_live [--seeds 1 2 3] [--events 3000] [--subscribers 60] [--topics 30] [--local-share 0.9]
"""

import argparse
import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs
from pyspark.sql import SparkSession

from seriatim import Bus, connect
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli.cluster import find_cluster
from seriatim.live.server import SequencerServer
from seriatim.pipeline import plan as planning
from seriatim.pipeline.archive.reading import read_archive
from seriatim.pipeline.archive.writing import ArchiveFailed, ArchiveOptions, archive
from seriatim.pipeline.plan.inputs import ranges_by_distance
from seriatim.pipeline.spark.session import SparkOptions, open_session
from seriatim.pipeline.workload import Workload
from seriatim.pipeline.workload.tables import (
    chosen,
    site_of_publishers,
    site_of_subscribers,
    sizes_of,
    topic_of_events,
)
from seriatim.server.config import ClusterConfig, load_config

WAIT_S = 300.0
TRIES = 6
NODES = {f"n{i}": f"site{i}" for i in range(3)}
WORKLOAD = Workload(seed=1, subscribers=60, topics=30, held=3, sites=3, local_share=0.9, events=3000, publishers=3)


class Load(NamedTuple):
    """The subscriptions, the publications, and the `sites` of all clients."""

    holdings: dict[str, list[str]]
    events: list[tuple[str, str]]
    sites: dict[str, str]


class Measured(NamedTuple):
    """One run: messages between sites, per event."""

    events: int
    climb: float
    access: float

    @property
    def hops_per_event(self) -> float:
        return self.climb + self.access


class Comparison(NamedTuple):
    """Both runs, and what was predicted for them."""

    predicted_before: float
    before: Measured
    predicted_after: float
    after: Measured

    @property
    def predicted_drop(self) -> float:
        return self.predicted_before - self.predicted_after

    @property
    def drop(self) -> float:
        return self.before.hops_per_event - self.after.hops_per_event


def load_of(workload: Workload, seed: int) -> Load:
    """The same subscribers for every seed, other events."""
    subscribers = np.arange(workload.subscribers)
    choices = chosen(workload, subscribers, sizes_of(workload, subscribers))
    holdings: dict[str, list[str]] = {}
    for owner, topic in zip(choices.owner.tolist(), choices.topic.tolist(), strict=True):
        holdings.setdefault(f"s{owner}", []).append(f"t{topic}")
    ids = np.arange(workload.events)
    topics = topic_of_events(structs.replace(workload, seed=seed), ids)
    held = {topic for topics_ in holdings.values() for topic in topics_}
    publishers = (ids % workload.publishers).tolist()
    events = [(f"p{who}", f"t{topic}") for who, topic in zip(publishers, topics.tolist(), strict=True)]
    sites = {f"s{i}": f"site{site}" for i, site in enumerate(site_of_subscribers(workload, subscribers).tolist())}
    sites |= {
        f"p{i}": f"site{site}"
        for i, site in enumerate(site_of_publishers(workload, np.arange(workload.publishers)).tolist())
    }
    return Load(holdings, [event for event in events if event[1] in held], sites)


def cluster_file(folder: Path, url: str, name: str, homes: dict[str, str]) -> Path:
    """A star over the three sites."""
    lines = [f'broker = "{url}"', f'cluster = "{name}"', 'order = "pairwise"']
    for place, (node, site) in enumerate(NODES.items()):
        parent = "" if not place else 'parent = "n0", '
        lines.append(f'nodes.{node} = {{ {parent}site = "{site}", address = "127.0.0.1:0", journal = "memory" }}')
    lines += ["[homes]", *(f'{topic} = "{node}"' for topic, node in homes.items())]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


async def run(config: ClusterConfig, load: Load, spark: SparkSession, lake: Path) -> Measured:
    """Join, publish everything, count, archive; the subscribers are still there when it is archived."""
    url, cluster = config.broker, config.cluster
    seen: Counter[str] = Counter()
    news = asyncio.Condition()

    async def listen(bus: Bus, topics: list[str], stack: AsyncExitStack) -> Any:
        events = await stack.enter_async_context(bus.subscribe(*topics, log="broker:"))

        async def take() -> None:
            async for event in events:
                async with news:
                    seen[event.id] += 1
                    news.notify_all()

        return take

    async def publish(bus: Bus, topics: list[str]) -> None:
        for topic in topics:
            published = await bus.publish(topic, b"x" * 64)
            async with news, asyncio.timeout(WAIT_S):  # one range per event: the next one waits for this one's stamp
                await news.wait_for(partial(seen.__contains__, published.id))

    async with SequencerServer(config), AsyncExitStack() as stack:
        takers = []
        for name, topics in load.holdings.items():
            bus = await stack.enter_async_context(connect(url, cluster=cluster, name=name, timeout_s=WAIT_S))
            takers.append(await listen(bus, topics, stack))
        tasks = [asyncio.create_task(take()) for take in takers]
        before = await crossings(url, cluster, config)
        publishers = sorted({name for name, _ in load.events})
        buses = [
            await stack.enter_async_context(connect(url, cluster=cluster, name=name, timeout_s=WAIT_S))
            for name in publishers
        ]
        await asyncio.gather(
            *(
                publish(bus, [topic for who, topic in load.events if who == name])
                for name, bus in zip(publishers, buses, strict=True)
            )
        )
        crossed = await crossings(url, cluster, config) - before
        await asyncio.to_thread(archive_run, spark, url, cluster, lake)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    far = await asyncio.to_thread(far_ranges, spark, str(lake / cluster), load)
    count = len(load.events)
    return Measured(count, crossed / count, 2 * far / count)


def archive_run(spark: SparkSession, url: str, cluster: str, lake: Path) -> None:
    """What a plan needs. One table by one, and again if need be: Spark gives a Python worker ten seconds to start,
    which a busy machine may not keep, and an archive goes on where it was."""
    out, checkpoint = str(lake / cluster), str(lake / f"{cluster}-checkpoint")
    for table in ("events", "stamps", "subscriptions"):
        options = ArchiveOptions(url=url, cluster=cluster, out=out, checkpoint=checkpoint, tables=(table,))
        for left in reversed(range(TRIES)):
            try:
                archive(spark, options)
                break
            except ArchiveFailed:
                if not left:
                    raise


async def crossings(url: str, cluster: str, config: ClusterConfig) -> int:
    """Messages between nodes of different sites so far, as the nodes tell."""
    sites = {name: node.site for name, node in config.nodes.items()}
    async with find_cluster(url, cluster, WAIT_S) as found:
        states = await found.status()
    total = 0
    for _, status in states:
        assert status is not None, "a node does not answer"
        total += sum(link.sent for other, link in status.links.items() if sites[other] != sites[status.node])
    return total


def far_ranges(spark: SparkSession, uri: str, load: Load) -> int:
    """Ranges that were stamped at another site than their event's."""
    stamps, events = (read_archive(spark, uri, table) for table in ("stamps", "events"))
    rows = ranges_by_distance(stamps, events, sites_table(spark, load), NODES).collect()
    return sum(row["ranges"] for row in rows if row["is_far"])


def sites_table(spark: SparkSession, load: Load) -> Any:
    """The table that `seriatim plan --sites` reads."""
    return spark.createDataFrame(list(load.sites.items()), "client string, site string")


def plan_from(spark: SparkSession, lake: Path, config: ClusterConfig, load: Load, out: Path) -> tuple[float, float]:
    """Make a plan from the archive of a run; what it predicts for the tree as it is, and for itself."""
    found = planning.from_archive(spark, str(lake / config.cluster))
    assert found is not None, "the run was archived"
    subscriptions, events = found
    sites = sites_table(spark, load)
    inputs = planning.Inputs(subscriptions, planning.rates_of(events, sites), sites)
    with planning.summed_up(inputs, order="pairwise") as summed:
        plan = planning.make_plan(summed, planning.Network(NODES, config.tree))
        summary = planning.summary(plan, [])
        planning.write_plan(plan, summary, str(out))
    return summary["before"]["hops_per_event"], summary["after"]["hops_per_event"]


def compare(spark: SparkSession, folder: Path, workload: Workload = WORKLOAD) -> Comparison:
    """Both runs and the plan between them."""
    lake = folder / "lake"
    first, second = load_of(workload, workload.seed), load_of(workload, workload.seed + 1)
    topics = sorted({topic for held in first.holdings.values() for topic in held})
    naive = {topic: f"n{hash_of(topic) % len(NODES)}" for topic in topics}
    with NatsServer(folder / "nats") as nats:
        config = load_config(cluster_file(folder, nats.url, "before", naive))
        before = asyncio.run(run(config, first, spark, lake))
        predicted_before, predicted_after = plan_from(spark, lake, config, first, folder / "plan")
        config = load_config(cluster_file(folder, nats.url, "after", {}), folder / "plan" / "plan.toml")
        after = asyncio.run(run(config, second, spark, lake))
    return Comparison(predicted_before, before, predicted_after, after)


def hash_of(topic: str) -> int:
    """A hash that is the same in every process."""
    return sum(byte * 31**place for place, byte in enumerate(topic.encode()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=WORKLOAD.events)
    parser.add_argument("--subscribers", type=int, default=WORKLOAD.subscribers)
    parser.add_argument("--topics", type=int, default=WORKLOAD.topics)
    parser.add_argument("--local-share", type=float, default=WORKLOAD.local_share)
    parser.add_argument("--seeds", type=int, nargs="+", default=[WORKLOAD.seed])
    chosen = vars(parser.parse_args())
    seeds = chosen.pop("seeds")
    print("wide-area hops per event, predicted and measured")
    print(f"{'seed':>6}{'events':>8}{'by hash':>18}{'with the plan':>18}{'drop':>18}  drop off by")
    spark = open_session(SparkOptions(master="local[2]", shuffle_partitions=4), "plan, live")
    try:
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                found = compare(spark, Path(folder), structs.replace(WORKLOAD, seed=seed, **chosen))
            pairs = (
                (found.predicted_before, found.before.hops_per_event),
                (found.predicted_after, found.after.hops_per_event),
                (found.predicted_drop, found.drop),
            )
            shown = "".join(f"{predicted:10.3f}{measured:8.3f}" for predicted, measured in pairs)
            off = found.drop / found.predicted_drop - 1.0
            print(f"{seed:6}{found.after.events:8,}{shown}  {off:+.1%}", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
