"""One durable name, one life: a second process, an older journal and a lost one are told before anything is delivered.

On the broker in this process and on NATS, in both modes.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import seriatim
from seriatim.client import Bus, Subscription
from seriatim.client.brokered.feed import Feed
from seriatim.client.tree import life
from seriatim.client.tree.life import registered_durable, registered_durables
from seriatim.client.tree.source import DurableSource
from seriatim.model import Behind, ConnectionFailed, Fenced, InputError, JournalError, RequestRefused, Taken, TimedOut
from tests import waiting
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.crashes import Store, kill
from tests.client.test_nats import sequencer
from tests.client.world import data, take, until, world

Buses: TypeAlias = Callable[..., Bus]


@asynccontextmanager
async def in_memory(folder: Path, mode: str) -> AsyncIterator[Buses]:
    async with world(mode=mode) as w:
        yield w.bus


@asynccontextmanager
async def on_nats(folder: Path, mode: str) -> AsyncIterator[Buses]:
    server, cluster = shared_server(), new_cluster()
    async with sequencer(server, cluster, folder, mode=mode):

        def bus(**options: Any) -> Bus:
            given: dict[str, Any] = {"cluster": cluster, "timeout_s": 60.0} | options
            return seriatim.connect(server.url, **given)

        yield bus


@pytest.fixture(params=["memory-log", "memory-ticket", "nats-log", "nats-ticket"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Buses]:
    broker, _, mode = request.param.partition("-")
    return in_memory(tmp_path, mode) if broker == "memory" else on_nats(tmp_path, mode)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times for tests: what is told every few seconds is told at once."""
    monkeypatch.setattr(life, "REPORT_S", 0.05)
    monkeypatch.setattr(life, "TRUST_S", 0.3)
    monkeypatch.setattr(life, "MARGIN_S", 0.1)


async def go_silent(events: Subscription) -> None:
    """A process that is cut off: it neither hears nor answers, and does not know it."""
    source = events._source
    assert isinstance(source, DurableSource) and source._life is not None
    claim = source._life._claim
    await claim.close()

    async def unreachable() -> None:
        raise ConnectionFailed("cut off")

    claim.check = unreachable  # type: ignore[method-assign]
    claim.say = lambda *a, **k: unreachable()  # type: ignore[method-assign]


async def nobody_answers(claim: object, what: str, fix: str) -> None:
    """What a process finds that asks one that is too slow to answer."""


async def use_up(bus: Bus, events: Subscription, *texts: bytes) -> int:
    """Publish these, take and acknowledge them; returns the last number."""
    number = 0
    for text in texts:
        number = (await bus.publish("a", text)).number
        assert (await events.next(60.0)).data == text
    await events.acknowledge()
    return number


async def test_a_second_process_with_another_folder_is_refused(
    cluster: AbstractAsyncContextManager[Buses], tmp_path: Path
) -> None:
    async with (
        cluster as bus_of,
        bus_of() as bus,
        bus_of(journals=tmp_path / "one") as one,
        bus_of(journals=tmp_path / "two") as two,
        one.subscribe("a", durable="d") as events,
    ):
        await use_up(bus, events, b"1")
        for accept in (False, True):  # what lives is never put aside
            with pytest.raises(Taken, match="durable subscription 'd' is run by another process") as taken:
                async with two.subscribe("a", durable="d", accept=accept):
                    pass
            assert str(tmp_path / "one" / "d") in str(taken.value)
            assert "stop that process first, or subscribe under another name" in str(taken.value)
        await use_up(bus, events, b"2")  # the first one has noticed nothing
        async with two.subscribe("a", durable="e"):
            pass


async def test_two_that_start_together_are_told_which_one_it_is(
    cluster: AbstractAsyncContextManager[Buses], tmp_path: Path
) -> None:
    """Without lives each of them asked the nodes without an answer, and timed out."""
    async with cluster as bus_of, bus_of() as bus:
        buses = [bus_of(journals=tmp_path / name) for name in ("one", "two")]
        both = [each.subscribe("a", durable="d") for each in [await each.__aenter__() for each in buses]]
        results = await asyncio.gather(*(each.__aenter__() for each in both), return_exceptions=True)
        errors = [each for each in results if isinstance(each, BaseException)]
        assert len(errors) == 1, results
        refused = errors[0]
        assert isinstance(refused, Fenced | Taken), refused
        assert "process" in str(refused) and "durable subscription 'd'" in str(refused)
        [winner] = [each for each in both if each._state == "open"]
        await use_up(bus, winner, b"1")
        for each in (*both, *buses):
            await each.close()


