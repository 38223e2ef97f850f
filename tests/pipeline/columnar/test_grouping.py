"""Deliveries put together by event."""

import pyarrow as pa

from seriatim.pipeline.audit.columnar.grouping import _grouped, _schema


def test_rows_without_a_number_say_nothing_about_the_index() -> None:
    """One event, two rows, one of them with a number: what the event is known by is that of this row."""
    schema = _schema(has_runs=False)
    columns = [[1, 1], [5, 6], [1, 1], [2, 2], [False, False], [1.0, 2.0], [7, None], [3, 0]]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    event = _grouped(pa.record_batch(arrays, schema=schema)).to_pylist()[0]
    assert (event["number"], event["index"], event["number_high"], event["index_high"]) == (7, 3, 7, 3)
