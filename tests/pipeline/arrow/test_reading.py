"""Parquet without Spark: the same rows as Spark reads, or nothing."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from seriatim.audit import ColumnMapping
from seriatim.audit.logs import OnlySpark
from seriatim.model import Delivery, History, LogError, Publication, Subscription
from seriatim.pipeline.arrow.positions import positions_by_order
from seriatim.pipeline.arrow.reading import read_parquet
from seriatim.pipeline.logs import history_of, read_tables, write_parquet

OURS = ColumnMapping()
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SHOP = History(
    [
        Delivery("s1", 0, "a", "A", 1, notified_at=1.5, received_at=0.25),
        Delivery("s1", 1, "b", "B", index=3, out_of_order=True),
        Delivery("s2", 0, "ü/%", "A", 2, filtered=True, order_position=7),
    ],
    [Publication("a", "A", "p", 0.5, sequence=0, seen=0, number=1), Publication("b", "B", "p")],
    [Subscription("s1", "A", 0, until=5, start=0, end=2), Subscription("s2", "A", 0)],
)


def columns(**changes: Any) -> dict[str, Any]:
    """Two subscribers, two events each."""
    usual = {"subscriber": ["s1", "s1", "s2", "s2"], "position": [0, 1, 0, 1], "event_id": ["a", "b"] * 2}
    given = {**usual, "topic": ["A", "B"] * 2, **changes}
    return {name: values for name, values in given.items() if values is not None}


def write(path: Path, table: dict[str, Any] | pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path)
    return path


def mapped(**options: Any) -> ColumnMapping:
    names = {"subscriber", "event_id", "topic", "position"}
    fields = {name: options.pop(name) for name in list(options) if name in names}
    return ColumnMapping.of(fields, **options)


def clock(*seconds: float) -> pa.Array:
    return pa.array([NOON + timedelta(seconds=each) for each in seconds], pa.timestamp("us", "UTC"))


HOSTS: dict[str, Any] = {
    "host": ["h1", "h2", "h1", "h2", "h1"],
    "part": [0, 1, 0, 1, 1],
    "offset": [41, 7, 42, 8, 7],
    "kind": pa.array(["A", "B", "A", "B", "B"]).dictionary_encode(),
}
MAPPED = {"subscriber": "host", "event_id": "kind,part,offset", "topic": "kind"}

READ: dict[str, tuple[dict[str, Any] | pa.Table, ColumnMapping]] = {
    "our columns": (columns(), OURS),
    "whole numbers as ids": (columns(event_id=[1, 2, 1, 2]), OURS),
    "texts in a dictionary": (columns(topic=pa.array(["A", "B"] * 2).dictionary_encode()), OURS),
    "small numbers": (columns(position=pa.array([0, 1, 0, 1], pa.uint8()), number=pa.array([1, None, 2, 3])), OURS),
    "times": (columns(notified_at=clock(0, 1.25, 2, 3), received_at=[1, 2, 3, 4]), OURS),
    "nanoseconds": (columns(notified_at=pa.array([1, 2, 3, 4], pa.timestamp("ns"))), OURS),
    "an unused column": (columns(more=[[1], [2], [], None], other=[b"\xff"] * 4), OURS),
    "one run": (columns(run=["mon"] * 4), OURS),
    "a run of two": (columns(run=["mon", None, "tue", "tue"]), mapped(run="mon")),
    "by a clock": ({**HOSTS, "at": clock(0, 1, 2, 3, 4)}, mapped(**MAPPED, order_by="at")),
    "by a clock that was set back": ({**HOSTS, "at": clock(5, 1, 3, 1, 9)}, mapped(**MAPPED, order_by="at")),
    "by a clock that is trusted": (
        {**HOSTS, "at": clock(5, 1, 3, 1, 9)},
        mapped(**MAPPED, order_by="at", trust_order=True),
    ),
    "by a clock of nanoseconds": (
        {**HOSTS, "at": pa.array([5, 1, 3, 1, 9], pa.timestamp("ns", "UTC"))},
        mapped(**MAPPED, order_by="at"),
    ),
    "by a number": ({**HOSTS, "at": [5, 5, 5, 4, 9]}, mapped(**MAPPED, order_by="at")),
    "by seconds": ({**HOSTS, "at": [1.7e9 + each / 3 for each in (3, 1, 2, 1, 9)]}, mapped(**MAPPED, order_by="at")),
    "by lines": (HOSTS, mapped(**MAPPED, order_by="line")),
    "one topic": (HOSTS, mapped(subscriber="host", event_id="offset", topic_value="T", order_by="line")),
    "one subscriber": (HOSTS, mapped(event_id="offset", topic="kind", order_by="line", subscriber_from_file=True)),
    "no rows": (pa.table(columns()).slice(0, 0), OURS),
}

ONLY_SPARK: dict[str, dict[str, Any]] = {
    "an empty name": columns(event_id=["a", "", "b", "c"]),
    "a name that is missing": columns(topic=["A", None, "B", "B"]),
    "a position that is missing": columns(position=[0, None, 0, 1]),
    "a negative position": columns(position=[0, -1, 0, 1]),
    "a fraction": columns(position=[0.0, 1.0, 0.0, 1.0]),
    "numbers as texts": columns(position=["0", "1", "0", "1"]),
    "bytes": columns(event_id=[b"\x01", b"\x02"] * 2),
    "an index that is too large": columns(index=[0, 2**40, 0, 0]),
    "decimals": columns(notified_at=[Decimal("1.5")] * 4),
    "no number": columns(notified_at=[1.0, float("nan"), 2.0, 3.0]),
    "words for flags": columns(out_of_order=["yes", "no", "no", "no"]),
}


def shown(history: History) -> dict[str, list[Any]]:
    return {name: sorted(getattr(history, name), key=repr) for name in ("deliveries", "publications", "subscriptions")}


def check_same(spark: SparkSession, path: Path, mapping: ColumnMapping) -> History:
    plain = read_parquet(path, mapping)
    on_spark = history_of(read_tables(spark, str(path), mapping), 1_000)
    assert on_spark is not None and shown(plain) == shown(on_spark)
    return plain


@pytest.mark.parametrize("case", READ)
def test_the_same_rows_as_on_spark(spark: SparkSession, tmp_path: Path, case: str) -> None:
    rows, mapping = READ[case]
    check_same(spark, write(tmp_path / "log.parquet", rows), mapping)


def test_a_run_of_several_tables(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(SHOP, tmp_path / "run")
    assert check_same(spark, tmp_path / "run", OURS).deliveries == SHOP.deliveries


def test_a_table_of_several_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for i in range(3):
        write(folder / "deliveries" / f"{i}.parquet", columns(subscriber=[f"s{i}"] * 4, position=[0, 1, 2, 3]))
    (folder / "publications.jsonl").write_text('{"event_id": "a", "topic": "A", "publisher": "p"}\n')
    (folder / "deliveries" / "_SUCCESS").write_text("")
    plain = check_same(spark, folder, OURS)
    assert len(plain.deliveries) == 12 and len(plain.publications) == 1


@pytest.mark.parametrize("case", ONLY_SPARK)
def test_what_is_not_simple_is_left_to_spark(tmp_path: Path, case: str) -> None:
    with pytest.raises(OnlySpark):
        read_parquet(write(tmp_path / "log.parquet", ONLY_SPARK[case]), OURS)


def _partitioned(folder: Path) -> None:
    for run in ("mon", "tue"):
        write(folder / f"run={run}" / "log.parquet", columns())


def _mixed(folder: Path) -> None:
    write(folder / "1.parquet", columns())
    write(folder / "2.parquet", columns(position=[0.0, 1.0, 0.0, 1.0]))


def _damaged(folder: Path) -> None:
    data = bytearray(write(folder / "1.parquet", columns()).read_bytes())
    data[4:200] = bytes(196)
    (folder / "1.parquet").write_bytes(data)


def _beside_text(folder: Path) -> None:
    write(folder / "1.parquet", columns())
    (folder / "2.csv").write_text("subscriber,position,event_id,topic\n")


@pytest.mark.parametrize("made", [_partitioned, _mixed, _damaged, _beside_text])
def test_folders_that_are_left_to_spark(tmp_path: Path, made: Callable[[Path], None]) -> None:
    made(tmp_path / "log")
    with pytest.raises(OnlySpark):
        read_parquet(tmp_path / "log", OURS)


@pytest.mark.parametrize(
    ("rows", "mapping", "problem"),
    [
        (columns(topic=None), OURS, "no column topic"),
        (columns(Topic=["A"] * 4), OURS, "which differ only in case"),
        (columns(run=["mon", "tue"] * 2), OURS, "rows of several runs: mon, tue"),
        (columns(run=["mon", "tue"] * 2), mapped(run="wed"), "no row of run wed"),
    ],
)
def test_what_no_engine_reads(tmp_path: Path, rows: dict[str, Any], mapping: ColumnMapping, problem: str) -> None:
    with pytest.raises(LogError, match=problem) as caught:
        read_parquet(write(tmp_path / "log.parquet", rows), mapping)
    assert not isinstance(caught.value, OnlySpark)


def test_positions_as_the_reader_of_text_makes_them(tmp_path: Path) -> None:
    """Random clocks, with and without trust, in one file and in several."""
    from seriatim.audit import read_history

    random = Random(7)
    for round_number in range(60):
        text, arrow = tmp_path / f"t{round_number}", tmp_path / f"p{round_number}"
        text.mkdir()
        for file in range(random.randint(1, 3)):
            count = random.randint(1, 12)
            rows = {
                "subscriber": [random.choice(["s1", "s2"]) for _ in range(count)],
                "event_id": [f"{file}-{i}" for i in range(count)],
                "topic": ["A"] * count,
                "at": [random.randint(0, 9) for _ in range(count)],
            }
            write(arrow / f"{file}.parquet", rows)
            lines = [
                "subscriber,event_id,topic,at",
                *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True)),
            ]
            (text / f"{file}.csv").write_text("\n".join(lines) + "\n")
        for is_trusted in (False, True):
            mapping = ColumnMapping(order_by="at", trust_order=is_trusted)
            assert shown(read_parquet(arrow, mapping)) == shown(read_history(text, mapping)), round_number


def test_no_rows_have_no_positions() -> None:
    nothing = pa.array([], pa.int64()).to_numpy()
    assert len(positions_by_order(nothing, nothing, nothing, False)) == 0


def test_equal_names_are_one_object(tmp_path: Path) -> None:
    """Millions of rows fit into memory because of it."""
    rows = read_parquet(write(tmp_path / "log.parquet", columns()), OURS).deliveries
    assert rows[0].event_id is rows[2].event_id and rows[0].topic is rows[2].topic
