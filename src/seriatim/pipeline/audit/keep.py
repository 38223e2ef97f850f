"""How an audit uses Spark: which tables are computed once, which parts run in Python, and which steps run in parallel.

Tables that several steps need are kept, and the plans of what follows start from them. Without that, every step would
plan all steps before it again, and their number doubles with each join.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from threading import Lock

import pyarrow as pa
from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from seriatim.pipeline.logs.reading import settings

CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
UNDIVIDED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.join.forceApplyShuffledHashJoin": "true",  # the rows are few: hashing them is quicker than sorting
    "spark.sql.ui.explainMode": "simple",  # plans are written down for a page that nobody sees
}
LEVEL = StorageLevel.MEMORY_AND_DISK_DESER  # rows as they are: to write and read them would cost more than they hold
INTERPRETED_ROWS = 20_000  # of so few rows, to compile a plan takes longer than to interpret it
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
HANDED_OUT_MAX = 200_000  # rows of a few columns

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_one_at_a_time = Lock()  # settings are the session's: two audits would undo each other's, and leave some behind


def kept(frame: DataFrame) -> DataFrame:
    """Compute now and hold: on the executors' disks, or, where the application set one, in its checkpoint directory.

    With a checkpoint directory (`spark.checkpoint.dir`) an audit survives the loss of an executor; without, it must be
    started again.
    """
    if frame.sparkSession.conf.get("spark.checkpoint.dir", None):
        return frame.checkpoint()
    return frame.localCheckpoint(storageLevel=LEVEL)


def handed_out(frame: DataFrame, rows_max: int) -> DataFrame:
    """A table to be joined with one that is much larger: if it is small, every task gets all of it.

    Spark cannot know: what a plan starts from has no size, and then the larger table would be moved. The caller knows
    that there are at most `rows_max` rows; only if those would be too many are they counted, so then keep it first.
    """
    is_small = rows_max <= HANDED_OUT_MAX or frame.count() <= HANDED_OUT_MAX
    return F.broadcast(frame) if is_small else frame


def count_few(frames: Iterable[DataFrame | None], rows_max: int) -> int | None:
    """The number of rows of these tables together, up to a limit. No more rows are read."""
    if not rows_max:
        return None
    parts = [frame.select(F.lit(1)).limit(rows_max + 1) for frame in frames if frame is not None]
    count = reduce(DataFrame.unionAll, parts).count()
    return count if count <= rows_max else None


@contextmanager
def planned_simply(spark: SparkSession, few: int | None = None) -> Iterator[None]:
    """While an audit plans, Spark infers no constraints: of tables this many it takes longer than the work itself.

    (And with unions of tables that were kept, Spark 4.3 fails in it: "key not found".) If the rows are so `few` that
    tables are not divided, there are no shuffles, nothing to hand out, and nothing to adapt to.

    Audits of one process take turns, and leave the session as it was.
    """
    wanted = {CONSTRAINTS: "false"}
    if few is not None:
        wanted |= UNDIVIDED | (INTERPRETED if few <= INTERPRETED_ROWS else {})
    with _one_at_a_time, settings(spark, wanted):
        yield


def in_python(frame: DataFrame, work: Work, schema: pa.Schema, is_undivided: bool) -> DataFrame:
    """What a Python function makes of a table, kept. That of a small log is done here: workers would have to start."""
    columns = from_arrow_schema(schema)
    if not is_undivided:
        return kept(frame.mapInArrow(work, columns))
    made = pa.Table.from_batches(list(work(iter(frame.toArrow().to_batches()))), schema)
    spark = frame.sparkSession  # of a table without batches it cannot make anything
    return (spark.createDataFrame(made, columns) if len(made) else spark.createDataFrame([], columns)).coalesce(1)


def side_by_side(spark: SparkSession, *steps: Callable[[], None]) -> None:
    """Steps that do not need each other: while Spark plans one, it works at another."""
    with ThreadPoolExecutor(len(steps)) as threads:
        for done in [threads.submit(inheritable_thread_target(spark)(step)) for step in steps]:
            done.result()
