"""Plans from tables: overlaps, advice and questions are compared with counting everything the slow way."""

import json
import random
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from seriatim.cli import main
from seriatim.model import InputError
from seriatim.pipeline import plan as planning
from seriatim.pipeline.plan import Inputs, Plan, overlaps
from seriatim.pipeline.plan.planner import Summed
from seriatim.server.config import load_config, read_plan

Held = dict[str, set[str]]
SITES = {0: "asia", 1: "europe", 2: "america"}


def drawn(seed: int, subscribers: int = 40, topics: int = 25) -> Held:
    """Small sets and, at the end, two that hold nearly everything and many that are alike."""
    source = random.Random(seed)
    names = [f"t{i}" for i in range(topics)]
    held = {f"s{i}": set(source.sample(names, source.randint(1, 4))) for i in range(subscribers)}
    held |= {f"monitor{i}": set(source.sample(names, topics - 3)) for i in range(2)}
    return held | {f"same{i}": {"t1", "t2", "t3"} for i in range(10)}


def table_of(spark: SparkSession, held: Held, ended: Iterable[tuple[str, str]] = ()) -> DataFrame:
    """With some rows twice, and some that have ended."""
    rows = [(name, topic, 0, None) for name, topics in held.items() for topic in sorted(topics)]
    rows += rows[::7]
    return spark.createDataFrame(
        rows + [(*row, 0, 5) for row in ended],
        "subscriber string, topic string, since long, until long",
    )


def rates_of(held: Held) -> dict[str, float]:
    return {topic: 1.0 + int(topic[1:]) % 5 for topics in held.values() for topic in topics}


def tables_of(spark: SparkSession, held: Held) -> Inputs:
    rates = [(topic, rate, SITES[int(topic[1:]) % 3]) for topic, rate in sorted(rates_of(held).items())]
    return Inputs(
        table_of(spark, held, [("s0", "gone"), ("s1", "t1")]),
        spark.createDataFrame(rates, "topic string, events_per_s double, site string"),
    )


def together(held: Held) -> dict[tuple[str, str], int]:
    """How many hold both, for each pair that somebody holds."""
    counts: dict[tuple[str, str], int] = {}
    for topics in held.values():
        for pair in combinations(sorted(topics), 2):
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def entries_per_s(held: Held) -> float:
    rates = rates_of(drawn(1)) | rates_of(held)
    coupled = [pair for pair, count in together(held).items() if count >= 2]
    return sum(2.0 * rates[a] * rates[b] / (rates[a] + rates[b]) for a, b in coupled)


@pytest.fixture(scope="module")
def summed(spark: SparkSession) -> Iterator[Summed]:
    with planning.summed_up(tables_of(spark, drawn(1)), order="pairwise") as found:
        yield found


@pytest.fixture(scope="module")
def plan(summed: Summed) -> Plan:
    return planning.make_plan(summed, planning.Network({"eu": "europe", "us": "america", "ap": "asia"}))


def test_pairs_are_those_of_counting_everything(summed: Summed) -> None:
    graph = summed.graph
    found = {
        tuple(sorted((graph.names[a], graph.names[b]))): count
        for a, b, count in zip(graph.a.tolist(), graph.b.tolist(), graph.shared.tolist(), strict=True)
    }
    assert found == {pair: count for pair, count in together(drawn(1)).items() if count >= 2}
    assert "gone" not in graph.names
    assert graph.entries_per_s == pytest.approx(entries_per_s(drawn(1)))


def test_wide_subscriptions_change_nothing_but_how_pairs_are_kept(
    spark: SparkSession, summed: Summed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlaps, "WIDE_MIN", 10)
    with planning.summed_up(tables_of(spark, drawn(1)), order="pairwise") as wide:
        assert sorted(wide.wide.subscribers) == ["monitor0", "monitor1"]
        assert len(wide.graph.a) < len(summed.graph.a)
        one, other = wide.graph, summed.graph
        for name in one.names:
            assert one.group_sizes[one.names.index(name)] == other.group_sizes[other.names.index(name)]
        assert one.entries_per_s == pytest.approx(other.entries_per_s, rel=0.01)
        found = planning.make_plan(wide, planning.Network({"eu": "europe", "us": "america"}))
        sentences = [advice.sentence for advice in planning.advise_on_wide(found)]
        assert any(sentence.startswith("monitor0 holds 22 topics") for sentence in sentences)
        question = planning.what_if(found, "s0", ["t5"])
    with_it = {name: topics | {"t5"} if name == "s0" else topics for name, topics in drawn(1).items()}
    assert question.entries_per_s == pytest.approx(entries_per_s(with_it) - entries_per_s(drawn(1)))


