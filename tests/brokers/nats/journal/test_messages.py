"""Putting a journal together from its messages: crashes anywhere, and messages that are missing."""

import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.brokers.nats.journal.messages import (
    Beat,
    Chunk,
    JournalMessage,
    Opened,
    Records,
    Snapshot,
    assemble,
    decode,
    encode,
    pieces,
    split_records,
)
from seriatim.model import JournalError
from seriatim.runtime.journal.interface import Recovered


class Story:
    """Writers one after the other, each of which may stop between any two messages. Records are running numbers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.messages: dict[int, JournalMessage] = {}
        self.sequence = 0
        self.acknowledged = 0  # records
        self.writers = 0
        self.purged_until = 0

    def publish(self, message: JournalMessage) -> bool:
        """False: the writer died before this one."""
        if self.random.random() < 0.06:
            return False
        self.sequence += 1
        self.messages[self.sequence] = decode("stream", self.sequence, encode(message))
        return True

    def live(self) -> None:
        """One writer from its claim to its death."""
        self.writers += 1
        writer, number = f"w{self.writers}", 1
        snapshot: list[int] = []
        to_write: list[bytes] = []
        if not self.publish(Opened(writer)):
            return
        for _ in range(self.random.randrange(30)):
            action = self.random.randrange(6)
            if action <= 2:
                count = self.random.randint(1, 3)
                records = [b"%d" % (self.acknowledged + i) for i in range(count)]
                for message in split_records(writer, number + 1, records, self.random.choice([2, 5, 1000])):
                    if not self.publish(message):
                        return
                    number = message.number
                self.acknowledged += count
            elif action == 3:
                if not self.publish(Beat(writer, number)):
                    return
            elif action == 4 and not to_write:
                state = b"%d" % self.acknowledged * self.random.randint(1, 3)
                to_write = pieces(state, 3)
                snapshot = [0, len(to_write), zlib.crc32(state), self.sequence, number]
            elif to_write:  # a piece of a snapshot, between appends
                snapshot[0] = snapshot[0] or number + 1
                if not self.publish(Chunk(writer, number + 1, snapshot[0], to_write[0])):
                    return
                number += 1
                del to_write[0]
                if not to_write:
                    if not self.publish(Snapshot(writer, number + 1, *snapshot)):
                        return
                    number += 1
                    if self.random.random() < 0.7:
                        self.purged_until = snapshot[3]
                        self.messages = {at: each for at, each in self.messages.items() if at > snapshot[3]}

    def check(self) -> None:
        found = assemble("stream", self.messages)
        before = 0
        if found.snapshot is not None:
            counts = [n for n in range(self.acknowledged + 1) if found.snapshot in {b"%d" % n * k for k in (1, 2, 3)}]
            numbers = [int(record) for record in found.records]
            before = numbers[0] if numbers else max(counts)
            assert before in counts
        assert found.records == [b"%d" % n for n in range(before, before + len(found.records))]
        assert before + len(found.records) == self.acknowledged


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1))
def test_whatever_a_crash_leaves_is_put_together(seed: int) -> None:
    """An append counts if all its parts are there, a snapshot if it is complete; nothing is lost or there twice."""
    story = Story(Random(seed))
    for _ in range(6):
        acknowledged = story.acknowledged
        story.live()
        if story.acknowledged == acknowledged and not story.messages:
            assert assemble("stream", story.messages) == Recovered(None, [])
        story.check()


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_a_missing_message_is_noticed(seed: int) -> None:
    random = Random(seed)
    story = Story(random)
    for _ in range(3):
        story.live()
    whole = assemble("stream", story.messages)
    base = max((m.until for m in story.messages.values() if isinstance(m, Snapshot)), default=0)
    needed = [at for at, m in story.messages.items() if at > base and not isinstance(m, Beat)]
    for at in needed[:-1]:
        following = next(m for n, m in sorted(story.messages.items()) if n > at and not isinstance(m, Beat))
        if isinstance(following, Opened):
            continue  # the last one of a writer that died: it cannot be told from one that was never written
        with pytest.raises(JournalError, match="stream stream, message"):
            assemble("stream", {n: m for n, m in story.messages.items() if n != at})
    assert assemble("stream", story.messages) == whole


def test_what_somebody_else_wrote_is_an_error() -> None:
    for data in (b"", b"\xc0", b"hello", encode(["no such tag", 1]), None):
        with pytest.raises(JournalError, match="stream s, message 7: is not of a journal"):
            decode("s", 7, data)
    with pytest.raises(JournalError, match="is number 5 of writer b, after number 1 of writer a"):
        assemble("s", {1: Opened("a"), 2: Records("b", 5, 1, 1, encode([b"x"]))})
    with pytest.raises(JournalError, match="is part 2 of an append, after part 0"):
        assemble("s", {1: Opened("a"), 2: Records("a", 2, 2, 2, encode([b"x"]))})
    with pytest.raises(JournalError, match="not a list of records"):
        assemble("s", {1: Opened("a"), 2: Records("a", 2, 1, 1, b"x")})
    with pytest.raises(JournalError, match="not all there"):
        assemble("s", {1: Opened("a"), 2: Chunk("a", 2, 2, b"x"), 3: Snapshot("a", 3, 2, 2, 0, 1, 1)})


def test_pieces_put_together_are_the_whole() -> None:
    for length in range(10):
        for size in range(1, 12):
            data = bytes(range(length))
            parts = pieces(data, size)
            assert b"".join(parts) == data and parts and all(len(part) <= size for part in parts)
