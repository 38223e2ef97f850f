"""The baselines beside VCube-PS, under the papers' delay model."""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from seriatim.model import APPLICATION, Address, Event, InputError, Notification, RemoteError
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.srpt import Client, Node, parent_of, root_of
from seriatim.protocols.srpt.messages import Fall, Grow
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Unsubscribe
from seriatim.sim import Constant, Cost, Simulator, reliable_fifo

PAPER = Cost(processing_ms=1.0, transmission_ms=1.0)  # paper 001, §4
PROPAGATION = reliable_fifo(Constant(100.0))


class Stage:
    """Machines under the paper's delay model, and when each event was notified to whom."""

    def __init__(self) -> None:
        self.notified: dict[str, dict[Address, float]] = {}
        self.simulator = Simulator("srpt", PROPAGATION, self._note)

    def add(self, address: Address, machine: Machine) -> None:
        self.simulator.add(address, lambda records, epoch: machine, PAPER)

    def tell(self, id: int, command: Payload) -> None:
        self.simulator.command(address_of(id), command)

    def latency(self, publisher: int, event_id: str = "e") -> tuple[float, int]:
        """How long until all were notified, and how many messages that took."""
        sent, began = self.simulator.counts.sent, self.simulator.now
        self.tell(publisher, Publish(Event(event_id, "A", address_of(publisher))))
        self.simulator.run()
        return max(self.notified[event_id].values()) - began, self.simulator.counts.sent - sent

    def _note(self, address: Address, payload: Payload, now: float) -> None:
        if isinstance(payload, Notification):
            self.notified.setdefault(payload.event.id, {})[address] = now


def srpt_stage(size: int, members: list[int], root: int = 0) -> Stage:
    cube, stage = Cube(range(size)), Stage()
    for id in cube.ids:
        stage.add(address_of(id), Node(cube, id, root))
    for id in members:
        stage.tell(id, Subscribe("A"))
    stage.simulator.run()
    return stage


def vcube_stage(size: int, members: list[int]) -> Stage:
    cube, stage = Cube(range(size)), Stage()
    for id in cube.ids:
        stage.add(address_of(id), Peer.founder(cube, id, VCubeOptions(), {"A": members}))
    return stage


@pytest.mark.parametrize("size", [8, 64, 256])
def test_with_everybody_subscribed_srpt_has_one_hop_more(size: int) -> None:
    """Paper 001, Figure 4: same tree, but the publication has to get to its root first."""
    everybody = list(range(size))
    latency, sent = vcube_stage(size, everybody).latency(5)
    srpt_latency, srpt_sent = srpt_stage(size, everybody).latency(5)
    assert sent == 2 * (size - 1)  # with acknowledgements
    assert srpt_sent == size - 1 + 1
    assert srpt_latency - latency == pytest.approx(102.0)  # processing, transmission, propagation


def test_with_a_quarter_subscribed_srpt_needs_forwarders() -> None:
    members = sorted(Random(4).sample(range(256), 64))
    latency, sent = vcube_stage(256, members).latency(members[7])
    srpt_latency, srpt_sent = srpt_stage(256, members).latency(members[7])
    assert sent == 2 * (len(members) - 1)
    assert srpt_sent > 1.4 * len(members)
    assert srpt_latency > latency


def test_brokers_send_to_their_clients() -> None:
    brokers, stage = Cube(range(4)), Stage()
    for id in brokers.ids:
        stage.add(address_of(id), Node(brokers, id, root=0))
    for id in range(4, 12):
        stage.add(address_of(id), Client(brokers, id % 4, root=0))
        stage.tell(id, Subscribe("A"))
    stage.simulator.run()
    _, sent = stage.latency(4)
    assert sent == 1 + 3 + 8
    assert set(stage.notified["e"]) == {address_of(id) for id in range(4, 12)}
    stage.tell(7, Unsubscribe("A"))
    stage.tell(11, Unsubscribe("A"))  # both were connected to broker 3
    stage.simulator.run()
    assert stage.latency(4, "f")[1] == 1 + 2 + 6


def test_branches_are_pruned_when_nobody_is_left_below() -> None:
    stage = srpt_stage(8, [7])
    assert stage.latency(7)[1] == 1 + 3  # to the root, and down through 4 and 6, which forward
    stage.tell(7, Unsubscribe("A"))
    stage.simulator.run()
    stage.tell(3, Publish(Event("f", "A", "peer3")))
    stage.simulator.run()
    assert "f" not in stage.notified


def test_parents_and_roots() -> None:
    cube = Cube(range(8))
    assert [parent_of(cube, id, 0) for id in range(8)] == [None, 0, 0, 2, 0, 4, 4, 6]
    assert [parent_of(cube, id, 5) for id in (5, 4, 2)] == [None, 5, 3]
    assert parent_of(Cube([0, 7]), 7, 0) == 0  # 6 and 4 do not exist
    assert {root_of(cube, f"topic {i}") for i in range(100)} == set(range(8))
    roots: Callable[[str], int] = partial(root_of, cube)
    assert roots("A") == roots("A")


def test_bad_input() -> None:
    cube = Cube(range(2))
    with pytest.raises(InputError):
        Node(cube, 2)
    with pytest.raises(InputError):
        Node(cube, 0, root=5)
    with pytest.raises(RemoteError):
        Node(cube, 0).step(APPLICATION, Grow("A"), 0.0)
    with pytest.raises(RemoteError):
        Client(cube, 0).step("peer1", Fall(Event("e", "A", "peer1")), 0.0)
