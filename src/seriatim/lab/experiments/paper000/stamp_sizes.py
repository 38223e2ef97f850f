"""How large stamps are, over topics (as paper 000 counts) and over events, whole and as differences.

The differences come from the protocol's own table (order/passage.py) at a single node that is home to every topic, as
in the paper's setting: sizes do not depend on where topics are homed.
"""

from random import Random
from statistics import fmean, pstdev

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper000.interest import EXPONENTS, TOPICS, Popularity, groups
from seriatim.model import Topic
from seriatim.order.passage import PassageState, PassageTable
from seriatim.order.stamp import encode_entries

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
