"""Small random histories: first one in which every guarantee holds, then faults put into it individually."""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from seriatim.model import Delivery, History, Publication, Subscription


def sound_history(random: Random) -> History:
    """One log of all events, read by every subscriber at its own pace: all guarantees hold, and all is recorded."""
    topics = [f"T{i}" for i in range(random.randint(1, 3))]
    subscribers = [f"s{i}" for i in range(random.randint(2, 4))]
    publishers = [*subscribers[: random.randint(1, 3)], "p"]
    holds = {name: random.sample(topics, random.randint(1, len(topics))) for name in subscribers}
    history = History()
    log: list[Publication] = []
    place = dict.fromkeys(subscribers, 0)  # how much of the log each has read
    seen = dict.fromkeys([*subscribers, "p"], 0)

    def publish() -> None:
        name, topic = random.choice(publishers), random.choice(topics)
        number, index = len({row.number for row in log if row.topic == topic}) + 1, 0
        if log and random.random() < 0.3:  # it goes into the message of the event before
            name, topic, number, index = log[-1].publisher, log[-1].topic, log[-1].number or 0, log[-1].index + 1
        own = sum(row.publisher == name for row in log)
        log.append(Publication(f"e{len(log)}", topic, name, None, own, seen[name], number, index))

    def read(name: str) -> None:
        row = log[place[name]]
        place[name] += 1
        if row.topic in holds[name]:
            history.deliveries.append(Delivery(name, seen[name], row.event_id, row.topic, row.number, index=row.index))
            seen[name] += 1

    publish()
    for _ in range(random.randint(5, 30)):
        behind = [name for name in subscribers if place[name] < len(log)]
        if not behind or random.random() < 0.3:
            publish()
        else:
            read(random.choice(behind))
    for name in subscribers:
        while place[name] < len(log):
            read(name)
    history.publications = log
    history.subscriptions = [Subscription(name, topic, 0, start=0) for name in subscribers for topic in holds[name]]
    return history


# ── faults: each changes the history in place, if it finds something to change ────────────────────────────────────


def _change(rows: list[Delivery], i: int, /, **changes: object) -> None:
    rows[i] = replace(rows[i], **changes)


def _mine(history: History, random: Random) -> list[int]:
    """Indices of the rows of some subscriber, in order."""
    name = random.choice(sorted({row.subscriber for row in history.deliveries}) or [""])
    rows = [i for i, row in enumerate(history.deliveries) if row.subscriber == name]
    return sorted(rows, key=lambda i: history.deliveries[i].position)


def swap(history: History, random: Random) -> None:
    """Two notifications of one subscriber change places."""
    rows = _mine(history, random)
    if len(rows) > 1:
        i, j = random.sample(rows, 2)
        one, other = history.deliveries[i].position, history.deliveries[j].position
        _change(history.deliveries, i, position=other)
        _change(history.deliveries, j, position=one)


def move(history: History, random: Random) -> None:
    """One notification comes later than it should."""
    rows = _mine(history, random)
    if len(rows) > 1:
        start = random.randrange(len(rows) - 1)
        stop = random.randrange(start + 1, len(rows))
        _change(history.deliveries, rows[start], position=history.deliveries[rows[stop]].position)
        for i in rows[start + 1 : stop + 1]:
            _change(history.deliveries, i, position=history.deliveries[i].position - 1)


def repeat(history: History, random: Random) -> None:
    """A notification is given again, at the end."""
    if rows := _mine(history, random):
        last = history.deliveries[rows[-1]].position
        history.deliveries.append(replace(history.deliveries[random.choice(rows)], position=last + 1))


def lose(history: History, random: Random) -> None:
    """A notification never happens."""
    if rows := _mine(history, random):
        lost = random.choice(rows)
        for i in rows[rows.index(lost) + 1 :]:
            _change(history.deliveries, i, position=history.deliveries[i].position - 1)
        del history.deliveries[lost]


def invent(history: History, random: Random) -> None:
    """A notification of something nobody published."""
    if rows := _mine(history, random):
        last = history.deliveries[rows[-1]]
        history.deliveries.append(replace(last, position=last.position + 1, event_id="x", number=None))


def misdirect(history: History, random: Random) -> None:
    """A subscription is forgotten, though its topic is notified."""
    if history.subscriptions:
        del history.subscriptions[random.randrange(len(history.subscriptions))]


