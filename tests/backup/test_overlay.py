"""Brokers of an overlay: copied when they are stopped; and peers, which keep nothing to copy."""

from pathlib import Path

import pytest
from msgspec import structs

from seriatim.backup.making import Made, make
from seriatim.backup.manifest import read_manifest
from seriatim.backup.restoring import judged, put_back
from seriatim.cli.backups import ClusterAccess, sources_of, targets_of
from seriatim.model import InputError, RequestRefused
from tests.live.overlay.world import brokers, bus_of, write_overlay


def place_of(path: Path) -> ClusterAccess:
    return ClusterAccess.of(path, None, None, offline=False, timeout_s=1.0)


async def backed_up(path: Path, to: Path, *names: str) -> Made:
    place = place_of(path)
    sources, _ = await sources_of(place, None, names, (), None)
    return await make(sources, to, cluster=place.cluster, broker=None)


async def test_a_broker_moves_with_its_copy(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"B1": "", "B2": "B1"})
    async with brokers(path) as running, bus_of(path, "B1") as bus:
        epochs = [each.epoch for each in running.values()]
        async with bus.subscribe("orders") as events:
            await bus.publish("orders", b"1")
            assert (await events.next(60)).data == b"1"
        with pytest.raises(RequestRefused, match=r"B1: it runs \(process \d+\), .* stop it first"):
            await backed_up(path, tmp_path / "early", "B1")
    made = await backed_up(path, tmp_path / "copy")
    assert [kept.what for kept in made.manifest.journals] == ["broker B1", "broker B2"]
    assert [kept.epoch for kept in made.manifest.journals] == epochs
    manifest = read_manifest(tmp_path / "copy")
    assert [each.word for each in await judged(tmp_path / "copy", manifest, None, "")] == ["unknown", "unknown"]
    place = place_of(path)
    assert place.overlay is not None
    other = structs.replace(place, overlay=structs.replace(place.overlay, journals="elsewhere"))
    targets = targets_of(other, None, manifest, (), (), None, None)
    assert [kept.name for kept, _ in (await put_back(tmp_path / "copy", manifest, targets, None)).journals] == [
        "B1",
        "B2",
    ]
    path.write_text('journals = "elsewhere"\n' + path.read_text())
    async with brokers(path) as running:
        assert all(each.epoch > epoch for each, epoch in zip(running.values(), epochs, strict=True))


async def test_what_cannot_be_copied_says_so(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"B1": ""})
    with pytest.raises(InputError, match=r"--node: broker B1 has no journal in .* on this machine"):
        await sources_of(place_of(path), None, ("B1",), (), None)
    peers = tmp_path / "peers.toml"
    peers.write_text('[peers]\n0 = "127.0.0.1:7500"\n')
    with pytest.raises(InputError, match="--config: peers keep nothing that could be copied"):
        place_of(peers)
