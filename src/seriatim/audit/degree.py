"""How far out of order? The normalised ordering degree of paper 003 §VI: a measure, not a verdict.

The paper compares the streams of two subscribers: with S events in common, an event that is displaced by D places
counts S - D, and the sum is divided by its maximum, S². One is the same order. The rows are those that an audit judges,
but for those that share a position: they have no place of their own.

The paper takes a sample of pairs, and so do we: each subscriber is compared with the next one by name, so that the cost
grows with the rows and not with the pairs of subscribers. The degree of a log is the mean over these pairs, each
weighed by the events that it shares.
"""

from collections.abc import Iterable

from msgspec import Struct

from seriatim.audit.evidence import Evidence
from seriatim.audit.report import Findings
from seriatim.model import Delivery, Publication


class Degree(Struct, frozen=True):
    """`degree` is None if no pair that was compared shares an event. `displaced` of the `compared` events moved."""

    degree: float | None
    pairs: int
    compared: int
    displaced: int
    displacement_max: int


def ordering_degree(deliveries: Iterable[Delivery], publications: Iterable[Publication] = ()) -> Degree:
    """Measure the order of a log, between neighbours by name."""
    evidence = Evidence(deliveries, publications, Findings(1))
    names = list(evidence.sequences)
    pairs = compared = displaced = displacement_max = 0
    weighed = 0.0
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        if name == other or (len(names) == 2 and name > other):
            continue  # alone, or the same two again
        places = {event_id: i for i, event_id in enumerate(_clear(evidence, other))}
        mine = [event_id for event_id in _clear(evidence, name) if event_id in places]
        theirs = {event_id: i for i, event_id in enumerate(sorted(mine, key=places.__getitem__))}
        moved = [abs(i - theirs[event_id]) for i, event_id in enumerate(mine)]
        if not moved:
            continue
        pairs += 1
        compared += len(moved)
        displaced += sum(distance > 0 for distance in moved)
        displacement_max = max(displacement_max, *moved)
        weighed += len(moved) - sum(moved) / len(moved)  # S times the degree of this pair
    return Degree(weighed / compared if compared else None, pairs, compared, displaced, displacement_max)


def _clear(evidence: Evidence, subscriber: str) -> list[str]:
    tied = evidence.tied[subscriber]
    return [row.event_id for row in evidence.sequences[subscriber] if row.position not in tied]