def renumber(history: History, random: Random) -> None:
    """A delivered event gets another number."""
    if history.deliveries:
        i = random.randrange(len(history.deliveries))
        _change(history.deliveries, i, number=random.randint(1, 4))


def reindex(history: History, random: Random) -> None:
    """A delivered event gets another place within its message."""
    if history.deliveries:
        i = random.randrange(len(history.deliveries))
        _change(history.deliveries, i, index=random.randint(0, 2))


def retopic(history: History, random: Random) -> None:
    """A delivered event gets another topic."""
    if history.deliveries:
        _change(history.deliveries, random.randrange(len(history.deliveries)), topic=f"T{random.randrange(3)}")


def republish(history: History, random: Random) -> None:
    """An id is used for a second event."""
    if history.publications:
        row = random.choice(history.publications)
        history.publications.append(replace(row, publisher="q", sequence=0))


def tear(history: History, random: Random) -> None:
    """A row of the log is missing."""
    if history.deliveries:
        del history.deliveries[random.randrange(len(history.deliveries))]


def tie(history: History, random: Random) -> None:
    """Two rows claim one position."""
    rows = _mine(history, random)
    if len(rows) > 1:
        i, j = random.sample(rows, 2)
        _change(history.deliveries, i, position=history.deliveries[j].position)


def coarsen(history: History, random: Random) -> None:
    """The clock of some subscriber is coarse: what happened within one of its ticks has one position."""
    name, tick = f"s{random.randrange(4)}", random.randint(2, 4)
    for i, row in enumerate(history.deliveries):
        if row.subscriber == name:
            _change(history.deliveries, i, position=row.position // tick)
    history.publications = [
        replace(row, seen=-(-row.seen // tick)) if row.publisher == name and row.seen is not None else row
        for row in history.publications
    ]


def copy(history: History, random: Random) -> None:
    """A row is in the log twice."""
    if history.deliveries:
        history.deliveries.append(random.choice(history.deliveries))


def tag(history: History, random: Random) -> None:
    """A notification is tagged out of order."""
    if history.deliveries:
        _change(history.deliveries, random.randrange(len(history.deliveries)), out_of_order=True)


def unnumber(history: History, random: Random) -> None:
    """Some numbers are not recorded."""
    for i in range(len(history.deliveries)):
        if random.random() < 0.5:
            _change(history.deliveries, i, number=None)
    for i, row in enumerate(history.publications):
        if random.random() < 0.2:
            history.publications[i] = replace(row, number=None)


def unsequence(history: History, random: Random) -> None:
    """One publisher's own order is not recorded, or not clearly."""
    name = random.choice(["s0", "s1", "p"])
    told = random.choice([None, 1])
    history.publications = [
        replace(row, sequence=told) if row.publisher == name else row for row in history.publications
    ]


def reseen(history: History, random: Random) -> None:
    """The record of what a publisher had seen is missing or wrong."""
    if history.publications:
        i = random.randrange(len(history.publications))
        seen = random.choice([None, 0, random.randint(0, 12)])
        history.publications[i] = replace(history.publications[i], seen=seen)


def forget(history: History, random: Random) -> None:
    """A whole table, or a whole column, is not recorded."""
    match random.randrange(4):
        case 0:
            history.publications = []
        case 1:
            history.subscriptions = []
        case 2:
            history.publications = [replace(row, seen=None) for row in history.publications]
        case 3:
            history.subscriptions = [replace(row, start=None) for row in history.subscriptions]


def leave(history: History, random: Random) -> None:
    """A subscription ended at some point, as far as the log says."""
    if history.subscriptions:
        i = random.randrange(len(history.subscriptions))
        until, end = random.randint(0, 8), random.choice([None, random.randint(0, 5)])
        history.subscriptions[i] = replace(history.subscriptions[i], until=until, end=end)


Fault = Callable[[History, Random], None]

FAULTS: tuple[Fault, ...] = (
    swap,
    move,
    repeat,
    lose,
    invent,
    misdirect,
    renumber,
    reindex,
    retopic,
    republish,
    tear,
    tie,
    coarsen,
    copy,
    tag,
    unnumber,
    unsequence,
    reseen,
    forget,
    leave,
)
