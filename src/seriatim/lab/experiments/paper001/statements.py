"""The experiments of papers 001 and 002 without churn: Figs. 4 to 7 and Table 1, and how ours is compared with them.

Paper 001 is the longer and later one; what only 002 states is cited as such. Times are in units of time (u.t.).
"""

from seriatim.lab.experiments.experiment import Axis, Experiment, Parameters
from seriatim.lab.experiments.facts import BAND, Fact, Judge, Judgement, at, curves, means, ratio, same, shape
from seriatim.lab.experiments.paper001.discussion import run_discussion
from seriatim.lab.experiments.paper001.static_trees import (
    RANDOM,
    REGULAR,
    SRPT,
    VCUBE,
    VCUBE_WINDOW,
    run_one_message,
    run_publishers,
    run_topics,
)
from seriatim.lab.experiments.results import NotMeasuredError, Results, Where

SYSTEMS = (VCUBE, SRPT)
LARGE = (8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096)
LATENCY = {"latency": "u.t. from publication to reception, mean"}


# ── Fig. 4: one message ───────────────────────────────────────────────────────────────────────────────────────────

ONE_AXES = (Axis("system", SYSTEMS), Axis("subscribers", (25, 100)), Axis("size", (8, 64, 1_024, 4_096), LARGE))


def _one(system: str, subscribers: int, size: int) -> Where:
    return at(system=system, subscribers=subscribers, size=size)


def _one_hop_more(results: Results) -> Judgement:
    vcube, srpt = (results.curve("latency", "size", at(system=system, subscribers=100)) for system in SYSTEMS)
    hops = [(srpt[size] - vcube[size]) / 102.0 for size in vcube if size in srpt and int(size) >= 64]
    if not hops:
        raise NotMeasuredError
    return f"{min(hops):.2f} to {max(hops):.2f} hops more", min(hops) >= 0.9 and max(hops) <= 1.1


def _one_for_each(results: Results) -> Judgement:
    runs = results.measures(at(system=VCUBE, subscribers=25))
    exact = sum(measures["messages"] == measures["deliveries"] for measures in runs)
    return f"{exact} of {len(runs)} runs", exact == len(runs)


def _fewer(vcube: list[float], srpt: list[float]) -> Judgement:
    saved = [1.0 - one / other for one, other in zip(vcube, srpt, strict=True)]
    return f"{min(saved):.1%} to {max(saved):.1%} fewer", min(saved) >= 0.43 * (1.0 - BAND)


FEWER = curves("messages", "size", at(system=VCUBE, subscribers=25), at(system=SRPT, subscribers=25), _fewer)
MORE_WITH_8 = ratio("messages", _one(SRPT, 25, 8), _one(VCUBE, 25, 8), 2.7)


FIG4A = Experiment(
    id="001-fig4a",
    title="Latency of one message",
    citation="paper 001, Fig. 4a and §4.1",
    x="size",
    measures=LATENCY,
    axes=ONE_AXES,
    run=run_one_message,
    seeds=40,
    facts=(
        same("VCube-PS, 4,096 nodes, 25 %", 533.0, "latency", _one(VCUBE, 25, 4_096)),
        same("SRPT, 4,096 nodes, 25 %", 720.0, "latency", _one(SRPT, 25, 4_096)),
        same("VCube-PS, 1,024 nodes, 25 %", 420.0, "latency", _one(VCUBE, 25, 1_024), citation="paper 002, §IV"),
        same("SRPT, 1,024 nodes, 25 %", 620.0, "latency", _one(SRPT, 25, 1_024), citation="paper 002, §IV"),
        shape("SRPT, 100 %", "one hop more than VCube-PS", "0.9 to 1.1 hops, 64 nodes or more", _one_hop_more),
    ),
)
FIG4B = FIG4A.again(
    "001-fig4b",
    "Publication messages of one message",
    "paper 001, Fig. 4b and §4.1",
    {"messages": "copies of the publication"},
    facts=(
        shape("VCube-PS, 25 %", "one for each subscriber", "every run, the publisher not counted", _one_for_each),
        shape("SRPT, 8 nodes", "2.7 times VCube-PS", "± 10 %", MORE_WITH_8),
        shape("VCube-PS against SRPT", "at least 43 % fewer", "≥ 38.7 % at every size", FEWER),
    ),
)

