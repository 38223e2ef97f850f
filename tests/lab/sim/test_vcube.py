"""VCube-PS under simulated time: how fast one source is, with and without a window."""

from functools import partial

import pytest

from seriatim.lab.sim import Constant, Simulator, reliable_fifo
from seriatim.model import APPLICATION, Address, Event
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.messages import EventReceived, Publish, Subscribe

HOP_MS = 10.0
EVENTS = 400


def start(cube: Cube, id: int, options: VCubeOptions, records: object, epoch: int) -> Peer:
    """Nobody restarts here."""
    return Peer(cube, id, options)


def published_per_second(window: int, peers: int = 64) -> float:
    """Publications of one source per second of simulated time, each received by all."""
    published: list[float] = []

    def notified(address: Address, payload: Payload, now: float) -> None:
        if isinstance(payload, EventReceived):
            published.append(now)

    cube, options = Cube(range(peers)), VCubeOptions(window=window)
    simulator = Simulator("window", reliable_fifo(Constant(HOP_MS)), notified)
    for id in cube.ids:
        simulator.add(address_of(id), partial(start, cube, id, options))
    for id in cube.ids:
        simulator.command(address_of(id), Subscribe("A"))
        simulator.run()
    began = simulator.now
    for number in range(EVENTS):
        assert simulator.command(address_of(0), Publish(Event(f"e{number}", "A", APPLICATION)))
    simulator.run()
    assert len(published) == EVENTS
    return EVENTS / (published[-1] - began) * 1000.0


def test_a_window_makes_a_source_many_times_faster() -> None:
    alone, windowed = published_per_second(1), published_per_second(VCubeOptions().window)
    assert alone == pytest.approx(1000.0 / (2 * 6 * HOP_MS), rel=0.01)  # a round trip over a tree of height 6
    assert windowed / alone > 20
