"""Tables that several steps need are computed once, and the plans of what follows start from them.

Without that, every step would plan all steps before it again, and their number doubles with each join.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
LEVEL = StorageLevel.MEMORY_AND_DISK
HANDED_OUT_MAX = 200_000  # rows of a few columns


def kept(frame: DataFrame) -> DataFrame:
    """Compute now and hold: on the executors' disks, or, where the application set one, in its checkpoint directory.

    With a checkpoint directory (`spark.checkpoint.dir`) an audit survives the loss of an executor; without, it must be
    started again.
    """
    if frame.sparkSession.conf.get("spark.checkpoint.dir", None):
        return frame.checkpoint()
    return frame.localCheckpoint(storageLevel=LEVEL)


def handed_out(frame: DataFrame) -> DataFrame:
    """A kept table, to be joined with one that is much larger: if it is small, every task gets all of it.

    Spark cannot know: what a plan starts from has no size, and then the larger table would be moved.
    """
    return F.broadcast(frame) if frame.count() <= HANDED_OUT_MAX else frame


@contextmanager
def planned_simply(spark: SparkSession) -> Iterator[None]:
    """While an audit plans, Spark infers no constraints: of tables this many it takes longer than the work itself.

    (And with unions of tables that were kept, Spark 4.3 fails in it: "key not found".)
    """
    before = spark.conf.get(CONSTRAINTS, "true")
    spark.conf.set(CONSTRAINTS, "false")
    try:
        yield
    finally:
        spark.conf.set(CONSTRAINTS, before or "true")