@pytest.mark.parametrize("wide_min", [1_000, pytest.param(10, marks=pytest.mark.long)])
def test_global_order_couples_what_one_holds_and_is_shown_beside_pairwise(
    spark: SparkSession, summed: Summed, plan: Plan, monkeypatch: pytest.MonkeyPatch, wide_min: int
) -> None:
    monkeypatch.setattr(overlaps, "WIDE_MIN", wide_min)
    with planning.summed_up(tables_of(spark, drawn(1))) as found:
        assert found.graph.pair_count == len(together(drawn(1))) > summed.graph.pair_count
        assert found.pairwise is not None and found.pairwise.pair_count == summed.graph.pair_count
        assert found.pairwise.entries_per_s == pytest.approx(summed.graph.entries_per_s, rel=0.01)
        made = planning.make_plan(found, planning.Network({"eu": "europe", "us": "america", "ap": "asia"}))
        in_global, in_pairwise = planning.summary(made, [])["orders"]
    assert (in_global["order"], in_pairwise["order"]) == ("global", "pairwise")
    assert in_global["entries_per_event"] > in_pairwise["entries_per_event"]
    assert in_global["bytes_per_event"] == 12 * in_global["entries_per_event"]
    assert in_pairwise["hops_per_event"] == pytest.approx(plan.per_event(plan.cost.hops_per_s))
    assert in_global["hops_per_event"] >= in_pairwise["hops_per_event"]
    assert [each["order"] for each in planning.summary(plan, [])["orders"]] == ["pairwise"], "nothing else is counted"


def test_advice_keeps_its_word(plan: Plan) -> None:
    held = drawn(1)
    advice = planning.advise(plan)
    assert advice
    for each in advice:
        left = {name: topics - {each.topic} if name in each.subscribers else topics for name, topics in held.items()}
        saved = entries_per_s(held) - entries_per_s(left)
        assert saved / entries_per_s(held) == pytest.approx(each.share)
        assert each.topic in each.sentence


def test_what_if_says_what_would_happen(plan: Plan) -> None:
    for subscriber, topics in (("s3", ["t4", "t9"]), ("newcomer", ["t0", "t7", "t11"])):
        found = planning.what_if(plan, subscriber, topics)
        changed = drawn(1)
        changed[subscriber] = changed.get(subscriber, set()) | set(topics)
        before, after = together(drawn(1)), together(changed)
        new = {pair for pair, count in after.items() if count >= 2 and before.get(pair, 0) < 2}
        assert {tuple(sorted(pair)) for pair in found.pairs} == new
        assert found.entries_per_s == pytest.approx(entries_per_s(changed) - entries_per_s(drawn(1)))
    with pytest.raises(InputError, match="nobody holds"):
        planning.what_if(plan, "s3", ["t99"])


def test_files_are_what_the_server_reads(plan: Plan, tmp_path: Path, spark: SparkSession) -> None:
    summary = planning.summary(plan, planning.advise(plan))
    planning.write_plan(plan, summary, str(tmp_path / "plan"))
    path = tmp_path / "plan" / "plan.toml"
    assert read_plan(path)["homes"] == plan.homes
    cluster = tmp_path / "cluster.toml"
    nodes = "".join(f'nodes.{name} = {{ address = "127.0.0.1:0", parent = "eu" }}\n' for name in ("us", "ap"))
    cluster.write_text(f'broker = "nats://127.0.0.1:4222"\nnodes.eu = {{ address = "127.0.0.1:0" }}\n{nodes}')
    tree = load_config(cluster, path).tree
    assert tree.parents == plan.shape.parents
    assert tree.homes == plan.homes
    assert tree.default_home == plan.shape.tree.root == tree.root
    topics = spark.read.parquet(str(tmp_path / "plan" / "topics"))
    assert topics.count() == len(plan.homes)
    hops = topics.selectExpr("sum(access_hops_per_s + climb_hops_per_s)").first()
    assert hops is not None
    assert hops[0] == pytest.approx(plan.cost.hops_per_s)
    assert spark.read.parquet(str(tmp_path / "plan" / "pairs")).count() == len(plan.graph.a)


def test_any_name_of_a_topic_survives_the_file(tmp_path: Path) -> None:
    homes = {'a."b"\\c': "n1", "ä.\u2028": "n1", "x=y": "n1", "del\x7f": "n1"}
    path = tmp_path / "plan.toml"
    path.write_text(planning.toml_of({"n1": None}, homes, "n1"), encoding="utf-8")
    assert read_plan(path)["homes"] == homes


