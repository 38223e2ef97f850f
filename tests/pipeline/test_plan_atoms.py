"""Atoms planned on Spark: the same graph as plain Python builds, valid by the checker, also where it has to be cut."""

import tomllib
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from seriatim.cli import main
from seriatim.model import InputError
from seriatim.pipeline.plan import Inputs, Network
from seriatim.pipeline.plan import atoms as planning
from seriatim.pipeline.plan.atoms import overlaps
from seriatim.pipeline.plan.atoms.parts import _fallen_apart, spanning_forest
from seriatim.protocols.atoms import GraphError, SequencingGraph, build
from seriatim.protocols.atoms.colocation import colocate_along_paths, hops, loads
from seriatim.protocols.atoms.overlaps import group_of
from seriatim.protocols.atoms.written import graph_of, parse, write

Memberships = dict[str, list[str]]


def world(seed: int, topics: int, members: int, popular: int = 0) -> Memberships:
    """Small groups that live together, and some popular ones that are held everywhere."""
    random = Random(seed)
    found = {}
    for topic in range(topics):
        start = random.randrange(members)
        held = [(start + step) % members for step in range(random.randint(1, 5))]
        found[f"t{topic}"] = [f"s{each}" for each in held]
    for topic in range(popular):
        found[f"p{topic}"] = [f"s{each}" for each in random.sample(range(members), members * 2 // 3)]
    return found


def table(spark: SparkSession, memberships: Memberships) -> DataFrame:
    rows = [(member, topic) for topic, members in memberships.items() for member in members]
    return spark.createDataFrame(rows + rows[:3], "subscriber string, topic string")  # rows may repeat


def plainly(memberships: Memberships, threshold: int = 2) -> SequencingGraph:
    return build({group_of(topic, 1): members for topic, members in memberships.items()}, threshold)


def read(text: str, memberships: Memberships | None = None) -> SequencingGraph:
    return graph_of(parse(tomllib.loads(text)), memberships)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_same_graph_as_plain_python_builds(spark: SparkSession, causal: bool) -> None:
    memberships = world(1, 40, 60)
    with planning.planned_atoms(Inputs(table(spark, memberships)), causal=causal) as plan:
        found = read(write(planning.written_of(plan)))
        lengths = dict(zip(plan.topics.names, plan.groups.lengths.tolist(), strict=True))
    expected = plainly(memberships, 1 if causal else 2)
    for atom in expected.atoms.values():
        atom.host = "root"
    assert len(expected.atoms) > 10
    assert found == expected
    assert lengths == {group.removesuffix(".1"): length for group, length in expected.lengths().items()}


@pytest.mark.parametrize(("seed", "part_max"), [pytest.param(1, 60, marks=pytest.mark.long), (2, 0)])
def test_a_component_too_large_is_cut_and_still_right(spark: SparkSession, seed: int, part_max: int) -> None:
    memberships = world(seed, 50, 40, popular=4)
    network = Network({"one": "here", "two": "there"}, load_max=30.0)
    with planning.planned_atoms(Inputs(table(spark, memberships)), network, part_max=part_max) as plan:
        written = planning.written_of(plan)
        found = read(write(written))  # runs the checker, against the members
        backbone = int(plan.parts.backbone.sum())
        paths = plan.groups.lengths.tolist(), plan.nodes.hops.tolist()
        nodes = plan.nodes
        pieces = {(row["a"], row["b"]): row["piece"] for row in plan.atoms.collect()}
    assert found.atoms.keys() == plainly(memberships).atoms.keys()
    assert backbone > 3
    overlapping = sum(length > 0 for length in paths[0])
    assert (backbone < overlapping) == (part_max > 0), "if parts may hold nothing, all is backbone"
    names = [group_of(name, 1) for name in written.topics]
    assert [found.lengths()[name] for name in names] == paths[0]
    hosts = {name: written.hosts.index(atom.host) for name, atom in found.atoms.items()}
    assert [hops(found, hosts)[name] for name in names] == paths[1]
    ids = {name: number for number, name in enumerate(names)}
    at = {
        name: int(nodes.of_piece[pieces[min(pair), max(pair)]])
        for name, atom in found.atoms.items()
        for pair in [tuple(ids[group] for group in atom.pair)]
    }
    rates = dict.fromkeys(names, 1.0)
    assert loads(found, at, rates) == dict(enumerate(nodes.loads.tolist()))


def test_pieces_are_those_of_the_protocol(spark: SparkSession) -> None:
    memberships = world(3, 40, 60)
    network = Network({"one": "here"}, load_max=6.0)
    with planning.planned_atoms(Inputs(table(spark, memberships)), network) as plan:
        counts = sorted(plan.nodes.atoms.tolist())
        heaviest = plan.nodes.loads.max()
    graph = plainly(memberships)
    nodes = colocate_along_paths(graph, 6.0, dict.fromkeys(graph.groups, 1.0))
    assert counts == sorted(np.bincount(list(nodes.values())).tolist())
    assert heaviest <= 6.0


@pytest.mark.long
def test_wide_subscriptions_and_a_topic_that_everybody_holds(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.pipeline.plan.overlaps.WIDE_MIN", 20)
    memberships = world(4, 40, 60)
    memberships["all"] = sorted({each for members in memberships.values() for each in members})
    for topic in [*memberships][:30]:
        memberships[topic] = [*memberships[topic], "monitor"]
    for topic in [*memberships][20:40]:
        memberships[topic] = [*memberships[topic], "watcher"]
    with planning.planned_atoms(Inputs(table(spark, memberships))) as plan:
        found = read(write(planning.written_of(plan)))
        shared = {(row["topic"], row["other"]): row["members"] for row in planning.atoms_table(plan).collect()}
    assert found.atoms.keys() == plainly(memberships).atoms.keys()
    assert shared == {pair: len(set(memberships[pair[0]]) & set(memberships[pair[1]])) for pair in shared}
    monkeypatch.setattr(overlaps, "ATOMS_MAX", 40)
    with (
        pytest.raises(InputError, match=r"more than 40 atoms; 2 .*hold a thousand") as caught,
        planning.planned_atoms(Inputs(table(spark, memberships))),
    ):
        pass
    assert "--order atoms" in str(caught.value)


@pytest.mark.long
def test_files_and_a_plan_for_other_members(spark: SparkSession, tmp_path: Path) -> None:
    memberships = world(5, 30, 40)
    with planning.planned_atoms(Inputs(table(spark, memberships))) as plan:
        found = planning.summary(plan)
        planning.write_atoms(plan, found, str(tmp_path / "plan"))
    text = (tmp_path / "plan" / "plan.toml").read_text(encoding="utf-8")
    graph = read(text, memberships)
    assert found["atoms"] == len(graph.atoms)
    assert found["pass_through"] == graph.pass_through()
    groups = {row["topic"]: row for row in spark.read.parquet(str(tmp_path / "plan" / "groups")).collect()}
    for group, route in graph.groups.items():
        entry = groups[group.removesuffix(".1")]["entry"]
        assert (route.entry is None) == (entry is None)
        assert entry is None or route.entry == "&".join(sorted(f"{each}.1" for each in entry))
    assert spark.read.parquet(str(tmp_path / "plan" / "atoms")).count() == len(graph.atoms)
    assert spark.read.parquet(str(tmp_path / "plan" / "nodes")).where("stress > 0").count() == found["nodes"]
    written = parse(tomllib.loads(text))
    planned = dict(zip(written.topics, zip(written.sizes, written.digests, strict=True), strict=True))
    assert planning.digests_of(table(spark, memberships)) == planned
    with pytest.raises(GraphError, match=r"'t0'.*has 7 members"):
        read(text, {**memberships, "t0": ["somebody", "else", "is", "here", "now", "and", "then"]})
    with pytest.raises(GraphError, match=r"'new'.*not in the plan"):
        read(text, {**memberships, "new": ["s1"]})


def test_the_command_from_a_table_to_files_and_back(spark: SparkSession, tmp_path: Path) -> None:
    memberships = world(6, 20, 25)
    table(spark, memberships).write.parquet(str(tmp_path / "held"))
    words = ["plan", str(tmp_path / "held"), "--order", "atoms", "--node", "eu=europe", "--node", "us=america"]
    result = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "plan")])
    assert result.exit_code == 0, result.output
    path = tmp_path / "plan" / "plan.toml"
    assert f"wrote {path}" in result.output
    graph = read(path.read_text(encoding="utf-8"), memberships)
    assert f"{len(graph.atoms)} atoms" in result.output
    assert {atom.host for atom in graph.atoms.values()} <= {"eu", "us"}
    right = CliRunner().invoke(main, ["plan", str(tmp_path / "held"), "--check", str(path)])
    assert (right.exit_code, right.output.strip()) == (0, f"{path} is for these 20 topics and their members")
    table(spark, {**memberships, "t0": ["s1", "somebody"]}).write.parquet(str(tmp_path / "changed"))
    wrong = CliRunner().invoke(main, ["plan", str(tmp_path / "changed"), "--check", str(path)])
    assert wrong.exit_code == 1
    assert wrong.output.startswith("t0: has 2 members")
    refused = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "plan"), "--buckets", "8"])
    assert refused.exit_code == 2
    assert "--buckets is for the tree" in refused.output


