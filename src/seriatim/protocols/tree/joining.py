"""Subscriptions: starting a topic for a subscriber at a consistent cut, and forgetting subscribers.

A subscriber that adds topic T asks home(T). Phase one: the home has every other topic of the subscriber, and every
topic it ever left, *announced* up to where it meets T. Phase two, when all have reported: a *cut* climbs and collects
the floor. So every event of T after the cut comes after everything the subscriber may have seen, or may still see
unstamped, on its other topics. Nothing is published and nobody else waits.

Log mode: the cut waits until the broker has told how long the topic's log is, once *in this epoch*. The log may be long
before anybody here has watched it: a topic that the tree does not list is not watched until somebody wants it, and
after a restart it is not known what was appended meanwhile. A join that did not wait would begin at too low a number,
and give a new subscriber all of that as if it were news. Waiting costs little: a node that starts has all its logs
watched again anyway. The answer is an input like any other, so it is in the journal; which questions are open is known
to this process only.
"""

from collections.abc import Iterable

from msgspec import structs

from seriatim.model import BROKER, Address, Entries, Node, Topic
from seriatim.order import SequencingTree, Shift
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.tree.estate import Home
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import Join, SequencerState
from seriatim.protocols.with_broker import Watch

PUT_OFF_MAX = 8  # retries for which the question is not repeated while answers come in


