"""Which events are in disorder? Strongly connected components of numbers, on one machine, in arrays.

Runs in Spark's Python workers, on the rows of the blocks that are not clean. A *tangle* is a strongly connected
component of everything that says "before": notified right before by some subscriber, published right before by its
publisher, notified before its publisher published. Every violation of order is a cycle of these, so it is inside one
tangle.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from seriatim.audit.knots import components
from seriatim.pipeline.audit.walk import NOTIFIED, PUBLISHED, Array

TANGLES = pa.schema([("e", pa.int64()), ("tangle", pa.int64())])


def untangle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows (s, p, kind, e, o, chain, rank) of whole blocks in; each event in disorder, with its tangle, out."""
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held)
    columns = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    del table, held
    ids, events = np.unique(columns["e"], return_inverse=True)
    before, after = _edges(events, columns)
    count = int(max(before.max(initial=-1), after.max(initial=-1), len(ids) - 1)) + 1
    for component in find_tangles(count, before, after):
        members = ids[[event for event in component if event < len(ids)]]
        yield pa.record_batch([members, np.full(len(members), members.min())], schema=TANGLES)


def _edges(events: Array, columns: dict[str, Array]) -> tuple[Array, Array]:
    """What is before what. Numbers above those of events stand between two positions of a subscriber."""
    kind, s, p = columns["kind"], columns["s"], columns["p"]
    parts = [
        _notified(events, s, p, (kind == NOTIFIED) & ~columns["o"]),
        _published(events, kind == PUBLISHED, columns["chain"], columns["rank"]),
        _seen(events, s, p, kind, columns["rank"]),
    ]
    before = np.concatenate([one for one, _ in parts])
    after = np.concatenate([other for _, other in parts])
    count = int(max(before.max(initial=0), after.max(initial=0))) + 1
    pairs = np.unique(before.astype(np.int64) * count + after)  # each edge once, however many subscribers went along
    return pairs // count, pairs % count


def _notified(events: Array, s: Array, p: Array, untagged: Array) -> tuple[Array, Array]:
    """Neighbours in what each subscriber was notified of, each event at its first place.

    Events at one position are not before one another. All of them are before all events of the next position: where
    one of the two has several, a number that is no event's is put between.
    """
    rows = np.flatnonzero(untagged)
    rows = rows[np.lexsort((p[rows], events[rows], s[rows]))]
    is_first = np.ones(len(rows), dtype=bool)
    is_first[1:] = (s[rows][1:] != s[rows][:-1]) | (events[rows][1:] != events[rows][:-1])
    rows = rows[is_first]
    rows = rows[np.lexsort((p[rows], s[rows]))]
    if not len(rows):
        return events[:0], events[:0]
    found, group, place = events[rows], s[rows], p[rows]
    is_next = np.concatenate([[True], (group[1:] != group[:-1]) | (place[1:] != place[:-1])])
    starts = np.flatnonzero(is_next)
    sizes = np.diff(np.append(starts, len(rows)))
    follows = np.concatenate([[False], group[starts][1:] == group[starts][:-1]])  # a step after one of the same log
    if len(starts) == len(rows):
        return _neighbours(found, group)
    is_joined = follows & ((sizes > 1) | (np.concatenate([[1], sizes[:-1]]) > 1))  # by a number between them
    between = int(events.max()) + np.cumsum(is_joined)
    step = np.cumsum(is_next) - 1
    last = len(starts) - 1
    alone = np.flatnonzero(follows & ~is_joined)
    enters = is_joined[step]  # its step has a number before it
    leaves = (step < last) & is_joined[np.minimum(step + 1, last)]
    before = [found[starts[alone - 1]], between[step[enters]], found[leaves]]
    after = [found[starts[alone]], found[enters], between[step[leaves] + 1]]
    return np.concatenate(before), np.concatenate(after)


def _published(events: Array, made: Array, chain: Array, rank: Array) -> tuple[Array, Array]:
    rows = np.flatnonzero(made)
    rows = rows[np.lexsort((rank[rows], chain[rows]))]
    return _neighbours(events[rows], chain[rows])


def _neighbours(events: Array, group: Array) -> tuple[Array, Array]:
    together = group[1:] == group[:-1]
    return events[:-1][together], events[1:][together]


def _seen(events: Array, s: Array, p: Array, kind: Array, rank: Array) -> tuple[Array, Array]:
    """From each notification of a publisher to the first of its publications that came after it.

    Later publications come after that one. What was seen once stays seen, so `seen` is taken as its highest so far.
    """
    made = np.flatnonzero((kind == PUBLISHED) & (p >= 0))
    if not len(made):
        return events[:0], events[:0]
    authors, author = np.unique(s[made], return_inverse=True)
    by_rank = np.lexsort((rank[made], author))
    made, author = made[by_rank], author[by_rank].astype(np.int64)
    places, p = np.unique(p, return_inverse=True)  # positions may be so large that no product of them fits
    wide = len(places) + 1
    seen = np.maximum.accumulate(author * wide + p[made])
    rows = np.flatnonzero(kind == NOTIFIED)
    of = np.searchsorted(authors, s[rows])
    known = (of < len(authors)) & (authors[np.minimum(of, len(authors) - 1)] == s[rows])
    rows, of = rows[known], of[known]
    first = np.searchsorted(seen, of * wide + p[rows], side="right")
    found = (first < len(made)) & (author[np.minimum(first, len(made) - 1)] == of)
    return events[rows[found]], events[made[first[found]]]


def find_tangles(count: int, before: Array, after: Array) -> Iterator[list[int]]:
    """The strongly connected components with an edge inside them, of the graph of these edges, sorted by `before`."""
    loops = set(before[before == after].tolist())
    starts, ends = np.searchsorted(before, np.arange(count + 1)).tolist(), after.tolist()
    following = {event: ends[starts[event] : starts[event + 1]] for event in range(count)}
    for component in components(following):
        if len(component) > 1 or component[0] in loops:
            yield component
