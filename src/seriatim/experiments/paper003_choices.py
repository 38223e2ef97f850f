"""Experiments that vary one assumption each, where ours differs from paper 003 (docs/figures.md)."""

from seriatim.experiments.experiment import Axis, Experiment, Value
from seriatim.experiments.facts import BAND, NOT_MEASURED, Fact, Judgement, shape
from seriatim.experiments.overlay_runs import run_comparison, run_detection
from seriatim.experiments.overlay_worlds import FAST, PROGRESSIVE
from seriatim.experiments.paper003 import CONFLICTS, DETECTION, means
from seriatim.experiments.results import Results


def _ratio_at(row_us: float) -> Fact:
    def judge(results: Results) -> Judgement:
        points: list[dict[str, Value]] = [{"conflict": share, "row_us": row_us} for share in CONFLICTS]
        found = means(results, "outgoing", points)
        if found is None:
            return NOT_MEASURED
        quarter, half = (9.0 * each / found[-1] for each in found[:-1])
        is_within = abs(quarter - 2.0) <= BAND * 2.0 and abs(half - 6.0) <= BAND * 6.0
        return Judgement(f"{quarter:.1f} : {half:.1f} : 9", is_within)

    return shape(
        f"a row takes {row_us:g} µs: 25 : 50 : 100 %",
        "2 : 6 : 9",
        "each ± 10 %",
        judge,
        reason="brokers in time send 2.5 : 4.7 : 9; the later those of 100 % are, the less they send",
    )


TRAFFIC = Experiment(
    id="003-traffic",
    title="Outgoing messages, by what detection costs",
    citation="paper 003, Fig. 5c and §V",
    x="row_us",
    measures={"outgoing": DETECTION["outgoing"], "detection_edge_max_ms": "the longest detection at an edge, ms"},
    axes=(
        Axis("system", (PROGRESSIVE,), (PROGRESSIVE,)),
        Axis("conflict", CONFLICTS, CONFLICTS),
        Axis("entries", (300,), (300,)),
        Axis("seconds", (40,), (40,)),
        Axis("row_us", (0.0, 1.6), (0.0, 1.0, 1.6, 2.0, 2.2)),
    ),
    run=run_detection,
    seeds=1,
    limit_s=1_800.0,
    facts=(_ratio_at(0.0), _ratio_at(1.6)),
)


def _growth(handle_ms: float) -> Fact:
    def judge(results: Results) -> Judgement:
        points: list[dict[str, Value]] = [{"publishers": each, "handle_ms": handle_ms} for each in (60, 240)]
        found = means(results, "latency_ms", points)
        if found is None:
            return NOT_MEASURED
        return Judgement(f"{found[1] / found[0]:.2f} times", found[1] / found[0] <= 4.0 * (1.0 + BAND))

    return shape(
        f"delay, 60 to 240 publishers, {handle_ms:g} ms",
        "linear",
        "at most 4.4 times",
        judge,
        reason="the busiest core has more to do than it can",
    )


HANDLING = Experiment(
    id="003-handling",
    title="End-to-end delay of the paper's order, by what a message takes",
    citation="paper 003, Fig. 7 and §V",
    x="publishers",
    measures={
        "latency_ms": "ms from publication to a subscriber at the same broker, mean",
        "latency_max_ms": "the longest",
    },
    axes=(
        Axis("system", (FAST,), (FAST,)),
        Axis("handle_ms", (1.0, 3.0), (0.5, 1.0, 2.0, 3.0)),
        Axis("publishers", (60, 240), (30, 60, 120, 180, 240)),
    ),
    run=run_comparison,
    seeds=1,
    limit_s=3_600.0,
    facts=(_growth(1.0), _growth(3.0)),
)

EXPERIMENTS = (TRAFFIC, HANDLING)
