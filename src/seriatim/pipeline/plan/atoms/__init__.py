"""Sequencing atoms planned at scale: from subscriptions to overlaps, a sequencing graph, nodes and hosts."""

from seriatim.pipeline.plan.atoms.files import atoms_table, digests_of, summary, write_atoms, written_of
from seriatim.pipeline.plan.atoms.planner import planned_atoms

__all__ = ["atoms_table", "digests_of", "planned_atoms", "summary", "write_atoms", "written_of"]
