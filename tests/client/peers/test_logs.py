"""What peers write down, where writing fails."""

from pathlib import Path

import pytest

from seriatim.audit import audit, read_history
from seriatim.model import LogError
from tests.disk import full_disk
from tests.live.peers.world import bus_of, until, write_peers


async def test_no_event_is_lost_while_the_disk_is_full(tmp_path: Path) -> None:
    path, log = write_peers(tmp_path, 1), tmp_path / "log"
    taken: list[str] = []
    async with bus_of(path, 0, publication_log=log) as bus, bus.subscribe("a", log=log) as events:
        for number in range(1500):
            bus.publish_nowait("a", str(number).encode())
        await bus.flush()
        await until(lambda: events.unread == 1500, "all are there")
        with full_disk(10), pytest.raises(LogError):
            await events.next()
        with full_disk(60_000), pytest.raises(LogError):
            while len(taken) < 1500:
                taken.append((await events.next()).data.decode())
        assert 0 < len(taken) < 1500
        while len(taken) < 1500:
            taken.append((await events.next()).data.decode())
    assert taken == [str(number) for number in range(1500)]
    history = read_history(log)
    assert [row.position for row in history.deliveries] == list(range(1500))
    assert [(row.since, row.until) for row in history.subscriptions] == [(0, 1500)]
    assert audit(history).verdicts["causal"].answer == "valid"


async def test_a_subscription_that_closes_on_a_full_disk_is_closed(tmp_path: Path) -> None:
    path, log = write_peers(tmp_path, 1), tmp_path / "log"
    async with bus_of(path, 0) as bus:
        events = bus.subscribe("a", log=log)
        await events.__aenter__()
        await bus.publish("a", b"1")
        assert (await events.next()).data == b"1"
        with full_disk(10), pytest.raises(LogError):
            await events.close()
        async with bus.subscribe("a", log=log) as others:  # and another one may log the topic
            await bus.publish("a", b"2")
            assert (await others.next()).data == b"2"
