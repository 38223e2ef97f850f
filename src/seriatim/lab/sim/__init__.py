"""The simulator: machines under one clock, from one seed, with everything going wrong that may."""

from seriatim.lab.sim.checkers import check_integrity, check_owed
from seriatim.lab.sim.delays import LOCAL_NETWORK, WIDE_NETWORK, Constant, Uniform
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.network import Link, reliable_fifo, reliable_unordered
from seriatim.lab.sim.packets import PacketDelays
from seriatim.lab.sim.run import Outcome, Simulation, run
from seriatim.lab.sim.scenario import Options, Scenario, draw

__all__ = [
    "LOCAL_NETWORK",
    "WIDE_NETWORK",
    "Constant",
    "Link",
    "Options",
    "Outcome",
    "PacketDelays",
    "Scenario",
    "Simulation",
    "Simulator",
    "Uniform",
    "check_integrity",
    "check_owed",
    "draw",
    "reliable_fifo",
    "reliable_unordered",
    "run",
]
