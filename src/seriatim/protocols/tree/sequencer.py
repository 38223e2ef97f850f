"""A node of the sequencing tree: gives out numbers, lets requests climb, and starts subscriptions.

Theory of operation
-------------------
The node handles one input at a time, and talks to its parent and children over FIFO, exactly-once links (see
node.py). Everything it does is one of three things:

*Numbers.* A topic homed here is numbered here: by a publisher's ticket, or because the broker's log has grown. The
range of new numbers climbs as a `Pass`, hop by hop, to the highest node where the topic meets a topic it is coupled
with. Each node on the way adds the entries of the topics that meet there (order/passage.py). The finished stamp comes
back down, and the home hands it out.

*Subscriptions.* A subscriber that adds topic T asks home(T). The home first has every other topic of the subscriber,
and every topic it ever left, *announced* up to where it meets T; only when all have reported does it let a *cut*
climb, which collects the floor. So every event of T after the cut comes after everything the subscriber may have seen
or may still see unstamped on its other topics.

*Settling.* A number that was given out is remembered until it is an event or a void (ticket mode), or until the
broker keeps its stamp (log mode).

Each correction to paper 000 is one small method, so that the checkers can be checked by replacing it: `_next_stop`
(hop by hop), `_await_announcements` (two-phase start), `_floor` (floor), `_left_topics` (left topics), `_collect`
(closing rule), `_is_repeat` (idempotent tickets), `_void_entries` (a void keeps the stamp).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from seriatim.model import BROKER, Address, Entries, Node, Number, Topic
from seriatim.order import CouplingTable, PassageTable, SequencingTree, Shift
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree.messages import (
    Announce,
    Announced,
    Answer,
    Cut,
    CutDone,
    Finished,
    Forget,
    Granted,
    Grown,
    Inquire,
    Joined,
    JoinId,
    Kept,
    Pass,
    Refresh,
    Refreshed,
    Refused,
    Routed,
    Settled,
    Stamped,
    Stepped,
    Subscribe,
    Tell,
    Ticket,
    Trimmed,
    Update,
    Updated,
    Watch,
    Write,
    Written,
)
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import Desk, Home, Join, Range, SequencerState

VOIDS_REMEMBERED = 1_024  # per topic; older ones are on the broker


class Sequencer:
    """One node. `state` is all it knows; everything else here is derived from it."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        self.tree = tree
        self.node = node
        self.options = options
        self.state = state if state is not None else SequencerState()
        self._passages = PassageTable(self.state.passages, full=options.full_stamps)
        self._couplings = CouplingTable(self.state.couplings, self._is_home, options.threshold)
        self._parent = tree.parents[node]
        self._leases: deque[tuple[float, Topic, Number]] = deque()
        self._retries: deque[tuple[float, Topic, Number]] = deque()
        self._started = False
        self._expiry_due = 0.0
        self._handlers: dict[type, Callable[[Address, Any, float, Effects], None]] = {
            Announce: self._on_announce,
            Cut: self._on_cut,
            Forget: self._on_forget,
            Grown: self._on_grown,
            Inquire: self._on_inquire,
            Kept: self._on_kept,
            Pass: self._on_pass,
            Refresh: self._on_refresh,
            Routed: self._on_routed,
            Settled: self._on_settled,
            Subscribe: self._on_subscribe,
            Ticket: self._on_ticket,
            Trimmed: self._on_trimmed,
            Update: self._on_update,
            Written: self._on_written,
        }
        self._routed: dict[type, Callable[[Any, float, Effects], None]] = {
            Announced: self._on_announced,
            CutDone: self._on_cut_done,
            Finished: self._on_finished,
            Tell: self._on_tell,
        }

    # ── the seam ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        handler = self._handlers.get(type(message))
        if handler is None:
            return effects
        if type(message) is not Inquire:
            effects.persist.append(Stepped(source, message, now))
        handler(source, message, now, effects)
        self._wish(effects)
        return effects

    def tick(self, now: float) -> Effects:
        """Void what outlived its lease, repeat what was not confirmed, forget who was silent for too long."""
        effects = Effects()
        if not self._started:
            self._start(now, effects)
        for queue in (self._leases, self._retries):
            while queue and queue[0][0] <= now:
                due, topic, first = queue.popleft()
                range_ = self.state.homes[topic].ranges.get(first)
                if range_ is not None and range_.due == due:
                    self._chase(topic, range_, now, effects)
        self._expire(now, effects)
        self._wish(effects)
        return effects

    def idle(self) -> Effects:
        """Nothing happened; the wish for a tick still stands."""
        effects = Effects()
        self._wish(effects)
        return effects

    def explain(self) -> list[str]:
        """What is unfinished here, and what each of it waits for."""
        lines = []
        for subscriber, joins in sorted(self.state.joins.items()):
            for topic, join in sorted(joins.items()):
                if join.start is None:
                    waits = ", ".join(sorted(join.unannounced)) or "its cut to return"
                    lines.append(f"{subscriber} joins {topic}: waits for {waits}")
        for topic, home in sorted(self.state.homes.items()):
            for range_ in home.ranges.values():
                owner = f" of {range_.publisher}" if range_.publisher else ""
                stage = "its stamp" if range_.entries is None else "its slots" if range_.publisher else "the broker"
                lines.append(f"{topic} {range_.first}..{range_.last}{owner}: waits for {stage}")
        return lines

    def _start(self, now: float, effects: Effects) -> None:
        self._started = True
        for topic, home in self.state.homes.items():
            for range_ in home.ranges.values():
                if range_.entries is not None:
                    self._finish(topic, home, range_, range_.entries, now, effects)
        for holder in self.state.couplings.holders.values():
            holder.heard_at = now
        if self.options.mode == "log":
            topics = frozenset(topic for topic, node in self.tree.homes.items() if node == self.node)
            effects.send.append((BROKER, Watch(topics)))

    def _wish(self, effects: Effects) -> None:
        wish = self._leases[0][0] if self._leases else None
        if self._retries and (wish is None or self._retries[0][0] < wish):
            wish = self._retries[0][0]
        if self.options.subscriber_lease_ms is not None and (wish is None or self._expiry_due < wish):
            wish = self._expiry_due
        effects.wake_at = wish

    def _is_home(self, topic: Topic) -> bool:
        return self.tree.knows(topic) and self.tree.home(topic) == self.node

    def _home(self, topic: Topic) -> Home:
        home = self.state.homes.get(topic)
        if home is None:
            home = self.state.homes[topic] = Home(top=self.node)
        return home

    def _route(self, to: Node, body: Finished | Tell | Announced | CutDone, now: float, effects: Effects) -> None:
        if to == self.node:
            self._routed[type(body)](body, now, effects)
        else:
            effects.send.append((self.tree.next_hop(self.node, to), Routed(to, body)))

    def _on_routed(self, source: Address, message: Routed, now: float, effects: Effects) -> None:
        self._route(message.to, message.body, now, effects)

    # ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_ticket(self, source: Address, ticket: Ticket, now: float, effects: Effects) -> None:
        home = self.state.homes.get(ticket.topic)
        if home is None:
            if not self._is_home(ticket.topic):
                self._refuse(source, ticket.request, ticket.topic, f"its home is not {self.node}", effects)
                return
            home = self._home(ticket.topic)
        desk = home.desks.get(source)
        if desk is None:
            desk = home.desks[source] = Desk()
        if self._is_repeat(desk, ticket):
            range_ = home.ranges.get(desk.first)
            if ticket.request == desk.request and range_ is not None and range_.entries is not None:
                effects.send.append((source, self._granted(ticket.topic, range_, range_.entries)))
            return
        if not 1 <= ticket.count <= self.options.ticket_count_max:
            limit = f"count {ticket.count} is not between 1 and {self.options.ticket_count_max}"
            self._refuse(source, ticket.request, ticket.topic, limit, effects)
            return
        open_tickets = self.state.open_tickets.get(source, 0)
        if open_tickets >= self.options.open_tickets_max:
            self._refuse(source, ticket.request, ticket.topic, f"{open_tickets} tickets are unsettled", effects)
            return
        self.state.open_tickets[source] = open_tickets + 1
        first = home.issued + 1
        desk.request, desk.first = ticket.request, first
        self._issue(ticket.topic, home, Range(first, home.issued + ticket.count, source, ticket.request), now, effects)

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
            message = Pass(
                topic,
                range_.first,
                range_.last,
                self._top(topic, group | home.uncouple | home.once),
                {},
                frozenset(home.couple),
                frozenset(home.uncouple),
                frozenset(home.once),
            )
            home.top = self._top(topic, group)
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

    def _top(self, topic: Topic, others: set[Topic]) -> Node:
        return self.tree.highest({self.tree.meet(topic, other) for other in others}, self.node)

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

    def _meeting_here(self, topic: Topic, others: frozenset[Topic]) -> list[Topic]:
        return [other for other in others if self.tree.meet(topic, other) == self.node]

    def _next_stop(self, message: Pass) -> Node:
        """Through every node on the way, also those where nothing is collected: nobody may overtake."""
        assert self._parent is not None, "the root is the top of everything that reaches it"
        return self._parent

    def _on_finished(self, message: Finished, now: float, effects: Effects) -> None:
        home = self._home(message.topic)
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

    def _refuse(self, target: Address, request: int, topic: Topic, reason: str, effects: Effects) -> None:
        effects.send.append((target, Refused(request, topic, reason)))

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _chase(self, topic: Topic, range_: Range, now: float, effects: Effects) -> None:
        """A finished range is not settled: hand its stamp to the broker (again), or void its open slots."""
        assert range_.entries is not None, "only finished ranges are chased"
        if not range_.publisher:
            stamped = Stamped(topic, range_.first, range_.last, range_.entries, self.state.epoch)
            effects.send.append((BROKER, stamped))
        else:
            for number in sorted(self._open_slots(range_)):
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
        home = self._home(message.topic)
        range_ = self._range_of(home, message.number)
        if range_ is None or range_.entries is None:
            return
        if message.event_id is None:
            home.voids[message.number] = self._void_entries(range_, message.number)
            if len(home.voids) > VOIDS_REMEMBERED:
                del home.voids[min(home.voids)]
        open_slots = self._open_slots(range_)
        open_slots.discard(message.number)
        if not open_slots:
            self._settle(home, range_)

    def _on_settled(self, source: Address, message: Settled, now: float, effects: Effects) -> None:
        home = self.state.homes.get(message.topic)
        range_ = home.ranges.get(message.first) if home is not None else None
        if home is not None and range_ is not None and range_.publisher == source:
            self._settle(home, range_)

    def _settle(self, home: Home, range_: Range) -> None:
        del home.ranges[range_.first]
        left = self.state.open_tickets.get(range_.publisher, 0) - 1
        if left > 0:
            self.state.open_tickets[range_.publisher] = left
        else:
            self.state.open_tickets.pop(range_.publisher, None)

    def _on_kept(self, source: Address, message: Kept, now: float, effects: Effects) -> None:
        home = self._home(message.topic)
        if (range_ := home.ranges.get(message.first)) is not None and not range_.publisher:
            del home.ranges[message.first]

    def _on_trimmed(self, source: Address, message: Trimmed, now: float, effects: Effects) -> None:
        home = self._home(message.topic)
        home.kept_from = max(home.kept_from, message.first)

    def _range_of(self, home: Home, number: Number) -> Range | None:
        return next((each for each in home.ranges.values() if each.first <= number <= each.last), None)

    def _on_inquire(self, source: Address, message: Inquire, now: float, effects: Effects) -> None:
        home = self.state.homes.get(message.topic)
        entries: Entries = {}
        if home is None or message.number > home.issued:
            state = "unissued"
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

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_subscribe(self, source: Address, message: Subscribe, now: float, effects: Effects) -> None:
        topic = message.topic
        problem = self._problem_with(message)
        if problem is not None:
            self._refuse(source, message.version, topic, problem, effects)
            return
        if message.version < self._couplings.version(source):
            return
        known = self.state.joins.get(source, {}).get(topic)
        if known is not None and known.version == message.version:
            if known.start is not None:
                self._answer_join(source, topic, known, effects)
            return
        self._apply(source, message.version, message.topics, now)
        join = Join(message.version, message.topics, message.left - message.topics, set())
        join.unannounced = set((message.topics | join.left) - {topic})
        self.state.joins.setdefault(source, {})[topic] = join
        self._await_announcements(JoinId(source, message.version, topic), join, now, effects)

    def _problem_with(self, message: Subscribe) -> str | None:
        if not self._is_home(message.topic):
            return f"its home is not {self.node}"
        if message.topic not in message.topics:
            return "topics must include the topic that is added"
        unknown = sorted(topic for topic in message.topics | message.left if not self.tree.knows(topic))
        return f"no node is home to {', '.join(unknown)}" if unknown else None

    def _await_announcements(self, join_id: JoinId, join: Join, now: float, effects: Effects) -> None:
        """Phase one: have the other topics announced where they meet this one. The cut waits for all of them."""
        by_node: dict[Node, set[Topic]] = {}
        for other in join.unannounced:
            by_node.setdefault(self.tree.home(other), set()).add(other)
        if not by_node:
            self._cut(join_id, join, now, effects)
        for node, about in sorted(by_node.items()):
            self._route(node, Tell(join_id, join.topics, frozenset(about)), now, effects)

    def _on_tell(self, message: Tell, now: float, effects: Effects) -> None:
        join = message.join
        self._apply(join.subscriber, join.version, message.topics, now)
        for topic in sorted(message.about):
            to = self.tree.meet(join.topic, topic)
            issued = self._home(topic).issued
            self._on_announce(self.node, Announce(topic, issued, to, join), now, effects)

    def _on_announce(self, source: Address, message: Announce, now: float, effects: Effects) -> None:
        self._passages.raise_to(message.topic, message.number)
        if message.to == self.node:
            home = self.tree.home(message.join.topic)
            self._route(home, Announced(message.join, message.topic), now, effects)
        else:
            assert self._parent is not None, "a meeting point is above the home"
            effects.send.append((self._parent, message))

    def _on_announced(self, message: Announced, now: float, effects: Effects) -> None:
        join = self._join(message.join)
        if join is None or message.topic not in join.unannounced:
            return
        join.unannounced.discard(message.topic)
        if not join.unannounced:
            self._cut(message.join, join, now, effects)

    def _cut(self, join_id: JoinId, join: Join, now: float, effects: Effects) -> None:
        """Phase two: fix where the topic starts for this subscriber, and collect its floor on the way up."""
        topic = join_id.topic
        home = self._home(topic)
        home.once |= self._left_topics(join)
        members = join.topics - {topic}
        message = Cut(join_id, home.issued, self._top(topic, set(members)), {}, members)
        self._on_cut(self.node, message, now, effects)

    def _left_topics(self, join: Join) -> frozenset[Topic]:
        """The subscriber has seen events of topics it left: the next event of the new topic comes after them."""
        return join.left

    def _on_cut(self, source: Address, message: Cut, now: float, effects: Effects) -> None:
        topic = message.join.topic
        self._passages.raise_to(topic, message.start)
        floor = {**message.floor, **self._floor(topic, message.members)}
        if message.to == self.node:
            self._route(self.tree.home(topic), CutDone(message.join, message.start, floor), now, effects)
        else:
            assert self._parent is not None, "a meeting point is above the home"
            onwards = Cut(message.join, message.start, message.to, floor, message.members)
            effects.send.append((self._parent, onwards))

    def _floor(self, topic: Topic, members: frozenset[Topic]) -> Entries:
        """The base of all later differences: what passed here before the cut comes before the first new event."""
        here = sorted(self._meeting_here(topic, members))
        return {other: passed for other in here if (passed := self._passages.passed(other))}

    def _on_cut_done(self, message: CutDone, now: float, effects: Effects) -> None:
        join = self._join(message.join)
        if join is not None:
            join.start, join.floor = message.start, message.floor
            self._answer_join(message.join.subscriber, message.join.topic, join, effects)

    def _answer_join(self, subscriber: Address, topic: Topic, join: Join, effects: Effects) -> None:
        assert join.start is not None, "only a complete join is answered"
        answer = Joined(join.version, topic, join.start, join.floor, self.state.epoch)
        effects.send.append((subscriber, answer))

    def _join(self, join_id: JoinId) -> Join | None:
        join = self.state.joins.get(join_id.subscriber, {}).get(join_id.topic)
        return join if join is not None and join.version == join_id.version else None

    def _on_update(self, source: Address, message: Update, now: float, effects: Effects) -> None:
        self._apply(source, message.version, message.topics, now)
        effects.send.append((source, Updated(message.version, self.node, self.state.epoch)))

    def _apply(self, subscriber: Address, version: int, topics: frozenset[Topic], now: float) -> None:
        if version > self._couplings.version(subscriber):
            self.state.joins.pop(subscriber, None)
        for shift in self._couplings.apply(subscriber, version, topics, now):
            self._shift(shift)

    def _shift(self, shift: Shift) -> None:
        """A pair became coupled or stopped being so: the topic's next event tells the nodes above."""
        home = self._home(shift.topic)
        if shift.coupled:
            if shift.other in home.uncouple:
                home.uncouple.discard(shift.other)
            else:
                home.couple.add(shift.other)
        elif shift.other in home.couple:
            home.couple.discard(shift.other)
            home.once.add(shift.other)
        else:
            home.uncouple.add(shift.other)

    # ── subscribers that disappear ────────────────────────────────────────────────────────────────────────────────

    def _on_refresh(self, source: Address, message: Refresh, now: float, effects: Effects) -> None:
        holder = self.state.couplings.holders.get(source)
        if holder is not None:
            holder.heard_at = now
            joins = self.state.joins.get(source)
            if joins is not None and message.version >= holder.version:
                del self.state.joins[source]
        effects.send.append((source, Refreshed(self._couplings.version(source), self.node, message.at)))

    def _expire(self, now: float, effects: Effects) -> None:
        lease = self.options.subscriber_lease_ms
        if lease is None or now < self._expiry_due:
            return
        self._expiry_due = now + lease
        silent = [name for name, holder in self.state.couplings.holders.items() if holder.heard_at + 2 * lease <= now]
        for subscriber in sorted(silent):
            forgotten = self.step(self.node, Forget(subscriber), now)
            effects.persist.extend(forgotten.persist)

    def _on_forget(self, source: Address, message: Forget, now: float, effects: Effects) -> None:
        if source != self.node:
            return
        self.state.joins.pop(message.subscriber, None)
        for shift in self._couplings.forget(message.subscriber):
            self._shift(shift)
