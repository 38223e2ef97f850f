"""Slots that nobody of ours has written, on their way into a table: a problem at their position, and no more."""

from tests.brokers.test_hostile_messages import HOSTILE_SLOTS, SLOT

from seriatim.brokers.nats_catalogue import Stream
from seriatim.brokers.nats_ranges import Messages
from seriatim.order import TopicNames
from seriatim.pipeline.source.events import EventColumns
from seriatim.pipeline.source.planning import Range
from seriatim.pipeline.source.rows import stamp_rows

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
    columns = EventColumns(STREAM, "c", "")
    columns.add(MESSAGES)
    table, positions = columns.built()
    assert [first for first, _, _ in columns.problems] == HOSTILE
    assert (positions.to_pylist(), table.column("event_id").to_pylist()) == ([GOOD], ["an id"])


def test_stamps_go_on_behind_hostile_slots() -> None:
    rows = stamp_rows(MESSAGES, Range(STREAM, 1, len(BODIES)), TopicNames())
    assert [first for first, _, _ in rows.problems] == HOSTILE
    assert (rows.positions.to_pylist(), rows.table.column("first").to_pylist()) == ([GOOD], [2])
