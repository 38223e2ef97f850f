"""`seriatim durables`: durable subscriptions of a running cluster, how far they are, and removing one."""

import asyncio
from collections.abc import Iterable

import click
from msgspec import Struct, structs

from seriatim.brokers.lives import Life, new_life
from seriatim.cli.cluster import Cluster, find_cluster
from seriatim.cli.common import is_direct, json_option, run_until_interrupted, show_json, table, url_option
from seriatim.cli.topics import confirm, force_option, list_topics, yes_option
from seriatim.model import Address, InputError, Number, RequestRefused, SeriatimError, Topic
from seriatim.server.holdings import DurableRow, DurablesPage, GivenUp, GiveUp, Page

REMOVED = "removed by an operator"


class Durable(Struct, frozen=True, kw_only=True):
    """One durable subscription, put together from what the nodes and the broker know.

    `behind`: events of its topics that it has not acknowledged, by what it last told the broker; None: not known.
    """

    name: Address
    topics: list[Topic]
    is_connected: bool
    where: str
    heard_s: float | None  # None: not since the nodes were started
    node_s: float
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

    async def ask() -> list[Durable]:
        async with find_cluster(url, cluster, timeout_s) as found:
            return await list_durables(found, url, timeout_s)

    durables = run_until_interrupted(ask)
    if as_json:
        for each in durables:
            show_json(structs.asdict(each))
    else:
        headings = ("durable", "topics", "behind", "heard", "state", "where")
        click.echo(table(headings, [_row(each) for each in durables]))


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
            rows = [row for row in await _known(found) if row.name == name]
            life = await _life(found, name)
            if not rows and (life is None or life.where == REMOVED):
                problem = f"there is no durable subscription {name!r}"
                raise InputError("NAME", problem, "see `seriatim durables`")
            connected = next((row.address for row in rows if row.is_connected), None)
            if connected is not None and not force:
                problem = f"{name} is connected from {connected}; stop it, or add --force"
                raise RequestRefused(problem)
            if not yes:
                topics = sorted({topic for row in rows for topic in row.topics})
                confirm(f"Remove {name}, which holds {', '.join(topics) or 'nothing'}?")
            await _end_life(found, name)
            for node in found.description.parents:
                answer = await found.ask_node(node, "forget", GiveUp(name, force), GivenUp)
                if answer.problem:
                    raise RequestRefused(f"{node}: {answer.problem}; stop it, or add --force")
            await found.broker.remove_durable_journal(name, cluster=found.description.cluster)

    run_until_interrupted(work)
    click.echo(f"{name}: removed")


async def list_durables(found: Cluster, url: str, timeout_s: float) -> list[Durable]:
    """All durable subscriptions that any node knows, by name."""
    by_name: dict[Address, list[DurableRow]] = {}
    for row in await _known(found):
        by_name.setdefault(row.name, []).append(row)
    ends = {each.row.topic: each.last for each in await list_topics(found, url, timeout_s)} if by_name else {}
    lives = await asyncio.gather(*(_life(found, name) for name in by_name))
    return [
        _durable(name, by_name[name], life, ends) for name, life in sorted(zip(by_name, lives, strict=True), key=_first)
    ]


def _first(pair: tuple[Address, Life | None]) -> Address:
    return pair[0]


def _durable(name: Address, rows: list[DurableRow], life: Life | None, ends: dict[Topic, Number]) -> Durable:
    topics = sorted({topic for row in rows for topic in row.topics})
    connected = next((row.address for row in rows if row.is_connected), "")
    newest = min(rows, key=lambda row: row.heard_s)
    acknowledged = {topic: number for topic, number in (life.numbers if life else {}).items() if topic in topics}
    is_known = life is not None and bool(acknowledged)
    return Durable(
        name=name,
        topics=topics,
        is_connected=bool(connected),
        where=connected or (f"{life.where}, since {life.since}" if life is not None else ""),
        heard_s=newest.heard_s if newest.heard_s < newest.node_s - 1.0 else None,
        node_s=newest.node_s,
        behind=_behind(acknowledged, ends) if is_known else None,
        acknowledged=acknowledged,
    )


def _behind(acknowledged: dict[Topic, Number], ends: dict[Topic, Number]) -> int:
    return sum(max(0, ends.get(topic, number) - number) for topic, number in acknowledged.items())


async def _known(found: Cluster) -> Iterable[DurableRow]:
    """What every node knows."""
    if found.description.order == "atoms":
        raise InputError("--cluster", "it orders by atoms, which have no durable subscriptions", "use a tree")
    rows: list[DurableRow] = []
    for node in found.description.parents:
        after = ""
        while True:
            page = await found.ask_node(node, "durables", Page(after), DurablesPage)
            rows += page.durables
            if not page.more:
                break
            after = page.durables[-1].name
    return rows


async def _life(found: Cluster, name: Address) -> Life | None:
    """What the subscription has registered on the broker. None: nothing, or the broker keeps no such thing."""
    if (lives := found.broker.lives) is None:
        return None
    claim = lives.claim("durable", name)
    try:
        return await claim.look()
    finally:
        await claim.close()


async def _end_life(found: Cluster, name: Address) -> None:
    """Register a later life that has ended: whoever comes back with a journal of an earlier one is refused."""
    if (lives := found.broker.lives) is None:
        return
    claim = lives.claim("durable", name)
    try:
        last = await claim.look()
        if last is not None:
            life = structs.replace(new_life(last.epoch + 1, ""), where=REMOVED, is_ended=True)
            await claim.register(life)
    except SeriatimError as error:
        raise RequestRefused(f"{name}: {error}; try again") from None
    finally:
        await claim.close()


def _check_url(url: str) -> None:
    if is_direct(url):
        raise InputError("--url", "peers and overlays have no durable subscriptions", "use the URL of a broker")


def _row(each: Durable) -> tuple[str, ...]:
    heard = f"{_ago(each.heard_s)} ago" if each.heard_s is not None else f"not in {_ago(each.node_s)}"
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
