"""How long an audit takes, and how that grows: `python bench/audit.py [--rows-max 1000000]`.

Processor time, so that a busy machine does not matter. Three kinds of log, each from a seeded generator, so that the
same rows are audited every time:

- `ordered`: every subscriber reads one log of all events, with publications, causes, numbers and subscriptions;
- `swapped`: the same, but here and there two neighbouring notifications change places;
- `unordered`: every subscriber sees the events of the last few places in an order of its own: one knot of all events.
"""

import argparse
import gc
import time
from collections.abc import Callable
from random import Random

from seriatim.audit import audit, order_violations
from seriatim.model import Delivery, History, Publication, Subscription

SEED = 1
SUBSCRIBERS = 100
TOPICS = 50
TOPICS_HELD = 10
SMALL_REPEATS = 300


def ordered(
    rows: int, random: Random, subscribers: int = SUBSCRIBERS, topics: int = TOPICS, held: int = TOPICS_HELD
) -> History:
    """About `rows` deliveries; every fourth subscriber publishes too, and knows what it had seen."""
    names = [f"s{i}" for i in range(subscribers)]
    holds = {name: random.sample(range(topics), held) for name in names}
    holders: list[list[str]] = [[name for name in names if topic in holds[name]] for topic in range(topics)]
    publishers = names[::4]
    positions = dict.fromkeys(names, 0)
    sequences = dict.fromkeys(publishers, 0)
    numbers = [0] * topics
    history = History()
    while len(history.deliveries) < rows:
        event_id, topic, publisher = (
            f"e{len(history.publications)}",
            random.randrange(topics),
            random.choice(publishers),
        )
        numbers[topic] += 1
        number, name = numbers[topic], f"T{topic}"
        history.publications.append(
            Publication(event_id, name, publisher, None, sequences[publisher], positions[publisher], number)
        )
        sequences[publisher] += 1
        for holder in holders[topic]:
            history.deliveries.append(Delivery(holder, positions[holder], event_id, name, number))
            positions[holder] += 1
    history.subscriptions = [Subscription(name, f"T{topic}", 0, start=0) for name in names for topic in holds[name]]
    return history


def swapped(rows: int, random: Random) -> History:
    """One notification in a thousand changes places with the next."""
    history = ordered(rows, random)
    by_subscriber: dict[str, list[Delivery]] = {}
    for row in history.deliveries:
        by_subscriber.setdefault(row.subscriber, []).append(row)
    for sequence in by_subscriber.values():
        for i in range(len(sequence) - 1):
            if random.random() < 0.001:
                sequence[i], sequence[i + 1] = sequence[i + 1], sequence[i]
    history.deliveries = _renumbered(by_subscriber)
    return history


def unordered(rows: int, random: Random) -> History:
    """Every notification is late by up to 20 places."""
    history = ordered(rows, random)
    by_subscriber: dict[str, list[Delivery]] = {}
    for row in history.deliveries:
        by_subscriber.setdefault(row.subscriber, []).append(row)
    for sequence in by_subscriber.values():
        sequence.sort(key=lambda row: row.position + random.uniform(0, 20))
    history.deliveries = _renumbered(by_subscriber)
    return history


def _renumbered(by_subscriber: dict[str, list[Delivery]]) -> list[Delivery]:
    return [
        Delivery(row.subscriber, position, row.event_id, row.topic, row.number)
        for sequence in by_subscriber.values()
        for position, row in enumerate(sequence)
    ]


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-max", type=int, default=1_000_000)
    rows_max: int = parser.parse_args().rows_max

    small = ordered(240, Random(SEED), subscribers=6, topics=4, held=4)
    print(f"small log, {len(small.deliveries)} deliveries to 6 subscribers, all valid")
    calls: dict[str, Callable[[], object]] = {
        "order_violations(deliveries)": lambda: order_violations(small.deliveries),
        "audit(deliveries only)": lambda: audit(History(small.deliveries)),
        "audit(everything)": lambda: audit(small),
    }
    for name, call in calls.items():
        best = min(_seconds(call) for _ in range(SMALL_REPEATS))
        print(f"  {name:32}{best * 1000:8.2f} ms")

    print(f"\n{'log':12}{'deliveries':>12}{'agreement s':>14}{'audit s':>10}{'us per row':>12}  found")
    for make in (ordered, swapped, unordered):
        rows = 10_000
        while rows <= rows_max:
            history = make(rows, Random(SEED))
            light = _seconds(lambda history=history: order_violations(history.deliveries))  # type: ignore[misc]
            start = time.process_time()
            report = audit(history)
            full = time.process_time() - start
            found = ", ".join(f"{count:,} {name}" for name, count in report.counts.items()) or "all valid"
            count = len(history.deliveries)
            print(
                f"{make.__name__:12}{count:12,}{light:14.2f}{full:10.2f}{full / count * 1e6:12.1f}  {found}", flush=True
            )
            rows *= 10


if __name__ == "__main__":
    main()
