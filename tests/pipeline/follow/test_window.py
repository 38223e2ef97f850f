"""Judging as rows come: the same violations as the reference auditor's, each once, by the batch that completes it."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from seriatim.audit import audit
from seriatim.model import Delivery, History, InputError
from seriatim.pipeline.follow import Judged, Window, WindowOptions

LOGS = 100


def table(rows: list[Delivery]) -> pa.Table:
    columns = ("subscriber", "position", "event_id", "topic", "out_of_order")
    kinds = (pa.string(), pa.int64(), pa.string(), pa.string(), pa.bool_())
    return pa.table(
        {c: pa.array([getattr(row, c) for row in rows], kind) for c, kind in zip(columns, kinds, strict=True)}
    )


def log(**notified: str) -> list[Delivery]:
    return [Delivery(s, i, e, e[0].upper()) for s, words in notified.items() for i, e in enumerate(words.split())]


def names(judged: Judged) -> list[str]:
    return [finding.anomaly.name for finding in judged.findings]


def test_the_batch_that_completes_a_violation_finds_it_and_no_other() -> None:
    window = Window()
    rows = log(s1="a b c", s2="b a c")
    assert names(window.add(table(rows[:4]), 0)) == []
    judged = window.add(table(rows[4:5]), 1)
    assert [finding.anomaly.sentence for finding in judged.findings] == [
        "s1 was notified of a before b, s2 of b before a"
    ]
    assert names(window.add(table(rows[5:]), 2)) == []
    assert window.totals.counts == {"inversion": 1}


def test_a_knot_that_grows_shows_what_is_new() -> None:
    window = Window()
    window.add(table(log(s1="a b c", s2="b a")), 0)
    judged = window.add(table([Delivery("s3", 0, "c", "C"), Delivery("s3", 1, "a", "A")]), 1)
    (finding,) = judged.findings
    assert finding.count == 1
    assert {row.event_id for row in finding.anomaly.witness if isinstance(row, Delivery)} == {"a", "c"}


def test_cycles() -> None:
    window = Window()
    window.add(table(log(s1="a b", s2="b c")), 0)
    (finding,) = window.add(table(log(s3="c a")), 1).findings
    assert finding.anomaly.name == "cycle"
    assert "no single order fits them all" in finding.anomaly.sentence


def test_repeats_and_reused_ids() -> None:
    window = Window()
    window.add(table(log(s1="a b")), 0)
    judged = window.add(table([Delivery("s1", 2, "a", "A"), Delivery("s2", 0, "b", "X")]), 1)
    assert names(judged) == ["duplicate", "reused-id"]
    assert names(window.add(table([Delivery("s3", 0, "b", "X")]), 2)) == []
    assert window.totals.reused > 0


def test_what_cannot_be_judged_is_counted() -> None:
    window = Window(WindowOptions(rows_max=4))
    window.add(table(log(s1="a b c d e f")), 0)
    assert window.totals.events == 2
    judged = window.add(table(log(s2="b a")), 1)
    assert (judged.late, judged.findings) == (2, [])
    assert window.notified() == (6, 0)
    window.add(table([Delivery("s3", 5, "z", "Z")]), 2)
    assert window.missing() == {"s3": 5}
    window.add(table([Delivery("s4", 0, "y", "Y"), Delivery("s4", 0, "x", "X")]), 3)
    assert window.totals.tied == 2


def test_memory_is_bounded() -> None:
    window = Window(WindowOptions(rows_max=100, ids_max=50))
    for batch in range(20):
        rows = [Delivery("s1", batch * 20 + i, f"a{batch}-{i}", "A") for i in range(20)]
        assert window.add(table(rows), batch).window_rows <= 100
    assert window.ids == 40  # those of two batches
    assert window.totals.forgotten == 20 * 20 - 100 - 40
    with pytest.raises(InputError, match="rows_max: 0 is too small"):
        WindowOptions(rows_max=0)


def test_a_large_knot_is_judged_in_part_and_says_so() -> None:
    events = [f"a{i}" for i in range(200)]
    window = Window(WindowOptions(knot_rows_max=50))
    window.add(table(log(s1=" ".join(events))), 0)
    judged = window.add(table(log(s2=" ".join(reversed(events)))), 1)
    assert window.totals.unjudged == 350
    assert names(judged) in (["topic-inversion"], [])


def random_log(chance: random.Random) -> list[Delivery]:
    events = [f"{chance.choice('abc')}{i}" for i in range(chance.randint(2, 14))]
    rows = []
    for s in range(chance.randint(2, 5)):
        seen = [event for event in events if chance.random() < 0.7]
        for _ in range(chance.choice([0, 0, 1, 2])):
            if len(seen) > 1:
                i = chance.randrange(len(seen) - 1)
                seen[i], seen[i + 1] = seen[i + 1], seen[i]
        if seen and chance.random() < 0.2:
            seen.append(chance.choice(seen))
        rows += [Delivery(f"s{s}", i, event, event[0].upper()) for i, event in enumerate(seen)]
    return rows


@pytest.mark.parametrize("is_restored", [False, True])
def test_as_the_reference_auditor(is_restored: bool) -> None:
    """Any cut into batches finds what an audit of everything finds; restored from what was kept, too."""
    for seed in range(LOGS):
        chance = random.Random(seed)
        rows = random_log(chance)
        report = audit(History(rows))
        window = Window()
        kept: list[pa.Table] = []
        left: dict[int, np.ndarray] = {}
        at: Counter[str] = Counter()
        pending = rows[:]
        batch = 0
        while pending:  # each subscriber's rows in their order, mixed at random
            taken = []
            for _ in range(chance.randint(1, 8)):
                ready = [row for row in pending if row.position == at[row.subscriber]]
                if ready:
                    row = chance.choice(ready)
                    at[row.subscriber] += 1
                    pending.remove(row)
                    taken.append(row)
            judged = window.add(table(taken), batch)
            kept.append(judged.kept)
            left[batch] = judged.left
            if is_restored:
                window = Window.restored(
                    window.options, window.totals, window.subscribers, pa.concat_tables(kept), left
                )
            batch += 1
        found = window.totals.counts
        for name in ("topic-inversion", "inversion", "duplicate"):
            assert found.get(name, 0) == report.counts.get(name, 0), f"seed {seed}: {name}"
        # A cycle may be found before the pair that makes it an inversion.
        assert (found.get("cycle", 0) > 0) or not report.counts.get("cycle", 0), f"seed {seed}"
        is_broken = any(report.counts.get(n) for n in ("topic-inversion", "inversion", "cycle", "duplicate"))
        assert bool(found) == is_broken, f"seed {seed}"
        assert window.notified() == (report.events, report.shared)


def test_files_that_come_late() -> None:
    """Rows of one subscriber in any order of arrival: positions decide."""
    for seed in range(LOGS):
        chance = random.Random(seed)
        rows = random_log(chance)
        unique = list({(row.subscriber, row.event_id): row for row in reversed(rows)}.values())
        report = audit(History(unique))
        window = Window()
        chance.shuffle(unique)
        for batch, start in enumerate(range(0, len(unique), 5)):
            window.add(table(unique[start : start + 5]), batch)
        for name in ("topic-inversion", "inversion"):
            assert window.totals.counts.get(name, 0) == report.counts.get(name, 0), f"seed {seed}: {name}"
