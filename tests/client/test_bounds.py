"""The memory of a subscription is bounded, whichever process is away, and whatever events are not for it."""

from pathlib import Path

import nats
import pytest

import seriatim
from seriatim.client import Limits
from seriatim.client.events import Event
from seriatim.client.inbox import Inbox
from seriatim.model import Gap
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import feed_of, take, until

COUNT = 6_000
LIMITS = Limits(unread_events=500)


@pytest.mark.parametrize("durable", [None, "reader"])
async def test_events_without_stamps_are_not_all_kept_while_the_sequencer_is_away(
    tmp_path: Path, durable: str | None
) -> None:
    """Publishing continues without it. When it is back, everything comes, in order."""

    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    plain = await nats.connect(server.url, connect_timeout=60)
    async with sequencer(server, cluster, tmp_path) as running:
        port = running.served["root"].address
        bus = seriatim.connect(server.url, cluster=cluster, limits=LIMITS, timeout_s=60.0)
        await bus.__aenter__()
        events = bus.subscribe(*topics, durable=durable)
        await events.__aenter__()
        await bus.publish(topics[0], b"first")
        assert [event.data for event in await take(events, 1)] == [b"first"]
    for i in range(COUNT):
        await plain.publish(topics[i % 2], b"%d" % i)
    await plain.flush()
    feed = feed_of(events)
    await until("it reads no more", lambda: len(feed._blocked) == 2)
    assert feed.view.waiting < 500 + 2 * 2 * 256, "a little more than allowed is on its way"
    assert any("not read on" in note for note in events.explain().notes)
    async with sequencer(server, cluster, tmp_path, nodes={"root": {"address": port}}):
        got: list[Event] = []
        async for batch in events.batches():  # one by one, a durable one would write COUNT acknowledgements
            got += batch
            if len(got) == COUNT:
                break
        for place, topic in enumerate(topics):
            numbers = [int(event.data) for event in got if event.topic == topic]
            assert numbers == list(range(place, COUNT, 2))
        assert not feed._blocked
        await events.close()
        await bus.close()
    await plain.close()


def test_notices_that_are_not_for_us_take_no_room() -> None:
    """Names that share a bucket with ours: nobody reads them, so nobody would slow them down."""
    event = Event("t", b"x", None, "id", "p", {}, 7, 0)
    inbox = Inbox(Limits(), show_gaps=False, count=3)
    for _ in range(1_000):
        inbox.put([], 0)
    inbox.put([event], 1)
    for _ in range(1_000):
        inbox.put([], 0)
    inbox.put_gap(Gap("t", 8, 8, "lost"))
    inbox.put([], 0)
    assert len(inbox._parcels) == 5
    assert inbox.take(5) == [event]
    assert inbox.handed == (3 + 1_000 + 1 + 1_000 + 1 + 1, 0)
    assert not inbox and inbox.room.bytes == 0
