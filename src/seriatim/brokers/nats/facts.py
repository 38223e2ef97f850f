"""Which streams of a JetStream account are logs of topics, and the facts about them that commands show."""

from collections.abc import Iterable

from seriatim.brokers.capabilities import LogFacts
from seriatim.brokers.naming import Names, is_bucket
from seriatim.brokers.nats.api import NANOSECONDS, NEVER, StreamAnswer, StreamConfig
from seriatim.model import InputError, Topic
from seriatim.model.topics import check_topic


def logs_among(streams: Iterable[StreamAnswer], names: Names) -> dict[Topic, LogFacts]:
    """The logs of topics, also those in streams of somebody else; with buckets, the buckets."""
    found: dict[Topic, LogFacts] = {}
    for each in streams:
        topic = _bucket_in(each.config, names) if names.buckets else _topic_in(each.config)
        if topic is not None:
            found[topic] = _facts(each, each.config.name == names.log_stream(topic))
    return found


def _topic_in(config: StreamConfig) -> Topic | None:
    """The one subject that the stream captures, if a topic may be called so."""
    if len(config.subjects) != 1 or config.mirror:
        return None
    try:
        check_topic(config.subjects[0])
    except InputError:
        return None
    return config.subjects[0]


def _bucket_in(config: StreamConfig, names: Names) -> Topic | None:
    topic = config.name.removeprefix(f"{names.cluster}-")
    return topic if topic != config.name and is_bucket(topic, names.buckets) else None


def _facts(stream: StreamAnswer, is_ours: bool) -> LogFacts:
    state, config = stream.state, stream.config
    limits = [
        f"{config.max_age / NANOSECONDS:g} s" if config.max_age > 0 else "",
        f"{config.max_bytes:,} bytes" if config.max_bytes > 0 else "",
        f"{config.max_msgs:,} messages" if config.max_msgs > 0 else "",
    ]
    return LogFacts(
        stream=config.name,
        first=state.first,
        last=state.last_seq,
        last_at=state.last_ts if state.last_ts != NEVER else "",
        events=state.messages,
        bytes=state.bytes,
        limits=", ".join(filter(None, limits)),
        is_ours=is_ours,
    )
