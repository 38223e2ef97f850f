"""The experiments of paper 000, Figs. 7 to 14: what it states in words, and how ours is compared with it.

The paper prints curves and, in its text, few numbers. Every number and every shape it states is a fact here; what it
leaves open, and what we chose, is in docs/figures.md.
"""

from statistics import fmean, median

from seriatim.experiments.choices import CHOICES, FORWARDS, like_the_papers
from seriatim.experiments.experiment import Axis, Experiment
from seriatim.experiments.facts import NOT_MEASURED, Fact, Judge, Judgement, at_most, same, shape
from seriatim.experiments.interest import TOPICS
from seriatim.experiments.results import Results
from seriatim.experiments.stamp_sizes import run_sizes
from seriatim.experiments.stamping import run_stamping

SKEWED, FLAT = "0.901", "0.349"
GEOGRAPHIC, SPRAY = "geographic", "spray"
PATTERNS = (GEOGRAPHIC, SPRAY)
LAYOUTS = ("paper", "chain", "star", "two levels", "central")
PEAK_RATE = 5_000
SUBSCRIPTIONS = 10_000  # of 1,000 clients with 10 topics each

# ── Figs. 7 and 8: sizes ──────────────────────────────────────────────────────────────────────────────────────────

MOST = 2_000_000
SIZES_AXES = (
    Axis("shape", (SKEWED, FLAT), (SKEWED, FLAT)),
    Axis("subscribed", (10_000, 100_000, 500_000, MOST), (10_000, 100_000, 200_000, 500_000, 1_000_000, MOST)),
)
SIZES_UNITS = {
    "entries": "entries of a stamp, mean over topics",
    "full_entries": "entries, mean over events, whole stamps",
    "difference_entries": "entries, mean over events, differences",
    "full_bytes": "bytes, mean over events, whole stamps",
    "difference_bytes": "bytes, mean over events, differences",
}


def _saturates(shape_name: str) -> Judge:
    def judge(results: Results) -> Judgement:
        sample = results.sample("entries", {"shape": shape_name, "subscribed": MOST})
        if sample is None:
            return NOT_MEASURED
        return Judgement(
            f"{sample.mean / (TOPICS - 1):.1%} of {TOPICS - 1} at 200 topics each", sample.mean >= 0.95 * TOPICS
        )

    return judge


def _skewed_is_smaller(results: Results) -> Judgement:
    skewed = results.curve("entries", "subscribed", {"shape": SKEWED})
    flat = results.curve("entries", "subscribed", {"shape": FLAT})
    both = [at for at in skewed if at in flat and flat[at] > 0]
    if not both:
        return NOT_MEASURED
    ratios = [skewed[at] / flat[at] for at in both]
    return Judgement(f"{min(ratios):.2f} to {max(ratios):.2f} of it", max(ratios) < 1)


FIG7 = Experiment(
    id="000-fig7",
    title="Mean size of a stamp",
    citation="paper 000, Fig. 7 and §5.3",
    x="subscribed",
    measures=SIZES_UNITS,
    axes=SIZES_AXES,
    run=run_sizes,
    facts=(
        same("shape 0.349, 10 topics each (calibrated)", 46.0, "entries", {"shape": FLAT, "subscribed": 100_000}),
        same("shape 0.901, 10 topics each (calibrated)", 17.0, "entries", {"shape": SKEWED, "subscribed": 100_000}),
        same("shape 0.349, 1 topic each", 0.0, "entries", {"shape": FLAT, "subscribed": 10_000}),
        same("shape 0.901, 1 topic each", 0.0, "entries", {"shape": SKEWED, "subscribed": 10_000}),
        shape("shape 0.349, more topics", "approaches its maximum", "≥ 95 % of it", _saturates(FLAT)),
        shape("shape 0.901, more topics", "approaches its maximum", "≥ 95 % of it", _saturates(SKEWED)),
        shape("0.901 against 0.349", "always smaller", "at every point", _skewed_is_smaller),
    ),
)


