"""`seriatim apply`: a running cluster is brought to a plan, topic by topic, while events flow."""

import time
from pathlib import Path

import click

from seriatim.cli.cluster import find_cluster
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
from seriatim.cli.moving import Moved, Mover, apply_homes, check_cluster, check_url, homes_of_plan, undo_path
from seriatim.model import ConnectionFailed, InputError, Node, RequestRefused, TimedOut, Topic
from seriatim.server.config import read_plan

undo_option = add_options(
    click.option(
        "--undo-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The file that records where topics lived before (default: beside the plan, as NAME.undo.toml).",
    ),
)


@click.command
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only print what would move, and in which order.")
@click.option("--undo", is_flag=True, help="Move back the topics that this plan has moved.")
@undo_option
@url_option
@json_option
def command(
    plan: Path,
    dry_run: bool,
    undo: bool,
    undo_file: Path | None,
    url: str,
    cluster: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Bring a running cluster to a plan: move each topic of PLAN that lives elsewhere, one after the other.

    PLAN is the plan.toml of `seriatim plan`, or any file with a table [homes]. Topics that it does not list stay where
    they are. Each topic waits while it moves, for a few messages between nodes; --timeout bounds that. If a topic
    cannot be moved, the command stops and says why. Applying the plan again continues with the remaining topics, also
    after a crash of this command or of any node; --undo moves the topics back.

    \b
    Examples:
      seriatim apply plan/plan.toml --dry-run
      seriatim apply plan/plan.toml
      seriatim apply plan/plan.toml --undo

    \b
    Exit code: 0 everything lives where the plan says, 1 a topic could not be moved or nobody answers, 2 wrong plan or
               options, 3 a topic took too long, 130 interrupted.
    """
    check_url(url)
    kept = undo_file if undo_file is not None else undo_path(plan)
    if undo and not kept.exists():
        raise InputError(
            "--undo", f"{kept} does not exist, so this plan has moved nothing", "check the name of the plan"
        )
    file = kept if undo else plan
    apply_file(file, None if undo else kept, url, cluster, timeout_s, dry_run, as_json, again=f"seriatim apply {plan}")
    if undo and not dry_run:
        kept.unlink()


def apply_file(
    file: Path, undo: Path | None, url: str, cluster: str, timeout_s: float, dry_run: bool, as_json: bool, again: str
) -> None:
    """Move topics to where the file says, and print what moved. `again`: the command that would go on."""
    wanted = read_plan(file)
    began_s = time.monotonic()

    def show(moved: Moved) -> None:
        if as_json:
            show_json(moved.row)
        else:
            click.echo(moved.text)

    async def work() -> tuple[dict[Topic, Node], list[Moved], int]:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_cluster(found.description)
            homes = homes_of_plan(wanted, found.description, str(file))
            mover = Mover(found)
            left = {topic: mover.tree.home(topic) for topic, node in homes.items() if mover.tree.home(topic) != node}
            show_progress(f"{many(len(left), 'topic')} to move")
            if dry_run:
                return homes, [Moved(topic, home, homes[topic], None) for topic, home in left.items()], len(left)
            return homes, await apply_homes(mover, homes, undo, timeout_s, show), len(left)

    try:
        homes, moved, _ = run_until_interrupted(work)
    except KeyboardInterrupt:
        notice(f"the current move continues by itself; `{again}` continues with the other topics")
        raise
    except (RequestRefused, ConnectionFailed, TimedOut) as error:
        raise type(error)(f"{error}; `{again}` continues, `{again} --undo` moves the topics back") from None
    if dry_run:
        for each in moved:
            if as_json:
                show_json({"topic": each.topic, "from": each.source, "to": each.to})
            else:
                click.echo(f"{each.topic}: {each.source} → {each.to}")
    if as_json:
        return
    there = f"{many(len(homes) - len(moved), 'topic')} already there"
    if dry_run:
        click.echo(f"{many(len(moved), 'topic')} to move, {there}")
        return
    waits = [(each.waited_ms, each.topic) for each in moved if each.waited_ms is not None]
    longest = f"; the longest wait was {max(waits)[0]:,.0f} ms ({max(waits)[1]})" if waits else ""
    click.echo(f"{many(len(moved), 'topic')} moved in {time.monotonic() - began_s:.1f} s, {there}{longest}")
