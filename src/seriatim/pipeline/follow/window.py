"""Judge deliveries as they come, with bounded memory: a window of rows, and the ids of events that have left it.

Every call of `Window.add` takes the rows of one batch and says what they break *together with* the rows of the window:
each violation is found by the batch that completes it, and only then. Pure: no Spark, no clock, no file; the same rows
in the same batches give the same findings, so a batch that is repeated after a crash repeats its answer.

It checks whether subscribers agree (`topic-inversion`, `inversion`, `cycle`), and finds `duplicate` and `reused-id`.

These parts are bounded, with these consequences:

- at most `rows_max` rows are kept (and those of the batch). The events that were first seen longest ago leave first,
  with all their rows. Two events are compared as long as both are in the window;
- of what left, at most `ids_max` ids are remembered (8 bytes each). A row of such an event is *late*: counted, not
  judged;
- ids beyond that are *forgotten*, and so is what happened to them.

Late, forgotten, tied and missing rows make the answer `unknown`, never `valid`.

**Speed.** Rows are arrays of codes, and the window keeps an order that fits everybody, as the auditor's merge gives it.
New rows usually come after it, so only events from the first one that new rows are about are merged again.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from seriatim.audit import Anomaly, audit, order_violations
from seriatim.audit.knots import find_inversions, find_knots, merge, restrict, shortest_cycle
from seriatim.model import Delivery, History, InputError
from seriatim.pipeline.follow.rows import SCHEMA, Rows, hashed, with_state

Array: TypeAlias = npt.NDArray[Any]
Knot: TypeAlias = Mapping[int, list[int]]  # codes of subscribers → codes of events

TRIES = 1_000  # events looked at to show a pair of a knot that was broken before


class WindowOptions(Struct, frozen=True, kw_only=True):
    """The bounds on the memory of a streaming audit."""

    rows_max: int = 1_000_000
    ids_max: int = 10_000_000
    knot_rows_max: int = 100_000  # rows of one disagreement that are looked at; the others are counted as not judged

    def __post_init__(self) -> None:
        for name in ("rows_max", "ids_max", "knot_rows_max"):
            if getattr(self, name) < 1:
                raise InputError(name, f"{getattr(self, name)} is too small", "give at least 1")


class Totals(Struct):
    """What was seen since the beginning, in rows; `events`, `shared`, `forgotten` are events that left the window."""

    deliveries: int = 0
    events: int = 0
    shared: int = 0  # notified to two or more
    out_of_order: int = 0
    late: int = 0
    tied: int = 0
    reused: int = 0
    forgotten: int = 0
    unjudged: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # anomalies by name


class Seen(Struct):
    """The state of one subscriber: how many positions came, the last of them, and the last that left the window."""

    positions: int = 0
    last: int = -1
    left: int = -1


class Finding(Struct, frozen=True):
    """A violation that the last batch completed. `count`: how many of its kind this one stands for."""

    anomaly: Anomaly
    count: int


class Judged(Struct, frozen=True):
    """The result of one batch."""

    findings: list[Finding]
    kept: pa.Table  # its rows that entered the window
    left: Array  # hashes of the events that left the window
    rows: int
    late: int
    window_rows: int


class Window:
    """The rows that later ones are compared with."""

    def __init__(self, options: WindowOptions | None = None) -> None:
        self.options = options or WindowOptions()
        self.totals = Totals()
        self.subscribers: dict[str, Seen] = {}
        self._table = SCHEMA.empty_table()
        self._ids: dict[int, Array] = {}  # of what left, by batch

    @classmethod
    def restored(
        cls,
        options: WindowOptions,
        totals: Totals,
        subscribers: dict[str, Seen],
        rows: pa.Table | None,
        left: Mapping[int, Array],
        ids_from: int = 0,
    ) -> "Window":
        """Rebuild the window as it was after the last saved batch. `rows` may have events that have left the window."""
        window = cls(options)
        window.totals, window.subscribers, window._ids = totals, subscribers, dict(left)
        if rows is not None:
            table = with_state(rows)
            is_gone = np.isin(hashed(table["event_id"]), window._remembered())
            view = Rows(table.filter(pa.array(~is_gone)), -1)
            window._merge(view)
            window._table = view.table
        window._ids = {batch: ids for batch, ids in left.items() if batch >= ids_from}
        return window

    @property
    def ids(self) -> int:
        """How many ids are remembered."""
        return sum(map(len, self._ids.values()))

    def ids_from(self, upcoming: int) -> int:
        """The first batch whose ids are remembered."""
        return min(self._ids, default=upcoming)

    def rows_from(self, upcoming: int) -> int:
        """The first batch of which rows are in the window."""
        return min(pc.min(self._table["batch"]).as_py() if len(self._table) else upcoming, upcoming)

    def add(self, rows: pa.Table, batch: int) -> Judged:
        """Judge the rows of the next batch."""
        new = with_state(rows, batch)
        is_late = self._is_late(new)
        view = Rows(pa.concat_tables([self._table, new.filter(pa.array(~is_late))]), batch)
        totals = self.totals
        totals.deliveries += len(new)
        totals.late += int(is_late.sum())
        findings = [*self._repeats(view), *self._reused(view)]
        view = view.without(view.is_repeat)
        totals.tied += int((view.is_tied & view.is_new).sum())
        totals.out_of_order += int((view.is_tagged & view.is_new).sum())
        findings += [finding for knot in self._merge(view) for finding in self._judge(knot, view)]
        for finding in findings:
            name = finding.anomaly.name
            totals.counts[name] = totals.counts.get(name, 0) + finding.count
        kept = view.table.filter(pa.array(view.is_new)).drop_columns(["rank"])
        left = self._evict(view, batch)
        return Judged(findings, kept, left, len(new), int(is_late.sum()), len(self._table))

    def missing(self) -> dict[str, int]:
        """Subscribers with positions that never came, and how many."""
        holes = {name: seen.last + 1 - seen.positions for name, seen in self.subscribers.items()}
        return {name: count for name, count in sorted(holes.items()) if count > 0}

    def notified(self) -> tuple[int, int]:
        """How many events there were, and how many of them were notified to two or more."""
        per_event = self._table.group_by("event_id").aggregate([("subscriber", "count_distinct")])
        shared = pc.sum(pc.greater(per_event["subscriber_count_distinct"], 1)).as_py() or 0
        return self.totals.events + len(per_event), self.totals.shared + shared

    # ── what is wrong with single rows ────────────────────────────────────────────────────────────────────────────

    def _is_late(self, new: pa.Table) -> Array:
        """Rows of events that have left, or at places that have; and count the positions of all."""
        names = new["subscriber"].combine_chunks().dictionary_encode()
        codes, positions = names.indices.to_numpy(), new["position"].to_numpy()
        seen = [self.subscribers.setdefault(name, Seen()) for name in names.dictionary.to_pylist()]
        left = np.array([each.left for each in seen], dtype=np.int64)
        is_late: Array = np.isin(hashed(new["event_id"]), self._remembered()) | (positions <= left[codes])
        order = np.lexsort((positions, codes))
        codes, positions = codes[order], positions[order]
        is_other = np.append(True, (codes[1:] != codes[:-1]) | (positions[1:] != positions[:-1]))[: len(codes)]
        is_last = np.append(codes[1:] != codes[:-1], True)[: len(codes)]
        counts = np.bincount(codes[is_other], minlength=len(seen))
        for code, last in zip(codes[is_last].tolist(), positions[is_last].tolist(), strict=True):
            seen[code].positions += int(counts[code])
            seen[code].last = max(seen[code].last, last)
        return is_late

    def _repeats(self, view: Rows) -> Iterator[Finding]:
        for row in np.flatnonzero(view.is_repeat & view.is_new).tolist():
            pair = [view.delivery(view.first_of(row)), view.delivery(row)]
            found = [anomaly for anomaly in audit(History(pair)).anomalies if anomaly.name == "duplicate"]
            self.totals.tied += not found  # at the same position: logged twice, or notified twice
            yield from (Finding(anomaly, 1) for anomaly in found)

    def _reused(self, view: Rows) -> Iterator[Finding]:
        """An id on two topics stands for two events."""
        for event in np.unique(view.events[view.is_reused]):
            rows = np.flatnonzero(view.events == event)
            is_new, topics = view.is_new[rows], view.topics[rows]
            self.totals.reused += int(is_new.sum())
            if is_new.any() and len(set(topics[~is_new])) < 2:
                pair = [view.delivery(row) for row in (rows[0], rows[np.argmax(topics != topics[0])])]
                found = [anomaly for anomaly in audit(History(pair)).anomalies if anomaly.name == "reused-id"]
                yield from (Finding(anomaly, 1) for anomaly in found)

    # ── whether subscribers agree ─────────────────────────────────────────────────────────────────────────────────

    def _merge(self, view: Rows) -> list[Knot]:
        """Bring the certificate up to date; the knots that do not fit into it."""
        rank = view.rank_of_events()
        first = view.first_to_merge(rank)
        sequences = view.sequences((rank < 0) | (rank >= first))
        order = merge(sequences.values())
        rank[rank >= first] = -1
        start = int(rank.max(initial=-1)) + 1
        rank[order] = start + np.arange(len(order))
        left = {event for sequence in sequences.values() for event in sequence}.difference(order)
        knots: list[Knot] = []
        if left:
            # Everybody passes what was merged, then the core, then what merges from the other end.
            tangle = restrict(sequences, left)
            behind = merge([sequence[::-1] for sequence in tangle.values()])
            core = left.difference(behind)
            knots = find_knots(restrict(tangle, core))
            rank[list(core)] = start + len(order)
            rank[behind[::-1]] = start + len(order) + 1 + np.arange(len(behind))
        view.keep_rank(rank)
        return knots

    def _judge(self, knot: Knot, view: Rows) -> Iterator[Finding]:
        before = view.old_part(knot)
        if before == knot:
            return  # was judged when its last row came
        rows = sum(map(len, knot.values()))
        if rows > self.options.knot_rows_max:
            self.totals.unjudged += rows - self.options.knot_rows_max
            knot = _shortened(knot, self.options.knot_rows_max)
            before = view.old_part(knot)
        topics = {event: int(view.topic_of[event]) for sequence in knot.values() for event in sequence}
        found, known = find_inversions(knot, topics), find_inversions(before, topics)
        for pair, count, is_first in (
            (found.same_topic_pair, found.same_topic - known.same_topic, not known.same_topic),
            (found.across_topics_pair, found.across_topics - known.across_topics, not known.across_topics),
        ):
            if pair is not None and count > 0:
                is_same_topic = topics[pair[0]] == topics[pair[1]]
                shown = pair if is_first else _new_pair(knot, before, topics, is_same_topic) or pair
                yield from _shown(view.deliveries(_witness(shown, knot)), count)
        if not found.same_topic and not found.across_topics and _has_cycle(knot) and not _has_cycle(before):
            cycle = shortest_cycle(knot)
            later = [event for event, _ in cycle[1:] + cycle[:1]]
            steps = [(name, each) for (event, name), after in zip(cycle, later, strict=True) for each in (event, after)]
            yield from _shown(view.deliveries(steps), 1)

    # ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────

    def _evict(self, view: Rows, batch: int) -> Array:
        """Let the events go that were first seen longest ago, until the rows fit; their hashes."""
        gone = view.oldest_events(len(view.events) - self.options.rows_max)
        is_gone = gone[view.events]
        self._table = view.table.filter(pa.array(~is_gone))
        if not is_gone.any():
            return np.empty(0, dtype=np.uint64)
        self.totals.events += int(gone.sum())
        self.totals.shared += int((view.holders()[gone] > 1).sum())
        for name, last in view.last_positions(is_gone).items():
            seen = self.subscribers[name]
            seen.left = max(seen.left, last)
        left: Array = np.sort(view.hashes[gone])
        self._ids[batch] = left[: self.options.ids_max]
        self.totals.forgotten += len(left) - len(self._ids[batch])
        while self.ids > self.options.ids_max:
            self.totals.forgotten += len(self._ids.pop(min(self._ids)))
        return left

    def _remembered(self) -> Array:
        return np.concatenate(list(self._ids.values())) if self._ids else np.empty(0, dtype=np.uint64)


def _shown(rows: list[Delivery], count: int) -> Iterator[Finding]:
    """The auditor's own name and sentence for what these few rows prove."""
    for anomaly in order_violations(rows, 1)[:1]:
        yield Finding(anomaly, count)


