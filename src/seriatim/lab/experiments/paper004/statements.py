"""The experiments of paper 004, Figs. 3 to 8: its statements, and how our results are compared with them.

The paper draws curves and states few numbers. Where it uses words, the band is ours. docs/figures.md lists what it
leaves open, and our choices; choices.py varies the choices individually.
"""

from itertools import pairwise

from seriatim.lab.experiments.experiment import Axis, Experiment
from seriatim.lab.experiments.facts import Judge, Judgement, at, at_most, curve, means, same, shape
from seriatim.lab.experiments.paper004.atom_counts import BY_CHANCE, IN_MOST, run_nodes, run_occupancy
from seriatim.lab.experiments.paper004.atom_latency import BINS, run_penalty, run_stretch
from seriatim.lab.experiments.paper004.atom_layouts import LAYOUTS, OURS, PRINTED
from seriatim.lab.experiments.results import Results, Where

# ── Figs. 3 and 4: latency ────────────────────────────────────────────────────────────────────────────────────────

GROUPS = (8, 16, 32, 64)
STRETCH_UNITS = {
    "stretch_median": "time through the atoms ÷ time straight, half of the destinations are below",
    "stretch_90": "nine tenths of the destinations are below",
    "stretch_max": "the destination with most",
    "hops": "from sequencing node to sequencing node, mean over groups",
    "nodes": "sequencing nodes, with ingress-only ones",
}
_BY_CHANCE = (
    "nodes that are placed by chance lie far from some hosts, and some of these are near to those they hear from; the "
    "same groups at our places have 2.6, and where everybody hears from everybody it is 2.8 (004-sizes)"
)


def _grows_less(measure: str) -> Judge:
    def verdict(few: float, many: float) -> Judgement:
        return f"{few:.2f} to {many:.2f}, {many / few:.2f} times", many / few < 8.0

    return means(measure, [at(layout=PRINTED, groups=groups) for groups in (8, 64)], verdict)


FIG3 = Experiment(
    id="004-fig3",
    title="Latency stretch of destinations, by number of groups",
    citation="paper 004, Fig. 3 and §4.2",
    x="groups",
    measures=STRETCH_UNITS,
    axes=(Axis("layout", LAYOUTS), Axis("groups", GROUPS)),
    run=run_stretch,
    seeds=8,
    facts=(
        at_most("8 groups, most", 2.5, "stretch_max", {"layout": PRINTED, "groups": 8}, reason=_BY_CHANCE),
        at_most("64 groups, most", 8.0, "stretch_max", {"layout": PRINTED, "groups": 64}),
        shape("8 times the groups, most", "sub-linear", "< 8 times", _grows_less("stretch_max")),
        shape("8 times the groups, median", "sub-linear", "< 8 times", _grows_less("stretch_median")),
        at_most("64 groups, most, ours", 8.0, "stretch_max", {"layout": OURS, "groups": 64}),
    ),
)


def _worst_are_close(layout: str) -> Judge:
    def verdict(share: float) -> Judgement:
        return f"{share:.1%} of the highest hundredth", share >= 0.95

    return means("highest_among_close", [at(layout=layout)], verdict)


def _falls(results: Results) -> Judgement:
    """Tenth by tenth of the pairs, the closest first."""
    found = [results.mean(f"penalty[{place}]", at(layout=PRINTED)) for place in range(1, BINS + 1)]
    is_falling = all(after <= before for before, after in pairwise(found))
    return f"{found[0]:.0f}, then {found[1]:.1f} down to {found[-1]:.1f}", is_falling


FIG4 = Experiment(
    id="004-fig4",
    title="Relative delay penalty of pairs, by how far apart they are, 64 groups",
    citation="paper 004, Fig. 4 and §4.2",
    x="groups",
    measures={
        "penalty": "time through the atoms ÷ time straight, mean of a tenth of the pairs, the closest first",
        "straight_ms": "ms straight, mean of the same tenth",
    },
    axes=(Axis("layout", LAYOUTS), Axis("groups", (64,))),
    run=run_penalty,
    seeds=3,
    facts=(
        shape("highest penalties", "very close pairs", "≥ 95 % in the closest tenth", _worst_are_close(PRINTED)),
        shape("penalties by distance", "highest when close", "falls tenth by tenth", _falls),
        shape("highest penalties, ours", "very close pairs", "≥ 95 % in the closest tenth", _worst_are_close(OURS)),
    ),
)

# ── Figs. 5 to 7: nodes, their stress, and paths ──────────────────────────────────────────────────────────────────

COUNT_AXES = (
    Axis("nodes", (PRINTED, OURS)),
    Axis("groups", (1, 8, 16, 30, 48, 64), (1, 2, 4, 8, 12, 16, 20, 24, 30, 36, 40, 48, 56, 64)),
)


def _by_groups(measure: str, *groups: int) -> tuple[str, list[Where]]:
    return measure, [at(nodes=PRINTED, groups=each) for each in groups]


def _slower_after_30(one: float, thirty: float, most: float) -> Judgement:
    before, after = (thirty - one) / 29, (most - thirty) / 34
    return f"{before:.2f} nodes for a group, then {after:.2f}", thirty > one and after < before / 2


