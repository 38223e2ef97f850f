"""Limits of the system: open files. And the loop a program runs on."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seriatim.live.tree import wire
from seriatim.runtime.loop import run
from seriatim.runtime.net.dialer import Dialer, Peer
from seriatim.runtime.net.switchboard import Switchboard
from tests.runtime.net.hosts import CLUSTER, QUICK, WAIT_S, Asker, until

# A server that may have few files open; it ends when its input is closed.
PROGRAM = """
import asyncio, resource, sys
from tests.runtime.net.hosts import serving

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    async with serving() as listener:
        print(listener.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(listener.accepted, flush=True)

asyncio.run(main())
"""


@contextmanager
def small_server() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


async def test_a_server_without_file_descriptors_goes_on_when_there_are_some_again() -> None:
    with small_server() as (address, process):
        host, _, port = address.rpartition(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(60)]  # the kernel takes them all
        switchboard = Switchboard()
        asker = Asker(switchboard, "client")
        dialer = Dialer(
            switchboard, [Peer("root", (address,))], cluster=CLUSTER, decoders=wire.TREE, name="client", options=QUICK
        )
        dialer.start()
        for _, writer in crowd:
            writer.transport.abort()
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer when the crowd is gone")
        await dialer.stop()
        output, errors = process.communicate("", timeout=WAIT_S)
        assert int(output) >= 30
        assert "cannot accept" in errors, "it never ran out of file descriptors"
        assert process.returncode == 0


@pytest.mark.parametrize("uvloop", [True, False])
def test_run_returns_what_the_coroutine_returns_on_the_loop_that_was_asked_for(uvloop: bool) -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    expected = "uvloop" if uvloop else "asyncio"
    assert run(main(), uvloop=uvloop) == expected


def test_run_does_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    monkeypatch.setitem(sys.modules, "uvloop", None)  # importing it fails from now on
    assert run(main()) == "asyncio"
