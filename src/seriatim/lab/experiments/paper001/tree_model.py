"""Trees at speed: when every publication reaches every member, computed without machines.

The simulator with the protocols' own machines (tree_worlds.py) is the measure of all things here. It takes 20 to 50
microseconds for a message and, in 4,096 peers that all publish, memory for 16.8 million sources of publications. The
model has the same trees, the same queues and the same times, for experiments whose membership does not change and whose
notifications do not matter; tests/lab/experiments/test_tree_model.py shows that both agree bit by bit. This file
defines the model and its results; tree_waves.py computes them.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TypeAlias

from msgspec import Struct

from seriatim.lab.sim import PacketDelays
from seriatim.model import InputError
from seriatim.protocols.vcube.cube import nearest

# By node and by height + 1: (child, height of the child + 1), in the order in which copies are queued.
Fans: TypeAlias = list[list[tuple[tuple[int, int], ...]]]

KIND_BITS = 5
KIND_MASK = (1 << KIND_BITS) - 1
ACK, REQUEST = 0, KIND_MASK  # all else: a publication, and the height it is to be handed on, plus 1
TICKS = 1 << 20  # in a unit of time


class Planned(Struct, frozen=True):
    """A publication: its publisher, and its time."""

    at: float
    source: int
    topic: int = 0


class Model(Struct, frozen=True, kw_only=True):
    """The parameters of the model. `roots`: SRPT, and the root of each topic; without them VCube-PS, rooted at each
    source.

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
        if len(self.members) < 2:
            raise InputError("members", f"{len(self.members)} have nobody to publish to", "give two or more")
        if self.delays.transmission <= 0.0:
            raise InputError("delays", f"a transmission takes {self.delays.transmission:g}", "give more than 0")


class Outcome(Struct):
    """The results of the model. `received` has a row of `size` times for each publication; -1: it never came."""

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
        """The mean latency of what was received by `end`, with everybody a member."""
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
        """The same measure as `QueueStatistics.mean_place`."""
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
    """The whole tick before it. Times that experiments draw are whole ticks, so that sums of them are exact."""
    return int(time * TICKS) / TICKS


def run(model: Model, planned: Sequence[Planned]) -> Outcome:
    """Let all publications happen."""
    delays = (model.delays.transmission, model.delays.after_departure)
    if any(time != on_tick(time) for time in (*delays, *(publication.at for publication in planned))):
        raise InputError("times", f"some are not whole ticks of 1/{TICKS:,}", "round them with on_tick")
    if find_spec("numpy") is None:
        raise InputError("experiment", "this one needs numpy, which is not installed", 'pip install "seriatim[spark]"')
    from seriatim.lab.experiments.paper001.tree_waves import run_waves

    return run_waves(model, planned)


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
