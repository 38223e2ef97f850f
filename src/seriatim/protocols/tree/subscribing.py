"""A subscriber's topics: changing them while events flow, and being known to the nodes.

One change at a time; later ones wait. What is removed is gone at once. What is added is joined: the subscriber listens
on the broker (where that cannot be done afterwards), asks each new topic's home, and is told after which number the
topic starts and which floor its first event must wait for. Until then whatever names the topic waits.

A subscriber with a lease has its nodes confirm that they know it, and begins anew with one that has forgotten it.
"""

from collections.abc import Iterable

from seriatim.model import BROKER, Gap, InputError, Number, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.receiving import Receiving, told, told_from
from seriatim.protocols.tree.state import Changing, Holding
from seriatim.protocols.with_broker import Attend, Change, Changed, Listen, Listening, Unlisten

BEGAN_ANEW = "the topic began anew"  # the reason of a gap behind which a topic was joined again


class Subscribing(Receiving):
    """The part of a subscriber that changes what it holds."""

    def _on_change(self, change: Change, now: float, effects: Effects) -> None:
        if not change.add and not change.remove:
            raise InputError("change", "it neither adds nor removes a topic", "name at least one topic")
        for topic in sorted(change.add):
            self.tree.home(topic)  # raises UnknownTopic before anything changes
        self.state.waiting.append(change)
        self._next_change(now, effects)

    def _next_change(self, now: float, effects: Effects) -> None:
        while self.state.changing is None and self.state.waiting:
            change = self.state.waiting.pop(0)
            add = change.add - (self.topics - change.remove)
            remove = change.remove & self.topics
            if add or remove:
                self._flush(now, effects)
                effects.persist.extend([say.Began(self.state.version + 1, add, remove)] if self.options.durable else [])
                self._begin(add, remove, now, effects)
                self._ask(effects)
            else:
                effects.notify.append(Changed(self.state.version, self.topics, {}))

    def _begin(self, add: frozenset[Topic], remove: frozenset[Topic], now: float, effects: Effects) -> None:
        self.state.version += 1
        touched = self.topics | add
        told = {topic: self._told_of(topic) for topic in remove & add}
        self._forget_ready(remove)
        for topic in sorted(remove):
            self._unstamped -= len(self.state.holdings.pop(topic).unstamped)
            self.state.unheard.pop(topic, None)
            self.state.beyond.discard(topic)
            if topic not in add:
                self.state.attending.pop(topic, None)
                effects.send.append((BROKER, Unlisten(topic)))
        self._done(self._queue.close(remove))
        self.state.left = (self.state.left | remove) - add
        for topic in sorted(add):
            self.state.holdings[topic] = Holding(begins_anew_after=told.get(topic))
            self._queue.join(topic)
        self._levels.clear()
        self._attend((topic for topic, lane in self.state.lanes.items() if lane.open), effects)
        listen = set(add) if self.options.mode == "ticket" else set()
        update = set() if add else {self.tree.home(topic) for topic in touched}
        self.state.changing = Changing(set(add), listen, set(add), update, now)

    def _attend(self, topics: Iterable[Topic], effects: Effects) -> None:
        """Tell the broker whose stages are enough for these topics, where that is news.

        What is finished at its home has no stages. A stage that was taken before a change is enough after it.
        """
        if not self.options.tells_stages:
            return
        for topic in sorted(topics):
            home = self.tree.home(topic)
            node = self._level(home) if home != self.tree.root else ""
            if node != self.state.attending.get(topic, ""):
                self.state.attending[topic] = node
                effects.send.append((BROKER, Attend(topic, node)))

    def _told_of(self, topic: Topic) -> Number:
        """How many numbers of a topic are done and not still kept back."""
        kept_back = [each for each in self.state.ready if told(each)[0] == topic]
        return told_from(kept_back[0]) - 1 if kept_back else self.state.lanes[topic].done

    def _ask(self, effects: Effects) -> None:
        """Send every request that has not been answered. All of them may be repeated."""
        for topic in sorted(self.state.unheard):
            effects.send.append((BROKER, Listen(topic, self.state.lanes[topic].done, self.state.version)))
            self.state.attending.pop(topic, None)
        self._attend(self.state.unheard, effects)
        changing = self.state.changing
        if changing is None:
            return
        for topic in sorted(changing.listen):
            effects.send.append((BROKER, Listen(topic, None, self.state.version)))
        for topic in sorted(changing.join - changing.listen):
            self._ask_to_join(topic, effects)
        for node in sorted(changing.update):
            effects.send.append((node, say.Update(self.state.version, self.topics, self.options.durable)))

    def _ask_to_join(self, topic: Topic, effects: Effects) -> None:
        left, lasting = frozenset(self.state.left), self.options.durable
        request = say.Subscribe(self.state.version, topic, self.topics, left, lasting)
        effects.send.append((self.tree.home(topic), request))

    def _on_listening(self, message: Listening, effects: Effects) -> None:
        if message.version >= self.state.unheard.get(message.topic, message.version + 1):
            del self.state.unheard[message.topic]
        changing = self.state.changing
        if changing is not None and message.topic in changing.listen and message.version == self.state.version:
            changing.listen.discard(message.topic)
            self._ask_to_join(message.topic, effects)

    def _on_joined(self, message: say.Joined, now: float, effects: Effects) -> None:
        changing = self.state.changing
        if changing is None or message.version != self.state.version or message.topic not in changing.join:
            return
        if self.options.durable:
            effects.persist.append(message)
        topic = message.topic
        changing.join.discard(topic)
        changing.listen.discard(topic)
        holding = self.state.holdings[topic]
        holding.start = holding.stamped_to = holding.final_to = message.start
        holding.floor, holding.acquaintance = message.floor, message.acquaintance
        self.state.confirmed.setdefault(self.tree.home(topic), changing.since)
        if holding.begins_anew_after is not None and holding.begins_anew_after < message.start:
            gap = Gap(topic, holding.begins_anew_after + 1, message.start, BEGAN_ANEW)
            self.state.ready.append(gap)
        self._done(self._queue.open(topic, message.start))
        if self.options.mode == "log" or changing.interrupted:
            self.state.unheard[topic] = self.state.version
            effects.send.append((BROKER, Listen(topic, message.start, self.state.version)))
            self._attend((topic,), effects)
        self._take_early(now, effects)
        self._finish_change(now, effects)

    def _take_early(self, now: float, effects: Effects) -> None:
        """A topic has begun: look again at what could not be looked at."""
        lanes = self.state.lanes
        for topic, holding in sorted(self.state.holdings.items()):
            if holding.early and lanes[topic].open:
                early, holding.early = holding.early, {}
                for _, arrived in sorted(early.items()):
                    self._on_delivered(arrived.delivered, now, effects)

    def _on_updated(self, message: say.Updated, now: float, effects: Effects) -> None:
        changing = self.state.changing
        if changing is not None and message.version == self.state.version and message.node in changing.update:
            changing.update.discard(message.node)
            self._finish_change(now, effects)

    def _finish_change(self, now: float, effects: Effects) -> None:
        changing = self.state.changing
        if changing is None or changing.join or changing.update:
            return
        self.state.changing = self.state.retry_due = None
        start = {topic: self.state.holdings[topic].start for topic in sorted(changing.add)}
        effects.notify.append(Changed(self.state.version, self.topics, start))
        nodes = {self.tree.home(topic) for topic in self.topics}
        self.state.confirmed = {node: self.state.confirmed[node] for node in sorted(nodes)}
        for node in sorted({self.tree.home(topic) for topic in changing.add}):
            effects.send.append((node, say.Refresh(self.state.version, now)))
        self._next_change(now, effects)

    def _rejoin(self, topics: frozenset[Topic], now: float, effects: Effects) -> None:
        """Join these topics again. What lies between is reported as a gap when the new start is known."""
        change = Change(topics, topics)
        if change not in self.state.waiting:
            self.state.waiting.insert(0, change)
        self._next_change(now, effects)

    # ── being known ───────────────────────────────────────────────────────────────────────────────────────────────

    def _refresh(self, now: float, effects: Effects) -> None:
        if self._lease_ms is not None and self.state.refresh_due is not None and now >= self.state.refresh_due:
            self.state.refresh_due = None
            complete = self.state.version - (self.state.changing is not None)
            for node in self.state.confirmed:
                effects.send.append((node, say.Refresh(complete, now)))

    def _on_refreshed(self, message: say.Refreshed, now: float, effects: Effects) -> None:
        confirmed = self.state.confirmed
        if self._lease_ms is None or message.at <= confirmed.get(message.node, message.at):
            return  # nobody asked, or an old answer
        holdings, lanes = self.state.holdings.items(), self.state.lanes
        here = [each for topic, each in holdings if lanes[topic].open and self.tree.home(topic) == message.node]
        if all(each.acquaintance == message.acquaintance for each in here):
            confirmed[message.node] = message.at
        elif self.state.changing is None:  # the node has forgotten us: what is ready may be wrongly ordered
            self._rejoin(self.topics, now, effects)
