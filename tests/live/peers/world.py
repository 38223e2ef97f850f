"""The common part of the tests of peers: a list of peers on free ports of this machine, in a file, and buses on it."""

from pathlib import Path
from typing import Any, TypeVar

import seriatim
from seriatim.client import Bus
from seriatim.client.peers.session import PeerSession
from tests.ports import free_ports
from tests.waiting import until as until

T = TypeVar("T")

WAIT_S = 120.0  # a bound for a busy machine
# Times for a machine that does other things as well: nobody is suspected who is only slow.
OPTIONS = "heartbeat_ms = 200\nsuspect_after_ms = 3000\n"


def write_peers(folder: Path, count: int, options: str = OPTIONS, more: str = "") -> Path:
    """A peers.toml with so many peers on this machine."""
    lines = [f'{id} = "127.0.0.1:{port}"' for id, port in enumerate(free_ports(count))]
    path = folder / "peers.toml"
    path.write_text(more + "\n[peers]\n" + "\n".join(lines) + f"\n\n[options]\n{options}", encoding="utf-8")
    return path


def bus_of(path: Path, id: int, **options: Any) -> Bus:
    """A bus that is this peer; takes what `connect` takes."""
    return seriatim.connect(f"vcube://{path.resolve()}?id={id}", **{"timeout_s": 60.0, **options})


def peer_of(bus: Bus) -> PeerSession:
    """The peer behind it."""
    assert isinstance(bus.session, PeerSession)
    return bus.session
