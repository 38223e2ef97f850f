"""Which verdicts a log does not allow if some of its rows are known to be missing. Both auditors use these words.

A row that is gone could prove a violation, so nothing that it may be about is `valid`. And it could explain what looks
like one, so the checks do not take its absence for a proof: a publication that is gone is no `phantom`, a delivery that
is gone is no `gap`. A violation that the remaining rows prove, such as an inversion, stays `invalid`.
"""

from collections.abc import Iterator, Mapping

# What rows of each table may be about; a doubt about fifo and per-topic is one about every guarantee of order.
TABLES: dict[str, tuple[str, ...]] = {
    "deliveries": ("fifo", "per-topic", "integrity", "completeness"),
    "publications": ("fifo", "integrity", "completeness"),
    "subscriptions": ("integrity", "completeness"),
}


def lost_doubts(lost: Mapping[str, int]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Reasons, each with the guarantees that it is about."""
    for table, guarantees in TABLES.items():
        if count := lost.get(table, 0):
            what = "1 message" if count == 1 else f"{count:,} messages"
            yield f"the archive lacks {what} of {table}, so rows are missing", guarantees


def knows_owed(lost: Mapping[str, int]) -> bool:
    """Whether absence from the log can prove a gap: else a row that is gone may be of the event, or of a leave."""
    return not lost.get("deliveries") and not lost.get("subscriptions")
