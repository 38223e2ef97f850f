"""A plan as files: `plan.toml`, which `seriatim serve --plan` runs, and tables for everybody else."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seriatim.model import Node, Topic
from seriatim.pipeline.plan.advice import Advice, WideAdvice
from seriatim.pipeline.plan.planner import PlacedTree, Plan
from seriatim.pipeline.spark import files

COUPLINGS_SHOWN = 20
ENTRY_BYTES = 12  # of an entry on the wire: 8 for the hash that names a topic, 4 for a number of up to 268 million


def plan_text(plan: Plan) -> str:
    """TOML: the tree, and the home of every topic. What was counted on is said in comments."""
    sites = plan.model.network.sites
    head = [
        f"# {plan.graph.size:,} topics, {plan.graph.pair_count:,} coupled pairs, {plan.events_per_s:,.1f} events/s",
        f"# {plan.shape.name}: {plan.per_event(plan.cost.hops_per_s):.3f} wide-area hops per event expected",
    ]
    return "\n".join([*head, toml_of(plan.shape.parents, plan.homes, plan.shape.tree.root, sites)])


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
    write_files({"topics": topics_table(plan), "pairs": pairs_table(plan)}, found, plan_text(plan), uri)


def write_files(tables: Mapping[str, DataFrame], found: Mapping[str, Any], text: str, uri: str) -> None:
    """Tables, plan.json and plan.toml."""
    for name, table in tables.items():
        table.write.mode("overwrite").parquet(files.join(uri, name))
    spark = next(iter(tables.values())).sparkSession
    told = json.dumps(found, ensure_ascii=False, indent=1) + "\n"
    files.replace(spark, files.join(uri, "plan.json"), told.encode("utf-8"))
    files.replace(spark, files.join(uri, "plan.toml"), text.encode("utf-8"))


def summary(plan: Plan, advice: Sequence[Advice | WideAdvice], name: str = "plan") -> dict[str, Any]:
    """What `plan.json` holds: the plan beside other placements, the couplings that cost most, and advice."""
    before = plan.before()
    after = PlacedTree("this plan", plan.shape, plan.home_ids, plan.cost)
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
        "orders": _orders(plan),
        "facts": {
            "topics": f"{graph.size:,}",
            "subscriptions": f"{sum(plan.summed.topics.holders):,}",
            "coupled pairs": f"{graph.pair_count:,}",
            "events/s": f"{plan.events_per_s:,.1f}",
            "entries of a full stamp": f"{float(graph.group_sizes @ graph.rates) / rates:,.1f}",
            "entries of a difference": f"{graph.entries_per_s / rates:,.1f}",
        },
    }


def _orders(plan: Plan) -> list[dict[str, Any]]:
    """What the planned order costs per event, and beside global order what the best plan for pairwise order would."""
    events_per_s = max(plan.events_per_s, 1e-300)
    weaker = plan.in_pairwise_order()
    return [
        {
            "order": "global" if each.graph.threshold == 1 else "pairwise",
            "coupled_pairs": each.graph.pair_count,
            "entries_per_event": each.graph.entries_per_s / events_per_s,
            "bytes_per_event": ENTRY_BYTES * each.graph.entries_per_s / events_per_s,
            "hops_per_event": each.per_event(each.cost.hops_per_s),
        }
        for each in (plan, weaker)
        if each is not None
    ]


def _shape_of(plan: Plan, placed: PlacedTree) -> dict[str, Any]:
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
    columns = {
        "topic string": graph.names,
        "subscribers long": plan.summed.topics.holders,
        "events_per_s double": graph.rates.tolist(),
        "full_entries long": graph.group_sizes.tolist(),
        "difference_entries double": graph.difference_entries.tolist(),
        "component long": graph.components.tolist(),
        "home string": [nodes[home] for home in plan.home_ids.tolist()],
        "access_hops_per_s double": cost.access.tolist(),
        "climb_hops_per_s double": cost.climb.tolist(),
    }
    return table_of(plan.summed.held.sparkSession, columns)


def table_of(spark: SparkSession, columns: Mapping[str, Iterable[Any]]) -> DataFrame:
    """A table of columns; a key is a column's name and type."""
    return spark.createDataFrame(list(zip(*columns.values(), strict=True)), ", ".join(columns))


def pairs_table(plan: Plan) -> DataFrame:
    """One row per coupled pair: how many hold both, and what that costs. Not those that wide ones alone couple."""
    graph = plan.graph
    columns = {"id int": range(graph.size), "name string": graph.names, "rate double": graph.rates.tolist()}
    topics = F.broadcast(table_of(plan.summed.held.sparkSession, columns))
    named = plan.summed.pairs.join(topics.toDF("a", "topic", "rate"), "a").join(topics.toDF("b", "other", "more"), "b")
    both = F.col("rate") + F.col("more")
    cost = F.when(both > 0.0, 2.0 * F.col("rate") * F.col("more") / both).otherwise(0.0)
    return named.select("topic", "other", "subscribers", cost.alias("entries_per_s"))
