"""The tables are the rows of the model, column for field."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from seriatim.model import Delivery, History, Message, Publication, Subscription
from seriatim.pipeline.logs import tables_of
from seriatim.pipeline.schemas import HISTORY

ROWS: dict[str, type[msgspec.Struct]] = {
    "deliveries": Delivery,
    "publications": Publication,
    "subscriptions": Subscription,
    "messages": Message,
}


@pytest.mark.parametrize("name", ROWS)
def test_columns_are_fields(name: str) -> None:
    fields = msgspec.structs.fields(ROWS[name])
    assert HISTORY[name].names == [field.name for field in fields]
    for field, column in zip(fields, HISTORY[name].fields, strict=True):
        assert column.nullable == (field.default is None), column.name


def test_a_history_as_tables(spark: SparkSession) -> None:
    tables = tables_of(spark, History([Delivery("s", 0, "a", "A", 1, {"B": 2})]))
    assert [row.asDict() for row in tables.deliveries.collect()] == [
        {
            "subscriber": "s",
            "position": 0,
            "event_id": "a",
            "topic": "A",
            "number": 1,
            "stamp": {"B": 2},
            "received_at": None,
            "notified_at": None,
            "out_of_order": False,
            "index": 0,
            "filtered": False,
            "order_position": None,
        }
    ]
    assert tables.publications is None
