"""Members that come and go (paper 001 §4.5, paper 002 Table II), played by the machines of three systems.

VCube-PS as printed (lab/papers/paper001), ours (protocols/vcube, stop-and-wait or with a window), and SRPT-S. Times are
in units of time; for the churn of paper 001 one unit is a millisecond.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.static_trees import SRPT, VCUBE
from seriatim.lab.experiments.paper001.tree_worlds import (
    STOP_AND_WAIT,
    THE_PAPERS,
    TreeWorld,
    is_cast,
    is_srpt_pub,
    settled_nodes,
    settled_peers,
)
from seriatim.lab.papers.paper001.messages import Ack, Operation
from seriatim.lab.papers.paper001.node import CubeNode, CubeNodeState, NodeTopic
from seriatim.lab.papers.srpt import Overlay
from seriatim.model import Address
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.vcube import Cube, VCubeOptions, address_of
from seriatim.protocols.vcube.cube import Id
from seriatim.protocols.vcube.messages import Subscribe, Subscribed, Unsubscribe

TOPIC = "T"
INTERVAL = 500.0
PRINTED, PRINTED_VIEWS = "VCube-PS as printed", "VCube-PS as printed, views in acknowledgements"
WINDOW = VCubeOptions(window=16)
SETTLED, UNDER_WAY = "everybody is known", "subscriptions under way"
SUBSCRIBING = 1_000.0  # if they are: everybody subscribes within this time, and then the story begins


class ChangingWorld(TreeWorld):
    """Machines of one system, some of them members from the beginning; or, if not settled, about to subscribe."""

    def __init__(self, system: str, size: int, members: Sequence[int], seed: int, is_settled: bool = True) -> None:
        super().__init__(THE_PAPERS, address_of)
        self.founders = sorted(members) if is_settled else []
        self.random = Random(f"changing {seed}")
        self.system = system
        self.members = sorted(members)
        self.others = sorted(set(range(size)) - set(members))
        self.joining: set[int] = set()
        self.late: Counter[int] = Counter()  # receptions by those who do not hold the topic
        self.handed_by: dict[int, Address] = {}  # from whom a node received its latest publication
        self.receptions = 0
        self.left: set[int] = set()  # at any time
        self.changes = 0
        waits = is_srpt_pub if system == SRPT else _is_no_ack if system in (PRINTED, PRINTED_VIEWS) else is_cast
        for id, machine in self._machines(system, size).items():
            self.add(id, machine, waits)

    def _machines(self, system: str, size: int) -> Mapping[int, Machine]:
        if system == SRPT:
            overlay = Overlay(range(size), {TOPIC: self.random.randrange(size)}, prefix="peer")
            return settled_nodes(overlay, {TOPIC: self.founders})
        if system not in (PRINTED, PRINTED_VIEWS):
            options = STOP_AND_WAIT if system == VCUBE else WINDOW
            return settled_peers(range(size), {TOPIC: self.founders}, options)
        cube, machines = Cube(range(size)), {}
        operations = {id: Operation(id, True, 0) for id in self.founders}
        for id in cube.ids:
            topics = {TOPIC: NodeTopic(view=dict(operations))} if id in operations else {}
            node = ViewsInAcknowledgements if system == PRINTED_VIEWS else CubeNode
            machines[id] = node(cube, id, state=CubeNodeState(1 if self.founders else 0, topics))
        return machines

    def subscribe(self, id: int) -> None:
        """Of one that is counted as a member before it is one."""
        self.simulator.command(address_of(id), Subscribe(TOPIC))

    def leave(self, id: int) -> None:
        self.members.remove(id)
        self.left.add(id)
        self.changes += 1
        self.others.append(id)
        self.simulator.command(address_of(id), Unsubscribe(TOPIC))

    def join(self, id: int) -> None:
        """Begin to."""
        self.others.remove(id)
        self.joining.add(id)
        self.subscribe(id)

    def on_notification(self, id: int, payload: Payload, now: float) -> None:
        super().on_notification(id, payload, now)
        if type(payload) is Subscribed and id in self.joining:
            self.joining.discard(id)
            self.members.append(id)

    def on_received(self, id: int, event_id: str, source: Address, now: float) -> None:
        super().on_received(id, event_id, source, now)
        self.receptions += 1
        self.handed_by[id] = source
        if id not in self.joining and id in self.others:
            self.late[id] += 1


class ViewsInAcknowledgements(CubeNode):
    """A node as printed, but for acknowledgements, which are as the papers' text describes them (001 §3.3).

    Line 97 of the printed algorithm, as lab/papers/paper001 reads it, has a node put its own subscription into an
    acknowledgement. The text beside it says that each subscriber "includes in the message its current view". A view may
    still name a member that has left; a joiner that is told so keeps it forever, because the peer that left does not
    know the joiner and never tells it.
    """

    def _send_ack(self, topic: NodeTopic, target: Id, message: Ack, effects: Effects) -> None:
        if self.id in topic.view and message.source not in topic.first_received:
            known = {operation.node: operation for operation in message.members}
            for operation in topic.view.values():
                told = known.get(operation.node)
                if operation.is_subscription and (told is None or told.counter < operation.counter):
                    known[operation.node] = operation
            members = tuple(known[node] for node in sorted(known))
            message = Ack(message.source, message.topic, message.counter, members)
        super()._send_ack(topic, target, message, effects)


def _is_no_ack(message: Payload) -> bool:
    return type(message) is not Ack


def run_one_change(parameters: Parameters, seed: int) -> Measures:
    """Paper 002, Table II: one publishes 256 messages; as it begins, some members leave and as many others join.

    Two things the paper leaves open. `within`: the changes come at any time up to this after the first message.
    `start`: members know each other, or have subscribed a moment ago and their subscriptions are under way.
    """
    size, share = int(parameters["size"]), float(parameters["churn"]) / 100.0
    random = Random(f"002 table 2 {seed} {size}")
    members = random.sample(range(size), size * 3 // 4)
    publisher, *rest = members
    changing = round(len(members) * share)
    is_settled = parameters.get("start", SETTLED) == SETTLED
    world = ChangingWorld(str(parameters["system"]), size, members, seed, is_settled)
    leavers = random.sample(rest, changing)
    joiners = random.sample(world.others, changing)
    messages, within = int(parameters["messages"]), float(parameters.get("within", 0.0))
    begin = 0.0 if is_settled else SUBSCRIBING
    if not is_settled:
        for id in members:
            world.simulator.at(random.random() * SUBSCRIBING, partial(world.subscribe, id))
    for number in range(messages):
        world.publish(publisher, f"e{number}", TOPIC, begin)
    for id in leavers:
        world.simulator.at(begin + within * random.random(), partial(world.leave, id))
    for id in joiners:
        world.simulator.at(begin + within * random.random(), partial(world.join, id))
    world.run()
    staying, last = set(members) - set(leavers), world.seen[f"e{messages - 1}"]
    kept = last.received.keys() & set(leavers)
    beside = {address_of(id) for id in joiners}
    complete = sum(len(staying - seen.notified.keys()) == 0 for seen in world.seen.values())
    return {
        "false_positives": float(world.late.total()),
        "never_forgotten": float(sum(count > messages / 2 for count in world.late.values())),
        "kept": float(len(kept)),
        "kept_by_joiners": float(sum(world.handed_by[id] in beside for id in kept)),
        "unserved": float(len((staying | set(joiners)) - last.notified.keys())),
        "deliveries": float(sum(len(seen.notified) for seen in world.seen.values())),
        "complete": 100.0 * complete / messages,
        "members_at_end": float(len(world.members)),
        "ended": world.simulator.now,
    }


def run_churn(parameters: Parameters, seed: int) -> Measures:
    """Paper 001, Fig. 8: every 500 ms a random member publishes; `churn` percent of the members leave in a second, and
    as many others join. Latency counts receptions by peers that held the topic when the message was published and when
    it arrived.
    """
    members = int(parameters["members"])
    size = 1 << (members + members // 64).bit_length()
    random = Random(f"001 churn {seed} {members}")
    world = ChangingWorld(str(parameters["system"]), size, random.sample(range(size), members), seed)
    duration = 1_000.0 * float(parameters["seconds"])
    rate = members * float(parameters["churn"]) / 100.0 / 1_000.0
    owed: dict[str, set[int]] = {}

    def change() -> None:
        if world.members and world.others:
            world.leave(random.choice(world.members))
            world.join(random.choice(world.others))

    def publish(number: int) -> None:
        if world.members:
            owed[f"e{number}"] = set(world.members)
            world.publish(random.choice(world.members), f"e{number}", TOPIC, world.simulator.now)

    at = random.expovariate(rate) if rate else duration
    while at < duration:
        world.simulator.at(at, change)
        at += random.expovariate(rate)
    for number in range(int(duration / INTERVAL)):
        world.simulator.at(number * INTERVAL + random.random(), partial(publish, number))
    world.run()
    latencies = []
    lost = 0
    stayed = set(world.members) - world.left
    for event_id, seen in world.seen.items():
        times = [seen.received[id] for id in owed[event_id] if id in seen.received and id != seen.source]
        latencies += [time - seen.at for time in times]
        lost += len((owed[event_id] & stayed) - seen.notified.keys())
    queues = world.simulator.queues.values()
    return {
        "latency": sum(latencies) / len(latencies),
        "false_positives": 100.0 * world.late.total() / world.receptions,
        "queue": sum(queue.waited_ms for queue in queues) / max(1, sum(queue.messages for queue in queues)),
        "lost": float(lost),
        "changes": float(world.changes),
        "sent": float(world.simulator.counts.sent),
    }
