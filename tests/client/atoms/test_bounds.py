"""The memory of clients and nodes of sequencing atoms is bounded, whichever process is away."""

import asyncio
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import seriatim
from seriatim.brokers.nats.server import NatsServer
from seriatim.client import Limits
from seriatim.model import TimedOut
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.atoms.test_bus import stations
from tests.client.world import feed_of, take, until

COUNT = 1_200
PULLED = 2 * 256  # a little more than allowed is on its way


async def publish_alone(buses: list[seriatim.Bus], topics: str, count: int) -> None:
    """Each event in a message of its own."""

    async def publish(bus: seriatim.Bus, number: int) -> None:
        for place in range(number, count, len(buses)):
            await bus.publish(topics[place % len(topics)], b"%d" % place, id=f"event-{place}")

    await asyncio.gather(*(publish(bus, number) for number, bus in enumerate(buses)))


async def test_a_subscriber_that_waits_does_not_read_on_what_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is slow with b. What waits for it is bounded; what does not wait for it, and all later, comes."""

    server, cluster = shared_server(), new_cluster()

    def connect(**more: Any) -> seriatim.Bus:
        return seriatim.connect(server.url, cluster=cluster, order="atoms", timeout_s=60.0, **more)

    async with (
        stations(server, cluster, tmp_path, ("alone",)),
        connect(limits=Limits(unread_events=50)) as one,
        connect() as two,
        connect() as three,
        connect() as four,
        one.subscribe("a", "b", "c") as slow,
        two.subscribe("a", "b") as quick,
    ):
        feed, seen = feed_of(slow), list[seriatim.Event]()

        async def read() -> None:
            async for event in slow:
                seen.append(event)

        reading = asyncio.create_task(read())
        feed._port.pause("b")
        # Events of b that were on their way may be ahead for a while: then the feed pauses b and lets it go again.
        let_go = feed._port.resume
        monkeypatch.setattr(feed._port, "resume", lambda topic=None: topic == "b" or let_go(topic))
        await publish_alone([one, two, three, four], "ab", 2 * COUNT)
        await until("it reads no more", lambda: feed._blocked == {"a"})
        assert feed.view.waiting <= 50 + PULLED < COUNT
        assert any("not read on: a" in note for note in slow.explain().notes)
        await one.publish("c", b"meanwhile")
        await until("what waits for nothing comes", lambda: bool(seen) and seen[-1].topic == "c")
        monkeypatch.undo()
        feed._port.resume("b")
        await until("all is there", lambda: len(seen) == 2 * COUNT + 1)
        together = [event.id for event in seen if event.topic != "c"]
        assert together == [event.id for event in await take(quick, 2 * COUNT)]
        assert not feed._blocked and feed.view.waiting == 0
        reading.cancel()


async def test_while_the_broker_is_away_publishers_wait_and_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    """As much as nodes may keep is confirmed; then publishing times out and says why. When it is back, all comes."""
    nodes, most = ("one", "two"), 20
    entering = {nodes[crc32(topic.encode()) % 2]: topic for topic in "abcdef"}  # as `Plan.ingress_of`

    def connect(timeout_s: float) -> seriatim.Bus:
        return seriatim.connect(server.url, cluster="away", order="atoms", timeout_s=timeout_s)

    async with (
        NatsServer() as server,
        stations(server, "away", tmp_path, nodes, limits={"kept_events_max": most}) as running,
        connect(60.0) as patient,
        connect(3.0) as hasty,
        patient.subscribe(*entering.values()) as one,
        patient.subscribe(*entering.values()) as two,
    ):
        hosts: Any = {node: running.served[node].host for node in nodes}
        await until("all is on the broker", lambda: not any(each.explain() for each in hosts.values()))
        last = next(node for node in nodes if hosts[node].machine.inner.state.host.atoms)
        first = nodes[1 - nodes.index(last)]  # what enters here leaves there: the one has to hear of the other
        server.kill()
        confirmed, why = [], ""
        for number in range(10 * most):
            try:
                confirmed.append((await hasty.publish(entering[first], b"%d" % number)).id)
            except TimedOut as error:
                why = str(error)
                break
        assert most <= len(confirmed) <= 2 * most, "what was on its way comes on top"
        assert f"(node {first} does not take it: node {last} keeps" in why
        assert "bytes for the broker, which is away, or slow)" in why
        for node in nodes:
            assert any(f"no events of {entering[first]} are taken: node {last}" in x for x in hosts[node].explain())
        waiting = [asyncio.create_task(patient.publish(entering[first], b"later")) for _ in range(4)]
        await until("they wait", lambda: any("takes no events" in line for line in patient.explain().sentences))
        await server.restart()
        confirmed += [published.id for published in await asyncio.gather(*waiting)]
        for topic in entering.values():
            confirmed.append((await patient.publish(topic, b"last")).id)
        seen: list[str] = []
        while set(confirmed) - set(seen):
            seen.append((await one.next(60.0)).id)
        assert len(seen) == len(set(seen)), "what timed out may come, too, but nothing comes twice"
        assert seen == [event.id for event in await take(two, len(seen))]


async def test_a_bound_on_bytes_is_kept_and_a_wrong_one_refused(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    with pytest.raises(seriatim.InputError, match=r"limits\.kept_bytes_max"):
        async with stations(server, cluster, tmp_path, ("alone",), limits={"kept_bytes_max": 0}):
            pass
    async with (
        stations(server, cluster, tmp_path, ("alone",), limits={"kept_bytes_max": 1_000}) as running,
        seriatim.connect(server.url, cluster=cluster, order="atoms", timeout_s=60.0) as bus,
        bus.subscribe("a") as events,
    ):
        for _ in range(20):  # each is as much as may be kept: they go one by one, and all of them go
            await bus.publish("a", b"x" * 2_000)
        assert len(await take(events, 20)) == 20
        station: Any = running.served["alone"].host
        burdens = station.machine.burdens
        await until("all is on the broker", lambda: burdens.kept["broker"].events == 0)
        assert not burdens.is_full and burdens.kept["broker"].bytes == 0
