"""Bad input of a client gives an error with the reason to that client only, and harms nobody else."""

import asyncio
from pathlib import Path

import pytest

from seriatim.client import Bus, GapPolicy
from seriatim.filters import Contradiction, FilterError
from seriatim.live.overlay import LiveBroker, load_overlay
from seriatim.model import ConnectionFailed, Event, InputError, JournalError, RequestRefused, Taken
from seriatim.protocols.overlay.messages import Publish, Subscribe
from tests.live.overlay.world import brokers, bus_of, session_of, until, write_overlay
from tests.ports import free_ports

ONE = {"A": ""}


async def still_works(bus: Bus) -> None:
    async with bus.subscribe("check") as events:
        await bus.publish("check", b"fine")
        assert (await events.next()).data == b"fine"


async def test_filters_that_cannot_be_used(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE)
    async with brokers(path), bus_of(path, "A") as bus, bus_of(path, "A") as other:
        with pytest.raises(FilterError, match="character 9") as unreadable:
            bus.subscribe(where="price > and x = 1")
        assert str(unreadable.value).splitlines()[2].index("^") == 2 + 8
        with pytest.raises(Contradiction, match="matches nothing"):
            bus.subscribe(where="price > 100 and price < 50")
        with pytest.raises(FilterError, match="price"):
            bus.subscribe(where='price > 100 and price = "EU"')
        with pytest.raises(FilterError):
            bus.subscribe(where=" and ".join(f"a{i} = {i}" for i in range(100)))
        with pytest.raises(InputError, match="neither topics nor a filter"):
            bus.subscribe()
        with pytest.raises(FilterError):
            await bus.advertise("price >")
        await still_works(bus)
        await still_works(other)


async def test_a_broker_refuses_what_a_client_did_not_check(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE)
    async with brokers(path), bus_of(path, "A") as bus, bus_of(path, "A") as other:
        for where, words in (("price >", "FilterError"), ("a > 1 and a < 0", "Contradiction")):
            with pytest.raises(RequestRefused, match=words):
                await session_of(bus)._ask(Subscribe("bad", where), "bad", 10.0)
        await still_works(bus)
        await still_works(other)


async def test_topics_are_called_as_on_every_broker(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE)
    async with brokers(path), bus_of(path, "A") as bus:
        for topic in ("a b", "a.*", "_a"):
            with pytest.raises(InputError, match="use words joined by dots"):
                await bus.publish(topic, b"1")
            with pytest.raises(InputError, match="use words joined by dots"):
                bus.subscribe(topic)


async def test_attributes_that_cannot_be(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE)
    async with brokers(path), bus_of(path, "A") as bus:
        with pytest.raises(InputError, match="64"):
            await bus.publish("t", b"", attributes={f"a{i}": i for i in range(100)})
        with pytest.raises(InputError):
            await bus.publish("t", b"", attributes={"price": b"bytes"})  # type: ignore[dict-item]
        with pytest.raises(InputError):
            await bus.publish("t", b"", attributes={"text": "x" * 5_000})
        with pytest.raises(InputError, match="the topic is one of them already"):
            await bus.publish("t", b"", attributes={"topic": "u"})
        with pytest.raises(InputError, match="header Attribute-price"):
            await bus.publish("t", b"", headers={"Attribute-price": "1 2"})
        with pytest.raises(InputError, match="bytes in one event"):
            await bus.publish("t", b"x" * 2_000_000)
        await still_works(bus)


async def test_a_publication_outside_its_advertisement(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"A": "", "B": "A"})
    log = tmp_path / "log"
    async with brokers(path), bus_of(path, "B", publication_log=log) as bus, bus_of(path, "A") as other:
        async with await bus.advertise('topic = "t" and price > 100'):
            with pytest.raises(RequestRefused, match="OutsideAdvertisement"):
                await bus.publish("t", b"cheap", attributes={"price": 1})
            async with other.subscribe("t") as events:
                await bus.publish("t", b"dear", attributes={"price": 101})
                assert (await events.next()).data == b"dear"
        with pytest.raises(RequestRefused, match="OutsideAdvertisement"):
            await bus.publish("t", b"withdrawn", attributes={"price": 101})
        await still_works(other)
    lines = [line for line in (log / "publications.jsonl").read_text().splitlines() if line.strip()]
    assert len(lines) == 1, "what was refused was not published"


