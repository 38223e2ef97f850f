"""Slots that nobody of ours has written, on their way into a table: a problem at their position, and no more."""

from seriatim.brokers.bulk import Messages, Stream
from seriatim.brokers.urls import bulk_reader
from seriatim.order import TopicNames
from seriatim.pipeline.source.events import EventColumns
from seriatim.pipeline.source.planning import Range
from seriatim.pipeline.source.rows import stamp_rows
from tests.brokers.nats.test_hostile_messages import HOSTILE_SLOTS, SLOT

READER = bulk_reader("nats://nowhere", cluster="c")
BODIES = [*HOSTILE_SLOTS.values(), SLOT]
POSITIONS = list(range(1, len(BODIES) + 1))
HOSTILE, GOOD = POSITIONS[:-1], POSITIONS[-1]
STREAM = Stream("slots", "slots", "a", "", 1, len(BODIES) + 1, True, 10.0)
MESSAGES = Messages(
    positions=POSITIONS,
    subjects=[b"_c.slots.a.0.%d" % position for position in POSITIONS],
    times=[b"2026-05-01T12:00:00Z"] * len(BODIES),
    headers=[b""] * len(BODIES),
    bodies=BODIES,
)


def test_events_go_on_behind_hostile_slots() -> None:
    columns = EventColumns(STREAM, READER, "")
    columns.add(MESSAGES)
    table, positions = columns.built()
    assert [first for first, _, _ in columns.problems] == HOSTILE
    assert (positions.to_pylist(), table.column("event_id").to_pylist()) == ([GOOD], ["an id"])


def test_stamps_go_on_behind_hostile_slots() -> None:
    rows = stamp_rows(MESSAGES, Range(STREAM, 1, len(BODIES)), READER, TopicNames())
    assert [first for first, _, _ in rows.problems] == HOSTILE
    assert (rows.positions.to_pylist(), rows.table.column("first").to_pylist()) == ([GOOD], [2])
