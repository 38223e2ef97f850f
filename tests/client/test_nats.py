"""The whole thing on a real NATS server: sequencer, broker, clients; also clients that know nothing of Seriatim."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

import seriatim
from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.nats.server import NatsServer
from seriatim.filters import headers_of
from seriatim.live.server import SequencerServer
from seriatim.model import Behind, ConnectionFailed, Fenced, InputError, RequestRefused
from seriatim.server.config import parse_config
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.world import data, take, until


@asynccontextmanager
async def sequencer(
    server: NatsServer, cluster: str, folder: Path, heals: bool = False, **more: Any
) -> AsyncIterator[SequencerServer]:
    """One node for everything, on this server."""
    nodes = {"root": {"address": "127.0.0.1:0"}}
    config = parse_config(
        {"cluster": cluster, "broker": server.url, "nodes": nodes, "default_home": "root", **more}, folder
    )
    running = SequencerServer(config, heals=heals)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.mark.parametrize(("mode", "buckets"), [("log", 0), ("log", 3), ("ticket", 0), ("ticket", 3)])
async def test_the_same_order_for_everybody(tmp_path: Path, mode: str, buckets: int) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.{each}" for each in ("orders", "payments", "stock")]
    async with (
        sequencer(server, cluster, tmp_path, mode=mode, streams={"buckets": buckets}),
        seriatim.connect(server.url, cluster=cluster, publication_log=tmp_path, timeout_s=60.0) as one,
        seriatim.connect(server.url, cluster=cluster, publication_log=tmp_path, timeout_s=60.0) as two,
        one.subscribe(*topics, log=tmp_path) as first,
        two.subscribe(*topics, log=tmp_path) as second,
    ):
        for i in range(20):
            await asyncio.gather(
                one.publish_many(topics[i % 3], [b"one", b"and one"]), two.publish(topics[i % 2], b"two")
            )
        one_saw, two_saw = await take(first, 60), await take(second, 60)
        assert [event.id for event in one_saw] == [event.id for event in two_saw]
        await second.remove(topics[0])
        await two.publish_many([(topic, b"last") for topic in topics])
        assert data(await take(first, 3)) == ["last"] * 3
        assert {event.topic for event in await take(second, 2)} == set(topics[1:])
    report = audit(read_history(tmp_path))
    for name in ("fifo", "tno", "integrity", "completeness"):
        assert report.verdicts[name].answer == "valid", report.verdicts[name].reason


@pytest.mark.parametrize("buckets", [0, 3])
async def test_filters_leave_out_what_does_not_match_and_nothing_else(tmp_path: Path, buckets: int) -> None:
    """Also what plain clients publish, with headers of their own."""

    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.{each}" for each in ("orders", "payments")]
    plain = await nats.connect(server.url)
    async with (
        sequencer(server, cluster, tmp_path, streams={"buckets": buckets}),
        seriatim.connect(server.url, cluster=cluster, publication_log=tmp_path, timeout_s=60.0) as bus,
        bus.subscribe(*topics, log=tmp_path, where='price > 100 and region = "EU"') as dear,
        bus.subscribe(*topics, log=tmp_path) as everything,
    ):
        for price in range(80, 120):
            headers = headers_of({"price": price, "region": "EU" if price % 2 else "US"})
            await bus.publish(topics[price % 2], str(price).encode(), headers=headers)
        headers = {"Attribute-price": "300", "Attribute-region": '"EU"'}
        await plain.jetstream().publish(topics[0], b"300", headers=headers)
        wanted = [*map(str, range(101, 120, 2)), "300"]
        all_of_them = await take(everything, 41)
        matching = [event.id for event in all_of_them if event.data.decode() in wanted]
        assert [event.id for event in await take(dear, len(wanted))] == matching
    await plain.close()
    report = audit(read_history(tmp_path))
    assert report.verdicts["tno"].answer == "valid"
    assert "gap" not in report.counts


async def test_plain_clients_publish_and_read(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.orders"
    plain = await nats.connect(server.url, connect_timeout=60)
    inbox = await plain.subscribe(topic)
    await plain.flush()
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(topic) as events,
        bus.subscribe(topic, ordered=False) as unordered,
    ):
        await bus.publish(topic, b"from us", headers={"customer": "7"})
        message = await inbox.next_msg(timeout=60)
        assert message.data == b"from us"
        assert message.headers is not None and message.headers["customer"] == "7"
        await plain.jetstream().publish(topic, b"from them", headers={"Nats-Msg-Id": "their id", "colour": "red"})
        await plain.publish(topic, b"without an id")
        got = await take(events, 3)
        assert data(got) == ["from us", "from them", "without an id"]
        assert (got[1].id, got[1].publisher) == ("their id", "")
        assert got[1].headers is not None and got[1].headers["colour"] == "red"
        assert data(await take(unordered, 3)) == data(got)
        # A header that promises a pack, and no pack behind it: a gap, and everything goes on.
        await plain.jetstream().publish(topic, b"nonsense", headers={"Seriatim-Batch": "1"})
        await bus.publish(topic, b"the end")
        assert data(await take(events, 1)) == ["the end"]
        assert [(gap.first, gap.last) for gap in events.gaps] == [(4, 4)]
    await plain.close()


async def test_a_second_name_of_a_bucket_is_kept_before_it_counts_as_held(tmp_path: Path) -> None:
    """A plain client does not learn that nobody keeps its events: so `add` and `subscribe` return only when they are
    kept."""

    server, cluster = shared_server(), new_cluster()
    plain = await nats.connect(server.url, connect_timeout=60)
    async with (
        sequencer(server, cluster, tmp_path, streams={"buckets": 1}),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(f"{cluster}.first") as events,
    ):
        for i in range(10):
            await events.add(f"{cluster}.added{i}")
            await plain.publish(f"{cluster}.added{i}", b"added %d" % i)
            async with bus.subscribe(f"{cluster}.other{i}") as others:
                await plain.publish(f"{cluster}.other{i}", b"other %d" % i)
                assert data(await take(others, 1)) == [f"other {i}"]
        assert data(await take(events, 10)) == [f"added {i}" for i in range(10)]
    await plain.close()


async def test_the_server_is_killed_while_events_flow(tmp_path: Path) -> None:
    async with NatsServer() as server, sequencer(server, "killed", tmp_path):
        journals = tmp_path / "journals"
        async with (
            seriatim.connect(server.url, cluster="killed", timeout_s=60.0, journals=journals) as bus,
            bus.subscribe("killed.a", "killed.b", durable="reader") as events,
        ):
            published = await bus.publish_many([("killed.a", b"1"), ("killed.b", b"2")] * 10)
            server.kill()
            futures = [bus.publish_nowait(f"killed.{'ab'[i % 2]}", b"%d" % i) for i in range(20)]
            await server.restart()
            published += await asyncio.gather(*futures)
            got = await take(events, 40)
            assert sorted(event.id for event in got) == sorted(receipt.id for receipt in published)
            assert not any(event.replayed for event in got)


async def test_a_durable_subscription_remembers_on_the_broker(tmp_path: Path) -> None:
    """No folder is needed: the journal is a stream, so another machine can go on, and the first one is fenced."""

    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as here,
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as there,
    ):
        async with here.subscribe(*topics, durable="billing.eu") as events:
            await bus.publish_many([(topic, b"1") for topic in topics])
            assert data(await take(events, 2)) == ["1", "1"]
            await events.acknowledge()
            async with there.subscribe(*topics, durable="billing.eu") as successor:
                await bus.publish(topics[0], b"2")
                assert data(await take(successor, 1)) == ["2"]
                with pytest.raises(Fenced):
                    await events.next(60.0)
                await successor.acknowledge()
        async with here.subscribe(*topics, durable="billing.eu") as events:
            await bus.publish(topics[1], b"3")
            assert data(await take(events, 1)) == ["3"]


@pytest.mark.parametrize("policy", [seriatim.GapPolicy.skip(after_s=0.2), seriatim.GapPolicy.wait()])
async def test_nobody_waits_for_ever_for_stamps_that_were_dropped_before_their_events(
    tmp_path: Path, policy: seriatim.GapPolicy
) -> None:
    """`max_age_s` covers stamps, too, and a stream of somebody else may keep its events for longer."""

    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}-own"
    client = await nats.connect(server.url)
    await client.jetstream().add_stream(name=topic, subjects=[topic])
    async with (
        sequencer(server, cluster, tmp_path, times={"patience_ms": 200}),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
    ):
        async with bus.subscribe(topic, durable="d"):
            pass
        async with bus.subscribe(topic) as witness:
            for i in range(3):
                await bus.publish(topic, b"%d" % i)
            await take(witness, 3)
        await client.jetstream().purge_stream(f"{cluster}-stamps-root")  # as if they had become too old
        async with bus.subscribe(topic, durable="d", gaps=policy) as events:
            if policy.kind == "wait":
                await until("it is told", lambda: f"{topic} 1 is lost" in str(events.explain()))
            else:
                await until("the gap is told", lambda: bool(events.gaps))
                assert [(gap.first, gap.last) for gap in events.gaps] == [(1, 3)]
                await bus.publish(topic, b"next")
                assert data(await take(events, 1)) == ["next"]
    await client.jetstream().delete_stream(topic)
    await client.close()


async def test_a_topic_whose_stream_is_deleted_and_made_anew_ends_with_an_error(tmp_path: Path) -> None:
    """Its first events would have numbers that were seen already, and be missed without a word."""

    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.orders"
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0, confirm="stored") as bus,
        bus.subscribe(topic) as events,
    ):
        for i in range(5):
            await bus.publish(topic, b"old %d" % i)
        assert len(await take(events, 5)) == 5
        client = await nats.connect(server.url)
        await client.jetstream().delete_stream(f"{cluster}-topic-{topic.replace('.', '+')}")
        await client.close()
        for i in range(12):
            await bus.publish(topic, b"new %d" % i)
        with pytest.raises(RequestRefused, match="deleted and created again"):
            await events.next(timeout_s=60.0)


async def test_a_node_that_has_lost_its_journal_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.orders"

    def warnings() -> list[str]:
        said = [record.message for record in caplog.records if "without its journal" in record.message]
        caplog.clear()
        return said

    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(topic) as events,
    ):
        await bus.publish(topic, b"1")
        await take(events, 1)
    assert warnings() == [], "a new node"
    async with sequencer(server, cluster, tmp_path):
        assert warnings() == [], "its journal is there"
    shutil.rmtree(tmp_path / f"journal-{cluster}.root")
    with pytest.raises(Behind, match=r"node root has lost its journal: the journal is empty, and .* --heal"):
        async with sequencer(server, cluster, tmp_path):
            pass
    shutil.rmtree(tmp_path / f"journal-{cluster}.root")
    async with sequencer(server, cluster, tmp_path, heals=True) as running:
        assert len(warnings()) == 1
        epoch = running.status().nodes[0].epoch
        assert epoch > 100, "who has heard of earlier epochs would not listen"
    async with sequencer(server, cluster, tmp_path) as running:
        assert warnings() == []
        assert running.status().nodes[0].epoch == epoch + 1


async def test_nobody_is_there() -> None:
    server = shared_server()
    expected = "no sequencer answers for cluster 'nobody' on nats://127.0.0.1"
    with pytest.raises(ConnectionFailed, match=expected):
        async with seriatim.connect(server.url, cluster="nobody", timeout_s=0.2):
            pass
    with pytest.raises(ConnectionFailed, match="127"):
        async with seriatim.connect("nats://127.0.0.1:9", timeout_s=0.5):
            pass


async def test_names_that_the_broker_does_not_take(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
    ):
        for wrong in ("a b", "a.*", "a..b", "$JS"):
            with pytest.raises(InputError):
                await bus.publish(wrong, b"x")
            with pytest.raises(InputError):
                bus.subscribe(wrong)
