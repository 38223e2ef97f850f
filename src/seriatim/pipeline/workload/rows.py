"""From keys to rows: how a job of pure functions over row keys runs on Spark, and how names are written."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

ROWS_PER_TASK = 2_000_000
ROWS_PER_BATCH = 100_000

Make = Callable[[NDArray[np.int64]], Iterator[pa.RecordBatch]]


def made(
    spark: SparkSession,
    keys: int,
    make: Make,
    schema: StructType,
    rows_per_key: float = 1.0,
    partitions: int | None = None,
) -> DataFrame:
    """The rows of the keys from 0 on. `make` is a function of a module, or a `partial` of one: workers import it."""
    if partitions is None:
        partitions = max(spark.sparkContext.defaultParallelism, int(keys * rows_per_key / ROWS_PER_TASK) + 1)
    return spark.range(0, keys, 1, min(partitions, max(keys, 1))).mapInArrow(partial(_batches, make), schema)


def _batches(make: Make, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from make(batch.column(0).to_numpy(zero_copy_only=False))


def batch_of(schema: StructType, **columns: pa.Array | None) -> pa.RecordBatch:
    """In the columns of the schema; what is not given is null."""
    wanted = to_arrow_schema(schema)
    size = next(len(column) for column in columns.values() if column is not None)
    arrays = []
    for field in wanted:
        column = columns.pop(field.name, None)
        arrays.append(pa.nulls(size, field.type) if column is None else column.cast(field.type))
    assert not columns, f"no such columns: {', '.join(columns)}"
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def names(prefix: str, ids: NDArray[np.int64]) -> pa.Array:
    """`t0`, `t1`, …"""
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(ids), pa.string()), "")
