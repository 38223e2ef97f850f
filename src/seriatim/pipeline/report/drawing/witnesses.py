"""A witness as a picture: one lane per subscriber or publisher, its events as dots in its own order, left to right.

What is wrong is always drawn the same way: a heavy line that runs against the direction of reading (two lines that
cross, an arrow that turns back, a dot that is hollow because nothing is there). For every name in `audit.ANOMALIES`
there is a function that says which dots and lines prove it; `lanes.py` draws them.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

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
    is_published: bool = False
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


class Picture(Struct, frozen=True, kw_only=True):
    """What `lanes.py` draws."""

    title: str
    sentence: str
    lanes: tuple[str, ...]
    spots: tuple[Spot, ...]
    links: tuple[Link, ...] = ()
    spans: tuple[Span, ...] = ()


class _Board:
    """Collects the parts of a picture; lanes get their place when they are first mentioned."""

    def __init__(self, anomaly: Anomaly) -> None:
        self._name = anomaly.name
        self.sentence = anomaly.sentence
        self._lanes: list[str] = []
        self.spots: list[Spot] = []
        self.links: list[Link] = []
        self.spans: list[Span] = []

    def lane(self, name: str) -> int:
        if name not in self._lanes:
            self._lanes.append(name)
        return self._lanes.index(name)

    def put(self, row: EventRow, column: float, *, is_wrong: bool = False, below: str = "") -> int:
        """A row as a spot; which one it is."""
        is_published = isinstance(row, Publication)
        self.spots.append(
            Spot(
                self.lane(actor(row)),
                column,
                row.event_id,
                below or place_of(row),
                is_published=is_published,
                is_wrong=is_wrong,
                hint=told(row),
            )
        )
        return len(self.spots) - 1

    def put_nothing(self, lane: str, column: float, event_id: str, below: str) -> int:
        """Where something should be and is not."""
        self.spots.append(Spot(self.lane(lane), column, event_id, below, is_hollow=True, is_wrong=True, hint=below))
        return len(self.spots) - 1

    def link(self, start: int, end: int, kind: LinkKind, text: str = "") -> None:
        self.links.append(Link(start, end, kind, text))

    def picture(self) -> Picture:
        return Picture(
            title=self._name,
            sentence=self.sentence,
            lanes=tuple(self._lanes),
            spots=tuple(self.spots),
            links=tuple(self.links),
            spans=tuple(self.spans),
        )


def actor(row: EventRow) -> str:
    return row.publisher if isinstance(row, Publication) else row.subscriber


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
    board = _Board(anomaly)
    rows = anomaly.witness
    match anomaly.name:
        case "topic-inversion" | "inversion":
            is_drawn = _crossing(board, rows)
        case "fifo-inversion" | "fifo-inversion-across-topics":
            is_drawn = _crossing(board, rows)
        case "cycle":
            is_drawn = _cycle(board, rows)
        case "causal-inversion":
            is_drawn = _overtaken(board, rows)
        case "duplicate":
            is_drawn = _twice(board, rows)
        case "phantom":
            is_drawn = _phantom(board, rows)
        case "reused-id" | "number-mismatch":
            is_drawn = _contradiction(board, rows)
        case "gap":
            is_drawn = _gap(board, rows)
        case _:
            is_drawn = False
    return board.picture() if is_drawn else None


def _events(rows: Sequence[Row]) -> list[EventRow]:
    """The rows that are about an event; a proof that has others too has another length."""
    return [row for row in rows if isinstance(row, Delivery | Publication)]


def _crossing(board: _Board, rows: Sequence[Row]) -> bool:
    """Four rows, two per lane, in the order of each lane: the lines that join equal events cross."""
    events = _events(rows)
    if len(rows) != 4 or len(events) != 4:
        return False
    first, second, third, fourth = (board.put(row, column) for row, column in zip(events, (0, 1, 0, 1), strict=True))
    board.link(first, fourth, "wrong")
    board.link(second, third, "wrong")
    board.link(first, second, "before")
    board.link(third, fourth, "before")
    return True


def _cycle(board: _Board, rows: Sequence[Row]) -> bool:
    """Pairs of rows, a step of the cycle each: a staircase whose last event is the first one again."""
    events = _events(rows)
    if len(rows) < 4 or len(rows) % 2 or len(events) < len(rows):
        return False
    ends: list[int] = []
    for step in range(len(rows) // 2):
        start = board.put(events[2 * step], step)
        end = board.put(events[2 * step + 1], step + 1)
        board.link(start, end, "before")
        if step:
            board.link(ends[-1], start, "same")
        ends.append(end)
    board.link(ends[-1], 0, "back", "the same event again")
    return True


def _overtaken(board: _Board, rows: Sequence[Row]) -> bool:
    """Who published, who saw it and answered, and who saw the answer first: a diagram of messages in time.

    The witness: the effect's and the cause's row at the subscriber, the cause's publication, then for each step of the
    chain the publication, with the notification before it if there was one.
    """
    events = _events(rows)
    if len(rows) < 4 or len(events) < len(rows):
        return False
    overtaker, late, cause, *steps = events
    if not isinstance(overtaker, Delivery) or not isinstance(late, Delivery) or not isinstance(cause, Publication):
        return False
    board.lane(late.subscriber)  # on top: what reaches it passes no other lane's events
    sent = {cause.event_id: board.put(cause, 0)}
    column = 0
    before = sent[cause.event_id]
    for row in steps:
        column += 1
        spot = board.put(row, column)
        if isinstance(row, Delivery):
            if row.event_id in sent:
                board.link(sent[row.event_id], spot, "same")
        else:
            board.link(before, spot, "before" if board.spots[before].lane == board.spots[spot].lane else "same")
            sent[row.event_id] = spot
        before = spot
    effect = board.put(overtaker, column + 1)
    arrival = board.put(late, column + 2, is_wrong=True)
    if overtaker.event_id in sent:
        board.link(sent[overtaker.event_id], effect, "same")
    board.link(effect, arrival, "before")
    board.link(sent[cause.event_id], arrival, "wrong", "arrives after its effect")
    return True


def _twice(board: _Board, rows: Sequence[Row]) -> bool:
    events = _events(rows)
    if len(rows) != 2 or len(events) != 2:
        return False
    first, second = board.put(events[0], 0), board.put(events[1], 1, is_wrong=True)
    board.link(second, first, "back", "the same event again")
    return True


def _phantom(board: _Board, rows: Sequence[Row]) -> bool:
    """Notified, but not published; or outside of every span in which the topic was held."""
    if not rows or not isinstance(rows[0], Delivery):
        return False
    row, spans = rows[0], [span for span in rows[1:] if isinstance(span, Subscription)]
    if "nobody published" in board.sentence:
        published = board.put_nothing("published by nobody", 0, row.event_id, "no publication")
        board.link(published, board.put(row, 1, is_wrong=True), "wrong")
        return True
    marks = sorted({row.position, *(s.since for s in spans), *(s.until for s in spans if s.until is not None)})
    column = {position: index + 1.0 for index, position in enumerate(marks)}
    board.put(row, column[row.position], is_wrong=True)
    for span in spans:
        end = len(marks) + 1.0 if span.until is None else column[span.until] - 0.25
        start = column[span.since] - 0.25
        text = f"held {span.topic} {_stretch(span)}"
        board.spans.append(Span(board.lane(span.subscriber), start, max(end, start + 0.1), text))
    if not spans:
        board.spans.append(Span(board.lane(row.subscriber), 0.0, 0.0, f"never held {row.topic}"))
    return True


def _stretch(subscription: Subscription) -> str:
    since, until = subscription.since, subscription.until
    if until is None:
        return f"from position {since:,}"
    if until <= since:
        return f"and left it again before position {since:,}"
    return f"at position {since:,}" if until == since + 1 else f"from position {since:,} to {until - 1:,}"


def _contradiction(board: _Board, rows: Sequence[Row]) -> bool:
    """Two rows that cannot both be true."""
    events = _events(rows)
    if len(rows) != 2 or len(events) != 2:
        return False
    spots = []
    for column, row in enumerate(events):
        number = "" if row.number is None else f" number {row.number:,}" + (f" index {row.index}" if row.index else "")
        spots.append(board.put(row, column, is_wrong=True, below=f"topic {row.topic}{number}"))
    board.link(spots[0], spots[1], "wrong", "cannot both be")
    return True


def _gap(board: _Board, rows: Sequence[Row]) -> bool:
    """Somebody knows the event; its place at the subscriber that held the topic is empty."""
    if len(rows) < 2 or not isinstance(rows[0], Subscription) or not isinstance(rows[1], Delivery | Publication):
        return False
    subscription, proof = rows[0], rows[1]
    known = board.put(proof, 1)
    missing = board.put_nothing(subscription.subscriber, 1, proof.event_id, "never notified")
    board.link(known, missing, "wrong")
    end = 1.6
    if len(rows) > 2 and isinstance(rows[2], Delivery):
        board.put(rows[2], 2)
        end = 2.4
    start = "" if subscription.start is None else f" after number {subscription.start:,}"
    board.spans.append(
        Span(
            board.lane(subscription.subscriber), 0.4, end, f"{subscription.subscriber} held {subscription.topic}{start}"
        )
    )
    return True
