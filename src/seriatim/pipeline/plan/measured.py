"""What a run did, from its archive, to be compared with its plan."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.model import Node
from seriatim.pipeline.plan.inputs import with_site


def ranges_by_distance(
    stamps: DataFrame, events: DataFrame, sites: DataFrame, node_sites: Mapping[Node, str]
) -> DataFrame:
    """`is_far`, `ranges`: how many ranges were stamped at another site than the one their first event came from."""
    spark = stamps.sparkSession
    nodes = F.broadcast(spark.createDataFrame(list(node_sites.items()), "node string, node_site string"))
    first = events.select("log", "number", "publisher", "index").where("index = 0").drop("index")
    joined = stamps.join(first, (stamps["log"] == first["log"]) & (stamps["first"] == first["number"])).join(
        nodes, "node"
    )
    far = with_site(joined.select("publisher", "node_site"), "publisher", sites)
    return far.groupBy((F.col("site") != F.col("node_site")).alias("is_far")).agg(F.count("*").alias("ranges"))
