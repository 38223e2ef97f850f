"""What the feed asks of a subscriber on sequencing atoms (brokered/machines.py)."""

from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.options import Limits
from seriatim.model import Notification, Number, Topic
from seriatim.protocols.atoms.subscriber import AtomsSubscriber, Depart, Placed


class AtomsView(SubscriberView):
    """The view of one subscriber."""

    knows_ages = False
    farewell = Depart()

    def __init__(self, subscriber: AtomsSubscriber) -> None:
        super().__init__(subscriber)
        self._subscriber = subscriber
        self._inner = subscriber.inner

    @property
    def topics(self) -> frozenset[Topic]:
        return self._inner.topics

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    def share(self, limits: Limits) -> float:
        return max(super().share(limits), self._inner.waiting_bytes / limits.unread_bytes)

    def blocked_topics(self) -> frozenset[Topic]:
        return self._inner.blocked_topics()

    def explain(self) -> list[str]:
        return self._inner.explain()

    def unanswered(self) -> list[str]:
        return self._inner.explain()

    def slot_of(self, notification: Notification) -> Number:
        return notification.slot if isinstance(notification, Placed) else notification.number

    @property
    def is_heard(self) -> bool:
        return self._subscriber.is_heard
