"""A server on real NATS, clients over TCP: every kind of broker and mode that a cluster's file can ask for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim import connect
from seriatim.brokers.nats.server import NatsServer
from seriatim.live.server import SequencerServer
from seriatim.server.config import parse_config
from tests.waiting import until

WAIT_S = 60.0
TREE: dict[str, dict[str, Any]] = {"root": {}, "eu": {"parent": "root"}, "us": {"parent": "root"}}


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


def server_of(folder: Path, url: str, nodes: dict[str, dict[str, Any]], **more: Any) -> SequencerServer:
    placed = {name: {"address": "127.0.0.1:0", **node} for name, node in nodes.items()}
    return SequencerServer(parse_config({"broker": url, "nodes": placed, **more}, folder))


@pytest.mark.parametrize(
    ("cluster", "scheme", "more"),
    [
        ("log", "nats", {}),
        ("buckets", "nats", {"streams": {"buckets": 8, "storage": "memory", "max_age_s": 600}}),
        ("ticket", "nats", {"mode": "ticket", "limits": {"jump_max": 1_000_000}}),
        ("causal", "nats", {"mode": "ticket", "causal": True}),
        ("core", "nats+core", {"mode": "ticket"}),
        ("corebuckets", "nats+core", {"mode": "ticket", "streams": {"buckets": 8}}),
    ],
)
async def test_two_subscribers_see_one_order(
    nats: NatsServer, tmp_path: Path, cluster: str, scheme: str, more: dict[str, Any]
) -> None:
    url = nats.url.replace("nats", scheme, 1)
    one_topic, other_topic = f"{cluster}.orders", f"{cluster}.prices"
    homes = {} if "streams" in more else {one_topic: "eu", other_topic: "us"}
    server = server_of(tmp_path, url, TREE, cluster=cluster, homes=homes, **more)
    await server.start()
    try:
        async with (
            connect(url, cluster=cluster, timeout_s=WAIT_S) as bus,
            bus.subscribe(one_topic, other_topic) as one,
            bus.subscribe(other_topic, one_topic) as other,
        ):
            for n in range(10):
                await bus.publish(one_topic, b"order %d" % n)
                await bus.publish(other_topic, b"price %d" % n)
            seen = [[(await events.next(WAIT_S)).data for _ in range(20)] for events in (one, other)]
            assert seen[0] == seen[1]
            assert sorted(seen[0]) == sorted(b"%s %d" % (what, n) for n in range(10) for what in (b"order", b"price"))
            assert server.explain()[0].node == "root"
        if not more:
            await until_surveyed(server)
            eu = {each.node: each for each in server.status().nodes}["eu"]
            assert (eu.issued, eu.open_ranges, eu.subscribers) == (10, 0, 2)
            assert eu.stamps >= 1
            assert eu.hop_ms is not None  # orders and prices meet at the root
    finally:
        await server.stop()


async def until_surveyed(server: SequencerServer) -> None:
    def is_settled() -> bool:
        last = server.served["eu"].status()
        return last.issued == 10 and not last.open_ranges

    await until(is_settled, "everything is settled")


async def test_a_restarted_server_goes_on_with_numbers_and_subscribers(nats: NatsServer, tmp_path: Path) -> None:
    """The clients stay, and find the new process at the same addresses."""
    server = server_of(tmp_path, nats.url, {"root": {}}, cluster="again")
    await server.start()
    address = server.addresses["root"]
    async with connect(nats.url, cluster="again", timeout_s=WAIT_S) as bus, bus.subscribe("again.a") as events:
        await bus.publish("again.a", b"1")
        assert (await events.next(WAIT_S)).number == 1
        await server.stop()
        waiting = bus.publish_nowait("again.a", b"2")  # the broker takes it, whoever orders it later
        await until(lambda: "again.a 2: stored" in str(bus.explain()), "the broker has it")
        server = server_of(tmp_path, nats.url, {"root": {"address": address}}, cluster="again")
        await server.start()
        try:
            event = await events.next(WAIT_S)
            assert (event.number, event.data) == (2, b"2")
            assert (await waiting).number == 2
            assert server.status().nodes[0].epoch == 2
        finally:
            await server.stop()
