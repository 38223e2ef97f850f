"""The loop closes: archive, plan, apply on the running cluster. Do the wide-area hops drop as the plan predicted?

A NATS server and a tree of sequencer nodes, one at each of three sites. Clients of a site mostly use the site's own
topics. The cluster begins with homes by hash, as one would without a plan. While clients publish and subscribe, what
they did is archived, and a plan is made from the archive: subscriptions, rates and sites as they were. Then the plan is
applied (as `seriatim apply` does), while publishers go on. At last the same clients publish other events. Nothing is
stopped or started in between. The subscribers' logs of all of it are audited. Counted are, before and after,

- messages between nodes of different sites, by the nodes themselves (`links` of their status), after all have joined;
- ranges stamped at another site than where their event was published, from the archive: two hops each.

Each seed is another world (who holds what, who is where) and other events. All that are asked for are printed, and so
is how far the forecast was off: of the drop, and of what is left.

Run: python -m bench.plan_live [--seeds 1 2 3] [--events 3000] [--subscribers 60] [--topics 30] [--local-share 0.9]
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs
from pyspark.sql import SparkSession

from seriatim import Bus, Subscription, connect
from seriatim.audit import audit
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Moved, Mover, apply_homes
from seriatim.live.server import SequencerServer
from seriatim.model import Delivery, History
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
from seriatim.server.config import ClusterConfig, load_config, read_plan

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
    """Before and after, what was predicted for them, what the auditor says of all of it, and what has moved."""

    predicted_before: float
    before: Measured
    predicted_after: float
    after: Measured
    verdict: str
    moved: list[Moved]
    applied_s: float

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


class Clients:
    """The subscribers and publishers of one cluster, from its beginning to its end, and what each subscriber saw."""

    def __init__(self, url: str, cluster: str, stack: AsyncExitStack) -> None:
        self.sent: Counter[str] = Counter()  # events by topic
        self.got: dict[str, list[tuple[str, str]]] = {}  # subscriber → (topic, id), in its order
        self._seen: Counter[str] = Counter()
        self._news = asyncio.Condition()
        self._publishers: dict[str, Bus] = {}
        self._url, self._cluster, self._stack = url, cluster, stack
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, load: Load) -> None:
        for name, topics in load.holdings.items():
            events = await self._stack.enter_async_context((await self._bus(name)).subscribe(*topics, log="broker:"))
            self._tasks.append(asyncio.create_task(self._take(events, self.got.setdefault(name, []))))
        for name in sorted({name for name, _ in load.events}):
            self._publishers[name] = await self._bus(name)

    async def _bus(self, name: str) -> Bus:
        bus = connect(self._url, cluster=self._cluster, name=name, timeout_s=WAIT_S)
        return await self._stack.enter_async_context(bus)

    async def _take(self, events: Subscription, got: list[tuple[str, str]]) -> None:
        async for event in events:
            got.append((event.topic, event.id))
            async with self._news:
                self._seen[event.id] += 1
                self._news.notify_all()

    async def publish(self, name: str, topic: str) -> None:
        """One range per event: whoever publishes next waits for this one's stamp."""
        published = await self._publishers[name].publish(topic, b"x" * 64)
        self.sent[topic] += 1
        async with self._news, asyncio.timeout(WAIT_S):
            await self._news.wait_for(partial(self._seen.__contains__, published.id))

    async def publish_all(self, load: Load) -> None:
        async def publish(name: str) -> None:
            for who, topic in load.events:
                if who == name:
                    await self.publish(name, topic)

        await asyncio.gather(*map(publish, self._publishers))

    async def end(self, holdings: dict[str, list[str]]) -> str:
        """Wait until everybody has everything; what an auditor says of it."""
        wanted = {name: sum(self.sent[topic] for topic in topics) for name, topics in holdings.items()}
        async with self._news, asyncio.timeout(WAIT_S):
            await self._news.wait_for(lambda: all(len(self.got[name]) >= count for name, count in wanted.items()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        wrong = {name: len(self.got[name]) - count for name, count in wanted.items() if len(self.got[name]) != count}
        if wrong:
            return f"too many events: {wrong}"
        rows = [
            Delivery(name, place, id_, topic)
            for name, got in self.got.items()
            for place, (topic, id_) in enumerate(got)
        ]
        answers = audit(History(rows)).verdicts
        return ", ".join(f"{name} {answers[name].answer}" for name in ("per-topic", "tno"))


async def close_the_loop(
    config: ClusterConfig, first: Load, second: Load, spark: SparkSession, folder: Path
) -> Comparison:
    """Measure, archive, plan, apply, and measure again, on one cluster that never stops."""
    url, cluster, lake = config.broker, config.cluster, folder / "lake"

    async def measured(clients: Clients, load: Load, far_before: int) -> tuple[Measured, int]:
        crossed = await crossings(url, cluster, config)
        await clients.publish_all(load)
        crossed = await crossings(url, cluster, config) - crossed
        far = await far_so_far(load)
        count = len(load.events)
        return Measured(count, crossed / count, 2 * (far - far_before) / count), far

    async def far_so_far(load: Load) -> int:
        await asyncio.to_thread(archive_run, spark, url, cluster, lake)
        return await asyncio.to_thread(far_ranges, spark, str(lake / cluster), load)

    async with SequencerServer(config), AsyncExitStack() as stack:
        clients = Clients(url, cluster, stack)
        await clients.join(first)
        before, _ = await measured(clients, first, 0)
        out = folder / "plan"
        predicted = await asyncio.to_thread(plan_from, spark, lake, config, first, out)
        homes = read_plan(out / "plan.toml")["homes"]
        is_applied = asyncio.Event()

        async def go_on() -> None:
            place = 0
            while not is_applied.is_set():
                await clients.publish(*first.events[place % len(first.events)])
                place += 1

        going_on = asyncio.create_task(go_on())
        async with find_cluster(url, cluster, WAIT_S) as found:
            began_s = time.monotonic()
            moved = await apply_homes(Mover(found), homes, WAIT_S, lambda each: None)
            applied_s = time.monotonic() - began_s
        is_applied.set()
        await going_on
        after, _ = await measured(clients, second, await far_so_far(first))
        verdict = await clients.end(first.holdings)
    return Comparison(predicted[0], before, predicted[1], after, verdict, moved, applied_s)


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
        plan = planning.make_plan(summed, planning.Network(NODES, config.tree, keeps_tree=True))
        summary = planning.summary(plan, [])
        planning.write_plan(plan, summary, str(out))
    return summary["before"]["hops_per_event"], summary["after"]["hops_per_event"]


def compare(spark: SparkSession, folder: Path, workload: Workload = WORKLOAD) -> Comparison:
    """The same subscribers before and after, other events."""
    first, second = load_of(workload, workload.seed), load_of(workload, workload.seed + 1)
    topics = sorted({topic for held in first.holdings.values() for topic in held})
    naive = {topic: f"n{hash_of(topic) % len(NODES)}" for topic in topics}
    with NatsServer(folder / "nats") as nats:
        config = load_config(cluster_file(folder, nats.url, "loop", naive))
        return asyncio.run(close_the_loop(config, first, second, spark, folder))


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
            waited = max((each.waited_ms or 0.0 for each in found.moved), default=0.0)
            print(
                f"       {len(found.moved)} topics moved in {found.applied_s:.1f} s, the longest waited {waited:.0f} ms"
            )
            print(f"       audit: {found.verdict}", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
