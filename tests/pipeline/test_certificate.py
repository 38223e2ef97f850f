"""The certificate on Spark says what the plain one says, word for word, on sound and on broken runs and order logs.

Many runs are judged at once. `SERIATIM_LOGS=10000` judges so many; `SERIATIM_SEED=17` only those of seed 17.
"""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from seriatim.audit import CERTIFIED, audit, certify
from seriatim.audit.report import AGAINST_ORDER
from seriatim.model import History, Placement
from seriatim.pipeline.audit import AuditOptions, certify_tables
from seriatim.pipeline.audit.certificate.certifier import _Certifier
from seriatim.pipeline.logs import Tables
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


@pytest.mark.parametrize("count", [24, pytest.param(LOGS, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])])
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
