"""Moving a topic to another home while events flow. Nobody but this topic waits.

The root grants one move at a time, and each step is an input that somebody journals. So after a crash of any node the
move goes on where it was.

1. *Quiesce.* The home issues nothing more. It waits until its ranges are finished (log mode: until the broker keeps
   their stamps) and its joins are done. Whoever asks for something meanwhile waits here. Log mode: events go on being
   stored.
2. *Hand over.* The home vouches for the topic's count, up to the root, and sends all that it knows of the topic to the
   new home. It keeps it until the switch, so that the move can be cancelled.
3. *Announce.* The new home vouches for the count, up to the root. So every node on both ways knows it.
4. *Switch.* The root tells all nodes, down the tree, where the topic lives. What a node issues from then on meets the
   topic at the new place. When all below it have answered, it answers its parent. The answer brings the counts of all
   topics that the moved one is related with: so each is known at the new place. It climbs behind whatever the node sent
   up before. So when the root has all answers, nothing climbs any more that was issued with the old map, and the next
   move may begin.
5. *Go on.* The root tells the new home, which numbers on. The old home sends whoever asks to the new one.

Nodes differ by one move at most, and a parent hears of it before its child. So a message that climbs says which move
its home knew of, and every node on its way can tell where topics met then.

Each step is one method, so that the checkers can be checked by replacing it: `_is_quiet`, `_estate`, `_vouch`,
`_related_here`, `_may_switch`, `_may_go_on`, `_recollect`.
"""

from collections.abc import Iterable, Set

from msgspec import structs

from seriatim.model import BROKER, Address, Node, Number, Topic
from seriatim.order import Holder, Place, ShapeChange
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.core import Asked
from seriatim.protocols.tree.estate import Desk, Estate, Home, KnownAs, Range, Regrouping
from seriatim.protocols.tree.joining import Joining
from seriatim.protocols.tree.numbering import Numbering
from seriatim.protocols.tree.state import Arriving, Leaving, MoveUnderWay, Question, Switching
from seriatim.protocols.with_broker import Unwatch, Unwatched

__all__ = ["Moving"]


