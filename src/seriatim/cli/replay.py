"""`seriatim replay`: what a subscriber saw, or would have seen; shown, written to files, or published again."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from seriatim.brokers.capabilities import required
from seriatim.brokers.urls import open_broker
from seriatim.cli.common import (
    check_answers,
    data_as_json,
    json_option,
    names_in,
    notice,
    run_until_interrupted,
    show_json,
    show_progress,
    table,
)
from seriatim.cli.spark import session_of, spark_options
from seriatim.filters import parse
from seriatim.model import InputError
from seriatim.pipeline.spark.requirements import check_requirements

FORMATS = {"parquet": "parquet", "jsonl": "json", "csv": "csv"}
SHOWN = 20
NOTICES_MAX = 10
PAIRS_OF = 100  # logs; among more, pairs without an order are not listed
DATA_MAX = 40
INCOMPLETE = 3


@click.command
@click.argument("archive", metavar="ARCHIVE")
@click.option("--subscriber", metavar="NAME", help="Replay the events that this subscriber saw.")
@click.option(
    "--topics",
    metavar="NAMES",
    help="Replay the events that a subscriber of these topics would have seen; separated by commas.",
)
@click.option(
    "--from",
    "since",
    metavar="TIME|POSITION|NUMBERS",
    help="Begin here: a time, a position (4711), or numbers (orders=120,payments=7).",
)
@click.option(
    "--to",
    "until",
    metavar="TIME|POSITION|NUMBERS",
    help="End here: before a time, or with this position or these numbers.",
)
@click.option(
    "--where", metavar="FILTER", help="Only events whose attributes match (docs/filters.md), in the same order."
)
@click.option("--limit", type=click.IntRange(min=1), help=f"Events to show.  [default: {SHOWN}; with --json: all]")
@click.option("--out", metavar="URI", help="Write all events to files here.")
@click.option("--format", "format_", type=click.Choice(list(FORMATS)), default="parquet", help="Format of --out.")
@click.option("--publish", "url", metavar="URL", help="Publish all events again, on this NATS server.")
@click.option("--pace", default="max", help="Speed: original, max, or how many times as fast (2, 0.5).")
@click.option("--prefix", default="replay", help="Topics are published below this, as one stream.")
@click.option(
    "--onto-topics", is_flag=True, help="Publish onto the topics themselves. Live subscribers will see the events!"
)
@click.option(
    "--progress",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --onto-topics: the file that records the progress, to continue after an interruption.",
)
@click.option(
    "--by", type=click.Choice(["positions", "stamps"]), help="The order of topics.  [default: positions, if known]"
)
@click.option(
    "--skip-gaps", is_flag=True, help="Continue after missing positions or stamps; order across them is not proven."
)
@json_option
@spark_options
def command(
    archive: str,
    subscriber: str | None,
    topics: str | None,
    since: str | None,
    until: str | None,
    where: str | None,
    limit: int | None,
    out: str | None,
    format_: str,
    url: str | None,
    pace: str,
    prefix: str,
    onto_topics: bool,
    progress: Path | None,
    by: str | None,
    skip_gaps: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay an archive: what a subscriber saw, or would have seen.

    ARCHIVE is an archive that `seriatim archive` wrote. With --subscriber: exactly the events that this subscriber was
    notified of, in its order; NAME is its name in the delivery logs (billing~1f0c…). With --topics: every event of
    these topics in a sequence that a subscriber of exactly these could have been notified of, by the order log, or
    where the archive has none, by stamps; the same sequence every time, on every machine.

    The first events are shown; --out writes all of them to files (in order, part-00000 first); --publish publishes them
    again, in order, each once, and continues where it was when it is started again.

    \b
    Examples:
      seriatim replay lake/shop --topics orders,payments
      seriatim replay lake/shop --subscriber billing --from 2026-07-14T09:00:00Z --to 2026-07-14T10:00:00Z
      seriatim replay lake/shop --topics orders,payments --from 4711 --to 4800
      seriatim replay lake/shop --topics orders --from orders=120 --out lake/orders --format jsonl
      seriatim replay lake/shop --topics orders --where 'price > 100 and region = "EU"'
      seriatim replay lake/shop --topics orders,payments --publish nats://127.0.0.1:4222 --pace original

    \b
    Exit code: 0 done; 3 done, but something is missing (the output says what); 1 it could not be done, 2 wrong options,
               130 interrupted.
    """
    if (subscriber is None) == (topics is None):
        raise click.UsageError("give either --subscriber or --topics")
    if out is not None and url is not None:
        raise click.UsageError("give --out or --publish, not both")
    names = sorted(set(names_in(topics or "")))
    factor = _factor(pace)
    wanted = parse(where) if where is not None else None
    if url is not None:
        fix = "use one that can, such as nats://host:port (JetStream)"
        required(open_broker(url).replay("", None), "--publish", "cannot take a replay", fix)
        check_answers(url)
    check_requirements()
    from seriatim.pipeline.replay import NO_BOUND, parse_bound

    begin = parse_bound(since, "--from") if since else NO_BOUND
    end = parse_bound(until, "--to") if until else NO_BOUND
    with session_of(options, "replay") as spark:
        replay, pairs = _open(spark, archive, subscriber, names, begin, end, by, skip_gaps)
        if wanted is not None:
            from seriatim.pipeline.filters import matches_headers

            replay = replay._replace(events=replay.events.where(matches_headers(wanted, replay.events["headers"])))
        if replay.by == "stamps":
            notice("note: by stamps, without positions of an order log")
        for note in replay.notes[:NOTICES_MAX]:
            notice(f"note: {note}")
        if pairs:
            more = f", and {len(pairs) - NOTICES_MAX} pairs more" if len(pairs) > NOTICES_MAX else ""
            notice(
                f"note: too few held both {', '.join(pairs[:NOTICES_MAX])}{more} for an order between them; "
                "there the clock of the broker decides"
            )
        if out is not None:
            _write(spark, replay.events, out, format_)
            result: dict[str, object] = {"out": out, "format": format_}
            said = f"written to {out}"
        elif url is not None:
            what = (
                archive.rstrip("/"),
                subscriber,
                names,
                since,
                until,
                skip_gaps,
                replay.by,
                *([str(wanted)] if wanted else []),
            )
            result, said = _publish(replay.events, url, what, None if onto_topics else prefix, factor, progress)
        else:
            _show(replay, limit, as_json)
            result, said = {}, ""
        notices = _missing(replay)
        for missing in notices:
            notice(missing)
        if as_json and result:
            show_json(result)
        elif said:
            click.echo(said)
    if notices:
        sys.exit(INCOMPLETE)


