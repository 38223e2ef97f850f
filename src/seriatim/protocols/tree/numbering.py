"""Numbers: giving them out, letting them climb, and remembering them until they are settled.

*Giving out.* A topic homed here is numbered here: by a publisher's ticket, or because the broker's log has grown. The
range climbs as a `Pass`, hop by hop, to the highest node where the topic meets a topic it is coupled with; each node
on the way adds the entries of the topics that meet there (order/passage.py). The finished stamp comes back down.

*Stages.* A node on the way tells the stamp as far as it is, if somebody listens at its level (order/levels.py).

*Settling.* Ticket mode: a number is settled when it is an event or a void; what outlives its lease is voided, and the
void competes with the event for the broker's write-once slot. Log mode: a range is settled when the broker keeps its
stamp.
"""

from bisect import bisect_right
from collections import OrderedDict, deque

from msgspec import structs

from seriatim.model import BROKER, Address, Entries, Node, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.proofs import prove
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.tree.estate import Desk, Home, Range
from seriatim.protocols.tree.messages import Answer, Finished, Granted, Inquire, Pass, Settled, Ticket
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import SequencerState
from seriatim.protocols.with_broker import Grown, Kept, Staged, Stamped, Trimmed, Watch, Write, Written

VOIDS_REMEMBERED = 1_024  # per topic; older ones are on the broker
DISPUTES_REMEMBERED = 1_024  # per topic
STAGES_AHEAD_TIMES = 4
FIRSTS_SPARED = 64  # settled ranges that may stay in the list of first numbers


