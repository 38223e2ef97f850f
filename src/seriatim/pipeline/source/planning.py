"""Streams cut into ranges of positions, and ranges dealt out to tasks. Pure, so that a repeated plan is the same plan.

An *offset* says how far each stream was read: `{stream: {"next": position, "created": when}}`. A stream that was
deleted and created again has another creation time, and its positions start over: this is noticed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from seriatim.brokers.bulk import Stream
from seriatim.model import InputError

Offset: TypeAlias = dict[str, Any]

MESSAGE_BYTES = 300  # what reading a message costs beside its own bytes
PARTITION_BYTES_MIN = 1024 * 1024


class Range(Struct, frozen=True):
    """Positions `first` … `last` of a stream. `gone`: the server says that it no longer has them."""

    stream: Stream
    first: int
    last: int
    gone: bool = False


class RangesPartition(InputPartition):
    """The work of one task: ranges to read, and the topics that stamps may name."""

    def __init__(self, ranges: Sequence[Range], topics: Sequence[str]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.topics = tuple(topics)


def next_of(offset: Mapping[str, Any], stream: Stream, start: str) -> int:
    """The next position to read in a stream. InputError: it is not the stream that was read before."""
    known = offset.get(stream.name)
    if known is None:
        return stream.first if start == "kept" else 1
    if known["created"] != stream.created:
        raise InputError(
            f"stream {stream.name}",
            f"it was deleted and created again ({stream.created}), after {known['next'] - 1} positions of the one "
            f"created {known['created']} were read; its positions start over",
            "keep what was read, and begin a new archive and checkpoint elsewhere for the new stream",
        )
    position: int = known["next"]
    return position


def check_present(offset: Mapping[str, Any], streams: Iterable[Stream]) -> None:
    """Every stream that was read before must still be there."""
    missing = sorted(set(offset) - {each.name for each in streams})
    if missing:
        raise InputError(
            f"stream {missing[0]}",
            "it was read before, and is no longer on the server or not among the topics that are asked for",
            "restore it, ask for the same topics, or begin a new archive and checkpoint elsewhere",
        )


def latest(start: Mapping[str, Any], streams: Sequence[Stream], begin: str, messages_max: int | None) -> Offset:
    """How far to read now: everything, or `messages_max` dealt out evenly, so that no stream waits for another."""
    check_present(start, streams)
    begins = {each.name: next_of(start, each, begin) for each in streams}
    waiting = {each.name: max(0, each.next - begins[each.name]) for each in streams}
    granted = _deal(waiting, messages_max)
    return {
        each.name: {"next": begins[each.name] + granted[each.name], "created": each.created}
        for each in streams
        if granted[each.name] or each.name in start
    }


def _deal(waiting: Mapping[str, int], total: int | None) -> dict[str, int]:
    if total is None or sum(waiting.values()) <= total:
        return dict(waiting)
    granted: dict[str, int] = {}
    left = total
    by_size = sorted(waiting, key=lambda name: (waiting[name], name))
    for place, name in enumerate(by_size):
        share = max(1, -(-left // (len(by_size) - place)))  # at least one: nobody waits for ever
        granted[name] = min(waiting[name], share)
        left = max(0, left - granted[name])
    return granted


def ranges_between(
    start: Mapping[str, Any], end: Mapping[str, Any], streams: Sequence[Stream], begin: str
) -> list[Range]:
    check_present(end, streams)
    found = []
    for stream in streams:
        if stream.name in end:
            next_of(end, stream, begin)  # still the stream that the offset means
            first, last = next_of(start, stream, begin), end[stream.name]["next"] - 1
            kept = max(first, stream.first)
            if first < min(kept, last + 1):
                found.append(Range(stream, first, min(kept - 1, last), gone=True))
            if kept <= last:
                found.append(Range(stream, kept, last))
    return found


def deal_out(ranges: Sequence[Range], parallelism: int, bytes_max: int) -> list[list[Range]]:
    """Ranges of about the same size for each task; a long range is cut, short ones share a task."""
    total = sum(_weight(each) for each in ranges)
    room = min(bytes_max, max(PARTITION_BYTES_MIN, -(-total // parallelism)))
    parts: list[list[Range]] = []
    left = 0
    for each in ranges:
        if each.gone:
            if not parts:
                parts.append([])
                left = room
            parts[-1].append(each)
            continue
        first = each.first
        per_message = each.stream.mean_bytes + MESSAGE_BYTES
        while first <= each.last:
            if left < per_message:
                parts.append([])
                left = room
            count = min(each.last - first + 1, max(1, int(left // per_message)))
            parts[-1].append(Range(each.stream, first, first + count - 1))
            left -= int(count * per_message)
            first += count
    return parts


def _weight(each: Range) -> int:
    return 0 if each.gone else int((each.last - each.first + 1) * (each.stream.mean_bytes + MESSAGE_BYTES))
