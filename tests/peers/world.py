"""What tests of peers share: a list of peers on free ports of this machine, in a file, and buses on it."""

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import seriatim
from seriatim.client import Bus
from seriatim.client.peer_bus import PeerBus

T = TypeVar("T")

WAIT_S = 120.0  # a bound for a busy machine
# Times for a machine that does other things as well: nobody is suspected who is only slow.
OPTIONS = "heartbeat_ms = 200\nsuspect_after_ms = 3000\n"


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float = 240.0) -> T:
    """Run a test's coroutine in a loop of its own, bounded."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await coroutine

    return asyncio.run(bounded())


async def until(is_so: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait for a condition, bounded."""
    end = asyncio.get_running_loop().time() + timeout_s
    while not is_so():
        assert asyncio.get_running_loop().time() < end, f"never: {what}"
        await asyncio.sleep(0.005)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, below those that the system gives to outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def write_peers(folder: Path, count: int, options: str = OPTIONS, more: str = "") -> Path:
    """A peers.toml with so many peers on this machine."""
    lines = [f'{id} = "127.0.0.1:{port}"' for id, port in enumerate(free_ports(count))]
    path = folder / "peers.toml"
    path.write_text(more + "\n[peers]\n" + "\n".join(lines) + f"\n\n[options]\n{options}", encoding="utf-8")
    return path


def bus_of(path: Path, id: int, **options: Any) -> PeerBus:
    """A bus that is this peer; takes what `connect` takes."""
    bus: Bus = seriatim.connect(f"vcube://{path.resolve()}?id={id}", **{"timeout_s": 60.0, **options})
    assert isinstance(bus, PeerBus)
    return bus
