"""Two processes that may run the same node, on one stream of a real NATS server: numbers go on and never repeat."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.live.tree.standby import Standby
from seriatim.model import Address, InputError
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Granted, Settled, Ticket
from seriatim.runtime.journal.interface import Recovered
from tests.brokers.nats.servers import Connection, Proxy, connected, running_server, until
from tests.live.tree.nodes import TICKETS, Site
from tests.waiting import a_moment

REPOSITORY = Path(__file__).parents[3]


class Candidate:
    """A process that would run the node: a site, a connection, a standby.

    `impatient`: silence counts. As long as it does not, the clock stands still, and nobody is replaced for being slow.
    `is_under_way`: it waits for silence, or opens the journal.
    """

    def __init__(
        self,
        client: Connection,
        *,
        eager: bool = False,
        impatient: bool = False,
        site: Site | None = None,
        patience_s: float = 60.0,
    ) -> None:
        self.site = site if site is not None else Site()
        self.impatient = impatient
        self.is_under_way = False
        self.reasons: list[str] = []
        outer = self

        def clock() -> float:
            return time.monotonic() if self.impatient else 0.0

        class Journal(NatsJournal):
            async def open(self) -> Recovered:
                outer.is_under_way = True
                return await super().open()

            async def wait_until_silent(self, silent_s: float, clock: Callable[[], float] = clock) -> None:
                outer.is_under_way = True
                await super().wait_until_silent(silent_s, clock)

        self.standby = Standby(
            "root",
            make_journal=lambda: Journal(client.link, "J", beat_s=0.05, timeout_s=0.3, patience_s=patience_s),
            make_host=self.site.host,
            silent_s=0.8,
            eager=eager,
            on_change=lambda host, reason: self.reasons.append(f"{'active' if host else 'standby'}: {reason}"),
        )
        self.standby.start()

    @property
    def is_active(self) -> bool:
        if self.standby.failed.done():
            raise self.standby.failed.result()
        return self.standby.host is not None

    async def stop(self) -> None:
        await asyncio.wait_for(self.standby.stop(), 60)


class Load:
    """Publishers that ask every candidate, repeat what is not answered, and keep what they were granted."""

    def __init__(self, candidates: list[Candidate], publishers: int = 5) -> None:
        self.candidates = candidates
        self.granted: dict[int, tuple[Address, int]] = {}  # number of A → who has it, for which request
        self.order: list[int] = []
        self.is_over = False
        self.tasks = [asyncio.ensure_future(self._publish(f"p{index}")) for index in range(publishers)]

    async def _publish(self, name: Address) -> None:
        request = 0
        while not self.is_over:
            request += 1
            granted = await self._ask(name, request)
            if granted is None:
                return
            assert self.granted.setdefault(granted.first, (name, request)) == (name, request), (
                "a number given out twice"
            )
            self.order.append(granted.first)
            for candidate in self.candidates:
                candidate.site.send(name, Settled("A", granted.first))

    async def _ask(self, name: Address, request: int) -> Granted | None:
        while not self.is_over:
            for candidate in self.candidates:
                candidate.site.send(name, Ticket(request, "A", 1))
            for _ in range(10):
                await a_moment(0.005)
                for candidate in self.candidates:
                    while (answer := self._take(candidate, name)) is not None:
                        if isinstance(answer, Granted) and answer.request == request:
                            return answer
        return None

    def _take(self, candidate: Candidate, name: Address) -> Payload | None:
        queue = candidate.site.answers[name]
        return None if queue.empty() else queue.get_nowait()

    async def stop(self) -> None:
        self.is_over = True
        await asyncio.gather(*self.tasks)

    def check(self) -> None:
        """Numbers without holes: what was granted before a takeover is not granted again, and nothing is skipped."""
        numbers = sorted(self.granted)
        missing = set(range(1, numbers[-1] + 1)) - set(numbers)
        assert len(missing) <= len(self.tasks), "at most the last request of each, whose answer nobody awaited"


@contextlib.asynccontextmanager
async def server_with_proxy(folder: Path) -> AsyncIterator[tuple[str, Proxy]]:
    async with running_server(folder) as server:
        proxy = Proxy(server.port)
        await proxy.start()
        yield server.url, proxy
        await proxy.stop()


async def test_the_second_takes_over_and_the_first_is_fenced(tmp_path: Path) -> None:
    """The first is cut off under load, but runs on: it must not say anything that counts."""
    async with (
        server_with_proxy(tmp_path) as (url, proxy),
        connected(proxy.url) as first_client,
        connected(url) as second_client,
    ):
        first = Candidate(first_client, eager=True)
        await until(lambda: first.is_active, "the first to be active")
        second = Candidate(second_client)
        load = Load([first, second])
        await until(lambda: len(load.order) >= 100, "numbers from the first")
        assert not second.is_active
        proxy.hold = True  # nothing it says reaches the server, until later
        second.impatient = True
        epoch = first.standby.host.machine.epoch if first.standby.host is not None else 0
        await until(lambda: second.is_active, "the second to take over")
        reached = len(load.order)
        await until(lambda: len(load.order) >= reached + 100, "numbers from the second")
        assert second.standby.host is not None and second.standby.host.machine.epoch > epoch
        proxy.release()  # now its appends arrive, with expectations of long ago
        await until(lambda: not first.is_active, "the first to learn that it was replaced")
        reached = len(load.order)
        await until(lambda: len(load.order) >= reached + 50, "more numbers from the second")
        await load.stop()
        load.check()
        assert second.is_active and not first.is_active and not first.standby.failed.done()
        assert first.standby.takeovers == 1 and second.standby.takeovers == 1
        # And back: the second ends in an orderly way, and the first takes over again.
        await second.stop()
        first.impatient = True
        await until(lambda: first.is_active, "the first to take over again")
        granted = await first.site.ticket("late", 1, "A")
        assert granted.first > max(load.granted)
        await first.stop()
        assert first.reasons[0] == "active: nobody else runs it" and len(first.reasons) == 4


async def test_the_process_is_killed(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.live.tree.host_child", server.url],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert child.stdout is not None
        candidate: Candidate | None = None
        numbers: list[int] = []
        while len(numbers) < 300:
            numbers.append(int(await asyncio.to_thread(child.stdout.readline)))
            candidate = candidate or Candidate(client)
        assert candidate is not None and not candidate.is_active
        child.kill()
        rest, _ = child.communicate()
        candidate.impatient = True
        numbers += [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        await until(lambda: candidate.is_active, "the standby to take over")
        granted = await candidate.site.ticket("late", 1, "A")
        assert numbers == list(range(1, len(numbers) + 1))
        assert granted.first in (len(numbers) + 1, len(numbers) + 2), "one more may have been given out unseen"
        await candidate.stop()


async def test_of_several_standbys_one_runs_the_node(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        candidates = [Candidate(client, impatient=True) for _ in range(3)]
        for _ in range(3):
            await until(lambda: any(each.is_active for each in candidates), "one to take over")
            # Nothing to wait for: the others may believe it too in this moment, or not. The journal knows better.
            await a_moment(0.2)
            await until(lambda: sum(each.is_active for each in candidates) == 1, "one to be left")
            active = next(each for each in candidates if each.is_active)
            await active.stop()
            candidates.remove(active)
        assert candidates == []


async def test_the_server_goes_away_for_longer_than_anybody_waits(tmp_path: Path) -> None:
    """The node gives up, and takes over again when the server is back."""
    async with running_server(tmp_path) as server, connected(server.url) as client:
        candidate = Candidate(client, eager=True, impatient=True, patience_s=3.0)
        await until(lambda: candidate.is_active, "the node to run")
        first = await candidate.site.ticket("p", 1, "A")
        server.kill()
        await until(lambda: not candidate.is_active, "the node to give up")
        await server.start()
        await until(lambda: candidate.is_active, "the node to run again")
        assert (await candidate.site.ticket("q", 1, "A")).first == first.first + 1
        await candidate.stop()


async def test_what_waiting_does_not_cure_is_raised(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        first = Candidate(client, eager=True)
        await until(lambda: first.is_active, "the node to run")
        await first.stop()
        other = SequencingTree({"root": None, "leaf": "root"}, {}, default_home="root")
        second = Candidate(client, impatient=True, site=Site(other, TICKETS))
        error = await asyncio.wait_for(second.standby.failed, 60)
        assert isinstance(error, InputError) and "parents: node 'leaf' is new" in str(error)
        await second.stop()


async def test_an_eager_one_replaces_whoever_runs(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        first = Candidate(client, eager=True)
        await until(lambda: first.is_active, "the node to run")
        second = Candidate(client, eager=True)
        await until(lambda: second.is_active and not first.is_active, "the second to replace it")
        assert not first.standby.failed.done(), "it waits"
        await first.stop()
        await second.stop()


async def test_stopping_while_nobody_answers(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        server.kill()
        for eager in (True, False):  # in the middle of opening the journal, and of waiting for silence
            candidate = Candidate(client, eager=eager, patience_s=3600.0)
            await until(lambda candidate=candidate: candidate.is_under_way, "it to begin")
            await asyncio.wait_for(candidate.stop(), 60)
            await candidate.stop()
            assert not candidate.is_active


async def test_wrong_values_are_refused() -> None:
    with pytest.raises(InputError, match="silent_s"):
        Standby("root", make_journal=lambda: None, make_host=lambda journal: None, silent_s=0)  # type: ignore[arg-type, return-value]
