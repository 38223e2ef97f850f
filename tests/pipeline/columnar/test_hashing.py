"""Hashes made in arrays are Spark's own, for texts of every length."""

from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columnar.hashing import hash_column, hash_texts, seed_of

LETTERS = "ab0-é漢"


def test_as_spark_hashes(spark: SparkSession) -> None:
    random = Random(1)
    texts = ["".join(random.choice(LETTERS) for _ in range(length)) for length in list(range(90)) * 2]
    runs = [random.choice(["", "run 1", "a run with quite a long name, to be sure of it"]) for _ in texts]
    rows = spark.createDataFrame(pa.table({"run": runs, "text": texts}))
    of_runs = rows.select(F.xxhash64(F.lit(7), F.col("run"), F.col("text"))).toArrow().column(0)
    seeds = hash_texts(pa.array(runs), seed_of(7))
    assert hash_texts(pa.array(texts), seeds).tolist() == of_runs.to_pylist()
    assert hash_column(pa.array(texts).dictionary_encode(), seeds).tolist() == of_runs.to_pylist()
    of_one = rows.select(F.xxhash64(F.lit(-3), F.lit("check"), F.lit(""), F.col("text"))).toArrow().column(0)
    seed = seed_of(-3, "check", "")
    assert hash_column(pa.array(texts).dictionary_encode(), seed).tolist() == of_one.to_pylist()
    part = pa.array(texts).slice(50, 40)  # as a batch of a file: not from the beginning of its buffers
    assert hash_column(part, seed).tolist() == of_one.to_pylist()[50:90]


def test_nothing_to_hash() -> None:
    assert hash_texts(pa.array([], pa.string()), seed_of(0)).tolist() == []
    assert len(set(hash_texts(pa.array(["", "a"]), seed_of(0)).tolist())) == 2


def test_any_salt(spark: SparkSession) -> None:
    """Spark makes an int or a bigint of it, which have other hashes."""
    for salt in (0, -1, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1):
        expected = spark.range(1).select(F.xxhash64(F.lit(salt), F.lit("a"))).collect()[0][0]
        assert seed_of(salt, "a").tolist() == [expected]
