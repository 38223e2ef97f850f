"""What the order log promises of a world at rest.

It holds every issued number of every topic once, in the topic's order; what each subscriber was notified of stands in
it in the order of notification; and a position that a notification tells is its place there. A subscriber that began
with the past has missed nothing since.

If the log was cut, what it lacks stands nowhere, and who began with the past was told of it as a gap.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seriatim.lab.explore.engine.checks import Stopped, Violation
from seriatim.lab.explore.tree.shape_checks import running, shape_now
from seriatim.model import BROKER, Address, Gap, Node, Notification, Number, Position, Topic
from seriatim.order import OrderedRange, SequencingTree
from seriatim.protocols.broker import OrderLogState
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.history import LOST_IN_PAST
from seriatim.protocols.tree.receiving import LOST
from seriatim.protocols.tree.subscribing import BEGAN_ANEW
from seriatim.protocols.with_broker import Change

ORDER_BROKER = f"{BROKER} order"  # where topics have a broker each


def order_violations(
    world: Stopped, names: Sequence[Node], *, is_timeless: bool, may_lose: bool = False
) -> list[Violation]:
    """What is wrong with the order log. `is_timeless`: nobody was ever ticked, so nobody handed anything on.

    `may_lose`: somebody may have cut it.
    """
    nodes = running(world, names)
    broker = world.machine(ORDER_BROKER if BROKER not in world.addresses else BROKER)
    if broker is None or nodes is None:
        return []  # it failed, which is a violation already
    order, tree = broker.state.order, shape_now(nodes.values())
    root = nodes[tree.root].state.order
    if root.told > order.end or root.end < order.end:
        return [
            Violation("order-log", f"the order log ends at {order.end}, but {tree.root} counts {root.told}…{root.end}")
        ]
    ranges = [*order.ranges, *_behind(root.ranges, order.end - root.told)]
    ranges += (each for node in _upwards(tree) if node != tree.root for each in nodes[node].state.order.ranges)
    begins = [*order.begins]
    position = order.end
    for each in ranges[len(begins) :]:
        begins.append(position)
        position += each.count
    positions: dict[tuple[Topic, Number], Position] = {}
    lasts: dict[Topic, Number] = {}
    known = lost = 0
    for begin, each in zip(begins, ranges, strict=True):
        lost += begin - known
        expected = lasts.get(each.topic, 0) + 1
        if each.first != expected and not (may_lose and lost and expected < each.first):
            sentence = (
                f"position {begin + 1} of the order log is {each.topic} {each.first}, not {each.topic} {expected}"
            )
            return [Violation("order-log", sentence)]
        for number in range(each.first, each.last + 1):
            positions[each.topic, number] = begin + 1 + number - each.first
        lasts[each.topic] = each.last
        known = begin + each.count
    known = max(known, order.end)
    found = [] if is_timeless else _unkept(nodes, order.end, known, tree)
    for node, machine in nodes.items():
        for topic, home in sorted(machine.state.homes.items()):
            if home.issued > lasts.get(topic, 0) and not may_lose:
                sentence = f"{node} issued {topic} {home.issued}, but the order log ends with {lasts.get(topic, 0)}"
                found.append(Violation("order-log", sentence))
    for address in world.addresses:
        if isinstance(world.machine(address), Subscriber):
            found += _misplaced(address, world.log(address), positions, may_lose)
    return found


def _upwards(tree: SequencingTree) -> list[str]:
    """The nodes, each before its parent."""
    return sorted(tree.parents, key=lambda node: (-len(tree.paths[node]), node))


def _behind(ranges: list[OrderedRange], count: int) -> Iterator[OrderedRange]:
    for each in ranges:
        if each.count > count:
            yield OrderedRange(each.topic, each.first + count, each.last)
        count = max(0, count - each.count)


def _unkept(nodes: dict[str, Any], end: Position, known: Position, tree: SequencingTree) -> list[Violation]:
    """Everything must have reached the broker, and the root must know it."""
    root = nodes[tree.root].state.order
    if end == known == root.told:
        return []
    waiting = [f"{node} has {len(each.state.order.ranges)} ranges" for node, each in sorted(nodes.items())]
    return [Violation("order-log", f"the order log holds {end} of {known} positions: {', '.join(waiting)}")]


def _misplaced(
    address: str, log: Any, positions: dict[tuple[Topic, Number], Position], is_cut: bool
) -> list[Violation]:
    """A subscriber's sequence must be a subsequence of the order log."""
    before, earlier = 0, ""
    for each in log:
        if type(each) is not Notification or each.out_of_order:
            continue
        place, name = positions.get((each.event.topic, each.number), 0), f"{each.event.topic} {each.number}"
        if not place and is_cut:
            continue
        if each.position is not None and each.position != place:
            sentence = f"{address} was told that {name} has position {each.position}, the order log has it at {place}"
            return [Violation("order-log", sentence)]
        if place < before:
            sentence = f"{address} was notified of {earlier} (position {before}) before {name} (position {place})"
            return [Violation("order-log", sentence)]
        before, earlier = place, name
    return []


