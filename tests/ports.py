"""Ports for servers that a test starts later, or starts again.

They lie below those that the system gives to whoever asks for any port, so nobody else takes one in the meantime. Each
worker of a test run has its own, and gives none of them twice.
"""

import os
import socket
from collections.abc import Iterator

FIRST, LAST = 10_000, 31_999  # Linux gives away those from 32768 on
WORKERS = 10


def _candidates() -> Iterator[int]:
    """All ports of this worker, once, beginning elsewhere in each process: other runs may be under way."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    count = (LAST - FIRST + 1) // WORKERS
    begin = os.getpid() * 37
    for each in range(count):
        yield FIRST + worker * count + (begin + each) % count


_left = _candidates()


def free_port() -> int:
    """A port of this machine that nobody listens on, and that was not given before."""
    for port in _left:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("this process has given away all its ports")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
