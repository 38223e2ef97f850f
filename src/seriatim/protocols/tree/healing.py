"""A node that has lost its journal comes back: a new era begins in the whole tree, and nothing in it needs the old one.

The lost node begins blank. What climbs to it is dropped, so whatever it had not finished, or had not passed on, stays
unfinished at its home. It asks, up to the root, to be healed. The root sweeps the tree four times, down and back:

1. *Call.* Is everybody there? Until all have answered, those that have their journals work on as before.
2. *Drain.* Homes issue no more; who asks for something is not answered, and asks again. The answers climb behind
   everything that was issued.
3. *Barrier.* The way down is behind every finished stamp on its way back. So what a home has unfinished now was lost.
   The answers bring how far each topic is *known*: finished, told in stages, named by a finished stamp or a floor, or
   in the order log. Beyond that nobody has seen or waits for a number.
4. *Go on.* Every node learns the counts of all topics and forgets what it knew of passages. A home has its unfinished
   numbers up to the count stamped as lost: nobody is notified of them. Those beyond are issued anew. The first stamp of
   each topic names the counts of those it is coupled with; with pairwise order, of all others.

So everything before the barrier comes before everything behind it, for everybody who sees both. Couplings to close,
topics that were left, and what was collected where need not be known any more.

*Who holds what* at the lost node: what others know comes with the last sweep. Stamps tell their era. A subscriber that
sees a later one than it was known in asks its home, and is notified of nothing before the answer. If the home knew it
when the era began, it goes on; else it joins anew, with a gap.

Rounds are numbered. If another node loses its journal meanwhile, the root begins the next round with both.
"""

from collections.abc import Mapping

from msgspec import structs

from seriatim.model import Address, Entries, Node, Number, Position, Topic
from seriatim.order import Holder, PassageState, PassageTable, Place
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.estate import Home, Range, Regrouping
from seriatim.protocols.tree.healing_messages import ERA, known_from_the_start
from seriatim.protocols.tree.moving import Moving
from seriatim.protocols.tree.ordering import Ordering
from seriatim.protocols.with_broker import Grown

CALL, DRAIN, BARRIER, GO_ON = 1, 2, 3, 4


