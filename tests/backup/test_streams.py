"""Everything that the broker keeps, copied with the journals and put back on a server that has nothing left."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from seriatim.backup.manifest import STREAMS, read_manifest
from seriatim.brokers.capabilities import Part
from seriatim.brokers.nats.copies import NatsCopies
from seriatim.client.connect import connect
from seriatim.model import Behind, ConnectionFailed, InputError, JournalError, RequestRefused, SeriatimError
from tests.backup.world import backed_up, broker_of, place_of, restored, words_of
from tests.brokers.nats.servers import OwnServer, running_server
from tests.live.test_health import TREE, configured, healthy, plain, serving


def made_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def moved(config: Any, server: OwnServer, folder: Path) -> Any:
    """The same cluster on another machine, with another server."""
    folder.mkdir(exist_ok=True)
    return structs.replace(config, folder=folder, broker=server.url)


async def seen(config: Any, count: int, **more: Any) -> list[tuple[str, int, bytes]]:
    """What the durable subscription is handed and acknowledges."""
    async with (
        connect(config.broker, cluster=config.cluster, journals=config.folder / "state", timeout_s=60.0) as bus,
        bus.subscribe("orders", "prices", durable="billing", **more) as events,
    ):
        found = [await events.next(60) for _ in range(count)]
        await events.acknowledge()
        return [(each.topic, each.number, each.data) for each in found]


async def published(config: Any, name: str, count: int = 3) -> None:
    async with connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus:
        for n in range(count):
            await bus.publish("orders", f"{name} order {n}".encode())
            await bus.publish("prices", f"{name} price {n}".encode())


async def states(server: OwnServer) -> dict[str, tuple[int, int]]:
    async with plain(server.url) as (_, jetstream):
        return {
            each.config.name or "": (each.state.messages, each.state.last_seq)
            for each in await jetstream.streams_info()
        }


@pytest.fixture
async def lost(tmp_path: Path) -> AsyncIterator[tuple[Any, OwnServer]]:
    """A tree that has run, with its root on the broker, was copied with everything, and is gone; and a new server.

    `prices` is a stream of somebody else. A durable subscription has seen the first four events.
    """
    nodes = {"root": {"journal": "broker"}, "eu": TREE["eu"]}
    async with running_server(tmp_path / "nats") as server:
        config = configured(
            made_folder(tmp_path / "cluster"), server.url, nodes, homes={"orders": "eu", "prices": "root"}
        )
        async with plain(server.url) as (_, jetstream):
            await jetstream.add_stream(name="PRICES", subjects=["prices"])
            await jetstream.add_stream(name="strange", subjects=["strange"])
        async with serving(config):
            assert await seen(config, 0) == []
            await published(config, "early")
            assert len(await seen(config, 4)) == 4
            with pytest.raises(RequestRefused, match=r"node (eu|root) runs .*; stop all nodes, then copy the streams"):
                await backed_up(config, tmp_path / "copy", streams=True)
        made = await backed_up(
            config, tmp_path / "copy", durables=("billing",), journals=str(config.folder / "state"), streams=True
        )
        assert {each.word for each in made.verdicts} == {"newest"}
        before = await states(server)
    names = [each.part.name for each in made.manifest.parts]
    assert set(names) == before.keys() - {"strange"}
    assert (names[0], names[-1]) == (f"{config.cluster}-lives", f"{config.cluster}-journal-root")
    assert made.manifest.missing == []
    async with running_server(tmp_path / "new nats") as server:
        yield moved(config, server, tmp_path / "new"), server


async def goes_on(config: Any) -> None:
    """Numbers, positions and the durable subscription go on behind what was copied."""
    async with serving(config) as served:
        await healthy(served)
        await published(config, "late", 1)
        found = await seen(config, 4)
        assert [number for topic, number, _ in found if topic == "orders"] == [3, 4]
        assert [number for topic, number, _ in found if topic == "prices"] == [3, 4]
        assert [data for _, _, data in found][2:] == [b"late order 0", b"late price 0"]
        async with (
            connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus,
            bus.subscribe("orders", "prices", start="first") as events,
        ):
            past = [await events.next(60) for _ in range(8)]
        assert [each.data for each in past[::2]] == [
            b"early order 0",
            b"early order 1",
            b"early order 2",
            b"late order 0",
        ]
        assert [each.position for each in past if each.position is not None] == sorted(
            each.position for each in past if each.position is not None
        )


async def test_everything_goes_on_as_it_was(lost: tuple[Any, OwnServer], tmp_path: Path) -> None:
    config, server = lost
    copy, place = tmp_path / "copy", str(config.folder / "state")
    assert await words_of(config, copy) == ["unknown"] * 3, "a server that has never heard of them"
    done = await restored(config, copy, journals=place, streams=True)
    assert done.parts == [each.part.name for each in read_manifest(copy).parts]
    assert done.there == [], "the journal of the root is one of the streams"
    assert [(kept.what, verdict.word) for kept, verdict in done.journals] == [
        ("node eu", "newest"),
        ("durable subscription billing", "newest"),
    ]
    manifest = read_manifest(copy)
    assert await states(server) == {each.part.name: (each.part.messages, each.part.last) for each in manifest.parts}
    await goes_on(config)
    assert await words_of(config, copy) == ["older", "older", "older"]
    with pytest.raises(InputError, match="there is a journal in it"):
        await restored(config, copy, journals=place, streams=True)
    shutil.rmtree(config.folder / f"journal-{config.cluster}.eu")
    shutil.rmtree(config.folder / "state")
    with pytest.raises(RequestRefused, match=r"is there already, with .* A backup is put back as a whole"):
        await restored(config, copy, journals=place, streams=True)


@pytest.mark.parametrize("ends_after", [0, 1, 4, 7])
async def test_what_was_ended_in_between_is_done_again(
    lost: tuple[Any, OwnServer], tmp_path: Path, ends_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile no node acts: it is registered, and has no journal."""
    config, _ = lost
    copy, place = tmp_path / "copy", str(config.folder / "state")
    write, written = NatsCopies.write, 0

    async def write_or_end(copies: NatsCopies, part: Part, pieces: AsyncIterator[bytes]) -> None:
        nonlocal written

        async def some() -> AsyncIterator[bytes]:
            async for piece in pieces:
                yield piece
                if written == ends_after:
                    raise ConnectionFailed("the cable was pulled")

        await write(copies, part, some())
        written += 1

    with monkeypatch.context() as patch, pytest.raises(ConnectionFailed, match="the cable was pulled"):
        patch.setattr(NatsCopies, "write", write_or_end)
        await restored(config, copy, journals=place, streams=True)
    assert not config.folder.joinpath("state").exists()
    assert written == ends_after
    if ends_after:
        with pytest.raises(Behind, match="has lost its journal"):
            async with serving(config, ["eu"]):
                raise AssertionError("it acts")
        assert (config.folder / f"journal-{config.cluster}.eu" / "lock").exists(), "it has begun one without records"
    done = await restored(config, copy, journals=place, streams=True)
    assert len([each for each in done.there if each != "node root"]) >= ends_after
    await goes_on(config)


