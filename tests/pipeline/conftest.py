"""One Spark session for all tests; it starts with the first test that asks for it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from seriatim.pipeline.session import SparkOptions, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Small and quick to start: one compiler stage costs a heavy batch, not these."""
    options = SparkOptions(
        master="local[2]",
        memory="2g",
        shuffle_partitions=4,
        java_options="-XX:TieredStopAtLevel=1 -Xshare:auto",
        settings={"spark.sql.adaptive.enabled": "true"},
    )
    session = open_session(options, "tests")
    yield session
    session.stop()
