"""The dumb oracle: every definition tried on every pair, triple and path. Obviously right, and hopelessly slow.

It shares no code with the auditor and answers only valid, invalid or unknown, by guarantee.
"""

from itertools import combinations, permutations, product

from seriatim.model import Delivery, History, Publication

Edges = set[tuple[str, str]]  # (earlier, later)


def judge(history: History) -> dict[str, str]:
    """The right answers."""
    if not history.deliveries:
        return dict.fromkeys(_NAMES, "unknown")
    orders = {name: _order(name, history) for name in _subscribers(history)}
    topic = {row.event_id: row.topic for row in history.deliveries}
    pairs = [(a, b) for one, other in permutations(orders, 2) for a, b in orders[one] if (b, a) in orders[other]]
    every = set[tuple[str, str]]().union(*orders.values())
    own, own_known = _own_order(history)
    causes, causes_known = _causes(history)
    late = [(a, b) for order in orders.values() for b, a in order if (a, b) in own]
    order_known = _order_known(history)

    broken = {
        "per-topic": any(topic[a] == topic[b] for a, b in pairs),
        "tno": bool(pairs),
        "acyclic": any(a == b for a, b in _closure(every)),
        "fifo": any(topic[a] == topic[b] for a, b in late),
        "fifo-across-topics": bool(late),
        "causal": bool(late) or any((a, b) in causes for order in orders.values() for b, a in order),
        "integrity": _integrity_broken(history),
        "completeness": _completeness(history) == "invalid",
    }
    broken["causal-total"] = broken["causal"] or broken["tno"]
    known = {
        "per-topic": order_known,
        "tno": order_known,
        "acyclic": order_known,
        "fifo": order_known and own_known,
        "fifo-across-topics": order_known and own_known,
        "causal": order_known and own_known and causes_known,
        "causal-total": order_known and own_known and causes_known,
        "integrity": bool(history.publications) and bool(history.subscriptions) and not _logged_twice(history),
        "completeness": _completeness(history) == "valid",
    }
    return {name: "invalid" if broken[name] else "valid" if known[name] else "unknown" for name in _NAMES}


_NAMES = (
    "fifo",
    "fifo-across-topics",
    "per-topic",
    "tno",
    "acyclic",
    "causal",
    "causal-total",
    "integrity",
    "completeness",
)


def _subscribers(history: History) -> list[str]:
    return sorted({row.subscriber for row in history.deliveries})


def _rows(name: str, history: History) -> list[Delivery]:
    return sorted((row for row in history.deliveries if row.subscriber == name), key=lambda row: row.position)


def _reused(history: History) -> set[str]:
    rows: list[Delivery | Publication] = [*history.deliveries, *history.publications]
    two_topics = {a.event_id for a, b in combinations(rows, 2) if a.event_id == b.event_id and a.topic != b.topic}
    published = history.publications
    return two_topics | {a.event_id for a, b in combinations(published, 2) if a.event_id == b.event_id and a != b}


def _order(name: str, history: History) -> Edges:
    """(a, b): a was first notified at a lower position than b was, both not tagged and each id one event's."""
    rows = _rows(name, history)
    reused = _reused(history)
    first: dict[str, Delivery] = {}
    for row in rows:
        if not row.out_of_order:
            first.setdefault(row.event_id, row)
    clear = {row.event_id: row.position for row in first.values() if row.event_id not in reused}
    return {(a, b) for a, b in permutations(clear, 2) if clear[a] < clear[b]}


def _order_known(history: History) -> bool:
    if _reused(history):
        return False
    for name in _subscribers(history):
        rows = _rows(name, history)
        if {row.position for row in rows} != set(range(max(row.position for row in rows) + 1)):
            return False
        if any(a.position == b.position and a.event_id != b.event_id for a, b in combinations(rows, 2)):
            return False
    return any(not row.out_of_order for row in history.deliveries)


def _clear_publications(history: History) -> list[Publication]:
    reused = _reused(history)
    rows = [row for row in history.publications if row.event_id not in reused]
    return list({row.event_id: row for row in rows}.values())


def _own_order(history: History) -> tuple[Edges, bool]:
    """(a, b): their publisher published a before b. And whether that is known for everything that was judged."""
    reused = _reused(history)
    rows = _clear_publications(history)
    edges: Edges = set()
    known = bool(rows)
    for publisher in {row.publisher for row in rows}:
        own = [row for row in rows if row.publisher == publisher]
        sequences = [row.sequence for row in own]
        if len(own) > 1 and (None in sequences or len(set(sequences)) < len(own)):
            known = False
        else:
            edges |= {
                (a.event_id, b.event_id) for a, b in permutations(own, 2) if (a.sequence or 0) < (b.sequence or 0)
            }
    published = {row.event_id for row in rows}
    judged = {row.event_id for row in history.deliveries if not row.out_of_order and row.event_id not in reused}
    return edges, known and judged <= published


