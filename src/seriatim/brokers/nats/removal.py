"""Removing a topic on a JetStream server: its log, its stamps and its slots, so that nothing is left by halves.

Each step can be repeated, in this order. The log is *sealed*, so that nobody learns that an event is stored which is
then deleted. If it holds more than the home has numbered, the home is told so, and asks again later. Then the stamps
are deleted, except for one message that says how far they went (`Seriatim-Removed`): a log that is created later begins
after that. Log and slots are deleted last. A log with events that is not sealed, although the stamps have ended, is a
new one that was made since an earlier attempt: it stays.

A stream of somebody else is never changed, and never deleted: its owner does that, before or afterwards.
"""

import logging
from typing import TYPE_CHECKING

from seriatim.brokers.nats.api import StreamNotFound, StreamState
from seriatim.brokers.nats.stamps import StampChannel
from seriatim.brokers.nats.watch import Watcher
from seriatim.model import RequestRefused
from seriatim.protocols.with_broker import Discard, Discarded, Grown

if TYPE_CHECKING:
    from seriatim.brokers.nats.jetstream import JetStreamBroker

logger = logging.getLogger(__name__)


async def remove_topic(
    message: Discard, broker: "JetStreamBroker", stamps: StampChannel, watcher: Watcher
) -> Discarded | Grown:
    """Remove the topic. `Grown`: its log is longer than the home knew. ConnectionFailed: ask again."""
    topic, last, api = message.topic, message.last, broker.api
    if broker.names.buckets:
        problem = f"{topic} is a bucket, which many topics share; delete events of one of them with the server's tools"
        raise RequestRefused(problem)
    if broker.mode == "log":
        ended = await stamps.is_ended(topic)
        was_removed = ended or await broker.streams.was_removed(topic)  # perhaps before it moved here
        stream = broker.names.log_stream(topic)
        try:
            config = await api.configuration(stream)
        except StreamNotFound:
            config = None
            if others := await api.streams_with(topic):
                problem = f"its stream {', '.join(others)} was made by somebody else; delete that stream first"
                raise RequestRefused(f"{topic} cannot be removed: {problem}") from None
        state = (await api.info(stream)).state if config is not None else StreamState()
        is_new = config is not None and was_removed and not config.get("sealed") and state.messages > 0
        if config is not None and not is_new:
            if not config.get("sealed"):
                await api.update_stream({**config, "sealed": True})
                state = (await api.info(stream)).state
            if state.last_seq > last:
                return Grown(topic, state.last_seq)
        watcher.forget(topic)
        if not ended:
            await stamps.end(topic, last, message.epoch)
        if not is_new:
            await api.remove_stream(stream)
        broker.streams.forget(topic)
    slots = broker.names.slots_stream(topic)
    await api.remove_stream(slots)
    broker.streams.forget_other(slots)
    logger.info("topic removed: topic=%s last=%s", topic, last)
    return Discarded(topic, last)
