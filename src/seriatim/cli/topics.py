"""`seriatim topics`: the topics of a running cluster, with their logs; and adding, removing and renaming them."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import click
from msgspec import Struct, structs

from seriatim.brokers.capabilities import LogFacts
from seriatim.brokers.urls import kind_of
from seriatim.cli.cluster import Cluster, ask_cluster, find_cluster
from seriatim.cli.common import is_direct, json_option, opened, run_until_interrupted, show_rows, url_option
from seriatim.model import InputError, Node, Number, RequestRefused, TimedOut, Topic
from seriatim.server.holdings import GivenUp, GiveUp, Page, TopicRow, TopicsPage

LOOK_S = 0.1

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
force_option = click.option("--force", is_flag=True, help="Remove it even if it is in use.")


class Listed(Struct, frozen=True, kw_only=True):
    """One topic: what its home knows, and what the broker keeps. None: the broker keeps no log of it."""

    home: Node
    row: TopicRow
    log: LogFacts | None

    @property
    def last(self) -> Number:
        return self.log.last if self.log is not None else self.row.issued

    @property
    def behind(self) -> int:
        """Events whose stamp is not on the broker yet."""
        return max(0, self.last - self.row.settled)

    @property
    def events(self) -> int:
        return self.log.events if self.log is not None else self.row.issued


@click.group(invoke_without_command=True)
@url_option
@json_option
@click.pass_context
def command(context: click.Context, /, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """List the topics of a running cluster.

    For each topic its home, the stream that keeps its events, how many these are, the last number and when it came,
    how many events wait for their stamps (`behind`), what bounds the stream, and how many subscribers hold it. A topic
    is listed if its home knows it: somebody has published or subscribed with Seriatim, or it is in the cluster's file.

    \b
    Examples:
      seriatim topics
      seriatim topics --json
      seriatim topics add orders payments
      seriatim topics remove orders --yes

    \b
    Exit code: 0 fine, 1 a node or the broker does not answer, 2 wrong options, 130 interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    _check_tree_url(url)

    listed = ask_cluster(url, cluster, timeout_s, lambda found: list_topics(found, url, timeout_s))
    headings = ("topic", "home", "stream", "events", "last", "at", "behind", "limits", "subscribers")
    show_rows(listed, headings, _row, _json, as_json)


@command.command("add")
@click.argument("names", nargs=-1, required=True)
@url_option
def add(names: Sequence[str], url: str, cluster: str, timeout_s: float) -> None:
    """Create topics before anybody uses them.

    If a plain NATS client publishes to a topic that has no stream yet, the event is lost, and the client is not told.
    This command returns when the streams exist and their homes watch them.

    \b
    Example:
      seriatim topics add orders payments
    """
    _check_tree_url(url)

    async def work() -> None:
        async with find_cluster(url, cluster, timeout_s) as found:
            _check_tree(found)
            topics = {found.broker.ordered_topic(name): name for name in names}
            for topic in topics:
                await _ask_home(found, topic, "add", False)
            if found.description.mode == "log":
                for topic in topics:
                    await _until(found, topic, url, timeout_s, lambda each: each is not None and each.log is not None)

    run_until_interrupted(work)
    click.echo(f"{', '.join(names)}: ready")


@command.command("remove")
@click.argument("name")
@yes_option
@force_option
@url_option
def remove(name: str, yes: bool, force: bool, url: str, cluster: str, timeout_s: float) -> None:
    """Remove a topic: its events, stamps and slots are deleted for good.

    It is refused while somebody holds the topic, including a durable subscription that is away; --force removes it
    anyway, and its subscribers must subscribe again. Events that were published and not numbered yet are numbered
    first. The topic's count is remembered: if it is used again, its first event follows the last number, so that no two
    events have the same name in the order log and in archives.

    \b
    Examples:
      seriatim topics remove orders
      seriatim topics remove orders --yes

    \b
    Exit code: 0 removed, 1 refused, 2 wrong options, 3 not finished in time (it continues), 130 interrupted.
    """
    _check_tree_url(url)

    async def work() -> None:
        async with find_cluster(url, cluster, timeout_s) as found:
            _check_tree(found)
            if found.description.buckets:
                problem = f"topics share {found.description.buckets} buckets here, and a bucket has many of them"
                raise InputError("NAME", problem, kind_of(url).how_to_empty())
            each = await find_topic(found, name, url, timeout_s)
            if each is None:
                raise InputError("NAME", f"there is no topic {name!r}", "see `seriatim topics`")
            if each.log is not None and not each.log.is_ours:
                problem = f"its stream {each.log.stream} was made by somebody else, and is not deleted by Seriatim"
                raise InputError("NAME", problem, kind_of(url).how_to_delete(each.log.stream))
            if not yes:
                confirm(f"Delete {name} with its {each.events:,} events for good?")
            await _ask_home(found, name, "remove", force)
            await _until(
                found, name, url, timeout_s, lambda each: each is None or (each.log is None and not each.row.is_leaving)
            )

    run_until_interrupted(work)
    click.echo(f"{name}: removed")