def history_violations(world: Stopped, pasts: Mapping[Address, Change]) -> list[Violation]:
    """Who begins with the past is live at last, and has missed nothing between its beginning and what it holds now."""
    broker = world.machine(ORDER_BROKER if BROKER not in world.addresses else BROKER)
    found = []
    for address, change in sorted(pasts.items()):
        machine = world.machine(address)
        if machine is None:
            continue
        reading = machine.state.reading
        if reading is not None and reading.stopped is not None:
            found += _wrongly_stopped(address, machine, reading.stopped, broker.state.order)
        elif reading is not None and broker.state.order.end >= reading.end:
            found.append(Violation("stuck", f"{address} {'; '.join(machine.explain_past())}"))
        if machine.options.on_lost == "wait":
            found += _went_on(world, address, change)
        if reading is None:
            found += _missing(world, address, machine, change, broker.state.order)
    return found


def _wrongly_stopped(address: Address, machine: Subscriber, gap: Gap, order: OrderLogState) -> list[Violation]:
    """It waits for a decision about something that the order log has, or would not have to wait at all."""
    has = any(each.topic == gap.topic and each.first <= gap.last and each.last >= gap.first for each in order.ranges)
    if machine.options.on_lost == "wait" and not has:
        return []
    return [Violation("stuck", f"{address} {'; '.join(machine.explain_past())}, although nothing is missing there")]


def _went_on(world: Stopped, address: Address, change: Change) -> list[Violation]:
    """A subscriber that must wait for a decision was told of a gap behind its place in the past, and went on."""
    begun = set(change.add) if change.start is not None and change.start.is_place else set()
    for each in world.log(address):
        if type(each) is Notification and each.is_history:
            begun.add(each.event.topic)
        elif type(each) is Gap and each.topic in begun and each.reason in LOST_IN_PAST:
            sentence = f"{address} went on behind a gap of the past: {each.topic} {each.first} to {each.last}"
            return [Violation("loss", sentence)]
    return []


def _missing(
    world: Stopped, address: Address, machine: Subscriber, change: Change, order: OrderLogState
) -> list[Violation]:
    """The first event of each topic that the subscriber should have been told of and was not."""
    start, log = change.start, world.log(address)
    assert start is not None, "it begins with the past"
    told = {(each.event.topic, each.number) for each in log if type(each) is Notification}
    places = {
        (each.topic, number): begin + 1 + number - each.first
        for begin, each in zip(order.begins, order.ranges, strict=True)
        for number in range(each.first, each.last + 1)
    }
    gaps = [each for each in log if type(each) is Gap]
    missed = {(each.topic, n) for each in gaps for n in range(each.first, each.last + 1)}
    told |= missed - places.keys()  # what the log has is no gap
    anew = [each for each in gaps if each.reason in (BEGAN_ANEW, LOST)]  # but its home did not know the subscriber
    told |= {(each.topic, n) for each in anew for n in range(each.first, each.last + 1)}
    missing: dict[Topic, Number] = {}
    for topic in change.add & machine.state.lanes.keys():
        for number in range(1, machine.state.lanes[topic].done + 1):
            if start.numbers is not None:
                is_wanted = number >= start.numbers.get(topic, number + 1)
            else:  # what the log lacks has no position: it is wanted by who begins with the first
                is_wanted = places.get((topic, number), 1) > start.after
            if is_wanted and (topic, number) not in told and _is_event(world, topic, number):
                missing.setdefault(topic, number)
    return [
        Violation("loss", f"{address} began with the past and was not told of {topic} {number}")
        for topic, number in sorted(missing.items())
    ]


def _is_event(world: Stopped, topic: Topic, number: Number) -> bool:
    broker = world.machine(f"{BROKER} {topic}" if BROKER not in world.addresses else BROKER)
    kept = broker.state.topics[topic]
    if number <= len(kept.log):
        return kept.log[number - 1] is not None
    return any(slot.number == number and slot.event is not None for slot in kept.slots)
