"""The experiments of paper 000, Figs. 7 to 14: its statements, and how our results are compared with them.

The paper prints curves and, in its text, few numbers. Every number and every shape it states is a fact here;
docs/figures.md lists what it leaves open, and our choices.
"""

from statistics import fmean, median

from seriatim.lab.experiments.experiment import Axis, Experiment
from seriatim.lab.experiments.facts import (
    Fact,
    Judge,
    Judgement,
    Verdict,
    at,
    at_most,
    curve,
    curves,
    means,
    same,
    shape,
    values,
)
from seriatim.lab.experiments.paper000.choices import CHOICES, FORWARDS, like_the_papers
from seriatim.lab.experiments.paper000.interest import TOPICS, run_sizes
from seriatim.lab.experiments.paper000.stamping import run_stamping
from seriatim.lab.experiments.results import Results, Where

SKEWED, FLAT = "0.901", "0.349"
GEOGRAPHIC, SPRAY = "geographic", "spray"
PATTERNS = (GEOGRAPHIC, SPRAY)
LAYOUTS = ("paper", "chain", "star", "two levels", "central")
PEAK_RATE = 5_000
SUBSCRIPTIONS = 10_000  # of 1,000 clients with 10 topics each

# ── Figs. 7 and 8: sizes ──────────────────────────────────────────────────────────────────────────────────────────

MOST = 2_000_000
SIZES_AXES = (
    Axis("shape", (SKEWED, FLAT)),
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
    def verdict(mean: float) -> Judgement:
        return f"{mean / (TOPICS - 1):.1%} of {TOPICS - 1} at 200 topics each", mean >= 0.95 * TOPICS

    return means("entries", [at(shape=shape_name, subscribed=MOST)], verdict)


def _below(bound: float) -> Verdict:
    """One curve is below so much of the other at every point."""

    def verdict(ones: list[float], others: list[float]) -> Judgement:
        ratios = [one / other for one, other in zip(ones, others, strict=True)]
        return f"{min(ratios):.2f} to {max(ratios):.2f} of it", max(ratios) < bound

    return verdict


SKEWED_IS_SMALLER = curves("entries", "subscribed", at(shape=SKEWED), at(shape=FLAT), _below(1.0))

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
        shape("0.901 against 0.349", "always smaller", "at every point", SKEWED_IS_SMALLER),
    ),
)


def _deviation_is_shown(results: Results) -> Judgement:
    curves = {name: results.curve("entries_std", "subscribed", at(shape=name)).values() for name in (SKEWED, FLAT)}
    return "; ".join(f"{name}: {', '.join(f'{each:.0f}' for each in curve)}" for name, curve in curves.items()), None


FIG8 = FIG7.again(
    "000-fig8",
    "Standard deviation of the size of a stamp",
    "paper 000, Fig. 8 and §5.3",
    {"entries_std": "entries of a stamp, standard deviation over topics"},
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
    Axis("pattern", PATTERNS),
    Axis("layout", LAYOUTS),
    Axis("subscriptions", (SUBSCRIPTIONS,)),
    Axis("rate", RATES_QUICK, RATES_FULL),
)
LATENCY_UNITS = {
    "latency_ms": "ms from request to stamp, mean",
    "servers_per_stamp": "stamps handled by servers, per stamp made",
}
THROUGHPUT_UNITS = {"stamps_per_s": "stamps per second"}


def _paper(pattern: str, **more: int) -> Where:
    return at(layout="paper", pattern=pattern, **more)


def _peaks(rates: dict[int, float]) -> Judgement:
    part = rates[PEAK_RATE] / max(rates.values())
    return f"{rates[PEAK_RATE]:,.0f}/s, {part:.1%} of the most", part >= 0.9


def _typical_peak(peaks: list[float]) -> Judgement:
    """The paper measured one system. Ours differ by what happens to be coupled with server 1: a typical one counts."""
    return f"median {median(peaks):,.0f}, mean {fmean(peaks):,.0f}", median(peaks) > 4_000.0


def _most_at_peak(pattern: str) -> Fact:
    judge = curve("stamps_per_s", "rate", _paper(pattern), RATES_QUICK, _peaks)
    return shape(f"{pattern}, most stamps", "at 5,000 requests/s", "there ≥ 90 % of the most at any rate", judge)


TYPICAL_PEAK = values("stamps_per_s", _paper(GEOGRAPHIC, rate=PEAK_RATE), _typical_peak)
WELL_BELOW = curves("latency_ms", "rate", _paper(GEOGRAPHIC), _paper(SPRAY), _below(0.5))


def _fast(rate: int) -> Fact:
    where = _paper(GEOGRAPHIC, rate=rate)
    return at_most(f"geographic, {rate:,} requests/s", 300.0, "latency_ms", where, citation="paper 000, §1")


