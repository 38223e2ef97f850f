"""Clusters of sequencing atoms as they are served: what a file may say, plans, restarts, clients that are gone."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec.structs import replace

import seriatim
from seriatim.live.atoms.plan import placement_of, read_atoms_plan
from seriatim.live.server import SequencerServer
from seriatim.model import (
    Behind,
    Closed,
    ConnectionFailed,
    Event,
    InputError,
    JournalError,
    RequestRefused,
    Taken,
    TimedOut,
)
from seriatim.protocols.atoms import GraphError, plan_of
from seriatim.protocols.atoms.live_messages import Join
from seriatim.protocols.atoms.messages import Carry, Item, Publish
from seriatim.protocols.atoms.written import Written, as_written, write
from seriatim.protocols.link import Frame
from seriatim.server.config import parse_config
from seriatim.server.config_text import config_text
from tests import waiting
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.world import data, feed_of, take, until


def parse(**more: Any) -> Any:
    return parse_config({"broker": "nats://127.0.0.1:4222", "order": "atoms", "nodes": {"one": {}}, **more})


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ("mode: has no effect with atoms", {"mode": "ticket"}),
        ("homes: has no effect with atoms", {"homes": {"a": "one"}}),
        ("default_home: has no effect with atoms", {"default_home": "one"}),
        ("streams.buckets: has no effect with atoms", {"streams": {"buckets": 4}}),
        ("broker: atoms need a broker that loses nothing", {"broker": "nats+core://127.0.0.1"}),
        ("nodes.two.parent: atoms have no parents", {"nodes": {"one": {}, "two": {"parent": "one"}}}),
        ("nodes.one.address: nodes of atoms have no standbys", {"nodes": {"one": {"address": ["h:1", "h:2"]}}}),
        ("no node has the role 'host'", {"nodes": {"one": {"roles": ["ingress"]}}}),
        (
            "one is the coordinator already",
            {
                "nodes": {
                    n: {"roles": ["coordinator", "host", "ingress"], "address": f"h:{i}"}
                    for i, n in enumerate(("one", "two"), 1)
                }
            },
        ),
        ("only atoms have roles", {"order": "global", "nodes": {"one": {"roles": ["host"]}}}),
        ("limits.kept_events_max: has no effect in a tree", {"order": "tree", "limits": {"kept_events_max": 5}}),
        ('give "global", "pairwise" or "atoms"', {"order": "clock"}),
        ("nodes.one.roles", {"nodes": {"one": {"roles": ["king"]}}}),
        ("nodes.broker: 'broker' has another meaning", {"nodes": {"broker": {}}}),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(where: str, more: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        parse(**more)
    assert where in str(error.value)


def test_who_plays_what() -> None:
    nodes: dict[str, dict[str, Any]]
    nodes = {"one": {"address": "h:1"}, "two": {"address": "h:2", "roles": ["host"]}, "three": {"address": "h:3"}}
    config = parse(nodes=nodes)
    assert config.coordinator == "one"
    assert config.playing("ingress") == ("one", "three") and config.playing("host") == ("one", "two", "three")
    nodes["three"]["roles"] = ["coordinator"]
    config = parse(nodes=nodes)
    assert (config.coordinator, config.playing("ingress")) == ("three", ("one",))
    assert 'order = "atoms"' in config_text(config)


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MEMBERS = {"a": ["ann", "bob"], "b": ["ann", "bob"]}
OTHERS = {"a": ["ann", "eve"], "b": ["ann", "eve"]}


def made_for(members: dict[str, list[str]], at: str = "two") -> Written:
    hosts = ("one", "two")
    plan = plan_of(members, hosts, hosts, placement={"a.1&b.1": at})
    return as_written(plan.graph, hosts)


def test_a_plan_says_where_atoms_belong() -> None:
    assert placement_of(made_for(MEMBERS), {}, ("one", "two"), 2) == {"a b": "two"}
    live = {topic: {f"{name}~0123/1" for name in who} for topic, who in MEMBERS.items()}
    assert placement_of(made_for(MEMBERS), live, ("one", "two"), 2) == {"a b": "two"}


def test_a_plan_for_others_is_refused_with_the_difference() -> None:
    plan = made_for(MEMBERS)
    for live, said in (
        ({"a": {"ann~1/1", "bob~2/1"}}, "topic 'b': is in the plan, but nobody holds it"),
        ({"a": {"ann~1/1"}, "b": {"ann~1/1", "bob~2/1"}}, "topic 'a': has 1 members, the plan is for 2"),
        ({"a": {"ann~1/1", "eve~2/1"}, "b": {"ann~1/1", "bob~2/1"}}, "topic 'a': has 2 members, but not those"),
    ):
        with pytest.raises(GraphError) as error:
            placement_of(plan, live, ("one", "two"), 2)
        assert said in str(error.value)
    with pytest.raises(GraphError, match="hosts: the plan and the cluster differ in three, two"):
        placement_of(plan, {}, ("one", "three"), 2)
    with pytest.raises(GraphError, match="threshold"):
        placement_of(replace(plan, threshold=1), {}, ("one", "two"), 2)


def test_a_plan_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(write(made_for(MEMBERS)), encoding="utf-8")
    assert read_atoms_plan(tmp_path / "plan.toml") == made_for(MEMBERS)
    (tmp_path / "tree.toml").write_text('[homes]\na = "root"\n', encoding="utf-8")
    assert read_atoms_plan(tmp_path / "tree.toml") is None


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def stations(
    folder: Path, cluster: str, *, plan: Written | None = None, **more: Any
) -> AsyncIterator[SequencerServer]:
    nodes = {name: {"address": "127.0.0.1:0"} for name in ("one", "two")}
    raw = {"cluster": cluster, "broker": shared_server().url, "order": "atoms", "nodes": nodes, **more}
    async with SequencerServer(parse_config(raw, folder), plan=plan) as server:
        yield server


def station(server: SequencerServer, name: str) -> Any:
    return server.served[name].host


def connect(cluster: str, name: str | None = None) -> seriatim.Bus:
    return seriatim.connect(shared_server().url, cluster=cluster, order="atoms", name=name, timeout_s=60.0)


async def test_atoms_live_where_the_plan_puts_them_and_a_plan_for_others_is_refused(tmp_path: Path) -> None:
    cluster = new_cluster()
    plan = made_for(MEMBERS)
    async with (
        stations(tmp_path, cluster, plan=plan) as server,
        connect(cluster, "ann") as ann,
        connect(cluster, "bob") as bob,
        ann.subscribe("a", "b") as hers,
        bob.subscribe("a", "b") as his,
    ):
        await ann.publish_many([("a", b"1"), ("b", b"2")])
        assert data(await take(hers, 2)) == data(await take(his, 2))
        at = {name: set(station(server, name).machine.inner.state.host.atoms) for name in server.served}
        assert not any(atom.startswith("a.") and "&b." in atom for atom in at["one"])
        assert any(atom.startswith("a.") and "&b." in atom for atom in at["two"])
        await station(server, "one").driver.settled()
        # the process ends as if it were killed: nobody leaves
        for each in (hers, his):
            await feed_of(each)._driver.stop()
        await server.stop()
    other = made_for(OTHERS, at="one")
    with pytest.raises(GraphError, match="but not those of the plan"):
        async with stations(tmp_path, cluster, plan=other):
            pass
    async with stations(tmp_path, cluster, plan=plan):  # and nothing was harmed by trying
        pass


async def test_a_plan_that_was_taken_is_not_refused_when_others_are_there(tmp_path: Path) -> None:
    cluster, plan = new_cluster(), made_for(MEMBERS)
    async with (
        stations(tmp_path, cluster, plan=plan) as server,
        connect(cluster, "ann") as ann,
        ann.subscribe("a", "c") as hers,
    ):
        await ann.publish("a", b"1")
        assert data(await take(hers, 1)) == ["1"]
        await feed_of(hers)._driver.stop()  # the process ends as if it were killed: she does not leave
        await server.stop()
    async with stations(tmp_path, cluster, plan=plan) as server:
        registrar = station(server, "one").machine.inner.registrar
        assert (set(registrar.state.wanted), registrar.state.placement) == ({"a", "c"}, {"a b": "two"})
    with pytest.raises(GraphError, match="topic 'a': has 1 members, the plan is for 2"):
        async with stations(tmp_path, cluster, plan=made_for(OTHERS, at="one")):
            pass


async def test_a_station_goes_on_from_its_journal_and_refuses_another_cluster(tmp_path: Path) -> None:
    cluster = new_cluster()
    async with stations(tmp_path, cluster) as server:
        epochs = [station(server, name).epoch for name in server.served]
    async with stations(tmp_path, cluster) as server:
        assert [station(server, name).epoch for name in server.served] == [epoch + 1 for epoch in epochs]
    with pytest.raises(InputError, match=r"has another layout, .*: causal is False there, and True here"):
        async with stations(tmp_path, cluster, causal=True):
            pass


async def test_a_station_without_its_journal_does_not_take_what_the_broker_has_for_its_own(tmp_path: Path) -> None:
    cluster = new_cluster()
    nodes = {"alone": {"address": "127.0.0.1:0"}}
    for _ in range(2):  # a restart with the journal is not that
        async with (
            stations(tmp_path, cluster, nodes=nodes),
            connect(cluster) as bus,
            bus.subscribe("a") as events,
        ):
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
    for journal in tmp_path.iterdir():
        shutil.rmtree(journal)
    lost = "the journal of alone .* was lost: it is empty, .*; if it is lost: start over, with empty journals on all"
    with pytest.raises(Behind, match=lost):
        async with stations(tmp_path, cluster, nodes=nodes):
            pass
    await forget_lives(cluster)  # as if an earlier version had run it: only the slots tell
    for is_first in (True, False):
        async with stations(tmp_path, cluster, nodes=nodes) as server:
            if is_first:  # the second one finds out by what it repeats
                short = seriatim.connect(shared_server().url, cluster=cluster, order="atoms", timeout_s=1.0)
                with pytest.raises(TimedOut):
                    async with short as bus, bus.subscribe("a"):
                        pass
            failed = await asyncio.wait_for(server.served["alone"].failed, 60.0)
            assert isinstance(failed, JournalError)
            assert "written by a station with another journal: the journal of alone was lost" in str(failed)
            assert any("Restore it; or start over" in line for line in server.served["alone"].explain())


async def forget_lives(cluster: str) -> None:
    client = await nats.connect(shared_server().url)
    await client.jetstream().delete_stream(f"{cluster}-lives")
    await client.close()


async def test_a_station_refuses_an_older_copy_of_its_journal(tmp_path: Path) -> None:
    """Of the same life, so that the epoch does not tell."""
    cluster = new_cluster()
    nodes = {"alone": {"address": "127.0.0.1:0"}}
    journal, copy, newest = (tmp_path / f"journal-{cluster}.alone{end}" for end in ("", "-copy", "-newest"))
    async with stations(tmp_path, cluster, nodes=nodes), connect(cluster) as bus, bus.subscribe("a") as events:
        await bus.publish("a", b"1")
        shutil.copytree(journal, copy, ignore=shutil.ignore_patterns("lock"))
        await bus.publish("a", b"2")
        assert data(await take(events, 2)) == ["1", "2"]
    journal.rename(newest)
    for _ in range(2):  # it changes nothing, so it is refused again
        shutil.rmtree(journal, ignore_errors=True)
        shutil.copytree(copy, journal)
        with pytest.raises(Behind, match=r"is an older copy: it has \d+ records of epoch 1, .* has written \d+"):
            async with stations(tmp_path, cluster, nodes=nodes):
                pass
    shutil.rmtree(journal)
    newest.rename(journal)
    async with stations(tmp_path, cluster, nodes=nodes), connect(cluster) as bus, bus.subscribe("a") as events:
        receipt = await bus.publish("a", b"3")
        assert (receipt.number, data(await take(events, 1))) == (3, ["3"])


async def test_a_second_process_of_a_running_station_is_refused(tmp_path: Path) -> None:
    """From another folder, so that no lock of a file tells."""
    cluster = new_cluster()
    nodes = {"alone": {"address": "127.0.0.1:0"}}
    (tmp_path / "other").mkdir()
    async with (
        stations(tmp_path, cluster, nodes=nodes) as server,
        connect(cluster) as bus,
        bus.subscribe("a") as events,
    ):
        with pytest.raises(Taken, match=r"node alone is run by another process \(process .* stop that one first"):
            async with stations(tmp_path / "other", cluster, nodes=nodes):
                pass
        await bus.publish("a", b"1")
        assert data(await take(events, 1)) == ["1"]
        assert not server.served["alone"].failed.done()


async def test_a_subscriber_that_is_gone_is_forgotten_and_told_when_it_comes_back(tmp_path: Path) -> None:
    cluster = new_cluster()
    async with stations(tmp_path, cluster, times={"subscriber_lease_ms": 300}) as server:
        registrar = station(server, "one").machine.inner.registrar
        async with connect(cluster) as bus, connect(cluster) as other, bus.subscribe("a") as events:
            assert registrar.knows(events.name)
            session: Any = bus.session
            network = session.connection.network
            await network.close()
            await until("it is forgotten", lambda: not registrar.knows(events.name))

            async def is_refused() -> bool:
                try:
                    await other.publish("a", b"x")
                except RequestRefused:
                    return True
                return False

            await waiting.until(is_refused, "it is forgotten")
            await network.open()
            with pytest.raises(Closed, match="has forgotten it; subscribe again"):
                while True:  # what came before it was told
                    await events.next(60.0)
            async with bus.subscribe("a") as again:
                await other.publish("a", b"y")
                assert data(await take(again, 1)) == ["y"]


async def test_a_message_for_a_retired_path_harms_nobody(tmp_path: Path) -> None:
    cluster = new_cluster()
    async with stations(tmp_path, cluster) as server, connect(cluster) as bus, bus.subscribe("a", "b") as events:
        host = station(server, "two")
        item = Item("gone.1", 5, {}, seriatim_event())
        host.driver.deliver("elsewhere", Frame(1, 1, 0, Carry("gone.1&other.1", "gone.1", item)))
        await host.driver.settled()
        assert server.served["two"].status().strays == 1
        assert "a message for gone.1&other.1, which is not here" in server.served["two"].explain()
        await bus.publish_many([("a", b"1"), ("b", b"2")])
        assert sorted(data(await take(events, 2))) == ["1", "2"]


@pytest.mark.parametrize("name", ["coordinator", "two", "broker"])
async def test_no_client_is_called_what_a_part_of_the_cluster_is(tmp_path: Path, name: str) -> None:
    cluster = new_cluster()
    async with stations(tmp_path, cluster) as server, connect(cluster) as bus, bus.subscribe(*"abcd") as events:
        impostor = connect(cluster)
        impostor.session.name = name
        with pytest.raises(ConnectionFailed, match=f"'{name}' is not a name for a client"):
            async with impostor:
                pass
        for each in server.served:  # and past the door
            host = station(server, each)
            known = set(host.machine.state.links)
            for number, topic in enumerate("abcd", 1):
                wish = Join(topic) if number % 2 else Publish(Event(f"x{number}", topic, name, b"x"))
                server.served[each].switchboard.deliver(name, each, Frame(9, number, 0, wish))
            await host.driver.settled()
            assert set(host.machine.state.links) == known
        await bus.publish_many([(topic, topic.encode()) for topic in "abcd"])
        assert sorted(data(await take(events, 4))) == list("abcd")
        assert [each.role for each in server.served.values()] == ["active", "active"]


@pytest.mark.parametrize("topic", ["ü" * 100, "x" * 300, "two words"])
async def test_a_topic_that_can_have_no_stream_harms_nobody(tmp_path: Path, topic: str) -> None:
    cluster = new_cluster()
    async with stations(tmp_path, cluster) as server, connect(cluster) as bus, bus.subscribe("a") as events:
        for name in server.served:
            host = station(server, name)
            known = set(host.machine.state.links)
            for source, wish in (("eve", Join(topic)), ("mallory", Publish(Event("x", topic, "mallory", b"x")))):
                server.served[name].switchboard.deliver(source, name, Frame(1, 1, 0, wish))
            await host.driver.settled()
            assert set(host.machine.state.links) == known, "it is not in the journal, either"
        await bus.publish("a", b"1")
        assert data(await take(events, 1)) == ["1"]
    async with stations(tmp_path, cluster) as server:
        assert [each.role for each in server.served.values()] == ["active", "active"]


async def test_a_station_outlives_what_the_broker_does_not_take(tmp_path: Path) -> None:
    cluster = new_cluster()
    async with stations(tmp_path, cluster) as server, connect(cluster) as bus, bus.subscribe("a") as events:
        long, served = "ü" * 100, server.served.values()
        station(server, "one").driver.deliver("eve", Frame(1, 1, 0, Join(long)))  # as journals of old may say
        refused = "the name of its stream would have"
        await until("it is refused", lambda: any(refused in line for each in served for line in each.explain()))
        await bus.publish("a", b"1")
        assert data(await take(events, 1)) == ["1"]
        assert [each.role for each in served] == ["active", "active"]


def seriatim_event() -> Any:
    return Event("lost", "gone", "p", b"x")
