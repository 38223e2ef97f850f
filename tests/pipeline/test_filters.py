"""Filters on Spark give the answers of the Python matcher, row for row, null for absent."""

import math
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from seriatim.filters import EVERYTHING, Contradiction, Filter, Predicate, Value, attribute, attributes_of, parse
from seriatim.filters.attributes import headers_of
from seriatim.filters.limits import EVENT_ATTRIBUTES_MAX, FILTER_VALUES_MAX
from seriatim.filters.predicates import OPERATORS
from seriatim.filters.values import DOMAINS, FLOAT_MAX, typed
from seriatim.model import InputError
from seriatim.pipeline.filters import matches_columns, matches_headers
from tests.filters.cases import KEYS

FILTERS = 150  # each is a column of the one query
FEW = 40
ROWS = 300
TYPES = {
    "long": (LongType(), "number"),
    "byte": (ByteType(), "number"),
    "double": (DoubleType(), "number"),
    "float": (FloatType(), "number"),
    "string": (StringType(), "string"),
    "boolean": (BooleanType(), "boolean"),
    "order.at": (TimestampType(), "timestamp"),
}


def random_filter(random: Random, kinds: dict[str, list[str]]) -> Filter:
    """One to three predicates over these attributes, each with values of one of its types."""
    while True:
        predicates = []
        for _ in range(random.randint(1, 3)):
            name = random.choice(sorted(kinds))
            kind = random.choice(kinds[name])
            operator = random.choice(OPERATORS)
            if (operator == "prefix" and kind != "string") or (kind == "boolean" and operator[0] in "<>"):
                operator = "!="
            count = random.randint(1, 4) if operator in ("in", "not in") else 1
            keys = tuple(random_key(random, kind) for _ in range(count))
            predicates.append(Predicate(name, operator, kind, keys))
        try:
            return Filter.of(predicates)
        except Contradiction:
            continue


def random_key(random: Random, kind: str) -> Any:
    """Mostly a value of the few, or right after one."""
    key = random.choice(KEYS[kind])
    following = DOMAINS[kind].successor(key)
    return key if following is None or random.random() < 0.6 else following


def readable(value: object) -> bool:
    """Whether it is a value at all: Spark's columns may hold what no attribute can."""
    try:
        typed("value", value)
    except InputError:
        return False
    return True


def compare(
    spark: SparkSession, rows: list[Any], schema: StructType, asked: dict[int, tuple[Column, list[bool]]]
) -> None:
    """Each column must answer what was expected, for every row."""
    table = spark.createDataFrame([(i, *row) for i, row in enumerate(rows)], _numbered(schema))
    answers = table.select("row_number", *(column.alias(f"f{i}") for i, (column, _) in asked.items())).collect()
    assert len(answers) == len(rows)
    for answer in answers:
        for i, (column, expected) in asked.items():
            row = answer["row_number"]
            assert answer[f"f{i}"] is expected[row], f"{column} says {answer[f'f{i}']} to {rows[row]}"


def _numbered(schema: StructType) -> StructType:
    return StructType([StructField("row_number", LongType(), False), *schema.fields])


def test_columns(spark: SparkSession) -> None:
    random = Random(7)
    schema = StructType([StructField(name, type) for name, (type, _) in TYPES.items()])

    def cell(name: str) -> Any:
        kind = TYPES[name][1]
        if random.random() < 0.2:
            return None
        key = random_key(random, kind)
        match name:
            case "long":
                return min(max(math.floor(key), -(2**63)), 2**63 - 1)
            case "byte":
                return random.randint(-3, 3)
            case "double":
                return random.choice([float(key), math.inf, -math.inf, math.nan, -0.0, FLOAT_MAX])
            case "float":
                return random.choice([0.5, 1.0, -1.0, 2.0, math.nan, math.inf, 2.0**63])
            case "order.at":
                moment = DOMAINS[kind].value(key)
                assert isinstance(moment, datetime)
                return max(moment, datetime(1900, 1, 1, tzinfo=UTC))  # Python's own limit is another story
        return key

    rows = [tuple(cell(name) for name in TYPES) for _ in range(ROWS)]
    kinds = {name: [kind, kind, kind, "number", "string"] for name, (_, kind) in TYPES.items()} | {
        "missing": ["number"]
    }
    made = [random_filter(random, kinds) for _ in range(FILTERS)]
    events = [
        {name: value for name, value in zip(TYPES, row, strict=True) if value is not None and readable(value)}
        for row in rows
    ]
    asked = {
        i: (matches_columns(each, schema), [each.matches(event) for event in events])
        for i, each in enumerate([*made, EVERYTHING])
    }
    assert sum(any(expected) for _, expected in asked.values()) > FILTERS / 4
    compare(spark, rows, schema, asked)


