"""Who is interested in what: topics by popularity, subscriptions drawn from it, and the groups that follow.

Paper 000 draws topics from a power law and names two shapes; its generator is not printed. Here a topic of rank r has
weight r^-s (Zipf's law). The exponents are found by `exponent_where` so that the mean stamp is the one the paper
states; docs/figures.md says what the other choice gives.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from random import Random
from statistics import fmean, pstdev
from typing import TypeAlias

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.model import Topic
from seriatim.order.passage import PassageState, PassageTable
from seriatim.order.stamp import encode_entries

Rank: TypeAlias = int  # of a topic, from 0; the most popular one first

TOPICS = 1_000

# The paper's name of a shape → exponent. Calibrated on 10,000 subscribers of 10 topics each (`mean_group`).
EXPONENTS = {"0.901": 1.89, "0.349": 1.33}
MEAN_ENTRIES = {"0.901": 17.0, "0.349": 46.0}  # what the paper states for these subscribers
SKEW = {"0.901": 0.005, "0.349": 0.4}  # the part of the topics that draws 80 % of the picks, as the paper states it


def zipf(exponent: float, topics: int = TOPICS) -> list[float]:
    """Weights of the topics by rank."""
    return [float(rank) ** -exponent for rank in range(1, topics + 1)]


class Popularity:
    """Draws topics by their weight, and subscriptions of distinct ones."""

    def __init__(self, exponent: float, random: Random, topics: int = TOPICS) -> None:
        self._weights = zipf(exponent, topics)
        self._cumulative = list(accumulate(self._weights))
        self._random = random

    def draw(self) -> Rank:
        return bisect(self._cumulative, self._random.random() * self._cumulative[-1])

    def subscription(self, size: int) -> frozenset[Rank]:
        """Distinct topics, drawn one after the other; a topic already held is drawn again.

        Where most of the weight is held, nearly every draw would be one to repeat: then the rest is drawn from alone,
        which is the same distribution.
        """
        held: set[Rank] = set()
        ranks: Sequence[Rank] = range(len(self._weights))
        cumulative = self._cumulative
        held_weight = 0.0
        random = self._random.random
        while len(held) < size:
            total = cumulative[-1]
            rank = ranks[bisect(cumulative, random() * total)]
            if rank in held:
                continue
            held.add(rank)
            held_weight += self._weights[rank]
            if held_weight > 0.75 * total and len(held) < size:
                ranks = [other for other in ranks if other not in held]
                cumulative = list(accumulate(self._weights[other] for other in ranks))
                held_weight = 0.0
        return frozenset(held)


def groups(subscriptions: Iterable[Iterable[Rank]], topics: int = TOPICS, threshold: int = 2) -> list[list[Rank]]:
    """For each topic those that share `threshold` or more subscribers with it, itself left out.

    A topic's holders are the bits of one integer: the cost is that of the pairs of topics, not of pairs per subscriber.
    """
    holders = [0] * topics
    for index, held in enumerate(subscriptions):
        bit = 1 << index
        for rank in held:
            holders[rank] |= bit
    coupled: list[list[Rank]] = [[] for _ in range(topics)]
    for rank, who in enumerate(holders):
        if not who:
            continue
        for other in range(rank):
            both = who & holders[other]
            if both and both.bit_count() >= threshold:
                coupled[rank].append(other)
                coupled[other].append(rank)
    return coupled


def interest_drawn(part: float, exponent: float, topics: int = TOPICS) -> float:
    """What part of the interest this part of the topics, the most popular ones, draws."""
    weights = zipf(exponent, topics)
    return sum(weights[: round(part * topics)]) / sum(weights)


def mean_group(exponent: float, subscribers: int = 10_000, topics_each: int = 10, seed: int = 1) -> float:
    """Mean size of a group over all topics, which is what the paper states."""
    popularity = Popularity(exponent, Random(seed))
    coupled = groups(popularity.subscription(topics_each) for _ in range(subscribers))
    return sum(map(len, coupled)) / len(coupled)


def exponent_where(value: Callable[[float], float], target: float, low: float, high: float, steps: int) -> float:
    """The exponent at which a value that rises or falls all the way from `low` to `high` meets its target."""
    rises = value(low) < value(high)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if (value(middle) > target) == rises else (middle, high)
    return (low + high) / 2


CLIENTS = 10_000
EVENTS = 4_000  # published and not looked at, then as many that are
FULL_SAMPLED = 20  # writing a whole stamp is slow: one in this many is measured in bytes

NAMES: list[Topic] = [f"t{rank:04}" for rank in range(1, TOPICS + 1)]
IDS = {topic: rank for rank, topic in enumerate(NAMES, 1)}


def run_sizes(parameters: Parameters, seed: int) -> Measures:
    """`subscribed` topics in all, shared equally by 10,000 clients; publications follow the same popularity."""
    topics_each = int(parameters["subscribed"]) // CLIENTS
    popularity = Popularity(EXPONENTS[str(parameters["shape"])], Random(seed))
    coupled = groups(popularity.subscription(topics_each) for _ in range(CLIENTS))
    sizes = list(map(len, coupled))
    return {"entries": fmean(sizes), "entries_std": pstdev(sizes), **published_sizes(coupled, popularity, EVENTS)}


def published_sizes(coupled: list[list[int]], popularity: Popularity, events: int) -> Measures:
    """Publish twice as many events and measure the second half: the stamps of a system that has been running."""
    state = PassageState(
        groups={NAMES[rank]: {NAMES[other] for other in held} for rank, held in enumerate(coupled) if held}
    )
    table = PassageTable(state)
    issued = [0] * len(coupled)
    entries = size = full_entries = full_size = full_sampled = 0
    for event in range(2 * events):
        rank = popularity.draw()
        risen = table.collect(NAMES[rank])
        issued[rank] += 1
        table.raise_to(NAMES[rank], issued[rank])
        if event < events:
            continue
        entries += len(risen)
        size += len(encode_entries(risen, IDS))
        full_entries += len(coupled[rank])
        if event % FULL_SAMPLED == 0:
            full_size += len(encode_entries({NAMES[other]: issued[other] for other in coupled[rank]}, IDS))
            full_sampled += 1
    return {
        "full_entries": full_entries / events,
        "difference_entries": entries / events,
        "full_bytes": full_size / full_sampled,
        "difference_bytes": size / events,
    }
