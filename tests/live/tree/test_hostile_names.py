"""Clients that name topics no broker would take: a wildcard would capture what belongs to everybody else."""

from pathlib import Path
from typing import Any

import nats
import pytest

import seriatim
from seriatim.brokers.naming import check_topic
from seriatim.model import InputError
from seriatim.protocols.tree.messages import Subscribe
from seriatim.protocols.with_broker import Watch
from seriatim.server.description import describe_subject
from seriatim.server.status import node_subject
from tests.brokers.conformance import Probe
from tests.brokers.nats.world import jetstream_world, new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import data, take


@pytest.mark.parametrize("buckets", [0, 3])
async def test_a_client_cannot_make_streams_that_capture_others(tmp_path: Path, buckets: int) -> None:
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.a"
    wrong = [
        f"{cluster}.>",
        f"{cluster}.*",
        f"_{cluster}.stamps.root.*",
        "a b",
        "a\r\nPUB b 1\r\nx",
        "$JS.API.x",
        "",
    ]
    async with (
        sequencer(server, cluster, tmp_path, streams={"buckets": buckets}) as running,
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as hostile,
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
    ):
        session: Any = hostile.session
        network = session.connection.network
        for version, name in enumerate(wrong, 1):
            message = Subscribe(version, name, frozenset({name}), frozenset(), False)
            network.switchboard.send(hostile.name, "root", message)
        left = Subscribe(9, topic, frozenset({topic}), frozenset(wrong), False)
        network.switchboard.send(hostile.name, "root", left)
        async with bus.subscribe(topic) as events:
            await bus.publish(topic, b"1")
            assert data(await take(events, 1)) == ["1"]
        (served,) = running.served.values()
        assert served.host is not None
        assert hostile.name not in served.host.machine.state.sequencer.joins
        plain = await nats.connect(server.url, connect_timeout=60)
        streams = [each.config for each in await plain.jsm().streams_info()]
        await plain.close()
        ours = [each for each in streams if (each.name or "").startswith(f"{cluster}-")]
        for each in ours:
            if each.name not in (f"{cluster}-stamps-root", f"{cluster}-names", f"{cluster}-lives"):
                assert not any("*" in subject or ">" in subject for subject in each.subjects or []), each


async def test_a_topic_that_is_no_bucket_has_no_log_where_topics_share_buckets() -> None:
    """Its stream would have the name of another one of the cluster, say that of the stamps."""

    async with jetstream_world(streams=3) as world:
        probe = Probe(await world.connect(), "root")
        probe.send(Watch(frozenset({"stamps-root"})))
        await probe.until(lambda: probe.errors, "a refusal")
        assert "not a bucket" in str(probe.errors[0][1])


async def test_no_topic_is_where_the_cluster_is_asked(tmp_path: Path) -> None:
    """The stream of such a topic would answer instead of the sequencers, and nobody could connect any more."""

    server, cluster = shared_server(), new_cluster()
    names = [f"{cluster}.describe", f"{cluster}.status.root", f"{cluster}.explain.root"]
    async with sequencer(server, cluster, tmp_path):
        for name in names:
            async with seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus:
                await bus.publish(name, b"1")
    for subject in (describe_subject(cluster), node_subject(cluster, "status", "root")):
        with pytest.raises(InputError, match="belong to the broker"):
            check_topic(subject)
