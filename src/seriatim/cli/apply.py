"""`seriatim apply`: a running cluster is brought to a plan, node by node and topic by topic, while events flow."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, field

from seriatim.cli.changing import Changer
from seriatim.cli.cluster import Cluster, find_cluster
from seriatim.cli.common import (
    add_options,
    json_option,
    many,
    notice,
    run_until_interrupted,
    show_json,
    show_progress,
    url_option,
)
from seriatim.cli.growing import Addition, Removal, additions, check_processes, removals
from seriatim.cli.moving import Moved, Mover, apply_homes, check_cluster, check_url, homes_of_plan, keep_undo, undo_path
from seriatim.cli.node import add_node
from seriatim.model import ConnectionFailed, InputError, Node, RequestRefused, TimedOut, Topic
from seriatim.order import SequencingTree
from seriatim.server.config import read_plan
from seriatim.server.layout import Change

undo_option = add_options(
    click.option(
        "--undo-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The file that records how it was before (default: beside the plan, as NAME.undo.toml).",
    ),
)


@click.command
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only print what would change, and in which order.")
@click.option("--undo", is_flag=True, help="Move back the topics that this plan has moved; remove leaves it has added.")
@click.option("--remove-nodes", is_flag=True, help="Also remove leaves that the plan does not list.")
@undo_option
@url_option
@json_option
def command(
    plan: Path,
    dry_run: bool,
    undo: bool,
    remove_nodes: bool,
    undo_file: Path | None,
    url: str,
    cluster: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Bring a running cluster to a plan: add nodes that PLAN has, then move each topic that lives elsewhere.

    PLAN is the plan.toml of `seriatim plan`, or any file with a table [homes], or [nodes.<name>] with parents. Topics
    that it does not list stay where they are; so do nodes, unless --remove-nodes is given. The processes of new nodes
    must be there (`seriatim node add --help`); otherwise the command says how to start them, and changes nothing. Each
    topic waits while it moves, for a few messages between nodes; --timeout bounds each step. If a step cannot be done,
    the command stops and says why. Applying the plan again continues with the remaining steps, also after a crash of
    this command or of any node; --undo moves the topics back and removes what was added. A new root stays.

    \b
    Examples:
      seriatim apply plan/plan.toml --dry-run
      seriatim apply plan/plan.toml
      seriatim apply plan/plan.toml --remove-nodes
      seriatim apply plan/plan.toml --undo

    \b
    Exit code: 0 everything is as the plan says, 1 a step could not be done or nobody answers, 2 wrong plan or options,
               3 a step took too long, 130 interrupted.
    """
    check_url(url)
    kept = undo_file if undo_file is not None else undo_path(plan)
    if undo and not kept.exists():
        raise InputError(
            "--undo", f"{kept} does not exist, so this plan has moved nothing", "check the name of the plan"
        )
    if undo and remove_nodes:
        raise InputError("--remove-nodes", "--undo removes what the plan has added anyway", "leave it out")
    file = kept if undo else plan
    added = read_plan(plan)["nodes"] if undo else None
    again = f"seriatim apply {plan}"
    undo_to = None if undo else kept
    apply_file(
        file, undo_to, url, cluster, timeout_s, dry_run, as_json, again=again, removes=remove_nodes or undo, added=added
    )
    if undo and not dry_run:
        kept.unlink()


class Steps(Struct):
    """What is to be done, in this order: nodes that come, topics that move, nodes that go."""

    coming: list[Addition]
    homes: dict[Topic, Node]
    moving: dict[Topic, Node]  # topics that live elsewhere, and where
    going: list[Removal]


class Done(Struct):
    """What `apply` has done so far."""

    changes: list[Change] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)


def steps_of(
    wanted: dict[str, Any], tree: SequencingTree, homes: dict[Topic, Node], name: str, removes: bool, added: Any
) -> Steps:
    """InputError: this cluster cannot get there."""
    shape = {node: each.get("parent") for node, each in wanted["nodes"].items()}
    coming = additions(tree, shape, name) if added is None else []
    moving = {topic: tree.home(topic) for topic, node in homes.items() if tree.home(topic) != node}
    if removes and not shape and added is None:
        raise InputError("--remove-nodes", f"{name} lists no nodes, so all would go", "leave it out")
    if added is not None:
        added = {node for node in added if tree.parents.get(node) is not None}  # a new root stays
    going = removals(tree, shape, homes, name, added) if removes and shape else []
    return Steps(coming, homes, moving, going)


