"""What a node of the tree holds: how many topics, ranges and subscribers, and how long ranges have been open.

A machine has no counters of its own. Its state is walked in small slices, so that a node with a million topics keeps
serving meanwhile.
"""

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from seriatim.model import Number, Topic
from seriatim.protocols.tree.state import SequencerState

SLICE_TOPICS = 2_000
OPEN_RANGES_KNOWN_MAX = 100_000


class Oldest(Struct, frozen=True):
    """A range of numbers that has waited for longer than the others."""

    name: str
    age_s: float


class Survey(Struct, frozen=True):
    """What a node holds, as it was found.

    `climbing`: ranges that wait for their way through the tree. `unkept`: whose stamps the broker has not confirmed.
    """

    topics: int = 0
    issued: int = 0
    open_ranges: int = 0
    unstamped_ranges: int = 0
    oldest_open_s: float = 0.0
    subscribers: int = 0
    joins: int = 0
    unkept_ranges: int = 0
    oldest_climbing: Oldest | None = None
    oldest_unkept: Oldest | None = None


class Surveyor:
    """Surveys a node's state again and again. The age of a range counts from the first survey that saw it open."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.last = Survey()
        self._now_s = now_s
        self._seen: dict[tuple[Topic, Number], float] = {}

    def walk(self, state: SequencerState) -> Iterator[None]:
        """One survey, in slices; `last` is replaced when it is complete."""
        now_s = self._now_s()
        seen: dict[tuple[Topic, Number], float] = {}
        open_ranges = unstamped = unkept = issued = 0
        oldest: dict[bool, tuple[float, str]] = {}  # is it finished → since when, which
        topics = list(state.homes)
        for place, topic in enumerate(topics):
            if place % SLICE_TOPICS == SLICE_TOPICS - 1:
                yield
            home = state.homes.get(topic)
            if home is None:
                continue
            issued += home.issued
            for first, range_ in state.ranges.get(topic, {}).items():
                finished = range_.entries is not None
                open_ranges += 1
                unstamped += not finished
                unkept += finished and not range_.publisher
                if len(seen) < OPEN_RANGES_KNOWN_MAX:
                    since_s = seen[topic, first] = self._seen.get((topic, first), now_s)
                    waits = not finished or not range_.publisher  # else for its publisher
                    if waits and (finished not in oldest or since_s < oldest[finished][0]):
                        oldest[finished] = (since_s, f"{topic} {first}..{range_.last}")
        self._seen = seen
        self.last = Survey(
            topics=len(topics),
            issued=issued,
            open_ranges=open_ranges,
            unstamped_ranges=unstamped,
            oldest_open_s=now_s - min(seen.values(), default=now_s),
            subscribers=len(state.couplings.holders),
            unkept_ranges=unkept,
            oldest_climbing=_oldest(oldest.get(False), now_s),
            oldest_unkept=_oldest(oldest.get(True), now_s),
            joins=sum(join.start is None for joins in state.joins.values() for join in joins.values()),
        )


def _oldest(found: tuple[float, str] | None, now_s: float) -> Oldest | None:
    return Oldest(found[1], now_s - found[0]) if found is not None else None
