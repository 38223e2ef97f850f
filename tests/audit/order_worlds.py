"""Order logs of random histories: sound ones, made of an order that fits them, and broken ones."""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from seriatim.audit import audit
from seriatim.model import History, Placement, Publication
from tests.audit.test_against_oracle import faulty_history
from tests.audit.worlds import sound_history


def order_of(publications: list[Publication], random: Random, begin: int = 1) -> list[Placement]:
    """An order log of the events as they were published, the numbers of a topic next to each other in one row or not.

    Events that share a number share a position. The order of the rows is nothing.
    """
    known: dict[tuple[str, int], None] = {}
    for row in publications:
        if row.number is not None:
            known.setdefault((row.topic, row.number))
    rows: list[Placement] = []
    for position, (topic, number) in enumerate(known, start=begin):
        if rows and rows[-1].topic == topic and rows[-1].last + 1 == number and random.random() < 0.8:
            rows[-1] = replace(rows[-1], last=number)
        else:
            rows.append(Placement(position, topic, number, number))
    random.shuffle(rows)
    return rows


def certified_runs(seed: int) -> dict[str, tuple[History, list[Placement]]]:
    """Sound and faulty histories, each with a sound order log and with a broken one, by what they are."""
    random = Random(seed)
    sound, faulty = sound_history(Random(seed)), faulty_history(seed)[0]  # the faulty one is made of the sound one
    broken = order_of(sound.publications, random)
    random.choice(ORDER_FAULTS)(broken, random)
    told = with_positions(sound, order_of(sound.publications, random), random)
    runs = {
        "sound": (sound, order_of(sound.publications, random, random.choice([1, 1, 500]))),
        "otherwise sound": (sound, other_order_of(sound, random) or []),
        "told": (told, order_of(sound.publications, random)),
        "of a broken order log": (sound, broken),
        "faulty": (faulty, order_of(sound.publications, random)),
        "all broken": (faulty, broken),
    }
    return {name: run for name, run in runs.items() if name != "otherwise sound" or run[1]}


def with_positions(history: History, order: list[Placement], random: Random) -> History:
    """Deliveries that tell their positions, one of them perhaps a wrong one."""
    known = {
        (row.topic, number): row.position + number - row.first
        for row in order
        for number in range(row.first, row.last + 1)
    }
    rows = [replace(row, order_position=known[row.topic, row.number or 0]) for row in history.deliveries]
    if rows and random.random() < 0.5:
        i = random.randrange(len(rows))
        rows[i] = replace(rows[i], order_position=random.randint(1, 5))
    return History(rows, history.publications, history.subscriptions)


def other_order_of(history: History, random: Random) -> list[Placement] | None:
    """An order log from the order that an audit found to fit everybody, which need not be that of publishing.

    None if there is none, or if it is no order of numbers: a topic's numbers do not rise in it.
    """
    found = audit(History(history.deliveries)).order
    if found is None:
        return None
    places = {row.event_id: (row.topic, row.number) for row in history.deliveries}
    numbers = [places[event_id] for event_id in found]
    made = [Publication("", topic, "", number=number) for topic, number in numbers]
    last: dict[str, int] = {}
    for topic, number in numbers:
        if number is None or number not in (last.get(topic, number), last.get(topic, number - 1) + 1):
            return None
        last[topic] = number
    return order_of(made, random)


# ── faults: each changes the order log in place, if it finds something to change ──────────────────────────────────


def drop(rows: list[Placement], random: Random) -> None:
    """A row is missing."""
    del rows[random.randrange(len(rows))]


def double(rows: list[Placement], random: Random) -> None:
    """A row is there twice."""
    rows.append(random.choice(rows))


def exchange(rows: list[Placement], random: Random) -> None:
    """Two rows change places: what one of them has is at the position of the other."""
    i, j = random.randrange(len(rows)), random.randrange(len(rows))
    one, other = rows[i], rows[j]
    rows[i], rows[j] = replace(one, position=other.position), replace(other, position=one.position)


def rename(rows: list[Placement], random: Random) -> None:
    """A row is of another topic."""
    i = random.randrange(len(rows))
    rows[i] = replace(rows[i], topic=f"T{random.randrange(3)}")


def renumber(rows: list[Placement], random: Random) -> None:
    """A row has other numbers."""
    i = random.randrange(len(rows))
    by = random.choice([-1, 1])
    if rows[i].first + by > 0:
        rows[i] = replace(rows[i], first=rows[i].first + by, last=rows[i].last + by)


def shift(rows: list[Placement], random: Random) -> None:
    """A row has another position."""
    i = random.randrange(len(rows))
    rows[i] = replace(rows[i], position=rows[i].position + random.randint(1, 3))


def trim(rows: list[Placement], random: Random) -> None:
    """Retention has removed the beginning, or the end is not written yet."""
    rows.sort(key=lambda row: row.position)
    cut = random.randrange(len(rows))
    rows[:] = rows[cut:] if random.random() < 0.5 else rows[:cut]


def empty(rows: list[Placement], random: Random) -> None:
    """Nothing is in it."""
    rows.clear()


OrderFault = Callable[[list[Placement], Random], None]
ORDER_FAULTS: tuple[OrderFault, ...] = (drop, double, exchange, rename, renumber, shift, trim, empty)
