"""A stream that was deleted on purpose is accepted, on a real NATS server; one that is still there is not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from seriatim import Bus
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli.accept import accept
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.client.connect import connect
from seriatim.client.options import GapPolicy
from seriatim.live.server import SequencerServer
from seriatim.model import RequestRefused
from seriatim.protocols.tree.messages import AcceptLog
from seriatim.server.acceptance import Acceptance
from tests.brokers.nats.servers import running_server
from tests.live.test_health import TREE, configured, found, healthy, plain, serving
from tests.waiting import until


async def accepted(config: Any, topic: str, drop: bool = False) -> Acceptance:
    async with find_cluster(config.broker, config.cluster, 60.0) as cluster:
        return await accept(cluster, topic, drop, 60.0)


async def broken(server: SequencerServer, words: str) -> None:
    await until(lambda: words in str(found(server, "log", "orders")), f"a problem: {words}")


@pytest.mark.parametrize("buckets", [0, 4])
async def test_a_topic_goes_on_when_the_loss_of_its_stream_is_accepted(tmp_path: Path, buckets: int) -> None:
    """Subscribers, durable or not, get a gap; order across topics continues; a restart keeps it."""
    streams = {"buckets": buckets}
    async with running_server(tmp_path / "nats") as nats_server:
        homes = HOMES if not buckets else {}
        config = configured(tmp_path, nats_server.url, TREE, homes=homes, streams=streams)
        url, cluster = nats_server.url, config.cluster
        seen: list[Any] = []
        async with serving(config, None) as server, plain(url) as (_, jetstream):
            async with connect(url, cluster=cluster, journals=tmp_path) as bus:
                async with bus.subscribe("orders", "prices", durable="billing", gaps=GapPolicy.skip()) as events:
                    await bus.publish("orders", b"order 1")
                    await bus.publish("prices", b"price 1")
                    seen += [(await events.next(60)).data for _ in range(2)]
                await bus.publish("orders", b"order 2")  # nobody will ever see it
            topic = "orders" if not buckets else server.broker.ordered_topic("orders")
            refused = await accepted(config, "orders")
            assert "its log is the one that it always was" in refused.refused
            stream = await jetstream.find_stream_name_by_subject("orders")
            await jetstream.delete_stream(stream)
            await until(lambda: found(server, "log", topic), "the loss to be seen")
            answer = await accepted(config, "orders")
            assert (answer.refused, answer.is_done, answer.dropped) == ("", True, 0)
            await healthy(server)
            async with (
                connect(url, cluster=cluster, journals=tmp_path) as bus,
                bus.subscribe("orders", "prices", durable="billing", gaps=GapPolicy.skip()) as events,
            ):
                await bus.publish("prices", b"price 2")
                await until(lambda events=events: events.gaps, "the gap")
                await until(lambda bus=bus: not bus.explain().held, "the topic to begin again")
                await bus.publish("orders", b"order 3")
                told = [each async for each in _until_data(events, b"order 3")]
                gaps = list(events.gaps)
            assert [gap.topic for gap in gaps] == [topic], "it was told"
            assert b"order 2" not in [each.data for each in told]
            assert "another log" not in str(await accepted(config, "orders")), "it is done"
        async with serving(config, None) as server:
            await healthy(server)
            async with connect(url, cluster=cluster) as bus, bus.subscribe("orders", "prices") as events:
                await bus.publish("orders", b"order 4")
                assert (await events.next(60)).data == b"order 4"
            refused = await accepted(config, "orders")
            assert "its log is the one that it always was" in refused.refused


HOMES = {"orders": "eu", "prices": "root"}


async def _until_data(events: Any, last: bytes) -> Any:
    while True:
        each = await events.next(60)
        yield each
        if each.data == last:
            return


async def test_events_of_the_new_stream_are_dropped_only_if_that_is_wanted(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as nats_server:
        config = configured(tmp_path, nats_server.url, {"root": {}}, homes={"orders": "root"})
        url, cluster = nats_server.url, config.cluster
        async with serving(config) as server, plain(url) as (_, jetstream):
            async with connect(url, cluster=cluster) as bus, bus.subscribe("orders") as events:
                for n in range(3):
                    await bus.publish("orders", b"order %d" % n)
                    await events.next(60)
            stream = await jetstream.find_stream_name_by_subject("orders")
            await jetstream.delete_stream(stream)
            await jetstream.add_stream(name=stream, subjects=["orders"], allow_direct=True, max_msgs=1_000)
            for n in range(5):
                await jetstream.publish("orders", b"new %d" % n)
            await broken(server, "was created")
            await until(lambda: "5 events" in str(_asked(server)), "the events to be counted")
            async with connect(url, cluster=cluster) as bus:
                with pytest.raises(RequestRefused, match="created again; restore it, accept that it is another one"):
                    await bus.publish("orders", b"order 3")
            await until(lambda: "holds 6 events that were never numbered" in str(_asked(server)), "what was stored now")
            assert (await accepted(config, "orders")).refused
            answer = await accepted(config, "orders", drop=True)
            assert (answer.is_done, answer.first, answer.dropped) == (True, 5, 4), answer  # of six; the others are new
            await healthy(server)
            config_now = (await jetstream.stream_info(stream)).config
            assert config_now.max_msgs == 1_000, "somebody else's settings are kept"
            async with connect(url, cluster=cluster) as bus, bus.subscribe("orders") as events:
                await bus.publish("orders", b"order 4")
                assert (await events.next(60)).data == b"order 4"


async def test_what_is_stored_after_it_was_accepted_without_dropping_is_not_dropped(tmp_path: Path) -> None:
    """It was empty when the operator accepted it. A moment later it was not; the broker has the last look."""
    async with running_server(tmp_path / "nats") as nats_server:
        config = configured(tmp_path, nats_server.url, {"root": {}}, homes={"orders": "root"})
        async with serving(config) as server, plain(nats_server.url) as (_, jetstream):
            async with connect(nats_server.url, cluster=config.cluster) as bus:
                await bus.publish("orders", b"1")
                await bus.publish("orders", b"2")
            stream = await jetstream.find_stream_name_by_subject("orders")
            await jetstream.delete_stream(stream)
            await jetstream.add_stream(name=stream, subjects=["orders"])
            await jetstream.publish("orders", b"new")
            await broken(server, "was deleted and created again")
            host: Any = server.served["root"].host
            host.driver.deliver("root", AcceptLog("orders", drop=False))
            await broken(server, "`seriatim accept orders --drop-events` drops them, and the topic continues")
            assert "holds 1 events" in (await accepted(config, "orders")).refused
            assert (await jetstream.stream_info(stream)).state.messages == 1, "nothing was dropped"
            answer = await accepted(config, "orders", drop=True)
            assert (answer.is_done, answer.first, answer.dropped) == (True, 4, 1), answer
            await healthy(server)


async def test_a_log_is_known_where_its_topic_has_moved_to(tmp_path: Path) -> None:
    """Its new home starts again before it has stamped anything there. It knows the log, and so the next one says which
    one it continues: the former home, to which the topic comes back, takes it, and so does a durable subscriber."""
    async with running_server(tmp_path / "nats") as nats_server:
        config = configured(tmp_path, nats_server.url, TREE, homes=HOMES)
        url, cluster = nats_server.url, config.cluster

        async def move(to: str) -> None:
            async with find_cluster(url, cluster, 60.0) as found:
                await Mover(found).move("orders", to, 60.0)

        def subscribed(bus: Bus) -> Any:
            return bus.subscribe("orders", durable="billing", gaps=GapPolicy.skip())

        async with serving(config, None):
            async with connect(url, cluster=cluster, journals=tmp_path) as bus, subscribed(bus) as events:
                for n in range(3):
                    await bus.publish("orders", b"order %d" % n)
                    await events.next(60)
            await move("root")
        async with plain(url) as (_, jetstream):
            stream = await jetstream.find_stream_name_by_subject("orders")
            await jetstream.delete_stream(stream)
            await jetstream.add_stream(name=stream, subjects=["orders"], allow_direct=True)
            for n in range(5):
                await jetstream.publish("orders", b"new %d" % n)
        async with serving(config, None) as server:
            await broken(server, "was created")
            answer = await accepted(config, "orders", drop=True)
            assert (answer.is_done, answer.first) == (True, 5), answer
            await healthy(server)
            await move("eu")
            async with connect(url, cluster=cluster, journals=tmp_path) as bus, subscribed(bus) as events:
                await bus.publish("orders", b"order 4")
                await until(lambda: events.gaps, "the gap")
                await until(lambda: not bus.explain().held, "the topic to begin again")
                await bus.publish("orders", b"order 5")
                assert [each async for each in _until_data(events, b"order 5")]
            await healthy(server)


def _asked(server: SequencerServer) -> Acceptance:
    from seriatim.live.tree.acceptance import answer_acceptance

    host: Any = server.served["root"].host
    return msgspec.json.decode(answer_acceptance(host, b'{"topic":"orders"}'), type=Acceptance)


async def test_what_has_no_log_is_refused(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats") as nats_server:
        config = configured(tmp_path, nats_server.url, {"root": {}}, mode="ticket", homes={"orders": "root"})
        async with serving(config):
            assert "in ticket mode" in (await accepted(config, "orders")).refused