@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_without_the_backbone_falls_apart(seed: int) -> None:
    """Against removing groups one by one and looking."""
    random = Random(seed)
    count = 30
    pairs = sorted({tuple(sorted(random.sample(range(count), 2))) for _ in range(50)})
    a, b = (np.asarray(column, np.int64) for column in zip(*pairs, strict=True))
    degrees = np.bincount(np.concatenate([a, b]), minlength=count).astype(np.int64)
    ranks = np.empty(count, np.int64)
    ranks[np.lexsort((np.arange(count), -degrees))] = np.arange(count)
    components = labels(pairs, range(count), count)
    kept = spanning_forest(a, b, ranks)
    part, backbone = _fallen_apart(a[kept], b[kept], degrees, ranks, np.asarray(components), 20)
    rest = [group for group in range(count) if not backbone[group]]
    assert 0 < len(rest) < count
    expected = labels(pairs, rest, count)
    assert all((part[one] == part[other]) == (expected[one] == expected[other]) for one in rest for other in rest)
    for each in set(part[rest].tolist()):
        assert degrees[part == each].sum() <= 20


def labels(pairs: list[tuple[int, ...]], groups: object, count: int) -> list[int]:
    there = set(groups)  # type: ignore[call-overload]
    found = list(range(count))
    for _ in range(count):
        for one, other in pairs:
            if one in there and other in there:
                found[one] = found[other] = min(found[one], found[other])
    return found
