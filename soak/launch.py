"""What every child process does first: take on the faults that must be inside it, and end with its parent.

    python -m soak.launch serve --config cluster.toml --node root

runs the command line with them. They come through the environment, since a real process has no argument for a broken
clock or a full disk:

SOAK_CLOCK_FILE       a file with the seconds by which this process's wall clock is wrong, read at every question
SOAK_FILE_BYTES_MAX   no file may grow beyond this: what a full disk does to a journal
"""

import os
import signal
import time
from pathlib import Path

from seriatim.runtime.with_parent import end_with_parent

CLOCK_FILE = "SOAK_CLOCK_FILE"
FILE_BYTES_MAX = "SOAK_FILE_BYTES_MAX"


def take_on_faults() -> None:
    """Call this before anything else is imported that might remember the right time."""
    end_with_parent(signal.SIGKILL)
    if path := os.environ.get(CLOCK_FILE):
        _break_clock(Path(path))
    if limit := os.environ.get(FILE_BYTES_MAX):
        _fill_disk(int(limit))


def _break_clock(path: Path) -> None:
    right = time.time

    def wrong() -> float:
        try:
            return right() + float(path.read_text(encoding="ascii") or 0)
        except FileNotFoundError:
            return right()

    time.time = wrong


def _fill_disk(limit: int) -> None:
    import resource  # not on Windows

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails with EFBIG instead of ending the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


if __name__ == "__main__":
    take_on_faults()
    from seriatim.cli import main

    main()
