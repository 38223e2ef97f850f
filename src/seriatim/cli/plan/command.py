"""`seriatim plan`: from subscriptions to the tree and the homes of topics, or to sequencing atoms (plan_atoms.py)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from seriatim.cli.common import is_terminal, json_option, show_json
from seriatim.cli.plan import atoms as plan_atoms
from seriatim.cli.spark import session_of, spark_options
from seriatim.model import InputError

EXIT_DIFFERS = 1
SHOWN_MAX = 10

HELP = """Choose the tree and the homes of topics, and say what couplings cost; or plan sequencing atoms.

SUBSCRIPTIONS is a table (Parquet, CSV or JSON lines, at any URI that Spark can read) with the columns subscriber and
topic; rows whose `until` is not empty have ended. An archive will do, too: then its events give the rates. A client of
the table of sites is meant by its whole name, or by the name it asked for.

What is minimised are wide-area hops: messages between sites until an event has its stamp. Two topics are coupled if two
subscribers hold both; then their events must meet somewhere.

\b
OUT gets
  plan.toml   the tree and the home of every topic: `seriatim serve --plan OUT/plan.toml`
  plan.json   the plan beside other placements and the lower bound; what `seriatim report OUT` shows
  topics/     one row per topic: its stamps, its home, its hops        (Parquet)
  pairs/      one row per coupled pair: who causes it, what it costs   (Parquet)
and with --order atoms
  plan.toml   the sequencing graph: atoms, what comes after each, hosts
  plan.json   its sizes, the lengths of paths, what hosts have to bear
  atoms/      one row per overlap of two groups: its atom              (Parquet)
  groups/     one row per group: where it enters and leaves, its path  (Parquet)
  nodes/      one row per sequencing node: its host, load and stress   (Parquet)

\b
Examples:
  seriatim plan work/subscriptions --rates work/rates --sites work/sites --out plan/
  seriatim plan lake/shop --sites sites.csv --nodes cluster.toml --out plan/
  seriatim plan work/subscriptions --node eu=europe --node us=america --load-max 5000 --out plan/
  seriatim plan work/subscriptions --out plan/ --what-if subscriber=monitor,topics=t1+t7
  seriatim plan work/subscriptions --check plan/plan.toml
  seriatim plan work/subscriptions --order atoms --node eu=europe --node us=america --out plan/

\b
Exit code: 0 done, 1 the plan does not fit the topics (--check), 2 wrong input, or it could not be done,
           130 interrupted.
