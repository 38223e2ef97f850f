"""Sequences of ids: do they fit one order, and if not, which ids are in disagreement? Pure arithmetic, no log rows.

A subscriber may have several ids at one position, next to each other in its sequence: they are not ordered among
themselves. `Places` has the position of each id of such subscribers; of others, the sequence says everything.

`docs/audit.md` explains why each step loses nothing; `agreement.py` uses them.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import chain, groupby, islice, pairwise
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Node = TypeVar("Node", bound=Hashable)  # an id, or a code that stands for it
Seen: TypeAlias = Mapping[Node, list[Node]]  # subscriber → events in the order notified, each at most once
Places: TypeAlias = Mapping[Node, Mapping[Node, int]]  # subscriber → event → position, if some share one
Sequences: TypeAlias = Seen[str]
Pair: TypeAlias = tuple[str, str]

COLUMNS = 8192  # ids whose before and after sets are held at a time: bounds memory, not the answer
CYCLE_STEPS = 2_000_000  # ids visited in search of a knot's shortest cycle; after that the shortest so far is taken


def restrict(sequences: Seen[Node], events: Collection[Node]) -> Seen[Node]:
    """Keep only these events (give a set) in each sequence, and only the subscribers that saw one of them."""
    inside = {name: [event for event in sequence if event in events] for name, sequence in sequences.items()}
    return {name: sequence for name, sequence in inside.items() if sequence}


class Between(NamedTuple):
    """Stands between two positions of a subscriber: after all events before it, and before all events after it."""

    subscriber: Hashable
    step: int


def steps(sequence: list[Node], places: Mapping[Node, int] | None) -> Iterator[list[Node]]:
    """The events of a sequence, those at one position together."""
    if places is None:
        return ([event] for event in sequence)
    return (list(together) for _, together in groupby(sequence, key=places.__getitem__))


def chained(sequences: Seen[Node], places: Places[Node]) -> list[list[Node | Between]]:
    """Sequences in which nobody shares a position, and which order the same events in the same way.

    Around events at one position there is a `Between` on each side; each of them but one gets a short sequence of its
    own, from one to the other.
    """
    found: list[list[Node | Between]] = []
    for name, sequence in sequences.items():
        if name not in places:
            found.append(list(sequence))
            continue
        line: list[Node | Between] = []
        for step, together in enumerate(steps(sequence, places[name])):
            event, *others = together
            if not others:
                line.append(event)
                continue
            begin, end = Between(name, 2 * step), Between(name, 2 * step + 1)
            line += [begin, event, end]
            found += [[begin, other, end] for other in others]
        found.append(line)
    return found


def merge(sequences: Collection[list[Node]]) -> list[Node]:
    """Take an event as soon as it is next in every sequence that has it; the events in the order taken.

    That order fits every sequence. If not all events are taken, there is no order that fits them all.
    """
    missing = Counter(chain.from_iterable(sequences))  # in how many sequences the event is not yet next
    waiting: dict[Node, list[Iterator[Node]]] = {}
    taken = []
    moving = [iter(sequence) for sequence in sequences]
    while moving:
        sequence = moving.pop()
        for event in sequence:
            if missing[event] == 1:
                taken.append(event)
                moving += waiting.pop(event, ())
            else:
                missing[event] -= 1
                waiting.setdefault(event, []).append(sequence)
                break
    return taken


def find_knots(sequences: Seen[Node], places: Places[Node] | None = None) -> list[Seen[Node]]:
    """The sequences inside each strongly connected component, of two events or more, of "notified right before".

    In the order in which the first of their shared events appears: whose log it is does not change it.
    """
    lines = chained(sequences, places or {})
    after: dict[Node | Between, set[Node | Between]] = {event: set() for event in chain.from_iterable(lines)}
    for earlier, later in chain.from_iterable(pairwise(line) for line in lines):
        after[earlier].add(later)
    knots = [component for component in components(after) if len(component) > 1]
    knot_of = {event: i for i, knot in enumerate(knots) for event in knot if not isinstance(event, Between)}
    inside: list[dict[Node, list[Node]]] = [{} for _ in knots]
    for name, sequence in sequences.items():
        for event in sequence:
            if event in knot_of:
                inside[knot_of[event]].setdefault(name, []).append(event)
    notified = Counter(chain.from_iterable(sequences.values()))
    first = dict.fromkeys(
        knot_of[event]
        for sequence in sequences.values()
        for event in sequence
        if event in knot_of and notified[event] > 1
    )
    return [inside[i] for i in first]


def first_shared(sequences: Seen[Node]) -> tuple[Node, Node]:
    """The first event, by subscriber and place, that a second subscriber was notified of too. Each knot has one."""
    shared = Counter(chain.from_iterable(sequences.values()))
    return next((name, event) for name, sequence in sequences.items() for event in sequence if shared[event] > 1)


def components(after: Mapping[Node, Iterable[Node]]) -> Iterator[list[Node]]:
    """The strongly connected components of a graph: Tarjan's algorithm, without recursion."""
    number: dict[Node, int] = {}  # in the order in which they are met
    low: dict[Node, int] = {}
    stack: list[Node] = []
    done: set[Node] = set()
    for root in after:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        path = [(root, iter(after[root]))]
        while path:
            node, following = path[-1]
            for later in following:
                if later not in number:
                    number[later] = low[later] = len(number)
                    stack.append(later)
                    path.append((later, iter(after[later])))
                    break
                if later not in done:
                    low[node] = min(low[node], number[later])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == number[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    done.update(component)
                    yield component


class Inversions(NamedTuple, Generic[Node]):
    """How many pairs of events are seen in both orders, and one such pair: of one topic, and of two."""

    same_topic: int
    across_topics: int
    same_topic_pair: tuple[Node, Node] | None
    across_topics_pair: tuple[Node, Node] | None


def find_inversions(
    sequences: Seen[Node], topics: Mapping[Node, Node], columns: int = COLUMNS, places: Places[Node] | None = None
) -> Inversions[Node]:
    """Count the pairs of events that some sequence has in one order and some other sequence in the other.

    For every event: the set of events that anybody saw before it, and the set that anybody saw after it. What is in
    both is inverted with it, and nothing else is. The sets are bits of integers, `columns` of them at a time.
    """
    events = list(dict.fromkeys(chain.from_iterable(sequences.values())))
    same_topic = across_topics = 0
    same_topic_pair = across_topics_pair = None
    for start in range(0, len(events), columns):
        block = events[start : start + columns]
        bits = {event: 1 << i for i, event in enumerate(block)}
        topic_bits: dict[Node, int] = {}
        for event, bit in bits.items():
            topic_bits[topics[event]] = topic_bits.get(topics[event], 0) | bit
        for event, both in _seen_on_both_sides(events, sequences, bits, places or {}):
            same = both & topic_bits.get(topics[event], 0)
            across = both ^ same
            same_topic += same.bit_count()
            across_topics += across.bit_count()
            if same and same_topic_pair is None:
                same_topic_pair = event, block[_lowest(same)]
            if across and across_topics_pair is None:
                across_topics_pair = event, block[_lowest(across)]
    # Every pair was met twice, once from each of its events.
    return Inversions(same_topic // 2, across_topics // 2, same_topic_pair, across_topics_pair)


def _seen_on_both_sides(
    events: list[Node], sequences: Seen[Node], bits: Mapping[Node, int], places: Places[Node]
) -> Iterator[tuple[Node, int]]:
    """For each event, if there are any: the events with a bit that somebody saw before and somebody saw after it."""
    before = dict.fromkeys(events, 0)
    after = dict.fromkeys(events, 0)
    for name, sequence in sequences.items():
        ahead = 0
        for event in sequence:
            ahead |= bits.get(event, 0)
        if not ahead:
            continue
        passed = 0
        if name not in places:
            for event in sequence:
                bit = bits.get(event, 0)
                ahead ^= bit
                before[event] |= passed
                after[event] |= ahead
                passed |= bit
            continue
        for together in steps(sequence, places[name]):
            here = 0
            for event in together:
                here |= bits.get(event, 0)
            ahead ^= here
            for event in together:
                before[event] |= passed
                after[event] |= ahead
            passed |= here
    for event in events:
        if both := before[event] & after[event]:
            yield event, both


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def shortest_cycle(
    sequences: Seen[Node], visits: int = CYCLE_STEPS, places: Places[Node] | None = None
) -> list[tuple[Node, Node]]:
    """A cycle [(event, subscriber who saw it before the next event), ...] from which no event can be left out.

    The sequences must be those of one knot. The cycle is the shortest of the knot if `visits` allows a search from
    every event; otherwise it is the shortest through those that were tried.
    """
    rows = sum(map(len, sequences.values()))
    found = _search(sequences, places or {}, starts=max(1, visits // rows))
    # The shortest cycle through one event may hold a shorter one that avoids it: look once more among these few.
    return _search(restrict(sequences, {event for event, _ in found}), places or {}, starts=len(found))


def _search(sequences: Seen[Node], places: Places[Node], starts: int) -> list[tuple[Node, Node]]:
    ahead: dict[Node, list[tuple[Node, int]]] = {}  # of each event: in which sequences it is, and what comes after it
    for name, sequence in sequences.items():
        end = 0
        for together in steps(sequence, places.get(name)):
            end += len(together)
            for event in together:
                ahead.setdefault(event, []).append((name, end))
    shortest = None
    for start in islice(ahead, starts):
        cycle = _cycle_through(start, sequences, ahead)
        if shortest is None or len(cycle) < len(shortest):
            shortest = cycle
        if len(shortest) == 2:
            break
    assert shortest is not None, "a knot has at least two events"
    return shortest


def _cycle_through(
    start: Node, sequences: Seen[Node], ahead: Mapping[Node, list[tuple[Node, int]]]
) -> list[tuple[Node, Node]]:
    """Breadth first over "somebody saw x before y". What is after a row was reached with it: each is visited once."""
    reached_from = {name: len(sequence) for name, sequence in sequences.items()}
    came_from: dict[Node, tuple[Node, Node]] = {}
    queue = [start]
    for event in queue:  # grows while we walk it
        for name, place in ahead[event]:
            for later in sequences[name][place : reached_from[name]]:
                if later not in came_from:
                    came_from[later] = (event, name)
                    queue.append(later)
            reached_from[name] = min(reached_from[name], place)
        if start in came_from:
            break
    cycle = [came_from[start]]
    while cycle[-1][0] != start:
        cycle.append(came_from[cycle[-1][0]])
    return cycle[::-1]
