"""The sequencing tree and the sequencing atoms under the same workloads, on a transit-stub topology of 10,000 routers.

128 hosts in clusters of 8. Everything is played by the protocols' machines in the simulator, so the numbers depend on
the seeds alone. docs/tree-versus-atoms.md explains them.

Run: python -m bench.tree_versus_atoms [events] [joins] [rates] [--seeds N]
"""

import sys
from statistics import fmean

from bench.compared_systems import SIZES, SYSTEMS, Workload, compare
from seriatim.lab.experiments.experiment import Measures

WORKLOADS = [
    Workload(topics, size, interest)
    for topics in (8, 32)
    for size in ("small", "large")
    for interest in ("local", "spread")
]
EVENTS = {
    "entries": "entries of a stamp, mean over events",
    "stamp_bytes": "bytes of a stamp, ids handed out",
    "hops": "messages one after the other, from publisher to member",
    "latency_ms": "ms from publication to notification, mean",
    "latency_90_ms": "… nine tenths are below",
    "busiest": "messages per event at the busiest sequencer",
    "sequencing": "messages per event at all sequencers together",
}
JOINS = {
    "join_ms": "ms until a new member is in",
    "join_messages": "messages of one join, with all that follows from it",
}


def name_of(workload: Workload) -> str:
    rate = ", even rates" if workload.even else ""
    return f"{workload.topics} topics of {SIZES[workload.size]}, {workload.interest}{rate}"


def table(found: dict[tuple[str, str], Measures], measure: str, title: str) -> None:
    """Workloads down, systems across."""
    print(f"\n{measure}: {title}")
    print(f"{'':34}" + "".join(f"{system:>25}" for system in SYSTEMS))
    for workload in dict.fromkeys(workload for workload, _ in found):
        cells = "".join(f"{found[workload, system][measure]:>25,.1f}" for system in SYSTEMS)
        print(f"{workload:34}{cells}", flush=True)


def measured(workloads: list[Workload], seeds: int) -> dict[tuple[str, str], Measures]:
    """The mean over seeds, by workload and system."""
    found: dict[tuple[str, str], Measures] = {}
    for workload in workloads:
        for system in SYSTEMS:
            runs = [compare(workload, system, seed) for seed in range(1, seeds + 1)]
            found[name_of(workload), system] = {name: fmean(run[name] for run in runs) for name in runs[0]}
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def main(arguments: list[str]) -> None:
    seeds = int(arguments[arguments.index("--seeds") + 1]) if "--seeds" in arguments else 2
    wanted = [each for each in ("events", "joins", "rates") if each in arguments] or ["events", "joins", "rates"]
    if {"events", "joins"} & set(wanted):
        found = measured(WORKLOADS, seeds)
        for section, measures in (("events", EVENTS), ("joins", JOINS)):
            if section in wanted:
                for measure, title in measures.items():
                    table(found, measure, title)
    if "rates" in wanted:
        even = [Workload(32, size, "spread", even=True) for size in SIZES]
        found = measured(even, seeds)
        for measure in ("entries", "stamp_bytes"):
            table(found, measure, EVENTS[measure])


if __name__ == "__main__":
    main(sys.argv[1:])
