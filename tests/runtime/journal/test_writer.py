"""The writer's thread: work in order, errors to who waits, and an end."""

import asyncio
import threading

import pytest

from seriatim.model import Closed, JournalError
from seriatim.runtime.journal.writer import Writer


async def test_work_is_done_in_order_beside_the_loop() -> None:
    writer = Writer("test")
    done: list[int] = []
    threads = set()
    gate = threading.Event()

    def work(number: int) -> int:
        threads.add(threading.current_thread().name)
        assert gate.wait(60)
        done.append(number)
        return number * number

    futures = [writer.submit(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]
    assert done == [], "it does not wait"
    gate.set()
    assert await asyncio.gather(*futures) == [number * number for number in range(20)]
    assert done == list(range(20)) and threads == {"test"}
    writer.end()


@pytest.mark.parametrize("error", [JournalError("no"), OSError(28, "full"), KeyError("a mistake"), MemoryError()])
async def test_an_error_goes_to_who_waits_and_the_thread_goes_on(error: Exception) -> None:
    writer = Writer("test")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await writer.submit(fail)
    assert await writer.submit(lambda: 7) == 7
    writer.end()


async def test_who_stops_waiting_does_not_stop_the_work() -> None:
    writer = Writer("test")
    done: list[str] = []
    gate = threading.Event()
    waits = writer.submit(lambda: gate.wait(60))
    cancelled = writer.submit(lambda: done.append("done anyway"))
    cancelled.cancel()
    gate.set()
    assert await waits
    await writer.submit(lambda: None)
    assert done == ["done anyway"]
    writer.end()


async def test_what_was_handed_over_is_finished_at_the_end() -> None:
    writer = Writer("test")
    last = writer.submit(lambda: "finished")
    writer.end()
    writer.end()
    assert await last == "finished"
    with pytest.raises(Closed, match="test has ended"):
        writer.submit(lambda: None)
    writer._thread.join(60)
    assert not writer._thread.is_alive()


def test_a_loop_that_is_gone_ends_the_thread() -> None:
    gate = threading.Event()
    threads = []

    async def leave() -> None:
        writer = Writer("test")
        threads.append(writer._thread)
        writer.submit(lambda: gate.wait(60))

    asyncio.run(leave())
    gate.set()
    threads[0].join(60)
    assert not threads[0].is_alive()
