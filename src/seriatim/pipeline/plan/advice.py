"""The cost of couplings, the few subscriptions that cause them, and the effect of one more subscription.

A pair that only a few subscribers hold can be uncoupled by a few of them: if all but one (total order) dropped one of
the two topics, neither topic would have to mention the other. The cheapest such drops of each topic are found greedily:
first the subscribers whose leaving frees most entries per subscriber still needed.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from pyspark.sql import functions as F

from seriatim.model import InputError, Topic
from seriatim.pipeline.plan.graph import implied_pairs, share, sums_of
from seriatim.pipeline.plan.inputs import Topics
from seriatim.pipeline.plan.overlaps import pairs_of
from seriatim.pipeline.plan.planner import Plan

DROPS_MAX = 12  # subscribers named in one piece of advice
TOPICS_TRIED = 20
PAIRS_TRIED = 2_000  # of each topic: those that cost most
LEAST_SHARE = 0.001  # of all entries: less is not worth a sentence
NAMES_SHOWN = 3


def _listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


class Advice(Struct, frozen=True):
    """The savings if these subscribers dropped this topic."""

    topic: Topic
    subscribers: tuple[str, ...]
    holders: int
    pairs: int  # that would no longer be coupled
    entries_before: float  # of the topic's stamps
    entries_after: float
    share: float  # of all entries, of all stamps
    hops_per_s: float  # saved

    @property
    def sentence(self) -> str:
        hops = f", and {self.hops_per_s:,.1f} wide-area hops/s would be saved" if self.hops_per_s > 0.05 else ""
        return (
            f"If {_listed(self.subscribers)} ({len(self.subscribers):,} of {self.holders:,}) dropped {self.topic}, "
            f"{self.pairs:,} {'pair' if self.pairs == 1 else 'pairs'} would be uncoupled: its stamps would shrink from "
            f"{self.entries_before:,.1f} to {self.entries_after:,.1f} entries, all stamps by {self.share:.1%}{hops}."
        )


class WideAdvice(Struct, frozen=True):
    """How many pairs, at least, would not be coupled if this wide subscriber held nothing."""

    subscriber: str
    topics: int
    pairs: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.subscriber} holds {self.topics:,} topics; without it at least {self.pairs:,} pairs would not be "
            f"coupled. If it does not need their order, let it subscribe outside of the cluster."
        )


class WhatIf(Struct, frozen=True):
    subscriber: str
    topics: tuple[Topic, ...]
    pairs: tuple[tuple[Topic, Topic], ...]  # that would become coupled
    entries_per_s: float
    share: float  # of all entries now
    hops_per_s: float

    @property
    def sentence(self) -> str:
        couples = f"couple {_listed([f'{a} with {b}' for a, b in self.pairs])}" if self.pairs else "couple nothing new"
        return (
            f"If {self.subscriber} held {', '.join(self.topics)}, that would {couples}: {self.entries_per_s:,.1f} more "
            f"entries/s ({self.share:+.1%}), {self.hops_per_s:,.1f} more wide-area hops/s."
        )


def advise(plan: Plan, count: int = 5) -> list[Advice]:
    """The drops that free most, best first."""
    graph = plan.graph
    few = graph.shared < graph.threshold + DROPS_MAX
    a, b, costs, shared = graph.a[few], graph.b[few], graph.pair_costs[few], graph.shared[few]
    promise = sums_of(a, costs, graph.size) + sums_of(b, costs, graph.size)
    tried = [int(topic) for topic in np.argsort(-promise, kind="stable")[:TOPICS_TRIED] if promise[topic] > 0.0]
    wanted: list[tuple[int, int, float, int]] = []
    for topic in tried:
        mine = np.flatnonzero((a == topic) | (b == topic))
        mine = mine[np.argsort(-costs[mine], kind="stable")][:PAIRS_TRIED]
        others = np.where(a[mine] == topic, b[mine], a[mine])
        needed = shared[mine] - graph.threshold + 1
        wanted += zip([topic] * len(mine), others.tolist(), costs[mine].tolist(), needed.tolist(), strict=True)
    if not wanted:
        return []
    found = [_drops(plan, topic, rows) for topic, rows in _holders(plan, wanted).items()]
    total = max(graph.entries_per_s, 1e-300)
    worth = [each for each in found if each is not None and each.share * total > 0.0 and each.share >= LEAST_SHARE]
    return sorted(worth, key=lambda each: (-each.share, len(each.subscribers), each.topic))[:count]


def advise_on_wide(plan: Plan) -> list[WideAdvice]:
    """What the widest subscriptions alone cause."""
    graph = plan.graph
    before = implied_pairs(graph.masks, graph.threshold)
    found = []
    for bit, subscriber in enumerate(plan.summed.wide.subscribers):
        after = implied_pairs(graph.masks & ~np.int64(1 << bit), graph.threshold)
        found.append(WideAdvice(subscriber, int(np.count_nonzero(graph.masks >> bit & 1)), before - after))
    return sorted(found, key=lambda each: (-each.pairs, each.subscriber))


def what_if(plan: Plan, subscriber: str, topics: Iterable[Topic]) -> WhatIf:
    """What would change if the subscriber, known or new, held these topics too."""
    new = [_id_of(plan.summed.topics, topic) for topic in dict.fromkeys(topics)]
    if not new:
        raise InputError("what-if", "no topic is named", "give subscriber=NAME,topics=A+B")
    graph, held = plan.graph, plan.summed.held
    mine = [row["id"] for row in held.where(F.col("subscriber") == subscriber).distinct().collect()]
    added = [topic for topic in new if topic not in mine]
    everything = sorted({*mine, *new})
    others = held.where(F.col("subscriber") != subscriber).where(F.col("id").isin(everything))
    rows = pairs_of(others, graph.size, sum(plan.summed.topics.holders[topic] for topic in everything))
    last = rows.where(F.col("subscribers") == graph.threshold - 1) if graph.threshold > 1 else rows
    counted = {divmod(row["pair"], graph.size): row["subscribers"] for row in last.collect()}
    pairs = [
        (x, y)
        for i, x in enumerate(everything)
        for y in everything[i + 1 :]
        if (x in added or y in added) and counted.get((x, y), 0) == graph.threshold - 1
    ]
    added_pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
    growth = float(graph.pair_cost(added_pairs[:, 0], added_pairs[:, 1]).sum())
    return WhatIf(
        subscriber,
        tuple(graph.names[topic] for topic in new),
        tuple((graph.names[x], graph.names[y]) for x, y in pairs),
        growth,
        growth / graph.entries_per_s if graph.entries_per_s else 0.0,
        _hops_with(plan, pairs, +1) - plan.cost.hops_per_s,
    )


def _id_of(topics: Topics, topic: Topic) -> int:
    if topic in topics.ids:
        return topics.ids[topic]
    if topic in topics.names:  # a bucket
        return topics.names.index(topic)
    raise InputError("what-if", f"nobody holds the topic {topic!r}", "name topics of the subscriptions")


def _holders(
    plan: Plan, wanted: Sequence[tuple[int, int, float, int]]
) -> dict[int, list[tuple[int, float, int, list[str]]]]:
    """For each topic: the other one of a pair, what the pair costs, how many must leave, and who holds both."""
    held = plan.summed.held
    pairs = held.sparkSession.createDataFrame(list(wanted), "topic int, other int, cost double, needed int")
    # From the side of the other topic, which is the rarer one: what the first one's holders hold beside is not touched.
    others = held.withColumnRenamed("id", "other").join(F.broadcast(pairs), "other")
    tried = pairs.select("topic").distinct()
    theirs = held.withColumnRenamed("id", "topic").join(F.broadcast(tried), "topic")
    both = others.join(theirs, ["subscriber", "topic"])
    found: dict[int, list[tuple[int, float, int, list[str]]]] = {}
    rows = both.groupBy("topic", "other", "cost", "needed").agg(F.sort_array(F.collect_set("subscriber")).alias("who"))
    for row in rows.orderBy("topic", "other").collect():
        found.setdefault(row["topic"], []).append((row["other"], row["cost"], row["needed"], row["who"]))
    return found


def _drops(plan: Plan, topic: int, rows: list[tuple[int, float, int, list[str]]]) -> Advice | None:
    """Choose subscribers greedily, until no more is freed or enough are named."""
    by_name: dict[str, list[int]] = {}
    for place, (_, _, _, names) in enumerate(rows):
        for name in names:
            by_name.setdefault(name, []).append(place)
    needed = [row[2] for row in rows]
    left: list[str] = []
    freed: list[int] = []
    best: tuple[int, int] = (0, 0)
    while len(left) < DROPS_MAX and by_name:
        gains = {
            name: sum(rows[place][1] / needed[place] for place in places if needed[place] > 0)
            for name, places in by_name.items()
        }
        name = max(sorted(gains), key=lambda each: gains[each])
        if gains[name] <= 0.0:
            break
        left.append(name)
        for place in by_name.pop(name):
            needed[place] -= 1
            if needed[place] == 0:
                freed.append(place)
                best = (len(left), len(freed))
    if not best[0]:
        return None
    left, freed = left[: best[0]], freed[: best[1]]
    return _advice(plan, topic, left, [rows[place][0] for place in freed], sum(rows[place][1] for place in freed))


def _advice(plan: Plan, topic: int, left: list[str], others: list[int], saved: float) -> Advice:
    graph = plan.graph
    before = float(graph.difference_entries[topic])
    shrunk = float(share(graph.rates[[topic]], graph.rates[others]).sum())
    pairs = [(topic, other) for other in others]
    return Advice(
        graph.names[topic],
        tuple(left),
        plan.summed.topics.holders[topic],
        len(others),
        before,
        max(before - shrunk, 0.0),
        saved / graph.entries_per_s if graph.entries_per_s else 0.0,
        max(plan.cost.hops_per_s - _hops_with(plan, pairs, -1), 0.0),
    )


def _hops_with(plan: Plan, pairs: Sequence[tuple[int, int]], sign: int) -> float:
    """Hops per second under the same homes, with some pairs more (or less)."""
    members: NDArray[np.int32] = plan.model.members(plan.home_ids)
    homes = plan.home_ids
    for x, y in pairs:
        members[x, homes[y]] += sign
        members[y, homes[x]] += sign
    return plan.model.evaluate(plan.shape, homes, members).hops_per_s