async def test_a_folder_that_is_gone_is_told_from_a_new_one(
    cluster: AbstractAsyncContextManager[Buses], tmp_path: Path
) -> None:
    async with cluster as bus_of, bus_of() as bus, bus_of(journals=tmp_path / "j") as reader:
        async with reader.subscribe("a", durable="d") as events:
            number = await use_up(bus, events, b"1", b"2")
        shutil.rmtree(tmp_path / "j")
        await bus.publish("a", b"3")
        with pytest.raises(Behind) as behind:
            async with reader.subscribe("a", durable="d"):
                pass
        assert "the journal in " in str(behind.value) and "it is empty" in str(behind.value)
        assert f"had acknowledged a {number} at 20" in str(behind.value)
        assert "accept=True" in str(behind.value) and "under another name" in str(behind.value)
        with pytest.raises(Behind):  # it stays so
            async with reader.subscribe("a", durable="d"):
                pass
        async with reader.subscribe("a", durable="d", accept=True) as events:
            await use_up(bus, events, b"4")
            assert await events_left(events) == []
        async with reader.subscribe("a", durable="d") as events:  # from now on it is a journal like any other
            await use_up(bus, events, b"5")


async def events_left(events: Subscription) -> list[str]:
    """What comes in a moment."""
    found = []
    with pytest.raises(TimedOut):
        while True:
            found.append((await events.next(0.2)).data.decode())
    return found


async def test_an_older_copy_is_refused(cluster: AbstractAsyncContextManager[Buses], tmp_path: Path) -> None:
    journals = tmp_path / "j"
    async with cluster as bus_of, bus_of() as bus, bus_of(journals=journals) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await use_up(bus, events, b"1")
        shutil.copytree(journals, tmp_path / "of an earlier life")
        async with reader.subscribe("a", durable="d") as events:
            await use_up(bus, events, b"2")
            shutil.copytree(journals, tmp_path / "of this life")
            await use_up(bus, events, b"3", b"4")
        shutil.copytree(journals, tmp_path / "the latest")
        for copy, why in (("of an earlier life", "it ends before that life"), ("of this life", "it has 2 of 4")):
            shutil.rmtree(journals)
            shutil.copytree(tmp_path / copy, journals)
            with pytest.raises(Behind, match=why):
                async with reader.subscribe("a", durable="d"):
                    pass
        shutil.rmtree(journals)
        shutil.copytree(tmp_path / "the latest", journals)
        await bus.publish("a", b"5")
        async with reader.subscribe("a", durable="d") as events:
            assert data(await take(events, 1)) == ["5"]


async def test_an_older_copy_that_is_accepted_begins_anew(
    cluster: AbstractAsyncContextManager[Buses], tmp_path: Path
) -> None:
    """Also with other topics than the copy knows, which the nodes have heard of."""
    journals = tmp_path / "j"
    async with cluster as bus_of, bus_of() as bus, bus_of(journals=journals) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await use_up(bus, events, b"1")
        shutil.copytree(journals, tmp_path / "copy")
        async with reader.subscribe("a", durable="d") as events:
            await events.add("b", "c")
            await events.remove("c")
            await use_up(bus, events, b"2")
        shutil.rmtree(journals)
        shutil.copytree(tmp_path / "copy", journals)
        async with reader.subscribe("a", "b", durable="d", accept=True) as events:
            await bus.publish_many([("a", b"3"), ("b", b"4")])
            assert sorted(data(await take(events, 2))) == ["3", "4"]
            await events.add("c")
            await bus.publish("c", b"5")
            assert data(await take(events, 1)) == ["5"]


@pytest.mark.usefixtures("quick")
async def test_a_process_that_is_cut_off_is_fenced_before_another_one_hands_out(
    cluster: AbstractAsyncContextManager[Buses], tmp_path: Path
) -> None:
    async with (
        cluster as bus_of,
        bus_of() as bus,
        bus_of(journals=tmp_path / "one") as one,
        bus_of(journals=tmp_path / "two") as two,
    ):
        subscription = one.subscribe("a", durable="d", acknowledge="manual")
        events = await subscription.__aenter__()
        await use_up(bus, events, b"1")
        await bus.publish_many("a", [b"2", b"3"])
        await until("they are here", lambda: events.unread == 2)
        await go_silent(events)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        async with two.subscribe("a", durable="d", acknowledge="manual") as successor:
            assert data(await take(successor, 2)) == ["2", "3"]
            with pytest.raises(TimedOut):  # nothing more is handed out there, although two are in its hands
                await events.next(0.5)
            assert events.unread == 2
            await successor.acknowledge()
            await bus.publish("a", b"4")
            assert data(await take(successor, 1)) == ["4"]
        await subscription.close()