def _deviation_is_shown(results: Results) -> Judgement:
    parts = []
    for name in (SKEWED, FLAT):
        curve = results.curve("entries_std", "subscribed", {"shape": name})
        parts.append(f"{name}: " + ", ".join(f"{value:.0f}" for value in curve.values()))
    return Judgement("; ".join(parts), None)


FIG8 = Experiment(
    id="000-fig8",
    shares="000-fig7",
    title="Standard deviation of the size of a stamp",
    citation="paper 000, Fig. 8 and §5.3",
    x="subscribed",
    measures={"entries_std": "entries of a stamp, standard deviation over topics"},
    axes=SIZES_AXES,
    run=run_sizes,
    facts=(
        same("shape 0.349, 1 topic each", 0.0, "entries_std", {"shape": FLAT, "subscribed": 10_000}),
        same("shape 0.901, 1 topic each", 0.0, "entries_std", {"shape": SKEWED, "subscribed": 10_000}),
        shape("the curves", "drawn, no number stated", "none", _deviation_is_shown),
    ),
)

# ── Figs. 9 and 10: latency and throughput against the rate ───────────────────────────────────────────────────────

RATES_QUICK = (1_000, 5_000, 10_000)
RATES_FULL = (500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000)
RATE_AXES = (
    Axis("pattern", PATTERNS, PATTERNS),
    Axis("layout", LAYOUTS, LAYOUTS),
    Axis("subscriptions", (SUBSCRIPTIONS,), (SUBSCRIPTIONS,)),
    Axis("rate", RATES_QUICK, RATES_FULL),
)
LATENCY_UNITS = {
    "latency_ms": "ms from request to stamp, mean",
    "servers_per_stamp": "stamps handled by servers, per stamp made",
}
THROUGHPUT_UNITS = {"stamps_per_s": "stamps per second"}


def _paper(pattern: str, **more: int) -> dict[str, str | int | float]:
    return {"layout": "paper", "pattern": pattern, **more}


def _well_below(measure: str, x: str) -> Judge:
    def judge(results: Results) -> Judgement:
        geographic = results.curve(measure, x, _paper(GEOGRAPHIC))
        spray = results.curve(measure, x, _paper(SPRAY))
        both = [at for at in geographic if at in spray]
        if not both:
            return NOT_MEASURED
        ratios = [geographic[at] / spray[at] for at in both]
        return Judgement(f"{min(ratios):.2f} to {max(ratios):.2f} of it", max(ratios) < 0.5)

    return judge


def _peaks_at(rate: int, pattern: str) -> Judge:
    def judge(results: Results) -> Judgement:
        curve = results.curve("stamps_per_s", "rate", _paper(pattern))
        if rate not in curve or len(curve) < 3:
            return NOT_MEASURED
        part = curve[rate] / max(curve.values())
        return Judgement(f"{curve[rate]:,.0f}/s, {part:.1%} of the most", part >= 0.9)

    return judge


def _typical_peak(results: Results) -> Judgement:
    """The paper measured one system. Ours differ by what happens to be coupled with server 1: a typical one counts."""
    peaks = results.values("stamps_per_s", _paper(GEOGRAPHIC, rate=PEAK_RATE))
    if not peaks:
        return NOT_MEASURED
    return Judgement(f"median {median(peaks):,.0f}, mean {fmean(peaks):,.0f}", median(peaks) > 4_000.0)


def _most_at_peak(pattern: str) -> Fact:
    return shape(
        f"{pattern}, most stamps",
        "at 5,000 requests/s",
        "there ≥ 90 % of the most at any rate",
        _peaks_at(PEAK_RATE, pattern),
    )


