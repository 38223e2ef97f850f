"""How large are stamps? The workload of paper 000: 10,000 subscribers, each holding 10 of 1,000 topics.

The paper draws topics from a power law of two shapes and states for each of them how large a stamp is on average (17
and 46 entries, a mean over topics) and how skewed interest is. Its generator is not printed, and under Zipf's law over
ranks no exponent meets both facts. We take the stamp sizes, because sizes are what is compared here, and find the
exponent by bisection; the last lines show what the other choice gives. Publications follow the same popularity.

Run: python bench/stamps.py [events]
"""

import sys
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate, combinations
from random import Random

from seriatim.order import SequencingTree
from seriatim.order.stamp import encode_entries
from seriatim.protocols.tree import Sequencer, TreeOptions
from seriatim.protocols.tree.messages import Settled, Ticket, Update

SUBSCRIBERS = 10_000
TOPICS_EACH = 10
TOPICS = [f"t{rank:04}" for rank in range(1, 1_001)]
IDS = {topic: rank for rank, topic in enumerate(TOPICS, 1)}
FULL_SAMPLED = 20  # encoding a full stamp is slow: one in this many is measured

# (the paper's name for the shape, its mean entries of a stamp, its share of topics that draws 80 % of the interest)
SHAPES = [("0.901", 17.0, 0.005), ("0.349", 46.0, 0.4)]


def zipf(exponent: float) -> list[float]:
    """Weights of the topics by rank."""
    return [float(rank) ** -exponent for rank in range(1, len(TOPICS) + 1)]


class Popularity:
    """Draws topics by their weight, and subscriptions of distinct ones."""

    def __init__(self, exponent: float, seed: int = 1) -> None:
        self._cumulative = list(accumulate(zipf(exponent)))
        self._random = Random(seed)

    def draw(self) -> int:
        return bisect(self._cumulative, self._random.random() * self._cumulative[-1])

    def subscription(self) -> frozenset[int]:
        held: set[int] = set()
        while len(held) < TOPICS_EACH:
            held.add(self.draw())
        return frozenset(held)


def interest_drawn(topics: float, exponent: float) -> float:
    """What part of the interest this part of the topics, the most popular ones, draws."""
    weights = zipf(exponent)
    return sum(weights[: round(topics * len(TOPICS))]) / sum(weights)


def groups(subscriptions: Iterable[frozenset[int]]) -> dict[int, list[int]]:
    """For each topic, by rank, those that share two or more subscribers with it."""
    together: Counter[tuple[int, int]] = Counter()
    for topics in subscriptions:
        together.update(combinations(sorted(topics), 2))
    coupled: dict[int, list[int]] = {rank: [] for rank in range(len(TOPICS))}
    for (topic, other), count in together.items():
        if count >= 2:
            coupled[topic].append(other)
            coupled[other].append(topic)
    return coupled


def mean_group(exponent: float) -> float:
    """Mean size of a group over all topics, which is what the paper states."""
    popularity = Popularity(exponent)
    coupled = groups(popularity.subscription() for _ in range(SUBSCRIBERS))
    return sum(map(len, coupled.values())) / len(TOPICS)


def exponent_where(value: Callable[[float], float], target: float, low: float, high: float, steps: int) -> float:
    """The exponent at which a value that rises or falls all the way from `low` to `high` meets its target."""
    rises = value(low) < value(high)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if (value(middle) > target) == rises else (middle, high)
    return (low + high) / 2


def measure(shape: str, exponent: float, events: int) -> None:
    """Publish twice as many events; measure the second half, the stamps of a system that has been running."""
    popularity = Popularity(exponent)
    subscriptions = [popularity.subscription() for _ in range(SUBSCRIBERS)]
    coupled = groups(subscriptions)
    sequencer = Sequencer(SequencingTree.single(TOPICS), "root", TreeOptions(mode="ticket"))
    for index, ranks in enumerate(subscriptions):
        sequencer.step(f"s{index}", Update(1, frozenset(TOPICS[rank] for rank in ranks)), 0.0)
    issued = [0] * len(TOPICS)
    entries = size = full_entries = full_size = full_sampled = 0
    for request in range(1, 2 * events + 1):
        rank = popularity.draw()
        _, granted = sequencer.step("p", Ticket(request, TOPICS[rank], 1), 0.0).send[0]
        sequencer.step("p", Settled(granted.topic, granted.first), 0.0)
        if request > events:
            entries += len(granted.entries)
            size += len(encode_entries(granted.entries, IDS))
            full_entries += len(coupled[rank])
            if request % FULL_SAMPLED == 0:
                full_size += len(encode_entries({TOPICS[other]: issued[other] for other in coupled[rank]}, IDS))
                full_sampled += 1
        issued[rank] = granted.last
    print(
        f"{shape:>6} {exponent:>9.2f} {sum(map(len, coupled.values())) / len(TOPICS):>12.1f} "
        f"{full_entries / events:>9.1f} {entries / events:>11.2f} {full_entries / entries:>7.0f}x "
        f"{full_size / full_sampled:>10.0f} {size / events:>12.1f}"
    )


def main(events: int) -> None:
    print(f"{SUBSCRIBERS:,} subscribers, {TOPICS_EACH} of {len(TOPICS):,} topics each; {events:,} events after as many")
    print("                    mean group       entries per event            bytes per event")
    print(" shape  exponent  over topics      full  difference    ratio       full   difference")
    for shape, mean, _ in SHAPES:
        measure(shape, exponent_where(mean_group, mean, 0.5, 3.0, steps=9), events)
    print("\nBy skew instead of by size:")
    for shape, mean, share in SHAPES:
        exponent = exponent_where(partial(interest_drawn, share), 0.8, 0.0, 5.0, steps=30)
        print(
            f"{shape:>6}: {share:.1%} of the topics draw 80 % at exponent {exponent:.3f}; "
            f"then the mean group is {mean_group(exponent):.0f}, not {mean:.0f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 20_000)
