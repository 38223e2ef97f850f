"""Log mode: when a publisher's events have their place in the order.

An event has its place when its stamp is finished: the range has passed the highest node where its topic meets another
one. Whatever is published after that passes those nodes later. The broker tells how far the stamps of a topic are
(`Follow`, `StampedTo`). A home journals a stamp before it hands it out, so what the broker has seen is final.

What was stamped before an event was sent proves nothing about that event. If its number is among those, either it was
in the log already (a repeat), or the log was made anew and its numbers begin again. The broker is asked once more: it
can tell one log from another.

The home of a topic that nobody has subscribed to may not watch its log. So the publisher also asks the home about the
number (`Inquire`), at the first event of a topic and whenever a place does not come. The home then looks at the log.
Its answer is for `explain`, and confirms nothing.

A publisher of very many topics follows the latest of them. One that it no longer follows is followed again when it
publishes there.
"""

from msgspec import Struct, field

from seriatim.model import BROKER, Node, Number, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Answer, Inquire
from seriatim.protocols.with_broker import EventLost, EventPlaced, Follow, StampedTo, Unfollow

FOLLOWED_MAX = 4_096  # topics; each is a subscription at the broker
SAYS = {
    "coming": "the node has issued it, and its stamp is on its way",
    "unissued": "the node has not seen it in the log yet",
}


class Following(Struct):
    """One topic that this publisher publishes to."""

    stamped: Number = 0  # the broker has said that the stamps up to here are out
    sent_in: int = 0  # the era that was known when the event under way was sent
    before: Number = 0  # what was out already when the event under way was sent
    unplaced: list[Number] = field(default_factory=list)  # stored, and without a place yet
    said: str = ""  # what the home last answered about them
    era: int = 0  # of the latest stamp
    eras: dict[Number, int] = field(default_factory=dict)  # of the unplaced: the era in which it cannot be lost


class Placing:
    """The part of a publisher that waits for places. `following` is its state."""

    def __init__(self, following: dict[Topic, Following]) -> None:
        self.following = following
        self.waiting: dict[Topic, None] = {topic: None for topic, each in following.items() if each.unplaced}

    def sending(self, topic: Topic, home: Node, effects: Effects) -> None:
        """An event of this topic is sent now, for the first time. Called before its `Append` is."""
        following = self._followed(topic, home, effects)
        following.before, following.sent_in = following.stamped, following.era

    def _followed(self, topic: Topic, home: Node, effects: Effects) -> Following:
        following = self.following.get(topic)
        if following is None:
            self._make_room(effects)
            following = self.following[topic] = Following()
            effects.send.append((BROKER, Follow(topic)))
            effects.send.append((home, Inquire(topic, 1, is_mine=True)))
        return following

    def _make_room(self, effects: Effects) -> None:
        if len(self.following) >= FOLLOWED_MAX:
            idle = next((topic for topic, each in self.following.items() if not each.unplaced), None)
            if idle is not None:
                del self.following[idle]
                effects.send.append((BROKER, Unfollow(idle)))

    def stored(self, topic: Topic, number: Number, home: Node, effects: Effects) -> None:
        following = self._followed(topic, home, effects)
        if number <= following.before:
            following.stamped = following.before = 0
            effects.send.append((BROKER, Follow(topic)))
        following.unplaced.append(number)
        following.eras[number] = following.sent_in
        self.waiting[topic] = None
        self.place(topic, following, effects)
        self._ask_whether_lost(topic, following, home, effects)

    def on_stamped(self, message: StampedTo, home: Node, effects: Effects) -> bool:
        """Whether events have got their place."""
        following = self.following.get(message.topic)
        if following is None or message.last <= following.stamped:
            return False
        following.stamped, following.era = message.last, max(message.era, following.era)
        is_placed = self.place(message.topic, following, effects)
        self._ask_whether_lost(message.topic, following, home, effects)
        return is_placed

    def _ask_whether_lost(self, topic: Topic, following: Following, home: Node, effects: Effects) -> None:
        """An era has begun since these events were sent. Their stamps may say that they are lost."""
        for number in following.unplaced:
            if number <= following.stamped:
                effects.send.append((home, Inquire(topic, number, is_mine=True)))

    def place(self, topic: Topic, following: Following, effects: Effects) -> bool:
        placed = [number for number in following.unplaced if self._has_place(following, number)]
        if following.era:  # a place says that all before it have theirs: so none before one that may be lost
            doubtful = [number for number in following.unplaced if number <= following.stamped and number not in placed]
            placed = [number for number in placed if number < min(doubtful, default=number + 1)]
        if placed:
            gone = set(placed)
            following.unplaced = [number for number in following.unplaced if number not in gone]
            for number in placed:
                following.eras.pop(number, None)
            effects.notify.extend([EventPlaced(topic, number) for number in placed])
        if not following.unplaced:
            self.waiting.pop(topic, None)
            following.said = ""
        return bool(placed)

    def _has_place(self, following: Following, number: Number) -> bool:
        return number <= following.stamped and following.eras.get(number, following.era) == following.era

    def ask_again(self, topic: Topic, home: Node, effects: Effects) -> None:
        effects.send.append((BROKER, Follow(topic)))
        following = self.following[topic]
        effects.send.append((home, Inquire(topic, max(following.unplaced), is_mine=True)))
        self._ask_whether_lost(topic, following, home, effects)

    def forget(self, topic: Topic) -> None:
        self.following.pop(topic, None)
        self.waiting.pop(topic, None)

    def on_answer(self, message: Answer, effects: Effects) -> bool:
        """Whether events have got their place, or will get none."""
        topic, number = message.topic, message.number
        following = self.following.get(topic)
        if following is None or number not in following.unplaced:
            return False
        if message.state == "void":
            following.unplaced.remove(number)
            following.eras.pop(number, None)
            effects.notify.append(EventLost(topic, number))
            self.place(topic, following, effects)
            return True
        if number <= following.stamped and message.era >= following.era:
            following.eras[number] = following.era
            return self.place(topic, following, effects)
        following.said = SAYS.get(message.state, "the node has stamped it, and the broker does not show the stamp")
        return False

    def why(self, topic: Topic, home: Node) -> str:
        """What the unplaced events of a topic wait for, as far as it is known; empty: there are none."""
        if topic not in self.waiting:
            return ""
        return self.following[topic].said or f"node {home} has not answered"

    def explain(self, topic: Topic, home: Node) -> str:
        following = self.following[topic]
        numbers = f"{topic} {min(following.unplaced)}"
        if len(following.unplaced) > 1:
            numbers += f" to {max(following.unplaced)}"
        return f"{numbers}: stored, waits for its place in the order; {self.why(topic, home)}"
