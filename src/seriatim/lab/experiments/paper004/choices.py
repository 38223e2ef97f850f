"""Results that depend on what paper 004 leaves open: experiments that vary one assumption each."""

from seriatim.lab.experiments.experiment import Axis, Experiment, Measures, Parameters
from seriatim.lab.experiments.facts import at_most, same
from seriatim.lab.experiments.paper004.atom_counts import run_nodes
from seriatim.lab.experiments.paper004.atom_latency import CLUSTER, run_stretch
from seriatim.lab.experiments.paper004.atom_layouts import EVERY_ROUTER, MACHINES, PRINTED
from seriatim.lab.experiments.paper004.memberships import SIZES

STRETCH = {
    "stretch_median": "time through the atoms ÷ time straight, half of the destinations are below",
    "stretch_max": "the destination with most",
    "ratios_median": "mean over messages of time ÷ time straight, half of the destinations are below",
}


def _run_sizes(parameters: Parameters, seed: int) -> Measures:
    counted = run_nodes({"nodes": PRINTED, **parameters}, seed)
    return counted | run_stretch(parameters, seed)


SIZES_CHOICE = Experiment(
    id="004-sizes",
    title="Sequencing nodes, stress and stretch, by what sizes of groups are proportional to",
    citation="paper 004, Figs. 3 to 6 and §4.1",
    x="groups",
    measures={"node_count": "sequencing nodes", "stress": "groups that a node forwards ÷ groups, mean"} | STRETCH,
    axes=(Axis("sizes", tuple(SIZES)), Axis("layout", (PRINTED,)), Axis("groups", (8, 30, 64), (8, 16, 30, 48, 64))),
    run=_run_sizes,
    seeds=4,
    facts=tuple(
        same(f"{sizes}, {groups} groups: stress", 0.2, "stress", {"sizes": sizes, "groups": groups}, band=0.25)
        for sizes in SIZES
        for groups in (30, 64)
    ),
)
MACHINES_CHOICE = Experiment(
    id="004-machines",
    title="Stretch as printed, by where nodes may be and by the size of clusters",
    citation="paper 004, Fig. 3 and §3.4",
    x="groups",
    measures=STRETCH,
    axes=(
        Axis("machines", MACHINES),
        Axis("cluster", (1, CLUSTER, 32), (1, 4, CLUSTER, 16, 32)),
        Axis("layout", (PRINTED,)),
        Axis("groups", (8, 64), (8, 16, 32, 64)),
    ),
    run=run_stretch,
    is_wanted=lambda point: point["machines"] == EVERY_ROUTER or point["cluster"] == CLUSTER,
    seeds=4,
    facts=tuple(
        at_most(
            f"nodes at {machines}, {groups} groups, most",
            bound,
            "stretch_max",
            {"machines": machines, "cluster": CLUSTER, "groups": groups},
        )
        for machines in MACHINES
        for groups, bound in ((8, 2.5), (64, 8.0))
    ),
)

EXPERIMENTS = (SIZES_CHOICE, MACHINES_CHOICE)
