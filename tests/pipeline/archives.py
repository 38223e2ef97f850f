"""Archives made by hand, without a broker: the rows of a history, message by message, and what was lost of them."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seriatim.model import History
from seriatim.pipeline.archive.reading import file_schema
from seriatim.pipeline.archive.writing import write_batch
from seriatim.pipeline.schemas import HISTORY

LOGGED = ("deliveries", "publications", "subscriptions")
NOW_MS = 1.7e12


def archived(
    spark: SparkSession, history: History, uri: Path, *, lost: dict[str, tuple[int, ...]] | None = None, begin: int = 1
) -> str:
    """Each row is a message, from position `begin` on; those at the positions in `lost` are gone. Two batches."""
    for table in LOGGED:
        gone = (lost or {}).get(table, ())
        found = [_row(table, row, place, place in gone) for place, row in enumerate(getattr(history, table), begin)]
        half = len(found) // 2
        for batch, rows in enumerate((found[:half], found[half:])):
            schema = file_schema(table)
            frame = spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
            write_batch(frame.drop("date").coalesce(1), batch, root=str(uri), table=table)
    return str(uri)


def with_events(spark: SparkSession, history: History, uri: Path) -> str:
    """Adds the events that were notified, numbered per topic in the order of their ids."""
    topics = {row.event_id: row.topic for row in history.deliveries}
    rows, counts = [], dict.fromkeys(topics.values(), 0)
    for event_id, topic in sorted(topics.items()):
        counts[topic] += 1
        data = event_id.encode()
        event = (topic, counts[topic], 0, topic, event_id, "p", NOW_MS, None, data)
        rows.append((*event, f"shop-topic-{topic}", counts[topic], 0, NOW_MS, None, None, None))
    frame = spark.createDataFrame(rows, file_schema("events")).drop("date").coalesce(1)
    write_batch(frame, 0, root=str(uri), table="events")
    return str(uri)


def _row(table: str, row: Any, position: int, is_gone: bool) -> dict[str, Any]:
    place = {"stream": f"shop-logs-{table}", "stream_position": position, "line": 0}
    if is_gone:
        return {**place, "lost_to": position, "problem": "the stream does not have it any more"}
    return {**place, "stored_at": NOW_MS, **{name: getattr(row, name) for name in HISTORY[table].names}}
