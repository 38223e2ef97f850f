"""`seriatim order`: print the order log, the one order of all events of a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import click

from seriatim.brokers.capabilities import OrderLog
from seriatim.cli.common import (
    check_outlives,
    is_direct,
    json_option,
    names_in,
    notice,
    run_until_interrupted,
    show_json,
    url_option,
)
from seriatim.model import InputError, Position, Topic
from seriatim.order import OrderedRange

FOLLOW_S = 5.0  # how long one wait for more takes
DESCRIPTION_S = 2.0


@click.command
@click.option("--after", type=click.IntRange(min=0), help="Begin after this position.")
@click.option("--since", metavar="TIME", help="Begin with events that were ordered at this time or later (ISO 8601).")
@click.option("--last", type=click.IntRange(min=1), help="Begin this many positions before the end.")
@click.option("--topics", metavar="TOPIC,...", help="Only ranges of these topics.")
@click.option("--follow", is_flag=True, help="Continue with new ranges as they are ordered.")
@url_option
@json_option
def command(
    after: int | None,
    since: str | None,
    last: int | None,
    topics: str | None,
    follow: bool,
    url: str,
    cluster: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Print the order log: one order of all events of a cluster.

    Each line is a range: consecutive numbers of one topic in the order of all events, and the position of the first.
    Positions count numbers from 1. There is an order log if the cluster has global order; the root writes it to the
    broker, and it can be read without any sequencer. A time without an offset is local time.

    \b
    Examples:
      seriatim order
      seriatim order --last 100 --follow
      seriatim order --after 1200 --topics orders,payments --json
      seriatim order --since 2026-03-01T09:00:00+01:00

    \b
    Exit code: 0 fine, 1 the broker does not answer, 2 wrong options, or no order log, 130 interrupted.
    """
    if sum(each is not None for each in (after, since, last)) > 1:
        raise InputError("--after", "it says where to begin, and so do --since and --last", "give one of them")
    if is_direct(url):
        raise InputError("--url", "peers and overlays have no order log", "use the URL of a broker")
    check_outlives(url, "--url")
    moment = _moment(since) if since is not None else None
    chosen = frozenset(names_in(topics)) if topics is not None else None

    async def show() -> None:
        async with found_log(url, cluster, timeout_s) as log:
            await print_order(log, await _begin(log, after, moment, last), chosen, follow, as_json)

    run_until_interrupted(show)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InputError("--since", f"{text!r} is not a time", "write it like 2026-03-01T09:00:00+01:00") from None


async def _begin(log: OrderLog, after: Position | None, moment: datetime | None, last: int | None) -> Position:
    if moment is not None:
        return await log.position_at(moment)
    if last is not None:
        bounds = await log.bounds()
        return max(0, bounds.end - last) if bounds is not None else 0
    return after or 0


@asynccontextmanager
async def found_log(url: str, cluster: str, timeout_s: float) -> AsyncIterator[OrderLog]:
    """The order log of a cluster. InputError: it has none, and why."""
    from seriatim.brokers.urls import kind_of, open_broker
    from seriatim.client.brokered.discovery import ask_for_description

    broker = open_broker(url, **kind_of(url).cluster_options(cluster, None, {}))
    await broker.open()
    try:
        log = broker.order_log()
        if log is None:
            raise InputError("--url", "this broker keeps no log, so it keeps no order log", "use one that keeps logs")
        if await log.bounds() is None:
            description = await ask_for_description(broker, cluster, min(DESCRIPTION_S, timeout_s))
            if description is not None and description.order != "global":
                pairwise = "its order is pairwise, so no one order fits what everybody sees"
                why = "it uses atoms, which keep no order log" if description.order == "atoms" else pairwise
                fix = 'use a cluster with order = "global"'
                raise InputError("--cluster", f"{cluster!r} has no order log: {why}", fix)
            if description is None:
                problem = f"no order log of {cluster!r} is on this broker, and no sequencer answers for it"
                raise InputError("--cluster", problem, "check the name, or start it with `seriatim serve`")
        yield log
    finally:
        await broker.close()


async def print_order(
    log: OrderLog, after: Position, topics: frozenset[Topic] | None, follow: bool, as_json: bool
) -> None:
    """Print what follows a position, a line per range; with `follow`, for ever."""
    if follow and await log.bounds() is None:
        while not await log.wait(after, FOLLOW_S):
            pass
    while True:
        read = await log.read(after)
        if read.after > after:
            notice(f"positions {after + 1}..{read.after} are no longer kept")
        position = read.after + 1
        for each in read.ranges:
            if topics is None or each.topic in topics:
                _show(position, each, as_json)
            position += each.count
        after = position - 1
        if read.ranges:
            continue
        if not follow:
            return
        while not await log.wait(after, FOLLOW_S):
            pass


def _show(position: Position, each: OrderedRange, as_json: bool) -> None:
    if as_json:
        show_json({"position": position, "topic": each.topic, "first": each.first, "last": each.last})
    else:
        click.echo(f"{position:>8}  {each.topic} {each.first}..{each.last}")
