"""The simulator: machines under one clock, from one seed, with everything going wrong that may."""

from seriatim.protocols.tree.broker import Broker, BrokerState, Trim
from seriatim.sim.checkers import Violation, check_integrity, check_order, check_owed
from seriatim.sim.delays import LOCAL_NETWORK, WIDE_NETWORK, Constant, Delay, Matrix, Normal, Uniform
from seriatim.sim.engine import Counts, MachineFailed, Simulator
from seriatim.sim.journal import Journal
from seriatim.sim.network import Link, between, reliable_fifo, reliable_unordered, unreliable
from seriatim.sim.packets import PacketDelays
from seriatim.sim.process import Cost, Doom, QueueStatistics
from seriatim.sim.run import Outcome, Run, run
from seriatim.sim.scenario import Options, Scenario, draw

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
    "Journal",
    "Link",
    "MachineFailed",
    "Matrix",
    "Normal",
    "Options",
    "Outcome",
    "PacketDelays",
    "QueueStatistics",
    "Run",
    "Scenario",
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
