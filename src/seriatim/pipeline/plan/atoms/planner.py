"""From subscriptions to a sequencing graph on hosts: Spark finds overlaps, cuts and builds; the driver joins, places.

    subscriptions ─► overlaps ─► parts ─► atoms of each part ─► groups, pieces ─► nodes and hosts ─► files
                     (Spark)     (Spark)  (Spark, part by part)  (Spark)          (driver)

The driver has columns of groups, parts and pieces, and of atoms when it writes `plan.toml`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.pipeline.plan.atoms.building import SEGMENT, Known, build_parts
from seriatim.pipeline.plan.atoms.overlaps import overlaps_of, refuse_too_many
from seriatim.pipeline.plan.atoms.parts import PART_MAX, Order, Parts, order_of, owned_pairs, parts_of
from seriatim.pipeline.plan.atoms.placing import Groups, Nodes, Pieces, place
from seriatim.pipeline.plan.graph import Floats, columns_of
from seriatim.pipeline.plan.inputs import Inputs, Topics, rates_and_places, topics_of
from seriatim.pipeline.plan.network import Network
from seriatim.pipeline.plan.overlaps import by_id
from seriatim.pipeline.plan.planner import Say, default_network, kept_tables


class AtomsPlan(NamedTuple):
    """Everything that is written. `atoms` is a cached table: `a`, `b`, `members`, `after`, `component`, `depth`,
    `piece`; `held` another one: `subscriber`, `id`."""

    topics: Topics
    threshold: int
    rates: Floats
    held: DataFrame
    atoms: DataFrame
    parts: Parts
    groups: Groups
    pieces: Pieces
    nodes: Nodes
    network: Network
    load_max: float


@contextmanager
def planned_atoms(
    inputs: Inputs,
    network: Network | float | None = None,
    causal: bool = False,
    say: Say = lambda line: None,
    part_max: int = PART_MAX,
) -> Iterator[AtomsPlan]:
    """A plan; its tables stay cached while the block runs. Without a network: a host for each site that is known, and
    if a number is given, that is the load of each."""
    with kept_tables() as keep:
        yield _plan(inputs, network, 1 if causal else 2, say, part_max, keep)


def _plan(
    inputs: Inputs,
    network: Network | float | None,
    threshold: int,
    say: Say,
    part_max: int,
    keep: Callable[[DataFrame], DataFrame],
) -> AtomsPlan:
    say("reading topics")
    topics = topics_of(inputs.held)
    count, rows = len(topics.names), sum(topics.holders)
    held = keep(by_id(inputs.held, topics))
    say(f"{rows:,} subscriptions of {count:,} groups: looking for overlaps")
    pairs = keep(overlaps_of(held, count, rows, threshold))
    size = pairs.count()
    refuse_too_many(size)
    rates, where, sites = rates_and_places(inputs, topics, held)
    network = network if isinstance(network, Network) else default_network(sites, network)
    load_max = network.load_max or busiest(held, rates)
    say(f"{size:,} atoms: cutting them into parts")
    parts = parts_of(pairs, count, part_max)
    owned = keep(owned_pairs(pairs, parts))
    order = order_of(owned, parts)
    say(f"building {len(order.part):,} parts ({int(parts.backbone.sum()):,} groups in backbones)")
    built = keep(build_parts(owned, Known(topics.names, rates, load_max), size))
    atoms = keep(_joined(built, order, count))
    say("measuring paths")
    groups = _groups(atoms, count)
    pieces = _pieces(atoms)
    say(f"placing {len(pieces.atoms):,} pieces on {len(network.nodes)} hosts")
    nodes = place(pieces, groups, rates, (where, sites), network, load_max)
    return AtomsPlan(topics, threshold, rates, held, atoms, parts, groups, pieces, nodes, network, load_max)


def busiest(held: DataFrame, rates: Floats) -> float:
    """What the busiest receiver gets per second: it is the load that pieces may have if nothing else is said. Rows that
    repeat count twice: to look for them would cost more than the number is worth."""
    spark = held.sparkSession
    table = F.broadcast(spark.createDataFrame(list(enumerate(rates.tolist())), "id int, rate double"))
    sums = held.join(table, "id").groupBy("subscriber").agg(F.sum("rate").alias("rate"))
    found = sums.agg(F.max("rate")).first()
    return float(found[0]) if found is not None and found[0] else 1.0


def _joined(built: DataFrame, order: Order, count: int) -> DataFrame:
    """Parts put together: numbers of pieces and depths count on over all of a component; segments lead to the next."""
    key = F.col("a").cast("long") * count + F.col("b")
    depth = F.when(F.col("piece") == SEGMENT, F.col("depth"))
    made = built.groupBy("part").agg(F.max("piece").alias("pieces"), F.max_by(key, depth).alias("head"))
    rows = {row["part"]: row for row in made.collect()}
    offset = 0
    offsets: dict[int, int] = {}
    for part in order.part.tolist():
        offsets[part] = offset
        offset += rows[part]["pieces"] + 1
    follows = _follows(order)
    columns = (order.part.tolist(), order.component.tolist(), order.beyond.tolist(), follows)
    table = [
        (part, component, beyond, offsets[part], *((rows[after]["head"], offsets[after]) if after >= 0 else (-1, -1)))
        for part, component, beyond, after in zip(*columns, strict=True)
    ]
    schema = "part int, component int, beyond long, offset int, next_head long, next_piece int"
    joined = built.join(F.broadcast(built.sparkSession.createDataFrame(table, schema)), "part")
    ends = F.col("after") < 0
    return joined.select(
        "a",
        "b",
        "members",
        F.when(ends, F.col("next_head")).otherwise(F.col("after")).alias("after"),
        "component",
        (F.col("depth") + F.col("beyond")).alias("depth"),
        (F.col("piece") + F.col("offset")).alias("piece"),
        F.when(ends, F.col("next_piece")).otherwise(F.col("after_piece") + F.col("offset")).alias("after_piece"),
    )


def _follows(order: Order) -> list[int]:
    """The part whose segment comes after each part's, or -1."""
    found = [-1] * len(order.part)
    next_part, component = -1, -1
    for at in reversed(range(len(found))):
        if order.component[at] != component:
            next_part, component = -1, int(order.component[at])
        found[at] = next_part
        if order.segment[at]:
            next_part = int(order.part[at])
    return found


