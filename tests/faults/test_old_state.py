"""Old journals, lost ones and second processes of brokers, stations and peers: refused, and nobody else notices."""

import asyncio
from pathlib import Path

import pytest

from soak.atoms.run import Stage, judge
from soak.loop import Judged
from soak.overlay.run import OverlaySystem
from soak.overlay.verify import verify_overlay
from soak.peers.run import PeerSystem
from soak.peers.verify import verify_peers

pytestmark = pytest.mark.long


def is_spotless(verdict: Judged, refused: int) -> None:
    assert verdict.violations == []
    assert verdict.refused == refused
    assert set(verdict.answers.values()) == {"valid"}


async def test_brokers(tmp_path: Path) -> None:
    system = OverlaySystem(tmp_path / "round", 7, 40.0, tree={"B1": "", "B2": "B1", "B3": "B2"})
    try:
        await system.start()
        for name in ("B2", "B1"):
            await system.age_journal(name)
        for name, has_copy in (("B2", True), ("B3", False), ("B1", True)):
            await system.claim(name, has_copy)
        await system.drain()
    finally:
        await system.stop()
    verdict = verify_overlay(system.folder)
    verdict.take_refusals(system.refusals)
    is_spotless(verdict, 7)


@pytest.mark.parametrize("causal", [False, True], ids=["total", "causal"])
async def test_stations(tmp_path: Path, causal: bool) -> None:
    stage = Stage(tmp_path / "round", 7, 20.0, causal)
    try:
        await stage.start()
        stage.publish()
        assert await stage.age_journal("one"), "it is the ingress of three of the four topics"
        claimed, aged = await asyncio.gather(stage.claim("one", has_copy=True), stage.age_journal("three"))
        assert claimed is None and aged
        await stage.claim("two", has_copy=False)
        await stage.drain()
    finally:
        await stage.stop()
    verdict = judge(stage.folder, causal)
    verdict.take_refusals(stage.refusals)
    is_spotless(verdict, 6)


async def test_peers(tmp_path: Path) -> None:
    system = PeerSystem(tmp_path / "round", 4, 7, 10.0)
    try:
        await system.start()
        await asyncio.gather(system.claim(0, has_copy=True), system.claim(2, has_copy=False))
        for _ in range(2):  # with no journal, and then with that of an earlier life
            await system.age_journal(1)
        await system.drain()
    finally:
        await system.stop()
    verdict = verify_peers(system.folder, system.unharmed)
    verdict.take_refusals(system.refusals)
    is_spotless(verdict, 2)
    assert verdict.stable == 2 and verdict.lives == 6
