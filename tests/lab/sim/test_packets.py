"""The delay model of papers 001 and 002: what a hop takes, and what waits."""

import pytest
from msgspec import Struct

from seriatim.lab.sim import PacketDelays, Simulator
from seriatim.model import Address, InputError
from seriatim.protocols.machine import Effects, Payload
from tests.lab.sim.toys import Word


class Words(Struct, frozen=True):
    words: tuple[Word, ...]


class Sender:
    """Sends what it is told to, all at once."""

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        assert isinstance(message, Words)
        effects = Effects()
        effects.send.extend(("receiver", each) for each in message.words)
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class Receiver:
    def __init__(self) -> None:
        self.heard: list[tuple[str, float]] = []

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        assert isinstance(message, Word)
        self.heard.append((message.text, now))
        return Effects()

    def tick(self, now: float) -> Effects:
        return Effects()


def test_publications_wait_for_each_other_and_acknowledgements_for_nothing() -> None:
    delays = PacketDelays()
    receiver = Receiver()
    simulator = Simulator(1, delays.link())
    simulator.add("receiver", lambda records, epoch: receiver)
    simulator.add("sender", lambda records, epoch: Sender(), delays.cost(lambda message: message != Word("ack")))
    simulator.command("sender", Words(tuple(map(Word, ["first", "second", "ack", "third"]))))
    simulator.run()
    assert receiver.heard == [("first", 102.0), ("ack", 102.0), ("second", 103.0), ("third", 104.0)]
    queue = simulator.queues["sender"]
    assert (queue.messages, queue.waited_ms) == (3, 3.0)
    assert queue.mean_place == 2.0
    assert simulator.queues["receiver"].mean_place == 0.0


def test_a_hop_is_the_sum_of_its_parts() -> None:
    assert PacketDelays().hop == 102.0
    assert PacketDelays(propagation=1_000.0).hop == 1_002.0
    with pytest.raises(InputError, match=r"propagation: -1\.0 is not a duration"):
        PacketDelays(propagation=-1.0)
