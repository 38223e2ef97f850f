"""The problems of a process, and since when they last, for /health, /ready, /live and `seriatim status`.

Each part of a process reports its current *troubles*. A `Ledger` knows since when each of them lasts, and tells the log
when one begins and when all are over. Three questions are asked about them:

    /health   does everything that this process is for work now?       any problem is a no
    /ready    can it serve those that connect to it?                    `UNREADY` is a no
    /live     would it not help to start it again?                      `DEAD` is a no
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

logger = logging.getLogger(__name__)

# starting, stopped, failed: a node, or the process. broker: it does not answer. journal: it takes nothing. layout:
# others know another one. link: to a node that this one needs. log: of a topic. stamps, order log: they are not kept.
# standby: it cannot take over. silent: the process that it stands by for does not answer.
Kind: TypeAlias = Literal[
    "starting",
    "stopped",
    "failed",
    "broker",
    "journal",
    "layout",
    "link",
    "log",
    "stamps",
    "order log",
    "standby",
    "silent",
]

UNREADY: frozenset[Kind] = frozenset({"starting", "stopped", "failed", "broker", "journal", "layout", "standby"})
DEAD: frozenset[Kind] = frozenset({"failed"})
PROBLEMS_MAX = 100  # of one node: an answer must fit into one message of the broker


class Trouble(Struct, frozen=True):
    """Something that does not work now. `what`: which topic, neighbour, … `age_s`: how long, if that is known."""

    kind: Kind
    what: str
    reason: str
    age_s: float = 0.0


class Problem(Struct, frozen=True, kw_only=True):
    """A trouble of a node, and how long it has lasted. An empty `node`: it concerns the whole process."""

    node: str = ""
    kind: Kind
    what: str = ""
    reason: str
    seconds: float = 0.0

    @property
    def sentence(self) -> str:
        who = f"{self.node}: " if self.node else ""
        return f"{who}{self.reason} (for {self.seconds:,.0f} s)"


class Ledger:
    """The problems of one node or process. Bounded: what is beyond `PROBLEMS_MAX` is counted."""

    def __init__(self, node: str = "", now_s: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._now_s = now_s
        self._since: dict[tuple[Kind, str], float] = {}

    def update(self, found: Iterable[Trouble]) -> list[Problem]:
        """These are the troubles now."""
        now_s, before = self._now_s(), self._since
        troubles = {(each.kind, each.what): each for each in found}
        self._since = {key: min(before.get(key, now_s), now_s - each.age_s) for key, each in troubles.items()}
        for key, each in troubles.items():
            if key not in before:
                logger.warning("not healthy: node=%s kind=%s reason=%s", self._node, each.kind, each.reason)
        if before and not troubles:
            logger.info("healthy again: node=%s", self._node)
        problems = [
            Problem(node=self._node, kind=kind, what=what, reason=each.reason, seconds=now_s - self._since[kind, what])
            for (kind, what), each in list(troubles.items())[:PROBLEMS_MAX]
        ]
        if (more := len(troubles) - PROBLEMS_MAX) > 0:
            kind = next(reversed(troubles))[0]
            problems.append(Problem(node=self._node, kind=kind, reason=f"{more:,} more problems are left out"))
        return problems
