"""From rows to evidence: which deliveries may be used to judge the order, and why the others may not.

Nothing here trusts the system that wrote the log. Left out of the order, with what follows from it:

- rows tagged `out_of_order`: the system said so itself (paper 000 §4); they are counted;
- repeated notifications: the first one gives the event its place, the repeat is a `duplicate`;
- ids that stand for two events: the log cannot say which is which, so no order can be called valid.

Rows of one subscriber at the same position have no order among themselves, so no order can be called valid. But each of
them is before all rows at higher positions and after all rows at lower ones, and that may prove a violation.

A hole in a subscriber's positions leaves nothing out, but rows are missing, so no order can be called valid either.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

from seriatim.audit.report import Findings
from seriatim.model import Delivery, Publication

ORDER = ("fifo", "per-topic")  # a doubt about these is a doubt about every guarantee of order


class Evidence:
    """The deliveries of a history, by subscriber (in order of name) and position.

    `rows` has all of them; `sequences` only those that may be used to judge the order, each event once. `places`: of
    the subscribers that have several of these at one position, the position of each event. `tied`: of subscribers, the
    positions that more than one event claims, whether or not these may be used.
    """

    def __init__(self, deliveries: Iterable[Delivery], publications: Iterable[Publication], findings: Findings) -> None:
        self._findings = findings
        self.repeats: list[tuple[Delivery, Delivery]] = []
        self.reused: dict[str, tuple[Delivery | Publication, Delivery | Publication]] = {}
        self.incomplete: set[str] = set()  # subscribers some of whose rows are missing
        self.out_of_order = 0
        self.rows: dict[str, list[Delivery]] = {}
        self.published: dict[str, Publication] = {}

        self._take_publications(publications)
        unsorted: dict[str, list[Delivery]] = {}
        for row in deliveries:
            unsorted.setdefault(row.subscriber, []).append(row)
        self.tied = {name: self._arrange(name, unsorted[name]) for name in sorted(unsorted)}
        self._find_two_topics()
        if self.reused:
            example = min(self.reused)
            findings.doubt(f"the id {example} stands for two events: their order is not known", *ORDER)
        self.places: dict[str, dict[str, int]] = {}
        self.sequences: dict[str, list[Delivery]] = {name: self._usable(rows) for name, rows in self.rows.items()}

    @classmethod
    def of_part(cls, deliveries: Iterable[Delivery], publications: Iterable[Publication]) -> "Evidence":
        """A part of a log: all rows of some events, none of them reused. The rest being absent is no doubt."""
        evidence = cls((), (), Findings(1))
        evidence.published = {row.event_id: row for row in sorted(publications, key=attrgetter("event_id"))}
        rows: dict[str, list[Delivery]] = {}
        for row in deliveries:
            rows.setdefault(row.subscriber, []).append(row)
        for name in sorted(rows):
            evidence.rows[name] = sorted(rows[name], key=delivery_key)
            evidence.sequences[name] = evidence._usable(evidence.rows[name])
        return evidence

    def steps(self, subscriber: str) -> Iterator[list[Delivery]]:
        """The rows of a sequence, those at one position together."""
        rows = self.sequences[subscriber]
        if subscriber not in self.places:
            return ([row] for row in rows)
        return (list(together) for _, together in groupby(rows, key=attrgetter("position")))

    def row(self, subscriber: str, event_id: str) -> Delivery:
        """The row that gives this event its place at this subscriber."""
        return next(row for row in self.sequences[subscriber] if row.event_id == event_id)

    def _take_publications(self, publications: Iterable[Publication]) -> None:
        """Keep publications by id, independently of the order of the rows. Of several with one id the smallest is
        kept."""
        others: dict[str, list[Publication]] = {}
        for publication in sorted(publications, key=attrgetter("event_id")):
            first = self.published.setdefault(publication.event_id, publication)
            if first != publication:
                others.setdefault(publication.event_id, [first]).append(publication)
        for event_id, rows in others.items():
            first, *rest = sorted(rows, key=_publication_key)
            self.published[event_id] = first
            self.reused[event_id] = (first, next(row for row in rest if row != first))

    def _arrange(self, subscriber: str, rows: list[Delivery]) -> set[int]:
        """Sort the rows of one subscriber; the positions that more than one event claims."""
        self.rows[subscriber] = rows
        for index, row in enumerate(rows):
            if row.position != index:
                break
        else:
            return set()
        rows.sort(key=delivery_key)
        tied = set()
        expected = 0
        for i, row in enumerate(rows):
            if i and rows[i - 1].position == row.position:
                if rows[i - 1].event_id != row.event_id:
                    tied.add(row.position)
                continue
            if row.position != expected and subscriber not in self.incomplete:
                self.incomplete.add(subscriber)
                self._findings.doubt(f"{subscriber}: no row for position {expected}, so rows are missing", *ORDER)
            expected = row.position + 1
        if tied:
            self._findings.doubt(f"{subscriber}: different events at position {min(tied)}, order not known", *ORDER)
        return tied

    def _find_two_topics(self) -> None:
        """An id is never used again: one that appears on two topics stands for two events."""
        known: dict[str, Delivery | Publication] = dict(self.published)
        for rows in self.rows.values():
            for row in rows:
                first = known.setdefault(row.event_id, row)
                if first.topic != row.topic:
                    self.reused.setdefault(row.event_id, (first, row))

    def _usable(self, rows: list[Delivery]) -> list[Delivery]:
        """The rows that may be used to judge the order."""
        usable = []
        first: dict[str, Delivery] = {}
        placed = set()
        for row in rows:
            event_id = row.event_id
            if event_id not in first:
                first[event_id] = row
            else:
                earlier = first[event_id]
                if earlier.position != row.position:
                    self.repeats.append((earlier, row))
                else:
                    reason = f"{row.subscriber}: {event_id} twice at position {row.position}, logged or notified twice"
                    self._findings.doubt(reason, "integrity")
            if row.out_of_order:
                self.out_of_order += 1
            elif event_id not in placed:
                placed.add(event_id)
                if event_id not in self.reused:
                    usable.append(row)
        if any(one.position == other.position for one, other in pairwise(usable)):
            self.places[usable[0].subscriber] = {row.event_id: row.position for row in usable}
        return usable


def delivery_key(row: Delivery) -> tuple[Any, ...]:
    """Position, then whatever tells two rows of one position apart, so that the order of the log's rows is nothing."""
    return (row.position, row.event_id, row.topic, *_known(row.number), row.index, row.out_of_order)


def _publication_key(row: Publication) -> tuple[Any, ...]:
    told = (row.published_at, row.sequence, row.seen, row.number)
    return (row.topic, row.publisher, *(_known(value) for value in told), row.index)


def _known(value: float | None) -> tuple[bool, float]:
    """Sorts what is not known before everything that is."""
    return (False, 0) if value is None else (True, value)