def _factor(pace: str) -> float | None:
    if pace == "max":
        return None
    try:
        factor = 1.0 if pace == "original" else float(pace)
    except ValueError:
        factor = 0.0
    if not 0.0 < factor < float("inf"):
        raise click.BadParameter(f"{pace!r}: give original, max, or a number above 0", param_hint="--pace")
    return factor


def _open(
    spark: Any,
    archive: str,
    subscriber: str | None,
    names: list[str],
    begin: Any,
    end: Any,
    by: str | None,
    skip_gaps: bool,
) -> tuple[Any, list[str]]:
    from seriatim.pipeline.archive import describe, read_archive, read_gaps
    from seriatim.pipeline.replay import check_subscriber, never_ordered, saw, would_have_seen

    tables = {row["table"] for row in describe(spark, archive)}
    needed = {"events"} if subscriber is None else {"events", "deliveries"}
    if subscriber is None:
        needed |= {"order"} if by == "positions" or (by is None and "order" in tables) else {"stamps"}
    if lacking := sorted(needed - tables):
        fix = "archive them too: seriatim archive --tables; delivery logs are on the broker with --log broker:"
        raise InputError(archive, f"this archive has no {' and no '.join(lacking)}", fix)
    events = read_archive(spark, archive, "events")
    order = read_archive(spark, archive, "order") if "order" in tables and by != "stamps" else None
    if subscriber is None:
        stamps = read_archive(spark, archive, "stamps") if "stamps" in tables else None
        replay = would_have_seen(events, names, order=order, stamps=stamps, since=begin, until=end, skip_gaps=skip_gaps)
        if by == "positions" and replay.by != by:
            raise InputError("--by", "the order log of this archive is empty", "leave it out: stamps give the order")
        is_listed = replay.by == "stamps" and 1 < len(replay.logs) <= PAIRS_OF
        pairs = never_ordered(stamps, replay.logs) if stamps is not None and is_listed else []
        return replay, [f"{one} and {other}" for one, other in pairs]
    subscriptions = read_archive(spark, archive, "subscriptions") if "subscriptions" in tables else None
    deliveries, lost = read_archive(spark, archive, "deliveries"), read_gaps(spark, archive, "deliveries")
    check_subscriber(subscriber, deliveries, subscriptions)
    return saw(events, deliveries, subscriber, subscriptions, begin, end, lost, order), []


