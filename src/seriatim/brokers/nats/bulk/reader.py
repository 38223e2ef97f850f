"""JetStream as a bulk reader (brokers/bulk.py): which streams there are, their ranges, and how messages are written.

The catalogue is found on the server alone: no sequencer need be running. Names say what a stream is (naming.py). A
topic may also live in somebody else's stream, under any name; then the stamp channel knows the topic, because it was
ordered, or the reader names it.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from seriatim.brokers.bulk import Catalogue, Head, Kind, Messages, Stream, patterns
from seriatim.brokers.naming import BEGUN, BUCKETS_MAX, Names, is_bucket, unescape
from seriatim.brokers.nats.api import Answer, StreamAnswer, SubjectsAnswer
from seriatim.brokers.nats.bulk.ranges import ask_api, read_range
from seriatim.brokers.nats.bulk.socket import NatsSocket
from seriatim.brokers.nats.channels import is_mark
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.brokers.nats.messages import MESSAGE_ID, PUBLISHER, decode_slot, decode_stamps
from seriatim.brokers.nats.order import decode_order
from seriatim.brokers.packs import BATCH_HEADER
from seriatim.model import InputError, Topic
from seriatim.order import TopicNames
from seriatim.order.stamp import OPAQUE
from seriatim.protocols.with_broker import Delivered, Ordered, Stamped

# How our own clients write headers; everything else is read line by line.
_USUAL = re.compile(
    rb"Nats-Msg-Id: ([^\r\n]+)\r\nSeriatim-Publisher: ([^\r\n]+)\r\n(?:Seriatim-Batch: ([^\r\n]+)\r\n)?\Z"
)


class NatsReader(Struct, frozen=True):
    """See `BulkReader`. Every read has its own connection."""

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
            return _read_catalogue(connection, self.cluster, self.prefix, topics)

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
        is_about_home = topic == BEGUN or is_mark(body)  # that it begins, or that the topic has moved
        return [] if is_about_home else decode_stamps(body, topic, names)

    def order(self, body: bytes) -> Ordered:
        return decode_order(body)


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


class _Page(Answer):
    total: int = 0
    streams: list[StreamAnswer] | None = None


def _read_catalogue(connection: NatsSocket, cluster: str, prefix: str, topics: str = "") -> Catalogue:
    """Look at every stream on the server. `topics`: names that may be in streams of somebody else."""
    names = Names(cluster)
    infos = _all_streams(connection, prefix)
    streams = {found.name: found for info in infos if (found := _ours(info, names)) is not None}
    held = {each.holds for each in streams.values() if each.kind in ("log", "slots")}
    ordered: set[Topic] = set()
    for each in streams.values():
        if each.kind == "stamps":
            ordered |= _stamped_topics(connection, prefix, each.name)
    named = {word for word in patterns(topics) if not set("*?[") & set(word)}
    for topic in sorted((ordered | named) - held):
        streams |= {info.config.name: _stream(info, "log", topic) for info in infos if info.config.subjects == [topic]}
    held |= {each.holds for each in streams.values() if each.kind in ("log", "slots")}
    if topics and not any(is_bucket(topic, BUCKETS_MAX) for topic in held):
        for topic in sorted(named - held):
            problem = f"no stream of cluster {cluster} holds it"
            raise InputError(f"topic {topic}", problem, "publish to it first, or check the name and the cluster")
    return Catalogue(streams.values(), held | ordered)


def _all_streams(connection: NatsSocket, prefix: str) -> list[StreamAnswer]:
    infos: list[StreamAnswer] = []
    while True:
        page = ask_api(connection, "STREAM.LIST", {"offset": len(infos)}, _Page, prefix)
        infos += page.streams or []
        if not page.streams or len(infos) >= page.total:
            return infos


def _ours(info: StreamAnswer, names: Names) -> Stream | None:
    name = info.config.name
    if not name.startswith(f"{names.cluster}-"):
        return None
    rest = name.removeprefix(f"{names.cluster}-")
    kind, _, held = rest.partition("-")
    subject = info.config.subjects[0] if info.config.subjects else ""
    if is_bucket(rest, BUCKETS_MAX):
        return _stream(info, "log", rest)
    if kind == "topic" and names.log_stream(subject) == name:
        return _stream(info, "log", subject)
    if kind == "slots" and subject.startswith(f"{names.prefix}.slots."):
        return _stream(info, "slots", unescape(held))
    if kind == "stamps" and subject.startswith(f"{names.prefix}.stamps."):
        return _stream(info, "stamps", unescape(held))
    if name == names.order_stream and subject == names.order_subject:
        return _stream(info, "order", "")
    if kind == "logs" and subject == names.logs_subject(held):
        return _stream(info, "logs", held)
    return None


def _stream(info: StreamAnswer, kind: Kind, holds: str) -> Stream:
    state = info.state
    return Stream(
        info.config.name,
        kind,
        holds,
        info.created,
        state.first,
        max(state.last_seq + 1, state.first),
        info.config.allow_direct,
        state.bytes / state.messages if state.messages else 0.0,
    )


def _stamped_topics(connection: NatsSocket, prefix: str, stream: str) -> set[Topic]:
    topics: set[Topic] = set()
    offset = 0
    while True:
        question = {"subjects_filter": ">", "offset": offset}
        page = ask_api(connection, f"STREAM.INFO.{stream}", question, SubjectsAnswer, prefix)
        found = page.state.subjects or {}
        topics |= {unescape(subject.rpartition(".")[2]) for subject in found}
        offset += len(found)
        if not found or offset >= page.total:
            return {topic for topic in topics if not topic.startswith(OPAQUE) and topic != BEGUN}