def _has_cycle(sequences: Knot) -> bool:
    return len(merge(sequences.values())) < len(set().union(*sequences.values()))


def _witness(pair: tuple[int, int], knot: Knot) -> list[tuple[int, int]]:
    """Two subscribers that saw these two events in different orders, each with both."""
    a, b = pair
    seen = {name: sequence for name, sequence in knot.items() if a in sequence and b in sequence}
    one = next(iter(seen))
    is_before = seen[one].index(a) < seen[one].index(b)
    other = next(name for name, events in seen.items() if (events.index(a) < events.index(b)) != is_before)
    return [(name, event) for name in (one, other) for event in (a, b)]


def _new_pair(knot: Knot, before: Knot, topics: dict[int, int], is_same_topic: bool) -> tuple[int, int] | None:
    """A pair that is inverted now and was not before; looks at some of the events that new rows are about."""
    changed = [event for name, events in knot.items() for event in set(events).difference(before.get(name, ()))]
    for event in sorted(dict.fromkeys(changed[:TRIES])):
        for other in sorted(_inverted_with(event, knot) - _inverted_with(event, before)):
            if (topics[event] == topics[other]) == is_same_topic:
                return event, other
    return None


def _inverted_with(event: int, sequences: Knot) -> set[int]:
    before: set[int] = set()
    after: set[int] = set()
    for sequence in sequences.values():
        if event in sequence:
            place = sequence.index(event)
            before.update(sequence[:place])
            after.update(sequence[place + 1 :])
    return before & after


def _shortened(knot: Knot, rows_max: int) -> Knot:
    """The newest part of a knot: as much of the ends of its sequences as there may be rows."""
    length = max(1, rows_max // len(knot))
    return {name: sequence[-length:] for name, sequence in list(knot.items())[:rows_max]}