def test_buckets_are_planned_as_what_they_are(spark: SparkSession) -> None:
    with planning.summed_up(tables_of(spark, drawn(1)), buckets=4) as found:
        assert all(name.startswith("bucket-") for name in found.graph.names)
        assert found.graph.rates.sum() == pytest.approx(sum(rates_of(drawn(1)).values()))


def test_rates_and_places_from_a_log(spark: SparkSession) -> None:
    events = spark.createDataFrame(
        [("t1", "p~1", 0.0), ("t1", "p~1", 500.0), ("t2", "q~2", 2000.0), ("t1", "x", 100.0)],
        "topic string, publisher string, published_at double",
    )
    sites = spark.createDataFrame([("p", "europe"), ("q~2", "asia")], "client string, site string")
    rows = {(row.topic, row.site): row.events_per_s for row in planning.rates_of(events, sites).collect()}
    assert rows == {("t1", "europe"): 1.0, ("t2", "asia"): 0.5, ("t1", None): 0.5}


def test_subscribers_stand_for_events_whose_place_is_unknown(spark: SparkSession) -> None:
    sites = spark.createDataFrame([("a", "europe"), ("b", "asia"), ("c", "asia")], "client string, site string")
    held = table_of(spark, {"a": {"t1"}, "b": {"t1", "t2"}, "c": {"t2"}})
    with planning.summed_up(Inputs(held.distinct(), None, sites)) as found:
        where = dict(zip(found.graph.names, found.graph.where.tolist(), strict=True))
    assert found.graph.sites == ("asia", "europe")
    assert where == {"t1": [0.5, 0.5], "t2": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("table", "columns", "field", "problem"),
    [
        ([("a", "b")], "who string, topic string", "subscriptions", "no column 'subscriber'"),
        ([], "subscriber string, topic string", "subscriptions", "no current subscription"),
        ([("a", "t", 3)], "subscriber string, topic string, until long", "subscriptions", "no current subscription"),
    ],
)
def test_tables_that_are_no_subscriptions(
    spark: SparkSession, table: list[tuple[object, ...]], columns: str, field: str, problem: str
) -> None:
    with (
        pytest.raises(InputError, match=problem) as raised,
        planning.summed_up(Inputs(spark.createDataFrame(table, columns))),
    ):
        pass
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("rows", "columns", "problem"),
    [
        ([("other", 1.0)], "topic string, events_per_s double", "none of them"),
        ([("t1", "many")], "topic string, events_per_s string", "has string"),
        ([("t1", -1.0)], "topic string, events_per_s double", "negative"),
    ],
)
def test_tables_that_are_no_rates(
    spark: SparkSession, rows: list[tuple[object, ...]], columns: str, problem: str
) -> None:
    inputs = Inputs(table_of(spark, {"a": {"t1"}}), spark.createDataFrame(rows, columns))
    with pytest.raises(InputError, match=problem), planning.summed_up(inputs):
        pass


def test_the_command_from_tables_to_files(spark: SparkSession, tmp_path: Path) -> None:
    held = drawn(1)
    (tmp_path / "held.csv").write_text(
        "subscriber,topic\n" + "".join(f"{name},{topic}\n" for name, topics in held.items() for topic in sorted(topics))
    )
    rates = [json.dumps({"topic": topic, "events_per_s": rate}) for topic, rate in sorted(rates_of(held).items())]
    (tmp_path / "rates.jsonl").write_text("\n".join(rates))
    nodes = 'nodes.eu = { site = "europe" }\nnodes.us = { site = "america", parent = "eu" }\n'
    (tmp_path / "nodes.toml").write_text(nodes)
    words = ["plan", str(tmp_path / "held.csv"), "--rates", str(tmp_path / "rates.jsonl"), "--compare"]
    words += ["--nodes", str(tmp_path / "nodes.toml"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [*words, "--what-if", "subscriber=s3,topics=t4"])
    assert result.exit_code == 0, result.output
    for line in ("tree: ", "lower bound", "as it is", "the paper: ranges, chain", "dropped t", "If s3 held t4"):
        assert line in result.output
    path = str(tmp_path / "out" / "plan.toml")
    check = ["plan", str(tmp_path / "held.csv"), "--check"]
    right = CliRunner().invoke(main, [*check, path])
    assert right.exit_code == 0, right.output
    (tmp_path / "other.toml").write_text('[homes]\nelsewhere = "eu"\n')
    wrong = CliRunner().invoke(main, [*check, str(tmp_path / "other.toml")])
    assert wrong.exit_code == 1
    assert "is for other topics: not one of the 25 in use is in it" in wrong.output
    missing = CliRunner().invoke(main, ["plan", str(tmp_path / "nothing"), "--out", str(tmp_path / "out2")])
    assert missing.exit_code == 2
    assert "nothing: no such file or folder" in missing.output
