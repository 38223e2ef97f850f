"""A cluster from one file: nodes in separate processes, killed and started again, behind tokens and TLS."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.brokers.nats.server import NatsServer
from tests.certificates import Certificates
from tests.cli.processes import Running, run
from tests.cli.test_live import order_of
from tests.ports import free_ports

pytest.importorskip("seriatim.brokers.nats.jetstream")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


def write_config(folder: Path, url: str, more: str = "") -> Path:
    """Two nodes, each home of a topic."""
    root, eu = free_ports(2)
    path = folder / "cluster.toml"
    path.write_text(
        f"""
        broker = "{url}"
        nodes.root = {{ address = "127.0.0.1:{root}" }}
        nodes.eu = {{ address = "127.0.0.1:{eu}", parent = "root" }}
        homes = {{ orders = "eu", prices = "root" }}
        {more}
        """
    )
    return path


def serving(path: Path, node: str) -> Running:
    running = Running("serve", "--config", path, "--node", node)
    running.wait_for_line("serving")
    return running


def subscriber(url: str, count: int, *words: str | Path) -> Running:
    wait = ("--json", "--count", str(count), "--idle", "600")
    running = Running("sub", "orders", "prices", "--url", url, *wait, *words)
    running.wait_for_line("listening to")
    return running


def publish(url: str, count: int, *words: str | Path) -> None:
    publishers = [
        Running("pub", topic, f"{topic} {{{{n}}}}", "--count", str(count), "--url", url, *words)
        for topic in ("orders", "prices")
    ]
    for publisher in publishers:
        with publisher:
            assert publisher.wait() == 0, publisher


def roles(url: str) -> tuple[int, dict[str, Any]]:
    done = run("status", "--url", url, "--json", "--timeout", "10")
    return done.returncode, {row["node"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_a_killed_node_goes_on_from_its_journal(nats: NatsServer, tmp_path: Path) -> None:
    path = write_config(tmp_path, nats.url)
    with serving(path, "root") as root, serving(path, "eu") as eu:
        with subscriber(nats.url, 40) as one, subscriber(nats.url, 40) as other:
            publish(nats.url, 10)
            code, found = roles(nats.url)
            assert (code, {name: row["role"] for name, row in found.items()}) == (0, {"root": "active", "eu": "active"})
            assert found["eu"]["links"]["root"]["connected"]
            eu.process.kill()
            eu.wait()
            code, found = roles(nats.url)
            assert (code, found["eu"]["role"]) == (1, "silent")
            with serving(path, "eu") as again:
                publish(nats.url, 10)
                assert (one.wait(), other.wait()) == (0, 0), f"{one}{other}{root}{again}"
                assert order_of(one.rows()) == order_of(other.rows())
                code, found = roles(nats.url)
                assert (code, found["eu"]["epoch"]) == (0, 2)
                assert again.stop(signal.SIGTERM) == 0, again
        assert root.stop(signal.SIGINT) == 0, root


def test_signals_end_it_also_while_the_broker_is_frozen(nats: NatsServer, tmp_path: Path) -> None:
    path = write_config(tmp_path, nats.url)
    with serving(path, "root") as root, serving(path, "eu") as eu:
        os.kill(nats.pid, signal.SIGSTOP)
        try:
            assert root.stop(signal.SIGTERM) == 0, root
            eu.process.send_signal(signal.SIGTERM)
            eu.wait_for_line("stopping")
            assert eu.stop(signal.SIGTERM) == 128 + signal.SIGTERM, eu
        finally:
            os.kill(nats.pid, signal.SIGCONT)


@pytest.mark.parametrize("cluster", ["seriatim", "other"])
def test_a_second_process_on_the_same_journal_ends_with_the_reason(
    nats: NatsServer, tmp_path: Path, cluster: str
) -> None:
    """One of the same cluster finds that the first is registered; else the journal says that another has it open."""
    path = write_config(tmp_path, nats.url)
    journal = f"{tmp_path}/journal-seriatim.root"
    registered = "Error: node root is run by another process (process "
    with serving(path, "root"):
        elsewhere = path.with_name("elsewhere.toml")
        root = f'nodes.root = {{ bind = "127.0.0.1:0", journal = "file:{journal}",'
        elsewhere.write_text(f'cluster = "{cluster}"\n' + path.read_text().replace("nodes.root = {", root))
        second = run("serve", "--config", elsewhere, "--node", "root")
        assert second.returncode == 1
        last = second.stderr.splitlines()[-1]
        assert last.startswith(registered if cluster == "seriatim" else f"Error: {journal}: "), second.stderr
        assert journal in last


def test_a_plan_for_other_topics_is_told_before_it_runs(nats: NatsServer, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path, plan = tmp_path / "cluster.toml", tmp_path / "plan.toml"
    path.write_text(f'broker = "{nats.url}"\nnodes.root = {{ address = "127.0.0.1:{port}" }}\n')
    plan.write_text('default_home = "root"\n[homes]\nelsewhere = "root"\n')
    words = ("serve", "--config", path, "--plan", plan)
    with Running(*words) as new:
        new.wait_for_line("serving")
        assert not any("other topics" in line for line in new.err), new  # nothing is in use yet
        assert new.stop() == 0, new
    with Running("serve", "--config", path) as before:
        before.wait_for_line("serving")
        publish(nats.url, 1)
        assert before.stop() == 0, before
    with Running(*words) as again:
        said = again.wait_for_line("the plan is for other topics: none of 2 topics in use is in it")
        assert "WARNING" in said and 'topics="orders, prices"' in said and f"plan={plan}" in said
        again.wait_for_line("serving")
        assert again.stop() == 0, again


def test_tokens_and_tls(nats: NatsServer, tmp_path: Path, certificates: Certificates) -> None:
    for name in ("client", "node", "other"):
        (tmp_path / f"{name}.token").write_text(f"{name}-token-{name}-token\n")
        (tmp_path / f"{name}.token").chmod(0o600)
    path = write_config(
        tmp_path,
        nats.url,
        f"""
        [security]
        token_file = "client.token"
        node_token_file = "node.token"
        certificate = "{certificates.server}"
        key = "{certificates.server_key}"
        authority = "{certificates.authority}"
        """,
    )
    with serving(path, "root"), serving(path, "eu"):
        let_in = ("--token-file", tmp_path / "client.token", "--authority", certificates.authority)
        with subscriber(nats.url, 4, *let_in) as one:
            publish(nats.url, 2, *let_in)
            assert one.wait() == 0, one
        words = ("pub", "orders", "x", "--url", nats.url, "--timeout", "30", "--authority", certificates.authority)
        without = run(*words)
        assert (without.returncode, "require one" in without.stderr) == (2, True), without
        wrong = run(*words, "--token-file", tmp_path / "other.token")
        assert (wrong.returncode, "wrong token" in wrong.stderr) == (1, True), wrong
        plain = run("pub", "orders", "x", "--url", nats.url, "--timeout", "5", *let_in[:2])  # it tries until then
        assert plain.returncode == 1, plain


def test_a_standby_takes_over_and_the_first_one_stands_by_then(nats: NatsServer, tmp_path: Path) -> None:
    one_port, other_port = free_ports(2)
    path = tmp_path / "cluster.toml"
    path.write_text(
        f"""
        broker = "{nats.url}"
        times.takeover_ms = 3000
        nodes.root = {{ address = ["127.0.0.1:{one_port}", "127.0.0.1:{other_port}"], journal = "jetstream" }}
        """
    )
    words = ("serve", "--config", path)
    with Running(*words) as first:
        first.wait_for_line("role=active")
        with Running(*words, "--standby") as second, subscriber(nats.url, 40) as one, subscriber(nats.url, 40) as other:
            second.wait_for_line("serving")
            publish(nats.url, 10)
            code, places = by_place(nats.url)
            assert (code, [row["role"] for row in places]) == (0, ["active", "standby"]), places
            first.process.kill()
            first.wait()
            second.wait_for_line("role=active")
            publish(nats.url, 10)
            assert (one.wait(), other.wait()) == (0, 0), f"{one}{other}{second}"
            assert order_of(one.rows()) == order_of(other.rows())
            with Running(*words) as again:
                again.wait_for_line("serving")
                code, places = by_place(nats.url)
                assert (code, [row["role"] for row in places]) == (0, ["standby", "active"]), places
                assert (again.stop(), second.stop()) == (0, 0), f"{again}{second}"


def by_place(url: str) -> tuple[int, list[dict[str, Any]]]:
    done = run("status", "--url", url, "--json", "--timeout", "10")
    return done.returncode, list(map(json.loads, done.stdout.splitlines()))
