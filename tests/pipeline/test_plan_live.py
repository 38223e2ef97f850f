"""A plan made from the archive of a running cluster is applied to it while it runs, and keeps its promise."""

from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from bench.plan_live import WORKLOAD, compare


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_wide_area_hops_drop_as_predicted(spark: SparkSession, tmp_path: Path) -> None:
    found = compare(spark, tmp_path, structs.replace(WORKLOAD, events=1000))
    assert found.before.hops_per_event == pytest.approx(found.predicted_before, rel=0.1)
    assert found.drop == pytest.approx(found.predicted_drop, rel=0.1)
    assert found.predicted_after < 0.6 * found.predicted_before
    assert found.verdict == "per-topic valid, tno valid"
    assert len(found.moved) > 5