"""


@click.command(help=HELP)
@click.argument("subscriptions")
@click.option("--order", type=click.Choice(["tree", "atoms"]), default="tree", show_default=True, help="What orders.")
@click.option("--out", metavar="URI", help="The folder to write to; what is there is replaced.")
@click.option("--rates", metavar="URI", help="A table: topic, events_per_s, and site (where they are published).")
@click.option("--publications", metavar="URI", help="Take the rates from a log of events instead.")
@click.option("--sites", metavar="URI", help="A table: client, site. For subscribers, and publishers of a log.")
@click.option(
    "--nodes", metavar="FILE", help="cluster.toml, or a file with only [nodes.<name>] and their site, parent."
)
@click.option("--node", "named", multiple=True, metavar="NAME=SITE", help="A node and its site; may be given again.")
@click.option("--load-max", type=float, help="Events per second that one node may handle.")
@click.option("--buckets", type=click.IntRange(min=0), help="How many buckets topics share (default: from the file).")
@click.option(
    "--ended", is_flag=True, help="Subscriptions that have ended count, too: for the log of a run that is over."
)
@click.option("--causal", is_flag=True, help="Topics are coupled by one subscriber, not only by two.")
@click.option("--what-if", "questions", multiple=True, metavar="subscriber=S,topics=A+B", help="What would change?")
@click.option("--compare", is_flag=True, help="Show other placements, too.")
@click.option("--advice", "advice_count", type=click.IntRange(min=0), default=5, show_default=True, help="Sentences.")
@click.option("--check", metavar="PLAN", help="Only say whether this plan.toml is for the topics of SUBSCRIPTIONS.")
@json_option
@spark_options
@click.pass_context
def command(context: click.Context, /, subscriptions: str, out: str | None, check: str | None, **given: Any) -> None:
    """Choose the tree and the homes of topics, or sequencing atoms, and say what couplings cost."""
    if (out is None) == (check is None):
        raise click.UsageError("Give --out, or --check.")
    if given["rates"] and given["publications"]:
        raise click.UsageError("Give --rates or --publications, not both.")
    questions = [_question(text) for text in given["questions"]]
    nodes = _nodes(given)
    is_atoms = given["order"] == "atoms" or (check is not None and plan_atoms.is_for_atoms(Path(check)))
    if is_atoms:
        plan_atoms.refuse(given)
    homes = _homes(Path(check)) if check is not None and not is_atoms else {}
    with session_of(given, "plan") as spark:
        from seriatim.pipeline import plan as planning

        inputs = _inputs(spark, planning, subscriptions, given)
        buckets = given["buckets"] if given["buckets"] is not None else nodes["buckets"]
        if is_atoms and check is not None:
            context.exit(plan_atoms.show_check(inputs, Path(check), given["as_json"]))
        if check is not None:
            context.exit(_show_check(check, homes, planning.topics_of(inputs.held, buckets).names, given["as_json"]))
        assert out is not None
        if is_atoms:
            network = _network(planning, nodes, (), given["load_max"]) if nodes["sites"] else given["load_max"]
            causal = given["causal"] or nodes["causal"]
            summary = plan_atoms.make(inputs, network, causal, out, _say)
            plan_atoms.show(summary, f"{out.rstrip('/')}/plan.toml", given["as_json"])
            return
        with planning.summed_up(inputs, buckets, given["causal"] or nodes["causal"], _say) as summed:
            network = _network(planning, nodes, summed.graph.sites, given["load_max"])
            plan = planning.make_plan(summed, network, _say)
            advice: list[Any] = [*planning.advise_on_wide(plan), *planning.advise(plan, given["advice_count"])]
            answers = [planning.what_if(plan, subscriber, topics) for subscriber, topics in questions]
            summary = planning.summary(plan, advice[: given["advice_count"]], out.rstrip("/").rpartition("/")[2])
            planning.write_plan(plan, summary, out)
    summary["what_if"] = [answer.sentence for answer in answers]
    if given["as_json"]:
        show_json(summary)
    else:
        _show(summary, given["compare"], f"{out.rstrip('/')}/plan.toml")


def _inputs(spark: Any, planning: Any, subscriptions: str, given: dict[str, Any]) -> Any:
    sites = planning.read_table(spark, "sites", given["sites"]) if given["sites"] else None
    rates = planning.read_table(spark, "rates", given["rates"]) if given["rates"] else None
    held, events = planning.from_archive(spark, subscriptions) or (None, None)
    if held is None:
        held = planning.read_table(spark, "subscriptions", subscriptions)
    if given["publications"]:
        events = planning.read_table(spark, "publications", given["publications"])
    if rates is None and events is not None:
        rates = planning.rates_of(events, sites)
    return planning.Inputs(held, rates, sites, given["ended"])


def _network(planning: Any, nodes: dict[str, Any], sites: tuple[str, ...], load_max: float | None) -> Any:
    if not nodes["sites"]:
        return planning.default_network(sites, load_max)
    strange = sorted(set(sites) - set(nodes["sites"].values()))
    if sites and len(strange) == len(sites):
        problem = f"no node is where clients are ({', '.join(strange[:SHOWN_MAX])})"
        raise InputError(
            "nodes", problem, "give nodes the sites of the clients: site = … in the file, or --node NAME=SITE"
        )
    return planning.Network(nodes["sites"], nodes["now"], load_max)


def _nodes(given: dict[str, Any]) -> dict[str, Any]:
    """Nodes with their sites, the tree they form now, and what else the cluster's file says."""
    found: dict[str, Any] = {"sites": {}, "now": None, "buckets": 0, "causal": False}
    if given["nodes"]:
        found |= _read_nodes(Path(given["nodes"]))
    for text in given["named"]:
        name, equals, site = text.partition("=")
        if not name or (equals and not site):
            raise InputError("--node", f"{text!r} is not NAME=SITE", "give for example --node eu=europe")
        if found["now"] is not None and name not in found["sites"]:
            raise InputError("--node", f"{name!r} is not in {given['nodes']}", "name nodes in one place")
        found["sites"][name] = site or name
    return found


