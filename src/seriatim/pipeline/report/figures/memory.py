"""The figures of a run: what a report says about a history beside its verdicts. This one counts rows in memory.

`spark.py` fills the same structure from tables of any size; a test compares the two.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isfinite

from msgspec import Struct

from seriatim.model import History
from seriatim.pipeline.report.drawing.axes import nice_step
from seriatim.pipeline.report.figures.distribution import Distribution, distribution_of

SHOWN_MAX = 10  # names in a ranking
STEPS_ABOUT = 60  # steps of a timeline


class Ranking(Struct, frozen=True):
    """How many rows each name has: the first few names, and how it is spread over all of them."""

    first: tuple[tuple[str, int], ...]
    names: int
    spread: Distribution | None


class Timeline(Struct, frozen=True, kw_only=True):
    """Events per step of time. `start_ms` is the beginning of the first step, on the clock of the log."""

    start_ms: float
    step_ms: float
    steps: int
    notified: tuple[tuple[int, int], ...]  # (step, how many); steps without any are left out
    published: tuple[tuple[int, int], ...]


class Traffic(Struct, frozen=True):
    """Messages of one kind between roles."""

    kind: str
    count: int
    bytes: int


class RunFigures(Struct, frozen=True, kw_only=True):
    """The figures of a run. None: not recorded."""

    deliveries: int
    events: int
    publications: int | None
    out_of_order: int
    subscribers: Ranking
    topics: Ranking
    latency: Distribution | None  # ms from published to notified
    held: Distribution | None  # ms from received to notified
    stamp_entries: Distribution | None
    timeline: Timeline | None
    traffic: tuple[Traffic, ...] = ()


def figures_of(history: History) -> RunFigures:
    """The figures of a history in memory."""
    deliveries, publications = history.deliveries, history.publications
    published = {row.event_id: row.published_at for row in publications if row.published_at is not None}
    traffic: dict[str, list[int]] = {}
    for message in history.messages:
        traffic.setdefault(message.kind, []).append(message.bytes)
    return RunFigures(
        deliveries=len(deliveries),
        events=len({row.event_id for row in deliveries}),
        publications=len(publications) or None,
        out_of_order=sum(row.out_of_order for row in deliveries),
        subscribers=ranking_of(Counter(row.subscriber for row in deliveries)),
        topics=ranking_of(Counter(row.topic for row in deliveries)),
        latency=distribution_of(
            row.notified_at - published[row.event_id]
            for row in deliveries
            if row.notified_at is not None and row.event_id in published
        ),
        held=distribution_of(
            row.notified_at - row.received_at
            for row in deliveries
            if row.notified_at is not None and row.received_at is not None
        ),
        stamp_entries=distribution_of((len(row.stamp) for row in deliveries if row.stamp is not None), is_whole=True),
        timeline=_timeline(
            [row.notified_at for row in deliveries if row.notified_at is not None], list(published.values())
        ),
        traffic=tuple(
            sorted((Traffic(kind, len(sizes), sum(sizes)) for kind, sizes in traffic.items()), key=_heaviest)
        ),
    )


def ranking_of(counts: Mapping[str, int]) -> Ranking:
    """The ranking of a count per name."""
    first = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN_MAX]
    return Ranking(tuple(first), len(counts), distribution_of(counts.values(), is_whole=True))


def _heaviest(traffic: Traffic) -> tuple[int, str]:
    return -traffic.bytes, traffic.kind


def steps_over(first_ms: float, last_ms: float) -> tuple[float, float, int]:
    """Start, length and number of steps: round lengths, about STEPS_ABOUT of them."""
    if last_ms <= first_ms:
        return first_ms, 1.0, 1
    step_ms = nice_step((last_ms - first_ms) / STEPS_ABOUT)
    return first_ms, step_ms, int((last_ms - first_ms) // step_ms) + 1


def _timeline(notified: list[float], published: list[float]) -> Timeline | None:
    notified = [time for time in notified if isfinite(time)]
    published = [time for time in published if isfinite(time)]
    if not notified:
        return None
    start, step, steps = steps_over(min(notified + published), max(notified + published))

    def counted(times: Iterable[float]) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(Counter(int((time - start) // step) for time in times).items()))

    return Timeline(start_ms=start, step_ms=step, steps=steps, notified=counted(notified), published=counted(published))
