"""`seriatim plan`: from subscriptions to the tree and the homes of topics, or to sequencing atoms."""

import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from seriatim.cli.common import OrderChoice, json_option, show_json, show_progress, table, url_option
from seriatim.cli.moving import undo_path
from seriatim.cli.spark import session_of, spark_options
from seriatim.model import InputError
from seriatim.protocols.atoms.written import differences, graph_of, parse
from seriatim.protocols.atoms.written import is_atoms as plan_of_atoms
from seriatim.protocols.tree.options import TreeOrder
from seriatim.runtime.tables import read_toml
from seriatim.server.config import load_config, read_plan
from seriatim.server.orders import read_order

if TYPE_CHECKING:
    from seriatim.order import SequencingTree
    from seriatim.pipeline.plan import Inputs, Network

EXIT_DIFFERS = 1
SHOWN_MAX = 10


@click.command
@click.argument("subscriptions")
@click.option(
    "--order",
    type=OrderChoice(["global", "pairwise", "atoms"]),
    help="The promised order; atoms replace the tree (default: from the file, or global).",
)
@click.option("--out", metavar="URI", help="The folder to write to; its content is replaced.")
@click.option("--rates", metavar="URI", help="A table: topic, events_per_s, and site (where they are published).")
@click.option("--publications", metavar="URI", help="Take the rates from a log of events instead.")
@click.option("--sites", metavar="URI", help="A table: client, site. For subscribers, and publishers of a log.")
@click.option(
    "--nodes", metavar="FILE", help="cluster.toml, or a file with only [nodes.<name>] and their site, parent."
)
@click.option("--node", "named", multiple=True, metavar="NAME=SITE", help="A node and its site; may be given again.")
@click.option("--load-max", type=float, help="Events per second that one node may handle.")
@click.option("--buckets", type=click.IntRange(min=0), help="How many buckets topics share (default: from the file).")
@click.option("--ended", is_flag=True, help="Also count subscriptions that have ended, for the log of a finished run.")
@click.option(
    "--causal", is_flag=True, help="Atoms for causal order: groups that share one subscriber get an atom, too."
)
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    metavar="subscriber=S,topics=A+B",
    help="Print what this subscription would change.",
)
@click.option("--compare", is_flag=True, help="Show other placements, too.")
@click.option(
    "--advice", "advice_count", type=click.IntRange(min=0), default=5, help="How many sentences of advice to print."
)
@click.option("--check", metavar="PLAN", help="Only check whether this plan.toml fits the topics of SUBSCRIPTIONS.")
@click.option("--keep-tree", is_flag=True, help="Only topics may move: keep the tree of the file (--nodes) as it is.")
@click.option("--apply", "applies", is_flag=True, help="Plan for the running cluster (--url), and change it.")
@url_option
@json_option
@spark_options
def command(subscriptions: str, out: str | None, check: str | None, **given: Any) -> None:
    """Choose the tree and the homes of topics, and say what couplings cost; or plan sequencing atoms.

    SUBSCRIPTIONS is a table (Parquet, CSV or JSON lines, at any URI that Spark can read) with the columns subscriber
    and topic; rows whose `until` is not empty have ended. An archive can be given, too; then its events give the rates.
    The table of sites may name a client by its whole name, or by the name it asked for.

    The planner minimises wide-area hops: messages between sites until an event has its stamp. Two topics are coupled if
    a subscriber holds both (in pairwise order: two subscribers); then their events must meet somewhere.

    \b
    OUT gets
      plan.toml   the tree and the home of every topic: `seriatim serve --plan`, or `seriatim apply` while it runs
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
      seriatim plan lake/shop --sites sites.csv --nodes cluster.toml --out plan/ --apply
      seriatim plan work/subscriptions --order atoms --node eu=europe --node us=america --out plan/

    \b
    Exit code: 0 done, 1 the plan does not fit the topics (--check), 2 wrong input, or it could not be done,
               130 interrupted.
    """
    if (out is None) == (check is None):
        raise click.UsageError("Give --out, or --check.")
    if given["applies"] and (out is None or "://" in out):
        raise InputError("--apply", "the plan must be in a folder of this machine", "give --out FOLDER")
    if given["rates"] and given["publications"]:
        raise click.UsageError("Give --rates or --publications, not both.")
    questions = [_question(text) for text in given["questions"]]
    nodes = _nodes(given)
    if given["applies"]:
        nodes = _running(nodes, given)
    order = given["order"] or nodes["order"]
    chosen = read_order(order, given["causal"])
    for notice in chosen.notices:
        click.echo(f"note: {notice.meaning}", err=True)
    is_atoms = order == "atoms"
    homes: dict[str, str] = {}
    if check is not None:
        is_atoms = is_atoms or plan_of_atoms(read_toml(Path(check), "plan.toml"))
        homes = {} if is_atoms else read_plan(Path(check))["homes"]
    if is_atoms:
        for name, option in (("buckets", "--buckets"), ("questions", "--what-if"), ("compare", "--compare")):
            if given[name]:
                raise click.UsageError(f"{option} is for the tree, not for atoms.")
    with session_of(given, "plan") as spark:
        from seriatim.pipeline import plan as planning

        inputs = _inputs(spark, subscriptions, given)
        buckets = given["buckets"] if given["buckets"] is not None else nodes["buckets"]
        causal = given["causal"] or nodes["causal"]
        if check is not None:
            fits = (
                _check_atoms(inputs, Path(check), given["as_json"])
                if is_atoms
                else _check_tree(check, homes, planning.topics_of(inputs.held, buckets).names, given["as_json"])
            )
            sys.exit(0 if fits else EXIT_DIFFERS)
        assert out is not None
        name = out.rstrip("/").rpartition("/")[2]
        if is_atoms:
            from seriatim.pipeline.plan import atoms

            hosts = _network(nodes, (), given["load_max"]) if nodes["sites"] else given["load_max"]
            with atoms.planned_atoms(inputs, hosts, causal, _say) as graph:
                summary = atoms.summary(graph, name)
                atoms.write_atoms(graph, summary, out)
        else:
            tree_order: TreeOrder = "pairwise" if order == "pairwise" else "global"
            with planning.summed_up(inputs, buckets, tree_order, _say) as summed:
                network = _network(nodes, summed.graph.sites, given["load_max"])
                plan = planning.make_plan(summed, network, _say)
                advice: list[Any] = [*planning.advise_on_wide(plan), *planning.advise(plan, given["advice_count"])]
                answers = [planning.what_if(plan, subscriber, topics) for subscriber, topics in questions]
                summary = planning.summary(plan, advice[: given["advice_count"]], name)
                planning.write_plan(plan, summary, out)
            summary["what_if"] = [answer.sentence for answer in answers]
    path = f"{out.rstrip('/')}/plan.toml"
    if given["as_json"]:
        show_json(summary)
    elif is_atoms:
        _show_atoms(summary, path)
    else:
        _show_tree(summary, given["compare"], path)
    if given["applies"]:
        from seriatim.cli.apply import apply_file

        file = Path(path)
        where = (given["url"], given["cluster"], given["timeout_s"])
        apply_file(file, undo_path(file), *where, False, given["as_json"], again=f"seriatim apply {path}")


