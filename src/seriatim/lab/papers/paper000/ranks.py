"""The precedence relation → of paper 000 §3.3: a fixed total order of all topics, and one manager for each."""

from collections.abc import Iterable, Mapping

from seriatim.model import Address, InputError, Number, Topic


def manager_of(topic: Topic) -> Address:
    """Where the topic's manager receives messages (the paper's getTMAddress)."""
    return f"TM_{topic}"


class Ranks:
    """All topics, highest rank first: `Ranks(["A", "B"])` says A → B.

    A request always travels from lower to higher ranks, against the arrow.
    """

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.topics = tuple(topics)
        self._position = {topic: position for position, topic in enumerate(self.topics)}
        if not self.topics:
            raise InputError("topics", "no topic is given", "name at least one topic")
        if len(self._position) < len(self.topics):
            raise InputError("topics", "a topic is listed twice", "list every topic once, highest rank first")

    def check(self, topic: Topic) -> None:
        """Raise if there is no such topic."""
        if topic not in self._position:
            raise InputError(f"topic {topic!r}", "it has no rank", "add it to the list of all topics")

    def precedes(self, topic: Topic, other: Topic) -> bool:
        """Whether topic → other."""
        return self._position[topic] < self._position[other]

    def ordered(self, topics: Iterable[Topic]) -> list[Topic]:
        """The topics, highest rank first."""
        return sorted(topics, key=self._position.__getitem__)

    def next(self, timestamp: Mapping[Topic, Number], topic: Topic | None) -> Topic | None:
        """The topic of the timestamp just above `topic`; the lowest one if `topic` is None; None at the end."""
        above = [other for other in timestamp if topic is None or self.precedes(other, topic)]
        return max(above, key=self._position.__getitem__, default=None)
