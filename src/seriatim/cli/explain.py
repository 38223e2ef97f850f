"""`seriatim explain`: what is unfinished in a running cluster, and what it waits for."""

import sys
from typing import Any

import click

from seriatim.cli.cluster import find_cluster
from seriatim.cli.common import (
    check_no_files,
    is_direct,
    json_option,
    peer_options,
    run_until_interrupted,
    show_json,
    url_option,
)

EXIT_SILENT = 1


@click.command
@url_option
@peer_options
@json_option
def command(url: str, cluster: str, timeout_s: float, as_json: bool, **files: str | None) -> None:
    """Show what waits for what in a running cluster.

    Each node names its unfinished work: ranges of numbers without a stamp or not yet kept by the broker, joins under
    way, messages that a neighbour has not acknowledged, connections that are down. It also names the subscribers that
    have waited for longer than `times.patience_ms`, and what for: they tell the homes of their topics. Under
    load there is always some unfinished work; it is a problem only if the same work stays unfinished.

    \b
    Examples:
      seriatim explain
      seriatim explain --json
      seriatim explain --url vcube://127.0.0.1:7500

    \b
    Exit code: 0 every node has answered, 1 one has not, 2 wrong options, 130 interrupted.
    """
    if is_direct(url):
        from seriatim.cli.direct import ask_processes

        kind, found = ask_processes(url, files, timeout_s)
        word, answers = kind.word, [(answer.name, answer.report) for answer in found]
    else:
        check_no_files(files)
        word, answers = "node", _ask_nodes(url, cluster, timeout_s)
    for name, report in answers:
        lines = [report] if isinstance(report, str) else list(report.waits)
        if not isinstance(report, str) and report.left_out:
            lines.append(f"and {report.left_out:,} more")
        if as_json:
            for line in lines:
                show_json({word: name, "waits": line})
        else:
            title = f"{word} {name}" if isinstance(name, int) else name
            for line in lines or ["nothing waits"]:
                click.echo(f"{title}: {line}")
    sys.exit(EXIT_SILENT if any(isinstance(report, str) for _, report in answers) else 0)


def _ask_nodes(url: str, cluster: str, timeout_s: float) -> list[tuple[Any, Any]]:
    """Each node with its explanation, or with a sentence if there is none."""

    async def ask() -> list[tuple[Any, Any]]:
        async with find_cluster(url, cluster, timeout_s) as found:
            return [(node, answer or "does not answer: is it running?") for node, answer in await found.explain()]

    return run_until_interrupted(ask)