BAD = [
    "EU",
    "007",
    "1 2",
    "",
    "'a'",
    '"a',
    'a"',
    '"a" "b"',
    '"a", "b"',
    '"a"] ["b"',
    r'"\q"',
    '"a\nb"',
    "1\u2028",
    "True",
]
BAD += [
    r'"\ud800"',
    r'"\\ud800"',
    r'"\udc00\ud800"',
    "1e999",
    "9223372036854775808",
    "2026-02-30T00:00:00Z",
    "2026-11-16",
]
BAD += [
    "1" * 65,
    '"' + "x" * 1025 + '"',
    "2026-11-16T12:00:00+19:00",
    "0001-01-01T00:00:00+01:00",
    "null",
    "1d",
    "NaN",
    "[1]",
]
GOOD = [' "a" ', "\t1\n", r'"\u0061"', r'"a\\"', r'"\""', '"é"', r'"\ud83d\ude00"', "-0", "1.0", "0.1e1", "-0.0"]
GOOD += ["1970-01-01T00:00:00.000001Z", "1970-01-01T01:00:00+01:00", "9999-12-31T23:59:59.999999Z", "1e-400", '"x\\/y"']


@pytest.mark.parametrize("filters", [FEW, pytest.param(FILTERS, marks=pytest.mark.long)])
def test_headers(spark: SparkSession, filters: int) -> None:
    random = Random(8)
    names = ["a", "b", "order.c"]

    def headers() -> dict[str, str] | None:
        if random.random() < 0.05:
            return None
        made = {"Nats-Msg-Id": "1"}
        for name in names:
            kind = random.choice(sorted(DOMAINS))
            text = headers_of({name: DOMAINS[kind].value(random_key(random, kind))})[f"Attribute-{name}"]
            if random.random() < 0.9:
                made[f"Attribute-{name}"] = text if random.random() < 0.6 else random.choice(GOOD + BAD)
        return made

    rows = [(headers(),) for _ in range(ROWS)]
    rows += [({"Attribute-a": text},) for text in GOOD + BAD]
    rows.append(({"Attribute-a": "1"} | {f"Attribute-x{i}": "1" for i in range(EVENT_ATTRIBUTES_MAX)},))
    made = [random_filter(random, {name: sorted(DOMAINS) for name in names}) for _ in range(filters)]
    whole = [attribute("a") >= DOMAINS[kind].value(DOMAINS[kind].least) for kind in ("number", "string", "timestamp")]
    made += [*whole, attribute("a").one_of(True, False), parse(r'a = "\\ud800"'), parse("a = 0"), EVERYTHING]
    schema = StructType([StructField("headers", MapType(StringType(), StringType()))])
    events: list[dict[str, Value]] = [attributes_of(row[0]) for row in rows]
    asked = {
        i: (matches_headers(each, F.col("headers")), [each.matches(event) for event in events])
        for i, each in enumerate(made)
    }
    assert sum(any(expected) for _, expected in asked.values()) > filters / 4
    compare(spark, rows, schema, asked)


def test_a_list_as_long_as_it_may_be(spark: SparkSession) -> None:
    wanted = attribute("long").one_of(*range(0, 2 * FILTER_VALUES_MAX, 2))
    schema = StructType([StructField("long", LongType())])
    numbers = spark.range(1_000).withColumnRenamed("id", "long")
    assert numbers.where(matches_columns(wanted, schema)).count() == FILTER_VALUES_MAX
    unwanted = attribute("long").none_of(*range(0, 2 * FILTER_VALUES_MAX, 2))
    assert numbers.where(matches_columns(unwanted, schema)).count() == 1_000 - FILTER_VALUES_MAX


def test_a_timestamp_column_is_compared_to_the_microsecond(spark: SparkSession) -> None:
    moment = datetime(2026, 11, 16, 12, 0, 0, 1, tzinfo=UTC)
    rows = [(moment + timedelta(microseconds=i),) for i in (-1, 0, 1)]
    schema = StructType([StructField("at", TimestampType())])
    table = spark.createDataFrame(rows, schema)
    assert table.where(matches_columns(attribute("at") > moment, schema)).count() == 1
    assert table.where(matches_columns(attribute("at") == moment, schema)).count() == 1
    assert table.where(matches_columns(attribute("at") <= moment, schema)).count() == 2


@pytest.mark.parametrize("type", [DecimalType(10, 2), DateType()], ids=str)
def test_a_column_of_another_type_is_refused_by_name(spark: SparkSession, type: Any) -> None:
    schema = StructType([StructField("price", type)])
    with pytest.raises(InputError, match=r"column price: .* is not a type of attributes; cast it to bigint, double"):
        matches_columns(attribute("price") > 1, schema)
