"""The experiments of paper 003: Figs. 5 to 7, the ordering degree and the livelock, and how ours is compared with them.

The paper's curves are known by what its text says of them. overlay_runs.py and docs/figures.md say what was calibrated.
"""

from seriatim.lab.experiments.experiment import Axis, Experiment, Parameters
from seriatim.lab.experiments.facts import (
    BAND,
    Judge,
    Judgement,
    at,
    at_least,
    at_most,
    curve,
    is_near,
    means,
    same,
    shape,
)
from seriatim.lab.experiments.paper003.overlay_runs import run_comparison, run_degree, run_detection, run_livelock
from seriatim.lab.experiments.paper003.overlay_worlds import (
    CENTRAL,
    FAST,
    FIFO,
    PLAIN,
    PROGRESSIVE,
    RESOLUTION,
    ROOTED,
    SEQUENCER,
)
from seriatim.lab.experiments.results import NotMeasuredError, Results, Where

CONFLICTS = (25, 50, 100)
SIZES = (100, 150, 200, 250, 300)
DETECTION = {
    "detection_edge_ms": "ms until conflicts are known, mean over publications at edge brokers",
    "detection_core_ms": "the same at core brokers",
    "outgoing": "messages that a broker sends, mean",
    "latency_ms": "ms from publication to a subscriber at the same broker, mean",
}


def _detection(system: str, entries: int, conflict: int) -> Where:
    return at(system=system, entries=entries, conflict=conflict)


def _axes(system: str, seconds: int) -> tuple[Axis, ...]:
    return (
        Axis("system", (system,)),
        Axis("conflict", CONFLICTS),
        Axis("seconds", (seconds,)),
        Axis("entries", (100, 300), SIZES),
    )


def _lines(results: Results, system: str, measure: str) -> list[list[float]]:
    """From the fewest to the most entries, for each share of conflicts."""
    curves = (results.curve(measure, "entries", at(system=system, conflict=share)) for share in CONFLICTS)
    lines = [list(curve.values()) for curve in curves]
    if min(map(len, lines)) < 2:
        raise NotMeasuredError
    return lines


def _grows(system: str, measure: str) -> Judge:
    """With the entries, at each share of conflicts; and with that share, at the most entries."""

    def judge(results: Results) -> Judgement:
        lines = _lines(results, system, measure)
        ends = [line[-1] for line in lines]
        is_growing = all(line == sorted(line) for line in [*lines, ends])
        return ", ".join(f"{line[0]:.3g} to {line[-1]:.3g}" for line in lines), is_growing

    return judge


def _stays(system: str, measure: str, factor: float) -> Judge:
    """From the fewest to the most entries, whatever the share."""

    def judge(results: Results) -> Judgement:
        ratios = [line[-1] / line[0] for line in _lines(results, system, measure)]
        is_within = all(1.0 / factor <= ratio <= factor for ratio in ratios)
        return ", ".join(f"{ratio:.2f}" for ratio in ratios) + " times", is_within

    return judge


def two_six_nine(quarter: float, half: float, whole: float) -> Judgement:
    """2 : 6 : 9 for 25, 50 and 100 %."""
    quarter, half = 9.0 * quarter / whole, 9.0 * half / whole
    return f"{quarter:.1f} : {half:.1f} : 9", is_near(quarter, 2.0) and is_near(half, 6.0)


def _more(of: float, than: float) -> Judgement:
    return f"{of:.3g} against {than:.3g}", of > than


def _in_proportion(rows: dict[int, float]) -> Judgement:
    """Rows for each entry and matching subscription, the same at every size: time follows what is scanned."""
    shares = [value / (float(entries) * float(entries)) for entries, value in rows.items()]
    text = f"{rows[min(rows)]:,.0f} to {rows[max(rows)]:,.0f} rows"
    return text, max(shares) <= (1.0 + BAND) * min(shares)


IN_PROPORTION = curve("rows_edge", "entries", at(system=PROGRESSIVE, conflict=100), 2, _in_proportion)
TRAFFIC_AT_300 = means("outgoing", [_detection(PROGRESSIVE, 300, share) for share in CONFLICTS], two_six_nine)
MORE_ROWS = means("rows_edge", [_detection(FAST, 300, share) for share in (25, 50)], _more)
_LATE = "a broker that is late at 100 % sends less in the same time (003-traffic)"


