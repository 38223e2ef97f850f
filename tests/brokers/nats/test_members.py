"""Turns to add names to a bucket: how long a client waits for one."""

import time

import pytest

from seriatim.brokers.nats import members as members_module
from seriatim.brokers.nats.members import patience_s
from seriatim.protocols.with_broker import Append, Appended
from tests.brokers.conformance import Probe, event
from tests.brokers.nats.test_streams import names_in_one_bucket
from tests.brokers.nats.world import jetstream_world


def test_only_turns_that_do_not_end_make_a_client_patient() -> None:
    assert [patience_s(turns) for turns in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert patience_s(1_000) == 8.0, "the wait is bounded"


async def test_who_lost_the_race_for_the_turn_waits_no_longer_for_a_dead_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others win three races, and their turns end; the fourth winner dies. That costs one patience, not eight."""
    monkeypatch.setattr(members_module, "PATIENCE_S", 1.0)
    bucket, names = names_in_one_bucket(16, 2)

    async with jetstream_world(streams=16) as world:
        rival, broker = await world.connect(), await world.connect()
        probe = Probe(broker, "p")
        await probe.ask(Append(event(bucket, "e0", subject=names[0])), Appended)
        loser, winner = broker.streams.members, rival.streams.members
        take, races = loser._take_turn, list[float]()

        async def lose(bucket: str, position: int, dead: list[str]) -> bool:
            """Somebody else is a little faster."""
            if len(races) < 4:
                ended_at = await winner._set_turn(bucket, [f"rival{len(races)}"], position)
                assert ended_at is not None
                if len(races) < 3:
                    assert await winner._set_turn(bucket, [], ended_at) is not None
                races.append(time.monotonic())
            return await take(bucket, position, dead)

        monkeypatch.setattr(loser, "_take_turn", lose)
        await probe.ask(Append(event(bucket, "e1", subject=names[1])), Appended)
        assert len(races) == 4
        assert "from=rival3" in caplog.text
        assert 1.0 <= time.monotonic() - races[-1] < 4.0, "eight seconds, if each lost race doubled its patience"
