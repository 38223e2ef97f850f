"""`seriatim accept`: a stream was deleted on purpose, and its topic continues with the present one."""

import asyncio
import sys

import click
import msgspec

from seriatim.cli.cluster import Cluster, find_cluster
from seriatim.cli.common import is_direct, json_option, run_until_interrupted, show_json, url_option
from seriatim.model import InputError, TimedOut
from seriatim.server.acceptance import Accept, Acceptance

LOOK_S = 0.1
EXIT_REFUSED = 1


@click.command
@click.argument("topic")
@click.option("--drop-events", "drop", is_flag=True, help="Drop the events that the new stream already holds.")
@url_option
@json_option
def command(topic: str, drop: bool, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Accept that the stream of TOPIC was deleted.

    Homes and subscribers refuse a stream that was deleted and created again, because its numbers start over; `seriatim
    status` names it. If it was deleted on purpose, this command lets the topic continue: the home forgets the old
    stream, and the new one (which is created if there is none) continues after the last number. Every subscriber gets a
    gap, and loses its unread events. The home journals the decision, so a restart changes nothing.

    Events that are already in the new stream were never numbered. They cannot be kept: --drop-events drops them. If the
    stream is still the old one, the command is refused.

    \b
    Examples:
      seriatim accept orders
      seriatim accept orders --drop-events --json

    \b
    Exit code: 0 accepted, 1 refused, 2 wrong options, 3 not finished in time (it continues), 130 interrupted.
    """
    if is_direct(url):
        raise InputError("--url", "peers and overlays have no streams", "name the broker of a sequencing tree")

    async def work() -> Acceptance:
        async with find_cluster(url, cluster, timeout_s) as found:
            return await accept(found, topic, drop, timeout_s)

    answer = run_until_interrupted(work)
    if as_json:
        show_json(msgspec.to_builtins(answer))
    elif answer.refused:
        click.echo(f"{answer.topic}: not accepted: {answer.refused}", err=True)
    else:
        click.echo(f"{answer.topic}: accepted; it continues at {answer.first}, {answer.dropped} events were dropped")
    sys.exit(EXIT_REFUSED if answer.refused else 0)


async def accept(found: Cluster, topic: str, drop: bool, timeout_s: float) -> Acceptance:
    """Ask the topic's home until it is done. TimedOut: it is not, in this time."""
    name = found.ordered_topic(topic)
    tree = found.description.tree
    if found.description.order == "atoms":
        raise InputError("TOPIC", "sequencing atoms keep no log of a topic", "this command is for a sequencing tree")
    if not tree.knows(name):
        raise InputError("TOPIC", f"no node is home to {name!r}", "add it to homes, or set default_home")
    home, question = tree.home(name), Accept(topic=name, drop=drop)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await found.ask_node(home, "accept", question, Acceptance)
                if answer.refused or answer.is_done:
                    return answer
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise TimedOut(f"{topic} is being accepted, which was not done within {timeout_s:g} s; it continues") from None
