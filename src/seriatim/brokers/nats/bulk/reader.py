"""JetStream as a bulk reader (brokers/bulk.py): which streams there are, their ranges, and how messages are written."""

import re
from collections.abc import Iterator

from msgspec import Struct

from seriatim.brokers.bulk import Catalogue, Head, Messages, Stream
from seriatim.brokers.naming import BUCKETS_MAX, Names, is_bucket
from seriatim.brokers.nats.bulk.catalogue import read_catalogue
from seriatim.brokers.nats.bulk.ranges import read_range
from seriatim.brokers.nats.bulk.socket import NatsSocket
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.brokers.nats.messages import MESSAGE_ID, PUBLISHER, decode_slot, decode_stamps
from seriatim.brokers.packs import BATCH_HEADER
from seriatim.model import Topic
from seriatim.order import TopicNames
from seriatim.protocols.with_broker import Delivered, Stamped

# How our own clients write headers; everything else is read line by line.
_USUAL = re.compile(
    rb"Nats-Msg-Id: ([^\r\n]+)\r\nSeriatim-Publisher: ([^\r\n]+)\r\n(?:Seriatim-Batch: ([^\r\n]+)\r\n)?\Z"
)


class NatsReader(Struct, frozen=True):
    """See `BulkReader`. Every read has a connection of its own."""

    servers: list[str]
    credentials: NatsCredentials
    cluster: str
    domain: str | None
    timeout_s: float

    @property
    def prefix(self) -> str:
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    def connect(self) -> NatsSocket:
        return NatsSocket(self.servers, self.credentials, timeout_s=self.timeout_s)

    def catalogue(self, topics: str = "") -> Catalogue:
        with self.connect() as connection:
            return read_catalogue(connection, self.cluster, self.prefix, topics)

    def read(self, stream: Stream, first: int, last: int) -> Iterator[Messages]:
        return read_range(self.connect, stream.name, first, last, direct=stream.direct, prefix=self.prefix)

    def log_subject(self, log: Topic) -> str:
        return Names(self.cluster, BUCKETS_MAX if is_bucket(log, BUCKETS_MAX) else 0).log_subject(log)

    def head(self, headers: bytes) -> Head:
        usual = _USUAL.match(headers)
        if usual is not None:
            try:
                version = usual[3].decode("utf-8", "replace") if usual[3] is not None else None
                return Head(usual[1].decode(), usual[2].decode(), version, None)
            except UnicodeDecodeError:
                return Head("", "", None, None)
        others = read_headers(headers)
        return Head(others.pop(MESSAGE_ID, ""), others.pop(PUBLISHER, ""), others.pop(BATCH_HEADER, None), others)

    def slot(self, body: bytes, topic: Topic, names: TopicNames | None = None) -> Delivered:
        return decode_slot(body, topic, None, names)

    def stamps(self, body: bytes, topic: Topic, names: TopicNames) -> list[Stamped]:
        return decode_stamps(body, topic, names)


def read_headers(headers: bytes) -> dict[str, str]:
    """Any headers. Headers that are not text count as none, as for every client of ours."""
    found: dict[str, str] = {}
    try:
        for line in headers.decode("utf-8").split("\r\n"):
            name, colon, value = line.partition(":")
            if colon and name not in found:
                found[name] = value.strip()
    except UnicodeDecodeError:
        return {}
    return found
