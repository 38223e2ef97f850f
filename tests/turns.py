"""Turns: what only one process of this machine can do at a time, whichever run of tests it belongs to."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Waits until nobody else has this turn. The limit of the test bounds the wait."""
    with (Path(tempfile.gettempdir()) / f"seriatim-tests-{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file ends the turn
        yield
