"""One Spark session for all tests; it starts with the first test that asks for it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from seriatim.pipeline.session import SparkOptions, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Small and quick to start: one compiler stage costs a heavy batch, not these.

    For tables of a few rows, compiling a plan takes longer than interpreting it.
    """
    options = SparkOptions(
        master="local[2]",
        memory="2g",
        shuffle_partitions=2,
        java_options="-XX:TieredStopAtLevel=1 -Xshare:auto",
        settings={
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    session = open_session(options, "tests")
    yield session
    session.stop()