FIG9 = Experiment(
    id="000-fig9",
    title="Mean time to build a stamp, by event rate",
    citation="paper 000, Fig. 9 and §5.4",
    x="rate",
    measures=LATENCY_UNITS,
    axes=RATE_AXES,
    run=run_stamping,
    facts=(
        *map(_fast, (10_000, 5_000)),
        shape("geographic against spray", "well below", "< 0.5 of it at every rate", WELL_BELOW),
    ),
)
FIG10 = FIG9.again(
    "000-fig10",
    "Stamps per second, by event rate",
    "paper 000, Fig. 10 and §5.4",
    THROUGHPUT_UNITS,
    facts=(
        shape("geographic, 5,000 requests/s (calibrated)", "> 4,000", "half of the seeds", TYPICAL_PEAK),
        _most_at_peak(GEOGRAPHIC),
        _most_at_peak(SPRAY),
    ),
)

# ── Figs. 11 and 12: what servers forward ─────────────────────────────────────────────────────────────────────────

FORWARDING_UNITS = {"forwarded": "part of the stamp bytes a server handles that it forwards to other servers"}


def _forwarding_axes(pattern: str) -> tuple[Axis, ...]:
    return (
        Axis("layout", LAYOUTS),
        Axis("pattern", (pattern,)),
        Axis("subscriptions", (SUBSCRIPTIONS,)),
        Axis("rate", (1_000,)),
    )


def _share(server: int, pattern: str, is_right: str, low: float, high: float, band: str) -> Fact:
    """What a typical system forwards: the paper measured one, and a mean over many is swayed by a few."""

    def verdict(shares: list[float]) -> Judgement:
        return f"median {median(shares):.1%}, mean {fmean(shares):.1%}", low <= median(shares) <= high

    return shape(f"server {server}", is_right, band, values(f"forwarded[{server}]", _paper(pattern), verdict))


def _like_the_papers(results: Results) -> Judgement:
    """Single subscriptions decide which topics are coupled across sites, so systems differ; the paper had one."""
    systems = results.measures(_paper(GEOGRAPHIC))
    alike = sum(map(like_the_papers, systems))
    return f"{alike} of {len(systems)} seeds", alike >= 0.1 * len(systems)


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
    shares = [results.mean(f"forwarded[{server}]", _paper(SPRAY)) for server in range(2, 6)]
    return ", ".join(f"{share:.0%}" for share in shares), min(shares) > 0.5


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
    Axis("pattern", PATTERNS),
    Axis("layout", LAYOUTS),
    Axis("rate", (PEAK_RATE,)),
    Axis("subscriptions", (2_000, 5_000, 10_000, 20_000), (1_000, 2_000, 5_000, 7_000, 10_000, 15_000, 20_000, 50_000)),
)
PAPER_UP_TO = 10_000  # the only number of subscriptions that the paper states for the prototype
FLAT_PART = 0.5


# With 2,000 subscriptions, the fewest that overlap, and with 10,000, the most the paper states.
_GEOGRAPHIC, _SPRAY = ([_paper(pattern, subscriptions=each) for each in (2_000, PAPER_UP_TO)] for pattern in PATTERNS)


def _stays(few: float, many: float, spray_few: float, spray_many: float) -> Judgement:
    part = (many - few) / (spray_many - spray_few)
    return f"{few:,.0f} to {many:,.0f}, {part:.0%} of spray's change", part < FLAT_PART


def _degrades(bound: float) -> Verdict:
    def verdict(few: float, many: float) -> Judgement:
        times = many / few
        return f"{few:,.0f} to {many:,.0f}, {times:.2g} times", times > bound if bound > 1 else times < bound

    return verdict


def _subscription_facts(measure: str, bound: float) -> tuple[Fact, ...]:
    than = "more" if bound > 1 else "less"
    stays, degrades = means(measure, [*_GEOGRAPHIC, *_SPRAY], _stays), means(measure, _SPRAY, _degrades(bound))
    return (
        shape("geographic, 2,000 to 10,000", "no impact", "< half of spray's change", stays),
        shape("spray, 2,000 to 10,000", "degrades", f"{than} than {bound:g} times", degrades),
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
FIG14 = FIG13.again(
    "000-fig14",
    "Stamps per second, by number of subscriptions",
    "paper 000, Fig. 14 and §5.4",
    THROUGHPUT_UNITS,
    facts=_subscription_facts("stamps_per_s", 0.6),
)

EXPERIMENTS = (FIG7, FIG8, FIG9, FIG10, FIG11, FIG12, FIG13, FIG14, *CHOICES)
