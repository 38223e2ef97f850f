"""Experiments that vary one assumption each, where ours differs from paper 003 (docs/figures.md)."""

from seriatim.lab.experiments.experiment import Axis, Experiment
from seriatim.lab.experiments.facts import BAND, Fact, Judgement, at, means, shape
from seriatim.lab.experiments.paper003.overlay_runs import run_comparison, run_detection
from seriatim.lab.experiments.paper003.overlay_worlds import FAST, PROGRESSIVE
from seriatim.lab.experiments.paper003.statements import CONFLICTS, DETECTION, two_six_nine


def _ratio_at(row_us: float) -> Fact:
    return shape(
        f"a row takes {row_us:g} µs: 25 : 50 : 100 %",
        "2 : 6 : 9",
        "each ± 10 %",
        means("outgoing", [at(conflict=share, row_us=row_us) for share in CONFLICTS], two_six_nine),
        reason="brokers in time send 2.5 : 4.7 : 9; the later those of 100 % are, the less they send",
    )


TRAFFIC = Experiment(
    id="003-traffic",
    title="Outgoing messages, by what detection costs",
    citation="paper 003, Fig. 5c and §V",
    x="row_us",
    measures={"outgoing": DETECTION["outgoing"], "detection_edge_max_ms": "the longest detection at an edge, ms"},
    axes=(
        Axis("system", (PROGRESSIVE,)),
        Axis("conflict", CONFLICTS),
        Axis("entries", (300,)),
        Axis("seconds", (40,)),
        Axis("row_us", (0.0, 1.6), (0.0, 1.0, 1.6, 2.0, 2.2)),
    ),
    run=run_detection,
    seeds=1,
    limit_s=1_800.0,
    facts=(_ratio_at(0.0), _ratio_at(1.6)),
)


def _growth(handle_ms: float) -> Fact:
    def verdict(few: float, many: float) -> Judgement:
        return f"{many / few:.2f} times", many / few <= 4.0 * (1.0 + BAND)

    return shape(
        f"delay, 60 to 240 publishers, {handle_ms:g} ms",
        "linear",
        "at most 4.4 times",
        means("latency_ms", [at(publishers=each, handle_ms=handle_ms) for each in (60, 240)], verdict),
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
        Axis("system", (FAST,)),
        Axis("handle_ms", (1.0, 3.0), (0.5, 1.0, 2.0, 3.0)),
        Axis("publishers", (60, 240), (30, 60, 120, 180, 240)),
    ),
    run=run_comparison,
    seeds=1,
    limit_s=3_600.0,
    facts=(_growth(1.0), _growth(3.0)),
)

EXPERIMENTS = (TRAFFIC, HANDLING)