def _causes(history: History) -> tuple[Edges, bool]:
    """(a, b): a happened before b. And whether the log tells all causes."""
    rows = _clear_publications(history)
    published = {row.event_id for row in rows}
    own, _ = _own_order(history)
    ordered = {
        publisher
        for publisher in {row.publisher for row in rows}
        if len(own_rows := [row for row in rows if row.publisher == publisher]) == 1
        or (len({row.sequence for row in own_rows} - {None}) == len(own_rows))
    }
    edges = set(own)
    known = True
    for row in rows:
        notified = _rows(row.publisher, history)
        if row.seen is None:
            known = False
            continue
        if row.seen > max((other.position for other in notified), default=-1) + 1:
            known = False
        if any((other.event_id, row.event_id) in own and (other.seen or 0) > row.seen for other in rows):
            known = False
        if row.publisher in ordered:
            seen = {other.event_id for other in notified if other.position < row.seen}
            edges |= {(cause, row.event_id) for cause in seen & published}
    closed = _closure(edges)
    circular = {a for a, b in closed if a == b}
    hopeless = circular | {b for a, b in closed if a in circular}
    return {(a, b) for a, b in closed if b not in hopeless}, known and not circular


def _closure(edges: Edges) -> Edges:
    closed = set(edges)
    names = {name for edge in edges for name in edge}
    for middle in names:  # Warshall
        earlier = [name for name in names if (name, middle) in closed]
        later = [name for name in names if (middle, name) in closed]
        closed.update(product(earlier, later))
    return closed


def _logged_twice(history: History) -> bool:
    return any(
        a.subscriber == b.subscriber and a.position == b.position and a.event_id == b.event_id
        for a, b in combinations(history.deliveries, 2)
    )


def _integrity_broken(history: History) -> bool:
    for a, b in combinations(history.deliveries, 2):
        if a.subscriber == b.subscriber and a.event_id == b.event_id and a.position != b.position:
            return True
    if _reused(history) or _numbers_contradict(history):
        return True
    published = {row.event_id for row in history.publications}
    for row in history.deliveries:
        if published and row.event_id not in published:
            return True
        held = [stay for stay in history.subscriptions if (stay.subscriber, stay.topic) == (row.subscriber, row.topic)]
        last = float("inf")
        if history.subscriptions and not any(
            stay.since <= row.position < (last if stay.until is None else stay.until) for stay in held
        ):
            return True
    return False


def _numbers_contradict(history: History) -> bool:
    rows: list[Delivery | Publication] = [*history.deliveries, *_clear_publications(history)]
    reused = _reused(history)
    told = [row for row in rows if row.number is not None and row.event_id not in reused]
    for a, b in combinations(told, 2):
        if (a.event_id == b.event_id) != ((a.topic, a.number, a.index) == (b.topic, b.number, b.index)):
            return True
    return False


def _completeness(history: History) -> str:
    """One subscription at a time, one number at a time, one index at a time."""
    if not history.subscriptions or _reused(history) or _numbers_contradict(history):
        return "unknown"
    published = {row.event_id: row for row in history.publications}
    broken = False

    def place_of(row: Delivery | Publication) -> tuple[int, int] | None:
        if row.number is None and row.event_id in published:
            row = published[row.event_id]
        return (row.number, row.index) if row.number is not None else None

    stays = {(stay.subscriber, stay.topic) for stay in history.subscriptions}
    known = all((row.subscriber, row.topic) in stays for row in history.deliveries)
    for stay in history.subscriptions:
        rows = [
            row
            for row in _rows(stay.subscriber, history)
            if row.topic == stay.topic
            and row.position >= stay.since
            and (stay.until is None or row.position < stay.until)
        ]
        got = [place for row in rows if (place := place_of(row)) is not None]
        if len(got) < len(rows):
            known = False
            continue
        start = stay.start
        if start is None:
            start = min(got, default=(1, 0))[0] - 1
            known = known and min(got, default=(0, 0))[0] == 1
        last = max(got, default=(start, 10**9))
        if stay.end is not None:  # up to what was notified of this number; all of it, if nothing was
            last = max([place for place in got if place[0] == stay.end], default=(stay.end, 10**9))
        on_topic = [row for row in published.values() if row.topic == stay.topic]
        events = {place_of(row) for row in on_topic}
        events |= {place_of(row) for row in history.deliveries if row.topic == stay.topic}
        voids_told = bool(on_topic) and all(row.number is not None for row in on_topic)
        positions = {row.position for row in _rows(stay.subscriber, history)}
        holes = positions != set(range(max(positions, default=-1) + 1))
        for number in range(start + 1, last[0] + 1):
            here = [each for each in events if each is not None and each[0] == number and each <= last]
            for index in range(max(here, default=(0, 0))[1] + 1):
                place = (number, index)
                if place in got:
                    continue
                if place in events and not holes:
                    broken = True
                elif place in events or not voids_told:
                    known = False
        if any(row.number is None for row in on_topic):
            known = False
        if stay.until is None and any(place is not None and place > last for place in events):
            known = False
    return "invalid" if broken else "valid" if known else "unknown"