# ── Fig. 5 and Table 1: many publishers ───────────────────────────────────────────────────────────────────────────


def _publishers(system: str, publishers: int, size: int, propagation: int = 100) -> Where:
    return at(system=system, publishers=publishers, size=size, propagation=propagation)


def _publisher_axes(propagation: int) -> tuple[Axis, ...]:
    return (
        Axis("system", SYSTEMS),
        Axis("publishers", (25, 100)),
        Axis("propagation", (propagation,)),
        Axis("size", (64, 128, 256, 1_024, 4_096) if propagation == 100 else (64, 128, 256), LARGE),
    )


_ALL_COPIES = (
    "each of 4,096 peers has 4,095 copies to transmit, one at a time: the last leave after 4,095 u.t., and the mean "
    "latency cannot be below 1,650 (ours is 1,965); a message alone takes 645"
)


def _more_publishers(size: int, more: float, **cited: str) -> Fact:
    judge = ratio("latency", _publishers(VCUBE, 100, size), _publishers(VCUBE, 25, size), 1.0 + more, less_one=True)
    paper = f"{more:+.1%}".replace("%", " %")
    return shape(f"VCube-PS, {size:,} nodes, 25 to 100 %", paper, "ratio ± 10 %", judge, **cited)


def _grows_linearly(of: int, to: int) -> Judge:
    """Twice the nodes are twice the messages, of one more copy each: the root's backlog doubles, and VCube-PS stays."""

    def verdict(srpt_of: float, vcube_of: float, srpt_to: float, vcube_to: float) -> Judgement:
        small, large = srpt_of / vcube_of, srpt_to / vcube_to
        return f"{small:.2f} times at {of:,}, {large:.2f} at {to:,}", 3.0 <= large / small <= 5.0

    return means("latency", [_publishers(system, 100, size) for size in (of, to) for system in (SRPT, VCUBE)], verdict)


FIG5A = Experiment(
    id="001-fig5a",
    title="Latency with many publishers, propagation 100",
    citation="paper 001, Fig. 5a and §4.2",
    x="size",
    measures=LATENCY,
    axes=_publisher_axes(100),
    run=run_publishers,
    limit_s=1_200.0,
    facts=(
        _more_publishers(1_024, 0.057, citation="paper 002, §IV"),
        _more_publishers(4_096, 0.388, reason=_ALL_COPIES),
        shape(
            "SRPT, 256 nodes, 100 %",
            "2.48 times VCube-PS",
            "± 10 %",
            ratio("latency", _publishers(SRPT, 100, 256), _publishers(VCUBE, 100, 256), 2.48),
        ),
        *(
            shape(
                f"SRPT against VCube-PS, {of:,} to {to:,}",
                "grows linearly",
                "3 to 5 times as much",
                _grows_linearly(of, to),
                reason="SRPT's latency does; that of VCube-PS with 4,096 publishers is three times what it was",
            )
            for of, to in ((256, 1_024), (1_024, 4_096))
        ),
    ),
)


def _slow(system: str) -> Where:
    return _publishers(system, 100, 256, propagation=1_000)


FIG5B = Experiment(
    id="001-fig5b",
    title="Latency with many publishers, propagation 1,000",
    citation="paper 001, Fig. 5b; paper 002, §IV",
    x="size",
    measures=LATENCY,
    axes=_publisher_axes(1_000),
    run=run_publishers,
    limit_s=1_200.0,
    facts=(
        shape(
            "SRPT, 256 nodes, 100 %",
            "+37 % over VCube-PS",
            "ratio ± 10 %",
            ratio("latency", _slow(SRPT), _slow(VCUBE), 1.37, less_one=True),
            citation="paper 002, §IV",
        ),
    ),
)