FIG5 = Experiment(
    id="003-fig5",
    title="Progressive delivery: detection, traffic and delay, by subscriptions and advertisements",
    citation="paper 003, Fig. 5 and §V",
    x="entries",
    measures=DETECTION,
    axes=_axes(PROGRESSIVE, 40),
    run=run_detection,
    seeds=1,
    limit_s=1_800.0,
    facts=(
        *(
            shape(f"{name}: 25, 50, 100 %", "grows with entries and share", "every step", judge, reason=_LATE)
            for name, judge in (
                ("detection at an edge, ms", _grows(PROGRESSIVE, "detection_edge_ms")),
                ("outgoing messages", _grows(PROGRESSIVE, "outgoing")),
                ("end-to-end delay, ms", _grows(PROGRESSIVE, "latency_ms")),
            )
        ),
        same(
            "detection at an edge, 300 entries, 100 %: at most, ms",
            10_000.0,
            "detection_edge_max_ms",
            _detection(PROGRESSIVE, 300, 100),
            band=0.2,
        ),
        same(
            "detection at a core, 300 entries, 100 %: at most, ms",
            7_000.0,
            "detection_core_max_ms",
            _detection(PROGRESSIVE, 300, 100),
            reason="what waits at the edges reaches the cores late, so the cores' queues stay short",
        ),
        *(
            at_most(
                f"detection at a core, 300 entries, {share} %, ms",
                100.0,
                "detection_core_ms",
                _detection(PROGRESSIVE, 300, share),
            )
            for share in (25, 50)
        ),
        shape("rows scanned at an edge, 100 %", "in proportion to the tables", "± 10 % of the square", IN_PROPORTION),
        shape(
            "outgoing messages, 25 : 50 : 100 %, 300 entries", "2 : 6 : 9", "each ± 10 %", TRAFFIC_AT_300, reason=_LATE
        ),
    ),
)

FIG6 = Experiment(
    id="003-fig6",
    title="Fast detection: detection, traffic and delay, by subscriptions and advertisements",
    citation="paper 003, Fig. 6 and §V",
    x="entries",
    measures=DETECTION,
    axes=_axes(FAST, 10),
    run=run_detection,
    seeds=1,
    limit_s=1_800.0,
    facts=(
        *(
            at_most(
                f"detection at an edge, 300 entries, {share} %, ms",
                0.8,
                "detection_edge_ms",
                _detection(FAST, 300, share),
            )
            for share in CONFLICTS
        ),
        shape(
            "rows scanned at an edge, 100 to 300 entries: 25, 50, 100 %",
            "flat",
            "at most twice",
            _stays(FAST, "rows_edge", 2.0),
        ),
        shape("rows scanned at an edge, 25 against 50 %", "more", "more", MORE_ROWS),
        shape("end-to-end delay, 100 to 300 entries: 25, 50, 100 %", "flat", "± 20 %", _stays(FAST, "latency_ms", 1.2)),
        shape("outgoing messages: 25, 50, 100 %", "as in Fig. 5", "grows every step", _grows(FAST, "outgoing")),
    ),
)

# ── Fig. 7: the baselines ─────────────────────────────────────────────────────────────────────────────────────────

BASELINES = (FIFO, SEQUENCER, FAST)


def _at(system: str) -> Where:
    return at(system=system, publishers=240)


def _linear(results: Results) -> Judgement:
    """Delay against size: no system grows faster than the size, beyond 10 %."""
    texts, is_within = [], True
    for system in BASELINES:
        curve = results.curve("latency_ms", "publishers", {"system": system})
        if len(curve) < 2:
            raise NotMeasuredError
        points = list(curve.items())
        (few, first), (many, last) = points[0], points[-1]
        texts.append(f"{last / first:.2f} times")
        is_within = is_within and last / first <= (1.0 + BAND) * float(many) / float(few)
    return ", ".join(texts), is_within


def _slowest(*delays: float) -> Judgement:
    return " ms, ".join(f"{each:.3g}" for each in delays) + " ms", delays[-1] == max(delays)


SLOWEST = means("latency_ms", [_at(system) for system in BASELINES], _slowest)


