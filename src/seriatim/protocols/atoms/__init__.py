"""Sequencing atoms: one order across groups by numbers collected on a planned path. README.md is the description."""

from seriatim.protocols.atoms.bounds import lower_bound
from seriatim.protocols.atoms.building import build
from seriatim.protocols.atoms.coordinator import Coordinator
from seriatim.protocols.atoms.graph import Atom, GraphError, Route, SequencingGraph, check
from seriatim.protocols.atoms.host import AtomHost
from seriatim.protocols.atoms.ingress import Ingress
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.plan import COORDINATOR, Plan, plan_of
from seriatim.protocols.atoms.receiver import Receiver

__all__ = [
    "COORDINATOR",
    "Atom",
    "AtomHost",
    "AtomsOptions",
    "Coordinator",
    "GraphError",
    "Ingress",
    "Plan",
    "Receiver",
    "Route",
    "SequencingGraph",
    "build",
    "check",
    "lower_bound",
    "plan_of",
]
