"""`seriatim durables`: durable subscriptions of a running cluster, how far they are, and removing one."""

import time
from collections.abc import Iterable

import click
from msgspec import Struct, structs

from seriatim.cli.cluster import Cluster, ask_cluster, find_cluster
from seriatim.cli.common import is_direct, json_option, run_until_interrupted, show_rows, url_option
from seriatim.cli.topics import confirm, force_option, list_topics, yes_option
from seriatim.client.tree.life import DurableRecord, registered_durable, registered_durables, remove_registered
from seriatim.model import InputError, Number, RequestRefused, Topic
from seriatim.server.holdings import DurableRow, DurablesPage, GivenUp, GiveUp, Page

PREFIX = "durable/"  # nodes know a durable subscription by this and its name


class Durable(Struct, frozen=True, kw_only=True):
    """One durable subscription, put together from what the nodes and the broker know.

    `behind`: events of its topics that it has not acknowledged, by what it last told the broker; None: not known.
    """

    name: str
    topics: list[Topic]
    is_connected: bool
    where: str
    heard_s: float | None  # None: not since the nodes were started
    node_s: float
    told_s: float | None  # so long ago it told how far it is
    behind: int | None
    acknowledged: dict[Topic, Number]


@click.group(invoke_without_command=True)
@url_option
@json_option
@click.pass_context
def command(context: click.Context, /, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """List the durable subscriptions of a running cluster.

    For each its topics, how many events it is behind, when a node last heard of it, and where it runs. Nodes remember a
    durable subscription for ever. How far it is, it tells the broker now and then; `unknown` if it never has. Signs of
    life are counted from the start of the nodes.

    \b
    Examples:
      seriatim durables
      seriatim durables --json
      seriatim durables remove billing --yes

    \b
    Exit code: 0 fine, 1 a node or the broker does not answer, 2 wrong options, 130 interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    _check_url(url)

    durables = ask_cluster(url, cluster, timeout_s, lambda found: list_durables(found, url, timeout_s))
    headings = ("durable", "topics", "behind", "heard", "state", "where")
    show_rows(durables, headings, _row, structs.asdict, as_json)


@command.command("remove")
@click.argument("name")
@yes_option
@force_option
@url_option
def remove(name: str, yes: bool, force: bool, url: str, cluster: str, timeout_s: float) -> None:
    """Remove a durable subscription: the nodes forget it, as if it had unsubscribed.

    It is refused while the subscription is connected; --force removes it all the same. A journal of it on the broker is
    deleted. A journal in a folder stays where it is: delete it before you use the name again.

    \b
    Examples:
      seriatim durables remove billing
      seriatim durables remove billing --yes

    \b
    Exit code: 0 removed, 1 refused, 2 wrong options, 130 interrupted.
    """
    _check_url(url)

    async def work() -> None:
        async with find_cluster(url, cluster, timeout_s) as found:
            address = PREFIX + name
            rows = [row for row in await _known(found) if row.name == address]
            lives = found.broker.lives
            record = await registered_durable(lives, name) if lives is not None else None
            if not rows and record is None:
                raise InputError("NAME", f"there is no durable subscription {name!r}", "see `seriatim durables`")
            connected = next((row.address for row in rows if row.is_connected), None)
            if connected is not None and not force:
                problem = f"{name} is connected from {connected}; stop it, or add --force"
                raise RequestRefused(problem)
            if not yes:
                topics = sorted({topic for row in rows for topic in row.topics})
                confirm(f"Remove {name}, which holds {', '.join(topics) or 'nothing'}?")
            if lives is not None:
                await remove_registered(lives, name)
            for node in found.description.tree.parents:
                answer = await found.ask_node(node, "forget", GiveUp(address, force), GivenUp)
                if answer.problem:
                    raise RequestRefused(f"{node}: {answer.problem}; stop it, or add --force")
            await found.broker.remove_durable_journal(name, cluster=found.description.cluster)

    run_until_interrupted(work)
    click.echo(f"{name}: removed")


async def list_durables(found: Cluster, url: str, timeout_s: float) -> list[Durable]:
    """All durable subscriptions that any node or the broker knows, by name."""
    rows: dict[str, list[DurableRow]] = {}
    for row in await _known(found):
        rows.setdefault(row.name.removeprefix(PREFIX), []).append(row)
    lives = found.broker.lives
    records = {each.name: each for each in await registered_durables(lives)} if lives is not None else {}
    names = sorted({*rows, *records})
    ends = {each.row.topic: each.last for each in await list_topics(found, url, timeout_s)} if names else {}
    return [_durable(name, rows.get(name, []), records.get(name), ends) for name in names]


def _durable(name: str, rows: list[DurableRow], record: DurableRecord | None, ends: dict[Topic, Number]) -> Durable:
    acknowledged = record.acknowledged if record is not None else {}
    connected = next((row.address for row in rows if row.is_connected), "")
    newest = min(rows, key=lambda row: row.heard_s, default=None)
    is_recent = newest is not None and newest.heard_s < newest.node_s - 1.0
    return Durable(
        name=name,
        topics=sorted({topic for row in rows for topic in row.topics} | acknowledged.keys()),
        is_connected=bool(connected),
        where=f"{record.where}, since {record.since}" if record is not None else connected,
        heard_s=newest.heard_s if newest is not None and is_recent else None,
        node_s=newest.node_s if newest is not None else 0.0,
        told_s=max(0.0, time.time() - record.told_at) if record is not None and record.told_at else None,
        behind=_behind(acknowledged, ends) if acknowledged else None,
        acknowledged=acknowledged,
    )


def _behind(acknowledged: dict[Topic, Number], ends: dict[Topic, Number]) -> int:
    return sum(max(0, ends.get(topic, number) - number) for topic, number in acknowledged.items())


async def _known(found: Cluster) -> Iterable[DurableRow]:
    """All durable subscriptions that the nodes know, page by page."""
    if found.description.order == "atoms":
        raise InputError("--cluster", "it orders by atoms, which have no durable subscriptions", "use a tree")
    rows: list[DurableRow] = []
    for node in found.description.tree.parents:
        after = ""
        while True:
            page = await found.ask_node(node, "durables", Page(after), DurablesPage)
            rows += page.durables
            if not page.more:
                break
            after = page.durables[-1].name
    return rows


def _check_url(url: str) -> None:
    if is_direct(url):
        raise InputError("--url", "peers and overlays have no durable subscriptions", "use the URL of a broker")


def _row(each: Durable) -> tuple[str, ...]:
    newest = min((at for at in (each.heard_s, each.told_s) if at is not None), default=None)
    heard = f"{_ago(newest)} ago" if newest is not None else f"not in {_ago(each.node_s)}"
    return (
        each.name,
        ", ".join(each.topics),
        f"{each.behind:,}" if each.behind is not None else "unknown",
        heard,
        "connected" if each.is_connected else "away",
        each.where,
    )


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
