"""`seriatim workload`: make up subscriptions, publications or deliveries."""

from typing import Any

import click
from msgspec import structs

from seriatim.cli.common import json_option, show_json, show_progress
from seriatim.cli.spark import session_of, spark_options
from seriatim.model import InputError
from seriatim.pipeline.spark.requirements import check_requirements


@click.command
@click.argument("what", type=click.Choice(["subscriptions", "publications", "deliveries"]))
@click.option("--out", required=True, metavar="URI", help="Where to write; existing tables are replaced.")
@click.option("--seed", type=int, default=1, help="The same seed makes the same rows.")
@click.option("--subscribers", type=int, default=1_000, help="Number of subscribers.")
@click.option("--topics", type=int, default=100, help="Number of topics.")
@click.option("--held", type=int, default=10, help="Topics that a subscriber holds.")
@click.option("--held-max", type=int, default=0, help="Between --held and this many, in proportion to size^-2.")
@click.option(
    "--popularity",
    type=click.Choice(["zipf", "power-law", "uniform"]),
    default="zipf",
    help="How unequally topics are held.",
)
@click.option("--exponent", type=float, help="Exponent of zipf (default 1.0) or power-law (default 2.1).")
@click.option("--common", type=int, default=0, help="Number of topics that everybody holds.")
@click.option("--sites", type=int, default=1, help="Number of sites with clients.")
@click.option("--local-share", type=float, default=0.0, help="How often a client chooses a topic of its own site.")
@click.option("--churn", type=float, default=0.0, help="Share of topics that are left for another one.")
@click.option("--events", type=int, default=10_000, help="Number of events published.")
@click.option("--publishers", type=int, default=10, help="Number of publishers.")
@click.option("--events-per-s", type=float, default=1_000.0, help="Events published per second, in all.")
@click.option(
    "--inject",
    multiple=True,
    metavar="KIND=COUNT",
    help="Put violations into the deliveries: swap, duplicate or gap; may be given again.",
)
@click.option("--partitions", type=click.IntRange(min=1), help="Files of each table; the rows are the same.")
@json_option
@spark_options
def command(what: str, out: str, inject: tuple[str, ...], partitions: int | None, as_json: bool, **chosen: Any) -> None:
    """Make up subscriptions, publications or deliveries, of any size.

    The rows follow from the seed and the options alone: the same on a laptop and on a cluster, in one partition or in a
    thousand. They are written as Parquet, one folder for each table, to OUT: a path or any URI that Spark can write.

    \b
    WHAT is one of
      subscriptions   OUT/subscriptions, /sites, /rates   what `seriatim plan` reads
      publications    OUT/publications                    events with their topics, publishers and times
      deliveries      OUT/deliveries, /publications, /subscriptions
                                                          the log of a run that kept the order; see --inject

    \b
    Examples:
      seriatim workload subscriptions --subscribers 1000000 --topics 1000 --out work/
      seriatim workload subscriptions --sites 4 --local-share 0.8 --churn 0.1 --out work/
      seriatim workload deliveries --events 100000 --inject swap=2 --inject gap=1 --out log/

    \b
    Exit code: 0 written, 1 could not be written, 2 wrong options.
    """
    kinds = _kinds(inject)
    if kinds and what != "deliveries":
        raise InputError("--inject", f"there are no deliveries in {what!r}", "use `seriatim workload deliveries`")
    if chosen["exponent"] is None:
        chosen["exponent"] = 2.1 if chosen["popularity"] == "power-law" else 1.0
    for_spark = {name: chosen.pop(name) for name in ("master", "memory", "executor_memory", "conf")}
    check_requirements()
    from seriatim.pipeline import workload as made

    workload = made.Workload(**chosen)
    injected = made.injections(workload, kinds) if kinds else []
    with session_of(for_spark, "workload") as spark:
        tables: dict[str, Any]
        if what == "subscriptions":
            tables = {name: getattr(made, name)(spark, workload, partitions) for name in (what, "sites", "rates")}
        elif what == "publications":
            tables = {what: made.publications(spark, workload, partitions)}
        else:
            tables = {
                "deliveries": made.deliveries(spark, workload, injected, partitions),
                "publications": made.delivered_publications(spark, workload, partitions),
                "subscriptions": made.delivered_subscriptions(spark, workload, partitions),
            }
        counts = {}
        for name, table in tables.items():
            path = f"{out.rstrip('/')}/{name}"
            show_progress(f"writing {path} …", stays=True)
            table.write.mode("overwrite").parquet(path)
            counts[name] = spark.read.parquet(path).count()
    if as_json:
        show_json({"out": out, "rows": counts, "injected": [structs.asdict(each) for each in injected]})
        return
    for name, count in counts.items():
        click.echo(f"{count:,} {name}")
    for each in injected:
        other = f" before {each.other}" if each.other else ""
        click.echo(f"injected: {each.kind} at {each.subscriber}, position {each.position}: {each.event_id}{other}")


def _kinds(inject: tuple[str, ...]) -> dict[Any, int]:
    kinds: dict[Any, int] = {}
    for text in inject:
        kind, equals, count = text.partition("=")
        if kind not in ("swap", "duplicate", "gap") or (equals and not count.isdigit()):
            raise InputError("--inject", f"{text!r} is not KIND=COUNT", "give swap=2, duplicate=1 or gap=1")
        kinds[kind] = kinds.get(kind, 0) + (int(count) if equals else 1)
    return kinds
