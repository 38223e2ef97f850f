"""`seriatim move`: a topic gets another home while events flow."""

import click

from seriatim.cli.cluster import find_cluster
from seriatim.cli.common import json_option, notice, run_until_interrupted, show_json, show_progress, url_option
from seriatim.cli.moving import STEPS, Moved, Mover, check_cluster, check_move, check_url


@click.command
@click.argument("topic")
@click.option("--to", required=True, metavar="NODE", help="The new home: the node that gives the topic its numbers.")
@url_option
@json_option
def command(topic: str, to: str, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Move a topic to another node of the tree, while events flow.

    The topic's events wait for their stamps for a moment; all others continue. Publishers and subscribers follow by
    themselves. The root makes one move at a time and journals each step, so that a crash of any node resumes the move
    or undoes it. A move that takes longer than --timeout is undone if it still can be. If this command is interrupted,
    the move continues; `seriatim explain` says what it waits for.

    The broker's permissions on _CLUSTER.admin.> decide who may do this.

    \b
    Examples:
      seriatim move orders --to eu
      seriatim move orders --to eu --timeout 60 --json

    \b
    Exit code: 0 the topic lives there, 1 it was refused or nobody answers, 2 wrong topic, node or options,
               3 it took too long, 130 interrupted.
    """
    check_url(url)

    async def work() -> Moved:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_cluster(found.description)
            mover = Mover(found)
            check_move(found.description, mover.tree, topic, to)
            return await mover.move(topic, to, timeout_s, lambda step: show_progress(f"{topic}: {STEPS[step]}"))

    try:
        moved = run_until_interrupted(work)
    except KeyboardInterrupt:
        notice(f"the move of {topic} continues by itself; `seriatim explain` says what it waits for")
        raise
    show_progress("")
    if as_json:
        show_json(moved.row)
    elif moved.source == to:
        click.echo(f"{topic} lives on {to}")
    else:
        click.echo(moved.text)