def _in_row(system: str, upto: int, low: float, high: float, paper: str, band: str) -> Fact:
    def verdict(nodes: float) -> Judgement:
        return f"{nodes:,.1f}", low <= nodes <= high

    return shape(f"{system}, queues up to {upto}", paper, band, means(f"nodes[{upto}]", [at(system=system)], verdict))


TABLE1 = Experiment(
    id="001-table1",
    title="Nodes by the mean size of their output queue, 1,024 nodes, all publish",
    citation="paper 001, Table 1 and §4.2",
    x="size",
    measures={"nodes": "nodes with a mean queue up to x (and above the x before)"},
    axes=(Axis("system", SYSTEMS), Axis("publishers", (100,)), Axis("propagation", (100,)), Axis("size", (1_024,))),
    run=run_publishers,
    seeds=5,
    facts=(
        _in_row(VCUBE, 8, 445, 545, "495 nodes", "± 50 nodes"),
        _in_row(VCUBE, 16, 459, 561, "510 nodes", "± 51 nodes"),
        _in_row(VCUBE, 32, 0, 70, "19 nodes", "± 51 nodes"),
        _in_row(SRPT, 0, 512, 512, "512 nodes", "exactly"),
        _in_row(SRPT, 2, 448, 448, "448 nodes", "exactly"),
        _in_row(SRPT, 4, 60, 60, "60 nodes", "exactly"),
        _in_row(SRPT, 8, 3, 3, "3 nodes", "exactly"),
        _in_row(SRPT, 8_192, 1, 1, "1 node: the root", "exactly"),
        same("SRPT, longest queue of the root", 9_240.0, "place_max", {"system": SRPT}),
        same("SRPT, mean queue of the root", 4_617.0, "place_max_mean", {"system": SRPT}),
    ),
)


def _queued(acks: str) -> Judge:
    return ratio("latency", at(acks=acks, publishers=100), at(acks=acks, publishers=25), 1.057, less_one=True)


_TWICE = "twice as much to send; this is why the model has them take no place"


ACKS = Experiment(
    id="001-acks",
    title="Latency with many publishers, if acknowledgements take a place in the output queue or do not",
    citation="paper 002, §IV and Table I",
    x="publishers",
    measures=LATENCY,
    axes=(
        Axis("system", (VCUBE,)),
        Axis("acks", ("queued", "not queued")),
        Axis("size", (1_024,)),
        Axis("propagation", (100,)),
        Axis("publishers", (25, 100)),
    ),
    run=run_publishers,
    facts=(
        shape("not queued, 25 to 100 %", "+5.7 %", "ratio ± 10 %", _queued("not queued")),
        shape("queued, 25 to 100 %", "+5.7 %", "ratio ± 10 %", _queued("queued"), reason=_TWICE),
    ),
)

# ── Fig. 6: a discussion ──────────────────────────────────────────────────────────────────────────────────────────

UNIFORM, EXPONENTIAL = "uniform 100", "exponential 130"  # both calibrated on the share of barriers of one entry
PAUSES = (
    *("uniform 10", "uniform 30", "uniform 50", UNIFORM, "uniform 200", "uniform 400"),
    *("exponential 60", EXPONENTIAL, "exponential 200"),
)
DISCUSSION_AXES = (Axis("size", (256,)), Axis("pause", (UNIFORM, EXPONENTIAL), PAUSES), Axis("waits", (1, 10)))
_OPEN = (
    "how long a peer waits before it answers is not stated: large barriers need long pauses, large delays short ones"
)


def _discussion(measure: str, text: str, waits: int, value: float, calibrated: bool = False) -> tuple[Fact, ...]:
    """A number of the paper, beside ours with each of the two pauses."""
    text += " (calibrated)" if calibrated else ""
    return tuple(
        same(f"wait for {waits}, {pause}: {text}", value, measure, at(waits=waits, pause=pause), reason=_OPEN)
        for pause in (UNIFORM, EXPONENTIAL)
    )


