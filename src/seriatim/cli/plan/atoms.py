"""`seriatim plan --order atoms`: the part of the command that is about sequencing atoms."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from seriatim.cli.common import show_json
from seriatim.runtime.tables import read_toml

EXIT_DIFFERS = 1
SHOWN_MAX = 10


def is_for_atoms(path: Path) -> bool:
    """Whether a plan.toml is one of atoms."""
    from seriatim.protocols.atoms.written import is_atoms

    return is_atoms(read_toml(path, "plan.toml"))


def refuse(given: dict[str, Any]) -> None:
    """Refuse options that are for trees only."""
    for name, option in (("buckets", "--buckets"), ("questions", "--what-if"), ("compare", "--compare")):
        if given[name]:
            raise click.UsageError(f"{option} is for the tree, not for atoms.")


def make(inputs: Any, network: Any, causal: bool, out: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Make a plan, write it and print a summary."""
    from seriatim.pipeline.plan import atoms as planning

    with planning.planned_atoms(inputs, network, causal, say) as plan:
        found = planning.summary(plan, out.rstrip("/").rpartition("/")[2])
        planning.write_atoms(plan, found, out)
    return found


def show(found: dict[str, Any], path: str, as_json: bool) -> None:
    """Print the plan, as text or as JSON."""
    if as_json:
        show_json(found)
        return
    click.echo(f"{found['groups']:,} groups, {found['subscriptions']:,} subscriptions, {found['atoms']:,} atoms")
    backbone = f", {found['backbone']:,} groups in backbones" if found["backbone"] else ""
    click.echo(f"{found['components']:,} components{backbone}, {found['nodes']:,} sequencing nodes")
    lengths = found["path_length"]
    click.echo(
        f"\na group with atoms passes {lengths['mean']:,.1f} of them (half pass at most {lengths['half']:,.0f})"
        f", {found['pass_through']:,} pass-throughs in all"
    )
    if found["longest_path"] is not None:
        click.echo(f"the longest path is that of {found['longest_path']['topic']}: {lengths['most']:,.0f} atoms")
    click.echo(
        f"hops between hosts per event {found['hops_per_event']:.3f}, wide-area {found['wide_hops_per_event']:.3f}"
    )
    width = max(4, *(len(host["name"]) for host in found["hosts"]))
    place = max(4, *(len(host["site"]) for host in found["hosts"]))
    click.echo(f"\n  {'host':{width}}  {'site':{place}}  {'nodes':>8}  {'atoms':>9}  {'events/s':>10}")
    for host in found["hosts"]:
        line = f"  {host['name']:{width}}  {host['site']:{place}}  {host['nodes']:>8,}  {host['atoms']:>9,}"
        click.echo(f"{line}  {host['load_per_s']:>10,.1f}")
    heaviest = found["node_load"]["most"]
    if heaviest > found["load_max"] * 1.000001:
        click.echo(
            f"\none node sees {heaviest:,.1f} events/s, more than {found['load_max']:,.1f}: all its groups pass it"
        )
    click.echo(f"\nwrote {path}")


def show_check(inputs: Any, path: Path, as_json: bool) -> int:
    """Print whether the plan is a valid graph, and whether it fits the present members."""
    from seriatim.pipeline.plan import atoms as planning
    from seriatim.protocols.atoms.written import differences, graph_of, parse

    written = parse(read_toml(path, "plan.toml"))
    graph = graph_of(written)
    found = differences(written, planning.digests_of(inputs.held))
    if as_json:
        show_json({"plan": str(path), "atoms": len(graph.atoms), "differs": dict(found)})
    else:
        for topic, problem in found[:SHOWN_MAX]:
            click.echo(f"{topic}: {problem}")
        if len(found) > SHOWN_MAX:
            click.echo(f"and {len(found) - SHOWN_MAX:,} more")
        if not found:
            click.echo(f"{path} is for these {len(written.topics):,} topics and their members")
    return EXIT_DIFFERS if found else 0
