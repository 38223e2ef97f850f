"""Trees at speed: when every publication reaches every member, computed without machines.

The simulator with the protocols' own machines (tree_worlds.py) is the measure of all things here. It takes 20 to 50
microseconds for a message and, in 4,096 peers that all publish, memory for 16.8 million sources of publications. This
file computes the same trees, the same queues and the same times with arrays, for experiments whose membership does not
change and whose notifications do not matter; tests/experiments/test_tree_model.py shows that both agree, bit by bit.

Time runs through a calendar: one list per unit of time. A hop takes longer than that, so nothing is ever added to the
list that is being worked on, and sorting it once by (time, count) gives the very order of the simulator's heap.
"""

from array import array
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TypeAlias

from msgspec import Struct

from seriatim.model import InputError
from seriatim.protocols.vcube.cube import nearest
from seriatim.sim import PacketDelays

# By node and by height + 1: (child, height of the child + 1), in the order in which copies are queued.
Fans: TypeAlias = list[list[tuple[tuple[int, int], ...]]]

KIND_BITS = 5
KIND_MASK = (1 << KIND_BITS) - 1
ACK, REQUEST = 0, KIND_MASK  # all else: a publication, and the height it is to be handed on, plus 1
TICKS = 1 << 20  # in a unit of time


class Planned(Struct, frozen=True):
    """A publication: who asks for it, and when."""

    at: float
    source: int
    topic: int = 0


class Model(Struct, frozen=True, kw_only=True):
    """What is modelled. `roots`: SRPT, and the root of each topic; without them VCube-PS, rooted at each source.

    `stop_and_wait`: as the paper has it, a source sends nothing on a topic before its last publication there is
    acknowledged by all; otherwise it waits for nothing, as with a window that never fills. `acks_wait`:
    acknowledgements take a place in the output queue, as publications do. SRPT has none.
    """

    size: int  # nodes 0 … size - 1, a power of two
    members: Sequence[int]  # of every topic
    delays: PacketDelays = PacketDelays()
    acks_wait: bool = False
    stop_and_wait: bool = True
    roots: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.size < 2 or self.size & (self.size - 1):
            raise InputError("size", f"{self.size} is not a power of two", "give 2, 4, 8, …")
        if self.size > 1 << 15:
            raise InputError("size", f"{self.size} nodes are too many for this model", "give at most 32,768")
        if self.delays.hop <= 1.0:
            raise InputError("delays", f"a hop takes {self.delays.hop:g}", "give more than 1: the calendar needs it")


class Outcome(Struct):
    """What happened. `received` has a row of `size` times for each publication; -1: it never came."""

    size: int
    received: Sequence[float]
    completed: list[float]  # by publication: when its source had all acknowledgements; -1: it has none
    sent: list[int]  # by node: copies of publications
    waited: list[float]  # by node: how long all that took a place in its queue waited there
    queued: list[int]  # by node: how many these were
    waited_max: list[float]
    places: list[int]  # by node: as QueueStatistics.places
    arrivals: int = 0  # publications, requests and acknowledgements
    ended: float = 0.0

    def mean_latency(self, planned: Sequence[Planned], members: Sequence[int]) -> float:
        """From what was asked for to what was received, in the mean over members other than the source."""
        total, count = 0.0, 0
        everybody = frozenset(members)
        for row, publication in enumerate(planned):
            times = self.received[row * self.size : (row + 1) * self.size]
            others = times if len(members) == self.size else [times[member] for member in members]
            receivers = len(others) - (publication.source in everybody)
            begun = times[publication.source] if receivers < len(others) else 0.0
            total += sum(others) - begun - publication.at * receivers
            count += receivers
        return total / count if count else 0.0

    def mean_latency_until(self, end: float, planned: Sequence[Planned]) -> float:
        """As mean_latency with everybody a member, but of what was received by `end`."""
        total, count = 0.0, 0
        for row, publication in enumerate(planned):
            early = [time for time in self.received[row * self.size : (row + 1) * self.size] if 0.0 <= time <= end]
            begun = self.received[row * self.size + publication.source]
            is_counted = 0.0 <= begun <= end
            others = len(early) - is_counted
            total += sum(early) - begun * is_counted - publication.at * others
            count += others
        return total / count if count else 0.0

    def mean_place(self, node: int) -> float:
        """As QueueStatistics.mean_place."""
        return self.places[node] / self.queued[node] if self.queued[node] else 0.0


def fans_of(size: int, members: Sequence[int], through_all: bool) -> Fans:
    """To whom a node hands on: the nearest member of each cluster; or, `through_all`, the nearest node of each cluster
    that has a member, as the tree of a topic's root does."""
    height = (size - 1).bit_length()
    sorted_members = sorted(members)
    fans: Fans = []
    for node in range(size):
        fan: tuple[tuple[int, int], ...] = ()
        by_height = [fan]
        for s in range(1, height + 1):
            child = nearest(sorted_members, node, s)
            if child is not None:
                fan = (*fan, (node ^ (1 << (s - 1)) if through_all else child, s))
            by_height.append(fan)
        fans.append(by_height)
    return fans


def on_tick(time: float) -> float:
    """The whole tick before it. Times that experiments draw are whole ticks, so that both ways below can be gone."""
    return int(time * TICKS) / TICKS


