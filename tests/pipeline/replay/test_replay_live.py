"""From a live cluster over the archive to a replay, and back onto a broker: beside real subscribers, by the auditor."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import seriatim
from seriatim.audit import audit, read_history
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli import main
from seriatim.live.server import SequencerServer
from seriatim.model import Delivery, History
from seriatim.pipeline.archive.writing import write_batch
from seriatim.pipeline.logs import tables_of
from seriatim.pipeline.source.options import BOOKKEEPING
from seriatim.pipeline.source.reading import SeriatimSource
from seriatim.server.config import parse_config
from tests.client.world import take
from tests.pipeline.streams import order_log_has, run

TOPICS = ("orders", "payments", "stock")
EVENTS = 90
MESSAGES = EVENTS * 2 // 3


def topics_of(cluster: str) -> list[str]:
    """Topics of different clusters must not meet on one server."""
    return [f"{cluster}.{topic}" for topic in TOPICS]


class Live(NamedTuple):
    """A run that is over, and its archive."""

    url: str
    uri: str
    cluster: str
    history: History
    numbers: dict[str, tuple[str, int, int]]  # event id → topic, number, index


ONE_NODE: dict[str, Any] = {"nodes": {"root": {"address": "127.0.0.1:0"}}, "default_home": "root"}
TREE: dict[str, Any] = {
    "nodes": {
        "root": {"address": "127.0.0.1:0"},
        "eu": {"address": "127.0.0.1:0", "parent": "root"},
        "us": {"address": "127.0.0.1:0", "parent": "root"},
        "de": {"address": "127.0.0.1:0", "parent": "eu"},
    },
    "homes": {"orders": "de", "payments": "us"},
    "default_home": "eu",
}


@pytest.fixture(scope="module")
def server() -> Any:
    with NatsServer() as running:
        yield running


@pytest.fixture(scope="module")
def live(spark: SparkSession, server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Live:
    return make_live(spark, server, tmp_path_factory.mktemp("live"), "live", ONE_NODE)


def make_live(spark: SparkSession, server: NatsServer, folder: Path, cluster: str, nodes: dict[str, Any]) -> Live:
    """Two subscribers of all three topics, two publishers, packs and single events, a sequencer, one real server."""
    run(_publish(server.url, folder, cluster, nodes))
    history, uri = read_history(folder / "logs"), str(folder / "archive")
    _archive(spark, server.url, uri, cluster, history)
    numbers = {row.event_id: (row.topic, row.number or 0, row.index) for row in history.deliveries}
    return Live(server.url, uri, cluster, history, numbers)


def _archive(spark: SparkSession, url: str, uri: str, cluster: str, history: History) -> None:
    """What the archive job writes, without its streaming query, which is tested elsewhere and takes its time."""
    for table in ("events", "stamps", "order"):
        source = SeriatimSource({"url": url, "cluster": cluster, "table": table, "gaps": "rows", "start": "all"})
        reader = source.reader(source.schema())
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        write_batch(spark.createDataFrame(pa.Table.from_batches(batches)), 0, root=uri, table=table)
    logs = tables_of(spark, history)
    for table, rows in (("deliveries", logs.deliveries), ("subscriptions", logs.subscriptions)):
        assert rows is not None
        numbered = rows.withColumns({each.name: F.lit(None).cast(each.dataType) for each in BOOKKEEPING})
        numbered = numbered.withColumns({"stream_position": F.monotonically_increasing_id(), "line": F.lit(0)})
        write_batch(numbered, 0, root=uri, table=table)


async def _publish(url: str, folder: Path, cluster: str, nodes: dict[str, Any]) -> None:
    homes = {f"{cluster}.{topic}": node for topic, node in nodes.get("homes", {}).items()}
    config = {"cluster": cluster, "broker": url, **nodes, **({"homes": homes} if homes else {})}
    server = SequencerServer(parse_config(config, folder))
    topics = topics_of(cluster)
    await server.start()
    try:
        async with (
            seriatim.connect(url, cluster=cluster, timeout_s=60.0) as one,
            seriatim.connect(url, cluster=cluster, timeout_s=60.0) as two,
            one.subscribe(*topics, log=folder / "logs") as first,
            two.subscribe(*topics, log=folder / "logs") as second,
        ):
            for i in range(EVENTS // 3):
                await asyncio.gather(
                    one.publish_many(topics[i % 3], [b"one", b"and one"]), two.publish(topics[i % 2], b"two")
                )
            await take(first, EVENTS)
            await take(second, EVENTS)
            await order_log_has(url, cluster, MESSAGES)
    finally:
        await server.stop()


def replay(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["replay", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def judge(live: Live, ids: list[str]) -> None:
    """A subscriber that saw this agrees with those that were there."""
    rows = [Delivery("replay", at, id, *live.numbers[id][:2], index=live.numbers[id][2]) for at, id in enumerate(ids)]
    report = audit(History([*live.history.deliveries, *rows]))
    assert report.verdicts["tno"].answer == "valid", report.verdicts["tno"].reason
    assert len(set(ids)) == len(ids)


def order_of(live: Live) -> list[tuple[str, int]]:
    """The order log as `seriatim order` prints it: topics and numbers."""
    shown = CliRunner().invoke(main, ["order", "--url", live.url, "--cluster", live.cluster, "--json"])
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    return [(row["topic"], number) for row in rows for number in range(row["first"], row["last"] + 1)]


def check_is_the_order(live: Live, rows: list[dict[str, Any]]) -> None:
    """It is the order log, and every subscriber's deliveries are part of it, in that order."""
    order = order_of(live)
    assert len(order) == MESSAGES
    assert list(dict.fromkeys((row["topic"], row["number"]) for row in rows)) == order
    assert [row["order_key"] for row in rows] == [1 + order.index((row["topic"], row["number"])) for row in rows]
    assert all(row["order_position"] == row["order_key"] for row in rows)
    at = {row["event_id"]: place for place, row in enumerate(rows)}
    assert sorted(at) == sorted(live.numbers)
    for name in {row.subscriber for row in live.history.deliveries}:
        own = sorted((row for row in live.history.deliveries if row.subscriber == name), key=lambda row: row.position)
        seen = [at[row.event_id] for row in own]
        assert seen == sorted(seen), name