@pytest.mark.usefixtures("quick")
async def test_the_fenced_one_ends_with_what_happened(
    cluster: AbstractAsyncContextManager[Buses], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not answer in time, and hears later that another one has taken over."""
    async with (
        cluster as bus_of,
        bus_of() as bus,
        bus_of(journals=tmp_path / "one") as one,
        bus_of(journals=tmp_path / "two") as two,
        one.subscribe("a", durable="d", acknowledge="manual") as events,
        one.subscribe("a", durable="waits", acknowledge="manual") as waiting,
    ):
        await use_up(bus, events, b"1")
        await take(waiting, 1)
        await bus.publish("a", b"2")
        await until("it is here", lambda: events.unread == 1 and waiting.unread == 1)
        await take(waiting, 1)
        in_next = asyncio.ensure_future(waiting.next(60.0))
        monkeypatch.setattr(life, "refuse_if_taken", nobody_answers)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        async with two.subscribe("a", durable="d"), two.subscribe("a", durable="waits"):
            for lost in (events.next(60.0), events.acknowledge(), in_next):
                with pytest.raises(Fenced, match="was taken over: another process has taken over durable") as fenced:
                    await lost
                assert "Stop this process, or subscribe under another name" in str(fenced.value)
                assert str(tmp_path / "two") in str(fenced.value)
            assert events.unread == 1


async def test_a_restart_after_a_kill_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right journal is enough: no lease has to run out."""
    monkeypatch.setattr(life, "TRUST_S", 3_600.0)
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        for text in (b"1", b"2", b"3"):
            async with reader.subscribe("a", durable="d", acknowledge="manual") as events:
                await use_up(bus, events, text)
                await kill(events)


@pytest.mark.usefixtures("quick")
async def test_how_far_it_is_can_be_read(cluster: AbstractAsyncContextManager[Buses], tmp_path: Path) -> None:
    async with cluster as bus_of, bus_of() as bus, bus_of(journals=tmp_path / "j") as reader:
        lives = bus.session.connection.cluster.broker.lives  # type: ignore[attr-defined]
        assert await registered_durables(lives) == []
        async with reader.subscribe("a", "b", durable="d", acknowledge="manual") as events:
            number = await use_up(bus, events, b"1", b"2")

            async def is_told() -> bool:
                found = await registered_durable(lives, "d")
                return found is not None and found.acknowledged["a"] == number and "b" in found.acknowledged

            await waiting.until(is_told, "it has told how far it is")
        async with reader.subscribe("a", durable="other.one"):
            pass
        found = await registered_durables(lives)
        assert [each.name for each in found] == ["d", "other.one"]
        assert found[0].is_ended and found[0].epoch == 1 and str(tmp_path / "j" / "d") in found[0].where
        async with reader.subscribe("a", durable="d") as events:
            await events.unsubscribe()
        assert [each.name for each in await registered_durables(lives)] == ["other.one"]
        shutil.rmtree(tmp_path / "j" / "d")
        async with reader.subscribe("a", durable="d"):  # nothing is left of it that could be lost
            pass


async def test_the_first_life_after_an_upgrade(tmp_path: Path) -> None:
    """A journal from before lives were registered, and a registry that was deleted."""
    async with world() as w, w.bus() as bus, w.bus(journals=tmp_path) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await use_up(bus, events, b"1")
        w.broker.lives.lasts.clear()  # type: ignore[union-attr]
        async with reader.subscribe("a", durable="d") as events:
            await use_up(bus, events, b"2")
            assert isinstance(events._source, DurableSource) and isinstance(events._source.feed, Feed)


async def test_a_name_whose_journal_and_registered_life_are_lost_is_refused_by_the_nodes(tmp_path: Path) -> None:
    """They know a later change of it. Before, nobody answered, and it timed out without a reason."""
    async with world() as w, w.bus() as bus, w.bus(journals=tmp_path) as reader:
        for _ in range(2):
            async with reader.subscribe("a", durable="d") as events:
                await events.add("b")
                await events.remove("b")
                await use_up(bus, events, b"1")
        w.broker.lives.lasts.clear()  # type: ignore[union-attr]
        shutil.rmtree(tmp_path)
        with pytest.raises(RequestRefused, match="two processes have this name, or its journal is older"):
            async with reader.subscribe("a", durable="d"):
                pass


async def test_bad_arguments() -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(InputError, match="only a durable subscription can start over"):
            bus.subscribe("a", accept=True)
        with pytest.raises(InputError, match="accept: expected a bool"):
            bus.subscribe("a", durable="d", accept="yes")  # type: ignore[arg-type]


async def test_the_same_folder_is_still_refused_by_its_lock(tmp_path: Path) -> None:
    async with (
        world() as w,
        w.bus(journals=tmp_path) as one,
        w.bus(journals=tmp_path) as two,
        one.subscribe("a", durable="d"),
    ):
        with pytest.raises(JournalError, match="in use by process"):
            async with two.subscribe("a", durable="d"):
                pass
