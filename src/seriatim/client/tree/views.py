"""What the feed asks of the tree's machines (brokered/machines.py)."""

from collections.abc import Mapping

from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.tree.durable import DurableSubscriber, Past
from seriatim.client.tree.unordered import UnorderedSubscriber
from seriatim.model import Number, Topic
from seriatim.order import Lane
from seriatim.protocols.tree import Subscriber, Waiting


class TreeView(SubscriberView):
    """A subscriber."""

    def __init__(self, subscriber: Subscriber) -> None:
        super().__init__(subscriber)
        self.subscriber = subscriber

    @property
    def topics(self) -> frozenset[Topic]:
        return self.subscriber.topics

    @property
    def lanes(self) -> Mapping[Topic, Lane]:
        return self.subscriber.state.lanes

    @property
    def begun(self) -> dict[Topic, tuple[Number, Number]]:
        """Of every topic that has begun: after which number, and how far it is."""
        holdings = self.subscriber.state.holdings
        return {topic: (holdings[topic].start, lane.done) for topic, lane in self.lanes.items() if lane.open}

    @property
    def waiting(self) -> int:
        return self.subscriber.waiting

    def blocked_topics(self) -> frozenset[Topic]:
        return self.subscriber.blocked_topics()

    def waits(self) -> list[Waiting]:
        return self.subscriber.explain()

    def oldest_since(self) -> float | None:
        return self.subscriber.oldest_since()

    @property
    def is_changing(self) -> bool:
        return self.subscriber.state.changing is not None

    def unanswered(self) -> list[str]:
        changing = self.subscriber.state.changing
        if changing is None:
            return ["the broker has not confirmed that it delivers them"]
        home = self.subscriber.tree.home
        waits = [f"the broker has not confirmed {topic}" for topic in sorted(changing.listen)]
        joins = sorted(changing.join - changing.listen)
        waits += [f"node {home(topic)} has not answered for {topic}" for topic in joins]
        return waits + [f"node {node} has not confirmed" for node in sorted(changing.update)]


class DurableView(TreeView):
    """A subscriber that knows how far its application is, and was before a restart."""

    def __init__(self, machine: DurableSubscriber, past: Past) -> None:
        super().__init__(machine.subscriber)
        self.machine = machine
        self.encode = machine.encode
        if past.acknowledged or past.taken:
            self.recall = past.recall


class UnorderedView(SubscriberView):
    """A subscriber that holds nothing back."""

    def __init__(self, machine: UnorderedSubscriber) -> None:
        super().__init__(machine)
        self._subscriber = machine

    @property
    def topics(self) -> frozenset[Topic]:
        return self._subscriber.topics

    def unanswered(self) -> list[str]:
        return self._subscriber.explain()
