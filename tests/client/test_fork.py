"""A forked child cannot use objects that its parent has opened, and gets an error immediately."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import ENVIRONMENT

LIMIT_S = 150.0

# Each script forks for real. `child` runs its argument there, prints what it returns or raises, and ends the child.
PRELUDE = """
import asyncio, multiprocessing, os, sys, threading
from pathlib import Path
from seriatim import connect as connect_async
from seriatim.client.sync import connect
from seriatim.model import Closed, SeriatimError

def child(work):
    pid = os.fork()
    if pid:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0, status
        return
    try:
        print("child:", work(), flush=True)
        os._exit(0)
    except SeriatimError as error:
        print("child:", type(error).__name__, error, flush=True)
        os._exit(0)
    except BaseException as error:
        print("child failed:", repr(error), flush=True)
        os._exit(1)
"""


def run(script: str, *arguments: str | Path) -> list[str]:
    """What the script prints. It has a bound: what is tested here used to wait for ever."""
    words = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ('bus.publish("a", b"1")', "bus"),
        ('bus.publish_nowait("a", b"1")', "bus"),
        ("events.next(30.0)", "subscription"),
        ("next(iter(events))", "subscription"),
        ("next(iter(events.batches()))", "subscription"),
        ("events.topics", "this"),
        ("queued.result()", "this"),
    ],
)
def test_a_child_is_told_at_once_and_the_parent_goes_on(call: str, kind: str) -> None:
    lines = run(
        f"""
with connect("memory://") as bus, bus.subscribe("a") as events:
    bus.publish("a", b"before")
    queued = bus.publish_nowait("a", b"queued")
    child(lambda: {call})
    assert queued.result(30.0).number == 2
    bus.publish("a", b"after")
    print([event.data.decode() for event in events.within(0.2)])
"""
    )
    assert len(lines) == 2 and lines[1] == "['before', 'queued', 'after']", lines
    assert lines[0].startswith("child: Closed"), lines
    assert "was opened before this process was forked" in lines[0] and "gunicorn: in post_fork" in lines[0]


def test_a_bus_that_the_child_opens_works_beside_its_parents() -> None:
    """As with `gunicorn --preload`: the module is imported, and a bus opened, before the workers are forked."""
    lines = run(
        """
def work():
    with connect("memory://") as own, own.subscribe("a") as events:
        own.publish("a", b"own")
        try:
            bus.publish("a", b"the parent's")
        except Closed as error:
            print("first:", error, flush=True)
        return events.next(30.0).data

with connect("memory://") as bus:
    bus.publish("a", b"before")
    child(work)
    assert bus.publish("a", b"after").number == 2
"""
    )
    assert lines[0].startswith("first: the bus was opened before this process was forked"), lines
    assert lines[1] == "child: b'own'", lines


def test_a_child_that_leaves_the_block_closes_nothing_of_its_parent() -> None:
    lines = run(
        """
with connect("memory://") as bus, bus.subscribe("a") as events:
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        bus.publish("a", b"after")
        print(events.next(30.0).data, flush=True)
if not pid:
    os._exit(0)
"""
    )
    assert lines == ["b'after'"]


def test_workers_of_multiprocessing() -> None:
    lines = run(
        """
def worker():
    try:
        bus.publish("a", b"1")
    except Closed as error:
        print("worker:", error, flush=True)

bus = connect("memory://").__enter__()
worker_process = multiprocessing.get_context("fork").Process(target=worker)
worker_process.start()
worker_process.join(30.0)
assert worker_process.exitcode == 0, worker_process.exitcode
bus.__exit__()
"""
    )
    assert len(lines) == 1 and lines[0].startswith("worker: this was opened before this process was forked"), lines


@pytest.mark.parametrize(
    "call",
    [
        'asyncio.run(bus.publish("a", b"1"))',
        "asyncio.run(anext(events))",
        "asyncio.run(events.next(30.0))",
        'bus.publish_nowait("a", b"1")',
        'bus.subscribe("b")',
        "asyncio.run(events.add('b'))",
        "asyncio.run(bus.flush())",
    ],
)
def test_an_asynchronous_bus_in_a_child(call: str) -> None:
    lines = run(
        f"""
async def main():
    async with connect_async("memory://") as bus, bus.subscribe("a") as events:
        await bus.publish_many("a", [b"1", b"2"])
        await events.next(30.0)
        child(lambda: {call})
        print((await events.next(30.0)).data.decode())
        await bus.publish("a", b"3")
        print((await events.next(30.0)).data.decode())

asyncio.run(main())
"""
    )
    assert lines[0].startswith("child: Closed the ") and "was opened before this process was forked" in lines[0], lines
    assert lines[1:] == ["2", "3"]


def test_closing_in_a_child_leaves_the_parents_bus_alone() -> None:
    lines = run(
        """
async def main():
    async with connect_async("memory://") as bus, bus.subscribe("a") as events:
        child(lambda: [asyncio.run(events.close()), asyncio.run(bus.close())])
        await bus.publish("a", b"3")
        print((await events.next(30.0)).data.decode())

asyncio.run(main())
"""
    )
    assert lines == ["child: [None, None]", "3"]


def test_a_child_that_lives_on_does_not_keep_its_parents_journal(tmp_path: Path) -> None:
    lines = run(
        """
from seriatim.runtime import FileJournal
folder = Path(sys.argv[1])

async def open_it():
    journal = FileJournal(folder)
    await journal.open()
    return journal

reads, writes = os.pipe()
first = os.fork()
if not first:  # opens the journal, forks a child that lives on, and is killed
    journal = asyncio.run(open_it())
    if not os.fork():
        os.close(writes)
        os.read(reads, 1)  # until the test has ended
        os._exit(0)
    os._exit(0)
os.waitpid(first, 0)
journal = asyncio.run(open_it())
asyncio.run(journal.close())
print("opened")
os.write(writes, b"x")
""",
        tmp_path / "journal",
    )
    assert lines == ["opened"]
