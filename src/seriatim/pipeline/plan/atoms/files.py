"""A plan of atoms as files: `plan.toml`, which the machines read, and tables for everybody else."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.model import Topic
from seriatim.pipeline.plan.atoms.planner import AtomsPlan
from seriatim.pipeline.plan.files import table_of, write_files
from seriatim.pipeline.plan.graph import Ids, columns_of
from seriatim.pipeline.plan.overlaps import both_of
from seriatim.protocols.atoms.written import DIGITS, ORDER, Chain, Written, write

MEMBERS_MAX = 100_000  # subscriptions up to which the plan names everybody


def write_atoms(plan: AtomsPlan, found: Mapping[str, Any], uri: str) -> None:
    """Everything, into a folder. `plan.toml` is written last: if it exists, the rest is complete."""
    tables = {"atoms": atoms_table(plan), "groups": groups_table(plan), "nodes": nodes_table(plan)}
    write_files(tables, found, write(written_of(plan)), uri)


def written_of(plan: AtomsPlan) -> Written:
    """What plan.toml holds. Here the driver has all atoms, as columns."""
    names, count = plan.topics.names, len(plan.topics.names)
    digests = digests_of(plan.held.join(_topics(plan), "id").select("subscriber", "topic"))
    held = sum(size for size, _ in digests.values())
    members = _members(plan) if held <= MEMBERS_MAX else None
    hosts = list(plan.network.nodes)
    low, high, after, piece = columns_of(plan.atoms, "a", "b", "after", "piece")
    keys = low * count + high
    order = np.argsort(keys)
    host = plan.nodes.hosts[plan.nodes.of_piece[piece[order]]] if len(keys) else keys
    chains = [
        Chain(hosts[at], " ".join(_text(each, count) for each in chain), None if last < 0 else _text(last, count))
        for at, chain, last in _chains(keys[order], after[order], host)
    ]
    sizes, marks = ([digests[name][place] for name in names] for place in (0, 1))
    return Written(ORDER, plan.threshold, hosts, names, sizes, marks, chains, members)  # type: ignore[arg-type]


def digests_of(held: DataFrame) -> dict[Topic, tuple[int, str]]:
    """How many hold each topic and who they are, as `digest_of` of the protocol says. `held`: `subscriber`, `topic`."""
    bits = F.conv(F.substring(F.sha2("subscriber", 256), 1, DIGITS), 16, 10).cast("long")
    once = held.select("topic", "subscriber").distinct()
    found = once.groupBy("topic").agg(F.count("*").alias("size"), F.bit_xor(bits).alias("bits")).toArrow()
    columns = (found.column(name).to_pylist() for name in ("topic", "size", "bits"))
    return {topic: (size, f"{mixed:0{DIGITS}x}") for topic, size, mixed in zip(*columns, strict=True)}


def summary(plan: AtomsPlan, name: str = "plan") -> dict[str, Any]:
    """What `plan.json` holds: sizes, paths, and what hosts have to bear."""
    groups, nodes = plan.groups, plan.nodes
    walking = np.flatnonzero(groups.entries >= 0)
    lengths, rates = groups.lengths[walking], plan.rates[walking]
    events = max(float(plan.rates.sum()), 1e-300)
    wide = float((nodes.wide_hops[walking] * rates).sum() + nodes.access.sum())
    longest = int(walking[np.argmax(lengths)]) if len(walking) else -1
    return {
        "name": name,
        "order": ORDER,
        "groups": len(plan.topics.names),
        "subscriptions": sum(plan.topics.holders),
        "atoms": int(nodes.atoms.sum()),
        "components": len(np.unique(plan.parts.components[walking])),
        "backbone": int(plan.parts.backbone.sum()),
        "groups_with_atoms": len(walking),
        "path_length": _spread(lengths),
        "longest_path": {"topic": plan.topics.names[longest], "atoms": int(lengths.max())} if longest >= 0 else None,
        "pass_through": int(lengths.sum()) - 2 * int(nodes.atoms.sum()),
        "nodes": len(nodes.atoms),
        "load_max": plan.load_max,
        "node_load": _spread(nodes.loads),
        "stress": _spread(nodes.groups / max(1, len(plan.topics.names))),
        "hops_per_event": float((nodes.hops[walking] * rates).sum()) / events,
        "wide_hops_per_event": wide / events,
        "hosts": [
            {
                "name": host,
                "site": plan.network.sites[host],
                "nodes": int((nodes.hosts == place).sum()),
                "atoms": int(nodes.atoms[nodes.hosts == place].sum()),
                "load_per_s": float(nodes.host_loads[place]),
            }
            for place, host in enumerate(plan.network.nodes)
        ],
    }


def _spread(values: Any) -> dict[str, float]:
    if not len(values):
        return {"mean": 0.0, "half": 0.0, "most": 0.0}
    return {"mean": float(np.mean(values)), "half": float(np.median(values)), "most": float(np.max(values))}


def atoms_table(plan: AtomsPlan) -> DataFrame:
    """One row per atom: its topics, how many members they share, the next atom, its sequencing node and its host."""
    spark = plan.held.sparkSession
    count, hosts, nodes = len(plan.topics.names), plan.network.nodes, plan.nodes
    rows = [
        (piece, node, hosts[nodes.hosts[node]])
        for piece, node in enumerate(nodes.of_piece.tolist())
        if plan.pieces.atoms[piece]
    ]
    placed = F.broadcast(spark.createDataFrame(rows, "piece int, node int, host string"))
    topics = _topics(plan)
    after = F.when(F.col("after") >= 0, F.col("after"))
    with_next = plan.atoms.withColumn("after", after).select("*", *both_of("after", count, "next_a", "next_b"))
    named = with_next.join(placed, "piece")
    for column, name in (("a", "topic"), ("b", "other"), ("next_a", "next_topic"), ("next_b", "next_other")):
        named = named.join(topics.toDF(column, name), column, "left")
    return named.select("topic", "other", "members", "next_topic", "next_other", "depth", "component", "node", "host")


def groups_table(plan: AtomsPlan) -> DataFrame:
    """One row per group: where it enters and leaves, how long its path is, how often it changes the host."""
    names, groups, nodes = plan.topics.names, plan.groups, plan.nodes
    columns = {
        "topic string": names,
        "subscribers long": plan.topics.holders,
        "events_per_s double": plan.rates.tolist(),
        "component long": plan.parts.components.tolist(),
        "backbone boolean": plan.parts.backbone.tolist(),
        "atoms long": groups.atoms.tolist(),
        "path_length long": groups.lengths.tolist(),
        "pass_through long": (groups.lengths - groups.atoms).tolist(),
        "entry array<string>": [_named(key, names) for key in groups.entries.tolist()],
        "end array<string>": [_named(key, names) for key in groups.ends.tolist()],
        "hops long": nodes.hops.tolist(),
        "wide_hops long": nodes.wide_hops.tolist(),
    }
    return table_of(plan.held.sparkSession, columns)


def nodes_table(plan: AtomsPlan) -> DataFrame:
    """One row per sequencing node: its host, its atoms, and its stress: the share of all groups that pass it."""
    nodes, hosts = plan.nodes, plan.network.nodes
    columns = {
        "node int": range(len(nodes.atoms)),
        "host string": [hosts[host] for host in nodes.hosts.tolist()],
        "atoms long": nodes.atoms.tolist(),
        "next_node int": [after if after >= 0 else None for after in nodes.after.tolist()],
        "groups long": nodes.groups.tolist(),
        "stress double": (nodes.groups / max(1, len(plan.topics.names))).tolist(),
        "load_per_s double": nodes.loads.tolist(),
    }
    return table_of(plan.held.sparkSession, columns)


def _topics(plan: AtomsPlan) -> DataFrame:
    rows = list(enumerate(plan.topics.names))
    return F.broadcast(plan.held.sparkSession.createDataFrame(rows, "id int, topic string"))


def _members(plan: AtomsPlan) -> dict[Topic, list[str]]:
    rows = plan.held.groupBy("id").agg(F.sort_array(F.collect_set("subscriber")).alias("members")).collect()
    found = {row["id"]: row["members"] for row in rows}
    return {name: found[number] for number, name in enumerate(plan.topics.names)}


def _chains(keys: Ids, after: Ids, hosts: Ids) -> Iterator[tuple[int, list[int], int]]:
    """Host, atoms and what comes after them: runs of one host. `keys` ascend."""
    size = len(keys)
    following = np.where(after >= 0, np.searchsorted(keys, np.maximum(after, 0)), -1)
    chosen = np.full(size, -1, np.int64)
    led = np.flatnonzero(following >= 0)
    led = led[hosts[led] == hosts[following[led]]]
    chosen[following[led]] = led  # of several that lead to an atom, the last
    goes_on = np.full(size, -1, np.int64)
    goes_on[chosen[chosen >= 0]] = np.flatnonzero(chosen >= 0)
    onward, atoms, then, where = goes_on.tolist(), keys.tolist(), after.tolist(), hosts.tolist()
    for start in np.flatnonzero(chosen < 0).tolist():
        chain, here = [atoms[start]], start
        while onward[here] >= 0:
            here = onward[here]
            chain.append(atoms[here])
        yield where[start], chain, then[here]


def _text(key: int, count: int) -> str:
    return f"{key // count}&{key % count}"


def _named(key: int, names: list[str]) -> list[str] | None:
    return None if key < 0 else [names[key // len(names)], names[key % len(names)]]