class Joining(SequencerCore):
    """The part of a sequencer that starts, changes and ends subscriptions."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        self._unanswered: set[Topic] = set()
        self._watched_at = 0.0
        self._watch_due: float | None = None
        self._unmeasured_joins: dict[Topic, set[Address]] = {}  # who waits for the length of which log
        for subscriber, joins in self.state.joins.items():
            for topic, join in joins.items():
                if topic in join.unannounced:
                    self._unmeasured_joins.setdefault(topic, set()).add(subscriber)

    def _on_subscribe(self, source: Address, message: say.Subscribe, now: float, effects: Effects) -> None:
        topic = message.topic
        if self._is_restless and self._is_elsewhere(source, message, topic, effects):
            return
        problem = self._problem_with(message)
        if problem is not None:
            self._refuse(source, message.version, topic, problem, effects)
            return
        if message.version < self._couplings.version(source):
            self._refuse(source, message.version, topic, self._why_older(source, message.version), effects)
            return
        known = self.state.joins.get(source, {}).get(topic)
        if known is not None and known.version == message.version:
            if known.start is not None:
                self._answer_join(source, topic, known, effects)
            return
        self._watch([topic], now, effects)
        self._apply(source, message.version, message.topics, message.lasting, now)
        left = message.left - message.topics
        join = Join(message.version, message.topics, left, set(), history=message.history)
        join.unannounced = set((message.topics | join.left) - {topic})
        if not self._is_measured(topic):
            join.unannounced.add(topic)
            self._unmeasured_joins.setdefault(topic, set()).add(source)
        self.state.joins.setdefault(source, {})[topic] = join
        self._await_announcements(say.JoinId(source, message.version, topic), join, now, effects)

    def _problem_with(self, message: say.Subscribe) -> str | None:
        if not self._is_home(message.topic):
            return self._why_not_home(message.topic)
        if message.topic not in message.topics:
            return "topics must include the topic that is added"
        problem = self._problem_with_topics(message.topics | message.left)
        return problem if problem is not None or not self.state.removed else self._problem_with_removed(message.topic)

    def _problem_with_topics(self, topics: frozenset[Topic]) -> str | None:
        unknown = sorted(topic for topic in topics if not self.tree.knows(topic))
        return f"no node is home to {', '.join(unknown)}" if unknown else None

    def _await_announcements(self, join_id: say.JoinId, join: Join, now: float, effects: Effects) -> None:
        """Phase one: have the other topics announced where they meet this one. The cut waits for all of them."""
        lasting = self.state.couplings.holders[join_id.subscriber].lasting
        by_node: dict[Node, set[Topic]] = {}
        for other in join.unannounced - {join_id.topic}:
            by_node.setdefault(self.tree.home(other), set()).add(other)
        if not join.unannounced:
            self._cut(join_id, join, now, effects)
        for node, about in sorted(by_node.items()):
            self._route(node, say.Tell(join_id, join.topics, frozenset(about), lasting), now, effects)

    def _on_tell(self, message: say.Tell, now: float, effects: Effects) -> None:
        join, about = message.join, message.about
        if self._is_restless:
            about = self._told_here(message, now, effects)
            if not about:
                return
        self._watch(about, now, effects)
        self._apply(join.subscriber, join.version, message.topics, message.lasting, now)
        for topic in sorted(about):
            to = self.tree.meet(join.topic, topic)
            issued = self._home(topic).issued
            self._on_announce(self.node, say.Announce(topic, issued, to, join), now, effects)

    def _told_here(self, message: say.Tell, now: float, effects: Effects) -> frozenset[Topic]:
        """The topics that are to be announced here and now. The others have moved, or wait until they have."""
        here: set[Topic] = set()
        elsewhere: dict[Node, set[Topic]] = {}
        for topic in sorted(message.about):
            about_it = structs.replace(message, about=frozenset({topic}))
            if self._must_wait(self.node, about_it, topic):
                continue
            if self._is_home(topic):
                here.add(topic)
            else:
                elsewhere.setdefault(self.tree.home(topic), set()).add(topic)
        for node, topics in sorted(elsewhere.items()):
            self._route(node, structs.replace(message, about=frozenset(topics)), now, effects)
        return frozenset(here)

    def _on_announce(self, source: Address, message: say.Announce, now: float, effects: Effects) -> None:
        self._passages.raise_to(message.topic, message.number)
        if message.to == self.node:
            home = self.tree.home(message.join.topic)
            self._route(home, say.Announced(message.join, message.topic), now, effects)
        else:
            assert self._parent is not None, "a meeting point is above the home"
            effects.send.append((self._parent, structs.replace(message, order=self._carried())))

    def _measure(self, topic: Topic, home: Home, now: float, effects: Effects) -> None:
        """The broker told how long the log is: joins that waited for it start after what is there."""
        home.measured = self.state.epoch
        if topic in self._unanswered:
            self._answered(topic, now)
        for subscriber in sorted(self._unmeasured_joins.pop(topic, ())):
            join = self.state.joins.get(subscriber, {}).get(topic)
            if join is not None:
                self._wait_no_longer(say.JoinId(subscriber, join.version, topic), topic, now, effects)

    def _wait_no_longer(self, join_id: say.JoinId, topic: Topic, now: float, effects: Effects) -> None:
        join = self._join(join_id)
        if join is None or topic not in join.unannounced:
            return
        join.unannounced.discard(topic)
        if not join.unannounced:
            self._cut(join_id, join, now, effects)

    def _cut(self, join_id: say.JoinId, join: Join, now: float, effects: Effects) -> None:
        """Phase two: fix where the topic starts for this subscriber, and collect its floor on the way up."""
        topic = join_id.topic
        if left := self._left_topics(join):
            self._regrouping(topic).once |= left
        members = join.topics - {topic}
        to = self.tree.root if join.history else self._top(topic, set(members))
        start, moves = self._home(topic).issued, self.tree.moves.number
        message = say.Cut(join_id, start, to, {}, members, history=join.history, moves=moves)
        self._on_cut(self.node, message, now, effects)

    def _left_topics(self, join: Join) -> frozenset[Topic]:
        """The subscriber has seen events of topics it left: the next event of the new topic comes after them."""
        return join.left

    def _on_cut(self, source: Address, message: say.Cut, now: float, effects: Effects) -> None:
        topic = message.join.topic
        self._passages.raise_to(topic, message.start)
        floor = {**message.floor, **self._floor(topic, message.members, message.moves)}
        if message.to == self.node:
            position = self.state.order.end if message.history else 0
            done = say.CutDone(message.join, message.start, floor, position)
            self._route(self.tree.home(topic), done, now, effects)
        else:
            assert self._parent is not None, "a meeting point is above the home"
            onwards = structs.replace(message, floor=floor, order=self._carried())
            effects.send.append((self._parent, onwards))

    def _floor(self, topic: Topic, members: frozenset[Topic], moves: int) -> Entries:
        """The base of all later differences: what passed here before the cut comes before the first new event."""
        here = sorted(self._meeting_here(topic, members, moves))
        return {other: passed for other in here if (passed := self._passages.passed(other))}

    def _on_cut_done(self, message: say.CutDone, now: float, effects: Effects) -> None:
        join = self._join(message.join)
        if join is not None:
            join.start, join.floor, join.position = message.start, message.floor, message.position
            self._remember_named(message.floor)
            self._answer_join(message.join.subscriber, message.join.topic, join, effects)

    def _answer_join(self, subscriber: Address, topic: Topic, join: Join, effects: Effects) -> None:
        assert join.start is not None, "only a complete join is answered"
        acquaintance = self._couplings.acquaintance(subscriber)
        epoch, position = self.state.epoch, join.position
        era = self.state.healing.era
        answer = say.Joined(join.version, topic, join.start, join.floor, epoch, acquaintance, position, era)
        effects.send.append((subscriber, answer))

    def _join(self, join_id: say.JoinId) -> Join | None:
        join = self.state.joins.get(join_id.subscriber, {}).get(join_id.topic)
        return join if join is not None and join.version == join_id.version else None

    def _on_update(self, source: Address, message: say.Update, now: float, effects: Effects) -> None:
        problem = self._problem_with_topics(message.topics)
        if problem is not None:
            self._refuse(source, message.version, "", problem, effects)
            return
        if message.version < self._couplings.version(source):
            self._refuse(source, message.version, "", self._why_older(source, message.version), effects)
            return
        if self._is_restless and message.about and not self._is_updated_here(source, message, effects):
            return
        self._apply(source, message.version, message.topics, message.lasting, now)
        effects.send.append((source, say.Updated(message.version, self.node, self.state.epoch)))

    def _is_updated_here(self, source: Address, message: say.Update, effects: Effects) -> bool:
        """Whether some of the topics that it is about live here, and all that do stay. Else there is no answer yet, or
        other nodes must be told, too."""
        if any(self._must_wait(source, message, topic) for topic in sorted(message.about)):
            return False
        elsewhere = [topic for topic in sorted(message.about) if self._is_elsewhere(source, message, topic, effects)]
        return len(elsewhere) < len(message.about)

    def _why_older(self, subscriber: Address, version: int) -> str:
        """A subscriber that has made a later change itself does not listen to this."""
        known = self._couplings.version(subscriber)
        return (
            f"{subscriber} asks for change {version}, and has made change {known} already: two processes have this "
            "name, or its journal is older than what it has done. Stop the other process, or subscribe under another "
            "name"
        )

    def _apply(self, subscriber: Address, version: int, topics: frozenset[Topic], lasting: bool, now: float) -> None:
        if version > self._couplings.version(subscriber):
            self.state.joins.pop(subscriber, None)
        before = self._couplings.topics(subscriber)
        for shift in self._couplings.apply(subscriber, version, topics, now, lasting):
            self._shift(shift)
        if self._levels is not None:
            self._levels.change(before, self._couplings.topics(subscriber))

    def recouple(self, threshold: int) -> None:
        """The node was a node of another order until now, in which `threshold` subscriptions coupled two topics.

        What is coupled since then begins as any new coupling does: the next event of each topic gives the whole count
        of the other as base, and climbs to where they meet.
        """
        for shift in self._couplings.newly_coupled(threshold):
            self._shift(shift)

    def _shift(self, shift: Shift) -> None:
        """A pair became coupled or stopped being so: the topic's next event tells the nodes above."""
        regrouping, other = self._regrouping(shift.topic), shift.other
        if shift.coupled:
            if other in regrouping.uncouple:
                regrouping.uncouple.discard(other)
                if other in regrouping.former:  # the nodes above collect it where it lived before
                    regrouping.couple.add(other)
            else:
                regrouping.couple.add(other)
        elif other in regrouping.couple:
            regrouping.couple.discard(other)
            regrouping.once.add(other)
        else:
            regrouping.uncouple.add(other)
        if regrouping.is_empty():
            del self.state.regroupings[shift.topic]

    def _on_refresh(self, source: Address, message: say.Refresh, now: float, effects: Effects) -> None:
        holder = self.state.couplings.holders.get(source)
        if holder is not None:
            holder.heard_at = now
            joins = self.state.joins.get(source)
            if joins is not None and message.version >= holder.version:
                del self.state.joins[source]
        version, acquaintance = self._couplings.version(source), self._couplings.acquaintance(source)
        inherited = self._inherited(source, message.about) if message.about else frozenset()
        moves = self.tree.moves.number
        era = self.state.healing.era
        refreshed = say.Refreshed(version, self.node, message.at, acquaintance, inherited, moves, era)
        effects.send.append((source, refreshed))

    def _on_forget(self, source: Address, message: say.Forget, now: float, effects: Effects) -> None:
        self.state.joins.pop(message.subscriber, None)
        for topic in [topic for topic, known in self.state.moving.inherited.items() if message.subscriber in known]:
            self._forget_inherited(topic, message.subscriber)
        if self._levels is not None:
            self._levels.change(self._couplings.topics(message.subscriber), frozenset())
        for shift in self._couplings.forget(message.subscriber):
            self._shift(shift)

    # ── lengths of logs ───────────────────────────────────────────────────────────────────────────────────────────

    def _is_measured(self, topic: Topic) -> bool:
        """Whether the broker has told in this epoch how long the log is. In ticket mode there is none."""
        if self.options.mode != "log":
            return True
        home = self.state.homes.get(topic)
        return home is not None and home.measured == self.state.epoch

    def _watch(self, topics: Iterable[Topic], now: float, effects: Effects) -> None:
        """Have these logs watched, unless that is known, or asked already."""
        asked, removed = self._unanswered, self.state.removed
        new = frozenset(
            topic for topic in topics if topic not in asked and topic not in removed and not self._is_measured(topic)
        )
        if new:
            self._unanswered |= new
            if self._watch_due is None:
                self._watched_at = now
                self._watch_due = now + self.options.retry_ms
            effects.send.append((BROKER, self._question(new)))

    def _watch_everything(self, now: float, effects: Effects) -> None:
        """A process starts: whatever an earlier one asked or was told, ask for every log."""
        self._unanswered.clear()
        self._watch_due = None
        listed = (topic for topic, node in self.tree.homes.items() if node == self.node)
        to_report = self.state.healing.unmeasured  # a process that was replaced may have been told, and not this one
        self._watch((*listed, *self.state.homes, *self._unmeasured_joins, *to_report), now, effects)

    def _forget_measure(self, topic: Topic) -> None:
        """The topic was removed: ask no more, or its log would be made again."""
        self._unmeasured_joins.pop(topic, None)
        if topic in self._unanswered:
            self._answered(topic, self._watched_at)

    def _answered(self, topic: Topic, now: float) -> None:
        """One answer less to wait for. Others may be on their way, so there is no hurry to ask again."""
        self._unanswered.discard(topic)
        retry_ms = self.options.retry_ms
        put_off = min(now + retry_ms, self._watched_at + PUT_OFF_MAX * retry_ms)
        self._watch_due = put_off if self._unanswered else None

    def _watch_again(self, now: float, effects: Effects) -> None:
        if not self._unanswered:
            self._watch_due = None  # whatever was asked for has moved away
        elif self._watch_due is not None and now >= self._watch_due:
            self._watched_at = now
            self._watch_due = now + self.options.retry_ms
            effects.send.append((BROKER, self._question(frozenset(self._unanswered))))

    def _question(self, topics: frozenset[Topic]) -> Watch:
        places, homes = self.state.moves.places, self.state.homes
        return Watch(topics, {topic: homes[topic].issued for topic in sorted(places.keys() & topics & homes.keys())})
