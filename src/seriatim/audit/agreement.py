"""Do the subscribers agree? Checks `per-topic`, `tno` and `acyclic` together, without comparing subscribers in pairs.

1. *Merge* all sequences. If that works, the merged order fits everybody: all three hold. Linear in the rows.
2. *Knots.* If not, disagreements are inside the strongly connected components of "notified right before", and what a
   subscriber saw between two events of a component is in it too. Each component, a *knot*, is judged alone.
3. *Inversions.* In a knot, find the pairs of events that are seen in both orders. They break `tno`; those of one topic
   break `per-topic`.
4. *Cycles.* A knot without inversions breaks `acyclic` only: its shortest cycle is the witness.

Events at one position of a subscriber are not ordered by it; "before" is a lower position (`Evidence.places`).
"""

from collections.abc import Mapping
from itertools import chain

from seriatim.audit.evidence import Evidence
from seriatim.audit.knots import (
    Between,
    Pair,
    Sequences,
    chained,
    find_inversions,
    find_knots,
    merge,
    restrict,
    shortest_cycle,
)
from seriatim.audit.report import Findings


def check_agreement(evidence: Evidence, findings: Findings) -> tuple[str, ...] | None:
    """Find where subscribers disagree. If they nowhere do: one order of all events that fits them all."""
    sequences = {name: [row.event_id for row in rows] for name, rows in evidence.sequences.items()}
    order = [event for event in merge(chained(sequences, evidence.places)) if not isinstance(event, Between)]
    left = set(chain.from_iterable(sequences.values())).difference(order)
    if not left:
        return tuple(order)
    # What comes after the last disagreement merges too, from the other end.
    backwards = [sequence[::-1] for sequence in chained(restrict(sequences, left), evidence.places)]
    left.difference_update(event for event in merge(backwards) if not isinstance(event, Between))
    topics = {row.event_id: row.topic for rows in evidence.sequences.values() for row in rows}
    for inside in find_knots(restrict(sequences, left), evidence.places):
        judge_knot(inside, topics, evidence, findings)
    return None


def judge_knot(inside: Sequences, topics: Mapping[str, str], evidence: Evidence, findings: Findings) -> None:
    """Name what one knot breaks: the inversions in it, or, without any, the cycle that it is."""
    found = find_inversions(inside, topics, places=evidence.places)
    findings.counts["topic-inversion"] += found.same_topic
    findings.counts["inversion"] += found.across_topics
    if found.same_topic_pair and findings.wants("topic-inversion"):
        topic = topics[found.same_topic_pair[0]]
        _show_inversion("topic-inversion", f"on topic {topic}, ", found.same_topic_pair, inside, evidence, findings)
    if found.across_topics_pair and findings.wants("inversion"):
        _show_inversion("inversion", "", found.across_topics_pair, inside, evidence, findings)
    if not found.same_topic and not found.across_topics and findings.counted("cycle"):
        _show_cycle(inside, evidence, findings)


def _show_inversion(
    name: str, where: str, pair: Pair, sequences: Sequences, evidence: Evidence, findings: Findings
) -> None:
    a, b = pair
    seen = [subscriber for subscriber, sequence in sequences.items() if a in sequence and b in sequence]

    def lead(subscriber: str) -> int:
        """By how much a is before b; 0: at one position."""
        place = evidence.places.get(subscriber, {}).__getitem__
        if subscriber not in evidence.places:
            place = sequences[subscriber].index
        return place(b) - place(a)

    first = next(subscriber for subscriber in seen if lead(subscriber))
    if lead(first) < 0:
        a, b = b, a
    second = next(subscriber for subscriber in seen if lead(subscriber) < 0)
    sentence = f"{where}{first} was notified of {a} before {b}, {second} of {b} before {a}"
    witness = ((first, a), (first, b), (second, b), (second, a))
    findings.add(name, sentence, tuple(evidence.row(subscriber, event) for subscriber, event in witness))


def _show_cycle(sequences: Sequences, evidence: Evidence, findings: Findings) -> None:
    cycle = shortest_cycle(sequences, places=evidence.places)
    following = [event for event, _ in cycle[1:] + cycle[:1]]
    steps = [
        f"{subscriber} {'of' if i else 'was notified of'} {event} before {later}"
        for i, ((event, subscriber), later) in enumerate(zip(cycle, following, strict=True))
    ]
    rows = [
        evidence.row(subscriber, seen)
        for (event, subscriber), later in zip(cycle, following, strict=True)
        for seen in (event, later)
    ]
    findings.add("cycle", f"{', '.join(steps)}: no single order fits them all", tuple(rows))