def run(model: Model, planned: Sequence[Planned]) -> Outcome:
    """Let all publications happen: wave by wave where numpy is there, one by one where it is not. Nothing else tells
    the two apart."""
    delays = (model.delays.transmission, model.delays.after_departure)
    times = (*delays, *(publication.at for publication in planned))
    is_alone = len(model.members) < 2 or not model.delays.transmission
    if is_alone or find_spec("numpy") is None or any(time != on_tick(time) for time in times):
        return run_one_by_one(model, planned)
    from seriatim.experiments.tree_waves import run_waves

    return run_waves(model, planned)


def run_one_by_one(model: Model, planned: Sequence[Planned]) -> Outcome:
    """One long loop: a call for each of 33 million arrivals would double its time."""
    size, roots = model.size, model.roots
    transmission, after = model.delays.transmission, model.delays.after_departure
    fans = fans_of(size, model.members, through_all=roots is not None)
    has_acks, acks_wait = roots is None, model.acks_wait and roots is None
    whole = (size - 1).bit_length() + 1
    cells = len(planned) * size
    none = [0.0] * size
    received = array("d", [-1.0]) * cells
    outcome = Outcome(size, received, [-1.0] * len(planned), [0] * size, none[:], [0] * size, none[:], [0] * size)
    sent, waited, queued, waited_max = outcome.sent, outcome.waited, outcome.queued, outcome.waited_max
    completed, places = outcome.completed, outcome.places
    parents = array("H", bytes(2 * cells))
    pending = bytearray(cells)
    busy_until = none[:]
    following, preceding = chains(planned) if has_acks and model.stop_and_wait else ({}, {})
    is_due = bytearray(len(planned))  # and waits for the one before it

    calendar: dict[int, list[tuple[float, int, int]]] = {}
    tie = 0
    for row, publication in enumerate(planned):
        is_root = roots is None or roots[publication.topic] == publication.source
        code = (row * size + publication.source) << KIND_BITS | (whole if is_root else REQUEST)
        calendar.setdefault(int(publication.at), []).append((publication.at, tie, code))
        tie += 1
    due, last = min(calendar, default=0), max(calendar, default=-1)
    arrivals = -len(planned)
    while due <= last:
        entries = calendar.pop(due, None)
        due += 1
        if entries is None:
            continue
        entries.sort()
        arrivals += len(entries)
        outcome.ended = entries[-1][0]
        for now, _, code in entries:
            kind = code & KIND_MASK
            cell = code >> KIND_BITS
            node = cell % size
            while True:  # again only where the end of one publication begins the next
                if kind == ACK:
                    pending[cell] -= 1
                    if pending[cell]:
                        break
                elif kind != REQUEST:
                    if kind == whole and preceding:
                        row = cell // size
                        if row in preceding and completed[preceding[row]] < 0.0:
                            is_due[row] = 1
                            break
                    received[cell] = now
                    fan = fans[node][kind - 1]
                    if fan:
                        count = len(fan)
                        pending[cell] = count
                        base = cell - node
                        start = busy_until[node]
                        if start < now:
                            start = now
                        wait = start - now
                        waited[node] += count * wait + transmission * (count * (count - 1) // 2)
                        places[node] += count * (1 + int(wait / transmission + 1e-9)) + count * (count - 1) // 2
                        wait += transmission * (count - 1)
                        if wait > waited_max[node]:
                            waited_max[node] = wait
                        queued[node] += count
                        sent[node] += count
                        for child, child_kind in fan:
                            start += transmission
                            arrival = start + after
                            day = int(arrival)
                            tie += 1
                            child_cell = base + child
                            parents[child_cell] = node
                            entry = (arrival, tie, child_cell << KIND_BITS | child_kind)
                            if day in calendar:
                                calendar[day].append(entry)
                            else:
                                calendar[day] = [entry]
                        busy_until[node] = start
                        if day > last:
                            last = day
                        break
                    if not has_acks:
                        break
                row = cell // size
                if kind == REQUEST:
                    assert roots is not None, "only SRPT has requests"
                    target = (row * size + roots[planned[row].topic]) << KIND_BITS | whole
                elif planned[row].source != node:
                    target = (cell - node + parents[cell]) << KIND_BITS
                else:  # everybody has it
                    completed[row] = now
                    row = following.get(row, -1)
                    if row < 0 or not is_due[row]:
                        break
                    cell, kind = row * size + node, whole
                    continue
                start = now
                if acks_wait:
                    if busy_until[node] > now:
                        start = busy_until[node]
                    wait = start - now
                    waited[node] += wait
                    if wait > waited_max[node]:
                        waited_max[node] = wait
                    queued[node] += 1
                    places[node] += 1 + int(wait / transmission + 1e-9)
                    busy_until[node] = start + transmission
                arrival = start + transmission + after
                day = int(arrival)
                tie += 1
                if day in calendar:
                    calendar[day].append((arrival, tie, target))
                else:
                    calendar[day] = [(arrival, tie, target)]
                if day > last:
                    last = day
                break
    outcome.arrivals = arrivals
    return outcome


def chains(planned: Sequence[Planned]) -> tuple[dict[int, int], dict[int, int]]:
    """Which publication follows which, and the other way round: those of one source and topic, in order of time."""
    following: dict[int, int] = {}
    latest: dict[tuple[int, int], int] = {}
    for row in sorted(range(len(planned)), key=lambda row: (planned[row].at, row)):
        chain = (planned[row].source, planned[row].topic)
        if chain in latest:
            following[latest[chain]] = row
        latest[chain] = row
    return following, {row: before for before, row in following.items()}