@command.command("rename")
@click.argument("old")
@click.argument("new")
def rename(old: str, new: str) -> None:
    """Refused: a topic keeps its name. The answer says how to get there.

    Numbers, stamps, the order log, archives and durable subscriptions name events by topic and number. Under another
    name the same events would be others.
    """
    problem = f"{old!r} cannot be renamed: order log, archives and durable subscriptions name its events by it"
    fix = (
        f"add {new!r}, subscribe to both, let publishers change over, and when nobody holds {old!r} any more: "
        f"seriatim topics remove {old}"
    )
    raise InputError("OLD", problem, fix)


def confirm(question: str) -> None:
    """Ask back on a terminal. InputError: there is none, and nobody has said --yes."""
    if not sys.stdin.isatty():
        raise InputError("--yes", f"is missing. {question}", "add --yes")
    click.confirm(question, abort=True, err=True)


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def list_topics(found: Cluster, url: str, timeout_s: float) -> list[Listed]:
    """All topics that the nodes know, by name."""
    _check_tree(found)
    async with _logs(found, url, timeout_s) as logs:
        listed: list[Listed] = []
        for node in found.description.tree.parents:
            after = ""
            while True:
                page = await found.ask_node(node, "topics", Page(after), TopicsPage)
                listed += [Listed(home=node, row=row, log=logs.get(row.topic)) for row in page.topics]
                if not page.more:
                    break
                after = page.topics[-1].topic
    return sorted(listed, key=lambda each: each.row.topic)


async def find_topic(found: Cluster, name: Topic, url: str, timeout_s: float) -> Listed | None:
    """One topic. None: neither its home nor the broker knows it."""
    tree = found.description.tree
    if not tree.knows(name):
        raise InputError("NAME", f"no node is home to {name!r}", "add it to the cluster's [homes]")
    home = tree.home(name)
    async with _logs(found, url, timeout_s) as logs:
        page = await found.ask_node(home, "topics", Page(_just_before(name)), TopicsPage)
        row = page.topics[0] if page.topics and page.topics[0].topic == name else None
        if row is None and name not in logs:
            return None
        return Listed(home=home, row=row or TopicRow(topic=name), log=logs.get(name))


def _just_before(name: str) -> str:
    """A text that sorts before this name, and behind every name before it that a topic can have."""
    return name[:-1] + chr(ord(name[-1]) - 1) + "\U0010ffff" if name and ord(name[-1]) > 1 else ""


@asynccontextmanager
async def _logs(found: Cluster, url: str, timeout_s: float) -> AsyncIterator[dict[Topic, LogFacts]]:
    """Ask the broker about the logs of topics, with the options of the cluster, buckets included."""
    description = found.description
    options = kind_of(url).cluster_options(description.cluster, description.buckets, {})
    async with opened(url, timeout_s, **options) as broker:
        yield await broker.topic_logs() or {}


async def _ask_home(found: Cluster, topic: Topic, what: str, force: bool) -> None:
    """Ask the home of a topic to add or remove it. RequestRefused: it refuses."""
    tree = found.description.tree
    if not tree.knows(topic):
        raise InputError("NAME", f"no node is home to {topic!r}", "add it to the cluster's [homes]")
    answer = await found.ask_node(tree.home(topic), what, GiveUp(topic, force), GivenUp)
    if answer.problem:
        fix = "; add --force to remove it all the same" if "held by" in answer.problem else ""
        raise RequestRefused(f"{topic}: {answer.problem}{fix}")


async def _until(
    found: Cluster, topic: Topic, url: str, timeout_s: float, is_done: Callable[[Listed | None], bool]
) -> None:
    """Wait until `is_done` holds for the topic. TimedOut: it does not yet; the node continues."""
    end_s = time.monotonic() + timeout_s
    while not is_done(each := await find_topic(found, topic, url, timeout_s)):
        if time.monotonic() > end_s:
            where = f"its home {each.home}" if each is not None else "its home"
            raise TimedOut(f"{topic}: not finished in {timeout_s:g} s; {where} continues, see `seriatim explain`")
        await asyncio.sleep(LOOK_S)


def _check_tree(found: Cluster) -> None:
    if found.description.order == "atoms":
        problem = "it orders by atoms, whose topics have no log and no home"
        raise InputError("--cluster", problem, "see `seriatim status`")


def _check_tree_url(url: str) -> None:
    if is_direct(url):
        raise InputError("--url", "peers and overlays keep no topics", "use the URL of a broker")


# ── showing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _row(each: Listed) -> tuple[str, ...]:
    log, row = each.log, each.row
    stream = log.stream if log is not None else "being removed" if row.is_leaving else ""
    subscribers = f"{row.subscribers:,}" + (f" ({row.durables:,} durable)" if row.durables else "")
    return (
        row.topic,
        each.home,
        stream,
        f"{each.events:,}",
        f"{each.last:,}",
        _time(log.last_at) if log is not None else "",
        f"{each.behind:,}",
        log.limits if log is not None else "",
        subscribers,
    )


def _time(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if text else ""


def _json(each: Listed) -> dict[str, object]:
    row = structs.asdict(each.row)
    log = structs.asdict(each.log) if each.log is not None else None
    return {"topic": row.pop("topic"), "home": each.home, "behind": each.behind, **row, "log": log}