FIG9 = Experiment(
    id="000-fig9",
    title="Mean time to build a stamp, by event rate",
    citation="paper 000, Fig. 9 and §5.4",
    x="rate",
    measures=LATENCY_UNITS,
    axes=RATE_AXES,
    run=run_stamping,
    facts=(
        at_most(
            "geographic, 10,000 requests/s",
            300.0,
            "latency_ms",
            _paper(GEOGRAPHIC, rate=10_000),
            citation="paper 000, §1",
        ),
        at_most(
            "geographic, 5,000 requests/s",
            300.0,
            "latency_ms",
            _paper(GEOGRAPHIC, rate=5_000),
            citation="paper 000, §1",
        ),
        shape("geographic against spray", "well below", "< 0.5 of it at every rate", _well_below("latency_ms", "rate")),
    ),
)
FIG10 = Experiment(
    id="000-fig10",
    shares="000-fig9",
    title="Stamps per second, by event rate",
    citation="paper 000, Fig. 10 and §5.4",
    x="rate",
    measures=THROUGHPUT_UNITS,
    axes=RATE_AXES,
    run=run_stamping,
    facts=(
        shape("geographic, 5,000 requests/s (calibrated)", "> 4,000", "half of the seeds", _typical_peak),
        _most_at_peak(GEOGRAPHIC),
        _most_at_peak(SPRAY),
    ),
)

# ── Figs. 11 and 12: what servers forward ─────────────────────────────────────────────────────────────────────────

FORWARDING_UNITS = {"forwarded": "part of the stamp bytes a server handles that it forwards to other servers"}


def _forwarding_axes(pattern: str) -> tuple[Axis, ...]:
    return (
        Axis("layout", LAYOUTS, LAYOUTS),
        Axis("pattern", (pattern,), (pattern,)),
        Axis("subscriptions", (SUBSCRIPTIONS,), (SUBSCRIPTIONS,)),
        Axis("rate", (1_000,), (1_000,)),
    )


def _share(server: int, pattern: str, is_right: str, low: float, high: float, band: str) -> Fact:
    """What a typical system forwards: the paper measured one, and a mean over many is swayed by a few."""

    def judge(results: Results) -> Judgement:
        shares = results.values(f"forwarded[{server}]", _paper(pattern))
        if not shares:
            return NOT_MEASURED
        typical = median(shares)
        return Judgement(f"median {typical:.1%}, mean {fmean(shares):.1%}", low <= typical <= high)

    return shape(f"server {server}", is_right, band, judge)


def _like_the_papers(results: Results) -> Judgement:
    """Which topics are coupled across sites hangs on single subscriptions, so systems differ; the paper had one."""
    systems = results.measures(_paper(GEOGRAPHIC))
    if not systems:
        return NOT_MEASURED
    alike = sum(map(like_the_papers, systems))
    return Judgement(f"{alike} of {len(systems)} seeds", alike >= 0.1 * len(systems))


FIG11 = Experiment(
    id="000-fig11",
    title="What each server forwards, geographic pattern",
    citation="paper 000, Fig. 11 and §5.4",
    x="rate",
    measures=FORWARDING_UNITS,
    axes=_forwarding_axes(GEOGRAPHIC),
    run=run_stamping,
    seeds=10,
    facts=(
        _share(1, GEOGRAPHIC, "none", 0.0, 0.0, "exactly 0"),
        _share(2, GEOGRAPHIC, "none", 0.0, FORWARDS, "≤ 10 %"),
        _share(3, GEOGRAPHIC, "negligible", 0.0, FORWARDS, "≤ 10 %"),
        _share(5, GEOGRAPHIC, "forwards", FORWARDS, 1.0, "> 10 %"),
        shape("1 to 3 ≤ 10 %, 4 and 5 > 10 %", "one system", "at least 1 seed in 10", _like_the_papers),
    ),
)


def _more_than_geographic(results: Results) -> Judgement:
    shares = [results.sample(f"forwarded[{server}]", _paper(SPRAY)) for server in range(2, 6)]
    known = [share.mean for share in shares if share is not None]
    if len(known) < 4:
        return NOT_MEASURED
    return Judgement(", ".join(f"{share:.0%}" for share in known), min(known) > 0.5)


