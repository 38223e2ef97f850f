"""The arithmetic under the auditor, against plain definitions."""

from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.audit.knots import Sequences, find_inversions, find_knots, merge, restrict, shortest_cycle

EVENTS = [f"e{i}" for i in range(7)]
TOPICS = {event: f"T{i % 3}" for i, event in enumerate(EVENTS)}

sequences_of_events = st.dictionaries(
    st.sampled_from(["s1", "s2", "s3", "s4", "s5"]), st.lists(st.sampled_from(EVENTS), unique=True), min_size=1
)


def before(sequences: Sequences) -> set[tuple[str, str]]:
    return {pair for sequence in sequences.values() for pair in combinations(sequence, 2)}


def events_of(sequences: Sequences) -> list[str]:
    return sorted({event for sequence in sequences.values() for event in sequence})


def reachable(sequences: Sequences) -> set[tuple[str, str]]:
    closed = before(sequences)
    for middle in EVENTS:
        closed |= {(a, b) for a in EVENTS for b in EVENTS if (a, middle) in closed and (middle, b) in closed}
    return closed


@given(sequences_of_events)
@settings(max_examples=300)
def test_merge_takes_everything_exactly_if_one_order_fits_all(sequences: Sequences) -> None:
    events = {event for sequence in sequences.values() for event in sequence}
    order = merge(sequences.values())
    place = {event: i for i, event in enumerate(order)}
    assert len(place) == len(order)
    assert all(place[a] < place[b] for a, b in before(sequences) if a in place and b in place)
    fits = not any(a == b for a, b in reachable(sequences))
    assert (set(order) == events) == fits


@given(sequences_of_events)
@settings(max_examples=300)
def test_knots_are_the_events_that_reach_each_other(sequences: Sequences) -> None:
    closed = reachable(sequences)
    knots = find_knots(sequences)
    together = {pair for knot in knots for pair in permutations(events_of(knot), 2)}
    assert all(knot == restrict(sequences, set(events_of(knot))) for knot in knots)
    assert together == {(a, b) for a, b in closed if a != b and (b, a) in closed}


@given(sequences_of_events, st.integers(min_value=1, max_value=8))
@settings(max_examples=300)
def test_inversions_are_the_pairs_seen_in_both_orders(sequences: Sequences, columns: int) -> None:
    seen = before(sequences)
    inverted = {(a, b) for a, b in seen if (b, a) in seen}
    same = {(a, b) for a, b in inverted if TOPICS[a] == TOPICS[b]}
    found = find_inversions(sequences, TOPICS, columns)
    assert found.same_topic == len(same) // 2
    assert found.across_topics == len(inverted - same) // 2
    assert (found.same_topic_pair in same) == bool(same)
    assert (found.across_topics_pair in inverted - same) == bool(inverted - same)


@given(sequences_of_events, st.sampled_from([1, 1_000_000]))
@settings(max_examples=300)
def test_the_cycle_of_a_knot_is_one_and_cannot_be_shortened(sequences: Sequences, steps: int) -> None:
    for inside in find_knots(sequences):
        cycle = shortest_cycle(inside, steps)
        events = [event for event, _ in cycle]
        assert len(set(events)) == len(events)
        for i, (event, name) in enumerate(cycle):
            assert (event, events[(i + 1) % len(events)]) in set(combinations(inside[name], 2))
        assert len({name for _, name in cycle}) == len(cycle), "a subscriber with two steps could join them"
        for i in range(len(events)):
            rest = restrict(inside, set(events[:i] + events[i + 1 :]))
            assert not find_knots(rest), "an event could be left out"
        if steps > 1:
            assert len(cycle) == shortest_by_trying(inside)


def shortest_by_trying(sequences: Sequences) -> int:
    seen = before(sequences)
    for length in range(2, len(EVENTS) + 1):
        for events in permutations(events_of(sequences), length):
            if all((events[i - 1], events[i]) in seen for i in range(length)):
                return length
    raise AssertionError("a knot has a cycle")
