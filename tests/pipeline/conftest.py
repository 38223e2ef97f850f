"""One Spark session for all tests of a process; it starts with the first test that asks for it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from seriatim.pipeline.spark.session import SparkOptions, open_session

# For tables of a few rows, compiling a plan takes longer than interpreting it.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Small and quick to start. The long tests run on Spark as users have it: compiled, adaptive."""
    is_long = request.config.option.markexpr == "long"
    options = SparkOptions(
        master="local[2]",
        memory="2g",
        shuffle_partitions=4,
        java_options="-XX:TieredStopAtLevel=1 -Xshare:auto",
        settings={} if is_long else SMALL,
    )
    session = open_session(options, "tests")
    yield session
    session.stop()
