"""Copies of journals of nodes and durable subscriptions: whether each may be used, and continuing from it elsewhere."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from seriatim import Bus, Subscription
from seriatim.backup.manifest import read_manifest
from seriatim.brokers.capabilities import BROKER
from seriatim.client.connect import connect
from seriatim.model import Behind, InputError, JournalError, RequestRefused
from tests.backup.world import backed_up, restored, words_of
from tests.brokers.nats.world import shared_server
from tests.live.test_health import TREE, configured, plain, serving


def alone(folder: Path, **more: Any) -> Any:
    folder.mkdir(exist_ok=True)
    return configured(folder, shared_server().url, {"root": {}}, **more)


def elsewhere(config: Any, folder: Path) -> Any:
    """The same cluster in another folder, as on another machine."""
    folder.mkdir(exist_ok=True)
    return structs.replace(config, folder=folder)


def orders(config: Any) -> str:
    """A topic of this cluster only: they share a server."""
    return f"{config.cluster}.orders"


def prices(config: Any) -> str:
    return f"{config.cluster}.prices"


async def published(config: Any, count: int = 3) -> None:
    async with connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus:
        for n in range(count):
            await bus.publish(orders(config), b"%d" % n)
            await bus.publish(prices(config), b"%d" % n)


async def holding(config: Any, bus: Bus) -> Subscription:
    events = bus.subscribe(orders(config), prices(config))
    await events.__aenter__()
    return events


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_node_moves_with_its_copy_and_an_earlier_one_is_refused(tmp_path: Path, mode: str) -> None:
    config = alone(tmp_path / "here", mode=mode)
    async with serving(config), connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus:
        events = await holding(config, bus)
        await published(config)
        made = await backed_up(config, tmp_path / "early")
        (kept,) = made.manifest.journals
        assert kept.holder and kept.life is not None and kept.records > 0
        assert [each.word for each in made.verdicts] == ["running"]
        await published(config)
        with pytest.raises(Behind, match=r"node root: the copy is running: it runs .*No journal was put back"):
            await restored(config, tmp_path / "early", to=tmp_path / "there" / "journal")
        await events.__aexit__(None, None, None)
    assert await words_of(config, tmp_path / "early") == ["older"]
    made = await backed_up(config, tmp_path / "late")
    assert [each.word for each in made.verdicts] == ["newest"]
    assert "nothing was written since" in made.verdicts[0].text
    other = elsewhere(config, tmp_path / "there")
    with pytest.raises(
        Behind, match=r"older: it cannot be continued from, and is refused at the start: it has \d+ records"
    ):
        await restored(other, tmp_path / "early")
    assert list((tmp_path / "there").iterdir()) == []
    (put,) = (await restored(other, tmp_path / "late")).journals
    assert put[1].word == "newest"
    assert (await restored(other, tmp_path / "late")).there == ["node root"], "it is not done twice"
    async with serving(other) as server, connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus:
        events = await holding(config, bus)
        published_event = await bus.publish(orders(config), b"on the other machine")
        assert (await events.next(60)).number == published_event.number == 7
        assert server.served["root"].host is not None and server.served["root"].host.epoch > kept.epoch
        await events.__aexit__(None, None, None)
    assert await words_of(config, tmp_path / "late") == ["older"], "the node has run elsewhere since"
    with pytest.raises(InputError, match=r"there is a journal in it; move it away"):
        await restored(other, tmp_path / "late")


async def test_a_tree_is_copied_as_a_whole_or_node_by_node(tmp_path: Path) -> None:
    config = configured(tmp_path, shared_server().url, TREE)
    async with serving(config):
        await published(config)
    made = await backed_up(config, tmp_path / "all")
    assert [(each.what, verdict.word) for each, verdict in zip(made.manifest.journals, made.verdicts, strict=True)] == [
        ("node root", "newest"),
        ("node eu", "newest"),
    ]
    await backed_up(config, tmp_path / "one", "eu")
    async with serving(config, ["root"]):
        assert await words_of(config, tmp_path / "all") == ["running", "newest"]
        assert await words_of(config, tmp_path / "one") == ["newest"]
    with pytest.raises(InputError, match="--node: the backup has none of 'root'; it has node eu"):
        await restored(config, tmp_path / "one", "root")
    with pytest.raises(InputError, match="--to: the backup has 2 journals, and this is one folder"):
        await restored(config, tmp_path / "all", to=tmp_path / "new")
    with pytest.raises(InputError, match="--node: there is no node 'asia'; use one of root, eu"):
        await backed_up(config, tmp_path / "none", "asia")
    with pytest.raises(InputError, match=r"--node: node us has no journal in .* on this machine"):
        away = configured(tmp_path, shared_server().url, {"root": {}, "us": {"parent": "root"}})
        await backed_up(away, tmp_path / "none", "us")
    journals = {"root": config.journal("eu"), "eu": config.journal("root")}
    nodes = {name: structs.replace(config.nodes[name], journal=journal) for name, journal in journals.items()}
    swapped = structs.replace(config, nodes=nodes)
    with pytest.raises(InputError, match="eu: the journal is that of root; check which folder belongs to which node"):
        await backed_up(swapped, tmp_path / "none", "eu")
    assert not (tmp_path / "none").exists()


async def test_a_broker_that_has_never_heard_of_a_node_knows_nothing(tmp_path: Path) -> None:
    """Neither does a cluster of another name; and a backup is not put back into one."""
    config = alone(tmp_path)
    async with serving(config):
        await published(config)
    await backed_up(config, tmp_path / "copy")
    other = alone(tmp_path / "other")
    assert await words_of(other, tmp_path / "copy") == ["unknown"]


@pytest.mark.parametrize("how", ["changed", "truncated", "missing", "longer"])
async def test_a_damaged_copy_is_good_for_nothing(tmp_path: Path, how: str) -> None:
    config = alone(tmp_path)
    async with serving(config):
        await published(config)
    await backed_up(config, tmp_path / "copy")
    (file,) = (tmp_path / "copy" / "node-root").iterdir()
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        changed = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        file.write_bytes({"changed": changed, "truncated": data[:-1], "longer": data + b"\0"}[how])
    assert await words_of(config, tmp_path / "copy") == ["damaged"]
    with pytest.raises(Behind, match=r"node root: the copy is damaged: .*segment-00000001.log"):
        await restored(config, tmp_path / "copy", to=tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_a_journal_on_the_broker_is_copied_and_put_back(tmp_path: Path) -> None:
    """Also from the broker into a folder."""
    config = configured(tmp_path, shared_server().url, {"root": {"journal": "broker"}})
    name = f"{config.cluster}-journal-root"
    async with serving(config):
        await published(config)
        made = await backed_up(config, tmp_path / "early")
        assert [each.word for each in made.verdicts] == ["running"]
        assert made.manifest.journals[0].holder.startswith("process ")
        await published(config)
    assert await words_of(config, tmp_path / "early") == ["older"]
    assert [each.word for each in (await backed_up(config, tmp_path / "late")).verdicts] == ["newest"]
    assert (await restored(config, tmp_path / "late")).there == ["node root"]
    async with serving(config):
        await published(config)  # a life that ends before it acts makes no copy older
    with pytest.raises(Behind, match="older"):
        await restored(config, tmp_path / "late")
    await backed_up(config, tmp_path / "newest")
    async with plain(config.broker) as (_, jetstream):
        await jetstream.delete_stream(name)
    with pytest.raises(InputError, match="its journal on the broker is not there, or empty"):
        await backed_up(config, tmp_path / "none")
    assert [each.what for each, _ in (await restored(config, tmp_path / "newest")).journals] == ["node root"]
    async with serving(config):
        await published(config)
    await backed_up(config, tmp_path / "to a folder")
    in_folder = structs.replace(config, nodes={"root": structs.replace(config.nodes["root"], journal="file:moved")})
    await restored(in_folder, tmp_path / "to a folder")
    async with serving(in_folder), connect(config.broker, cluster=config.cluster, timeout_s=60.0) as bus:
        assert (await bus.publish(orders(config), b"x")).number == 13


@pytest.mark.parametrize("where", ["folder", "broker"])
async def test_a_durable_subscription_goes_on_elsewhere_and_never_from_an_earlier_copy(
    tmp_path: Path, where: str
) -> None:
    config = alone(tmp_path)
    journals: Any = tmp_path / "state" if where == "folder" else None
    place = str(journals) if where == "folder" else BROKER

    async def seen(count: int, journals: Any = journals) -> list[bytes]:
        async with (
            connect(config.broker, cluster=config.cluster, journals=journals, timeout_s=60.0) as bus,
            bus.subscribe(orders(config), durable="billing") as events,
        ):
            found = [(await events.next(60)).data for _ in range(count)]
            await events.acknowledge()
            return found

    async with serving(config):
        await seen(0)
        await published(config)
        await seen(1)
        early = await backed_up(config, tmp_path / "early", durables=("billing",), journals=place)
        assert [each.word for each in early.verdicts] == ["newest"], early.verdicts
        assert await seen(1) == [b"1"]
        assert await words_of(config, tmp_path / "early") == ["older"]
        late = await backed_up(config, tmp_path / "late", durables=("billing",), journals=place)
        assert [each.word for each in late.verdicts] == ["newest"], late.verdicts
        with pytest.raises(Behind, match=r"durable subscription billing: the copy is older: .*accept"):
            await restored(config, tmp_path / "early", durables=("billing",), journals=str(tmp_path / "there"))
        await restored(config, tmp_path / "late", durables=("billing",), journals=str(tmp_path / "there"))
        async with (
            connect(config.broker, cluster=config.cluster, journals=tmp_path / "there", timeout_s=60.0) as bus,
            bus.subscribe(orders(config), durable="billing") as events,
        ):
            assert (await events.next(60)).data == b"2"
            made = await backed_up(config, tmp_path / "run", durables=("billing",), journals=str(tmp_path / "there"))
            assert [each.word for each in made.verdicts] == ["running"]
        assert await words_of(config, tmp_path / "late") == ["older"]


async def test_stations_are_copied_when_they_are_stopped(tmp_path: Path) -> None:
    config = configured(tmp_path, shared_server().url, {"one": {}}, order="atoms")
    async with serving(config):
        async with (
            connect(config.broker, cluster=config.cluster, timeout_s=60.0, order="atoms") as bus,
            bus.subscribe(orders(config)) as events,
        ):
            await bus.publish(orders(config), b"1")
            assert (await events.next(60)).data == b"1"
        with pytest.raises(RequestRefused, match=r"one: it runs .*; stop it first"):
            await backed_up(config, tmp_path / "early")
        assert not (tmp_path / "early").exists()
    made = await backed_up(config, tmp_path / "copy")
    assert [(each.word, each.text[:10]) for each in made.verdicts] == [("unknown", "of epoch 1")]
    other = elsewhere(config, tmp_path / "there")
    await restored(other, tmp_path / "copy")
    async with serving(other):
        pass
    assert await words_of(config, tmp_path / "copy") == ["older"]


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_no_backup_is_named(tmp_path: Path) -> None:
    config = alone(tmp_path / "cluster")
    async with serving(config):
        await published(config)
    copy = tmp_path / "copy"
    await backed_up(config, copy)
    data = (copy / "manifest.json").read_bytes()
    for folder, said in ((tmp_path / "none", "there is no folder"), (tmp_path, "has no manifest.json")):
        with pytest.raises(InputError, match=said):
            read_manifest(folder)
    for changed, said in (
        (data.replace(b'"seriatim_backup":1', b'"seriatim_backup":2'), "backup format 2, this program reads format 1"),
        (data.replace(b'"root"', b'"roof"'), "is damaged: it does not fit its digest"),
        (data[:-5], "is damaged"),
        (b"", "is damaged"),
    ):
        (copy / "manifest.json").write_bytes(changed)
        with pytest.raises(JournalError, match=said):
            read_manifest(copy)
    shutil.rmtree(copy / "node-root")
    (copy / "manifest.json").write_bytes(data)
    assert await words_of(config, copy) == ["damaged"]
