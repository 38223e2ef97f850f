"""The commands that change a running cluster: `move`, `apply`, and what they refuse before anything changes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seriatim.cli import apply, main
from seriatim.cli.moving import describe, homes_of_plan, keep_undo
from seriatim.model import InputError
from seriatim.order import Place
from seriatim.server.config import read_plan
from seriatim.server.description import ClusterDescription
from tests.cli.processes import WAIT_S, Running, up
from tests.ports import free_port

TREE = """
nodes.root = {}
nodes.eu.parent = "root"
nodes.us.parent = "root"
homes = { orders = "us", prices = "us", stock = "eu" }
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "tree.toml").write_text(TREE)
    with up(folder, "--tree", folder / "tree.toml") as (_, ready):
        yield ready


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def run(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(map(str, words)))
    return result.exit_code, result.stdout, result.stderr


def homes_now(url: str) -> dict[str, str]:
    tree = describe(url, "seriatim", WAIT_S).tree
    return {topic: tree.home(topic) for topic in ("orders", "prices", "stock")}


def test_a_topic_moves_and_events_go_on(cluster: dict[str, Any]) -> None:
    url = cluster["url"]
    with Running("sub", "orders", "prices", "--url", url, "--json", "--count", "20", "--idle", "600") as one:
        one.wait_for_line("listening to")
        for number, to in enumerate(("eu", "root", "us", "eu")):
            run("pub", "orders", f"order {number} {{{{n}}}}", "--count", "5", "--url", url)
            code, out, _ = run("move", "orders", "--to", to, "--url", url, "--json")
            (row,) = lines(out)
            assert code == 0
            assert (row["topic"], row["to"], row["waited_ms"] >= 0) == ("orders", to, True)
        assert one.wait() == 0
        assert [row["data"] for row in one.rows()] == [f"order {i} {n}" for i in range(4) for n in range(1, 6)]
    assert run("move", "orders", "--to", "eu", "--url", url)[1] == "orders lives on eu\n"
    assert homes_now(url)["orders"] == "eu"


