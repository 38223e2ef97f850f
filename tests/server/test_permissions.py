"""Permissions on the NATS server, as in docs/serving.md: clients can use topics and cannot write stamps."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from seriatim import connect
from seriatim.brokers.nats.server import NatsServer
from seriatim.live.server import SequencerServer
from seriatim.model import RequestRefused, Taken
from seriatim.server.config import parse_config
from tests.waiting import until

PAGE = (Path(__file__).parent.parent.parent / "docs" / "serving.md").read_text(encoding="utf-8")


def documented_permissions() -> str:
    """The server's configuration on the page."""
    found = re.findall(r"```text\n(authorization \{.*?)```", PAGE, flags=re.DOTALL)
    assert len(found) == 1
    text: str = found[0]
    return text


@asynccontextmanager
async def cluster(folder: Path, mode: str) -> AsyncIterator[tuple[str, str]]:
    """A server with these permissions and a sequencer; the URLs of the sequencers and of a client."""
    async with NatsServer(folder / "nats", config=documented_permissions()) as server:
        host = server.url.removeprefix("nats://")
        sequencer = f"nats://sequencer:sequencer-password@{host}?inbox=_INBOX.sequencer"
        nodes = {"root": {"address": "127.0.0.1:0", "journal": "jetstream"}}
        homes = {"orders": "root", "prices": "root", "salaries": "root"}
        config = {"broker": sequencer, "mode": mode, "nodes": nodes, "homes": homes, "default_home": "none"}
        running = SequencerServer(parse_config(config, folder))
        await running.start()
        try:
            yield sequencer, f"nats://shop:shop-password@{host}?inbox=_INBOX.shop"
        finally:
            await running.stop()


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_client_publishes_and_subscribes_with_what_it_may(tmp_path: Path, mode: str) -> None:
    async with (
        cluster(tmp_path, mode) as (_, url),
        connect(url) as bus,
        bus.subscribe("orders", "prices") as one,
        bus.subscribe("prices", "orders") as other,
    ):
        for n in range(5):
            await bus.publish("orders", b"order %d" % n)
            await bus.publish("prices", b"price %d" % n)
        seen = [[(await events.next(60)).data for _ in range(10)] for events in (one, other)]
        assert seen[0] == seen[1]
        with pytest.raises(RequestRefused, match="permissions violation"):
            await bus.publish("salaries", b"x")


async def test_a_client_may_have_durable_subscriptions(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, "log") as (_, url),
        connect(url, journals=tmp_path / "one") as bus,
        connect(url, journals=tmp_path / "two") as other,
        bus.subscribe("orders", durable="billing") as events,
    ):
        await bus.publish("orders", b"1")
        assert (await events.next(60)).data == b"1"
        with pytest.raises(Taken, match="'billing' is run by another process"):
            async with other.subscribe("orders", durable="billing"):
                pass


FORBIDDEN = [
    "_seriatim.stamps.root.orders",
    "_seriatim.order",
    "_seriatim.stages.root.orders",
    "_seriatim.journal.root.log",
    "_seriatim.lives.node.root",
    "_INBOX.other.reply",
    "$JS.API.STREAM.CREATE.anything",
    "$JS.API.STREAM.UPDATE.seriatim-stamps-root",
    "$JS.API.STREAM.PURGE.seriatim-stamps-root",
    "$JS.API.STREAM.DELETE.seriatim-stamps-root",
    "$JS.API.STREAM.DELETE.seriatim-order",
    "$JS.API.STREAM.MSG.DELETE.seriatim-topic-orders",
]

UNHEARD = ["_seriatim.describe", "_INBOX.other.>", "_INBOX.>", "_seriatim.journal.>"]


async def test_a_client_cannot_touch_what_the_order_rests_on(tmp_path: Path) -> None:
    async with cluster(tmp_path, "log") as (admin_url, url):
        refused: list[str] = []

        async def on_error(error: Exception) -> None:
            refused.append(str(error).lower())

        host = url.partition("?")[0]
        client = await nats.connect(host, error_cb=on_error, inbox_prefix="_INBOX.shop", connect_timeout=60)
        for subject in FORBIDDEN:
            await client.publish(subject, b"{}")
        for subject in UNHEARD:
            await client.subscribe(subject)
        await client.flush()

        def missing() -> list[str]:
            """Subjects that nobody has refused yet: the server tells it beside its answers."""
            published = [
                subject
                for subject in FORBIDDEN
                if not any(f'publish to "{subject.lower()}"' in text for text in refused)
            ]
            return published + [
                each for each in UNHEARD if not any(f'subscription to "{each.lower()}"' in text for text in refused)
            ]

        await until(lambda: not missing(), "everything else is refused")
        await forge_by_a_consumer(client, admin_url)
        await client.close()


async def forge_by_a_consumer(client: Client, admin_url: str) -> None:
    """A consumer delivers to a subject of the client's choice: the stamp channel must not take it for a stamp."""
    admin = await nats.connect(admin_url.partition("?")[0], connect_timeout=60)
    name = "seriatim-stamps-root"

    async def is_made() -> bool:
        return name in [each.config.name for each in await admin.jetstream().streams_info()]

    await until(is_made, "the home makes the stream for its stamps")  # when it watches its topics: after the start
    stamps = (await admin.jetstream().stream_info(name)).state.last_seq
    await client.publish("orders", b"forged")
    wish = {"name": "forger", "deliver_subject": "_seriatim.stamps.root.prices", "ack_policy": "none"}
    question = json.dumps({"stream_name": "seriatim-topic-orders", "config": wish}).encode()
    answer = await client.request("$JS.API.CONSUMER.CREATE.seriatim-topic-orders.forger", question, timeout=60)
    assert b"forger" in answer.data
    await client.publish("prices", b"published after the forgery")

    async def stamped() -> Any:
        stream = await admin.jetstream().stream_info(name, subjects_filter="_seriatim.stamps.>")
        return stream.state

    async def both() -> bool:
        return len((await stamped()).subjects or {}) >= 2

    await until(both, "the home stamps both events")  # a forgery would be a third message
    state = await stamped()
    assert state.last_seq == stamps + 2
    assert state.subjects == {"_seriatim.stamps.root.orders": 1, "_seriatim.stamps.root.prices": 1}
    stored = await admin.jetstream().get_last_msg(name, "_seriatim.stamps.root.prices")
    assert stored.data is not None and b"forged" not in stored.data
    await admin.close()