SLOWER = means(*_by_groups("node_count", 1, 30, 64), _slower_after_30)


FIG5 = Experiment(
    id="004-fig5",
    title="Sequencing nodes, by number of groups",
    citation="paper 004, Fig. 5 and §4.3",
    x="groups",
    measures={"node_count": "sequencing nodes", "overlaps": "double overlaps"},
    axes=COUNT_AXES,
    run=run_nodes,
    seeds=20,
    facts=(shape("1 to 64 groups", "grows, more gradually after 30", "less than half as fast", SLOWER),),
)


def _settles(stress: dict[int, float]) -> Judgement:
    settled = [value for groups, value in stress.items() if groups >= 16]
    text = f"{stress[8]:.2f}, then {min(settled):.2f} to {max(settled):.2f}"
    return text, min(settled) >= 0.15 and max(settled) <= 0.25


def _rises_slightly(thirty: float, most: float) -> Judgement:
    return f"{thirty:.3f} to {most:.3f}, {most / thirty:.2f} times", 1.0 < most / thirty < 1.5


SETTLES = curve("stress", "groups", at(nodes=PRINTED), (8, 16, 30, 64), _settles)
RISES = means(*_by_groups("stress", 30, 64), _rises_slightly)


FIG6 = FIG5.again(
    "004-fig6",
    "Stress of sequencing nodes: the part of the groups that each forwards",
    "paper 004, Fig. 6 and §4.3",
    {
        "stress": "groups that a node forwards ÷ groups, mean over nodes",
        "stress_90": "nine tenths of the nodes are below",
        "stress_max": "the node with most",
        "own_stress": "groups that a node numbers ÷ groups, mean over nodes",
    },
    facts=(
        shape("16 groups and more (calibrated)", "settles about 0.2", "0.15 to 0.25", SETTLES),
        shape("30 to 64 groups", "rises slightly", "more, but < 1.5 times", RISES),
    ),
)
_PASSED = "a path also passes atoms that do not number its group; the paper counts numbers"

FIG7 = FIG5.again(
    "004-fig7",
    "Sequencing atoms on a path ÷ number of hosts",
    "paper 004, Fig. 7 and §4.4",
    {
        "numbers_median": "numbers that a message collects ÷ hosts, half of the groups are below",
        "numbers_max": "the group with most",
        "passed_median": "atoms that a message passes ÷ hosts, half of the groups are below",
        "passed_max": "the group with most",
    },
    facts=(
        at_most("numbers collected, 64 groups, worst", 0.5, "numbers_max", {"nodes": PRINTED, "groups": 64}),
        at_most("atoms passed, 64 groups, worst", 0.5, "passed_max", at(nodes=PRINTED, groups=64), reason=_PASSED),
    ),
)

# ── Fig. 8: occupancy ─────────────────────────────────────────────────────────────────────────────────────────────

_NOT_IN_ALL = (
    "a member chosen by chance is not in all overlaps; chosen as the one in most overlaps, it is (the other curve)"
)


def _peak(nodes: dict[float, float]) -> Judgement:
    top = max(nodes, key=nodes.__getitem__)
    falls = all(later <= earlier for earlier, later in pairwise(nodes[at] for at in nodes if at >= top))
    return f"{nodes[top]:.0f} at {top}, then falls", 0.1 <= top <= 0.3 and falls


def _overlaps_rise(overlaps: dict[float, float]) -> Judgement:
    part = overlaps[0.2] / max(overlaps.values())
    return f"{part:.0%} of the most there", part >= 0.9


PEAK = curve("node_count", "occupancy", at(member=BY_CHANCE), 5, _peak)
OVERLAPS_RISE = curve("overlaps", "occupancy", at(member=BY_CHANCE), (0.2,), _overlaps_rise)


FIG8 = Experiment(
    id="004-fig8",
    title="Double overlaps and sequencing nodes, by occupancy",
    citation="paper 004, Fig. 8 and §4.5",
    x="occupancy",
    measures={"overlaps": "double overlaps", "node_count": "sequencing nodes"},
    axes=(
        Axis("member", (BY_CHANCE, IN_MOST)),
        Axis(
            "occupancy",
            (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0),
            tuple(round(step * 0.05, 2) for step in range(21)),
        ),
    ),
    run=run_occupancy,
    seeds=5,
    facts=(
        shape("double overlaps", "rise until about 0.2", "≥ 90 % of the most at 0.2", OVERLAPS_RISE),
        shape("most nodes", "at about 0.2", "at 0.1 to 0.3, then falls", PEAK),
        same("nodes, everybody in every group", 1.0, "node_count", {"member": BY_CHANCE, "occupancy": 1.0}),
        same("nodes, above 0.9", 1.0, "node_count", {"member": BY_CHANCE, "occupancy": 0.95}, reason=_NOT_IN_ALL),
        same("nodes, above 0.9, member in most overlaps", 1.0, "node_count", {"member": IN_MOST, "occupancy": 0.95}),
    ),
)

EXPERIMENTS = (FIG3, FIG4, FIG5, FIG6, FIG7, FIG8)
