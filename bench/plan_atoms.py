"""How long a plan of atoms takes, how much memory, and how that grows: 10 million subscriptions of 100,000 groups.

Two worlds. *Communities*: everybody holds ten of the fifty groups of a community, so that overlaps stay within. *Zipf*:
everybody holds ten of all groups, the i-th in proportion to 1/i, so that a few popular groups overlap with everybody
and nearly all groups are one component. Each size runs in a process of its own; time and memory are measured as in
bench/plan.py. What was written is read again, and checked for C1, C2 and direction (`read`, not timed with the rest).

Run: python -m bench.plan_atoms [--rows 1000000 10000000] [--worlds communities zipf] [--memory 4g]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.plan import HELD, Peak, family

GROUPS_OF_COMMUNITY = 50
ROWS_PER_GROUP = 100
HOSTS = 8
TIMEOUT_S = 3_600.0


class Spent(Peak):
    """Measures processor time of this process and its children, too, because others use the machine."""

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}
        self._before = self._sum()
        super().__init__()

    def processor_s(self) -> float:
        return (self._sum() - self._before) / os.sysconf("SC_CLK_TCK")

    def _look(self) -> None:
        super()._look()
        self._sum()

    def _sum(self) -> int:
        for pid in family(os.getpid()):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            self._ticks[pid] = int(fields[11]) + int(fields[12])
        return sum(self._ticks.values())


def measure(folder: Path, rows: int, world: str, memory: str) -> dict[str, Any]:
    """Make the workload (not timed), then the plan."""
    from seriatim.pipeline import workload as made
    from seriatim.pipeline.plan import Inputs, Network
    from seriatim.pipeline.plan import atoms as planning
    from seriatim.pipeline.spark.session import SparkOptions, open_session
    from seriatim.protocols.atoms.written import graph_of, parse

    topics = rows // ROWS_PER_GROUP
    is_split = world == "communities"
    workload = made.Workload(
        subscribers=rows // HELD,
        topics=topics,
        held=HELD,
        sites=topics // GROUPS_OF_COMMUNITY if is_split else 1,
        local_share=1.0,
        popularity="uniform" if is_split else "zipf",
    )
    spark = open_session(SparkOptions(master="local[2]", memory=memory), "bench")
    made.subscriptions(spark, workload).write.parquet(str(folder / "subscriptions"))
    peak = Spent()
    started = time.monotonic()
    laps: list[tuple[str, float]] = []

    def lap(line: str) -> None:
        laps.append((line, round(time.monotonic() - started, 1)))

    inputs = Inputs(spark.read.parquet(str(folder / "subscriptions")))
    network = Network({f"h{number}": "here" for number in range(HOSTS)})
    with planning.planned_atoms(inputs, network, say=lap) as plan:
        summary = planning.summary(plan)
        lap("planned")
        planning.write_atoms(plan, summary, str(folder / "plan"))
    seconds = time.monotonic() - started
    gigabytes, processor_s = peak.stop() / 2**30, peak.processor_s()
    spark.stop()
    import tomllib

    started = time.monotonic()
    text = (folder / "plan" / "plan.toml").read_text(encoding="utf-8")
    graph = graph_of(parse(tomllib.loads(text)))
    assert len(graph.atoms) == summary["atoms"], "what was written is what was planned"
    assert graph.pass_through() == summary["pass_through"], "paths are as long as was said"
    return {
        **summary,
        "seconds": round(seconds, 1),
        "processor_s": round(processor_s, 1),
        "gigabytes": round(gigabytes, 2),
        "laps": laps,
        "megabytes": round(len(text) / 2**20, 1),
        "read_s": round(time.monotonic() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--worlds", nargs="+", default=["communities", "zipf"], choices=["communities", "zipf"])
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--one", metavar="FOLDER", help="(one size, in this process, as JSON)")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(Path(given.one), given.rows[0], given.worlds[0], given.memory)))
        return
    print("world           rows  groups     atoms components backbone path mean       most  nodes", end="")
    print("  seconds processor     GB  read")
    for world in given.worlds:
        for rows in given.rows:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "bench.plan_atoms", "--one", folder, "--rows", str(rows)]
                command += ["--worlds", world, "--memory", given.memory]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{world:11} {found['subscriptions']:8,} {found['groups']:7,} {found['atoms']:9,} "
                f"{found['components']:10,} {found['backbone']:8,} {found['path_length']['mean']:9,.1f} "
                f"{found['path_length']['most']:10,.0f} {found['nodes']:6,} {found['seconds']:8.1f} "
                f"{found['processor_s']:9.1f} {found['gigabytes']:6.2f} {found['read_s']:5.1f}",
                flush=True,
            )
            print(f"          {'; '.join(f'{line}: {at_s} s' for line, at_s in found['laps'])}", flush=True)
            hosts = ", ".join(f"{host['load_per_s']:,.0f}" for host in found["hosts"])
            print(f"          loads of hosts {hosts}; plan.toml {found['megabytes']} MB", flush=True)


if __name__ == "__main__":
    main()
