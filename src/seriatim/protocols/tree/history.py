"""A subscriber's past: read in the order of the order log, then left for live events at a place that fits.

A subscriber that begins with the past joins its topics as always, and opens none of them yet. Each join also says which
position of the order log covers its start. The subscriber reads the order log from where it wants to begin, fetches the
events of its topics, and notifies them in the order of the log. When it has read up to every one of these positions, it
opens each topic behind the last number it has read, and listens from there: stamps and floors as always.

It pulls: it asks for what follows in the order log when it has little left to fetch, and has a bounded window of
numbers fetched and not notified. So it needs the same memory however long the past is.

*Gaps.* Something that should be in the past may be gone: retention has removed events, or the order log does not have
them. What is missing before the first event of a topic stops nobody who asked for whatever is kept. Any other gap is
treated as a gap of live events: with `on_lost="wait"` the subscriber stops there and tells the application (`Answer`);
with `"skip"` it reports the gap in its place and goes on.

A durable subscriber persists the position with each event of the past, and the switch to live events. After a restart
it tells what comes behind the last of these positions. It reads the order log from there if it knows a number of every
topic; else from where it began, because events that it skipped count too, and nothing was persisted for them.
"""

from collections.abc import Mapping

from seriatim.model import BROKER, Gap, Notification, Number, Position, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Answer, Done, Joined
from seriatim.protocols.tree.receiving import Receiving
from seriatim.protocols.tree.state import Reading, Run
from seriatim.protocols.with_broker import (
    CaughtUp,
    Delivered,
    Fetch,
    Listen,
    OrderRead,
    ReadOrder,
    Start,
    Trimmed,
    Voids,
)

RUNS_AHEAD = 1_000  # the order log is read on when fewer runs are left to fetch
NOT_KEPT = "the broker no longer keeps it"
NOT_IN_ORDER_LOG = "the order log does not have it"
MAYBE_NOT_IN_ORDER_LOG = "the order log does not have it, nor where it stood: it may be from before the start"
LOST_IN_PAST = (NOT_KEPT, NOT_IN_ORDER_LOG, MAYBE_NOT_IN_ORDER_LOG)  # the reasons of gaps of the past


