"""How large are stamps? The workload of paper 000: 10,000 subscribers, each holding 10 of 1,000 topics.

The paper draws topics from a power law of two shapes and states for each of them how large a stamp is on average (17
and 46 entries, a mean over topics) and how skewed interest is. Its generator is not printed, and under Zipf's law over
ranks no exponent meets both facts. We take the stamp sizes, because sizes are what is compared here, and find the
exponent by bisection; the last lines show what the other choice gives. Publications follow the same popularity.

Each shape is measured in pairwise order, the paper's, and in global order, where one subscriber couples two topics.
Stamps are those of one node. Hops are messages between nodes until an event has its stamp, in a tree of three levels
(a root, 4 regions, 16 sites) over which topics are spread evenly, whoever holds them. Interest that is local needs
fewer (docs/plan.md).

Run: python bench/stamps.py [events]
"""

import sys
from functools import partial
from random import Random

from seriatim.lab.experiments.paper000.interest import (
    FULL_SAMPLED,
    IDS,
    MEAN_ENTRIES,
    SKEW,
    Popularity,
    exponent_where,
    groups,
    interest_drawn,
    mean_group,
)
from seriatim.lab.experiments.paper000.interest import NAMES as TOPICS
from seriatim.order import SequencingTree
from seriatim.order.stamp import encode_entries
from seriatim.protocols.tree import Sequencer, TreeOptions
from seriatim.protocols.tree.messages import Granted, Settled, Ticket, Update
from seriatim.protocols.tree.options import TreeOrder

SUBSCRIBERS = 10_000
TOPICS_EACH = 10
REGIONS = SITES_EACH = 4
ORDERS: tuple[TreeOrder, ...] = ("pairwise", "global")


def three_levels() -> SequencingTree:
    """Topics of each rank are spread over the sites."""
    parents: dict[str, str | None] = {"root": None}
    sites = []
    for region in range(REGIONS):
        parents[f"region{region}"] = "root"
        for site in range(SITES_EACH):
            parents[f"site{region}.{site}"] = f"region{region}"
            sites.append(f"site{region}.{site}")
    return SequencingTree(parents, {topic: sites[rank % len(sites)] for rank, topic in enumerate(TOPICS)})


def hops_of(tree: SequencingTree, coupled: list[list[int]]) -> list[int]:
    """For each topic: up to the highest node where it meets a topic of its group, and back."""
    hops = []
    for rank, topic in enumerate(TOPICS):
        home = tree.home(topic)
        top = tree.highest({tree.meet(topic, TOPICS[other]) for other in coupled[rank]} | {home}, home)
        hops.append(2 * tree.paths[home].index(top))
    return hops


def measure(shape: str, exponent: float, order: TreeOrder, events: int) -> None:
    """Publish twice as many events; measure the second half, the stamps of a system that has been running."""
    options = TreeOptions(mode="ticket", order=order)
    popularity = Popularity(exponent, Random(1))
    subscriptions = [popularity.subscription(TOPICS_EACH) for _ in range(SUBSCRIBERS)]
    coupled = groups(subscriptions, threshold=options.threshold)
    hops, climbed = hops_of(three_levels(), coupled), 0
    sequencer = Sequencer(SequencingTree.single(TOPICS), "root", options)
    for index, ranks in enumerate(subscriptions):
        sequencer.step(f"s{index}", Update(1, frozenset(TOPICS[rank] for rank in ranks)), 0.0)
    issued = [0] * len(TOPICS)
    entries = size = full_entries = full_size = full_sampled = 0
    for request in range(1, 2 * events + 1):
        rank = popularity.draw()
        _, granted = sequencer.step("p", Ticket(request, TOPICS[rank], 1), 0.0).send[0]
        assert isinstance(granted, Granted), granted
        sequencer.step("p", Settled(granted.topic, granted.first), 0.0)
        if request > events:
            climbed += hops[rank]
            entries += len(granted.entries)
            size += len(encode_entries(granted.entries, IDS))
            full_entries += len(coupled[rank])
            if request % FULL_SAMPLED == 0:
                full_size += len(encode_entries({TOPICS[other]: issued[other] for other in coupled[rank]}, IDS))
                full_sampled += 1
        issued[rank] = granted.last
    print(
        f"{shape:>6} {exponent:>9.2f} {order:>9} {sum(map(len, coupled)) / len(TOPICS):>12.1f} "
        f"{full_entries / events:>9.1f} {entries / events:>11.2f} {full_entries / entries:>7.0f}x "
        f"{full_size / full_sampled:>10.0f} {size / events:>12.1f} {climbed / events:>8.2f}"
    )


def main(events: int) -> None:
    print(f"{SUBSCRIBERS:,} subscribers, {TOPICS_EACH} of {len(TOPICS):,} topics each; {events:,} events after as many")
    print("                              mean group       entries per event            bytes per event")
    print(" shape  exponent     order  over topics      full  difference    ratio       full   difference     hops")
    for shape, mean in MEAN_ENTRIES.items():
        exponent = exponent_where(mean_group, mean, 0.5, 3.0, steps=9)
        for order in ORDERS:
            measure(shape, exponent, order, events)
    print("\nBy skew instead of by size:")
    for shape, share in SKEW.items():
        exponent = exponent_where(partial(interest_drawn, share), 0.8, 0.0, 5.0, steps=30)
        print(
            f"{shape:>6}: {share:.1%} of the topics draw 80 % at exponent {exponent:.3f}; "
            f"then the mean group is {mean_group(exponent):.0f}, not {MEAN_ENTRIES[shape]:.0f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 20_000)
