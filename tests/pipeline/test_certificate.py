"""The certificate on Spark says what the plain one says, word for word, on sound and on broken runs and order logs.

Many runs are judged at once. `SERIATIM_LOGS=10000` judges so many; `SERIATIM_SEED=17` only those of seed 17.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from seriatim.audit import CERTIFIED, audit, certify
from seriatim.audit.report import AGAINST_ORDER
from seriatim.cli import main
from seriatim.model import Delivery, History, InputError, LogError, Placement
from seriatim.pipeline.audit import AuditOptions, certify_tables
from seriatim.pipeline.audit.certificate.certifier import _Certifier
from seriatim.pipeline.logs import Tables, tables_of, write_parquet
from seriatim.pipeline.schemas import PLACEMENTS
from tests.audit.order_worlds import certified_runs
from tests.pipeline.test_audit_agreement import as_files, small, together

__all__ = ["small"]  # a fixture

LOGS = int(os.environ.get("SERIATIM_LOGS", "120"))
EACH = 6  # runs of a seed
BATCH = 500  # seeds
SEEDS = [int(os.environ["SERIATIM_SEED"])] if "SERIATIM_SEED" in os.environ else list(range(LOGS // EACH))
DIVIDED = AuditOptions(undivided_rows=0)
IN_FILES = AuditOptions(undivided_rows=0, split_rows=500, chunk_rows=97)


def order_table(spark: SparkSession, orders: Mapping[str, list[Placement]]) -> DataFrame:
    schema = StructType([StructField("run", StringType(), False), *PLACEMENTS.fields])
    rows = [(run, row.position, row.topic, row.first, row.last) for run, order in orders.items() for row in order]
    fields = to_arrow_schema(schema)
    arrays = [pa.array([row[i] for row in rows], type=field.type) for i, field in enumerate(fields)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=fields), schema)


def alone(spark: SparkSession, order: list[Placement]) -> DataFrame:
    return order_table(spark, {"": order}).drop("run")


@pytest.mark.parametrize("count", [4, pytest.param(LOGS, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])])
def test_agrees_with_the_plain_certificate(
    small: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    met: Counter[str] = Counter()
    named: Counter[str] = Counter()
    seeds = SEEDS[: max(1, count // EACH)]
    for start in range(0, len(seeds), BATCH):
        runs = {
            f"{seed} {name}": run
            for seed in seeds[start : start + BATCH]
            for name, run in certified_runs(seed).items()
            if run[0].deliveries
        }
        tables = together(small, {name: history for name, (history, _) in runs.items()})
        tables = Tables(tables.deliveries)
        order = order_table(small, {name: order for name, (_, order) in runs.items()})
        ways = {"as it is": certify_tables(tables, order)}
        if count > 24:
            ways["divided"] = certify_tables(tables, order, options=DIVIDED)
        files = as_files(tables, tmp_path / str(start))
        with monkeypatch.context() as patched:  # some rows are late, but not all need queries
            patched.setattr(_Certifier, "_look", None)
            ways["as files"] = certify_tables(files, order, options=IN_FILES)
        for name, (history, placements) in runs.items():
            expected = certify(history.deliveries, placements)
            shown = f"SERIATIM_SEED={name.split()[0]} replays {name}\n{history}\n{placements}"
            for way, found in ways.items():
                assert found[name] == expected, f"{way}; {shown}"
            met[expected.verdict.answer] += 1
            named.update(expected.counts)
            judged = audit(History(history.deliveries))
            for guarantee in CERTIFIED:
                if expected.verdict.answer == "valid":
                    assert judged.verdicts[guarantee].answer == "valid", shown
    if len(seeds) >= 100:
        assert all(met[answer] for answer in ("valid", "invalid", "unknown")), met
        assert set(AGAINST_ORDER) <= set(named), named


def shop() -> tuple[History, list[Placement]]:
    """Two subscribers; s2 is late with a2, and is notified of a1 twice."""
    words = {"s1": "a1 a2 b1 a3", "s2": "a1 b1 a2 a1"}
    rows = [
        Delivery(name, position, word, word[0].upper(), int(word[1:]), notified_at=float(position))
        for name, told in words.items()
        for position, word in enumerate(told.split())
    ]
    return History(rows), [Placement(1, "A", 1, 2), Placement(3, "B", 1, 1), Placement(4, "A", 3, 3)]


@pytest.mark.long
def test_one_log_whatever_reads_it(small: SparkSession, tmp_path: Path) -> None:
    history, order = shop()
    expected = certify(history.deliveries, order)
    assert expected.counts == {"order-inversion": 1, "order-repeat": 1}
    tables, table = tables_of(small, history), alone(small, order)
    assert certify_tables(tables, table) == {"": expected}
    files = as_files(tables, tmp_path / "files")
    assert certify_tables(files, table, options=IN_FILES) == {"": expected}
    too_long = AuditOptions(undivided_rows=0, order_rows_max=1)
    assert certify_tables(files, table, options=too_long) == {"": expected}
    for wrong, problem in ((Placement(9, "A", 4, 3), "ends before it begins"), (Placement(9, "A", 0, 3), "from 1")):
        with pytest.raises(LogError, match=problem):
            certify_tables(files, alone(small, [*order, wrong]), options=IN_FILES)
    with pytest.raises(InputError, match="limit"):
        certify_tables(tables, table, limit=0)


@pytest.mark.long
def test_indices_that_do_not_fit_are_looked_at_by_queries(small: SparkSession, tmp_path: Path) -> None:
    history, order = shop()
    rows = [*history.deliveries, Delivery("s3", 0, "x", "B", 1, index=1 << 25)]
    files = as_files(tables_of(small, History(rows)), tmp_path / "files")
    assert certify_tables(files, alone(small, order), options=IN_FILES)[""] == certify(rows, order)


@pytest.mark.long
def test_many_runs_of_which_one_has_no_order_log(small: SparkSession, tmp_path: Path) -> None:
    history, order = shop()
    tables = together(small, {"with": history, "without": history})
    table = order_table(small, {"with": order, "other": order})
    found = certify_tables(as_files(Tables(tables.deliveries), tmp_path / "files"), table, options=IN_FILES)
    assert found["with"] == certify(history.deliveries, order)
    assert found["without"] == certify(history.deliveries, [])
    assert found["other"] == certify([], order)


def test_the_command_reads_parquet(spark: SparkSession, tmp_path: Path) -> None:
    history, order = shop()
    write_parquet(History(history.deliveries[:4]), tmp_path / "run")
    alone(spark, order).write.parquet(str(tmp_path / "order"))
    words = ["audit", str(tmp_path / "run"), "--order-log", str(tmp_path / "order"), "--certificate-only", "--json"]
    expected = certify(history.deliveries[:4], order).verdict.reason
    for engine in ("auto", "spark"):
        result = CliRunner().invoke(main, [*words, "--engine", engine])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["verdicts"]["certificate"]["reason"] == expected
    result = CliRunner().invoke(main, [*words, "--engine", "python"])
    assert result.exit_code == 2 and "Parquet" in result.output