async def test_a_backup_of_everything_that_is_damaged_changes_nothing(
    lost: tuple[Any, OwnServer], tmp_path: Path
) -> None:
    config, server = lost
    copy = tmp_path / "copy"
    path = sorted((copy / STREAMS).iterdir())[-1]
    data = path.read_bytes()
    for changed in (data[:-1], data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        path.write_bytes(changed)
        with pytest.raises(JournalError, match="Use another backup"):
            await words_of(config, copy)
        with pytest.raises(JournalError, match="Use another backup"):
            await restored(config, copy, journals=str(config.folder / "state"), streams=True)
    assert await states(server) == {}
    path.write_bytes(data)
    with pytest.raises(RequestRefused, match=r"STREAM\.RESTORE|the NATS server says"):
        async with broker_of(place_of(config)) as broker:
            assert broker.copies is not None
            wrong = structs.replace(read_manifest(copy).parts[-1].part, name="another")
            await broker.copies.write(wrong, _pieces(data))
    assert "another" not in await states(server)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_a_node_that_was_started_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server(tmp_path / "nats") as server:
        config = configured(made_folder(tmp_path / "cluster"), server.url, {"root": {"journal": "broker"}})
        async with serving(config):
            await published(config, "early")
        look = NatsCopies.parts

        async def start_and_look(copies: NatsCopies) -> list[Part]:
            async with serving(config):
                pass
            return await look(copies)

        with monkeypatch.context() as patch, pytest.raises(RequestRefused, match="was started while its streams were"):
            patch.setattr(NatsCopies, "parts", start_and_look)
            await backed_up(config, tmp_path / "copy", streams=True)
        assert not (tmp_path / "copy").exists()
        made = await backed_up(config, tmp_path / "copy", streams=True)
        assert [each.word for each in made.verdicts] == ["newest"]


async def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as server:
        config = configured(made_folder(tmp_path / "cluster"), server.url, {"root": {}}, streams={"storage": "memory"})
        async with serving(config):
            await published(config, "early")
        with pytest.raises(InputError, match="is kept in memory, which the server does not copy"):
            await backed_up(config, tmp_path / "copy", streams=True)
        core = structs.replace(config, broker=server.url.replace("nats", "nats+core", 1), mode="ticket")
        with pytest.raises(SeriatimError, match="registers no lives"):
            await backed_up(core, tmp_path / "copy", streams=True)


async def test_slots_and_tickets_are_as_they_were(tmp_path: Path) -> None:
    """Ticket mode, two nodes: numbers that were granted are not granted again."""
    async with running_server(tmp_path / "nats") as server:
        config = configured(made_folder(tmp_path / "cluster"), server.url, TREE, mode="ticket", homes={"orders": "eu"})
        async with serving(config):
            await published(config, "early")
        await backed_up(config, tmp_path / "copy", streams=True)
    async with running_server(tmp_path / "new nats") as server:
        config = moved(config, server, tmp_path / "new")
        await restored(config, tmp_path / "copy", streams=True)
        async with (
            serving(config),
            connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus,
            bus.subscribe("orders", "prices") as events,
        ):
            await bus.publish("orders", b"late order")
            await bus.publish("prices", b"late price")
            found = [await events.next(60) for _ in range(2)]
            assert [(each.number, each.data) for each in found] == [(4, b"late order"), (4, b"late price")]


async def test_buckets_are_copied_with_their_names(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as server:
        config = configured(made_folder(tmp_path / "cluster"), server.url, {"root": {}}, streams={"buckets": 2})
        async with serving(config):
            await published(config, "early")
        made = await backed_up(config, tmp_path / "copy", streams=True)
        assert sum(each.part.topic.startswith("bucket-") for each in made.manifest.parts) > 0
        before = await states(server)
    async with running_server(tmp_path / "new nats") as server:
        config = moved(config, server, tmp_path / "new")
        await restored(config, tmp_path / "copy", streams=True)
        assert await states(server) == before
        async with (
            serving(config),
            connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus,
            bus.subscribe("orders", "prices", start="first") as events,
        ):
            await bus.publish("orders", b"late")
            assert [(await events.next(60)).data for _ in range(7)][-1] == b"late"