class History(Receiving):
    """The part of a subscriber that reads the past."""

    def past(self) -> tuple[Position, Position] | None:
        """Up to which position the past was told, and where it ends as far as that is known. None: it is over."""
        reading = self.state.reading
        return None if reading is None else (reading.told, max(reading.end, reading.read))

    def explain_past(self) -> list[str]:
        """What reading the past waits for."""
        reading = self.state.reading
        if reading is None:
            return []
        if reading.stopped is not None:
            gap = reading.stopped
            lost = f"{gap.topic} {gap.first}" + (f" to {gap.last}" if gap.last > gap.first else "")
            at = f"reads history: position {reading.told} of {max(reading.end, reading.read)}"
            return [f"{at}, and stops at a gap: {lost} will not come ({gap.reason})"]
        if not reading.is_begun:
            waits = "its topics to be joined"
        elif reading.runs:
            run = reading.runs[0]
            waits = f"{run.topic} {run.first} from the broker"
        else:
            waits = f"the order log to go on behind {reading.read}: the root writes it, or nobody does if it is away"
        return [f"reads history: position {reading.told} of {max(reading.end, reading.read)}, waits for {waits}"]

    def _forget_past(self, topics: frozenset[Topic]) -> None:
        """These topics are left: their events are not told any more."""
        reading = self.state.reading
        if reading is None:
            return
        if not self.state.holdings.keys() - topics:
            self.state.reading = None
            return
        fetched = [run for run in reading.runs[: reading.fetched] if run.topic not in topics]
        later = [run for run in reading.runs[reading.fetched :] if run.topic not in topics]
        reading.runs, reading.fetched = fetched + later, len(fetched)
        reading.size = sum(_length(run) for run in fetched)
        for topic in topics:
            tables = (
                reading.wanted,
                reading.read_to,
                reading.first_told,
                reading.fetched_to,
                reading.told_to,
                reading.arrived,
                reading.gone,
                reading.joined_at,
            )
            for table in tables:
                table.pop(topic, None)
        reading.begun -= topics
        if reading.stopped is not None and reading.stopped.topic in topics:
            reading.stopped = None

    def _join_in_past(self, reading: Reading, message: Joined) -> None:
        """A topic is joined, perhaps again because its node had forgotten us: it is not opened yet.

        A topic that is not named begins with what comes after its start. So does one that a durable subscriber added
        after it was live, if it resumes in the past because that was not acknowledged.
        """
        reading.end = max(reading.end, message.position)
        reading.joined_at[message.topic] = message.position
        if not reading.is_begun:  # what lies behind the start must be read, even if it begins later
            reading.told = reading.read = min(reading.read, message.position)
        numbers, first = reading.start.numbers, message.start + 1
        if numbers is not None:
            first = numbers.get(message.topic, first)
        elif not reading.is_begun:
            first = 1
        reading.wanted.setdefault(message.topic, first)

    def _resume_past(self, reading: Reading, record: Done) -> None:
        """The past was told up to here. A topic of which nothing was told may have had events that were skipped."""
        if record.topic in self.state.holdings and record.position >= reading.told:
            reading.told = record.position
            reading.read_to[record.topic] = record.number
            reading.begun.add(record.topic)
            if self.state.holdings.keys() <= reading.read_to.keys():
                reading.read = record.position

    def _rest_of_past(self, position: Position | None) -> Start | None:
        """Where somebody would begin who goes on from here, or from this lower position."""
        reading = self.state.reading
        if reading is None:
            return None
        after = reading.told if position is None else min(reading.told, position)
        numbers = dict(reading.wanted) if any(number > 1 for number in reading.wanted.values()) else None
        return Start(after, numbers, reading.start.is_place)

    def _compact_past(self, reading: Reading, done: Mapping[Topic, Number] | None, start: Start) -> list[Joined | Done]:
        """The records that follow the beginning of the past in a shortened journal."""
        version = self.state.version
        skipped = reading.read_to | {topic: first - 1 for topic, first in reading.first_told.items()}
        told = skipped | dict(reading.told_to if done is None else done)
        holdings = sorted(self.state.holdings.items())
        joins = [
            Joined(
                version, topic, each.start, each.floor, 0, each.acquaintance, reading.joined_at.get(topic, reading.end)
            )
            for topic, each in holdings
        ]
        return [*joins, *(Done(topic, told[topic], start.after) for topic, _ in holdings if told.get(topic))]

    # ── reading on ────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_on(self, now: float, effects: Effects) -> None:
        """Tell what is here, fetch what follows, read on in the order log; and go live at its end."""
        reading = self.state.reading
        if reading is None or not reading.is_begun:
            return
        if reading.is_anew_due and self.state.changing is None:
            reading.is_anew_due = False
            self._rejoin(frozenset(self.state.holdings), now, effects)
        self._tell(reading, effects)
        self._fetch(reading, effects)
        if reading.runs and reading.runs[0].is_gone:
            self._tell(reading, effects)
        if not self._is_covered(reading):
            if not reading.is_asked and len(reading.runs) - reading.fetched < RUNS_AHEAD:
                reading.is_asked = True
                effects.send.append((BROKER, ReadOrder(reading.read, reading.read)))
        elif not reading.runs and self.state.changing is None and not self._lapsed(now):
            if not self._tell_lost(reading, effects):
                return
            caught_up = self._caught_up(reading)
            effects.persist.extend([caught_up] if self.options.durable else [])
            effects.notify.append(caught_up)
            self._go_live(caught_up, effects)

    def _rejoin(self, topics: frozenset[Topic], now: float, effects: Effects) -> None:
        raise NotImplementedError  # subscribing.py

    def _is_covered(self, reading: Reading) -> bool:
        """Whether all that lies before the starts of the joins was read."""
        return reading.read >= max(reading.end, reading.told)

    def _on_order_read(self, message: OrderRead) -> None:
        reading = self.state.reading
        if reading is None or message.version != reading.read:
            return  # an answer to an older question
        reading.is_asked, reading.is_moving = False, True
        reading.is_trimmed |= message.after > reading.read
        # What is missing behind the joins may be of any topic. What comes live must not be from before it.
        joined = min(reading.joined_at.values(), default=reading.end)
        reading.is_anew_due |= message.after > max(reading.read, joined)
        position = message.after
        for each in message.ranges:
            holding = self.state.holdings.get(each.topic)
            if holding is not None:
                self._take_run(reading, Run(position + 1, each.topic, each.first, each.last))
            position += each.last - each.first + 1
        reading.read = position

    def _take_run(self, reading: Reading, run: Run) -> None:
        topic, known = run.topic, reading.read_to.get(run.topic)
        wanted, due = reading.wanted.get(topic, 1), run.first
        if known is not None and reading.is_trimmed:
            due = max(known + 1, wanted)
        elif known is None and (wanted > 1 or reading.start.after == 0 or reading.is_trimmed):
            due = wanted  # what lies before is gone, or is from before there was an order log
        if due < run.first:
            reading.runs.append(Run(run.position, topic, due, run.first - 1, is_gone=True))
        skipped = max(0, wanted - run.first, max(reading.start.after, reading.told) + 1 - run.position)
        if run.first + skipped <= run.last:
            reading.runs.append(Run(run.position + skipped, topic, run.first + skipped, run.last))
            reading.first_told.setdefault(topic, run.first + skipped)
        reading.read_to[topic] = max(known or 0, run.last)

    def _fetch(self, reading: Reading, effects: Effects) -> None:
        """Ask for the events of the next runs, as soon as half of the window is free."""
        window, runs = self.options.history_window, reading.runs
        if reading.fetched == len(runs) or reading.size > window // 2:
            return
        wanted: dict[Topic, tuple[Number, Number]] = {}
        while reading.fetched < len(runs) and reading.size < window:
            run = runs[reading.fetched]
            if not run.is_gone:
                room = window - reading.size
                if _length(run) > room:
                    rest = Run(run.position + room, run.topic, run.first + room, run.last)
                    runs.insert(reading.fetched + 1, rest)
                    run.last = rest.first - 1
                reading.size += _length(run)
                reading.fetched_to[run.topic] = run.last
                reading.told_to.setdefault(run.topic, run.first - 1)
                wanted[run.topic] = (wanted.get(run.topic, (run.first, 0))[0], run.last)
            reading.fetched += 1
        effects.send.extend((BROKER, Fetch(topic, first, last)) for topic, (first, last) in sorted(wanted.items()))

    def _on_fetched(self, reading: Reading, message: Delivered, effects: Effects) -> None:
        topic, number = message.topic, message.number
        if reading.told_to.get(topic, number) < number <= reading.fetched_to.get(topic, 0):
            reading.is_moving = True
            arrived = reading.arrived.setdefault(topic, {})
            if number in arrived:
                return
            if message.event is None or self._is_proven(message):
                arrived[number] = message if message.event is not None else None
            else:  # its home calls such a slot void, and has published the event under another number
                self._reject(message, "its stamp is not proven by a sequencer", effects)
                arrived[number] = None

    def _on_fetched_voids(self, reading: Reading, message: Voids) -> None:
        topic = message.topic
        first = max(message.first, reading.told_to.get(topic, message.last) + 1)
        arrived = reading.arrived.setdefault(topic, {})
        for number in range(first, min(message.last, reading.fetched_to.get(topic, 0)) + 1):
            arrived.setdefault(number, None)
            reading.is_moving = True

    def _on_trimmed_past(self, reading: Reading, message: Trimmed) -> None:
        reading.is_moving = True
        reading.gone[message.topic] = max(message.first, reading.gone.get(message.topic, 0))

    def _tell(self, reading: Reading, effects: Effects) -> None:
        """Notify what is next in the order log, as far as it is here."""
        runs, finished = reading.runs, 0
        while finished < reading.fetched:
            run = runs[finished]
            if run.is_gone:
                gap = Gap(run.topic, run.first, run.last, _why_lost(reading, run.first))
                if not self._tell_gap(reading, gap, run.position - 1, effects):
                    break
                reading.told = run.position - 1
            elif not self._tell_run(reading, run, effects):
                break
            finished += 1
        del runs[:finished]
        reading.fetched -= finished
        if not runs:
            reading.told = max(reading.told, reading.read)

    def _tell_run(self, reading: Reading, run: Run, effects: Effects) -> bool:
        """Whether all of it is told now."""
        topic = run.topic
        arrived, gone = reading.arrived.get(topic, {}), reading.gone.get(topic, 0)
        number, last, durable, notify = run.first, run.last, self.options.durable, effects.notify
        position = run.position
        while number <= last:
            if number in arrived:
                message = arrived.pop(number)
                reading.begun.add(topic)
                if message is not None and message.event is not None:
                    if durable:
                        effects.persist.append(Done(topic, number, position))
                    notify.append(
                        Notification(message.event, number, message.entries or {}, False, position, is_history=True)
                    )
                following = number + 1
            elif number < gone:
                following = number + 1
                while following < gone and following <= last and following not in arrived:
                    following += 1
                gap = Gap(topic, number, following - 1, NOT_KEPT)
                if not self._tell_gap(reading, gap, position + following - 1 - number, effects):
                    break
            else:
                break
            position += following - number
            number = following
        told = number - run.first
        if told:
            reading.size -= told
            reading.told_to[topic] = number - 1
            reading.told = position - 1
            run.first, run.position = number, position
        return number > last

    def _tell_gap(self, reading: Reading, gap: Gap, position: Position, effects: Effects) -> bool:
        """Report a gap in its place. False: the subscriber stops there, and the application must decide."""
        if self._stops_at(reading, gap):
            before, reading.stopped = reading.stopped, gap
            if before is None or (before.topic, before.first) != (gap.topic, gap.first):
                effects.notify.append(Answer(gap.topic, gap.first, "lost", {}))
            return False
        if self.options.durable:
            effects.persist.append(Done(gap.topic, gap.last, position))
        effects.notify.append(gap)
        return True

    def _stops_at(self, reading: Reading, gap: Gap) -> bool:
        """Whether what is missing there is lost for somebody who must not lose anything without a decision."""
        return self.options.on_lost == "wait" and (reading.start.is_place or gap.topic in reading.begun)

    def _ask_for_past(self, effects: Effects) -> None:
        """Ask again for what is missing, after nothing came for a while."""
        reading = self.state.reading
        if reading is None or not reading.is_begun or reading.stopped is not None:
            return
        if not reading.is_moving:
            if reading.is_asked:
                effects.send.append((BROKER, ReadOrder(reading.read, reading.read)))
            missing: dict[Topic, Number] = {}
            for run in reading.runs[: reading.fetched]:
                arrived = reading.arrived.get(run.topic, {})
                if run.topic not in missing and not run.is_gone:
                    absent = next((n for n in range(run.first, run.last + 1) if n not in arrived), None)
                    if absent is not None:
                        missing[run.topic] = absent
            fetches = [Fetch(topic, first, reading.fetched_to[topic]) for topic, first in sorted(missing.items())]
            effects.send.extend((BROKER, fetch) for fetch in fetches)
        reading.is_moving = False

    # ── going live ────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell_lost(self, reading: Reading, effects: Effects) -> bool:
        """The log has no later event of a topic whose last ones it should have: they are lost, and nobody said so yet.

        Of a whole log exactly the numbers up to each start were read. False: the subscriber stops at one of the gaps.
        """
        for topic, holding in sorted(self.state.holdings.items()):
            known, wanted = reading.read_to.get(topic), reading.wanted.get(topic, 1)
            if known is None and reading.start.after and not reading.is_trimmed:
                continue  # all of it lies before the beginning
            first = max(wanted, (known or 0) + 1)
            if first <= holding.start:
                gap = Gap(topic, first, holding.start, _why_lost(reading, first))
                if not self._tell_gap(reading, gap, reading.read, effects):
                    return False
                reading.read_to[topic] = holding.start
        return True

    def _caught_up(self, reading: Reading) -> CaughtUp:
        holdings = sorted(self.state.holdings.items())
        done = {topic: max(holding.start, reading.read_to.get(topic, 0)) for topic, holding in holdings}
        return CaughtUp(reading.read, done)

    def _go_live(self, caught_up: CaughtUp, effects: Effects) -> None:
        """Open every topic behind its last number in the past. Its floor is done, unless it starts just there."""
        self.state.reading = None
        for topic, holding in sorted(self.state.holdings.items()):
            done = caught_up.done[topic]
            if done > holding.start:
                holding.start, holding.floor = done, {}
            holding.stamped_to = holding.final_to = done
            self._done(self._queue.open(topic, done))
            self.state.unheard[topic] = self.state.version
            effects.send.append((BROKER, Listen(topic, done, self.state.version)))
        self._attend(self.state.holdings, effects)


def _why_lost(reading: Reading, first: Number) -> str:
    """Why numbers from `first` on are missing. If no earlier one was read, they may have stood before the start."""
    return MAYBE_NOT_IN_ORDER_LOG if reading.start.after and first == 1 else NOT_IN_ORDER_LOG


def _length(run: Run) -> int:
    return 0 if run.is_gone else run.last - run.first + 1
