"""Random worlds of linked peers: joins, leaves, crashes, restarts, wrong suspicions and cuts over a bad network.

A failure is replayed by its seed: pytest tests/protocols/vcube/test_linked_worlds.py -k "[17]". SERIATIM_WORLDS=500
tries more of them.
"""

import os
from contextlib import suppress
from random import Random

import pytest

from seriatim.audit import audit
from seriatim.lab.sim.network import unreliable
from seriatim.model import InputError
from seriatim.protocols.vcube import address_of
from seriatim.protocols.vcube.messages import Subscribe, Subscribed, Suspect, Unsubscribe
from tests.protocols.vcube.test_linked import TOPIC, World

WORLDS = int(os.environ.get("SERIATIM_WORLDS", "12"))
ACTS = 60
CALM_MS = 30_000.0


class Story:
    """The events of one world. Peers 0 and 1 hold the topic all the time; nobody suspects them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.count = self.random.randrange(3, 9)
        loss = self.random.choice((0.0, 0.05, 0.2))
        self.world = World(seed, self.count, unreliable(loss=loss, duplication=loss, reordering=0.2))
        self.names = 0
        self.world.subscribe(0, 1)

    def play(self) -> None:
        acts = [self.publish] * 8 + [self.join] * 3 + [self.leave] * 2 + [self.crash, self.restart, self.restart]
        acts += [self.suspect, self.cut]
        for _ in range(ACTS):
            self.random.choice(acts)()
            self.world.sim.run(until_ms=self.world.sim.now + self.random.choice((0.0, 5.0, 60.0, 400.0)))
        for id in range(self.count):
            if not self.world.sim.is_running(address_of(id)):
                self.start(id)
        self.world.sim.heal()
        self.world.sim.run(until_ms=self.world.sim.now + CALM_MS)

    def other(self) -> int | None:
        """Somebody that runs and may be harmed."""
        running = [id for id in range(2, self.count) if self.world.sim.is_running(address_of(id))]
        return self.random.choice(running) if running else None

    def publish(self) -> None:
        id = self.random.choice([id for id in range(self.count) if self.world.sim.is_running(address_of(id))])
        if self.world.machine(id).peer.topics:
            self.names += 1
            with suppress(InputError):  # it has just been told to leave
                self.world.publish(id, f"e{self.names}")

    def join(self) -> None:
        if (id := self.other()) is not None:
            self.world.tell(id, Subscribe(TOPIC))

    def leave(self) -> None:
        if (id := self.other()) is not None:
            self.world.tell(id, Unsubscribe(TOPIC))

    def crash(self) -> None:
        """Everybody's driver notices, sooner or later."""
        if (id := self.other()) is not None:
            self.world.sim.crash(address_of(id))
            for witness in (0, 1):
                self.world.tell(witness, Suspect(id))

    def restart(self) -> None:
        down = [id for id in range(2, self.count) if not self.world.sim.is_running(address_of(id))]
        if down:
            self.start(self.random.choice(down))

    def start(self, id: int) -> None:
        self.world.sim.start(address_of(id))
        self.world.tell(id, Subscribe(TOPIC))

    def suspect(self) -> None:
        """It is alive, and begins a new life."""
        if (id := self.other()) is not None:
            self.world.tell(self.random.choice((0, 1)), Suspect(id))

    def cut(self) -> None:
        ends = self.random.sample([address_of(id) for id in range(self.count)], 2)
        now = self.world.sim.now
        self.world.sim.partition(
            [(ends[0], ends[1]), (ends[1], ends[0])], now, now + self.random.choice((100.0, 2_000.0))
        )


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_random_world(seed: int) -> None:
    story = Story(seed)
    story.play()
    world = story.world
    for id in range(story.count):
        machine = world.machine(id)
        assert list(machine.peer.explain()) == [], f"peer {id} waits"
        assert machine.kept == 0, f"something for others is kept by peer {id}"
        assert len(machine.peer.living()) == story.count - 1, f"peer {id} holds somebody for dead"
    for seen in world.lives.values():
        assert len(seen) == len(set(seen)), "notified twice in one life"
    first, second = world.seen(0), world.seen(1)
    assert set(first) == set(second), "who was there all the time has all of it"
    assert world.count(0, Subscribed) == 1
    verdict = audit(world.history).verdicts["causal"]
    assert verdict.answer == "valid", verdict.reason
