"""A plan as files: `plan.toml`, which `seriatim serve --plan` runs, and tables for everybody else."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.model import Node, Topic
from seriatim.pipeline.plan.planner import Plan


def plan_text(plan: Plan) -> str:
    """TOML: the tree, and the home of every topic. What was counted on is said in comments."""
    sites = plan.model.network.sites
    head = [
        f"# {plan.graph.size:,} topics, {plan.graph.pair_count:,} coupled pairs, {plan.events_per_s:,.1f} events/s",
        f"# {plan.shape.name}: {plan.per_event(plan.cost.hops_per_s):.3f} wide-area hops per event expected",
    ]
    return "\n".join([*head, toml_of(plan.parents, plan.homes, plan.default_home, sites)])


def toml_of(
    parents: Mapping[Node, Node | None],
    homes: Mapping[Topic, Node],
    default_home: Node,
    sites: Mapping[Node, str] | None = None,
) -> str:
    """What `read_plan` of the server reads."""
    lines = [f"default_home = {_quoted(default_home)}", ""]
    for node, parent in parents.items():
        site = f"  # at {sites[node]}" if sites is not None else ""
        lines.append(f"[nodes.{_quoted(node)}]{site}")
        lines += [f"parent = {_quoted(parent)}"] if parent is not None else []
        lines.append("")
    lines.append("[homes]")
    lines += [f"{_quoted(topic)} = {_quoted(node)}" for topic, node in homes.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """JSON's strings are TOML's too, but TOML wants no raw DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def topics_table(plan: Plan) -> DataFrame:
    """One row per topic: who holds it, how often it is published, its stamps, its home, what it costs."""
    graph, cost, nodes = plan.graph, plan.cost, plan.shape.nodes
    spark = plan.summed.held.sparkSession
    rows = zip(
        graph.names,
        plan.summed.topics.holders,
        graph.rates.tolist(),
        graph.group_sizes.tolist(),
        graph.difference_entries.tolist(),
        graph.components.tolist(),
        [nodes[home] for home in plan.home_ids.tolist()],
        cost.access.tolist(),
        cost.climb.tolist(),
        strict=True,
    )
    schema = (
        "topic string, subscribers long, events_per_s double, full_entries long, difference_entries double, "
        "component long, home string, access_hops_per_s double, climb_hops_per_s double"
    )
    return spark.createDataFrame(list(rows), schema)


def pairs_table(plan: Plan) -> DataFrame:
    """One row per coupled pair: how many hold both, and what that costs. Not those that wide ones alone couple."""
    graph = plan.graph
    spark = plan.summed.held.sparkSession
    rows = zip(range(graph.size), graph.names, graph.rates.tolist(), strict=True)
    topics = F.broadcast(spark.createDataFrame(list(rows), "id int, name string, rate double"))
    named = plan.summed.pairs.join(topics.toDF("a", "topic", "rate"), "a").join(topics.toDF("b", "other", "more"), "b")
    both = F.col("rate") + F.col("more")
    cost = F.when(both > 0.0, 2.0 * F.col("rate") * F.col("more") / both).otherwise(0.0)
    return named.select("topic", "other", "subscribers", cost.alias("entries_per_s"))
