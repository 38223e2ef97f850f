"""How fast are trees? All peers publish once within 1,000 units of time: size² receptions, as many acknowledgements.

By the fast model (lab/experiments/paper001/tree_model.py), and up to `SIMULATED_MAX` peers by the simulator with the
protocol's own machines; both give the same times. Processor time, and the most memory that the process ever had.

Run: python bench/vcube.py [sizes …]      python bench/vcube.py profile simulator 128      … profile waves 4096
"""

import cProfile
import resource
import sys
from random import Random
from time import process_time

from seriatim.lab.experiments.paper001.tree_model import Model, Planned, on_tick, run
from seriatim.lab.experiments.paper001.tree_worlds import VCubeWorld

SIMULATED_MAX = 256
SIZES = [256, 512, 1_024, 2_048, 4_096]


def plan(size: int) -> list[Planned]:
    random = Random(f"bench {size}")
    return [Planned(on_tick(random.uniform(0.0, 1_000.0)), source) for source in range(size)]


def simulate(size: int) -> VCubeWorld:
    world = VCubeWorld(size)
    for row, publication in enumerate(plan(size)):
        world.publish(publication.source, f"e{row}", "T", publication.at)
    world.run()
    return world


def show(name: str, size: int, arrivals: int, seconds: float, latency: float) -> None:
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{name:<10} {size:>5} peers  {arrivals:>11,} arrivals  {seconds:>7.2f} s  "
        f"{1e6 * seconds / arrivals:5.2f} us each  {memory_mb:>5,} MB  latency {latency:7.1f}",
        flush=True,
    )


def main(sizes: list[int]) -> None:
    for size in sizes:
        if size <= SIMULATED_MAX:
            start = process_time()
            world = simulate(size)
            seconds = process_time() - start
            times = [time - seen.at for seen in world.seen.values() for time in seen.received.values()]
            show("simulator", size, world.simulator.counts.sent, seconds, sum(times) / len(times))
        planned = plan(size)
        start = process_time()
        outcome = run(Model(size=size, members=range(size)), planned)
        seconds = process_time() - start
        show("waves", size, outcome.arrivals, seconds, outcome.mean_latency(planned, range(size)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["profile"]:
        size = int(sys.argv[3])
        if sys.argv[2] == "simulator":
            cProfile.run("simulate(size)", sort="tottime")
        else:
            cProfile.run("run(Model(size=size, members=range(size)), plan(size))", sort="tottime")
    else:
        main([int(argument) for argument in sys.argv[1:]] or SIZES)
