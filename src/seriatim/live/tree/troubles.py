"""What does not work at a node of the tree: what the broker refuses it, and what waits for longer than it may."""

import time
from collections.abc import Iterator

from msgspec import Struct

from seriatim.brokers.capabilities import AnotherLog
from seriatim.live.tree.survey import Survey
from seriatim.model import SeriatimError, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import (
    Discard,
    Discarded,
    Grown,
    Kept,
    Ordered,
    OrderKept,
    Renew,
    Renewed,
    Stamped,
    Watch,
    Write,
    Written,
)
from seriatim.server.health import Kind, Trouble

LATE_S = 5.0  # a stamp that has waited for so long, for the tree or the broker, is a trouble
REFUSALS_MAX = 1_000


class OtherLog(Struct, frozen=True):
    """A log that is not the one that was numbered: how many events it held, and when somebody looked."""

    events: int
    at_s: float


class Refusals:
    """What the broker has refused, and has not carried out since. The oldest are forgotten beyond a bound.

    `other_logs`: what is in logs that are not the ones they were.
    """

    def __init__(self) -> None:
        self.other_logs: dict[Topic, OtherLog] = {}
        self._found: dict[tuple[Kind, Topic], str] = {}

    def add(self, message: Payload, error: SeriatimError) -> bool:
        """This message is refused. Whether that is news."""
        is_new, reason = False, str(error)
        if isinstance(error, AnotherLog):
            for _, topic in _keys_of(message):
                self.other_logs[topic] = OtherLog(error.events, time.monotonic())
        for key in _keys_of(message):
            is_new |= self._found.get(key) != reason
            self._found[key] = reason
        while len(self._found) > REFUSALS_MAX:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self.other_logs.pop(oldest[1], None)
        return is_new

    def heard(self, message: Payload) -> None:
        """The broker says this, so it does again what it had refused."""
        if not self._found:
            return
        match message:
            case Grown() | Renewed():
                self._found.pop(("log", message.topic), None)
                self.other_logs.pop(message.topic, None)
            case Kept() | Written():
                self._found.pop(("stamps", message.topic), None)
            case Discarded():
                for kind in ("log", "stamps"):
                    self._found.pop((kind, message.topic), None)
            case OrderKept():
                self._found.pop(("order log", ""), None)

    def __contains__(self, key: tuple[Kind, Topic]) -> bool:
        return key in self._found

    def troubles(self) -> Iterator[Trouble]:
        for (kind, topic), reason in self._found.items():
            what = {"stamps": f"stamps of {topic} are refused", "order log": "the order log is refused"}.get(kind)
            yield Trouble(kind, topic, f"{what}: {reason}" if what is not None else reason)


def _keys_of(message: Payload) -> Iterator[tuple[Kind, Topic]]:
    match message:
        case Renew():
            yield "log", message.topic
        case Watch():
            for topic in sorted(message.topics):
                yield "log", topic
        case Discard():
            yield "log", message.topic
        case Stamped() | Write():
            yield "stamps", message.topic
        case Ordered():
            yield "order log", ""


def late(survey: Survey) -> Iterator[Trouble]:
    """Stamps that should long be finished, or kept by the broker."""
    if (oldest := survey.oldest_climbing) is not None and oldest.age_s > LATE_S:
        waits = f"{survey.unstamped_ranges:,} ranges of numbers wait for their stamps, first {oldest.name}"
        reason = f"{waits}: they have not come back from the nodes above; is one of those away?"
        yield Trouble("stamps", "climbing", reason, oldest.age_s)
    if (oldest := survey.oldest_unkept) is not None and oldest.age_s > LATE_S:
        reason = f"the broker has not confirmed {survey.unkept_ranges:,} stamps, first that of {oldest.name}"
        yield Trouble("stamps", "unkept", reason, oldest.age_s)


class Lag:
    """Whether the broker's copy of the order log comes forward."""

    def __init__(self) -> None:
        self._kept = -1
        self._since_s = 0.0

    def troubles(self, given: int, kept: int, now_s: float) -> Iterator[Trouble]:
        """Trouble if positions that were given stay missing from the broker's order log for too long."""
        if kept != self._kept or given <= kept:
            self._kept, self._since_s = kept, now_s
        elif (age_s := now_s - self._since_s) > LATE_S:
            reason = f"the order log on the broker ends at position {kept:,}, {given - kept:,} are not in it"
            yield Trouble("order log", "lag", reason, age_s)