def _missing(replay: Any) -> list[str]:
    """What is missing, in sentences; the first few of each kind."""
    from seriatim.pipeline.replay import describe_held, held, sentence

    rows = replay.missing.limit(NOTICES_MAX + 1).collect()
    said = [f"missing: {sentence(*row)}" for row in rows[:NOTICES_MAX]]
    if len(rows) > NOTICES_MAX:
        said.append("missing: and more; Replay.missing has all of it")
    said += [f"incomplete: {each}" for each in replay.ends[:NOTICES_MAX]]
    if replay.places is not None:
        columns = ("log", "first", "last", "waits_for", "needed", "in_knot")
        ends = held(replay.places).select(*columns).orderBy("log").limit(NOTICES_MAX).collect()
        said += [f"incomplete: {line}" for line in describe_held(tuple(row) for row in ends)]
    return said


def _show(replay: Any, limit: int | None, as_json: bool) -> None:
    from seriatim.pipeline.replay import in_sequence

    rows = in_sequence(replay.events)
    if as_json:
        for row in (rows if limit is None else rows.limit(limit)).toLocalIterator():
            fields = {key: value for key, value in row.asDict().items() if value is not None and key != "data"}
            show_json(fields | (data_as_json(bytes(row["data"])) if row["data"] is not None else {}))
        return
    count = limit or SHOWN
    found = rows.limit(count + 1).collect()  # as many as were asked for
    columns = ("position", "topic", "number", "time", "id", "data")
    cells = [_cells(row) for row in found[:count]]
    has_positions = any(row[0] for row in cells)
    click.echo(table(columns, cells) if has_positions else table(columns[1:], [row[1:] for row in cells]))
    if replay.changes is not None:
        for change in replay.changes.limit(count).collect():
            after = "" if change["number"] is None else f" after number {change['number']}"
            click.echo(f"position {change['position']}: {change['change']} {change['topic']}{after}")
    if len(found) > count:
        click.echo("… and more: --limit shows more of them, --out writes all of them, --json prints all of them")
    elif not found:
        click.echo("no events")


def _cells(row: Any) -> list[str]:
    at = row["notified_at"] if row["notified_at"] is not None else row["received_at"]
    shown = "" if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    data = "(not in the archive)" if row["missing"] else _text(row["data"])
    number = f"{row['number']}.{row['index']}" if row["index"] else str(row["number"])
    late = " (out of order)" if row["out_of_order"] else ""
    position = "" if row["order_position"] is None else str(row["order_position"])
    return [position, row["topic"], number, shown.replace("+00:00", "Z"), row["event_id"], data + late]


def _text(data: bytes) -> str:
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(data)} bytes"
    text = "".join(character if character.isprintable() else "·" for character in text)
    return text if len(text) <= DATA_MAX else f"{text[: DATA_MAX - 1]}…"


def _write(spark: Any, events: Any, out: str, format_: str) -> None:
    from seriatim.pipeline.replay import as_text, in_sequence
    from seriatim.pipeline.spark import files

    if files.children(spark, out):
        raise InputError("--out", f"{out} is not empty", "name a folder that does not exist yet")
    rows = in_sequence(events if format_ != "csv" else as_text(events))
    writer = rows.write.mode("overwrite").format(FORMATS[format_])
    (writer.option("header", True) if format_ == "csv" else writer).save(out)


def _publish(
    events: Any, url: str, what: object, prefix: str | None, factor: float | None, progress: Path | None
) -> tuple[dict[str, object], str]:
    from msgspec.structs import asdict

    from seriatim.pipeline.replay.republish import Publishing, digest_of, publish_again

    publishing = Publishing(url=url, digest=digest_of(what), prefix=prefix, factor=factor, progress=progress)
    told_s = time.monotonic()

    def on_stored(count: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s > 1.0:
            told_s = time.monotonic()
            show_progress(f"{count:,} events published", stays=True)

    published = run_until_interrupted(lambda: publish_again(events, publishing, on_stored))
    said = f"published {published.events:,} events"
    said += f" below {prefix}" if prefix is not None else " onto their topics"
    said += f"; {published.before:,} were there before" if published.before else ""
    if published.passed:
        said += f"; {published.passed:,} came into the archive too late for this replay: use another --prefix for all"
    if published.late:
        said += f"; {published.late:,} were lost on the way and came after later ones of their topic"
    return asdict(published), said
