"""The simulator: machines under one clock, from one seed, with everything going wrong that may."""

from seriatim.lab.sim.checkers import Violation, check_integrity, check_order, check_owed
from seriatim.lab.sim.delays import LOCAL_NETWORK, WIDE_NETWORK, Constant, Delay, Matrix, Normal, Uniform
from seriatim.lab.sim.engine import Counts, MachineFailed, Simulator
from seriatim.lab.sim.journal import Journal
from seriatim.lab.sim.network import Link, between, reliable_fifo, reliable_unordered, unreliable
from seriatim.lab.sim.packets import PacketDelays
from seriatim.lab.sim.process import Cost, Doom, QueueStatistics
from seriatim.lab.sim.run import Outcome, Simulation, run
from seriatim.lab.sim.scenario import Options, Scenario, draw
from seriatim.protocols.broker import Broker, BrokerState, Erase, Trim

__all__ = [
    "LOCAL_NETWORK",
    "WIDE_NETWORK",
    "Broker",
    "BrokerState",
    "Constant",
    "Cost",
    "Counts",
    "Delay",
    "Doom",
    "Erase",
    "Journal",
    "Link",
    "MachineFailed",
    "Matrix",
    "Normal",
    "Options",
    "Outcome",
    "PacketDelays",
    "QueueStatistics",
    "Scenario",
    "Simulation",
    "Simulator",
    "Trim",
    "Uniform",
    "Violation",
    "between",
    "check_integrity",
    "check_order",
    "check_owed",
    "draw",
    "reliable_fifo",
    "reliable_unordered",
    "run",
    "unreliable",
]