FIG7 = Experiment(
    id="003-fig7",
    title="End-to-end delay beside per-publisher order and a central sequencer",
    citation="paper 003, Fig. 7 and §V",
    x="publishers",
    measures={
        "latency_ms": "ms from publication to a subscriber at the same broker, mean",
        "latency_max_ms": "the longest",
        "served": "publishers none of whose publications were refused",
        "root_handled": "messages that the root handles for a publication",
    },
    axes=(
        Axis("system", (*BASELINES, ROOTED), (*BASELINES, ROOTED, RESOLUTION, CENTRAL)),
        Axis("publishers", (60, 240), (30, 60, 120, 180, 240)),
    ),
    run=run_comparison,
    seeds=1,
    limit_s=3_600.0,
    facts=(
        shape(
            "delay, 60 to 240 publishers: FIFO, sequencer, paper's",
            "linear",
            "at most 4.4 times",
            _linear,
            reason="with 240 publishers the core is busy 97 % of the time with the paper's order (003-handling)",
        ),
        shape("delay with 240: FIFO, sequencer, paper's", "the paper's is the highest", "highest", SLOWEST),
        same(
            "the paper's order, 240 publishers, longest delay, ms",
            10_000.0,
            "latency_max_ms",
            _at(FAST),
            reason="the core is busy nearly all the time: how long its queue grows depends on the length of the run",
        ),
        at_most("per publisher, 240: longest delay, ms", 200.0, "latency_max_ms", _at(FIFO)),
        at_most("central sequencer, 240: longest delay, ms", 200.0, "latency_max_ms", _at(SEQUENCER)),
        same("the paper's order: publishers served of 240", 240.0, "served", _at(FAST)),
        same("rooted: publishers served of 240", 240.0, "served", _at(ROOTED)),
        same("central sequencer: publishers served of 240", 130.0, "served", _at(SEQUENCER)),
    ),
)

# ── the ordering degree, and the livelock ─────────────────────────────────────────────────────────────────────────

HOP_MS = 0.4  # calibrated on a conflict every 14 publications


def _hop(system: str) -> Where:
    return at(system=system, hop_ms=HOP_MS)


def _is_degree(point: Parameters) -> bool:
    """All systems at one speed; per-publisher order at all."""
    return point["hop_ms"] == HOP_MS or point["system"] == FIFO


DEGREE = Experiment(
    id="003-degree",
    title="Ordering degree of per-publisher order, and of ours",
    citation="paper 003, §V",
    x="hop_ms",
    measures={
        "degree": "normalised ordering degree, pairs of subscribers, 30 publications each",
        "conflicts": "of two publications in another order, for each publication",
        "displacement_max": "places",
    },
    axes=(
        Axis("system", (FIFO, ROOTED, RESOLUTION, FAST), (FIFO, ROOTED, RESOLUTION, CENTRAL, FAST)),
        Axis("hop_ms", (HOP_MS,), (0.1, 0.2, HOP_MS, 1.0)),
    ),
    is_wanted=_is_degree,
    run=run_degree,
    seeds=1,
    limit_s=1_800.0,
    facts=(
        same("per publisher: conflicts for each publication", 1.0 / 14.0, "conflicts", _hop(FIFO)),
        same("per publisher: degree", 0.9952, "degree", _hop(FIFO), band=0.001),
        at_most(
            "per publisher: displacement",
            2.0,
            "displacement_max",
            _hop(FIFO),
            reason="the paper compares a sample of pairs; among all of ours there is a rare third place",
        ),
        *(same(f"{system}: degree", 1.0, "degree", _hop(system), band=0.0) for system in (ROOTED, RESOLUTION)),
        same(
            "the paper's order as printed: degree",
            1.0,
            "degree",
            _hop(FAST),
            band=0.0,
            reason="publications sorted by id are not in one order (protocols/overlay/README.md)",
        ),
    ),
)


def _live(system: str) -> Where:
    return at(system=system, round_ms=2_000, rate=120)


LIVELOCK = Experiment(
    id="003-livelock",
    title="What is notified if a client's whole queue has to be acknowledged first",
    citation="paper 003, §V, Unoptimized algorithm",
    x="rate",
    measures={
        "notified": "% of what is owed, notified within two minutes of publications",
        "latency_ms": "ms from publication to notification, mean",
    },
    axes=(
        Axis("system", (PLAIN, FAST, RESOLUTION, ROOTED)),
        Axis("round_ms", (500, 1_000, 2_000), (250, 500, 1_000, 2_000, 4_000)),
        Axis("rate", (30, 120), (12, 30, 60, 120, 240)),
    ),
    run=run_livelock,
    facts=(
        same("unoptimised, 120 a minute, %", 0.0, "notified", _live(PLAIN)),
        at_least("progressive, 120 a minute, %", 95.0, "notified", _live(FAST)),
        at_least("rooted, 120 a minute, %", 95.0, "notified", _live(ROOTED)),
    ),
)

EXPERIMENTS = (FIG5, FIG6, FIG7, DEGREE, LIVELOCK)
