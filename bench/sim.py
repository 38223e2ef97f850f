"""How fast is the engine? Messages per second through machines that do next to nothing.

Processor time, not the clock on the wall, so that a busy machine distorts it less; it still does.

Run: python bench/sim.py [messages]
"""

import cProfile
import sys
from time import process_time

from msgspec import Struct

from seriatim.lab.sim.delays import Constant, Delay, Normal
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.network import Link, unreliable
from seriatim.lab.sim.process import Cost, Restore
from seriatim.model import Address
from seriatim.protocols.machine import Effects, Payload


class Token(Struct, frozen=True):
    number: int


class Relay:
    """Passes every message on to the next machine of a ring: one step, one message, no state."""

    def __init__(self, target: Address, wishes: bool = False) -> None:
        self.target = target
        self.wishes = wishes

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        effects.send.append((self.target, message))
        if self.wishes:
            effects.wake_at = now + 1000.0
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


def start_relay(target: Address, wishes: bool) -> Restore:
    return lambda records, epoch: Relay(target, wishes)


def ring(machines: int, link: Link, cost: Cost | None = None, wishes: bool = False, tokens: int = 1000) -> Simulator:
    simulator = Simulator(seed=1, link=link)
    for index in range(machines):
        simulator.add(f"m{index}", start_relay(f"m{(index + 1) % machines}", wishes), cost)
    for index in range(tokens):
        simulator.command(f"m{index % machines}", Token(index))
    return simulator


def measure(name: str, simulator: Simulator, messages: int) -> None:
    start = process_time()
    simulator.run(steps_max=messages)
    seconds = process_time() - start
    rate = simulator.counts.steps / seconds
    print(f"{name:<44} {rate:>10,.0f} messages/s  {1e6 / rate:5.2f} us each  10 million in {1e7 / rate:4.0f} s")


def main(messages: int) -> None:
    normal: Delay = Normal(10.0, 2.0)
    measure("constant delay, 100 machines", ring(100, Link(Constant(10.0))), messages)
    measure("normal delay, 100 machines", ring(100, Link(normal)), messages)
    measure("normal delay, 1,000 machines", ring(1_000, Link(normal)), messages)
    measure("normal delay, 10,000 machines", ring(10_000, Link(normal), tokens=10_000), messages)
    measure("normal delay, a timer wish with every step", ring(100, Link(normal), wishes=True), messages)
    measure("reordering, 100 machines", ring(100, unreliable(normal, loss=0.0, duplication=0.0)), messages)
    measure("processing and transmission, 100 machines", ring(100, Link(Constant(100.0)), Cost(1.0, 1.0)), messages)


if __name__ == "__main__":
    if sys.argv[1:] == ["profile"]:
        cProfile.run("main(200_000)", sort="tottime")
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
