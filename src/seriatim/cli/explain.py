"""`seriatim explain`: what is unfinished in a running cluster, and what it waits for."""

import click

from seriatim.cli.answers import EXIT_SILENT, show_waits
from seriatim.cli.brokers import explain_brokers, is_overlay
from seriatim.cli.common import json_option, peer_options, run_until_interrupted, url_option
from seriatim.cli.peers import check_no_files, explain_peers, is_peers
from seriatim.model import Node
from seriatim.server.status import NodeExplanation

HELP = """Say what waits for what in a running cluster.

Each node names its unfinished work: ranges of numbers without a stamp or not yet kept by the broker, joins under way,
messages that a neighbour has not acknowledged, connections that are down. Under load there is always some unfinished
work; it is a problem only if the same work stays unfinished.

\b
Examples:
  seriatim explain
  seriatim explain --json
  seriatim explain --url vcube://127.0.0.1:7500

\b
Exit code: 0 every node has answered, 1 one has not, 2 wrong options, 130 interrupted.
"""


@click.command(help=HELP)
@url_option
@peer_options
@json_option
@click.pass_context
def command(
    context: click.Context, /, url: str, cluster: str, timeout_s: float, as_json: bool, **files: str | None
) -> None:
    """Say what waits for what in a running cluster."""
    from seriatim.cli.cluster import find_cluster

    if is_peers(url):
        context.exit(explain_peers(url, files, timeout_s, as_json))
    if is_overlay(url):
        context.exit(explain_brokers(url, files, timeout_s, as_json))
    check_no_files(files)

    async def ask() -> list[tuple[Node, NodeExplanation | None]]:
        async with find_cluster(url, cluster, timeout_s) as found:
            return await found.explain()

    answers = run_until_interrupted(ask)
    for node, explanation in answers:
        if explanation is None:
            show_waits("node", node, node, ["does not answer: is it running?"], 0, as_json)
        else:
            show_waits("node", node, node, explanation.waits, explanation.left_out, as_json)
    context.exit(EXIT_SILENT if any(explanation is None for _, explanation in answers) else 0)
