"""A child process that does not outlive the one that started it, also when that one is killed.

    python with_parent.py 15 4711 nats-server --config file

runs the command in place of this interpreter; the kernel sends it signal 15 when process 4711, its parent, is gone.
Only the standard library is imported here, so that the file can be run alone, immediately and before anything else.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int) -> None:
    """Ask for this signal when the parent is gone. Only Linux can: elsewhere a killed parent leaves children behind.

    For the kernel the parent is the *thread* that started this process: it must live as long as the child may.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def ending_with_parent(command: list[str], number: int = signal.SIGTERM) -> list[str]:
    """The command line that does the same for any program. Where the kernel cannot do it: the command as it is."""
    if sys.platform != "linux":
        return command
    # Isolated and without site-packages: nothing but this file is wanted, and it starts in 20 ms.
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(int(number)), str(os.getpid()), *command]


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    if os.getppid() == int(sys.argv[2]):  # else it was gone before it could be watched
        os.execv(sys.argv[3], sys.argv[3:])