async def test_what_an_overlay_has_not(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE)
    async with brokers(path), bus_of(path, "A") as bus:
        for options in ({"durable": "d"}, {"ordered": False}, {"start": "first"}, {"acknowledge": "manual"}):
            with pytest.raises(InputError, match="overlay://"):
                bus.subscribe("t", **options)
        for policy in (GapPolicy.wait(), GapPolicy.skip(after_s=1.0), GapPolicy.raise_(after_s=1.0)):
            with pytest.raises(InputError, match=r"gaps: .*overlay://"):
                bus.subscribe("t", gaps=policy)
        for policy in (GapPolicy.skip(), GapPolicy.raise_()):
            async with bus.subscribe("t", gaps=policy):
                pass
    with pytest.raises(InputError, match=r"needs no sequencers \(overlay://"):
        bus_of(path, "A", sequencers=["127.0.0.1:1"])
    with pytest.raises(InputError, match=r"gaps: .*overlay://"):
        bus_of(path, "A", gaps=GapPolicy.skip(after_s=1.0))
    with pytest.raises(InputError, match="there is no broker 'X'"):
        async with bus_of(path, "X"):
            pass


async def test_two_processes_cannot_be_one_broker(tmp_path: Path) -> None:
    """On one machine the journal is locked; with a journal of its own, the parent sees that there are two."""

    path = write_overlay(tmp_path, {"A": "", "B": "A"})
    config = load_overlay(path)
    async with brokers(path) as running, bus_of(path, "B") as bus:
        second = LiveBroker(config, "B")
        with pytest.raises((JournalError, ConnectionFailed)):
            await second.start()
        await second.stop()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        text = path.read_text().replace(config.brokers["B"].address, f"127.0.0.1:{free_ports(1)[0]}")
        (elsewhere / "overlay.toml").write_text(text)
        impostor = LiveBroker(load_overlay(elsewhere / "overlay.toml"), "B")
        await impostor.start()
        try:
            await until(lambda: running["A"].refusals.get("id", 0) > 0, "the second one is refused")
            assert impostor.unconfirmed == ["A"], "it admits no clients"
            assert any("two processes cannot have the same id" in line for line in impostor.explain())
            with pytest.raises(Taken, match=r"another process is broker 'B' and is connected.* Stop one of them"):
                raise await asyncio.wait_for(impostor.failed, 30.0)
            await still_works(bus)
        finally:
            await impostor.stop()


async def test_brokers_with_different_files_do_not_talk(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"A": "", "B": "A"})
    other = tmp_path / "other"
    other.mkdir()
    (other / "overlay.toml").write_text(path.read_text() + 'order = "fifo"\n')
    async with brokers(path, "A") as running:
        stranger = LiveBroker(load_overlay(other / "overlay.toml"), "B")
        await stranger.start()
        try:
            await until(lambda: running["A"].refusals.get("description", 0) > 0, "it is refused")
            await until(lambda: any("options.order" in line for line in stranger.explain()), "it knows why")
        finally:
            await stranger.stop()


async def test_a_stranger_that_breaks_the_protocol_harms_nobody(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE)
    async with brokers(path) as running, bus_of(path, "A") as bus:
        host, _, port = running["A"].address.rpartition(":")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x04abcd", b"\xff" * 64):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            await reader.read(1)  # it says why, and waits for us to hang up
            writer.close()
        assert sum(running["A"].refusals.values()) >= 3
        await still_works(bus)


async def test_a_frame_too_large_ends_only_that_connection(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, ONE, options="payload_bytes_max = 1000\n")
    async with brokers(path) as running, bus_of(path, "A", timeout_s=2.0) as bad, bus_of(path, "A") as bus:
        session_of(bad).attached.command(Publish(Event("e", "t", bad.name, b"x" * 2_000, None)))
        await until(lambda: running["A"].refusals.get("client", 0) > 0, "it is sent away")
        await still_works(bus)


async def test_a_journal_is_not_replayed_under_other_bounds(tmp_path: Path) -> None:
    """What was taken then would be refused now, and neighbours know of it."""

    path = write_overlay(tmp_path, ONE, "subscriptions_max = 2\n")
    async with brokers(path), bus_of(path, "A") as bus:
        async with bus.subscribe("t"), bus.subscribe("u"):
            with pytest.raises(RequestRefused, match="TooManySubscriptions"):
                async with bus.subscribe("v"):
                    pass
        await still_works(bus)
    path.write_text(path.read_text(encoding="utf-8").replace("_max = 2", "_max = 1"), encoding="utf-8")
    other = LiveBroker(load_overlay(path), "A")
    with pytest.raises(InputError, match="other bounds"):
        await other.start()
    await other.stop()
    path.write_text(path.read_text(encoding="utf-8").replace("_max = 1", "_max = 2"), encoding="utf-8")
    async with brokers(path), bus_of(path, "A") as bus:
        await still_works(bus)
