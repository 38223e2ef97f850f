"""`connect("vcube://…")`: the same bus, on which this process is a peer. Real sockets on this machine."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import seriatim
from seriatim import Closed, Fenced, GapPolicy, InputError, JournalError, Limits, QueueFull, TimedOut, Unsettled
from seriatim.audit import audit, read_history
from seriatim.client import Bus, Subscription
from seriatim.client.sync import connect as connect_waiting
from seriatim.model import APPLICATION
from seriatim.protocols.vcube.messages import News, Suspect
from tests.live.peers.world import bus_of, peer_of, until, write_peers
from tests.ports import free_ports


async def take(events: Subscription, count: int) -> list[str]:
    return [(await events.next(60.0)).data.decode() for _ in range(count)]


async def test_peers_publish_to_each_other(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 3)
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(bus_of(path, id)) for id in range(3)]
        streams = [await stack.enter_async_context(bus.subscribe("chat")) for bus in buses]
        first = await buses[0].publish("chat", b"one", headers={"who": "me"})
        assert (first.topic, first.number) == ("chat", 1)
        assert [published.number for published in await buses[1].publish_many("chat", [b"two", b"three"])] == [1, 2]
        future = buses[2].publish_nowait("chat", b"four", id="mine")
        await buses[2].flush()
        assert future.done() and (await future).id == "mine"
        for stream in streams:
            event = await stream.next(60.0)
            assert (event.data, event.headers, event.publisher) == (b"one", {"who": "me"}, "0.1")
            assert await take(stream, 3) == ["two", "three", "four"]
        assert not buses[0].explain()
        assert peer_of(buses[0]).live.connected == [1, 2]
        [one] = buses[0].metrics().subscriptions
        assert (one.notified, one.unread, one.held, buses[0].metrics().unpublished) == (4, 0, None, 0)


async def test_topics_come_and_go(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    async with bus_of(path, 0) as one, bus_of(path, 1) as other:
        async with one.subscribe("a") as events, other.subscribe("a", "b"):
            await other.publish("a", b"1")
            await events.add("b")
            await other.publish("b", b"2")
            assert await take(events, 2) == ["1", "2"]
            await other.publish("a", b"not wanted")
            await events.remove("a")
            await other.publish("b", b"3")
            assert await take(events, 1) == ["3"]
            assert peer_of(one).live.topics == ["b"]
            with pytest.raises(InputError, match="a is not held"):
                await events.remove("a")
            with pytest.raises(TimedOut, match="none came"):
                await events.next(0.01)
        await until(lambda: peer_of(one).live.topics == [], "nothing is held any more")
        with pytest.raises(Closed):
            await events.add("c")


async def test_two_subscriptions_of_a_bus_share_a_topic(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    async with bus_of(path, 0) as one, bus_of(path, 1, join=True) as other, one.subscribe("a") as first:
        async with one.subscribe("a") as second:
            await other.publish("a", b"1")
            assert await take(first, 1) == await take(second, 1) == ["1"]
        assert peer_of(one).live.topics == ["a"]
        await other.publish("a", b"2")
        assert await take(first, 1) == ["2"]


async def test_publishing_needs_the_topic_to_be_held(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    async with bus_of(path, 0) as one, bus_of(path, 1, join=True) as other:
        with pytest.raises(InputError, match=r"peer 0 does not hold it.*join=True"):
            await one.publish("a", b"1")
        with pytest.raises(InputError, match="does not hold it"):
            await one.publish_many("a", [b"1", b"2"])
        async with one.subscribe("a") as events:
            await other.publish("a", b"1")  # subscribes by itself
            assert await take(events, 1) == ["1"]
            assert peer_of(other).live.topics == ["a"]
        assert not one.explain().unpublished


async def test_a_new_life_is_told_to_the_application(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 3)
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(bus_of(path, id)) for id in range(3)]
        streams = [await stack.enter_async_context(bus.subscribe("a", show_gaps=True)) for bus in buses]
        await buses[0].publish("a", b"1")
        assert await take(streams[2], 1) == ["1"]
        peer_of(buses[0]).live.command(APPLICATION, Suspect(2))  # it lives, and begins anew
        await until(
            lambda: peer_of(buses[2]).life == "2.2" and peer_of(buses[2]).live.topics == ["a"], "it has rejoined"
        )
        gap = await anext(streams[2])
        assert isinstance(gap, seriatim.Gap) and "joins again as 2.2" in gap.reason
        assert list(streams[2].gaps) == [gap]
        await until(lambda: peer_of(buses[0]).live.machine.peer.living() == (1, 2), "the others know")
        await buses[0].publish("a", b"2")
        await buses[2].publish("a", b"3")
        assert set(await take(streams[2], 2)) == {"2", "3"}
        assert set(await take(streams[1], 3)) == {"1", "2", "3"}


async def test_what_is_under_way_when_a_peer_is_held_for_dead_is_unsettled(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    async with bus_of(path, 0) as one, bus_of(path, 1) as other, one.subscribe("a"), other.subscribe("a"):
        receipt = one.publish_nowait("a", b"1")  # sent, and not answered yet
        peer_of(one).live.command("peer1", _news(one, other, {0: 3}))
        with pytest.raises(Unsettled, match="all the others have it, or none"):
            await receipt


def _news(receiver: Bus, sender: Bus, statuses: dict[int, int]) -> Any:
    from seriatim.protocols.link import Frame
    from seriatim.protocols.vcube.linked import Parcel

    return Parcel(peer_of(receiver).live.life, Frame(peer_of(sender).live.life, 0, 0, News(statuses)))


async def test_a_process_that_is_replaced_stops_with_a_clear_error(tmp_path: Path) -> None:
    """The second process has the later life: a restarted one has it from the journal, this one from a copy."""

    path = write_peers(tmp_path, 2)
    async with bus_of(path, 0) as one, bus_of(path, 1) as other, one.subscribe("a") as events:
        peer_of(one).live.command("peer1", _news(one, other, {0: 4}))
        with pytest.raises(Fenced, match=r"another process is peer 0 now, in its life 0\.2"):
            await events.next(60.0)
        with pytest.raises(Fenced):
            await one.publish("a", b"1")


async def test_who_does_not_take_its_events_is_cut_off_and_nobody_else(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    limits = Limits(unread_events=10)
    async with (
        bus_of(path, 0, limits=limits) as slow,
        bus_of(path, 1) as other,
        slow.subscribe("a") as events,
        other.subscribe("a") as others,
    ):
        await other.publish_many("a", [b"%d" % number for number in range(50)])
        assert await take(others, 50) == [str(number) for number in range(50)]
        taken = await take(events, 11)
        assert taken == [str(number) for number in range(11)]
        with pytest.raises(QueueFull, match="take events faster"):
            await events.next(60.0)
        async with slow.subscribe("b"):
            pass


async def test_what_only_brokers_can_do_is_refused(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    url = f"vcube://{path}?id=0"
    meaningless: list[dict[str, Any]] = [
        {"mode": "log"},
        {"causal": False},
        {"stamp_key": b"x" * 32},
        {"sequencers": ["h:1"]},
        {"gaps": GapPolicy.skip()},
        {"name": "me"},
        {"publication_log": "broker:"},
    ]
    for options in meaningless:
        with pytest.raises(InputError, match=rf"{next(iter(options))}: .*vcube"):
            seriatim.connect(url, **options)

    async with bus_of(path, 0) as bus:
        refused: list[dict[str, Any]] = [
            {"durable": "x"},
            {"ordered": False},
            {"gaps": GapPolicy.skip()},
            {"acknowledge": "manual"},
            {"start": "first"},
            {"log": "broker:"},
        ]
        for options in refused:
            with pytest.raises(InputError, match=rf"{next(iter(options))}: .*vcube"):
                bus.subscribe("a", **options)
        with pytest.raises(InputError, match="give a non-empty string"):
            bus.subscribe("")


async def test_urls_name_what_is_wrong(tmp_path: Path) -> None:
    for url, wrong in (
        ("vcube:///", "names neither a file nor a peer"),
        ("vcube:///x.toml", "which peer this process is"),
        ("vcube:///x.toml?id=x", "is not the id of a peer"),
        ("vcube:///x.toml?id=70000", "is not the id of a peer"),
        ("vcube:///x.toml?id=1&token=2", "there is no 'token'"),
        ("vcube://h:1/x.toml?id=1", "has no file"),
        ("vcube://h?id=1", "is not an address"),
        ("vcube://me:secret@h:1?id=1", "holds a password"),
        ("vcube://h:1?id=1", "journals: a peer must remember"),
    ):
        with pytest.raises(InputError, match=wrong):
            seriatim.connect(url)

    with pytest.raises(InputError, match=r"there is no such file; give the path of a peers\.toml"):
        async with bus_of(tmp_path / "nothing.toml", 0):
            pass
    path = write_peers(tmp_path, 2)
    with pytest.raises(InputError, match="there is no peer 7 in the list"):
        async with bus_of(path, 7):
            pass


async def test_a_newcomer_asks_a_seed_for_the_list(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 3)
    async with bus_of(path, 0) as one, one.subscribe("a") as events:
        url = f"vcube://{peer_of(one).live.address}?id=2"
        async with seriatim.connect(url, journals=tmp_path / "elsewhere", timeout_s=60.0, join=True) as bus:
            await bus.publish("a", b"1")
            assert await take(events, 1) == ["1"]
        assert (tmp_path / "elsewhere" / "peer-2").is_dir()
    port = free_ports(1)[0]
    with pytest.raises(seriatim.ConnectionFailed, match=f"no peer answers at 127.0.0.1:{port}: connection refused"):
        async with seriatim.connect(f"vcube://127.0.0.1:{port}?id=2", journals=tmp_path / "x"):
            pass


async def test_one_journal_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    async with bus_of(path, 0):
        with pytest.raises(JournalError, match="in use by process"):
            async with bus_of(path, 0):
                pass
    async with bus_of(path, 0) as again:
        assert peer_of(again).life == "0.2"


async def test_logs_are_judged_by_the_auditor(tmp_path: Path) -> None:
    """A conversation on two topics: every reaction comes after what it reacts to, on each topic."""

    path = write_peers(tmp_path, 3)
    log = tmp_path / "log"
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(bus_of(path, id, publication_log=log)) for id in range(3)]
        streams = [await stack.enter_async_context(bus.subscribe("a", "b", log=log)) for bus in buses]
        for number in range(30):
            topic = "ab"[number % 2]
            await buses[number % 3].publish(topic, str(number).encode())
            for stream in streams:
                assert (await stream.next(60.0)).data == str(number).encode()
        with pytest.raises(InputError, match="another subscription of this bus logs a already"):
            buses[0].subscribe("a", log=log)
    history = read_history(log)
    assert len(history.deliveries) == 90 and len(history.publications) == 30
    assert {row.subscriber for row in history.subscriptions} == {f"{id}.1/{topic}" for id in range(3) for topic in "ab"}
    assert all(row.until is not None for row in history.subscriptions)
    assert any(row.seen for row in history.publications)
    assert audit(history).verdicts["causal"].answer == "valid"


def test_without_an_event_loop(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    with (
        connect_waiting(f"vcube://{path}?id=0", timeout_s=60.0) as one,
        connect_waiting(f"vcube://{path}?id=1", timeout_s=60.0, join=True) as other,
        one.subscribe("a") as events,
    ):
        other.publish("a", b"1")
        assert events.next(60.0).data == b"1"
        assert other.publish_nowait("a", b"2").result(60.0).number == 2


async def test_payloads_over_the_limit_are_not_sent(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2, "payload_bytes_max = 1000\n")
    async with bus_of(path, 0, join=True) as bus:
        with pytest.raises(InputError, match="1001 bytes in one event; send at most 1000"):
            await bus.publish("a", b"x" * 1001)
        with pytest.raises(InputError, match="expected bytes"):
            await bus.publish("a", "text")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="used twice"):
            await asyncio.gather(bus.publish("a", b"1", id="x"), bus.publish("a", b"2", id="x"))


async def test_what_cannot_be_sent_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    """A frame that cannot be written would be waited for by the other side for ever."""

    path = write_peers(tmp_path, 2)
    async with (
        bus_of(path, 0) as one,
        bus_of(path, 1) as other,
        one.subscribe("a") as events,
        other.subscribe("a") as others,
    ):
        with pytest.raises(InputError, match="headers"):
            await one.publish("a", b"1", headers={"file": "half\ud800"})
        with pytest.raises(InputError, match="bytes in one id"):
            await one.publish("a", b"1", id="x" * 256)
        for topic in ("half\ud800", "x" * 256, "a b", "a.*", "_a"):  # as on every broker
            with pytest.raises(InputError, match="topic"):
                await one.publish(topic, b"1")
            with pytest.raises(InputError, match="topic"):
                await events.add(topic)
        await one.publish("a", b"2", headers={"file": "ganz ü"})
        assert await take(others, 1) == ["2"]


async def test_an_event_of_somebody_else_may_have_the_same_id(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    async with (
        bus_of(path, 0, publication_log=tmp_path / "run") as one,
        bus_of(path, 1, publication_log=tmp_path / "run") as other,
        one.subscribe("a") as events,
        other.subscribe("a") as others,
    ):
        await other.publish("a", b"before")
        for i in range(20):
            both = await asyncio.gather(one.publish("a", b"1", id=f"{i}"), other.publish("a", b"2", id=f"{i}"))
            assert [published.number for published in both] == [i + 1, i + 2]
        assert sorted(await take(events, 41)) == sorted(await take(others, 41))


async def test_what_could_not_be_joined_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_peers(tmp_path, 2, "heartbeat_ms = 100000\nsuspect_after_ms = 200000\n")
    async with bus_of(path, 0) as one, bus_of(path, 1) as other, one.subscribe("a") as events:
        monkeypatch.setattr(peer_of(other).live, "take", lambda source, parcel: None)  # it hears nothing any more
        events._source.wishes = structs.replace(events._source.wishes, timeout_s=0.2)
        for _ in range(2):
            with pytest.raises(TimedOut, match="join new"):
                await events.add("new")
            assert events.topics == {"a"}
