"""Sequencing atoms planned at scale: from subscriptions to overlaps, a sequencing graph, nodes and hosts."""

from seriatim.pipeline.plan.atoms.files import (
    atoms_table,
    digests_of,
    groups_table,
    nodes_table,
    summary,
    write_atoms,
    written_of,
)
from seriatim.pipeline.plan.atoms.planner import AtomsPlan, planned_atoms

__all__ = [
    "AtomsPlan",
    "atoms_table",
    "digests_of",
    "groups_table",
    "nodes_table",
    "planned_atoms",
    "summary",
    "write_atoms",
    "written_of",
]
