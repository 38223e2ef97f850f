"""One set of rules: the same files, good and bad, to the plain reader and to the one on Spark.

Both accept and refuse the same, in the same words. Only a place is told in two ways: the plain reader knows the line of
a row, Spark how many rows come before it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from seriatim.audit import ColumnMapping, read_history, rules
from seriatim.audit import fitting as plainly
from seriatim.audit.mapping import FIELDS
from seriatim.model import Delivery, LogError
from seriatim.pipeline.logs import fitting as on_spark
from seriatim.pipeline.logs import read_tables
from tests.audit.foreign_logs import BAD, GOOD, ForeignLog, ordered

HEADING = "subscriber,position,event_id,topic"
OURS = ColumnMapping()
JSON_LINE = '{{"subscriber": "s", "position": {}, "event_id": "{}", "topic": "A"{}}}\n'


def csv(*lines: str, heading: str = HEADING, end: str = "\n") -> Mapping[str, str]:
    return {"deliveries.csv": "\n".join((heading, *lines)) + end}


def line(position: object = 0, event_id: str = "a", more: str = "") -> str:
    return JSON_LINE.format(position, event_id, more)


def json(*lines: str) -> Mapping[str, str]:
    return {"deliveries.jsonl": "".join(lines)}


# Cells by column: each becomes a row of its own, whose other cells are right.
CELLS = {
    "position": (
        *("3.0", " 3 ", "\t3", "+3", "3.", "3e0", "1_000", "١٢", "0x10", "3L", "NaN", "Infinity", "\u00a03", "--3"),
        *("9223372036854775807", "9223372036854775808", "1e30", "3.0000000001", "2.5", "-0", "-1", "", " ", "x"),
        *("true", "x" * 200, None),
    ),
    "index": ("2147483647", "2147483648", "-1", "", None),
    "notified_at": (
        *("2026-01-31", "2026-01-31T12:00:00.5Z", "2026-01-31 12:00", "2026-01-31T12", "2026-01-31T12:00:00+0100"),
        *("2026-01-31T12:00:00 +01:00", "2026-01-31T24:00:00", "2026-01-31T12:00:60", "2026-02-30", "12:30"),
        *("2026-01-31T12:00:00.123456789Z", "2026-01-31T1:2:3", "2026-01-31T12:00:00 UTC", "2026-01-31T12:00:00z"),
        *("0000-01-01", "2026-01-31T12:00:00+19:00", "2026-1-1", "12026-01-01", "2026-01-31x12:00", "1e-3", "1e40"),
        *("20260131T120000", "2026-W05-6", "now", "2026-01-31T12:00:00-07:30", "-5.25", "2026-01-31\n", ""),
    ),
    "out_of_order": ("Yes", " t ", "0", "N", "2", "maybe", "", None),
    "stamp": ('{"B": 2}', "{}", '{"B": "2"}', '{"B": 2.5}', '{"B": null}', "B:2", "[]", "7", "null", "", None),
    "event_id": ("", None, "a/b%", " "),
    "at": ("1.0000000001", "1e-9", "2026-01-31", "noon", "", None),
}
RIGHT = {"subscriber": "s", "position": "0", "event_id": "a", "topic": "A", "at": "1"}


@pytest.mark.parametrize("order_by", [pytest.param(None, marks=pytest.mark.long), "at"])
def test_cells_mean_the_same(spark: SparkSession, order_by: str | None) -> None:
    mapping = ColumnMapping.of({"event_id": "event_id,topic"}, order_by=order_by)
    rows = [{**dict.fromkeys(CELLS), **RIGHT, name: text} for name, texts in CELLS.items() for text in texts]
    sources = mapping.sources(rows[0], "log", are_all=False)
    schema = StructType([StructField(name, StringType()) for name in rows[0] | dict.fromkeys(FIELDS)])
    raw = spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
    fitted = on_spark.fit(raw, rules.FIELDS["deliveries"], sources, mapping).collect()
    assert len(fitted) == len(rows)
    for cells, other in zip(rows, fitted, strict=True):
        try:
            values, order, kind = plainly.fit(rules.FIELDS["deliveries"], sources, cells, mapping, "")
        except plainly.Misfit as misfit:
            assert str(misfit) == other["_problem"]
            continue
        assert other["_problem"] is None, cells
        assert Delivery(**values) == Delivery(**{name: other[name] for name in FIELDS}), cells
        assert (order, kind) == ((other["_order"], other["_kind"]) if order_by else (None, ""))


CASES: dict[str, Mapping[str, str]] = {
    "cells of all kinds": json(line('"7"'), line(1, "b", ', "index": 3, "stamp": {"B": 2}, "out_of_order": "yes"')),
    "cells that do not fit": json(line("true"), line("null"), line(more=', "index": 2147483648'), line(event_id="")),
    "an empty optional name": {**json(line()), "subscriptions.csv": "subscriber,topic,since,where\ns,A,0,\n"},
    "an id with parts": json(line().replace('"a"', '{"x":  1}'), line(1).replace('"a"', "[1, 2]")),
    # lines
    "blank lines": json("\n", line(), "  \n", line(1, "b")),
    "a byte order mark": csv("s1,0,a,A", heading=f"\ufeff{HEADING}"),
    "nothing but a heading": csv(),
    "not JSON": json(line(), "nonsense\n"),
    "a list": json(line(), "[1]\n"),
    "a list of rows": json(line(), f"[{line(1, 'b').strip()}]\n"),
    "two rows in a line": json(line(), line(1, "b").strip() + line(2, "c")),
    "two rows in a line, with brackets": json(line(0, "}{"), line(1, "b").strip() + " " + line(2, "c")),
    "brackets in a name": json(line(0, "}{"), line(1, "{"), line(2, "} x}")),
    "words behind a row": json(line(), line(1, "b").strip() + " x}\n"),
    "single quotes": json(line(), line(1, "b").replace('"', "'")),
    "a comma too many": json(line(more=",")),
    "a control character": json(line(0, "a\tb")),
    "not UTF-8": json(line(), line(1, "\udcff")),
    "not UTF-8, csv": csv("s1,0,\udcff,A", "s1,1,b,A"),
    "a replaced character": csv("s1,0,\ufffd,A"),
    "a replaced character elsewhere": csv("s1,0,a,A,\ufffd", heading=f"{HEADING},note"),
    "half a character": json(line(0, r"\ud800"), line(1, r"\ud801")),
    "half a character and a misfit": json(line(0, r"\ud800"), line("x", "b")),
    "both halves": json(line(0, r"\ud83d\ude00")),
    "cut off": json(line(), line(1, "b")[:20]),
    "cut off, csv": csv("s1,0,a,A", "s1,1", end=""),
    "not cut off": csv("s1,0,a,A", end=""),
    "too few cells": csv("s1,0", "s1,1,a,A"),
    "too many cells": csv("s1,0,a,A,5", "s1,1,a,A,"),
    "all kinds of misfits": csv("s1,x,a,A", "s1,-1,a,A", "s1,1,,A", "s1,2", "s1,3,a,A"),
    "windows line ends": {"deliveries.csv": f"{HEADING}\r\ns1,0,a,A\r\ns1,1,b,A\r\n"},
    # quotes
    "quotes": csv(
        *(
            f"s1,{i},{text},A"
            for i, text in enumerate(('"a"', '"a,b"', '"a""b"', '"""a"""', 'a"b', '"a" ', ' "a"', "'a", "\\", "#a"))
        ),
        's1,10,a,"A',
    ),
    "quotes that hold nothing": csv('s1,0,"",A'),
    "a quote that is never closed": csv('s1,0,"a,A'),
    "a quote that is closed in the next line": csv('s1,0,"a\nb",A'),
    "text behind a quote": csv('s1,0,"a"b,A'),
    "a quote that is escaped otherwise": csv('s1,0,"a\\"b",A'),
    # columns and tables
    "two columns of one name": csv("s1,0,a,A,B", heading=f"{HEADING},topic"),
    "two columns that differ in case": csv("s1,0,a,A,B", heading=f"{HEADING},Topic"),
    "a column is missing": csv("s1,0,a", heading="subscriber,position,event_id"),
    "a column is missing, json": json(line().replace('"topic"', '"title"')),
    "a column of another table is missing": {**json(line()), "publications.csv": "event_id,topic\na,A\n"},
    "a column of another table is missing, json": {
        **json(line()),
        "publications.jsonl": '{"event_id": "a", "topic": "A"}\n',
    },
    "a misfit in another table": {**json(line()), "subscriptions.csv": "subscriber,topic,since\ns,A,\ns,A,soon\n"},
    "headings that differ": {
        "a.csv": f"{HEADING}\ns1,0,a,A\n",
        "b.csv": "position,subscriber,event_id,topic\n0,s,a,A\n",
    },
    "formats that differ": {"a.csv": f"{HEADING}\ns1,0,a,A\n", "b.jsonl": line()},
    "deliveries twice": {**json(line()), **csv("s1,0,a,A")},
    "no deliveries": {"publications.csv": "event_id,topic,publisher\na,A,p\n"},
    "folders of runs": {"mon/deliveries.csv": f"{HEADING}\ns1,0,a,A\n", "tue/deliveries.csv": f"{HEADING}\ns1,0,a,A\n"},
    "rows of two runs": json(line(more=', "run": "r1"'), line(1, "b", ', "run": 2'), line(2, "c")),
}
MAPPED: dict[str, tuple[Mapping[str, str], ColumnMapping]] = {
    "times and numbers in the order": (
        {"log.csv": "host,msg_id,topic,at\nh,a,A,1\nh,b,A,2026-01-01\n"},
        ordered("at"),
    ),
    "an order to the nanosecond": (
        {"log.csv": "host,msg_id,topic,at\nh,a,A,1.0000000001\nh,b,A,1.0000000002\nh,c,A,1.1\n"},
        ordered("at"),
    ),
    "files of one name": (
        {"x/s1.csv": "event_id,topic,position\na,A,0\n", "y/s1.csv": "event_id,topic,position\na,A,0\n"},
        ColumnMapping(subscriber_from_file=True),
    ),
    "several columns, one empty": (
        {"log.csv": "host,topic,partition,position\nh,A,,0\n"},
        ColumnMapping.of({"subscriber": "host", "event_id": "topic,partition"}),
    ),
    "a run that is not there": (json(line(more=', "run": "r1"')), ColumnMapping(run="r2")),
    "a run where none is named": (json(line()), ColumnMapping(run="r2")),
    "inside an object that is none": (
        {"log.jsonl": '{"v": {"c": "x"}, "msg_id": "a", "topic": "A", "position": 0}\n{"v": 5, "topic": "A"}\n'},
        ColumnMapping.of({"subscriber": "v.c", "event_id": "msg_id"}),
    ),
}
EVERY = [
    *(ForeignLog(name, files, OURS) for name, files in CASES.items()),
    *(ForeignLog(name, files, mapping) for name, (files, mapping) in MAPPED.items()),
    *GOOD,
    *BAD,
]


def read(reader: Callable[[], list[Delivery]]) -> list[Delivery] | LogError:
    try:
        return sorted(reader(), key=repr)
    except LogError as error:
        return error


def told(error: LogError) -> str:
    """Its words; a line of a table with a heading is one more than its row, and blank lines count."""

    def row(found: re.Match[str]) -> str:
        file, number = Path(found[1]), int(found[2])
        lines = file.read_bytes().splitlines()[:number]
        return f"{file} row {sum(1 for each in lines if each.strip()) - (file.suffix != '.jsonl')}"

    words = re.sub(r"file:/+", "/", str(error))
    return re.sub(r"(\S+) line (\d+)", row, words)


@pytest.mark.parametrize(
    "log",
    [pytest.param(log, marks=[] if place % 15 == 0 else [pytest.mark.long]) for place, log in enumerate(EVERY)],
    ids=lambda log: log.name,
)
def test_both_readers_say_the_same(spark: SparkSession, log: ForeignLog, tmp_path: Path) -> None:
    log.write(tmp_path)
    plain = read(lambda: read_history(tmp_path, log.mapping).deliveries)
    other = read(
        lambda: [
            Delivery(**row.asDict()) for row in read_tables(spark, str(tmp_path), log.mapping).deliveries.collect()
        ]
    )
    if isinstance(plain, LogError) or isinstance(other, LogError):
        assert isinstance(plain, LogError), f"only Spark refuses it: {other}"
        assert isinstance(other, LogError), f"only the plain reader refuses it: {plain}"
        assert told(plain) == told(other)
    else:
        assert plain == other
