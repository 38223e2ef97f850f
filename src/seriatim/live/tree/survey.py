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


class Survey(Struct, frozen=True):
    """What a node holds, as it was found."""

    topics: int = 0
    issued: int = 0
    open_ranges: int = 0
    unstamped_ranges: int = 0
    oldest_open_s: float = 0.0
    subscribers: int = 0
    joins: int = 0


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
        open_ranges = unstamped = issued = 0
        topics = list(state.homes)
        for place, topic in enumerate(topics):
            if place % SLICE_TOPICS == SLICE_TOPICS - 1:
                yield
            home = state.homes.get(topic)
            if home is None:
                continue
            issued += home.issued
            for first, range_ in state.ranges.get(topic, {}).items():
                open_ranges += 1
                unstamped += range_.entries is None
                if len(seen) < OPEN_RANGES_KNOWN_MAX:
                    seen[topic, first] = self._seen.get((topic, first), now_s)
        self._seen = seen
        self.last = Survey(
            topics=len(topics),
            issued=issued,
            open_ranges=open_ranges,
            unstamped_ranges=unstamped,
            oldest_open_s=now_s - min(seen.values(), default=now_s),
            subscribers=len(state.couplings.holders),
            joins=sum(join.start is None for joins in state.joins.values() for join in joins.values()),
        )