class Moving(Numbering, Joining):
    """The part of a sequencer that moves topics: as the root, as a home, and as a node that is told."""

    # ── the root ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def move_under_way(self) -> MoveUnderWay | None:
        """The root: the move that it has granted."""
        return self.state.moving.move

    def _on_move(self, source: Address, message: say.Move, now: float, effects: Effects) -> None:
        problem = self._problem_with_move(message)
        if problem is not None and not self._is_to_come(message.to):
            effects.notify.append(say.MoveEnded(message.topic, message.to, 0, problem))
            return
        self.state.moving.wanted.append((message.topic, message.to))
        self._next_move(now, effects)

    def _problem_with_move(self, message: say.Move) -> str | None:
        if self._parent is not None:
            return f"{self.node} is not the root; ask {self.tree.root}"
        if message.to not in self.tree.parents:
            return f"there is no node {message.to}; use one of {', '.join(sorted(self.tree.parents))}"
        if not self.tree.knows(message.topic):
            return f"no node is home to {message.topic}"
        return None

    def _next_move(self, now: float, effects: Effects) -> None:
        moving = self.state.moving
        healing = self.state.healing
        while moving.move is None and not healing.phase and not healing.is_blank and (moving.wanted or moving.wishes):
            if moving.wishes and not moving.wishes[0].behind:
                self._begin_reshape(moving.wishes.pop(0).reshape, now, effects)
                continue
            topic, to = moving.wanted.pop(0)
            for wish in moving.wishes:
                wish.behind -= 1
            problem = self._problem_with_move(say.Move(topic, to))  # nodes have come or left meanwhile
            if problem is not None or self.tree.home(topic) == to:
                effects.notify.append(say.MoveEnded(topic, to, self.tree.moved(topic), problem or ""))
                continue
            home = self.tree.home(topic)
            moving.granted += 1
            moving.move = MoveUnderWay(moving.granted, topic, home, to)
            effects.notify.append(say.MoveStep(topic, to, moving.granted, "quiesce"))
            self._route(home, say.Quiesce(moving.granted, topic, to), now, effects)

    def _on_cancel_move(self, source: Address, message: say.CancelMove, now: float, effects: Effects) -> None:
        moving, topic = self.state.moving, message.topic
        reason = "cancelled"
        for _, to in [each for each in moving.wanted if each[0] == topic]:
            effects.notify.append(say.MoveEnded(topic, to, 0, reason))
        for wish in moving.wishes:
            wish.behind -= sum(each == topic for each, _ in moving.wanted[: wish.behind])
        moving.wanted = [each for each in moving.wanted if each[0] != topic]
        move = moving.move
        if move is not None and move.change is None and move.topic == topic and not move.is_switching:
            moving.move = None
            for node in (move.home, move.to):
                self._route(node, say.Resume(move.number, topic), now, effects)
            effects.notify.append(say.MoveEnded(topic, move.to, move.number, reason))
            self._next_move(now, effects)

    def _vouched(self, message: say.Vouch, now: float, effects: Effects) -> None:
        """The count of the topic has reached the root."""
        move = self.state.moving.move
        if move is None or move.number != message.move or move.is_switching:
            return
        move.related |= message.related
        if self._may_switch(move, message):
            move.is_switching = True
            effects.notify.append(say.MoveStep(move.topic, move.to, move.number, "switch"))
            switch = say.Switch(move.number, move.topic, move.to, move.related)
            self._on_switch(self.node, switch, now, effects)

    def _may_switch(self, move: MoveUnderWay, message: say.Vouch) -> bool:
        """The new home has what was handed over, and has announced the count."""
        return message.node == move.to

    def _end_move(self, now: float, effects: Effects) -> None:
        moving = self.state.moving
        move, moving.move = moving.move, None
        assert move is not None, "all nodes have answered that it is over"
        if move.change is None:
            self._route(move.to, say.GoOn(move.number, move.topic), now, effects)
            effects.notify.append(say.MoveEnded(move.topic, move.to, move.number))
        elif move.change.node != self.node:  # else the former root says so
            effects.notify.append(say.ReshapeEnded(move.change))
        self._next_move(now, effects)

    # ── the former home ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_quiesce(self, message: say.Quiesce, now: float, effects: Effects) -> None:
        self.state.moving.leaving[message.topic] = Leaving(message.move, message.to)
        self._is_restless = True

    def _leave(self, now: float, effects: Effects) -> None:
        """Hand a topic that is to leave over as soon as it is quiet. Called after every step while one is to leave."""
        for topic, leaving in sorted(self.state.moving.leaving.items()):
            if leaving.is_handed_over or not self._is_quiet(topic):
                continue
            leaving.is_handed_over = True
            estate = self._estate(topic, now)
            self._vouch(leaving.move, topic, self._relations(topic, estate.regrouping), now, effects)
            self._route(leaving.to, say.HandOver(leaving.move, topic, estate), now, effects)

    def _is_quiet(self, topic: Topic) -> bool:
        """Whether a topic can be handed over: no range climbs, in log mode the broker has all stamps, nobody is
        joining, it is not being removed, and no other log of it is being accepted."""
        if self.state.removed.get(topic) is False or topic in self.state.renewing:
            return False
        ranges = self.state.ranges.get(topic, {}).values()
        if ranges and (self.options.mode == "log" or any(range_.entries is None for range_ in ranges)):
            return False
        joins = (each.get(topic) for each in self.state.joins.values())
        return all(join is None or join.start is not None for join in joins)

    def _relations(self, topic: Topic, regrouping: Regrouping) -> frozenset[Topic]:
        return frozenset(self._couplings.group(topic) | regrouping.couple | regrouping.uncouple | regrouping.once)

    def _vouch(self, move: int, topic: Topic, related: frozenset[Topic], now: float, effects: Effects) -> None:
        """Announce the whole count of the topic, up to the root."""
        issued = self.state.homes[topic].issued if topic in self.state.homes else 0
        self._on_vouch(self.node, say.Vouch(move, topic, issued, self.node, related), now, effects)

    def _estate(self, topic: Topic, now: float) -> Estate:
        """All that is known of it, as a copy, without the publishers that a tick may forget by now."""
        state = self.state
        home = self._home(topic)
        holders = sorted(self._couplings.holding(topic).items())
        desks = state.desks.get(topic, {}).items()
        regrouping = state.regroupings.get(topic, Regrouping())
        return Estate(
            home.issued,
            home.kept_from,
            {name: Holder(each.version, each.topics, 0, 0.0, each.lasting) for name, each in holders},
            _without_places(regrouping),
            [structs.replace(range_, due=0.0, open_slots=None) for range_ in state.ranges.get(topic, {}).values()],
            {name: _without_time(desk) for name, desk in desks if desk.forget_at is None or desk.forget_at > now},
            dict(state.voids.get(topic, {})),
            dict(state.disputed.get(topic, {})),
            {name: self._known_as(topic, name) for name, _ in holders},
            state.removed.get(topic, False),
            list(state.healing.numbers_lost.get(topic, ())),
        )

    def _known_as(self, topic: Topic, subscriber: Address) -> list[KnownAs]:
        """How it is known here, and how it was known where the topic lived before, if nobody forgot it meanwhile."""
        acquaintance = self._couplings.acquaintance(subscriber)
        known, before = self.state.moving.inherited.get(topic, {}).get(subscriber, (0, []))
        return [KnownAs(self.node, acquaintance), *(before if known == acquaintance else [])]

    def _drop(self, topic: Topic, effects: Effects) -> None:
        """Forget what was handed over with a topic that has moved away."""
        state, issued = self.state, self.state.homes[topic].issued if topic in self.state.homes else 0
        for range_ in state.ranges.pop(topic, {}).values():
            self._count_open_ticket(range_.publisher, -1)
        state.removed.pop(topic, None)
        tables = state.homes, state.desks, state.voids, state.disputed, state.regroupings, state.healing.numbers_lost
        for table in (*tables, self._firsts):
            table.pop(topic, None)
        state.moving.inherited.pop(topic, None)
        for joins in state.joins.values():
            joins.pop(topic, None)
        for name in self._couplings.release(topic):
            state.joins.pop(name, None)
        state.joins = {name: joins for name, joins in state.joins.items() if joins}
        if self.options.mode == "log":
            self._unanswered.discard(topic)
            self._unmeasured_joins.pop(topic, None)
            left = Unwatch(topic, self.tree.home(topic), issued, self.tree.moved(topic), state.healing.era)
            state.moving.left[topic] = left
            effects.send.append((BROKER, left))

    def _on_unwatched(self, source: Address, message: Unwatched, now: float, effects: Effects) -> None:
        left = self.state.moving.left.get(message.topic)
        if left is not None and left.move <= message.move:
            del self.state.moving.left[message.topic]

    def _unwatch_again(self, effects: Effects) -> None:
        """A process starts: an earlier one may have had no answer."""
        effects.send.extend((BROKER, left) for _, left in sorted(self.state.moving.left.items()))

    def _on_resume(self, message: say.Resume, now: float, effects: Effects) -> None:
        """The move was cancelled: go on here, or forget what came."""
        moving, topic = self.state.moving, message.topic
        moving.cancelled = max(moving.cancelled, message.move)
        leaving, arriving = moving.leaving.get(topic), moving.arriving.get(topic)
        if arriving is not None and arriving.move == message.move:
            del moving.arriving[topic]
        if leaving is not None and leaving.move == message.move:
            del moving.leaving[topic]
            self._look_at_log(topic, now, effects)
            self._answer_all(leaving.waiting, now, effects)
        self._is_restless = self._topics_move()

    # ── the new home ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_hand_over(self, message: say.HandOver, now: float, effects: Effects) -> None:
        """Announce its count. What it is good for comes with the switch."""
        moving, topic = self.state.moving, message.topic
        if message.move <= moving.cancelled:
            return
        moving.arriving[topic] = Arriving(message.move, message.estate)
        self._is_restless = True
        self._passages.raise_to(topic, message.estate.issued)
        vouch = say.Vouch(message.move, topic, message.estate.issued, self.node)
        self._on_vouch(self.node, vouch, now, effects)

    def _adopt(self, topic: Topic, estate: Estate, related: Set[Topic], now: float, effects: Effects) -> None:
        """Be its home. To be called before the switch, and followed by `_begin_collecting` after it."""
        state = self.state
        state.homes[topic] = Home(estate.issued, kept_from=estate.kept_from)
        if estate.lost:
            state.healing.numbers_lost[topic] = list(estate.lost)
        if estate.is_removed:  # again, so that the broker finds its last number where it looks now
            state.removed[topic] = False
        state.regroupings[topic] = _without_places(estate.regrouping)
        for shift in self._couplings.adopt(topic, estate.holders, now):
            self._shift(shift)
        # Nodes above collect nothing for it any more, so its next pass must name everything.
        last, group = self._regrouping(topic), self._couplings.group(topic)
        if self.options.full_stamps:
            group |= related
        whole = Regrouping(couple=group, once=(last.uncouple | last.once) - group)
        state.regroupings[topic] = whole
        if whole.is_empty():
            del state.regroupings[topic]
        known = {name: (self._couplings.acquaintance(name), list(each)) for name, each in estate.known_as.items()}
        if known:
            state.moving.inherited[topic] = known
        for table, handed in ((state.voids, estate.voids), (state.disputed, estate.disputed)):
            if handed:
                table[topic] = dict(handed)
        forget_at = now + self.options.lease_ms
        for name, desk in sorted(estate.desks.items()):
            is_idle = desk.forget_at is not None
            state.desks.setdefault(topic, {})[name] = Desk(desk.request, desk.first, forget_at if is_idle else None)
            if is_idle:
                self._idle_desks.setdefault((topic, name), forget_at)
        for each in estate.ranges:
            self._take_range(topic, structs.replace(each), now, effects)

    def _take_range(self, topic: Topic, range_: Range, now: float, effects: Effects) -> None:
        """Ticket mode: its publisher may repeat the request here, and its lease begins again."""
        assert range_.entries is not None, "only finished ranges are handed over"
        self.state.ranges.setdefault(topic, {})[range_.first] = range_
        self._count_open_ticket(range_.publisher, +1)
        self._finish(topic, range_, range_.entries, now, effects)

    def _on_go_on(self, message: say.GoOn, now: float, effects: Effects) -> None:
        """Take the topic over: all nodes know where it lives. Its holders count from now on, and those that waited are
        answered."""
        topic = message.topic
        arriving = self.state.moving.arriving.pop(topic)
        self._is_restless = self._topics_move()
        for holder in self._couplings.holding(topic).values():
            holder.heard_at = now
        if topic in self.state.removed:
            self._removal_due = now
        self._look_at_log(topic, now, effects)
        self._answer_all(arriving.waiting, now, effects)

    def _look_at_log(self, topic: Topic, now: float, effects: Effects) -> None:
        """Watch the log of a topic that has arrived, to learn what was appended while nobody looked. A removed topic
        stays unwatched."""
        if self.options.mode == "log" and topic not in self.state.removed:
            self._home(topic).measured = 0
            self._watch([topic], now, effects)

    # ── every node ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_vouch(self, source: Address, message: say.Vouch, now: float, effects: Effects) -> None:
        topic = message.topic
        self._passages.raise_to(topic, message.number)
        if self.options.full_stamps:  # what it ever named is named for ever
            related = message.related | self.state.passages.groups.get(topic, set())
            message = structs.replace(message, related=related)
        if self._parent is None:
            self._vouched(message, now, effects)
        else:
            effects.send.append((self._parent, structs.replace(message, order=self._carried())))

    def _on_switch(self, source: Address, message: say.Switch, now: float, effects: Effects) -> None:
        """Adopt it, tell those below, and answer when they have answered."""
        counts = self._switch(message, now, effects)
        self._tell_children(message, set(self.tree.children(self.node)), counts, now, effects)

    def _tell_children(
        self,
        message: say.Switch | say.SwitchShape,
        children: set[Node],
        counts: dict[Topic, Number],
        now: float,
        effects: Effects,
        crowned: ShapeChange | None = None,
    ) -> None:
        effects.send.extend((child, message) for child in sorted(children))
        self.state.moving.switching = Switching(_number_of(message), children, counts, crowned)
        self._report(now, effects)

    def _on_switched(self, source: Address, message: say.Switched, now: float, effects: Effects) -> None:
        for topic, number in sorted(message.counts.items()):
            self._passages.raise_to(topic, number)
        switching = self.state.moving.switching
        if switching is not None and switching.move == message.move:
            switching.children.discard(source)
            switching.counts |= message.counts
            if source not in self.tree.parents:
                self._look_around()  # that was the last word of a leaf that leaves
            self._report(now, effects)

    def _report(self, now: float, effects: Effects) -> None:
        switching = self.state.moving.switching
        if switching is None or not self._may_go_on(switching):
            return
        self.state.moving.switching = None
        if self._parent is None:
            self._end_move(now, effects)
        else:
            switched = say.Switched(switching.move, switching.counts, self._carried())
            effects.send.append((self._parent, switched))
            if switching.crowned is not None:
                effects.notify.append(say.ReshapeEnded(switching.crowned))

    def _may_go_on(self, switching: Switching) -> bool:
        return not switching.children

    def _switch(self, message: say.Switch, now: float, effects: Effects) -> dict[Topic, Number]:
        """Let the topic live at its new home from now on. Returns the counts of the related topics that are homed
        here."""
        moving, topic = self.state.moving, message.topic
        former, levels = self.tree.home(topic), self._levels
        leaving, arriving = moving.leaving.pop(topic, None), moving.arriving.get(topic)
        estate = arriving.estate if arriving is not None and arriving.move == message.move else None
        holders = set(self._couplings.holding(topic)) | (estate.holders.keys() if estate is not None else set())
        if levels is not None:
            for name in holders:
                levels.change(self._couplings.topics(name), frozenset())
        if arriving is not None and estate is not None:
            self._adopt(topic, estate, message.related, now, effects)
            arriving.estate = None
        self.tree.move(topic, Place(message.home, message.move))
        self._passages.ungroup(topic)
        if leaving is not None:
            self._drop(topic, effects)
        if levels is not None:
            for name in holders:
                levels.change(frozenset(), self._couplings.topics(name))
        related = self._related_here(topic, holders, message.related)
        self._recollect(topic, former, related)
        self._is_restless = True
        if leaving is not None:
            self._answer_all(leaving.waiting, now, effects)
        homes = self.state.homes
        return {each: homes[each].issued for each in sorted(related) if each in homes and homes[each].issued}

    def _related_here(self, topic: Topic, holders: Iterable[Address], related: Set[Topic]) -> set[Topic]:
        """The topics homed here that it is coupled with, or that one of the two must still name."""
        held = {each for name in holders for each in self._couplings.topics(name)}
        waiting = {each for each, about in self.state.regroupings.items() if topic in about.uncouple | about.once}
        return {each for each in (held | waiting | related) - {topic} if self._is_home(each)}

    def _recollect(self, topic: Topic, former: Node, related: Set[Topic]) -> None:
        """The next pass of each of these collects the topic at the new place, from its whole count on, and no longer at
        the old one."""
        for each in sorted(related):
            is_coupled = topic in self._couplings.group(each)
            known = self.state.regroupings.get(each)
            if is_coupled or (known is not None and topic in known.uncouple):
                regrouping = self._regrouping(each)
                regrouping.former.setdefault(topic, former)
                if is_coupled:
                    regrouping.couple.add(topic)

    def _on_moves_found(self, source: Address, message: say.MovesFound, now: float, effects: Effects) -> None:
        self.tree.learn(message.number, message.places)
        self._is_restless = self._topics_move()

    def _count_open_ticket(self, publisher: Address, by: int) -> None:
        open_tickets = self.state.open_tickets
        if publisher:
            open_tickets[publisher] = open_tickets.get(publisher, 0) + by
            if open_tickets[publisher] <= 0:
                del open_tickets[publisher]

    # ── who asks meanwhile ────────────────────────────────────────────────────────────────────────────────────────

    def _is_elsewhere(self, source: Address, message: Asked, topic: Topic, effects: Effects) -> bool:
        if self._must_wait(source, message, topic):
            return True
        if self._is_home(topic) or not self.tree.moved(topic):
            return False
        self._send_on(source, topic, effects)
        return True

    def _must_wait(self, source: Address, message: Asked, topic: Topic) -> bool:
        moving = self.state.moving
        on_its_way = moving.leaving.get(topic) or moving.arriving.get(topic)
        if on_its_way is None:
            return False
        which = message.join if isinstance(message, say.Tell) else source
        on_its_way.waiting[f"{type(message).__name__} {which}"] = Question(source, message)
        return True

    def _answer_all(self, waiting: dict[str, Question], now: float, effects: Effects) -> None:
        for _, question in sorted(waiting.items()):
            source, message = question.source, question.message
            match message:
                case say.Ticket():
                    self._on_ticket(source, message, now, effects)
                case say.Subscribe():
                    self._on_subscribe(source, message, now, effects)
                case say.Update():
                    self._on_update(source, message, now, effects)
                case say.Tell():
                    self._on_tell(message, now, effects)

    def _inherited(self, subscriber: Address, about: dict[Topic, KnownAs]) -> frozenset[Topic]:
        now, inherited = self._couplings.acquaintance(subscriber), self.state.moving.inherited
        handed = ((topic, inherited.get(topic, {}).get(subscriber, (0, []))) for topic in about)
        return frozenset(topic for topic, (known, before) in handed if known == now and about[topic] in before)

    def _forget_inherited(self, topic: Topic, subscriber: Address) -> None:
        inherited = self.state.moving.inherited
        del inherited[topic][subscriber]
        if not inherited[topic]:
            del inherited[topic]

    def _explain_moves(self) -> list[str]:
        moving, lines = self.state.moving, []
        move = moving.move
        if move is not None and move.change is None:
            waits = (
                "all nodes to know it" if move.is_switching else f"{move.home} to hand it over, {move.to} to take it"
            )
            lines.append(f"move {move.number}: {move.topic} from {move.home} to {move.to}: waits for {waits}")
        for topic, leaving in sorted(moving.leaving.items()):
            waits = "the switch" if leaving.is_handed_over else "its ranges and joins to be finished"
            lines.append(f"{topic} leaves for {leaving.to}: waits for {waits}")
        for topic, arriving in sorted(moving.arriving.items()):
            waits = "the switch" if arriving.estate is not None else "all nodes to know it"
            lines.append(f"{topic} arrives: waits for {waits}")
        if moving.switching is not None and moving.switching.children:
            lines.append(f"move {moving.switching.move}: waits for {', '.join(sorted(moving.switching.children))}")
        return lines


def _number_of(message: say.Switch | say.SwitchShape) -> int:
    return message.move if isinstance(message, say.Switch) else message.change.move


def _without_time(desk: Desk) -> Desk:
    """A copy. It can be forgotten one lease after the topic has arrived."""
    return Desk(desk.request, desk.first, None if desk.forget_at is None else 0.0)


def _without_places(regrouping: Regrouping) -> Regrouping:
    """A copy without the places where others lived: nodes above collect nothing for a topic that moves."""
    return Regrouping(set(regrouping.couple), set(regrouping.uncouple), set(regrouping.once))
