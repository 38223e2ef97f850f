"""A subscriber's gaps: numbers that do not come.

The subscriber asks the home of a number that does not come. The answer decides: wait on, take the void, listen again,
or (if it is lost) rejoin the topic and report the gap. A subscriber that listens again to a published number is told
by the broker if the event or its stamp is gone: then it is lost, too. So every wait is bounded. On unreliable brokers
events are held for a bounded time and in a bounded number. What comes too late is notified at once, tagged
`out_of_order`.
"""

from itertools import islice

from seriatim.model import BROKER, Number, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Answer, Inquire
from seriatim.protocols.tree.subscribing import Subscribing
from seriatim.protocols.with_broker import Listen, Trimmed

WAITERS_MAX = 1_000  # held events of other topics that are looked at, to tell their homes


class Gaps(Subscribing):
    """The part of a subscriber that asks after what is missing, and gives up on it."""

    def _inquire(self, now: float, effects: Effects) -> None:
        silent = set()
        for topic, number in self._missing():
            holding = self.state.holdings[topic]
            if holding.missing_since is None:
                holding.missing_since = now
            elif now - holding.missing_since >= self.options.patience_ms:
                holding.missing_since = now
                silent.add(self.tree.home(topic))
                waiting = list(islice(self._queue.waiters(topic), WAITERS_MAX))
                held = len(self.state.lanes[topic].held) + len(holding.unstamped) + len(waiting)
                inquiry = Inquire(topic, number, rejected=holding.forged == number, held=max(1, held))
                effects.send.append((self.tree.home(topic), inquiry))
                self._tell_others((topic, number), waiting, effects)
        self._seek(silent, effects)

    def _tell_others(
        self, missing: tuple[Topic, Number], waiting: list[tuple[Topic, Number]], effects: Effects
    ) -> None:
        """Each other home of what waits learns of one event that does. Its answer is not needed: the event is here."""
        told = {self.tree.home(missing[0])}
        for topic, number in waiting:
            if (home := self.tree.home(topic)) not in told:
                told.add(home)
                held = len(self.state.lanes[topic].held)
                effects.send.append((home, Inquire(topic, number, held=held, waits_for=missing)))

    def _missing(self) -> list[tuple[Topic, Number]]:
        missing = dict(self._queue.missing())
        for topic, holding in self.state.holdings.items():
            lane = self.state.lanes[topic]
            if holding.unstamped and lane.open:
                missing.setdefault(topic, lane.done + 1)
            if topic in self.state.beyond and lane.open and lane.done + 1 not in lane.held:
                missing.setdefault(topic, lane.done + 1)
            if lane.done + 1 in holding.early:
                missing.pop(topic, None)
        return sorted(missing.items())

    def _on_answer(self, message: Answer, now: float, effects: Effects) -> None:
        lane = self.state.lanes.get(message.topic)
        if lane is None or not lane.open or message.number != lane.done + 1 or message.number in lane.held:
            return
        if message.state in ("published", "unissued"):  # what lies beyond comes again, or was not real
            self.state.beyond.discard(message.topic)
        if message.state == "void":
            self._admit(message.topic, message.number, message.entries, None, now)
        elif message.state == "published":
            effects.send.append((BROKER, Listen(message.topic, message.number - 1, self.state.version, is_kept=True)))
        elif message.state == "lost" and self.options.on_lost == "skip":
            self._rejoin(frozenset({message.topic}), now, effects)
        elif message.state == "lost" or (message.state == "unissued" and self._is_forged_wait(message.topic)):
            effects.notify.append(message)  # this wait will not end by itself: the application must decide

    def _is_forged_wait(self, topic: Topic) -> bool:
        """Whether something held here waits for a number that was never given out. (A log may just not be stamped.)"""
        return self.options.mode == "ticket" and any(missing == topic for missing, _ in self._queue.missing())

    def _on_trimmed(self, message: Trimmed, now: float, effects: Effects) -> None:
        if self.state.reading is not None:
            self._on_trimmed_past(self.state.reading, message)
            return
        lane = self.state.lanes.get(message.topic)
        if lane is None or not lane.open:
            return
        holding = self.state.holdings[message.topic]
        unstamped = holding.unstamped if holding.missing_since is None else {}  # its stamp may still be on its way
        missing = lane.done + 1
        while (here := lane.held.get(missing) or unstamped.get(missing)) is not None:
            missing = max(missing, here.last) + 1
        if missing >= message.first:
            return
        if self.options.on_lost != "skip":
            if holding.missing_since is not None:  # the home has been asked, and may not know what is gone
                effects.notify.append(Answer(message.topic, missing, "lost", {}))
        else:
            self._rejoin(frozenset({message.topic}), now, effects)

    def _expire(self, now: float) -> None:
        """Unreliable brokers: nothing is held longer than its time to live."""
        time_to_live = self.options.time_to_live_ms
        while time_to_live is not None:
            since = self._queue.oldest_since()
            if since is None or since + time_to_live > now or not (forced := self._queue.force_oldest()):
                return
            self._done(forced, "its time to live was over")
