"""Which streams of a cluster are on a JetStream server, found on the server alone: no sequencer need be running.

Names say what a stream is (naming.py). A topic may also live in somebody else's stream, under any name; then the stamp
channel knows the topic, because it was ordered, or the reader names it.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from seriatim.brokers.naming import Names, is_bucket, unescape
from seriatim.brokers.nats_api import Problem, StreamAnswer
from seriatim.brokers.nats_ranges import ask_api
from seriatim.brokers.nats_socket import NatsSocket
from seriatim.brokers.urls import NatsPlace
from seriatim.model import InputError, Topic
from seriatim.order import TopicNames
from seriatim.order.stamp import OPAQUE

BUCKETS_ANY = 4_096  # the most there can be: whether a name is a bucket's does not depend on how many there are

Kind: TypeAlias = Literal["log", "slots", "stamps", "logs"]


class Stream(Struct, frozen=True):
    """One stream of a cluster. `holds`: of log and slots the ordered topic, of stamps the node, of logs the table."""

    name: str
    kind: Kind
    holds: str
    created: str
    first: int
    next: int  # the position that the next message will have
    direct: bool
    mean_bytes: float  # of a message, as the server counts


class _Page(Struct):
    error: Problem | None = None
    total: int = 0
    streams: list[StreamAnswer] | None = None


class _SubjectsState(Struct):
    subjects: dict[str, int] | None = None


class _SubjectsPage(Struct):
    error: Problem | None = None
    total: int = 0
    state: _SubjectsState = field(default_factory=_SubjectsState)


class Catalogue:
    """The streams of one cluster, as they were when it was made."""

    def __init__(self, streams: Iterable[Stream], topics: Iterable[Topic]) -> None:
        self.streams = sorted(streams, key=lambda each: (each.kind, each.name))
        self.topics = sorted(set(topics))  # every topic that a stamp may name, as far as the server knows

    def of(self, kind: Kind, topics: str = "") -> list[Stream]:
        """The streams of a kind; of logs and slots those that hold a topic of the list or pattern."""
        found = [each for each in self.streams if each.kind == kind]
        wanted = patterns(topics)
        if not wanted or kind not in ("log", "slots"):
            return found
        return [each for each in found if is_bucket(each.holds, BUCKETS_ANY) or matches(each.holds, wanted)]

    def topic_names(self) -> TopicNames:
        """For reading stamps."""
        names = TopicNames()
        names.know(self.topics)
        return names


def patterns(topics: str) -> list[str]:
    """Names and patterns (`*` and `?`) separated by commas or blanks."""
    return [word for word in re.split(r"[,\s]+", topics) if word]


def matches(topic: Topic, wanted: Iterable[str]) -> bool:
    """Whether a topic is one of those."""
    return any(topic == each or fnmatchcase(topic, each) for each in wanted)


def connect(place: NatsPlace) -> NatsSocket:
    """A connection of its own for one reader."""
    return NatsSocket(place.servers, place.credentials, timeout_s=place.timeout_s)


def api_prefix(place: NatsPlace) -> str:
    """What questions to JetStream begin with."""
    return f"$JS.{place.domain}.API" if place.domain else "$JS.API"


def read_catalogue(connection: NatsSocket, place: NatsPlace, topics: str = "") -> Catalogue:
    """Look at every stream on the server. `topics`: names that may be in streams of somebody else."""
    prefix = api_prefix(place)
    names = Names(place.cluster)
    infos = _all_streams(connection, prefix)
    streams: dict[str, Stream] = {}
    for info in infos:
        if (found := _ours(info, names)) is not None:
            streams[found.name] = found
    held = {each.holds for each in streams.values() if each.kind in ("log", "slots")}
    ordered: set[Topic] = set()
    for each in streams.values():
        if each.kind == "stamps":
            ordered |= _stamped_topics(connection, prefix, each.name)
    named = {word for word in patterns(topics) if not set("*?[") & set(word)}
    for topic in sorted((ordered | named) - held):
        streams |= {each.name: each for each in _somebody_elses(infos, topic)}
    held |= {each.holds for each in streams.values() if each.kind in ("log", "slots")}
    if topics and not any(is_bucket(topic, BUCKETS_ANY) for topic in held):
        for topic in sorted(named - held):
            problem = f"no stream of cluster {place.cluster} holds it"
            raise InputError(f"topic {topic}", problem, "publish to it first, or check the name and the cluster")
    return Catalogue(streams.values(), held | ordered)


def _all_streams(connection: NatsSocket, prefix: str) -> list[StreamAnswer]:
    infos: list[StreamAnswer] = []
    while True:
        page: _Page = ask_api(connection, "STREAM.LIST", {"offset": len(infos)}, _Page, prefix)
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
    if is_bucket(rest, BUCKETS_ANY):
        return _stream(info, "log", rest)
    if kind == "topic" and names.log_stream(subject) == name:
        return _stream(info, "log", subject)
    if kind == "slots" and subject.startswith(f"{names.prefix}.slots."):
        return _stream(info, "slots", unescape(held))
    if kind == "stamps" and subject.startswith(f"{names.prefix}.stamps."):
        return _stream(info, "stamps", unescape(held))
    if kind == "logs" and subject == names.logs_subject(held):
        return _stream(info, "logs", held)
    return None


def _somebody_elses(infos: Iterable[StreamAnswer], topic: Topic) -> list[Stream]:
    return [_stream(info, "log", topic) for info in infos if info.config.subjects == [topic]]


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
        question: dict[str, Any] = {"subjects_filter": ">", "offset": offset}
        page: _SubjectsPage = ask_api(connection, f"STREAM.INFO.{stream}", question, _SubjectsPage, prefix)
        found = page.state.subjects or {}
        topics |= {unescape(subject.rpartition(".")[2]) for subject in found}
        offset += len(found)
        if not found or offset >= page.total:
            return {topic for topic in topics if not topic.startswith(OPAQUE)}
