"""A subscriber's topics: changing them while events flow, and being known to the nodes.

One change at a time; later ones wait. What is removed is gone at once. What is added is joined: the subscriber listens
on the broker (where that cannot be done afterwards), asks each new topic's home, and is told after which number the
topic starts and which floor its first event must wait for. Until then whatever names the topic waits.

A subscriber with a lease has its nodes confirm that they know it, and begins anew with one that has forgotten it.
"""

from collections.abc import Iterable, Mapping, Set

from seriatim.model import BROKER, Gap, InputError, Node, Number, Topic
from seriatim.order import Place, ShapeChange
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.estate import KnownAs
from seriatim.protocols.tree.healing_messages import known_since
from seriatim.protocols.tree.history import History
from seriatim.protocols.tree.receiving import told, told_from
from seriatim.protocols.tree.seeking import ask_around
from seriatim.protocols.tree.state import Changing, Holding, Reading
from seriatim.protocols.with_broker import Change, Changed, Listen, Listening, Staged, Stamped, Unlisten

BEGAN_ANEW = "the topic began anew"  # the reason of a gap behind which a topic was joined again


class Subscribing(History):
    """The part of a subscriber that changes what it holds."""

    def _on_change(self, change: Change, now: float, effects: Effects) -> None:
        if not change.add and not change.remove:
            raise InputError("change", "it neither adds nor removes a topic", "name at least one topic")
        for topic in sorted(change.add):
            self.tree.home(topic)  # raises UnknownTopic before anything changes
        if change.start is not None:
            self._check_start(change)
        self.state.waiting.append(change)
        self._next_change(now, effects)

    def _check_start(self, change: Change) -> None:
        """InputError: it cannot begin with the past."""
        if self.options.order != "global":
            problem = 'there is no order of all events in a cluster with order="pairwise"'
            raise InputError("start", problem, 'leave it out, or set order="global"')
        if others := self.topics - change.add - change.remove:
            problem = f"{', '.join(sorted(others))} would not begin there"
            raise InputError("start", problem, "add all topics, or remove these")
        assert change.start is not None, "there is a start to check"
        if unknown := (change.start.numbers or {}).keys() - change.add:
            raise InputError("start", f"{', '.join(sorted(unknown))} is not added", "name topics of this subscription")

    def _next_change(self, now: float, effects: Effects) -> None:
        while self.state.changing is None and self.state.waiting and not self._waits_for_past(self.state.waiting[0]):
            change = self.state.waiting.pop(0)
            remove = (change.remove if change.start is None else change.remove | change.add) & self.topics
            add = change.add - (self.topics - remove)
            if add or remove:
                self._flush(now, effects)
                began = say.Began(self.state.version + 1, add, remove, change.start)
                effects.persist.extend([began] if self.options.durable else [])
                self._begin(began, now, effects)
                self._ask(effects)
            else:
                effects.notify.append(Changed(self.state.version, self.topics, {}))

    def _waits_for_past(self, change: Change) -> bool:
        """Topics are added when the past is told: what follows it is not ordered against what they begin with."""
        return self.state.reading is not None and change.start is None and bool(change.add - change.remove)

    def _begin(self, began: say.Began, now: float, effects: Effects) -> None:
        add, remove = began.add, began.remove
        self.state.version = began.version
        touched = self.topics | add
        told = {} if self._begins_in_past(began) else {topic: self._told_of(topic) for topic in remove & add}
        self._forget_past(remove - add)
        self._forget_ready(remove)
        for topic in sorted(remove):
            self._unstamped -= len(self.state.holdings.pop(topic).unstamped)
            self.state.unheard.pop(topic, None)
            self.state.doubts.pop(topic, None)
            self.state.beyond.discard(topic)
            if topic not in add or began.start is not None:
                self.state.attending.pop(topic, None)
                effects.send.append((BROKER, Unlisten(topic)))
        if began.start is not None:
            self.state.reading = Reading(began.start, told=began.start.after, read=began.start.after)
            self.state.had_past = True
        self._done(self._queue.close(remove))
        self.state.left = (self.state.left | remove) - add
        for topic in sorted(add):
            self.state.holdings[topic] = Holding(begins_anew_after=told.get(topic))
            self._queue.join(topic)
        self._attend_anew(effects)
        listen = set(add) if self.options.mode == "ticket" and self.state.reading is None else set()
        update = set() if add else {self.tree.home(topic) for topic in touched}
        in_past = began.start is not None
        self.state.changing = Changing(set(add), listen, set(add), update, now, in_past=in_past, touched=touched)

    def _attend_anew(self, effects: Effects) -> None:
        """Choose stages again, because what is held, or where it lives, has changed."""
        self._levels.clear()
        self._moved = None
        self._attend((topic for topic, lane in self.state.lanes.items() if lane.open), effects)

    def _begins_in_past(self, began: say.Began) -> bool:
        """Whether nothing is missed although topics are joined again: what lies between is read from the order log."""
        return began.start is not None or self.state.reading is not None

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
        self._ask_for_past(effects)
        if self.state.locating:
            effects.send.append((self.tree.root, say.Locate(self.state.moves.number)))
        self._ask_about_doubts(self.state.doubts, effects)
        changing = self.state.changing
        if changing is None:
            return
        for topic in sorted(changing.listen):
            effects.send.append((BROKER, Listen(topic, None, self.state.version)))
        for topic in sorted(changing.join - changing.listen):
            self._ask_to_join(topic, effects)
        self._ask_to_update(changing, changing.update, effects)

    def _seek_again(self, effects: Effects) -> None:
        """Look for another way to nodes that have not answered."""
        silent = {self.tree.root} if self.state.locating else set()
        if (changing := self.state.changing) is not None:
            silent |= changing.update | {self.tree.home(topic) for topic in changing.join - changing.listen}
        self._seek(silent, effects)

    def _seek(self, silent: Set[Node], effects: Effects) -> None:
        """Ask another node where these, which do not answer, are now: they may have left the tree."""
        self.state.sought = ask_around(self.tree, silent, self.state.sought, effects)

    def _ask_to_update(self, changing: Changing, nodes: Set[Node], effects: Effects) -> None:
        for node in sorted(nodes):
            about = frozenset(topic for topic in changing.touched if self.tree.home(topic) == node)
            effects.send.append((node, say.Update(self.state.version, self.topics, self.options.durable, about)))

    def _ask_to_join(self, topic: Topic, effects: Effects) -> None:
        left, lasting, history = frozenset(self.state.left), self.options.durable, self.state.had_past
        request = say.Subscribe(self.state.version, topic, self.topics, left, lasting, history)
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
        holding.floor, holding.acquaintance, holding.home = message.floor, message.acquaintance, self.tree.home(topic)
        holding.era = message.era
        self.state.confirmed.setdefault(self.tree.home(topic), changing.since)
        if self.state.reading is not None:
            self._join_in_past(self.state.reading, message)
            self._finish_change(now, effects)
            return
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
        effects.notify.append(Changed(self.state.version, self.topics, self._starts(changing), changing.in_past))
        nodes = {self.tree.home(topic) for topic in self.topics}
        self.state.confirmed = {node: at for node, at in sorted(self.state.confirmed.items()) if node in nodes}
        for node in sorted({self.tree.home(topic) for topic in changing.add}):
            effects.send.append((node, self._refreshing(node, self.state.version, now)))
        self._next_change(now, effects)

    def _starts(self, changing: Changing) -> dict[Topic, Number]:
        """After which number each new topic begins, where that is known."""
        reading = self.state.reading
        if reading is None:
            return {topic: self.state.holdings[topic].start for topic in sorted(changing.add)}
        reading.is_begun = True
        numbers = sorted((topic, first) for topic, first in reading.wanted.items() if topic in changing.add)
        return {topic: first - 1 for topic, first in numbers if first > 1 or reading.start.after == 0}

    def _rejoin(self, topics: frozenset[Topic], now: float, effects: Effects) -> None:
        """Join these topics again. What lies between is reported as a gap when the new start is known."""
        change = Change(topics, topics)
        if change not in self.state.waiting:
            self.state.waiting.insert(0, change)
        self._next_change(now, effects)

    # ── topics that have moved ────────────────────────────────────────────────────────────────────────────────────

    def _on_moved(self, message: say.Moved, now: float, effects: Effects) -> None:
        """A node that was asked about a topic says where it lives now."""
        place = {message.topic: Place(message.home, message.move)}
        self._learn(self.state.moves.number, place, message.shape, now, effects)

    def _on_located(self, message: say.Located, now: float, effects: Effects) -> None:
        number = self.state.moves.number
        if message.after <= number:  # else something between is not known
            self._learn(message.number, message.places, message.shape, now, effects)
        if self.state.locating and self.state.locating <= self.state.moves.number:
            self.state.locating = 0
            if self._lease_ms is not None and self.state.confirmed:
                self.state.refresh_due = now
                self._refresh(now, effects)

    def _learn(
        self,
        number: int,
        places: Mapping[Topic, Place],
        shape: tuple[ShapeChange, ...],
        now: float,
        effects: Effects,
    ) -> None:
        """Topics live elsewhere: what was asked of their former homes is asked there, and whether we are known."""
        former = {topic: self.tree.home(topic) for topic in places if self.tree.knows(topic)}
        knew, shaped = self.state.moves.number, self.tree.shaped
        news = self.tree.learn(number, places, shape)
        if not news and knew == self.state.moves.number and shaped == self.tree.shaped:
            return
        self._attend_anew(effects)
        for topic in sorted(self.state.holdings.keys() & news):
            self._follow_home(topic, former[topic], now, effects)
        changing = self.state.changing
        if changing is not None and changing.update:
            homes = {self.tree.home(topic) for topic in changing.touched}
            new = {self.tree.home(topic) for topic in changing.touched & set(news)}
            changing.update = (changing.update & homes) | new
            self._ask_to_update(changing, new, effects)
            self._finish_change(now, effects)

    def _follow_home(self, topic: Topic, former: Node, now: float, effects: Effects) -> None:
        changing, home, holding = self.state.changing, self.tree.home(topic), self.state.holdings[topic]
        if changing is not None and topic in changing.join - changing.listen:
            self._ask_to_join(topic, effects)
        elif changing is None or topic not in changing.join:
            holding.moved_at = now
            self._confirm_at(home, former, now, effects)
        if holding.missing_since is not None:
            number = self.state.lanes[topic].done + 1
            effects.send.append((home, say.Inquire(topic, number, rejected=holding.forged == number)))

    def _confirm_at(self, home: Node, former: Node, now: float, effects: Effects) -> None:
        """The new home counts as confirmed for as long as the former one did."""
        confirmed = self.state.confirmed
        if former in confirmed:
            confirmed[home] = min(confirmed[former], confirmed.get(home, now))
        if former not in {self.tree.home(topic) for topic in self.topics}:
            confirmed.pop(former, None)
        if self._lease_ms is not None:
            complete = self.state.version - (self.state.changing is not None)
            effects.send.append((home, self._refreshing(home, complete, now)))

    # ── being known ───────────────────────────────────────────────────────────────────────────────────────────────

    def _refresh(self, now: float, effects: Effects) -> None:
        if self._lease_ms is not None and self.state.refresh_due is not None and now >= self.state.refresh_due:
            self.state.refresh_due = None
            complete = self.state.version - (self.state.changing is not None)
            for node in self.state.confirmed:
                effects.send.append((node, self._refreshing(node, complete, now)))
            self._seek({node for node, at in self.state.confirmed.items() if at < now - self._lease_ms / 2}, effects)

    def _refreshing(self, node: Node, complete: int, now: float) -> say.Refresh:
        """The question to a node. Of topics that have moved to it: whether it knows us as their former homes did.

        It may be a former home itself: it forgets us when the topic leaves, and is told of us when it comes back.
        """
        holdings = self.state.holdings.items()
        moved = ((topic, each) for topic, each in holdings if each.moved_at or each.home not in ("", node))
        about = {topic: KnownAs(each.home, each.acquaintance) for topic, each in moved if self.tree.home(topic) == node}
        return say.Refresh(complete, now, about)

    def _doubt(self, message: Stamped | Staged, holding: Holding, effects: Effects) -> None:
        topic = message.topic
        if message.era > max(holding.era, self.state.doubts.get(topic, 0)):
            self.state.doubts[topic] = message.era
            self._ask_about_doubts([topic], effects)

    def _ask_about_doubts(self, topics: Iterable[Topic], effects: Effects) -> None:
        complete = self.state.version - (self.state.changing is not None)
        for node in sorted({self.tree.home(topic) for topic in topics}):
            effects.send.append((node, self._refreshing(node, complete, 0.0)))

    def _settle_doubts(self, message: say.Refreshed, now: float, effects: Effects) -> None:
        """The home of topics with a new era has answered. If it knew us when the era began, nothing was missed."""
        doubts, node = self.state.doubts, message.node
        asked = [topic for topic, era in doubts.items() if self.tree.home(topic) == node and message.era >= era]
        if not asked or self.state.changing is not None:
            return
        holdings = {topic: self.state.holdings[topic] for topic in asked}
        if all(self._is_still_known(topic, each, message, now) for topic, each in holdings.items()):
            for topic, holding in holdings.items():
                holding.home, holding.acquaintance, holding.era = node, message.acquaintance, message.era
                del doubts[topic]
        else:
            self._rejoin(self.topics, now, effects)

    def _is_still_known(self, topic: Topic, holding: Holding, message: say.Refreshed, now: float) -> bool:
        if holding.acquaintance == message.acquaintance and holding.home in ("", message.node) and message.acquaintance:
            return True
        if self._waits_for_floor(topic, holding):
            return False
        if topic in message.inherited:
            return True
        if holding.home not in ("", message.node) or not message.acquaintance:
            return False
        era = known_since(message.acquaintance)  # later than ours: others have told the home of us
        return era > holding.era and not self._lapsed(now)

    def _waits_for_floor(self, topic: Topic, holding: Holding) -> bool:
        """Whether its first event waits for numbers that nobody but the home had named: it may have lost its journal,
        and they may have been issued anew, behind that event."""
        lanes = self.state.lanes
        if lanes[topic].done > holding.start:
            return False
        return any(other in lanes and number > lanes[other].done for other, number in holding.floor.items())

    def _on_refreshed(self, message: say.Refreshed, now: float, effects: Effects) -> None:
        if self.state.doubts:
            self._settle_doubts(message, now, effects)
        confirmed = self.state.confirmed
        if self._lease_ms is None or message.at <= confirmed.get(message.node, message.at):
            return  # nobody asked, or an old answer
        if message.moves > self.state.moves.number:  # a topic of ours may have moved, to a node that may forget us
            self._locate(message.moves, message.node, effects)
            return
        holdings, lanes = self.state.holdings.items(), self.state.lanes
        known = [topic for topic, lane in lanes.items() if lane.open or self.state.reading is not None]
        ours = {topic for topic in known if self.tree.home(topic) == message.node}
        if any(self.tree.moved(topic) > message.moves for topic in ours):
            return  # it has not heard yet that the topic is to live there
        here = [each for topic, each in holdings if topic in ours]
        if message.acquaintance:
            for topic, each in holdings:
                if topic in message.inherited and topic in ours and message.at >= each.moved_at:
                    each.home, each.acquaintance = message.node, message.acquaintance
        if any(each.home not in ("", message.node) and message.at < each.moved_at for each in here):
            return  # asked before we knew that the topic lives there
        if all(each.acquaintance == message.acquaintance and each.home in ("", message.node) for each in here):
            confirmed[message.node] = message.at
        elif self.state.changing is None:  # the node has forgotten us: what is ready may be wrongly ordered
            self._rejoin(self.topics, now, effects)