def _groups(atoms: DataFrame, count: int) -> Groups:
    """Where groups enter and leave, and how long their paths are. A path is as long as its ends are deep."""
    key = F.col("a").cast("long") * count + F.col("b")
    place_ = F.struct(key.alias("key"), "piece").alias("place")
    passed = atoms.select("a", "b", "depth", place_).select(F.explode(F.array("a", "b")).alias("id"), "depth", "place")
    found = passed.groupBy("id").agg(
        F.count("*").alias("atoms"),
        (F.max("depth") - F.min("depth") + 1).alias("length"),
        F.max_by("place", "depth").alias("entry"),
        F.min_by("place", "depth").alias("end"),
    )
    defaults = {"atoms": 0, "length": 0, "entry.key": -1, "end.key": -1, "entry.piece": -1, "end.piece": -1}
    flat = found.select("id", *(F.col(name).alias(name.replace(".", "_")) for name in defaults))
    ids, *columns = columns_of(flat, *flat.columns)
    spread = [np.full(count, default, np.int64) for default in defaults.values()]
    for values, column in zip(spread, columns, strict=True):
        values[ids] = column
    return Groups(*spread)


def _pieces(atoms: DataFrame) -> Pieces:
    """Numbers of pieces have holes where a part has no segment: those are pieces without atoms."""
    leads = F.max(F.when(F.col("after_piece") != F.col("piece"), F.col("after_piece")).otherwise(-1))
    counted = atoms.groupBy("piece").agg(F.count("*").alias("atoms"), leads.alias("after"))
    piece, counts, after = columns_of(counted, "piece", "atoms", "after")
    size = int(piece.max(initial=-1)) + 1
    found = Pieces(np.zeros(size, np.int64), np.full(size, -1, np.int64))
    found.atoms[piece], found.after[piece] = counts, after
    return found
