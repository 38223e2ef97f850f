"""The commands that change which nodes a running cluster has: `node`, `standby`, `layout`, and `apply` with nodes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seriatim.brokers.nats.server import NatsServer
from seriatim.cli import main
from seriatim.cli import plan as planning
from seriatim.cli.growing import additions, removals
from seriatim.model import InputError
from seriatim.order import SequencingTree
from seriatim.server.config import load_config, read_plan
from tests.cli.processes import Running, up
from tests.ports import free_ports

TREE = """
nodes.root = {}
nodes.eu.parent = "root"
homes = { orders = "eu", prices = "root" }
"""


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def run(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(map(str, words)))
    return result.exit_code, result.stdout, result.stderr


def test_a_plan_brings_nodes_and_takes_them_away(tmp_path: Path) -> None:
    """All nodes run in one process, so it runs the new ones, too."""
    (tmp_path / "tree.toml").write_text(TREE)
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "nodes.top = {}\nnodes.root.parent = 'top'\nnodes.eu.parent = 'root'\nnodes.asia.parent = 'top'\n"
        "homes = { orders = 'asia', prices = 'root' }\n"
    )
    with up(tmp_path, "--cluster", "grows", "--tree", tmp_path / "tree.toml") as (_, ready):
        where = ("--url", ready["url"], "--cluster", "grows", "--timeout", "60")
        with Running("sub", "orders", "prices", *where, "--json", "--count", "20", "--idle", "600") as one:
            one.wait_for_line("listening to")
            run("pub", "orders", "order {{n}}", "--count", "5", *where)
            (tmp_path / "nodes.toml").write_text("nodes.root = {}\nnodes.eu.parent = 'root'\nnodes.us.parent = 'eu'\n")
            asked: dict[str, Any] = {"nodes": str(tmp_path / "nodes.toml"), "named": (), "keep_tree": False}
            asked |= {"url": ready["url"], "cluster": "grows", "timeout_s": 60.0}
            known = planning._running(planning._nodes(asked), asked)
            assert known["now"].parents == {"root": None, "eu": "root", "us": "eu"}, "a plan may use a node that comes"
            code, dry, _ = run("apply", plan, "--dry-run", *where)
            assert (code, dry.splitlines()) == (
                0,
                [
                    "node top: comes above root",
                    "node asia: comes below top",
                    "orders: eu → asia",
                    "2 nodes to add, 1 topic to move, 1 topic already there",
                ],
            )
            code, out, error = run("apply", plan, "--json", *where)
            assert (code, [row.get("node", row.get("topic")) for row in lines(out)]) == (
                0,
                ["top", "asia", "orders"],
            ), error
            run("pub", "orders", "order {{n}}", "--count", "5", *where)
            listed = lines(run("node", "list", "--json", *where)[1])
            assert {row["node"]: row["parent"] for row in listed} == {
                "top": None,
                "root": "top",
                "eu": "root",
                "asia": "top",
            }
            assert run("status", *where)[0] == 0, "everything is well"
            undo = read_plan(tmp_path / "plan.undo.toml")
            assert undo["homes"] == {"orders": "eu"} and list(undo["nodes"]) == ["root", "eu"]
            code, out, error = run("apply", plan, "--undo", *where)
            assert (code, out.splitlines()[-2]) == (0, "node asia was removed"), error
            run("pub", "orders", "order {{n}}", "--count", "5", *where)
            less = tmp_path / "less.toml"
            less.write_text("nodes.top = {}\nnodes.root.parent = 'top'\nhomes = { orders = 'top', prices = 'root' }\n")
            code, out, error = run("apply", less, *where)
            assert (code, "removed" in out) == (0, False), "only when asked"
            code, out, error = run("apply", less, "--remove-nodes", *where)
            assert (code, out.splitlines()[0]) == (0, "node eu was removed"), error
            file = tmp_path / "now.toml"
            code, _, error = run("layout", "--out", file, *where)
            assert code == 0, error
            now, nodes = load_config(file), json.loads((tmp_path / "ready.json").read_text())["nodes"]
            assert now.homes == {"orders": "top", "prices": "root"}, "eu, where one of them began, has left"
            addresses = {name: node.addresses for name, node in now.nodes.items()}
            assert addresses["root"] == (nodes["root"],) and set(addresses) == {"root", "top"}
            assert not addresses["top"][0].endswith(":0"), "others must know where it is"
            run("pub", "orders", "order {{n}}", "--count", "5", *where)
            assert one.wait() == 0
            assert [row["data"] for row in one.rows()] == [f"order {n}" for n in range(1, 6)] * 4
        code, _, error = run("node", "add", "asia", "--parent", "root", *where)
        assert (code, "there was a node asia, and names are not used again" in error) == (1, True)


def write_config(path: Path, url: str, cluster: str, nodes: dict[str, tuple[str, str]]) -> Path:
    """`nodes`: parent and address of each."""
    text = f'cluster = "{cluster}"\nbroker = "{url}"\nhomes = {{ orders = "eu", prices = "root" }}\n'
    for name, (parent, address) in nodes.items():
        text += f'[nodes.{name}]\naddress = "{address}"\n' + (
            f'parent = "{parent}"\n' if parent else 'journal = "broker"\n'
        )
    path.write_text(text)
    return path


def serving(stack: ExitStack, path: Path, *words: str) -> Running:
    running = stack.enter_context(Running("serve", "--config", path, *words))
    running.wait_for_line("serving")
    return running


def test_nodes_and_standbys_in_processes_of_their_own(nats: NatsServer, tmp_path: Path) -> None:
    """The new node waits until it is added. The root is killed, and its standby, which came later, takes over. Files
    from before are told, and written anew."""
    url, cluster = nats.url, "apart"
    names = ("root", "eu", "asia", "standby", "elsewhere")
    at = dict(zip(names, map("127.0.0.1:{}".format, free_ports(5)), strict=True))
    known = {"root": ("", at["root"]), "eu": ("root", at["eu"])}
    file = write_config(tmp_path / "cluster.toml", url, cluster, known)
    new = write_config(tmp_path / "new.toml", url, cluster, {**known, "asia": ("eu", at["asia"])})
    where = ("--url", url, "--cluster", cluster, "--timeout", "60")
    with ExitStack() as stack:
        root, _eu = (serving(stack, file, "--node", node) for node in ("root", "eu"))
        one = stack.enter_context(
            Running("sub", "orders", "prices", *where, "--json", "--count", "50", "--idle", "600")
        )
        one.wait_for_line("listening to")
        plan = tmp_path / "plan.toml"
        plan.write_text(
            "nodes.root = {}\nnodes.eu.parent = 'root'\nnodes.asia.parent = 'eu'\nhomes = { orders = 'asia' }\n"
        )
        code, _, error = run("apply", plan, *where)
        assert (
            code == 1 and "no process waits to run asia, and nothing has changed. Add `nodes.asia = { parent" in error
        )
        asia = stack.enter_context(Running("serve", "--config", new, "--node", "asia"))
        asia.wait_for_line("waiting to be added: cluster=apart node=asia parent=eu")
        code, _, error = run("node", "add", "asia", "--parent", "root", *where)
        assert code == 2 and "the file of the process that waits to run asia has it below eu" in error
        code, out, error = run("apply", plan, *where)
        assert (code, out.splitlines()[0]) == (0, "node asia was added below eu"), error
        asia.wait_for_line("serving")
        run("pub", "orders", "order {{n}}", "--count", "10", *where)
        code, out, error = run("standby", "add", "root", at["standby"], *where)
        assert (code, out) == (0, f"node root is at {at['root']}, {at['standby']}\n"), error
        standby = serving(stack, file, "--node", "root", "--standby")
        assert any("the file is older than the layout of cluster apart" in line for line in standby.err)
        root.process.kill()
        root.wait()
        standby.wait_for_line("role changed: node=root role=active")
        run("pub", "prices", "price {{n}}", "--count", "10", *where)
        again = serving(stack, file, "--node", "root")
        again.wait_for_line("the file is older than the layout of the cluster, and the layout counts")
        code, _, error = run("standby", "remove", "root", at["standby"], *where)
        assert code == 1 and f"{at['standby']} is the active process of root; stop it" in error
        standby.process.terminate()
        assert standby.wait() == 0
        again.wait_for_line("role changed: node=root role=active")
        code, out, error = run("standby", "remove", "root", at["standby"], *where)
        assert (code, out) == (0, f"node root is at {at['root']}\n"), error
        run("pub", "orders", "order {{n}}", "--count", "10", *where)
        code, _, error = run("layout", "--config", file, "--out", file)
        assert (code, "after 3 changes by commands" in error) == (0, True), error
        config = load_config(file)
        assert {name: node.parent for name, node in config.nodes.items()} == {"root": None, "eu": "root", "asia": "eu"}
        assert config.nodes["asia"].addresses == (at["asia"],) and config.nodes["root"].journal == "broker"
        assert (tmp_path / "cluster.toml.before").exists()
        asia.process.terminate()
        assert asia.wait() == 0
        code, out, error = run("node", "address", "asia", at["elsewhere"], *where)
        assert (code, out) == (0, f"node asia is at {at['elsewhere']}\n"), "also while it is away: " + error
        asia = serving(stack, new, "--node", "asia")
        run("pub", "orders", "order {{n}}", "--count", "10", *where)
        (there,) = [row["active"] for row in lines(run("node", "--json", *where)[1]) if row["node"] == "asia"]
        assert there == at["elsewhere"]
        run("move", "orders", "--to", "eu", *where)
        code, out, error = run("node", "remove", "asia", *where)
        assert (code, out) == (0, "node asia was removed\n"), error
        assert asia.wait() == 0, "its process ends by itself, in good order"
        run("pub", "prices", "price {{n}}", "--count", "10", *where)
        assert one.wait() == 0
        words = [row["data"].split()[0] for row in one.rows()]
        assert words == ["order"] * 10 + ["price"] * 10 + ["order"] * 20 + ["price"] * 10
        refused = Running("serve", "--config", new, "--node", "asia")
        with refused:
            assert refused.wait() == 2
            assert any("node 'asia' was removed from cluster 'apart'" in line for line in refused.err)


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        ({"root": None, "eu": "root"}, []),
        ({"root": None, "eu": "root", "us": "asia", "asia": "eu"}, ["asia below eu", "us below asia"]),
        ({"t": "s", "s": None, "root": "t", "eu": "root"}, ["t above root", "s above t"]),
        ({"asia": "root"}, ["asia below root"]),
    ],
)
def test_in_which_order_nodes_come(wanted: dict[str, str | None], steps: list[str]) -> None:
    tree = SequencingTree({"root": None, "eu": "root"}, {}, "root")
    assert [each.text.replace("node ", "").replace(": comes", "") for each in additions(tree, wanted, "p")] == steps


def test_which_nodes_go() -> None:
    parents = {"root": None, "eu": "root", "de": "eu", "us": "root"}
    tree = SequencingTree(parents, {"a": "de", "b": "us"}, "root")
    assert [each.node for each in removals(tree, ["root", "us"], {"a": "root"}, "p", None)] == ["de", "eu"]
    assert removals(tree, ["root", "us"], {"a": "root"}, "p", ["us"]) == []
    for wanted, problem in (
        (["root", "us", "de"], "only leaves go; list it; below it there is de"),
        (["us"], "default"),
    ):
        with pytest.raises(InputError, match=problem):
            removals(tree, wanted, {"a": "root"}, "p", None)
