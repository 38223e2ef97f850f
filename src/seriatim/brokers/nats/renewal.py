"""Accepting a log that was deleted and created again: it continues where the old one ended, and says which one it
continues.

The numbers of the new stream are moved first, then it is marked. In between it is refused as before. Each step may be
repeated: nothing behind `first` is ever removed.
"""

import logging
from collections.abc import Iterable

from seriatim.brokers.capabilities import AnotherLog
from seriatim.brokers.nats.api import StreamNotFound
from seriatim.brokers.nats.identity import continued, continuing
from seriatim.brokers.nats.streams import Streams
from seriatim.protocols.with_broker import Renew, Renewed

logger = logging.getLogger(__name__)


async def renew(message: Renew, streams: Streams, stream: str, known: Iterable[str]) -> Renewed:
    """Let the log of a topic continue at `message.first`. `known`: when its earlier streams were created.

    AnotherLog: it holds events that may not be dropped.
    """
    api, first, before = streams.api, message.first, [each for each in known if each]
    try:
        answer = await api.info(stream)
    except StreamNotFound:
        streams.forget(message.topic)
        await streams.create_log(message.topic, first, continuing(None, before))
        return Renewed(message.topic, first)
    dropped = 0
    if answer.state.first < first:
        dropped = max(0, answer.state.messages - max(0, answer.state.last_seq - first + 1))
        if dropped and not message.drop:
            problem = f"the log of {message.topic} (stream {stream}) holds {dropped:,} events that were never numbered"
            fix = f"`seriatim accept {message.topic} --drop-events` drops them, and the topic continues"
            raise AnotherLog(f"{problem}, and it was accepted when it held none; {fix}", dropped)
        await api.purge_stream(stream, first)
    if missing := [each for each in before if each != answer.created and each not in continued(answer)]:
        config = await api.configuration(stream)
        await api.update_stream({**config, "metadata": continuing(config.get("metadata"), missing)})
    text = "another log is accepted: topic=%s stream=%s goes_on_at=%s dropped=%s"
    logger.warning(text, message.topic, stream, first, dropped)
    return Renewed(message.topic, first, dropped)
