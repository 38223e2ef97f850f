"""Logs of which rows are known to be gone: never called valid for want of a row, never invalid because of one."""

from random import Random

import pytest
from msgspec import structs

from seriatim.audit import audit
from seriatim.audit.lost import TABLES
from seriatim.model import Delivery, History, Publication, Subscription
from seriatim.order import GUARANTEES, implied_by
from tests.audit.worlds import sound_history

AGREEMENT = ["per-topic", "tno", "acyclic"]
SEEDS = 200


def without(history: History, table: str, random: Random) -> History:
    """Some rows are gone, as whole messages go, and that is known."""
    rows = getattr(history, table)
    kept = [row for row in rows if random.random() < 0.7]
    return structs.replace(history, **{table: kept}, lost={table: 1 + len(rows) - len(kept)})


@pytest.mark.parametrize("table", TABLES)
def test_rows_that_are_gone_prove_nothing(table: str) -> None:
    """All guarantees hold in these histories, so whatever were called invalid would be so wrongly."""
    for seed in range(SEEDS):
        history = without(sound_history(Random(seed)), table, Random(seed))
        for name, verdict in audit(history).verdicts.items():
            rests_on_it = not implied_by(name).isdisjoint(TABLES[table])
            assert verdict.answer == ("unknown" if rests_on_it else "valid"), f"seed {seed}, {verdict}\n{history}"


def test_which_guarantees_rest_on_which_table() -> None:
    history = sound_history(Random(1))
    assert audit(history).answer() == "valid"
    unknown = {}
    for table in TABLES:
        report = audit(structs.replace(history, lost={table: 2}))
        unknown[table] = [name for name in GUARANTEES if report.verdicts[name].answer == "unknown"]
        reason = report.verdicts["completeness"].reason
        assert reason == f"the archive lacks 2 messages of {table}, so rows are missing"
        assert report.order is None or table != "deliveries"
    assert unknown["deliveries"] == list(GUARANTEES)
    assert unknown["publications"] == [name for name in GUARANTEES if name not in AGREEMENT]
    assert unknown["subscriptions"] == ["integrity", "completeness"]


def test_what_the_rows_that_are_there_prove_is_still_invalid() -> None:
    words = {"s1": "ab", "s2": "ba"}
    history = History(
        [Delivery(s, i, e, e.upper(), number=1) for s, events in words.items() for i, e in enumerate(events)],
        [Publication("a", "A", "p", sequence=0, number=1), Publication("b", "B", "p", sequence=1, number=1)],
        [Subscription(s, topic, 0, start=0) for s in words for topic in "AB"],
        lost={"deliveries": 1, "publications": 1, "subscriptions": 1},
    )
    report = audit(history)
    assert report.counts == {"inversion": 1, "fifo-inversion-across-topics": 1}
    assert report.verdicts["tno"].answer == report.verdicts["causal"].answer == "invalid"
    assert report.verdicts["per-topic"].reason == "the archive lacks 1 message of deliveries, so rows are missing"
    assert report.verdicts["integrity"].reason.endswith("so rows are missing (and 2 more)")


def test_a_gap_that_publications_show_is_one_though_others_are_gone() -> None:
    rows = [Delivery("s1", position, f"a{n}", "A", number=n) for position, n in enumerate((1, 3))]
    published = [Publication(f"a{n}", "A", "p", sequence=n, number=n) for n in (1, 2, 3)]
    history = History(rows, published, [Subscription("s1", "A", 0, start=0)], lost={"publications": 1})
    assert audit(history).counts == {"gap": 1}
    for table in ("deliveries", "subscriptions"):
        verdict = audit(structs.replace(history, lost={table: 1})).verdicts["completeness"]
        assert (verdict.answer, verdict.reason.count("1 message of")) == ("unknown", 1), verdict