FIG6 = Experiment(
    id="001-fig6",
    title="Sizes of causal barriers, everybody answers",
    citation="paper 001, Fig. 6 and §4.3",
    x="waits",
    measures={
        "exactly": "% of messages whose barrier has as many entries as messages were waited for",
        "below": "% below 5 (waits 1) or 15 (waits 10)",
    },
    axes=DISCUSSION_AXES,
    run=run_discussion,
    facts=(
        *_discussion("exactly", "one entry, %", 1, 19.9, calibrated=True),
        *_discussion("below", "below 5, %", 1, 51.6),
        *_discussion("exactly", "ten entries, %", 10, 35.2),
        *_discussion("below", "below 15, %", 10, 79.7),
    ),
)
DELAY = FIG6.again(
    "001-delay",
    "Extra delay of causal order, everybody answers",
    "paper 001, §4.3",
    {"none": "% of receptions without extra delay", "above_50": "receptions delayed by more than 50 u.t."},
    facts=(
        same("receptions", 65_280.0, "receptions", {"waits": 1, "pause": UNIFORM}, band=0.0),
        *_discussion("none", "no delay, %", 1, 87.2),
        *_discussion("below_10", "below 10 u.t., %", 1, 95.1),
        *_discussion("above_50", "above 50 u.t.", 1, 81.0),
        *_discussion("delay_max", "longest, u.t.", 1, 150.0),
        *_discussion("none", "no delay, %", 10, 84.2),
        *_discussion("above_50", "above 50 u.t.", 10, 457.0),
        *_discussion("delay_max", "longest, u.t.", 10, 187.0),
    ),
)

# ── Fig. 7: many topics ───────────────────────────────────────────────────────────────────────────────────────────

ZIPF = "Zipf 0.825"
THREE = (VCUBE, VCUBE_WINDOW, SRPT)


def _zipf(text: str, system: str, more: float, interval: int, arrivals: str = RANDOM, reason: str = "") -> Fact:
    """What Zipf costs over uniform, with 2¹⁴ messages."""
    of, to = (
        at(system=system, popularity=popularity, interval=interval, arrivals=arrivals, messages=1 << 14)
        for popularity in (ZIPF, "uniform")
    )
    judge = ratio("latency", of, to, 1.0 + more, less_one=True)
    return shape(
        f"{system}, 2¹⁴, every {interval}{text}",
        f"Zipf {more:+.1%}".replace("%", " %"),
        "ratio ± 10 %",
        judge,
        reason=reason,
    )


_LOAD = "a message every 500 u.t. keeps the busiest root just below its limit; 430 is above it"
_WAIT = "most of it is stop-and-wait: a second message on a topic waits for the first to be acknowledged by all"


def _is_told_apart(point: Parameters) -> bool:
    """A window has nobody wait, whenever messages come; and a root's load is the same for both arrivals."""
    return point["system"] == VCUBE or point["arrivals"] == RANDOM


FIG7 = Experiment(
    id="001-fig7",
    title="Latency with 128 topics, uniform and Zipf",
    citation="paper 001, Fig. 7 and §4.4",
    x="messages",
    measures=LATENCY | {"waited_at_source": "u.t. that a message waited for the one before it"},
    axes=(
        Axis("system", THREE),
        Axis("popularity", ("uniform", ZIPF)),
        Axis("interval", (500, 430), (500, 470, 450, 430)),
        Axis("arrivals", (RANDOM, REGULAR)),
        Axis("topics", (128,)),
        Axis("size", (256,)),
        Axis("messages", (1 << 14,), tuple(1 << power for power in range(7, 15))),
    ),
    is_wanted=_is_told_apart,
    run=run_topics,
    limit_s=600.0,
    facts=(
        _zipf("", SRPT, 0.306, 500, reason=_LOAD),
        _zipf(" (calibrated)", SRPT, 0.306, 430),
        _zipf("", VCUBE, 0.092, 500, reason=_WAIT),
        _zipf(", regular", VCUBE, 0.092, 500, REGULAR, _WAIT),
        _zipf("", VCUBE, 0.092, 430, reason=_WAIT),
    ),
)

EXPERIMENTS = (FIG4A, FIG4B, FIG5A, FIG5B, TABLE1, ACKS, FIG6, DELAY, FIG7)
