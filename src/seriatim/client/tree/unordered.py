"""A subscriber that does not order: events are notified as they arrive.

For applications that need no order, and to see what ordering costs: broker, packing and everything else are the same.
Repeats are detected among the last few thousand numbers of a topic.
"""

from seriatim.client.brokered.machines import SubscriberView
from seriatim.model import APPLICATION, BROKER, Address, InputError, Notification, Number, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.with_broker import Change, Changed, Delivered, Listen, Listening, Unlisten

REMEMBERED = 4_096


class UnorderedSubscriber(SubscriberView):
    """The machine. `after`: the number after which a topic begins, on brokers that keep events; None: from now on."""

    def __init__(self, retry_ms: float, after: Number | None = None) -> None:
        super().__init__(self)
        self._retry_ms = retry_ms
        self._after = after
        self._version = 0
        self._recent: dict[Topic, dict[Number, None]] = {}
        self._unheard: set[Topic] = set()
        self._retry_due: float | None = None
        self._changing = False

    @property
    def topics(self) -> frozenset[Topic]:
        return frozenset(self._recent)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Delivered() if source == BROKER:
                self._on_delivered(message, effects)
            case Change() if source == APPLICATION:
                self._on_change(message, effects)
            case Listening() if source == BROKER and message.topic in self._unheard:
                self._unheard.discard(message.topic)
                self._finish(effects)
        self._wish(now, effects)
        return effects

    def tick(self, now: float) -> Effects:
        effects = Effects()
        if self._retry_due is not None and now >= self._retry_due:
            self._retry_due = None
            for topic in sorted(self._unheard):
                effects.send.append((BROKER, Listen(topic, self._after, self._version)))
        self._wish(now, effects)
        return effects

    def unanswered(self) -> list[str]:
        return [f"{topic}: the broker has not confirmed that it delivers it" for topic in sorted(self._unheard)]

    def _on_change(self, message: Change, effects: Effects) -> None:
        if not message.add and not message.remove:
            raise InputError("change", "it neither adds nor removes a topic", "name at least one topic")
        self._version += 1
        self._changing = True
        for topic in sorted(message.remove):
            if self._recent.pop(topic, None) is not None:
                self._unheard.discard(topic)
                effects.send.append((BROKER, Unlisten(topic)))
        for topic in sorted(message.add - self._recent.keys()):
            self._recent[topic] = {}
            self._unheard.add(topic)
            effects.send.append((BROKER, Listen(topic, self._after, self._version)))
        self._finish(effects)

    def _finish(self, effects: Effects) -> None:
        if self._changing and not self._unheard:
            self._changing = False
            effects.notify.append(Changed(self._version, self.topics, {}))

    def _on_delivered(self, message: Delivered, effects: Effects) -> None:
        recent = self._recent.get(message.topic)
        if recent is None or message.number in recent or message.event is None:
            return
        recent[message.number] = None
        if len(recent) > REMEMBERED:
            del recent[next(iter(recent))]
        effects.notify.append(Notification(message.event, message.number, message.entries or {}))

    def _wish(self, now: float, effects: Effects) -> None:
        if not self._unheard:
            self._retry_due = None
        elif self._retry_due is None:
            self._retry_due = now + self._retry_ms
        effects.wake_at = self._retry_due
