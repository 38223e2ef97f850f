"""Random stamps of several logs, as a sequencing tree of one node would write them, and worse.

There is one order behind them, so they are acyclic. Unlike a sequencer's they name numbers in the middle of ranges,
repeat old entries, and are stored by a clock that jumps.
"""

import random
from typing import NamedTuple


class Stamp(NamedTuple):
    """A row of stamps, with its time in microseconds."""

    log: str
    first: int
    last: int
    entries: dict[str, int]
    received_us: int


def random_stamps(chance: random.Random, logs_max: int = 5, ranges_max: int = 40) -> list[Stamp]:
    """In the order that is behind them."""
    logs = [f"log-{number}" for number in range(chance.randint(1, logs_max))]
    issued = dict.fromkeys(logs, 0)
    stamps = []
    clock = chance.randint(0, 5)
    for _ in range(chance.randint(1, ranges_max)):
        log = chance.choice(logs)
        first = issued[log] + 1
        last = first + chance.choice([0, 0, 1, 4])
        others = [other for other in logs if other != log and issued[other] and chance.random() < 0.6]
        entries = {other: chance.choice([issued[other], chance.randint(1, issued[other])]) for other in others}
        clock = max(0, clock + chance.choice([-20, -1, 0, 0, 1, 3]))
        stamps.append(Stamp(log, first, last, entries, clock))
        issued[log] = last
    return stamps
