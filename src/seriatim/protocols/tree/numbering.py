"""Numbers: giving them out, letting them climb, and remembering them until they are settled.

*Giving out.* A topic homed here is numbered here: by a publisher's ticket, or because the broker's log has grown. The
range climbs as a `Pass`, hop by hop, to the highest node where the topic meets a topic it is coupled with; each node
on the way adds the entries of the topics that meet there (order/passage.py). The finished stamp comes back down.

*Settling.* Ticket mode: a number is settled when it is an event or a void; what outlives its lease is voided, and the
void competes with the event for the broker's write-once slot. Log mode: a range is settled when the broker keeps its
stamp.
"""

from collections import OrderedDict, deque

from seriatim.model import BROKER, Address, Entries, Node, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.tree.messages import (
    Answer,
    Finished,
    Granted,
    Grown,
    Inquire,
    Kept,
    Pass,
    Settled,
    Stamped,
    Ticket,
    Trimmed,
    Watch,
    Write,
    Written,
)
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import Desk, Home, Range, SequencerState

VOIDS_REMEMBERED = 1_024  # per topic; older ones are on the broker


class Numbering(SequencerCore):
    """The part of a sequencer that gives out numbers and stamps."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        # Both in order of time, because all leases are of one length, and so are all retries.
        self._leases: deque[tuple[float, Topic, Number]] = deque()
        self._retries: deque[tuple[float, Topic, Number]] = deque()
        self._idle_desks: OrderedDict[tuple[Topic, Address], float] = OrderedDict()

    def _on_ticket(self, source: Address, ticket: Ticket, now: float, effects: Effects) -> None:
        problem = self._problem_with_ticket(ticket)
        if problem is not None:
            self._refuse(source, ticket.request, ticket.topic, problem, effects)
            return
        home = self._home(ticket.topic)
        desk = home.desks.get(source)
        if desk is None or (desk.forget_at is not None and desk.forget_at <= now):
            desk = Desk()
        if self._is_repeat(desk, ticket):
            range_ = home.ranges.get(desk.first)
            if ticket.request == desk.request and range_ is not None and range_.entries is not None:
                effects.send.append((source, self._granted(ticket.topic, range_, range_.entries)))
            return
        open_tickets = self.state.open_tickets.get(source, 0)
        if open_tickets >= self.options.open_tickets_max:
            self._refuse(source, ticket.request, ticket.topic, f"{open_tickets} tickets are unsettled", effects)
            return
        self.state.open_tickets[source] = open_tickets + 1
        first = home.issued + 1
        home.desks[source] = Desk(ticket.request, first)
        self._issue(ticket.topic, home, Range(first, home.issued + ticket.count, source, ticket.request), now, effects)

    def _problem_with_ticket(self, ticket: Ticket) -> str | None:
        if self.options.mode == "log":
            return "numbers are positions in the topic's log; append to it"
        if ticket.topic not in self.state.homes and not self._is_home(ticket.topic):
            return self._why_not_home(ticket.topic)
        if not 1 <= ticket.count <= self.options.ticket_count_max:
            return f"count {ticket.count} is not between 1 and {self.options.ticket_count_max}"
        return None

    def _is_repeat(self, desk: Desk, ticket: Ticket) -> bool:
        """A publisher numbers its requests for a topic upwards, and has one at a time under way."""
        return ticket.request <= desk.request

    def _on_grown(self, source: Address, message: Grown, now: float, effects: Effects) -> None:
        if self.options.mode != "log" or not self._is_home(message.topic):
            return
        home = self._home(message.topic)
        if message.last > home.issued:
            self._issue(message.topic, home, Range(home.issued + 1, message.last), now, effects)

    def _issue(self, topic: Topic, home: Home, range_: Range, now: float, effects: Effects) -> None:
        home.issued = range_.last
        home.ranges[range_.first] = range_
        if home.couple or home.uncouple or home.once:
            group = self._couplings.group(topic)
            top = self._top(topic, group | home.uncouple | home.once)
            if self.options.full_stamps:  # what was collected once is collected always
                top = self.tree.highest({top, home.top}, self.node)
            message = Pass(
                topic,
                range_.first,
                range_.last,
                top,
                {},
                frozenset(home.couple),
                frozenset(home.uncouple),
                frozenset(home.once),
            )
            home.top = top if self.options.full_stamps else self._top(topic, group)
            home.couple.clear()
            home.uncouple.clear()
            home.once.clear()
            self._on_pass(self.node, message, now, effects)
        elif home.top == self.node:
            entries = self._passages.collect(topic)
            self._passages.raise_to(topic, range_.last)
            self._finish(topic, home, range_, entries, now, effects)
        else:
            message = Pass(topic, range_.first, range_.last, home.top, {})
            self._on_pass(self.node, message, now, effects)

    def _on_pass(self, source: Address, message: Pass, now: float, effects: Effects) -> None:
        entries = {**message.entries, **self._collect(message)}
        self._passages.raise_to(message.topic, message.last)
        if message.top == self.node:
            finished = Finished(message.topic, message.first, message.last, entries)
            self._route(self.tree.home(message.topic), finished, now, effects)
        else:
            onwards = Pass(
                message.topic,
                message.first,
                message.last,
                message.top,
                entries,
                message.couple,
                message.uncouple,
                message.once,
            )
            effects.send.append((self._next_stop(message), onwards))

    def _collect(self, message: Pass) -> Entries:
        """Entries of the topics that meet here; one that is being uncoupled is collected this last time."""
        if not (message.couple or message.uncouple or message.once):
            return self._passages.collect(message.topic)
        return self._passages.collect(
            message.topic,
            self._meeting_here(message.topic, message.couple),
            self._meeting_here(message.topic, message.uncouple),
            self._meeting_here(message.topic, message.once),
        )

    def _next_stop(self, message: Pass) -> Node:
        """Through every node on the way, also those where nothing is collected: nobody may overtake."""
        assert self._parent is not None, "the root is the top of everything that reaches it"
        return self._parent

    def _on_finished(self, message: Finished, now: float, effects: Effects) -> None:
        home = self.state.homes[message.topic]
        self._finish(message.topic, home, home.ranges[message.first], message.entries, now, effects)

    def _finish(self, topic: Topic, home: Home, range_: Range, entries: Entries, now: float, effects: Effects) -> None:
        range_.entries = entries
        if range_.publisher:
            effects.send.append((range_.publisher, self._granted(topic, range_, entries)))
            range_.due = due = now + self.options.lease_ms
            self._leases.append((due, topic, range_.first))
        else:
            self._chase(topic, range_, now, effects)

    def _granted(self, topic: Topic, range_: Range, entries: Entries) -> Granted:
        return Granted(range_.request, topic, range_.first, range_.last, entries, self.state.epoch)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _chase(self, topic: Topic, range_: Range, now: float, effects: Effects) -> None:
        """A finished range is not settled: hand its stamp to the broker (again), or void its open slots."""
        assert range_.entries is not None, "only finished ranges are chased"
        if not range_.publisher:
            stamped = Stamped(topic, range_.first, range_.last, range_.entries, self.state.epoch)
            effects.send.append((BROKER, stamped))
        else:
            # From the last one down, while the publisher writes from the first one up: what it loses is the end of
            # the range, never a number before one it keeps, so its order survives.
            for number in sorted(self._open_slots(range_), reverse=True):
                effects.send.append((BROKER, Write(topic, number, self._void_entries(range_, number))))
        range_.due = now + self.options.retry_ms
        self._retries.append((range_.due, topic, range_.first))

    def _open_slots(self, range_: Range) -> set[Number]:
        if range_.open_slots is None:
            range_.open_slots = set(range(range_.first, range_.last + 1))
        return range_.open_slots

    def _void_entries(self, range_: Range, number: Number) -> Entries:
        """A void stands for its number in everything: it carries the entries the event would have carried."""
        assert range_.entries is not None, "only finished ranges are voided"
        return range_.entries if number == range_.first or self.options.full_stamps else {}

    def _on_written(self, source: Address, message: Written, now: float, effects: Effects) -> None:
        home = self.state.homes.get(message.topic)
        range_ = self._range_of(home, message.number) if home is not None else None
        if home is None or range_ is None or range_.entries is None:
            return
        if message.event_id is None:
            home.voids[message.number] = self._void_entries(range_, message.number)
            if len(home.voids) > VOIDS_REMEMBERED:
                del home.voids[min(home.voids)]
        open_slots = self._open_slots(range_)
        open_slots.discard(message.number)
        if not open_slots:
            self._settle(message.topic, home, range_, now)

    def _on_settled(self, source: Address, message: Settled, now: float, effects: Effects) -> None:
        home = self.state.homes.get(message.topic)
        range_ = home.ranges.get(message.first) if home is not None else None
        if home is None or range_ is None or range_.publisher != source:
            return
        if range_.entries is not None:  # nobody can have filled slots before they were granted
            self._settle(message.topic, home, range_, now)

    def _settle(self, topic: Topic, home: Home, range_: Range, now: float) -> None:
        del home.ranges[range_.first]
        desk = home.desks.get(range_.publisher)
        if desk is not None and desk.request == range_.request:
            desk.forget_at = due = now + self.options.lease_ms
            self._idle_desks[topic, range_.publisher] = due
            self._idle_desks.move_to_end((topic, range_.publisher))
        left = self.state.open_tickets.get(range_.publisher, 0) - 1
        if left > 0:
            self.state.open_tickets[range_.publisher] = left
        else:
            self.state.open_tickets.pop(range_.publisher, None)

    def _on_kept(self, source: Address, message: Kept, now: float, effects: Effects) -> None:
        home = self.state.homes.get(message.topic)
        if home is None or (range_ := home.ranges.get(message.first)) is None:
            return
        if not range_.publisher:
            del home.ranges[message.first]

    def _on_trimmed(self, source: Address, message: Trimmed, now: float, effects: Effects) -> None:
        if self._is_home(message.topic):
            home = self._home(message.topic)
            home.kept_from = max(home.kept_from, message.first)

    def _range_of(self, home: Home, number: Number) -> Range | None:
        return next((each for each in home.ranges.values() if each.first <= number <= each.last), None)

    def _on_inquire(self, source: Address, message: Inquire, now: float, effects: Effects) -> None:
        home = self.state.homes.get(message.topic)
        entries: Entries = {}
        if home is None or message.number > home.issued:
            state = "unissued"
            if self.options.mode == "log" and self._is_home(message.topic):
                effects.send.append((BROKER, Watch(frozenset({message.topic}))))  # it may have grown without our notice
        elif message.number in home.voids:
            state, entries = "void", home.voids[message.number]
        elif message.number < home.kept_from:
            state = "lost"
        elif self._range_of(home, message.number) is not None:
            state = "coming"
        else:
            state = "published"
        answer = Answer(message.topic, message.number, state, entries, self.state.epoch)  # type: ignore[arg-type]
        effects.send.append((source, answer))

    def _settle_due(self, now: float, effects: Effects) -> None:
        for queue in (self._leases, self._retries):
            while queue and queue[0][0] <= now:
                due, topic, first = queue.popleft()
                range_ = self.state.homes[topic].ranges.get(first)
                if range_ is not None and range_.due == due:
                    self._chase(topic, range_, now, effects)
        while self._idle_desks:
            (topic, publisher), due = next(iter(self._idle_desks.items()))
            if due > now:
                break
            del self._idle_desks[topic, publisher]
            desks = self.state.homes[topic].desks
            if (desk := desks.get(publisher)) is not None and desk.forget_at == due:
                del desks[publisher]  # counts as forgotten already: a tick is not journaled, so it must change nothing

    def _settle_again(self, now: float, effects: Effects) -> None:
        """After a restart: nobody knows what of it arrived, so hand everything out again."""
        for topic, home in self.state.homes.items():
            for range_ in home.ranges.values():
                if range_.entries is not None:
                    self._finish(topic, home, range_, range_.entries, now, effects)
            for publisher, desk in home.desks.items():
                if desk.forget_at is not None:
                    self._idle_desks[topic, publisher] = desk.forget_at

    def _settle_wish(self) -> float | None:
        lease = self._first_due(self._leases) if self._leases else None
        retry = self._first_due(self._retries) if self._retries else None
        return retry if lease is None or (retry is not None and retry < lease) else lease

    def _first_due(self, queue: deque[tuple[float, Topic, Number]]) -> float | None:
        homes = self.state.homes
        while queue:
            due, topic, first = queue[0]
            range_ = homes[topic].ranges.get(first)
            if range_ is not None and range_.due == due:
                return due
            queue.popleft()  # settled meanwhile: a busy node must not carry a whole lease's worth of them
        return None
