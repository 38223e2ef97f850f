"""How good a plan is: beside naive placements and the lower bound, on four made-up workloads.

Wide-area hops per event, from the planner's own count (the tests hold it against the simulator's messages). Each column
is another workload over the same 4 sites and 200 topics.

Run: python -m bench.plan_quality [--topics 200] [--sites 4] [--seed 1]
"""

import argparse

from seriatim.pipeline import plan as planning
from seriatim.pipeline import workload as made
from seriatim.pipeline.spark.session import SparkOptions, spark_session

HELD = 4
WORKLOADS = ((200, 0.5), (200, 0.95), (2_000, 0.95), (2_000, 1.0))  # subscribers, local share


def main() -> None:
    """Print one line per way to place topics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    columns = [f"{subscribers:,}, {local:.0%} local" for subscribers, local in WORKLOADS]
    lines: dict[str, list[float]] = {}
    with spark_session(SparkOptions(master="local[2]", shuffle_partitions=4), "bench") as spark:
        for subscribers, local in WORKLOADS:
            workload = made.Workload(
                seed=chosen.seed,
                subscribers=subscribers,
                topics=chosen.topics,
                held=HELD,
                sites=chosen.sites,
                local_share=local,
            )
            tables = (getattr(made, name)(spark, workload) for name in ("subscriptions", "rates", "sites"))
            with planning.summed_up(planning.Inputs(*tables), order="pairwise") as summed:
                plan = planning.make_plan(summed)
                for rival in plan.rivals():
                    lines.setdefault(rival.name, []).append(plan.per_event(rival.cost.hops_per_s))
                lines.setdefault("this plan", []).append(plan.per_event(plan.cost.hops_per_s))
                lines.setdefault("lower bound", []).append(plan.per_event(plan.bound))
    print(f"{'':26}" + "".join(f"{column:>18}" for column in columns))
    for name, values in lines.items():
        print(f"{name:26}" + "".join(f"{value:18.3f}" for value in values))


if __name__ == "__main__":
    main()
