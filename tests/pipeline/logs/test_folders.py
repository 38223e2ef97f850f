"""Spark refuses the same folders as the plain reader."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seriatim.model import LogError
from seriatim.pipeline.logs import read_tables
from tests.audit.test_folders import REFUSED, write


@pytest.mark.parametrize(("names", "given", "problem"), REFUSED)
def test_what_is_refused(spark: SparkSession, tmp_path: Path, names: tuple[str, ...], given: str, problem: str) -> None:
    with pytest.raises(LogError, match=problem):
        read_tables(spark, str(write(tmp_path / "a log", *names) / given))


def test_what_is_finished_is_read(spark: SparkSession, tmp_path: Path) -> None:
    names = (
        "deliveries/_SUCCESS",
        "deliveries/_temporary/0/part-1.csv",
        "deliveries/part-0.csv",
        "metadata/about.json",
    )
    assert read_tables(spark, str(write(tmp_path / "log", *names))).deliveries.count() == 1
