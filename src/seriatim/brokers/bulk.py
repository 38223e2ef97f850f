"""Bulk reading: a cluster's logs, slots, stamps, order and rows as streams of messages, read in ranges of positions.

A capability (capabilities.py) for jobs that read everything a broker holds, such as Spark. A reader is plain data that
can be sent to another process; it connects when it reads, and blocks.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, field

from seriatim.brokers.naming import BUCKETS_MAX, is_bucket
from seriatim.model import Topic
from seriatim.order import TopicNames
from seriatim.protocols.with_broker import Delivered, Ordered, Stamped

Kind: TypeAlias = Literal["log", "slots", "stamps", "order", "logs"]


class Stream(Struct, frozen=True):
    """One stream of a cluster. `holds`: of log and slots the ordered topic, of stamps the node, of logs the table, of
    the order log nothing."""

    name: str
    kind: Kind
    holds: str
    created: str
    first: int
    next: int  # the position that the next message will have
    direct: bool = True  # a hint from the catalogue to the reader: how this stream is read
    mean_bytes: float = 0.0  # of a message


class Messages(Struct):
    """Messages of a stream as columns, in the order of their positions. An index is the same message in every
    column."""

    positions: list[int] = field(default_factory=list)
    subjects: list[bytes] = field(default_factory=list)
    times: list[bytes] = field(default_factory=list)  # when the broker stored it: 2026-05-01T12:00:00.123456789Z
    headers: list[bytes] = field(default_factory=list)  # as the broker keeps them; `BulkReader.head` reads them
    bodies: list[bytes] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)  # first and last position of each, between and after


class Head(NamedTuple):
    """What the headers of an event say. `version`: of the pack it is, if it is one (packs.py)."""

    event_id: str
    publisher: str
    version: str | None
    others: dict[str, str] | None


class Catalogue:
    """The streams of one cluster, as they were when it was made."""

    def __init__(self, streams: Iterable[Stream], topics: Iterable[Topic]) -> None:
        self.streams = sorted(streams, key=lambda each: (each.kind, each.name))
        self.topics = sorted(set(topics))  # every topic that a stamp may name, as far as the broker knows

    def of(self, kind: Kind, topics: str = "") -> list[Stream]:
        """The streams of a kind; of logs and slots those that hold a topic of the list or pattern."""
        found = [each for each in self.streams if each.kind == kind]
        wanted = patterns(topics)
        if not wanted or kind not in ("log", "slots"):
            return found
        return [each for each in found if is_bucket(each.holds, BUCKETS_MAX) or matches(each.holds, wanted)]

    def topic_names(self) -> TopicNames:
        """The topic names that decoding stamps needs."""
        names = TopicNames()
        names.know(self.topics)
        return names


class BulkReader(Protocol):
    """Reads what a broker holds of one cluster."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""

    def catalogue(self, topics: str = "") -> Catalogue:
        """List the streams. `topics`: names that may be in streams of somebody else."""

    def read(self, stream: Stream, first: int, last: int) -> Iterator[Messages]:
        """The messages at these positions, each once, and the holes between them."""

    def log_subject(self, log: Topic) -> str:
        """The subject of events in this log that have no topic of their own."""

    def head(self, headers: bytes) -> Head:
        """What the headers of an event say."""

    def slot(self, body: bytes, topic: Topic, names: TopicNames | None = None) -> Delivered:
        """What a message of a stream of slots holds. RemoteError: it cannot be read."""

    def stamps(self, body: bytes, topic: Topic, names: TopicNames) -> list[Stamped]:
        """The stamps in a message of a stream of stamps; it may hold none. RemoteError: it cannot be read."""

    def order(self, body: bytes) -> Ordered:
        """The ranges in a message of the order log. RemoteError: it cannot be read."""


def patterns(topics: str) -> list[str]:
    """Names and patterns (`*` and `?`) separated by commas or blanks."""
    return [word for word in re.split(r"[,\s]+", topics) if word]


def matches(topic: Topic, wanted: Iterable[str]) -> bool:
    """Whether a topic matches one of these patterns."""
    return any(topic == each or fnmatchcase(topic, each) for each in wanted)
