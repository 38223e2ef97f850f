"""Clusters on a real NATS server, in this process, and their backups."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from seriatim.backup.judging import Word
from seriatim.backup.making import Made, make
from seriatim.backup.manifest import read_manifest
from seriatim.backup.restoring import PutBack, judged, put_back
from seriatim.brokers import Broker
from seriatim.cli.backups import ClusterAccess, sources_of, targets_of
from seriatim.live.server import broker_options


def place_of(config: Any) -> ClusterAccess:
    """Where a cluster is, as the commands know it."""
    return ClusterAccess(
        cluster=config.cluster, url=config.broker, options=broker_options(config), timeout_s=60.0, config=config
    )


@asynccontextmanager
async def broker_of(place: ClusterAccess) -> AsyncIterator[Broker]:
    async with place.opened(is_needed=True) as broker:
        assert broker is not None
        yield broker


async def backed_up(
    config: Any,
    to: Path,
    *nodes: str,
    durables: tuple[str, ...] = (),
    journals: str | None = None,
    streams: bool = False,
) -> Made:
    place = place_of(config)
    async with broker_of(place) as broker:
        sources, _ = await sources_of(place, broker, nodes, durables, journals, everything=streams)
        return await make(sources, to, cluster=place.cluster, broker=broker, with_parts=streams)


async def words_of(config: Any, folder: Path) -> list[Word]:
    """What each copy is, in a word."""
    async with broker_of(place_of(config)) as broker:
        return [each.word for each in await judged(folder, read_manifest(folder), broker, "")]


async def restored(
    config: Any,
    folder: Path,
    *nodes: str,
    to: Path | None = None,
    durables: tuple[str, ...] = (),
    journals: str | None = None,
    streams: bool = False,
) -> PutBack:
    place, manifest = place_of(config), read_manifest(folder)
    async with broker_of(place) as broker:
        targets = targets_of(place, broker, manifest, nodes, durables, journals, to)
        return await put_back(folder, manifest, targets, broker, with_parts=streams)