def _read_nodes(path: Path) -> dict[str, Any]:
    from seriatim.runtime.tables import read_toml
    from seriatim.server.config import load_config

    raw = read_toml(path)
    if "broker" in raw:
        config = load_config(path)
        sites = {name: node.site or name for name, node in config.nodes.items()}
        return {"sites": sites, "now": config.tree, "buckets": config.streams.buckets, "causal": config.causal}
    nodes = raw.get("nodes")
    if not isinstance(nodes, dict) or not nodes or set(raw) != {"nodes"}:
        problem = "has neither a broker (as cluster.toml) nor only nodes"
        raise InputError(str(path), problem, 'write nodes.eu = { site = "europe" }, and so on')
    for name, node in nodes.items():
        if not isinstance(node, dict) or not node.keys() <= {"site", "parent"}:
            raise InputError(f"nodes.{name}", f"{node!r} does not fit", 'write { site = "europe" }')
    return {"sites": {name: str(node.get("site") or name) for name, node in nodes.items()}, "now": _tree_of(nodes)}


def _tree_of(nodes: dict[str, dict[str, str]]) -> Any:
    from seriatim.order import SequencingTree

    if not any("parent" in node for node in nodes.values()):
        return None
    tree = SequencingTree({name: node.get("parent") for name, node in nodes.items()}, {})
    return SequencingTree(tree.parents, {}, tree.root)


def _homes(path: Path) -> dict[str, str]:
    from seriatim.server.config import read_plan

    homes: dict[str, str] = read_plan(path)["homes"]
    return homes


def _question(text: str) -> tuple[str, list[str]]:
    subscriber, comma, topics = text.partition(",topics=")
    name = subscriber.removeprefix("subscriber=")
    if not comma or name == subscriber or not name or not all(topics.split("+")):
        raise InputError("--what-if", f"{text!r} is not a question", "give subscriber=NAME,topics=A+B")
    return name, topics.split("+")


def _say(line: str) -> None:
    if is_terminal():
        click.echo(f"{line} …", err=True)


def _show(summary: dict[str, Any], compare: bool, path: str) -> None:
    facts = ", ".join(f"{value} {name}" for name, value in summary["facts"].items())
    click.echo(facts)
    after = summary["after"]
    click.echo(f"\ntree: {after['tree']}")
    width = max(4, *(len(node["name"]) for node in after["nodes"]))
    place = max(4, *(len(node["site"]) for node in after["nodes"]))
    below = max(6, *(len(node["parent"] or "") for node in after["nodes"]))
    click.echo(f"  {'node':{width}}  {'site':{place}}  {'parent':{below}}  {'topics':>8}  {'events/s':>10}")
    for node in after["nodes"]:
        parent = node["parent"] or "-"
        line = f"  {node['name']:{width}}  {node['site']:{place}}  {parent:{below}}"
        click.echo(f"{line}  {node['topics']:>8,}  {node['load_per_s']:>10,.1f}")
    rows = [(after["name"], after["hops_per_event"]), ("lower bound", summary["bound_per_event"])]
    if summary["before"] is not None:
        rows.append((summary["before"]["name"], summary["before"]["hops_per_event"]))
    if compare:
        rows += [(other["name"], other["hops_per_event"]) for other in summary["others"]]
    width = max(len(name) for name, _ in rows)
    click.echo("\nwide-area hops per event")
    for name, hops in rows:
        click.echo(f"  {name:{width}}  {hops:6.3f}")
    for sentence in [*summary["advice"], *summary["what_if"]]:
        click.echo(f"\n{sentence}")
    click.echo(f"\nwrote {path}")


def _show_check(path: str, homes: dict[str, str], topics: Iterable[str], as_json: bool) -> int:
    from seriatim.live.plan_check import check_plan, listed

    check = check_plan(path, homes, topics)
    if as_json:
        show_json({"plan": path, "topics": check.count, "unknown": check.unknown, "homeless": check.homeless})
    else:
        if check.unknown:
            click.echo(f"not in use, but in the plan: {listed(check.unknown)}")
        if check.homeless:
            click.echo(f"in use, but not in the plan: {listed(check.homeless)}")
        if check.fits:
            click.echo(f"{path} is for these {check.count:,} topics")
        elif check.is_for_other_topics:
            click.echo(f"{path} is for other topics: not one of the {check.count:,} in use is in it")
    return 0 if check.fits else EXIT_DIFFERS