FIG12 = Experiment(
    id="000-fig12",
    title="What each server forwards, spray-and-diffuse pattern",
    citation="paper 000, Fig. 12 and §5.4",
    x="rate",
    measures=FORWARDING_UNITS,
    axes=_forwarding_axes(SPRAY),
    run=run_stamping,
    facts=(
        _share(1, SPRAY, "none", 0.0, 0.0, "exactly 0"),
        shape("servers 2 to 5", "considerably higher", "> 50 % each", _more_than_geographic),
    ),
)

# ── Figs. 13 and 14: latency and throughput against the number of subscriptions ───────────────────────────────────

SUBSCRIPTION_AXES = (
    Axis("pattern", PATTERNS, PATTERNS),
    Axis("layout", LAYOUTS, LAYOUTS),
    Axis("rate", (PEAK_RATE,), (PEAK_RATE,)),
    Axis("subscriptions", (2_000, 5_000, 10_000, 20_000), (1_000, 2_000, 5_000, 7_000, 10_000, 15_000, 20_000, 50_000)),
)
PAPER_UP_TO = 10_000  # the only number of subscriptions that the paper states for the prototype
FLAT_PART = 0.5


def _change(results: Results, measure: str, pattern: str) -> tuple[float, float] | None:
    """A measure with 2,000 subscriptions, the fewest that overlap, and with 10,000, the most the paper states."""
    curve = results.curve(measure, "subscriptions", _paper(pattern))
    return (curve[2_000], curve[PAPER_UP_TO]) if {2_000, PAPER_UP_TO} <= curve.keys() else None


def _stays(measure: str) -> Judge:
    def judge(results: Results) -> Judgement:
        geographic, spray = (_change(results, measure, pattern) for pattern in PATTERNS)
        if geographic is None or spray is None:
            return NOT_MEASURED
        part = (geographic[1] - geographic[0]) / (spray[1] - spray[0])
        return Judgement(
            f"{geographic[0]:,.0f} to {geographic[1]:,.0f}, {part:.0%} of spray's change", part < FLAT_PART
        )

    return judge


def _degrades(measure: str, bound: float) -> Judge:
    def judge(results: Results) -> Judgement:
        spray = _change(results, measure, SPRAY)
        if spray is None:
            return NOT_MEASURED
        ratio = spray[1] / spray[0]
        is_worse = ratio > bound if bound > 1 else ratio < bound
        return Judgement(f"{spray[0]:,.0f} to {spray[1]:,.0f}, {ratio:.2g} times", is_worse)

    return judge


def _subscription_facts(measure: str, bound: float) -> tuple[Fact, ...]:
    than = "more" if bound > 1 else "less"
    return (
        shape("geographic, 2,000 to 10,000", "no impact", "< half of spray's change", _stays(measure)),
        shape("spray, 2,000 to 10,000", "degrades", f"{than} than {bound:g} times", _degrades(measure, bound)),
    )


FIG13 = Experiment(
    id="000-fig13",
    title="Mean time to build a stamp, by number of subscriptions",
    citation="paper 000, Fig. 13 and §5.4",
    x="subscriptions",
    measures=LATENCY_UNITS,
    axes=SUBSCRIPTION_AXES,
    run=run_stamping,
    facts=_subscription_facts("latency_ms", 2.0),
)
FIG14 = Experiment(
    id="000-fig14",
    shares="000-fig13",
    title="Stamps per second, by number of subscriptions",
    citation="paper 000, Fig. 14 and §5.4",
    x="subscriptions",
    measures=THROUGHPUT_UNITS,
    axes=SUBSCRIPTION_AXES,
    run=run_stamping,
    facts=_subscription_facts("stamps_per_s", 0.6),
)

EXPERIMENTS = (FIG7, FIG8, FIG9, FIG10, FIG11, FIG12, FIG13, FIG14, *CHOICES)
