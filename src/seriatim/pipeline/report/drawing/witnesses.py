"""A witness as a picture: one lane per subscriber or publisher, its events as dots in its own order, left to right.

A violation is always drawn in the same way: a heavy line that runs against the direction of reading (two lines that
cross, an arrow that turns back, a dot that is hollow because nothing is there). For every name in `audit.ANOMALIES`
there is a function that says which dots and lines prove it; `lanes.py` draws them.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from seriatim.audit import Anomaly, Row
from seriatim.model import Delivery, Publication, Subscription

EventRow: TypeAlias = Delivery | Publication
LinkKind: TypeAlias = Literal["same", "before", "wrong", "back"]


class Spot(Struct, frozen=True):
    """An event in a lane. `below` says what it is about: a position, a number, what was done with it."""

    lane: int
    column: float
    event_id: str
    below: str
    is_hollow: bool = False
    is_wrong: bool = False
    hint: str = ""


class Link(Struct, frozen=True):
    """A line between two spots, by their places in the list."""

    start: int
    end: int
    kind: LinkKind
    text: str = ""


class Span(Struct, frozen=True):
    """A stretch of a lane: the subscriber held the topic."""

    lane: int
    start: float
    end: float
    text: str


class Picture(Struct, kw_only=True):
    """The input of `lanes.py`; lanes get their place when they are first mentioned."""

    title: str
    sentence: str
    lanes: list[str] = field(default_factory=list)
    spots: list[Spot] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def lane(self, name: str) -> int:
        if name not in self.lanes:
            self.lanes.append(name)
        return self.lanes.index(name)

    def put(self, row: EventRow, column: float, *, is_wrong: bool = False, below: str = "") -> int:
        """A row as a spot; which one it is."""
        lane = self.lane(row.publisher if isinstance(row, Publication) else row.subscriber)
        self.spots.append(Spot(lane, column, row.event_id, below or place_of(row), is_wrong=is_wrong, hint=told(row)))
        return len(self.spots) - 1

    def put_nothing(self, lane: str, column: float, event_id: str, below: str) -> int:
        """Where something should be and is not."""
        self.spots.append(Spot(self.lane(lane), column, event_id, below, is_hollow=True, is_wrong=True, hint=below))
        return len(self.spots) - 1

    def link(self, start: int, end: int, kind: LinkKind, text: str = "") -> None:
        self.links.append(Link(start, end, kind, text))


def place_of(row: EventRow) -> str:
    """Where in its lane an event is, in words as short as can be."""
    if isinstance(row, Publication):
        return "published" if row.sequence is None else f"published #{row.sequence:,}"
    return f"position {row.position:,}"


def told(row: EventRow) -> str:
    """A row in words, shown when one points at its dot."""
    number = "" if row.number is None else f", number {row.number:,}"
    if isinstance(row, Publication):
        return f"{row.publisher} published {row.event_id} on topic {row.topic}{number}"
    return f"{row.subscriber} was notified of {row.event_id} on topic {row.topic} at position {row.position:,}{number}"


def picture_of(anomaly: Anomaly) -> Picture | None:
    """The picture of a witness; None if its rows are not those that an anomaly of its name has."""
    picture = Picture(title=anomaly.name, sentence=anomaly.sentence)
    draw = DRAWN_BY.get(anomaly.name)
    return picture if draw is not None and draw(picture, anomaly.witness) else None


def _events(rows: Sequence[Row]) -> list[EventRow]:
    """The rows, if all of them are about an event: a proof that has others too is not drawn."""
    events = [row for row in rows if isinstance(row, Delivery | Publication)]
    return events if len(events) == len(rows) else []


def _crossing(picture: Picture, rows: Sequence[Row]) -> bool:
    """Four rows, two per lane, in the order of each lane: the lines that join equal events cross."""
    events = _events(rows)
    if len(events) != 4:
        return False
    first, second, third, fourth = (picture.put(row, column) for row, column in zip(events, (0, 1, 0, 1), strict=True))
    picture.link(first, fourth, "wrong")
    picture.link(second, third, "wrong")
    picture.link(first, second, "before")
    picture.link(third, fourth, "before")
    return True


def _cycle(picture: Picture, rows: Sequence[Row]) -> bool:
    """Pairs of rows, a step of the cycle each: a staircase whose last event is the first one again."""
    events = _events(rows)
    if len(events) < 4 or len(events) % 2:
        return False
    ends: list[int] = []
    for step in range(len(events) // 2):
        start = picture.put(events[2 * step], step)
        end = picture.put(events[2 * step + 1], step + 1)
        picture.link(start, end, "before")
        if step:
            picture.link(ends[-1], start, "same")
        ends.append(end)
    picture.link(ends[-1], 0, "back", "the same event again")
    return True


def _overtaken(picture: Picture, rows: Sequence[Row]) -> bool:
    """Draw messages in time: who published, who saw it and answered, and who saw the answer first.

    The witness: the effect's and the cause's row at the subscriber, the cause's publication, then for each step of the
    chain the publication, with the notification before it if there was one.
    """
    events = _events(rows)
    if len(events) < 4:
        return False
    overtaker, late, cause, *steps = events
    if not isinstance(overtaker, Delivery) or not isinstance(late, Delivery) or not isinstance(cause, Publication):
        return False
    picture.lane(late.subscriber)  # on top: what reaches it passes no other lane's events
    sent = {cause.event_id: picture.put(cause, 0)}
    column = 0
    before = sent[cause.event_id]
    for row in steps:
        column += 1
        spot = picture.put(row, column)
        if isinstance(row, Delivery):
            if row.event_id in sent:
                picture.link(sent[row.event_id], spot, "same")
        else:
            picture.link(before, spot, "before" if picture.spots[before].lane == picture.spots[spot].lane else "same")
            sent[row.event_id] = spot
        before = spot
    effect = picture.put(overtaker, column + 1)
    arrival = picture.put(late, column + 2, is_wrong=True)
    if overtaker.event_id in sent:
        picture.link(sent[overtaker.event_id], effect, "same")
    picture.link(effect, arrival, "before")
    picture.link(sent[cause.event_id], arrival, "wrong", "arrives after its effect")
    return True


def _twice(picture: Picture, rows: Sequence[Row]) -> bool:
    events = _events(rows)
    if len(events) != 2:
        return False
    first, second = picture.put(events[0], 0), picture.put(events[1], 1, is_wrong=True)
    picture.link(second, first, "back", "the same event again")
    return True


def _phantom(picture: Picture, rows: Sequence[Row]) -> bool:
    """Notified, but not published; or outside of every span in which the topic was held."""
    if not rows or not isinstance(rows[0], Delivery):
        return False
    row, spans = rows[0], [span for span in rows[1:] if isinstance(span, Subscription)]
    if "nobody published" in picture.sentence:
        published = picture.put_nothing("published by nobody", 0, row.event_id, "no publication")
        picture.link(published, picture.put(row, 1, is_wrong=True), "wrong")
        return True
    marks = sorted({row.position, *(s.since for s in spans), *(s.until for s in spans if s.until is not None)})
    column = {position: index + 1.0 for index, position in enumerate(marks)}
    picture.put(row, column[row.position], is_wrong=True)
    for span in spans:
        end = len(marks) + 1.0 if span.until is None else column[span.until] - 0.25
        start = column[span.since] - 0.25
        text = f"held {span.topic} {_stretch(span)}"
        picture.spans.append(Span(picture.lane(span.subscriber), start, max(end, start + 0.1), text))
    if not spans:
        picture.spans.append(Span(picture.lane(row.subscriber), 0.0, 0.0, f"never held {row.topic}"))
    return True


def _stretch(subscription: Subscription) -> str:
    since, until = subscription.since, subscription.until
    if until is None:
        return f"from position {since:,}"
    if until <= since:
        return f"and left it again before position {since:,}"
    return f"at position {since:,}" if until == since + 1 else f"from position {since:,} to {until - 1:,}"


def _contradiction(picture: Picture, rows: Sequence[Row]) -> bool:
    """Two rows that cannot both be true."""
    events = _events(rows)
    if len(events) != 2:
        return False
    spots = []
    for column, row in enumerate(events):
        number = "" if row.number is None else f" number {row.number:,}" + (f" index {row.index}" if row.index else "")
        spots.append(picture.put(row, column, is_wrong=True, below=f"topic {row.topic}{number}"))
    picture.link(spots[0], spots[1], "wrong", "cannot both be")
    return True


def _gap(picture: Picture, rows: Sequence[Row]) -> bool:
    """Somebody knows the event; its place at the subscriber that held the topic is empty."""
    if len(rows) < 2 or not isinstance(rows[0], Subscription) or not isinstance(rows[1], Delivery | Publication):
        return False
    subscription, proof = rows[0], rows[1]
    known = picture.put(proof, 1)
    missing = picture.put_nothing(subscription.subscriber, 1, proof.event_id, "never notified")
    picture.link(known, missing, "wrong")
    end = 1.6
    if len(rows) > 2 and isinstance(rows[2], Delivery):
        picture.put(rows[2], 2)
        end = 2.4
    start = "" if subscription.start is None else f" after number {subscription.start:,}"
    text = f"{subscription.subscriber} held {subscription.topic}{start}"
    picture.spans.append(Span(picture.lane(subscription.subscriber), 0.4, end, text))
    return True


DRAWN_BY: dict[str, Callable[[Picture, Sequence[Row]], bool]] = {
    "topic-inversion": _crossing,
    "inversion": _crossing,
    "fifo-inversion": _crossing,
    "fifo-inversion-across-topics": _crossing,
    "cycle": _cycle,
    "causal-inversion": _overtaken,
    "duplicate": _twice,
    "phantom": _phantom,
    "reused-id": _contradiction,
    "number-mismatch": _contradiction,
    "gap": _gap,
}