def test_a_plan_is_applied_resumed_and_undone(cluster: dict[str, Any], tmp_path: Path) -> None:
    url, plan = cluster["url"], tmp_path / "plan.toml"
    before = homes_now(url)
    wanted = {topic: "root" if home != "root" else "eu" for topic, home in before.items()}
    plan.write_text("[homes]\n" + "".join(f'{topic} = "{node}"\n' for topic, node in wanted.items()))
    _, dry, _ = run("apply", plan, "--dry-run", "--url", url)
    assert dry.splitlines()[-1] == "3 topics to move, 0 topics already there"
    assert homes_now(url) == before
    assert not (tmp_path / "plan.undo.toml").exists()
    run("move", "prices", "--to", wanted["prices"], "--url", url)
    code, out, _ = run("apply", plan, "--url", url)
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()[:-1]] == ["orders", "stock"]
    assert "2 topics moved in" in out
    assert "1 topic already there; the longest wait was" in out
    assert homes_now(url) == wanted
    assert lines(run("apply", plan, "--json", "--url", url)[1]) == [], "nothing is left"
    undone = lines(run("apply", plan, "--undo", "--json", "--url", url)[1])
    assert [row["topic"] for row in undone] == ["orders", "stock"], "the third was not moved by the plan"
    assert not (tmp_path / "plan.undo.toml").exists()
    code, _, error = run("apply", plan, "--undo", "--url", url)
    assert (code, "this plan has moved nothing" in error) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        (["move", "orders", "--to", "asia"], 2, "--to: there is no node 'asia'; use one of eu, root, us"),
        (["move", "a b", "--to", "eu"], 2, "topic 'a b': it holds ' '"),
        (["move", "orders"], 2, "Missing option '--to'"),
        (["move", "orders", "--to", "eu", "--cluster", "nobody", "--timeout", "1"], 1, "no sequencer answers for"),
        (["move", "orders", "--to", "eu", "--url", "memory://"], 2, "memory:// is inside one process"),
        (["move", "orders", "--to", "eu", "--url", "nats+core://127.0.0.1"], 2, "topics do not move on such a broker"),
        (["apply", "plan.toml", "--url", "vcube://127.0.0.1:1"], 2, "peers and overlays have no homes of topics"),
        (["apply", "no.toml"], 2, "no.toml: there is no such file"),
        (["apply", "plan.toml", "--undo"], 2, "plan.undo.toml does not exist"),
        (["apply", "asia.toml"], 2, "nodes.asia: asia.toml wants it below africa, which neither the plan nor the"),
        (["apply", "chain.toml"], 2, "nodes.us: chain.toml wants it below eu, and it runs below root; nodes that run"),
        (["apply", "top.toml"], 2, "nodes.top: top.toml has top as the root, and root is the root"),
        (["apply", "home.toml"], 2, "homes.orders: home.toml names node 'asia', which is not there; use one of eu, ro"),
        (
            ["apply", "less.toml", "--remove-nodes"],
            2,
            "nodes.eu: less.toml does not list it, and says no other home fo",
        ),
        (["apply", "plan.toml", "--remove-nodes"], 2, "--remove-nodes: plan.toml lists no nodes, so all would go"),
        (["node", "add", "asia", "--parent", "africa"], 2, "--parent: there is no node 'africa'; use one of eu, root"),
        (["node", "add", "asia"], 2, "--parent: nobody says below which node it comes"),
        (["node", "add", "as ia", "--parent", "root"], 2, "NAME: 'as ia' cannot be the name of a node"),
        (["node", "add", "asia", "--above", "eu"], 1, "eu is not the root, and a node comes in above the root only"),
        (["node", "add", "eu", "--parent", "root"], 1, "the layout is as before: there is a node eu already"),
        (["node", "remove", "africa"], 2, "NODE: there is no node 'africa'"),
        (["node", "remove", "root"], 2, "NAME: root is the default home"),
        (["node", "remove", "eu"], 2, "on eu; move them first: seriatim move "),
        (["standby", "add", "eu", "127.0.0.1:7000"], 1, "which no other machine can read, so a standby could not take"),
        (["standby", "add", "eu", "nonsense"], 2, "HOST:PORT"),
        (
            ["node", "add", "asia", "--parent", "root", "--url", "nats+core://127.0.0.1"],
            2,
            "no place where a layout is",
        ),
        (
            ["node", "add", "asia", "--parent", "root", "--url", "vcube://127.0.0.1:1"],
            2,
            "listed in their file, and do",
        ),
        (["layout", "--config", "no.toml"], 2, "no.toml: there is no such file"),
        (["apply", "plan.toml", "--undo-file", "no/undo.toml"], 2, "--undo-file: no/undo.toml cannot be written"),
    ],
)
def test_what_is_refused_by_name(
    cluster: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    answer: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = homes_now(cluster["url"])
    (tmp_path / "plan.toml").write_text('[homes]\norders = "us"\nprices = "eu"\nstock = "root"\n')
    (tmp_path / "home.toml").write_text('[homes]\norders = "asia"\n')
    (tmp_path / "asia.toml").write_text("nodes.root = {}\nnodes.asia.parent = 'africa'\n[homes]\norders = 'root'\n")
    (tmp_path / "top.toml").write_text("nodes.top = {}\n[homes]\norders = 'root'\n")
    (tmp_path / "less.toml").write_text("nodes.root = {}\nnodes.us.parent = 'root'\n[homes]\norders = 'us'\n")
    (tmp_path / "chain.toml").write_text("nodes.eu.parent = 'root'\nnodes.us.parent = 'eu'\n[homes]\norders = 'root'\n")
    url = [] if "--url" in words else ["--url", cluster["url"]]
    found, _, error = run(*words, *url)
    assert (found, answer in error) == (code, True), error
    assert homes_now(cluster["url"]) == before


def test_a_root_that_is_away_is_named(tmp_path: Path) -> None:
    """Another node answers who orders here; the root does not."""
    (tmp_path / "tree.toml").write_text(TREE)
    with up(tmp_path, "--cluster", "apart", "--tree", tmp_path / "tree.toml") as (_, ready):
        config = tmp_path / "cluster.toml"
        config.write_text(
            f'cluster = "half"\nbroker = "{ready["url"]}"\nhomes = {{ orders = "eu" }}\n'
            f'nodes.root = {{ address = "127.0.0.1:{free_port()}", journal = "memory" }}\n'
            f'nodes.eu = {{ parent = "root", address = "127.0.0.1:{free_port()}", journal = "memory" }}\n'
        )
        with Running("serve", "--config", config, "--node", "eu", "--ready-file", tmp_path / "half.json") as one:
            one.wait_for_line("serving")
            words = ("--cluster", "half", "--url", ready["url"], "--timeout", "1")
            code, _, error = run("move", "orders", "--to", "root", *words)
            assert code == 1
            assert "the root root does not answer on _half.admin.root; start it, and repeat the command" in error
            plan = tmp_path / "plan.toml"
            plan.write_text('[homes]\norders = "root"\n')
            code, _, error = run("apply", plan, *words)
            assert code == 1
            assert "stopped after 0 of 1 topics: the root root does not answer" in error
            assert f"`seriatim apply {plan}` continues, `seriatim apply {plan} --undo` moves the topics back" in error


def test_topics_that_share_a_bucket_move_together() -> None:
    description = ClusterDescription(cluster="c", parents={"root": None, "eu": "root"}, default_home="root", buckets=8)
    with pytest.raises(InputError, match=r"TOPIC: 'orders' shares bucket 'bucket-00\d' with other topics.*; move buck"):
        homes_of_plan({"nodes": {}, "homes": {"orders": "eu"}}, description, "plan.toml")
    plan = {"nodes": {}, "homes": {"bucket-001": "eu"}}
    assert homes_of_plan(plan, description, "plan.toml") == {"bucket-001": "eu"}


def test_what_is_kept_to_undo_a_plan(tmp_path: Path) -> None:
    """The rest of a plan adds nothing to what its beginning has written; another plan starts over."""
    path = tmp_path / "undo.toml"

    def kept(homes: dict[str, str], left: dict[str, str]) -> dict[str, str]:
        keep_undo(path, homes, left)
        found: dict[str, str] = read_plan(path)["homes"]
        return found

    homes = {"a": "eu", "b": "eu", 'c "d"': "eu"}
    assert kept(homes, {"a": "us", "b": "root"}) == {"a": "us", "b": "root"}
    assert kept(homes, {"b": "root"}) == {"a": "us", "b": "root"}, "a has moved meanwhile"
    assert kept(homes, {"b": "asia", 'c "d"': "us"}) == {"a": "us", "b": "root", 'c "d"': "us"}, "b came by elsewhere"
    assert kept({"b": "us"}, {"b": "eu"}) == {"b": "eu"}


def test_on_a_terminal_a_plan_says_how_far_it_is(
    cluster: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(apply, "show_progress", shown.append)
    to = {"eu": "us"}.get(homes_now(cluster["url"])["stock"], "eu")
    (tmp_path / "plan.toml").write_text(f'[homes]\nstock = "{to}"\n')
    assert run("apply", tmp_path / "plan.toml", "--url", cluster["url"])[0] == 0
    assert [each for each in shown if each] == ["1 topic to move", "1 of 1 topic moved, about 0 s left"]
    assert shown[-1] == "", "it is taken away"
    assert apply._progress(250, 1_000, 20.0) == "250 of 1,000 topics moved, about 60 s left"


def test_a_description_says_where_topics_live_and_where_they_began() -> None:
    tree = {"root": None, "eu": "root"}
    moved = {"a": Place("eu", 3), "c": Place("eu", 4)}
    found = ClusterDescription(
        cluster="c", parents=tree, homes={"a": "root"}, default_home="root", moved=moved, moves=4
    )
    assert [found.tree.home(topic) for topic in "abc"] == ["eu", "root", "eu"]