def _inputs(spark: Any, subscriptions: str, given: dict[str, Any]) -> "Inputs":
    from seriatim.pipeline import plan as planning

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


def _network(nodes: dict[str, Any], sites: tuple[str, ...], load_max: float | None) -> "Network":
    from seriatim.pipeline import plan as planning

    if not nodes["sites"]:
        return planning.default_network(sites, load_max)
    strange = sorted(set(sites) - set(nodes["sites"].values()))
    if sites and len(strange) == len(sites):
        problem = f"no node is where clients are ({', '.join(strange[:SHOWN_MAX])})"
        fix = "give nodes the sites of the clients: site = … in the file, or --node NAME=SITE"
        raise InputError("nodes", problem, fix)
    return planning.Network(nodes["sites"], nodes["now"], load_max, nodes["keeps_tree"])


def _nodes(given: dict[str, Any]) -> dict[str, Any]:
    """Nodes with their sites, the tree they form now, and what else the cluster's file says."""
    found: dict[str, Any] = {"sites": {}, "now": None, "buckets": 0, "causal": False, "order": None}
    found["keeps_tree"] = given["keep_tree"]
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


def _running(nodes: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Replace the tree and homes of `nodes` by those of the running cluster. InputError: the nodes do not fit it."""
    from seriatim.cli.growing import check_reachable
    from seriatim.cli.moving import check_cluster, check_url, describe
    from seriatim.order import SequencingTree

    check_url(given["url"])
    description = describe(given["url"], given["cluster"], given["timeout_s"])
    check_cluster(description)
    tree = description.tree
    sites = nodes["sites"] or {node: node for node in tree.parents}
    shape = nodes["now"].parents if nodes["now"] is not None else tree.parents
    if sites.keys() != shape.keys() or not tree.parents.keys() <= shape.keys():
        problem = f"they are not those that run: {', '.join(tree.parents)}"
        fix = "name the nodes of the running cluster, with their sites; further ones with their parents, in a file"
        raise InputError("--nodes", problem, fix)
    check_reachable(tree, shape, given["nodes"] or "the plan")
    homes = {topic: tree.home(topic) for topic in tree.homes}
    now = SequencingTree(shape, homes, tree.default_home)
    more = {"sites": sites, "now": now, "buckets": description.buckets, "order": description.order}
    return nodes | more | {"keeps_tree": True}


def _read_nodes(path: Path) -> dict[str, Any]:
    raw = read_toml(path)
    if "broker" in raw:
        config = load_config(path)
        sites = {name: node.site or name for name, node in config.nodes.items()}
        order, buckets = config.order, config.streams.buckets
        return {"sites": sites, "now": config.tree, "buckets": buckets, "causal": config.causal, "order": order}
    nodes = raw.get("nodes")
    if not isinstance(nodes, dict) or not nodes or set(raw) != {"nodes"}:
        problem = "is neither a cluster.toml with a broker nor a file with only nodes"
        raise InputError(str(path), problem, 'write nodes.eu = { site = "europe" }, and so on')
    for name, node in nodes.items():
        if not isinstance(node, dict) or not node.keys() <= {"site", "parent"}:
            raise InputError(f"nodes.{name}", f"{node!r} does not fit", 'write { site = "europe" }')
    return {"sites": {name: str(node.get("site") or name) for name, node in nodes.items()}, "now": _tree_of(nodes)}


def _tree_of(nodes: dict[str, dict[str, str]]) -> "SequencingTree | None":
    """The tree that the parents in a file form. None: the file names no parents."""
    from seriatim.order import SequencingTree

    if not any("parent" in node for node in nodes.values()):
        return None
    tree = SequencingTree({name: node.get("parent") for name, node in nodes.items()}, {})
    return SequencingTree(tree.parents, {}, tree.root)


def _question(text: str) -> tuple[str, list[str]]:
    subscriber, comma, topics = text.partition(",topics=")
    name = subscriber.removeprefix("subscriber=")
    if not comma or name == subscriber or not name or not all(topics.split("+")):
        raise InputError("--what-if", f"{text!r} is not a question", "give subscriber=NAME,topics=A+B")
    return name, topics.split("+")


def _say(line: str) -> None:
    show_progress(f"{line} …", stays=True)


def _show_tree(summary: dict[str, Any], compare: bool, path: str) -> None:
    click.echo(", ".join(f"{value} {name}" for name, value in summary["facts"].items()))
    after = summary["after"]
    click.echo(f"\ntree: {after['tree']}")
    headings = ("node", "site", "parent", f"{'topics':>8}", f"{'events/s':>10}")
    nodes = [
        (each["name"], each["site"], each["parent"] or "-", f"{each['topics']:>8,}", f"{each['load_per_s']:>10,.1f}")
        for each in after["nodes"]
    ]
    click.echo(indent(table(headings, nodes), "  "))
    rows = [(after["name"], after["hops_per_event"]), ("lower bound", summary["bound_per_event"])]
    if summary["before"] is not None:
        rows.append((summary["before"]["name"], summary["before"]["hops_per_event"]))
    if compare:
        rows += [(other["name"], other["hops_per_event"]) for other in summary["others"]]
    width = max(len(name) for name, _ in rows)
    click.echo("\nwide-area hops per event")
    for name, hops in rows:
        click.echo(f"  {name:{width}}  {hops:6.3f}")
    _show_orders(summary["orders"])
    for sentence in [*summary["advice"], *summary["what_if"]]:
        click.echo(f"\n{sentence}")
    click.echo(f"\nwrote {path}")


def _show_orders(orders: list[dict[str, Any]]) -> None:
    """What one order for everybody costs, beside pairwise order on its own best plan."""
    measures = ("entries_per_event", "bytes_per_event", "hops_per_event")
    headings = ("order", f"{'coupled pairs':>13}", *(f"{name.replace('_per_', '/'):>13}" for name in measures))
    rows = [
        (each["order"], f"{each['coupled_pairs']:>13,}", *(f"{each[name]:>13.3f}" for name in measures))
        for each in orders
    ]
    click.echo(f"\n{table(headings, rows)}")


def _check_tree(path: str, homes: dict[str, str], topics: Iterable[str], as_json: bool) -> bool:
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
    return check.fits


def _show_atoms(found: dict[str, Any], path: str) -> None:
    click.echo(f"{found['groups']:,} groups, {found['subscriptions']:,} subscriptions, {found['atoms']:,} atoms")
    backbone = f", {found['backbone']:,} groups in backbones" if found["backbone"] else ""
    click.echo(f"{found['components']:,} components{backbone}, {found['nodes']:,} sequencing nodes")
    lengths = found["path_length"]
    click.echo(
        f"\na group with atoms passes {lengths['mean']:,.1f} of them (half pass at most {lengths['half']:,.0f})"
        f", {found['pass_through']:,} pass-throughs in all"
    )
    if found["longest_path"] is not None:
        click.echo(f"the longest path is that of {found['longest_path']['topic']}: {lengths['most']:,.0f} atoms")
    click.echo(
        f"hops between hosts per event {found['hops_per_event']:.3f}, wide-area {found['wide_hops_per_event']:.3f}"
    )
    headings = ("host", "site", f"{'nodes':>8}", f"{'atoms':>9}", f"{'events/s':>10}")
    rows = [
        (host["name"], host["site"], f"{host['nodes']:>8,}", f"{host['atoms']:>9,}", f"{host['load_per_s']:>10,.1f}")
        for host in found["hosts"]
    ]
    click.echo(f"\n{indent(table(headings, rows), '  ')}")
    heaviest = found["node_load"]["most"]
    if heaviest > found["load_max"] * 1.000001:
        click.echo(
            f"\none node sees {heaviest:,.1f} events/s, more than {found['load_max']:,.1f}: all its groups pass it"
        )
    click.echo(f"\nwrote {path}")


def _check_atoms(inputs: "Inputs", path: Path, as_json: bool) -> bool:
    """Print whether the plan is a valid graph, and whether it fits the present members."""
    from seriatim.pipeline.plan import atoms as planning

    written = parse(read_toml(path, "plan.toml"))
    graph = graph_of(written)
    found = differences(written, planning.digests_of(inputs.held))
    if as_json:
        show_json({"plan": str(path), "atoms": len(graph.atoms), "differs": dict(found)})
    else:
        for topic, problem in found[:SHOWN_MAX]:
            click.echo(f"{topic}: {problem}")
        if len(found) > SHOWN_MAX:
            click.echo(f"and {len(found) - SHOWN_MAX:,} more")
        if not found:
            click.echo(f"{path} is for these {len(written.topics):,} topics and their members")
    return not found