class Healing(Moving, Ordering):
    """The part of a sequencer that begins a new era."""

    # ── the lost node ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_journal_lost(self, source: Address, message: say.JournalLost, now: float, effects: Effects) -> None:
        healing = self.state.healing
        healing.is_blank, healing.found, healing.life = True, message, self.state.epoch
        healing.numbers_lost = {topic: list(lost) for topic, lost in message.lost.items()}
        if self._parent is None:
            if self.options.keeps_order_log:
                order = self.state.order
                self._order.resume_at(message.ordered)
                order.lasts = dict(message.placed)
            self._on_ask_to_heal(self.node, say.AskToHeal(self.node, self.state.healing.life), now, effects)
        else:
            effects.send.append((self._parent, say.AskToHeal(self.node, self.state.healing.life)))

    def _on_routed(self, source: Address, message: say.Routed, now: float, effects: Effects) -> None:
        """A neighbour may repeat all that it ever sent to the former life: nothing of it may reach anybody."""
        if not self.state.healing.is_blank:
            super()._on_routed(source, message, now, effects)

    def _on_grown(self, source: Address, message: Grown, now: float, effects: Effects) -> None:
        healing = self.state.healing
        if healing.is_blank:
            healing.lengths[message.topic] = message.last
            self._answered(message.topic, now)
            self._report_healed(now, effects)
            return
        super()._on_grown(source, message, now, effects)

    def _on_switch(self, source: Address, message: say.Switch, now: float, effects: Effects) -> None:
        if not self.state.healing.is_blank:  # else the map comes with the third sweep
            super()._on_switch(source, message, now, effects)

    def _is_passed_over(self, body: say.Body) -> bool:
        """What was on its way to the former life means nothing to this one. While frozen, nobody begins anything."""
        healing = self.state.healing
        return healing.is_blank or (healing.is_frozen and type(body) in (say.Tell, say.Announced))

    # ── the root ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_ask_to_heal(self, source: Address, message: say.AskToHeal, now: float, effects: Effects) -> None:
        if self._parent is not None:
            effects.send.append((self._parent, message))
            return
        healing = self.state.healing
        if self._is_reshaped():
            return  # hosts refuse this before; so nobody is told here
        if message.epoch >= healing.asking.get(message.node, 0):
            healing.asking[message.node] = message.epoch
            self._begin_round(max(healing.round + 1, healing.era + 1, self.state.epoch * ERA), now, effects)

    def _is_reshaped(self) -> bool:
        """Whether the tree is not the one that a node without its journal knows: it is not healed."""
        moving, move = self.state.moving, self.state.moving.move
        return bool(self.tree.moves.shape or moving.founding or (move is not None and move.change is not None))

    def _begin_round(self, number: int, now: float, effects: Effects) -> None:
        self._on_heal(self.node, say.Heal(number, CALL, dict(self.state.healing.asking)), now, effects)

    def _drain(self, now: float, effects: Effects) -> None:
        healing, moving = self.state.healing, self.state.moving
        move = moving.move
        if move is not None and not move.is_switching:
            moving.move = None
            reason = "a node has lost its journal; ask again when it is healed"
            effects.notify.append(say.MoveEnded(move.topic, move.to, move.number, reason))
        self._on_heal(self.node, say.Heal(healing.round, DRAIN, healing.lost), now, effects)

    def _next_phase(self, now: float, effects: Effects) -> None:
        healing = self.state.healing
        report, number, lost = healing.report, healing.round, healing.lost
        if healing.phase == CALL:
            if lost.keys() >= self.tree.parents.keys():
                return  # nobody is left who knows where topics live and who holds them
            if report.latest >= number:
                self._begin_round(report.latest + 1, now, effects)
                return
            self._drain(now, effects)
        elif healing.phase == DRAIN:
            self._on_heal(self.node, self._map(report, lost), now, effects)
        elif healing.phase == BARRIER:
            counts = self._counts(report)
            if self._missing_in_order(counts) and self.state.order.told < self.state.order.end:
                return  # what is behind the hole must not be written before what is before it
            self._on_heal(self.node, say.Heal(number, GO_ON, lost, counts=counts, holders=report.holders), now, effects)
        elif healing.phase == GO_ON:
            healing.phase = 0
            healing.asking = {}
            move, self.state.moving.move = self.state.moving.move, None
            if move is not None:
                effects.notify.append(say.MoveEnded(move.topic, move.to, move.number))
            self._next_move(now, effects)

    def _map(self, report: say.Healed, lost: dict[Node, int]) -> say.Heal:
        """Where topics live, as far as anybody knows. If this root is lost, it may have told clients that a topic lives
        where nobody else knows of: it stays where it is, as of a later move."""
        moves, places, granted = report.moves, dict(report.places), report.granted
        for topic in sorted(report.moving) if self.state.healing.is_blank else ():
            moves = granted = granted + 1
            home = places[topic].home if topic in places else self.tree.home(topic)
            places[topic] = Place(home, granted)
        return say.Heal(report.round, BARRIER, lost, moves, places, granted)

    def _counts(self, report: say.Healed) -> dict[Topic, Number]:
        """How far each topic was before the barrier."""
        counts = dict(report.counts)
        if report.is_blind:
            _raise(counts, report.issued)
        return {topic: number for topic, number in counts.items() if number}

    def _missing_in_order(self, counts: Mapping[Topic, Number]) -> int:
        """How many numbers from before the barrier never came into the order."""
        order = self.state.order
        if not order.begun:
            return 0
        return sum(max(0, number - order.lasts.get(topic, 0)) for topic, number in counts.items())

    # ── every node ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_heal(self, source: Address, message: say.Heal, now: float, effects: Effects) -> None:
        healing = self.state.healing
        latest = max(healing.era, healing.round)
        if healing.is_blank and message.lost.get(self.node) != healing.life:
            if message.phase == CALL and self._parent is not None:  # the question may have been lost on its way
                effects.send.append((self._parent, say.AskToHeal(self.node, self.state.healing.life)))
            return
        children = {node for node, parent in self.tree.parents.items() if parent == self.node}
        effects.send.extend((child, message) for child in sorted(children))
        healing.round, healing.phase, healing.lost, healing.waits = message.round, message.phase, message.lost, children
        if message.phase == CALL:
            healing.report = say.Healed(message.round, CALL, latest)
        elif message.phase == DRAIN:
            healing.is_drained = True
            healing.report = self._moves_known(message)
        elif message.phase == BARRIER:
            self._take_map(message, now, effects)
            healing.report = self._known(message, now, effects)
        else:
            healing.report = say.Healed(message.round, message.phase)
            self._begin_era(message, now, effects)
        self._report_healed(now, effects)

    def _on_healed(self, source: Address, message: say.Healed, now: float, effects: Effects) -> None:
        healing, report = self.state.healing, self.state.healing.report
        if (message.round, message.phase) != (healing.round, healing.phase) or source not in healing.waits:
            return  # of a round that was given up
        healing.waits.discard(source)
        counts, issued, holders = dict(report.counts), dict(report.issued), dict(report.holders)
        _raise(counts, message.counts)
        _raise(issued, message.issued)
        for name, holder in message.holders.items():
            if name not in holders or holder.version > holders[name].version:
                holders[name] = holder
        newer = message if message.moves > report.moves else report
        healing.report = say.Healed(
            message.round,
            message.phase,
            max(report.latest, message.latest),
            newer.moves,
            newer.places,
            max(report.granted, message.granted),
            report.moving | message.moving,
            counts,
            issued,
            holders,
            report.is_blind or message.is_blind,
        )
        self._report_healed(now, effects)

    def _report_healed(self, now: float, effects: Effects) -> None:
        """If all below have answered, answer."""
        healing = self.state.healing
        if not healing.phase or healing.waits or not self._is_measured_blank():
            return
        if self._parent is None:
            self._next_phase(now, effects)
            return
        healing.waits = {self.node}  # nothing more to say in this phase
        effects.send.append((self._parent, structs.replace(healing.report, order=self._carried())))
        if healing.phase == GO_ON:
            healing.phase = 0

    # ── 2: drain ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _moves_known(self, message: say.Heal) -> say.Healed:
        moves, moving = self.state.moves, self.state.moving
        under_way = [(topic, leaving.move) for topic, leaving in moving.leaving.items()]
        under_way += [(topic, arriving.move) for topic, arriving in moving.arriving.items()]
        granted = max([moves.number, moving.granted, moving.cancelled, *(move for _, move in under_way)])
        topics = frozenset(topic for topic, move in under_way if move > moves.number)
        return say.Healed(message.round, DRAIN, 0, moves.number, dict(moves.places), granted, topics)

    # ── 3: barrier ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_map(self, message: say.Heal, now: float, effects: Effects) -> None:
        """Where topics live. A move that somebody knows of took place; another one that is under way did not."""
        moving, known = self.state.moving, self.state.moves.number
        for leaving in moving.leaving.values():
            leaving.waiting.clear()  # whoever waits asks again
        if self.state.healing.is_blank:
            self.tree.learn(message.moves, message.places)
        else:
            news = sorted((place.move, topic) for topic, place in message.places.items() if place.move > known)
            for move, topic in news:
                if self.tree.home(topic) == message.places[topic].home:  # it stays
                    self.tree.move(topic, message.places[topic])
                else:
                    self._switch(say.Switch(move, topic, message.places[topic].home), now, effects)
        moving.granted = max(moving.granted, message.granted)
        moving.cancelled = max(moving.cancelled, message.granted)
        moving.switching = None
        moving.leaving.clear()
        moving.arriving.clear()
        self._is_restless = self._topics_move()

    def _known(self, message: say.Heal, now: float, effects: Effects) -> say.Healed:
        """How far each topic is known to somebody, as far as this node can tell."""
        state, healing = self.state, self.state.healing
        if healing.is_blank:
            return self._known_of_lost(message, now, effects)
        counts, issued = dict(state.named), {}
        for topic, home in state.homes.items():
            if self._is_home(topic):
                counts[topic] = max(self._certain(topic, home), counts.get(topic, 0))
                issued[topic] = home.issued
        if self._parent is None:
            _raise(counts, state.order.lasts)
        is_blind = not state.names_all or (self._parent is None and state.order.begun and not state.order.counted)
        holders = {
            name: structs.replace(holder, acquaintance=0, heard_at=0.0)
            for name, holder in state.couplings.holders.items()
            if any(self.tree.knows(topic) and self.tree.home(topic) in message.lost for topic in holder.topics)
        }
        return say.Healed(message.round, BARRIER, counts=counts, issued=issued, holders=holders, is_blind=is_blind)

    def _certain(self, topic: Topic, home: Home) -> Number:
        """The last number that is finished, or that was told in stages."""
        last = home.issued
        for first, range_ in sorted(self.state.ranges.get(topic, {}).items(), reverse=True):
            if range_.entries is not None or range_.is_told or range_.last < last:
                break
            last = first - 1
        return last

    def _known_of_lost(self, message: say.Heal, now: float, effects: Effects) -> say.Healed:
        """What the broker keeps of the former life. Where stages are told, all that it may have issued: they may have
        been heard by somebody who is not here."""
        healing, found = self.state.healing, self.state.healing.found
        assert found is not None, "a blank node has been told"
        counts = dict(found.named)
        _raise(counts, found.stamped)
        if self._parent is None:
            _raise(counts, found.placed)
        if self._levels is not None:
            listed = (topic for topic, node in self.tree.homes.items() if node == self.node)
            healing.unmeasured = {topic for topic in (*listed, *found.stamped) if self._is_home(topic)}
            self._watch(healing.unmeasured, now, effects)
        issued = {topic: number for topic, number in counts.items() if self._is_home(topic)}
        is_blind = any(self._is_home(topic) for topic in found.holes)
        return say.Healed(message.round, BARRIER, counts=counts, issued=issued, is_blind=is_blind)

    def _is_measured_blank(self) -> bool:
        """Whether the lengths of the logs are known that a blank node has to report."""
        healing = self.state.healing
        if not healing.is_blank or healing.phase != BARRIER or not healing.unmeasured:
            return True
        if not healing.unmeasured <= healing.lengths.keys():
            return False
        lengths = {topic: min(healing.lengths[topic], self._told_to(topic)) for topic in healing.unmeasured}
        counts = dict(healing.report.counts)
        _raise(counts, lengths)
        healing.report = structs.replace(healing.report, counts=counts)
        return True

    def _told_to(self, topic: Topic) -> Number:
        """How far the former life may have told stages of a topic, as its stamps say."""
        found = self.state.healing.found
        assert found is not None, "a blank node has been told"
        ahead = found.ahead.get(topic, 0)
        return max(ahead, self.options.stages_ahead) if ahead is not None else self.state.healing.lengths[topic]

    # ── 4: go on ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_era(self, message: say.Heal, now: float, effects: Effects) -> None:
        """Every topic begins with these counts, and nothing that was collected before them counts."""
        state, healing, counts = self.state, self.state.healing, message.counts
        state.passages = PassageState()
        self._passages = PassageTable(state.passages, full=self.options.full_stamps)
        for topic, number in sorted(counts.items()):
            self._passages.raise_to(topic, number)
        self._begin_order(counts, now)
        healing.era, healing.base = message.round, counts
        if healing.is_blank:
            self._learn_holders(message.holders, message.round, now)
            for topic in filter(self._is_home, sorted(counts)):
                self._home(topic)
        state.regroupings.clear()
        state.named = dict(counts)
        state.names_all = True
        for topic, home in sorted(state.homes.items()):
            if self._is_home(topic):
                self._lose(topic, home, counts.get(topic, 0), now, effects)
                home.top = ""
        for topic in sorted(state.couplings.together):
            if self._is_home(topic) and (group := self._couplings.group(topic)):
                state.regroupings[topic] = Regrouping(couple=group)
        healing.is_blank, healing.is_drained, healing.found, healing.phase = False, False, None, GO_ON
        healing.unmeasured, healing.lengths = set(), {}
        self._restart_joins(now, effects)
        for topic in filter(self._is_home, sorted(state.homes)):
            self._look_at_log(topic, now, effects)

    def _begin_order(self, counts: Mapping[Topic, Number], now: float) -> None:
        """What never came into the order leaves a hole in it, so who reads the past is told of a gap there."""
        order = self.state.order
        if self._parent is not None or not order.begun:
            return
        missing = self._missing_in_order(counts)
        if missing:
            self._order.resume_at(order.end + missing)
            order.lost = self.state.healing.hole = order.end
            self._order_due = now
        if order.counted:
            _raise(order.lasts, counts)

    def _learn_holders(self, holders: Mapping[Address, Holder], era: int, now: float) -> None:
        """Who holds topics that live here, as others know: from now on it is known here without a break."""
        self.state.couplings.forgotten = known_from_the_start(era) - 1
        self.state.healing.learned = era
        for name, holder in sorted(holders.items()):
            if any(self._is_home(topic) for topic in holder.topics):
                self._couplings.apply(name, holder.version, holder.topics, now, holder.lasting)
        self._levels = self._level_table()

    def _lose(self, topic: Topic, home: Home, count: Number, now: float, effects: Effects) -> None:
        """Numbers up to the count that are not finished were lost. Those beyond were not issued at all."""
        healing, found = self.state.healing, self.state.healing.found
        home.issued = count
        ranges = self.state.ranges.get(topic, {})
        self._firsts.pop(topic, None)
        lost = [(range_.first, range_.last) for range_ in ranges.values() if range_.entries is None]
        if healing.is_blank and found is not None:
            kept = found.stamped.get(topic, 0)
            lost = [*found.holes.get(topic, ()), *([(kept + 1, count)] if kept < count else [])]
        for first, last in lost:
            if first > count:
                del ranges[first]
                continue
            assert last <= count, "stamps, stages and orders name whole ranges"
            range_ = Range(first, last, entries={}, is_lost=True)
            self.state.ranges.setdefault(topic, {})[first] = range_
            healing.numbers_lost.setdefault(topic, []).append((first, last))
            self._finish(topic, range_, {}, now, effects)
        self._firsts.pop(topic, None)
        if topic in self.state.ranges and not self.state.ranges[topic]:
            del self.state.ranges[topic]

    def _restart_joins(self, now: float, effects: Effects) -> None:
        """What joins wait for may have been lost on its way."""
        for subscriber, joins in sorted(self.state.joins.items()):
            for topic, join in sorted(joins.items()):
                if join.start is None:
                    join.floor = {}
                    join.unannounced = {*join.topics, *join.left}
                    self._unmeasured_joins.setdefault(topic, set()).add(subscriber)
                    self._await_announcements(say.JoinId(subscriber, join.version, topic), join, now, effects)

    @property
    def order_healed(self) -> Position:
        """The root: where the order goes on behind the hole of the latest healing, until the broker has noted it."""
        return self.state.healing.hole

    # ── in the new era ────────────────────────────────────────────────────────────────────────────────────────────

    def _base(self, topic: Topic, home: Home) -> Entries:
        """The first stamp of a topic in an era names what all others had before it.

        With global order those that it is coupled with are enough, and they are collected anyway. With pairwise order
        somebody may have left one of two topics, and its last entry may have been lost.
        """
        healing = self.state.healing
        if home.era == healing.era:
            return {}
        home.era = healing.era
        couplings = self.state.couplings
        if healing.learned == healing.era and couplings.forgotten == known_from_the_start(healing.era) - 1:
            couplings.forgotten += 1  # who becomes known later is known with a break
        if self.options.order == "global":
            return {}
        return {other: number for other, number in healing.base.items() if other != topic}

    def _explain_healing(self) -> list[str]:
        healing = self.state.healing
        if healing.is_blank and not healing.phase:
            return [f"{self.node} has lost its journal: waits for {self.tree.root} to heal it"]
        if not healing.phase:
            return []
        if healing.lost.keys() >= self.tree.parents.keys():
            return ["all nodes have lost their journals: start anew, or restore a backup of everything"]
        step = {
            CALL: "all nodes",
            DRAIN: "what was issued",
            BARRIER: "the counts of all topics",
            GO_ON: "all to go on",
        }[healing.phase]
        return [f"healing {', '.join(sorted(healing.lost))}: waits for {step} ({', '.join(sorted(healing.waits))})"]


def _raise(counts: dict[Topic, Number], others: Mapping[Topic, Number]) -> None:
    for topic, number in others.items():
        if number > counts.get(topic, 0):
            counts[topic] = number