@pytest.mark.long
def test_a_tree_of_several_nodes(spark: SparkSession, server: NatsServer, tmp_path: Path) -> None:
    tree = make_live(spark, server, tmp_path, "several", TREE)
    shown = replay(tree.uri, "--topics", ",".join(topics_of("several")), "--json")
    check_is_the_order(tree, [json.loads(line) for line in shown.stdout.splitlines()])
    by_stamps = replay(tree.uri, "--topics", ",".join(topics_of("several")), "--by", "stamps", "--json")
    assert "by stamps, without positions of an order log" in by_stamps.stderr
    judge(tree, [json.loads(line)["event_id"] for line in by_stamps.stdout.splitlines()])


def test_a_replay_is_what_a_subscriber_would_have_seen(live: Live, tmp_path: Path) -> None:
    shown = replay(live.uri, "--topics", ",".join(topics_of("live")), "--json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    ids = [row["event_id"] for row in rows]
    assert sorted(ids) == sorted(live.numbers)
    judge(live, ids)
    assert all(row["replayed"] and row["data"] in ("one", "and one", "two") for row in rows)
    check_is_the_order(live, rows)
    some = replay(live.uri, "--topics", ",".join(topics_of("live")), "--from", "7", "--to", "9", "--json")
    assert [json.loads(line) for line in some.stdout.splitlines()] == [
        row for row in rows if 7 <= row["order_key"] <= 9
    ]

    table = replay(live.uri, "--topics", "live.orders,live.payments", "--from", "live.orders=2", "--limit", "3")
    lines = table.stdout.splitlines()
    assert lines[0].split() == ["position", "topic", "number", "time", "id", "data"]
    assert len(lines) == 5 and lines[4].startswith("… and more")

    out = str(tmp_path / "out")
    assert (
        replay(live.uri, "--topics", "live.orders,live.stock", "--out", out, "--format", "jsonl").stdout
        == f"written to {out}\n"
    )
    parts = sorted(Path(out).glob("part-*.json"))
    written = [json.loads(line)["event_id"] for part in parts for line in part.read_text(encoding="utf-8").splitlines()]
    judge(live, written)
    assert len(written) == sum(topic != "live.payments" for topic, _, _ in live.numbers.values())
    full = replay(live.uri, "--topics", "live.orders", "--out", out, exit_code=2)
    assert f"--out: {out} is not empty; name a folder that does not exist yet" in full.stderr


def test_what_a_subscriber_saw_is_what_its_log_says(live: Live) -> None:
    name = live.history.deliveries[0].subscriber
    shown = replay(live.uri, "--subscriber", name, "--json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    own = sorted((row for row in live.history.deliveries if row.subscriber == name), key=lambda row: row.position)
    assert [row["event_id"] for row in rows] == [row.event_id for row in own]
    assert all(row["replayed"] and row["data"] for row in rows)
    assert [row["order_key"] for row in rows] == [row["position"] for row in rows] == list(range(EVENTS))
    order = order_of(live)
    assert [order[row["order_position"] - 1] for row in rows] == [(row["topic"], row["number"]) for row in rows]


@pytest.mark.long
def test_a_replay_is_published_once_and_in_order(live: Live) -> None:
    arguments = (live.uri, "--topics", ",".join(topics_of("live")), "--publish", live.url, "--prefix", "again")
    assert replay(*arguments).stdout == f"published {EVENTS} events below again\n"
    assert replay(*arguments).stdout == f"published 0 events below again; {EVENTS} were there before\n"
    ids = run(_stored(live.url, "replay-again"))
    assert sorted(ids) == sorted(live.numbers)
    judge(live, ids)
    other = replay(live.uri, "--topics", "live.orders", "--publish", live.url, "--prefix", "again", exit_code=2)
    assert "the stream replay-again holds other messages" in other.stderr


async def _stored(url: str, stream: str) -> list[str]:
    client = await nats.connect(url, connect_timeout=60)
    try:
        api = client.jetstream(timeout=60)
        count = (await api.stream_info(stream)).state.messages
        messages = [await api.get_msg(stream, seq) for seq in range(1, count + 1)]
        return [(each.headers or {})["Seriatim-Event-Id"] for each in messages]
    finally:
        await client.close()


def without(live: Live, folder: Path, table: str) -> str:
    """The same archive without a table."""
    uri = folder / "archive"
    shutil.copytree(live.uri, uri)
    shutil.rmtree(uri / f"table={table}")
    shutil.rmtree(uri / "_records" / table)
    return str(uri)


@pytest.mark.long
def test_an_archive_without_an_order_log_is_replayed_by_stamps(live: Live, tmp_path: Path) -> None:
    uri, topics = without(live, tmp_path, "order"), ",".join(topics_of("live"))
    shown = replay(uri, "--topics", topics, "--json")
    assert "by stamps, without positions of an order log" in shown.stderr
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    judge(live, [row["event_id"] for row in rows])
    assert len(rows) == EVENTS and all(row["order_key"] < 0 and "order_position" not in row for row in rows)
    refused = replay(uri, "--topics", topics, "--by", "positions", exit_code=2)
    assert "this archive has no order; archive them too" in refused.stderr
    assert (
        "without an order log there are no positions"
        in replay(uri, "--topics", topics, "--to", "7", exit_code=2).stderr
    )


@pytest.mark.long
def test_an_archive_without_stamps_is_replayed_by_positions(live: Live, tmp_path: Path) -> None:
    uri, topics = without(live, tmp_path, "stamps"), ",".join(topics_of("live"))
    shown = replay(uri, "--topics", topics, "--json")
    check_is_the_order(live, [json.loads(line) for line in shown.stdout.splitlines()])
    assert "by stamps" not in shown.stderr
    assert "this archive has no stamps" in replay(uri, "--topics", topics, "--by", "stamps", exit_code=2).stderr


def test_mistakes(live: Live) -> None:
    both = replay(live.uri, "--topics", "orders", "--subscriber", "s", exit_code=2)
    assert "give either --subscriber or --topics" in both.stderr
    assert (
        "'soon' is neither a time, a position nor"
        in replay(live.uri, "--topics", "a", "--from", "soon", exit_code=2).stderr
    )
    assert "give original, max, or a number" in replay(live.uri, "--topics", "a", "--pace", "-1", exit_code=2).stderr
    assert "there is no archive here" in replay(f"{live.uri}-not", "--topics", "a", exit_code=2).stderr