class Numbering(SequencerCore):
    """The part of a sequencer that gives out numbers and stamps."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        # In order of time, because all leases are of one length, and so are all retries.
        self._leases: deque[tuple[float, Topic, Number]] = deque()
        self._retries: deque[tuple[float, Topic, Number]] = deque()
        self._idle_desks: OrderedDict[tuple[Topic, Address], float] = OrderedDict()  # when to look whether to forget
        self._firsts: dict[Topic, list[Number]] = {}  # of all ranges, where somebody asked whose a number is

    def _on_ticket(self, source: Address, ticket: Ticket, now: float, effects: Effects) -> None:
        if ticket.settled:
            self._on_settled(source, Settled(ticket.topic, ticket.settled), now, effects)
        if self._is_restless and self._is_elsewhere(source, ticket, ticket.topic, effects):
            return
        problem = self._problem_with_ticket(ticket)
        if problem is not None:
            self._refuse(source, ticket.request, ticket.topic, problem, effects)
            return
        topic = ticket.topic
        desks = self.state.desks.get(topic)
        desk = desks.get(source) if desks is not None else None
        if desk is not None and desk.forget_at is not None and desk.forget_at <= now:
            desk = None
        if desk is not None and self._is_repeat(desk, ticket):
            range_ = self._range(topic, desk.first)
            if ticket.request == desk.request and range_ is not None and range_.entries is not None:
                effects.send.append((source, self._granted(topic, range_, range_.entries)))
            return
        open_tickets = self.state.open_tickets.get(source, 0)
        if open_tickets >= self.options.open_tickets_max:
            self._refuse(source, ticket.request, topic, f"{open_tickets} tickets are unsettled", effects)
            return
        self.state.open_tickets[source] = open_tickets + 1
        home = self._home(topic)
        first = home.issued + 1
        if desks is None:
            desks = self.state.desks[topic] = {}
        desks[source] = Desk(ticket.request, first)
        self._issue(topic, home, Range(first, home.issued + ticket.count, source, ticket.request), now, effects)

    def _problem_with_ticket(self, ticket: Ticket) -> str | None:
        if self.options.mode == "log":
            return "numbers are positions in the topic's log; append to it"
        if ticket.topic not in self.state.homes and not self._is_home(ticket.topic):
            return self._why_not_home(ticket.topic)
        if ticket.request < 1:
            return f"requests are numbered from 1, not {ticket.request}"
        if not 1 <= ticket.count <= self.options.ticket_count_max:
            return f"count {ticket.count} is not between 1 and {self.options.ticket_count_max}"
        return self._problem_with_removed(ticket.topic) if self.state.removed else None

    def _is_repeat(self, desk: Desk, ticket: Ticket) -> bool:
        """A publisher numbers its requests for a topic upwards, and has one at a time under way."""
        return ticket.request <= desk.request

    def _on_grown(self, source: Address, message: Grown, now: float, effects: Effects) -> None:
        if self.options.mode != "log" or not self._is_home(message.topic) or self._rests(message.topic):
            return
        home = self._home(message.topic)
        if message.last > home.issued:
            if self.state.removed.get(message.topic):
                del self.state.removed[message.topic]
            self._issue(message.topic, home, Range(home.issued + 1, message.last), now, effects)
        self._measure(message.topic, home, now, effects)

    def _rests(self, topic: Topic) -> bool:
        """Whether a topic is on its way from here or to here, so that its log has to wait.

        Not yet if somebody joins who must know how long the log is: the topic does not leave before.
        """
        if self.state.healing.is_frozen:
            return True
        if not self._is_restless:
            return False
        leaving = self.state.moving.leaving.get(topic)
        if leaving is None or leaving.is_handed_over:
            return leaving is not None or topic in self.state.moving.arriving
        joins = (joins[topic] for joins in self.state.joins.values() if topic in joins)
        return not any(topic in join.unannounced for join in joins)

    def _issue(self, topic: Topic, home: Home, range_: Range, now: float, effects: Effects) -> None:
        home.issued = range_.last
        range_.position = self._passing_at = self._place(topic, range_.first, range_.last, now)
        ranges = self.state.ranges.get(topic)
        if ranges is None:
            ranges = self.state.ranges[topic] = {}
        ranges[range_.first] = range_
        if self._firsts and (firsts := self._firsts.get(topic)) is not None:
            firsts.append(range_.first)
        base = self._base(topic, home) if home.era != self.state.healing.era else {}
        regroupings = self.state.regroupings
        regrouping = regroupings.pop(topic, None) if regroupings else None
        if regrouping is not None:
            group = self._couplings.group(topic)
            top = self._top(topic, group | regrouping.uncouple | regrouping.once)
            former = dict(regrouping.former)
            if former:
                met = {self.tree.meet_nodes(self.node, node) for node in former.values()}
                top = self.tree.highest({top, *met}, self.node)
            if self.options.full_stamps:  # what was collected once is collected always
                top = self.tree.highest({top, home.top or self.node}, self.node)
            couple, uncouple, once = map(frozenset, (regrouping.couple, regrouping.uncouple, regrouping.once))
            stages = self._stages(topic, top, home, range_)
            numbers, moves = (topic, range_.first, range_.last), self.tree.moves.number
            message = Pass(*numbers, top, base, couple, uncouple, once, stages, moves=moves, former=former)
            lasting = top if self.options.full_stamps else self._top(topic, group)
            home.top = lasting if lasting != self.node else ""
            self._on_pass(self.node, message, now, effects)
        elif not home.top:
            entries = {**base, **self._passages.collect(topic)}
            self._passages.raise_to(topic, range_.last)
            self._finish(topic, range_, entries, now, effects)
        else:
            stages, moves = self._stages(topic, home.top, home, range_), self.tree.moves.number
            message = Pass(topic, range_.first, range_.last, home.top, base, stages=stages, moves=moves)
            self._on_pass(self.node, message, now, effects)

    def _on_pass(self, source: Address, message: Pass, now: float, effects: Effects) -> None:
        collected = self._collect(message)
        if message.former or self.options.full_stamps:  # a topic that has moved may be collected twice
            collected = {topic: max(count, message.entries.get(topic, 0)) for topic, count in collected.items()}
        entries = {**message.entries, **collected}
        self._passages.raise_to(message.topic, message.last)
        if self.node in message.stages:
            self._tell_stage(message, entries, effects)
        if message.top == self.node:
            finished = Finished(message.topic, message.first, message.last, entries, self._passing_at)
            self._route(self.tree.home(message.topic), finished, now, effects)
        else:
            is_placed = source == self.node or message.order is not None
            order = self._carried(message.first) if is_placed else None
            effects.send.append((self._next_stop(message), structs.replace(message, entries=entries, order=order)))

    def _stages(self, topic: Topic, top: Node, home: Home, range_: Range) -> tuple[Node, ...]:
        """The nodes at which somebody waits for the stamp that now begins to climb to `top`.

        If anybody waits below the top, the home tells too. So the broker knows that this range is on its way, and need
        not wait for the finished stamp before it looks for more.

        None, if stamps on the broker do not say that stages may be told of these numbers. So if this node loses its
        journal, others know what may have been told.
        """
        if self._levels is None or range_.last > max(home.ahead, self.options.stages_ahead):
            return ()
        levels = self._levels.of(topic)
        range_.is_told = bool(levels)
        return levels if levels in ((), (top,)) or self.node in levels else (self.node, *levels)

    def _tell_stage(self, message: Pass, entries: Entries, effects: Effects) -> None:
        """Whoever holds only topics that meet this one here or below need not wait for the rest of the way.

        Like everything a node says, it leaves when the journal has the pass: another process would give it the same
        entries. A stamp that is finished at its home goes out at once anyway.
        """
        final = message.top == self.node
        if not (final and self._is_home(message.topic)):
            numbers, epoch = (message.topic, message.first, message.last), self.state.epoch
            position = self._passing_at if final else 0
            era = self.state.healing.era
            staged = Staged(*numbers, entries, self.node, epoch, final, position, message.moves, era)
            effects.send.append((BROKER, staged))

    def _collect(self, message: Pass) -> Entries:
        """Entries of the topics that meet here; one that is being uncoupled is collected this last time."""
        topic, moves, former = message.topic, message.moves, message.former
        if not (message.couple or message.uncouple or message.once or former):
            return self._passages.collect(topic)
        couple, once = (self._meeting_here(topic, each, moves) for each in (message.couple, message.once))
        uncouple = self._meeting_here(topic, message.uncouple - former.keys(), moves)
        if former:
            meet, home = self.tree.meet_nodes, self.tree.home(topic)
            left = [each for each, node in former.items() if meet(home, node) == self.node]
            uncouple += [each for each in left if each not in couple]
        return self._passages.collect(topic, couple, uncouple, once)

    def _next_stop(self, message: Pass) -> Node:
        """Through every node on the way, also those where nothing is collected: no pass may overtake another."""
        assert self._parent is not None, "the root is the top of everything that reaches it"
        return self._parent

    def _on_finished(self, message: Finished, now: float, effects: Effects) -> None:
        range_ = self._range(message.topic, message.first)
        assert range_ is not None, "a range is not settled before it is finished"
        range_.position = message.position
        self._finish(message.topic, range_, message.entries, now, effects)

    def _finish(self, topic: Topic, range_: Range, entries: Entries, now: float, effects: Effects) -> None:
        range_.entries = entries
        self._remember_named(entries)
        if range_.publisher:
            effects.send.append((range_.publisher, self._granted(topic, range_, entries)))
            range_.due = due = now + self.options.lease_ms
            self._leases.append((due, topic, range_.first))
        else:
            self._stamp_in_order(topic, range_, now, effects)

    def _stamp_in_order(self, topic: Topic, range_: Range, now: float, effects: Effects) -> None:
        """Log mode: stamps go out in the order of their numbers. A later pass may end lower, and so be back earlier.

        To publishers a stamp says that all numbers up to it have their place, also if this node loses its journal.
        """
        before = self._range_of(topic, range_.first - 1)
        if before is not None and not before.due:
            return
        if self._levels is not None and not range_.due:
            range_.ahead = self._ahead(topic, range_)
        self._chase(topic, range_, now, effects)
        following = self._range(topic, range_.last + 1)
        while following is not None and following.entries is not None and not following.due:
            if self._levels is not None:
                following.ahead = self._ahead(topic, following)
            self._chase(topic, following, now, effects)
            following = self._range(topic, following.last + 1)

    def _ahead(self, topic: Topic, range_: Range) -> Number:
        """How far stages may be told once the broker has this stamp: some times as far as what is under way now."""
        issued = self.state.homes[topic].issued
        return issued + self.options.stages_ahead + STAGES_AHEAD_TIMES * (issued - range_.last)

    def _remember_named(self, entries: Entries) -> None:
        """Somebody waits for these numbers: they are not issued anew if a node loses its journal (healing.py)."""
        if self._has_neighbours and self.options.mode == "log":
            named = self.state.named
            for topic, number in entries.items():
                if number > named.get(topic, 0):
                    named[topic] = number

    def _granted(self, topic: Topic, range_: Range, entries: Entries) -> Granted:
        epoch, first, last = self.state.epoch, range_.first, range_.last
        key = self.options.stamp_key
        if key is None:
            return Granted(range_.request, topic, first, last, entries, epoch, position=range_.position)
        with_entries = last if self.options.full_stamps else first
        proof = prove(key, epoch, topic, first, with_entries, range_.publisher, entries)
        rest = prove(key, epoch, topic, first + 1, last, range_.publisher, {}) if with_entries < last else None
        return Granted(range_.request, topic, first, last, entries, epoch, proof, rest, range_.position)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _chase(self, topic: Topic, range_: Range, now: float, effects: Effects) -> None:
        """A finished range is not settled: hand its stamp to the broker (again), or void its open slots."""
        assert range_.entries is not None, "only finished ranges are chased"
        if not range_.publisher:
            numbers, moves = (topic, range_.first, range_.last), self.tree.moves.number
            era, is_lost = self.state.healing.era, range_.is_lost
            placed = self.state.epoch, range_.position, moves, era
            stamped = Stamped(*numbers, range_.entries, *placed, is_lost, range_.ahead)
            effects.send.append((BROKER, stamped))
        else:
            # From the last one down, while the publisher writes from the first one up: what it loses is the end of
            # the range, never a number before one it keeps, so its order survives.
            for number in sorted(self._open_slots(range_), reverse=True):
                effects.send.append((BROKER, self._void(topic, range_, number)))
        range_.due = now + self.options.retry_ms
        self._retries.append((range_.due, topic, range_.first))

    def _void(self, topic: Topic, range_: Range, number: Number) -> Write:
        entries, key = self._void_entries(range_, number), self.options.stamp_key
        proof = prove(key, self.state.epoch, topic, number, number, None, entries) if key is not None else None
        position = range_.position + number - range_.first if range_.position else 0
        return Write(topic, number, entries, None, proof, position)

    def _open_slots(self, range_: Range) -> set[Number]:
        if range_.open_slots is None:
            range_.open_slots = set(range(range_.first, range_.last + 1))
        return range_.open_slots

    def _void_entries(self, range_: Range, number: Number) -> Entries:
        """A void stands for its number in everything: it carries the entries the event would have carried."""
        assert range_.entries is not None, "only finished ranges are voided"
        return range_.entries if number == range_.first or self.options.full_stamps else {}

    def _on_written(self, source: Address, message: Written, now: float, effects: Effects) -> None:
        topic, number = message.topic, message.number
        range_ = self._range_of(topic, number)
        if range_ is None or range_.entries is None:
            return
        if message.event_id is None:
            voids = self.state.voids.setdefault(topic, {})
            _remember(voids, number, self._void_entries(range_, number), VOIDS_REMEMBERED)
        else:
            self._dispute(topic, range_, number)
        open_slots = self._open_slots(range_)
        open_slots.discard(number)
        if not open_slots:
            self._settle(topic, range_, now)

    def _on_settled(self, source: Address, message: Settled, now: float, effects: Effects) -> None:
        range_ = self._range(message.topic, message.first)
        if range_ is None or range_.publisher != source:
            return
        if range_.entries is not None:  # nobody can have filled slots before they were granted
            for number in message.stolen[:DISPUTES_REMEMBERED]:
                self._dispute(message.topic, range_, number)
            self._settle(message.topic, range_, now)

    def _dispute(self, topic: Topic, range_: Range, number: Number) -> None:
        """Where stamps are proven, a slot may hold what nobody believes: then its number is a void, with its entries.

        Only for a subscriber that says so: the event may as well be the right one.
        """
        if self.options.stamp_key is not None and range_.first <= number <= range_.last:
            disputed = self.state.disputed.setdefault(topic, {})
            _remember(disputed, number, self._void_entries(range_, number), DISPUTES_REMEMBERED)

    def _settle(self, topic: Topic, range_: Range, now: float) -> None:
        self._close(topic, range_.first)
        publisher = range_.publisher
        desks = self.state.desks.get(topic)
        desk = desks.get(publisher) if desks is not None else None
        if desk is not None and desk.request == range_.request:
            desk.forget_at = due = now + self.options.lease_ms
            self._idle_desks.setdefault((topic, publisher), due)
        left = self.state.open_tickets.get(publisher, 0) - 1
        if left > 0:
            self.state.open_tickets[publisher] = left
        else:
            self.state.open_tickets.pop(publisher, None)

    def _on_kept(self, source: Address, message: Kept, now: float, effects: Effects) -> None:
        range_ = self._range(message.topic, message.first)
        if range_ is not None and not range_.publisher:
            home = self.state.homes[message.topic]
            home.ahead = max(home.ahead, range_.ahead)
            self._close(message.topic, message.first)

    def _on_trimmed(self, source: Address, message: Trimmed, now: float, effects: Effects) -> None:
        if self._is_home(message.topic):
            home = self._home(message.topic)
            home.kept_from = max(home.kept_from, message.first)

    def _range(self, topic: Topic, first: Number) -> Range | None:
        """The open range that begins with this number."""
        ranges = self.state.ranges.get(topic)
        return ranges.get(first) if ranges is not None else None

    def _range_of(self, topic: Topic, number: Number) -> Range | None:
        """The open range that this number belongs to."""
        ranges = self.state.ranges.get(topic)
        if ranges is None or number in ranges:
            return ranges[number] if ranges is not None else None
        firsts = self._firsts.get(topic)
        if firsts is None or len(firsts) > 2 * len(ranges) + FIRSTS_SPARED:
            firsts = self._firsts[topic] = sorted(ranges)
        index = bisect_right(firsts, number)
        range_ = ranges.get(firsts[index - 1]) if index else None
        return range_ if range_ is not None and number <= range_.last else None

    def _close(self, topic: Topic, first: Number) -> None:
        ranges = self.state.ranges[topic]
        del ranges[first]
        if not ranges:
            del self.state.ranges[topic]
            if self._firsts:
                self._firsts.pop(topic, None)

    def _on_inquire(self, source: Address, message: Inquire, now: float, effects: Effects) -> None:
        topic, number = message.topic, message.number
        if self._is_restless and not self._is_home(topic) and self.tree.moved(topic):
            self._send_on(source, topic, effects)
            return
        home = self.state.homes.get(topic)
        found: Entries | None = None
        if home is None or number > home.issued:
            state = "unissued"
            if self.options.mode == "log" and self._is_home(topic) and self.state.removed.get(topic) is not False:
                effects.send.append((BROKER, Watch(frozenset({topic}))))  # it may have grown without our notice
        elif (found := self._void_of(message)) is not None:
            state = "void"
        elif number < home.kept_from:
            state = "lost"
        elif self._range_of(topic, number) is not None:
            state = "coming"
        else:
            state = "published"
        era = self.state.healing.era
        answer = Answer(topic, number, state, found or {}, self.state.epoch, era)  # type: ignore[arg-type]
        effects.send.append((source, answer))

    def _void_of(self, message: Inquire) -> Entries | None:
        """The entries of a number that is a void: for everybody, or for one who cannot believe what came under it."""
        entries = self.state.voids.get(message.topic, {}).get(message.number)
        if message.is_mine and self._is_number_lost(message.topic, message.number):
            return {}
        if entries is None and message.rejected:
            entries = self.state.disputed.get(message.topic, {}).get(message.number)
        return entries

    def _is_number_lost(self, topic: Topic, number: Number) -> bool:
        lost = self.state.healing.numbers_lost.get(topic, ())
        return any(first <= number <= last for first, last in lost)

    def _settle_due(self, now: float, effects: Effects) -> None:
        for queue in (self._leases, self._retries):
            while queue and queue[0][0] <= now:
                due, topic, first = queue.popleft()
                range_ = self._range(topic, first)
                if range_ is not None and range_.due == due:
                    self._chase(topic, range_, now, effects)
        while self._idle_desks and next(iter(self._idle_desks.values())) <= now:
            (topic, publisher), _ = self._idle_desks.popitem(last=False)
            desks = self.state.desks.get(topic, {})
            if (desk := desks.get(publisher)) is None or desk.forget_at is None:
                continue  # gone, or busy again: then it is put here again when it is settled
            if desk.forget_at > now:
                self._idle_desks[topic, publisher] = desk.forget_at
                continue
            del desks[publisher]  # counts as forgotten already: a tick is not journaled, so it must change nothing
            if not desks:
                del self.state.desks[topic]

    def _settle_again(self, now: float, effects: Effects) -> None:
        """Hand everything out again after a restart, because nobody knows what of it arrived."""
        for topic, ranges in self.state.ranges.items():
            for range_ in ranges.values():
                if range_.entries is not None:
                    self._finish(topic, range_, range_.entries, now, effects)
        desks = ((topic, name, desk) for topic, desks in self.state.desks.items() for name, desk in desks.items())
        idle = [(desk.forget_at, topic, name) for topic, name, desk in desks if desk.forget_at is not None]
        self._idle_desks = OrderedDict(((topic, name), due) for due, topic, name in sorted(idle))

    def _settle_wish(self) -> float | None:
        lease = self._first_due(self._leases) if self._leases else None
        retry = self._first_due(self._retries) if self._retries else None
        return retry if lease is None or (retry is not None and retry < lease) else lease

    def _first_due(self, queue: deque[tuple[float, Topic, Number]]) -> float | None:
        open_ranges = self.state.ranges
        while queue:
            due, topic, first = queue[0]
            if (ranges := open_ranges.get(topic)) is not None:
                range_ = ranges.get(first)
                if range_ is not None and range_.due == due:
                    return due
            queue.popleft()  # settled meanwhile: a busy node must not carry a whole lease's worth of them
        return None


def _remember(table: dict[Number, Entries], number: Number, entries: Entries, count_max: int) -> None:
    """Keep the latest and drop the oldest: those that waited for it have asked long ago."""
    table[number] = entries
    if len(table) > count_max:
        del table[next(iter(table))]
