"""The common part of the tests of overlays: a tree of brokers on free ports of this machine, in a file, and buses on
it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import seriatim
from seriatim.client import Bus
from seriatim.client.overlay.session import OverlaySession
from seriatim.live.overlay import LiveBroker, OverlayConfig, load_overlay
from tests.live.peers.world import until
from tests.ports import free_ports

__all__ = ["brokers", "bus_of", "session_of", "until", "write_overlay"]

# B1 is the root; B2 and B3 are below it, B4 and B5 below B2.
TREE = {"B1": "", "B2": "B1", "B3": "B1", "B4": "B2", "B5": "B2"}
OPTIONS = "suspect_after_ms = 1000\n"


def write_overlay(folder: Path, tree: dict[str, str] | None = None, options: str = OPTIONS, more: str = "") -> Path:
    """An overlay.toml with these brokers and their parents on this machine."""
    tree = TREE if tree is None else tree
    lines = [
        f'{name} = {{ address = "127.0.0.1:{port}", parent = "{parent}" }}'
        for (name, parent), port in zip(tree.items(), free_ports(len(tree)), strict=True)
    ]
    path = folder / "overlay.toml"
    path.write_text(more + "\n[brokers]\n" + "\n".join(lines) + f"\n\n[options]\n{options}", encoding="utf-8")
    return path


@asynccontextmanager
async def brokers(path: Path, *names: str) -> AsyncIterator[dict[str, LiveBroker]]:
    """These brokers of the file, or all, in this process."""
    config: OverlayConfig = load_overlay(path)
    running: dict[str, LiveBroker] = {}
    try:
        for name in names or config.brokers:
            running[name] = LiveBroker(config, name)
            await running[name].start()
        await until(lambda: all(is_joined(each, running) for each in running.values()), "all are connected")
        yield running
    finally:
        for broker in running.values():
            await broker.stop()


def is_joined(broker: LiveBroker, running: dict[str, LiveBroker]) -> bool:
    """Whether it is connected to all its neighbours that run."""
    return {each for each in broker.place.neighbours if each in running} <= set(broker.connected)


def bus_of(path: Path, broker: str, **options: Any) -> Bus:
    """A client of this broker; takes what `connect` takes."""
    return seriatim.connect(f"overlay://{path.resolve()}?broker={broker}", **{"timeout_s": 30.0, **options})


def session_of(bus: Bus) -> OverlaySession:
    """What is behind it."""
    assert isinstance(bus.session, OverlaySession)
    return bus.session
