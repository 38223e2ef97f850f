"""Deliveries put together by event."""

import numpy as np
import pyarrow as pa

from seriatim.pipeline.audit.columnar.files import Chunk, FileLog
from seriatim.pipeline.audit.columnar.grouping import _columns, _grouped, _schema


def test_rows_without_a_number_say_nothing_about_the_index() -> None:
    """One event, two rows, one of them with a number: what the event is known by is that of this row."""
    rows = pa.record_batch(
        {
            "subscriber": ["s1", "s2"],
            "event_id": ["e", "e"],
            "topic": ["t", "t"],
            "number": pa.array([7, None], pa.int64()),
            "index": pa.array([3, 0], pa.int32()),
        }
    )
    log = FileLog((), 2, has_runs=False, salt=0, chunk_rows=2)
    columns = _columns(Chunk(log, rows), _schema(has_runs=False), np.empty(0, np.int64), np.empty(0))
    event = _grouped(pa.Table.from_batches([columns])).to_pylist()[0]
    assert (event["number"], event["index"], event["number_high"], event["index_high"]) == (7, 3, 7, 3)
