"""Names of events and subscribers as they lie in files: two must never become one, or disorder looks like order."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyspark.sql import SparkSession

from seriatim.audit import ColumnMapping, audit
from seriatim.model import LogError
from seriatim.pipeline.audit import AuditOptions, audit_tables
from seriatim.pipeline.logs import Tables, history_of, read_tables
from seriatim.pipeline.logs.reading import INFERENCE

DIVIDED = AuditOptions(undivided_rows=0)
HEADING = "subscriber,position,event_id,topic\n"


def swapped(one: object, other: object, kind: pa.DataType) -> pa.Table:
    """Two subscribers that were notified of two events in different orders."""
    return pa.table(
        {
            "subscriber": ["s1", "s1", "s2", "s2"],
            "position": pa.array([0, 1, 0, 1], pa.int64()),
            "event_id": pa.array([one, other, other, one], kind),
            "topic": ["A"] * 4,
        }
    )


def not_utf8() -> pa.Array:
    """Text that a careless writer took from elsewhere: é, è, è, é in Latin-1."""
    text = pa.array([b"\xe9", b"\xe8", b"\xe8", b"\xe9"], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(text), text.buffers())


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_text_that_is_not_utf8_is_refused(spark: SparkSession, suffix: str, tmp_path: Path) -> None:
    if suffix == "jsonl":
        row = '{{"subscriber": "{}", "position": {}, "event_id": "{}", "topic": "A"}}\n'
    else:
        row = "{},{},{},A\n"
    rows = [("s1", 0, "café"), ("s1", 1, "cafè"), ("s2", 0, "cafè"), ("s2", 1, "café")]
    text = ("" if suffix == "jsonl" else HEADING) + "".join(row.format(*cells) for cells in rows)
    text = text.replace(",", "\t") if suffix == "tsv" else text
    (tmp_path / f"log.{suffix}").write_text(text, encoding="latin-1")
    problem = "not a JSON object" if suffix == "jsonl" else "row 1, column event_id: not UTF-8"
    with pytest.raises(LogError, match=rf"4 of 4 rows do not fit.*{problem}"):
        read_tables(spark, str(tmp_path))
    (tmp_path / f"log.{suffix}").write_text(text, encoding="utf-8")
    assert audit_tables(read_tables(spark, str(tmp_path))).report.verdicts["tno"].answer == "invalid"


@pytest.mark.parametrize(
    ("one", "other", "is_refused"),
    [
        (r"\ud800", r"\ud801", True),
        pytest.param(r"x\uDC00", r"x\uDC01", True, marks=pytest.mark.long),
        (r"\ud83d\ud83d\ude00", r"\ud83e\ud83d\ude00", True),
        pytest.param(r"\ud83d\ude00\ude00", r"\ud83d\ude00\ude01", True, marks=pytest.mark.long),
        pytest.param(r"\ud83d\ude00", r"\ud83d\ude01", False, marks=pytest.mark.long),  # both halves of a face
        (r"\\ud800", r"\\ud801", False),  # a backslash, then letters
    ],
)
def test_half_characters_in_json_are_refused(
    spark: SparkSession, tmp_path: Path, one: str, other: str, is_refused: bool
) -> None:
    ids = {"s1": ["first", one, other], "s2": ["first", other, one]}
    rows = [(name, position, event) for name, events in ids.items() for position, event in enumerate(events)]
    row = '{{"subscriber": "{}", "position": {}, "event_id": "{}", "topic": "A"}}\n'
    (tmp_path / "log.jsonl").write_text("".join(row.format(*cells) for cells in rows))
    if is_refused:
        with pytest.raises(LogError, match="half a character"):
            read_tables(spark, str(tmp_path))
    else:
        assert audit_tables(read_tables(spark, str(tmp_path))).report.verdicts["tno"].answer == "invalid"


def test_parquet_text_that_is_not_utf8_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = swapped("a", "b", pa.string())
    pq.write_table(table.set_column(2, "event_id", not_utf8()), tmp_path / "log.parquet")
    with pytest.raises(LogError, match=r"4 of 4 rows do not fit.*row 1, column event_id: not UTF-8"):
        read_tables(spark, str(tmp_path))
    pq.write_table(table.set_column(0, "subscriber", not_utf8()), tmp_path / "log.parquet")
    with pytest.raises(LogError, match="column subscriber: not UTF-8"):
        read_tables(spark, str(tmp_path))
    pq.write_table(table.set_column(1, "position", not_utf8()), tmp_path / "log.parquet")
    with pytest.raises(LogError, match="column position: � is not a whole number"):
        read_tables(spark, str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(2)], ids=str)
def test_ids_of_bytes_are_shown_in_hexadecimal_digits(spark: SparkSession, kind: pa.DataType, tmp_path: Path) -> None:
    pq.write_table(swapped(b"\xe9\x01", b"\xe8\x01", kind), tmp_path / "log.parquet")
    tables = read_tables(spark, str(tmp_path))
    history = history_of(tables, 10)
    assert history is not None
    sentence = "on topic A, s1 was notified of e901 before e801, s2 of e801 before e901"
    assert [anomaly.sentence for anomaly in audit(history).anomalies] == [sentence]
    for options in (None, DIVIDED):
        told = audit_tables(tables, options=options).report
        assert told.verdicts["tno"].answer == "invalid"
        assert [anomaly.sentence for anomaly in told.anomalies] == [sentence]
    told = audit_tables(Tables(spark.read.parquet(str(tmp_path)))).report  # a table that nobody checked
    assert [anomaly.sentence for anomaly in told.anomalies] == [sentence]


def test_numbers_and_ids_with_parts(spark: SparkSession, tmp_path: Path) -> None:
    parts = pa.struct([("x", pa.string()), ("y", pa.string())])
    table = swapped({"x": "a, b", "y": "c"}, {"x": "a", "y": "b, c"}, parts)
    table = table.set_column(1, "position", pa.array([b"0", b"1", b"0", b"1"]))
    pq.write_table(table, tmp_path / "log.parquet")
    tables = read_tables(spark, str(tmp_path), ColumnMapping.of({"event_id": "event_id"}))
    (anomaly,) = audit_tables(tables).report.anomalies
    assert '{"x":"a, b","y":"c"}' in anomaly.sentence


@pytest.mark.parametrize("name", ["event_id", pytest.param("subscriber", marks=pytest.mark.long)])
@pytest.mark.long
def test_disorder_that_cannot_be_shown_is_not_called_order(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Tables that were not read by us may hold anything: names that are not UTF-8 are one name once they are shown."""
    table = swapped("a", "b", pa.string())
    at = table.column_names.index(name)
    names = not_utf8() if name == "event_id" else not_utf8().take(pa.array([0, 0, 1, 1]))
    pq.write_table(table.set_column(at, name, names), tmp_path / "log.parquet")
    deliveries = spark.read.parquet(str(tmp_path))
    publications = deliveries.selectExpr("event_id", "topic", "hex(event_id) AS publisher", "0 AS sequence").distinct()
    for tables in (Tables(deliveries), Tables(deliveries, publications)):
        told = audit_tables(tables)
        verdict = told.report.verdicts["tno"]
        assert (verdict.answer, told.anomalies.count()) == ("unknown", 0)
        assert "in disorder, but its rows do not show what is wrong" in verdict.reason


@pytest.mark.parametrize("suffix", ["parquet", pytest.param("csv", marks=pytest.mark.long)])
def test_names_of_folders_are_text(spark: SparkSession, suffix: str, tmp_path: Path) -> None:
    for subscriber, events in (("01", ["a", "b"]), ("1", ["b", "a"])):
        folder = tmp_path / f"subscriber={subscriber}"
        folder.mkdir()
        table = pa.table({"event_id": events, "topic": ["A", "A"], "at": [1, 2]})
        if suffix == "csv":
            csv.write_csv(table, folder / "log.csv")
        else:
            pq.write_table(table, folder / "log.parquet")
    before = spark.conf.get(INFERENCE)
    tables = read_tables(spark, str(tmp_path), ColumnMapping(order_by="at"))
    assert sorted(row.subscriber for row in tables.deliveries.collect()) == ["01", "01", "1", "1"]
    assert audit_tables(tables).report.verdicts["tno"].answer == "invalid"
    assert spark.conf.get(INFERENCE) == before
