"""Which events are in disorder, from arrays."""

import pyarrow as pa

from seriatim.pipeline.audit.untangle import untangle
from seriatim.pipeline.audit.walk import NOTIFIED, PUBLISHED

FAR = 1 << 62


def tangles(*rows: tuple[int, int, int, int]) -> list[list[int]]:
    """Rows are (subscriber, position, kind, event); what is published is the only one of its publisher."""
    s, p, kind, e = (list(column) for column in zip(*rows, strict=True))
    no = [False] * len(rows)
    columns = {"s": s, "p": p, "kind": kind, "e": e, "o": no, "tied": no, "chain": s, "rank": [1] * len(rows)}
    return [batch.column("e").to_pylist() for batch in untangle(iter([pa.record_batch(columns)]))]


def test_seen_before_it_was_published() -> None:
    assert tangles((1, 0, NOTIFIED, 10), (1, 1, PUBLISHED, 10)) == [[10]]
    assert tangles((1, 0, NOTIFIED, 10), (1, 0, PUBLISHED, 10)) == []  # it had not seen that row yet


def test_positions_of_others_may_be_as_large_as_they_like() -> None:
    others = [(s, FAR + s, kind, 10 * s + kind) for s in (1, 2) for kind in (NOTIFIED, PUBLISHED)]
    assert tangles(*others, (3, 2, NOTIFIED, 30), (3, 4, PUBLISHED, 30)) == [[30]]