def apply_file(
    file: Path,
    undo: Path | None,
    url: str,
    cluster: str,
    timeout_s: float,
    dry_run: bool,
    as_json: bool,
    again: str,
    removes: bool = False,
    added: Any = None,
) -> None:
    """Do what the file says, and print what was done. `again`: the command that would go on. `removes`: nodes that it
    does not list go; `added`: only those of these."""
    wanted = read_plan(file)
    began_s = time.monotonic()

    def show(step: Moved | Change | Addition | Removal) -> None:
        show_progress("")
        if not as_json:
            click.echo(step.text)
        elif isinstance(step, Change):
            show_json({"do": "remove" if step.kind == "remove" else "add", "node": step.node, "parent": step.parent})
        else:
            show_json(step.row)

    async def work() -> tuple[Steps, Done]:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_cluster(found.description)
            tree = found.description.tree
            homes = homes_of_plan(wanted, found.description, str(file))
            steps = steps_of(wanted, tree, homes, str(file), removes, added)
            show_progress(f"{many(len(steps.moving), 'topic')} to move")
            if dry_run:
                return steps, Done()
            await check_processes(Changer(found), steps.coming, timeout_s)
            if undo is not None and (steps.coming or steps.moving):
                keep_undo(undo, homes, steps.moving, tree.parents if steps.coming else {})
        done = Done()
        for each in steps.coming:
            async with find_cluster(url, cluster, timeout_s) as found:  # as it is with the one before
                change = await add_node(found, each.node, each.parent, each.above, None, timeout_s)
            done.changes.append(change)
            show(change)
        if not steps.moving and not steps.going:
            return steps, done
        async with find_cluster(url, cluster, timeout_s) as found:  # as it is with the new nodes
            moves_began_s = time.monotonic()

            def show_move(moved: Moved) -> None:
                show(moved)
                done.moved.append(moved)
                show_progress(_progress(len(done.moved), len(steps.moving), time.monotonic() - moves_began_s))

            await apply_homes(Mover(found), homes, timeout_s, show_move)
            await _remove(found, steps.going, done, timeout_s, show)
        return steps, done

    try:
        steps, done = run_until_interrupted(work)
    except KeyboardInterrupt:
        show_progress("")
        notice(f"the current step continues by itself; `{again}` continues with the others")
        raise
    except (RequestRefused, ConnectionFailed, TimedOut) as error:
        raise type(error)(f"{error}; `{again}` continues, `{again} --undo` moves the topics back") from None
    finally:
        show_progress("")
    if dry_run:
        moves = [Dry(topic, home, steps.homes[topic]) for topic, home in steps.moving.items()]
        planned: list[Addition | Dry | Removal] = [*steps.coming, *moves, *steps.going]
        for each in planned:
            if as_json:
                show_json(each.row)
            else:
                click.echo(each.text)
    if not as_json:
        click.echo(_dry_summary(steps) if dry_run else _summary(steps, done, time.monotonic() - began_s))


async def _remove(found: Cluster, going: Sequence[Removal], done: Done, timeout_s: float, show: Any) -> None:
    for each in going:
        change = await Changer(found).change("remove", each.node, timeout_s)
        done.changes.append(change)
        show(change)


class Dry(Struct, frozen=True):
    """A topic that would move."""

    topic: Topic
    source: Node
    to: Node

    @property
    def text(self) -> str:
        return f"{self.topic}: {self.source} → {self.to}"

    @property
    def row(self) -> dict[str, Any]:
        return {"topic": self.topic, "from": self.source, "to": self.to}


def _progress(moved: int, count: int, took_s: float) -> str:
    left_s = took_s / moved * (count - moved)
    return f"{moved:,} of {many(count, 'topic')} moved, about {left_s:,.0f} s left"


def _nodes(coming: int, going: int, came: str, went: str) -> str:
    parts = [f"{many(count, 'node')} {what}" for count, what in ((coming, came), (going, went)) if count]
    return ", ".join([*parts, ""])


def _dry_summary(steps: Steps) -> str:
    nodes = _nodes(len(steps.coming), len(steps.going), "to add", "to remove")
    there = f"{many(len(steps.homes) - len(steps.moving), 'topic')} already there"
    return f"{nodes}{many(len(steps.moving), 'topic')} to move, {there}"


def _summary(steps: Steps, done: Done, took_s: float) -> str:
    gone = sum(change.kind == "remove" for change in done.changes)
    nodes = _nodes(len(done.changes) - gone, gone, "added", "removed")
    there = f"{many(len(steps.homes) - len(done.moved), 'topic')} already there"
    waits = [(each.waited_ms, each.topic) for each in done.moved if each.waited_ms is not None]
    longest = f"; the longest wait was {max(waits)[0]:,.0f} ms ({max(waits)[1]})" if waits else ""
    return f"{nodes}{many(len(done.moved), 'topic')} moved in {took_s:.1f} s, {there}{longest}"
