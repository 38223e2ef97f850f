"""A plan as files: `plan.toml`, which `seriatim serve --plan` runs, and tables for everybody else."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.model import Node, Topic
from seriatim.pipeline.plan.advice import Advice, WideAdvice
from seriatim.pipeline.plan.planner import Placed, Plan
from seriatim.pipeline.spark import files

COUPLINGS_SHOWN = 20


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
    """The tables that `read_plan` of the server reads, as TOML."""
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


def write_plan(plan: Plan, found: Mapping[str, Any], uri: str) -> None:
    """Everything a plan is, into a folder. `plan.toml` is written last: if it exists, the rest is complete."""
    spark = plan.summed.held.sparkSession
    topics_table(plan).write.mode("overwrite").parquet(files.join(uri, "topics"))
    pairs_table(plan).write.mode("overwrite").parquet(files.join(uri, "pairs"))
    told = json.dumps(found, ensure_ascii=False, indent=1) + "\n"
    files.replace(spark, files.join(uri, "plan.json"), told.encode("utf-8"))
    files.replace(spark, files.join(uri, "plan.toml"), plan_text(plan).encode("utf-8"))


def summary(plan: Plan, advice: Sequence[Advice | WideAdvice], name: str = "plan") -> dict[str, Any]:
    """What `plan.json` holds: the plan beside other placements, the couplings that cost most, and advice."""
    before = plan.before()
    after = Placed("this plan", plan.shape, plan.home_ids, plan.cost)
    graph = plan.graph
    costliest = np.argsort(-graph.pair_costs, kind="stable")[:COUPLINGS_SHOWN].tolist()
    rates = max(plan.events_per_s, 1e-300)
    return {
        "name": name,
        "before": _shape_of(plan, before) if before is not None else None,
        "after": _shape_of(plan, after),
        "others": [_shape_of(plan, rival) for rival in plan.rivals()],
        "bound_per_event": plan.per_event(plan.bound),
        "load_max_per_s": plan.model.network.load_max,
        "couplings": [
            {
                "first": graph.names[graph.a[place]],
                "second": graph.names[graph.b[place]],
                "subscribers": int(graph.shared[place]),
                "entries_per_s": float(graph.pair_costs[place]),
            }
            for place in costliest
        ],
        "advice": [each.sentence for each in advice],
        "facts": {
            "topics": f"{graph.size:,}",
            "subscriptions": f"{sum(plan.summed.topics.holders):,}",
            "coupled pairs": f"{graph.pair_count:,}",
            "events/s": f"{plan.events_per_s:,.1f}",
            "entries of a full stamp": f"{float(graph.group_sizes @ graph.rates) / rates:,.1f}",
            "entries of a difference": f"{graph.entries_per_s / rates:,.1f}",
        },
    }


def _shape_of(plan: Plan, placed: Placed) -> dict[str, Any]:
    sites, nodes = plan.model.network.sites, placed.shape.nodes
    topics = np.bincount(placed.homes, minlength=len(nodes)).tolist()
    return {
        "name": placed.name,
        "tree": placed.shape.name,
        "hops_per_event": plan.per_event(placed.cost.hops_per_s),
        "nodes": [
            {
                "name": node,
                "parent": placed.shape.parents[node],
                "site": sites[node],
                "topics": topics[place],
                "load_per_s": float(placed.cost.loads[place]),
            }
            for place, node in enumerate(nodes)
        ],
    }


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
