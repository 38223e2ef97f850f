"""The commands together, on a real NATS server, each in a process of its own."""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.brokers.nats.world import shared_server
from tests.cli.processes import Running, run, up
from tests.live.test_health import TREE, configured, serving

pytest.importorskip("seriatim.brokers.nats.jetstream")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One cluster for the tests that do not harm it."""
    with up(tmp_path_factory.mktemp("up")) as (running, ready):
        yield ready
        assert running.stop(signal.SIGTERM) == 0, running


def order_of(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["topic"], row["data"]) for row in rows]


def subscriber(url: str, count: int, *topics: str, more: tuple[str, ...] = ()) -> Running:
    """A `seriatim sub` that has joined."""
    running = Running("sub", *topics, "--url", url, "--json", "--count", str(count), "--idle", "600", *more)
    running.wait_for_line("listening to")
    return running


def test_two_subscribers_print_the_same_order(cluster: dict[str, Any], tmp_path: Path) -> None:
    url = cluster["url"]
    log = ("--log", str(tmp_path / "run"))
    with (
        subscriber(url, 200, "orders", "prices", more=log) as one,
        subscriber(url, 200, "prices", "orders", more=log) as other,
        Running("pub", "orders", "order {{n}}", "--count", "100", "--url", url, *log, "--confirm", "stored") as orders,
        Running("pub", "prices", "price {{n}}", "--count", "100", "--url", url, *log, "--json") as prices,
    ):
        assert (orders.wait(), prices.wait()) == (0, 0), f"{orders}{prices}"
        assert (one.wait(), other.wait()) == (0, 0), f"{one}{other}"
        assert orders.out[0].startswith("published 100 events on orders: numbers ")
        assert len(prices.rows()) == 100
        assert order_of(one.rows()) == order_of(other.rows())
        assert [data for topic, data in order_of(one.rows()) if topic == "orders"] == [
            f"order {n}" for n in range(1, 101)
        ]
    promised = ("tno", "fifo", "integrity", "completeness")
    audited = run("audit", tmp_path / "run", *(word for name in promised for word in ("--guarantee", name)))
    assert audited.returncode == 0, audited.stdout


async def test_a_plain_nats_client_is_ordered_too(cluster: dict[str, Any]) -> None:
    with (
        subscriber(cluster["url"], 50, "plain.a", "plain.b") as one,
        subscriber(cluster["url"], 50, "plain.b", "plain.a") as other,
    ):
        client = await nats.connect(cluster["url"], connect_timeout=60)
        for n in range(50):
            await client.publish(f"plain.{'ab'[n % 2]}", b"event %d" % n)
        await client.drain()
        assert (one.wait(), other.wait()) == (0, 0), f"{one}{other}"
        assert order_of(one.rows()) == order_of(other.rows())
        assert {row["publisher"] for row in one.rows()} == {""}


def test_status_explain_and_the_admin_port(cluster: dict[str, Any]) -> None:
    shown = run("status", "--url", cluster["url"])
    assert shown.returncode == 0, shown
    assert shown.stdout.startswith("cluster seriatim: log mode, global order\nnode  role")
    assert "root  active  ok" in shown.stdout
    listed = run("status", "--url", cluster["url"], "--json")
    assert '"role": "active"' in listed.stdout
    explained = run("explain", "--url", cluster["url"])
    assert explained.returncode == 0, explained
    with urllib.request.urlopen(f"{cluster['admin']}/metrics", timeout=60) as answer:
        assert b'seriatim_node_active{node="root"} 1' in answer.read()


def test_headers_stamps_and_lines_from_a_pipe(cluster: dict[str, Any]) -> None:
    with subscriber(cluster["url"], 3, "piped", "other", more=("--show-stamps",)) as one:
        done = run("pub", "piped", "--stdin", "--header", "k=v", "--url", cluster["url"], given="a\nb\nc\n")
        assert (done.returncode, one.wait()) == (0, 0), f"{done}{one}"
        assert [(row["data"], row["headers"], row["stamp"]) for row in one.rows()] == [
            (data, {"k": "v"}, {}) for data in "abc"
        ]


def test_ctrl_c_while_waiting_for_a_line(cluster: dict[str, Any]) -> None:
    reading, writing = os.pipe()
    try:
        with Running("pub", "typed", "--stdin", "--json", "--url", cluster["url"], stdin=reading) as one:
            os.write(writing, b"first\nsecond")
            one.wait_for_line('"number": 1')
            assert one.stop(signal.SIGINT) == 130, one
            assert len(one.rows()) == 1
    finally:
        os.close(reading)
        os.close(writing)


def test_more_than_fits_into_the_queue_is_published(cluster: dict[str, Any]) -> None:
    done = run("pub", "large", "x" * 100_000, "--count", "1500", "--url", cluster["url"])
    assert done.returncode == 0, done
    assert done.stdout.startswith("published 1,500 events on large: numbers 1 to "), done


def test_who_reads_along_may_hang_up(cluster: dict[str, Any]) -> None:
    reading, writing = os.pipe()
    words = ("sub", "cut", "--url", cluster["url"], "--idle", "600")
    with Running(*words, stdout=writing) as one, open(reading) as output:
        os.close(writing)
        one.wait_for_line("listening to")
        assert run("pub", "cut", "{{n}}", "--url", cluster["url"]).returncode == 0
        assert output.readline() == "cut 1  1\n"
        output.close()
        assert run("pub", "cut", "{{n}}", "--url", cluster["url"]).returncode == 0
        assert one.wait() == 1, one
        assert "Traceback" not in "\n".join(one.err)


def test_nothing_for_a_while_is_exit_code_3(cluster: dict[str, Any]) -> None:
    done = run("sub", "silent", "--url", cluster["url"], "--idle", "0.2")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Error: no event for 0.2 s, after 0 events" in done.stderr


def test_a_durable_subscriber_goes_on_where_it_stopped(cluster: dict[str, Any], tmp_path: Path) -> None:
    words = ("--durable", "billing", "--journals", str(tmp_path))
    with subscriber(cluster["url"], 2, "bills", more=words) as first:
        run("pub", "bills", "bill {{n}}", "--count", "5", "--url", cluster["url"])
        assert first.wait() == 0, first
    with subscriber(cluster["url"], 3, "bills", more=words) as second:
        assert second.wait() == 0, second
        assert [row["data"] for row in first.rows() + second.rows()] == [f"bill {n}" for n in range(1, 6)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_up_ends_in_order_and_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    with up(tmp_path) as (running, ready):
        port = int(ready["url"].rpartition(":")[2])
        assert running.stop(number) == 0, running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=60.0)


def test_a_second_signal_leaves_no_nats_server_behind(tmp_path: Path) -> None:
    with up(tmp_path, "--json", "--log-level", "info") as (running, _):
        pid = json.loads(running.wait_for_line("nats server started"))["pid"]
        os.kill(pid, signal.SIGSTOP)  # so that it does not end when it is asked to
        running.process.send_signal(signal.SIGINT)
        running.wait_for_line("stopping")
        assert running.stop(signal.SIGINT) == 128 + signal.SIGINT, running
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_up_ends_with_the_reason_when_its_nats_server_dies(tmp_path: Path) -> None:
    with up(tmp_path, "--json", "--log-level", "info") as (running, _):
        started = json.loads(running.wait_for_line("nats server started"))
        os.kill(started["pid"], signal.SIGKILL)
        assert running.wait() == 1, running
        assert json.loads(running.err[-1])["error"].startswith("the NATS server ended by itself")


def test_ctrl_c_at_a_subscriber_is_exit_code_130(cluster: dict[str, Any]) -> None:
    with subscriber(cluster["url"], 1, "interrupted") as one:
        assert one.stop(signal.SIGINT) == 130, one
        assert json.loads(one.err[-1]) == {"error": "Interrupted."}


def test_a_folder_keeps_what_was_published(tmp_path: Path) -> None:
    numbers = []
    for _ in range(2):
        (tmp_path / "ready.json").unlink(missing_ok=True)
        with up(tmp_path, "--folder", tmp_path / "data") as (running, ready):
            done = run("pub", "kept", "event", "--url", ready["url"], "--json")
            assert done.returncode == 0, done
            numbers.append(done.stdout)
            assert running.stop() == 0, running
    assert '"number": 1,' in numbers[0] and '"number": 2,' in numbers[1]


def test_one_folder_is_used_by_one_up_at_a_time(tmp_path: Path) -> None:
    with up(tmp_path, "--folder", tmp_path / "data") as (running, _):
        second = run("up", "--port", "0", "--folder", tmp_path / "data")
        assert second.returncode == 2
        assert f"another `seriatim up` (process {running.pid}) uses" in second.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the orphan must be stopped by hand, and up says so")
def test_a_killed_up_takes_its_server_along(tmp_path: Path) -> None:
    """Two servers on one store lose what they acknowledge: the first must be gone before the second may start."""
    numbers: list[int] = []
    ports: list[int] = []
    for _ in range(2):
        (tmp_path / "ready.json").unlink(missing_ok=True)
        with up(tmp_path, "--folder", tmp_path / "data") as (running, ready):
            for port in ports:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), timeout=60)
            done = run("pub", "kept", "event", "--url", ready["url"], "--json")
            numbers.append(json.loads(done.stdout)["number"])
            ports.append(int(ready["url"].rpartition(":")[2]))
            running.stop(signal.SIGKILL)
    assert numbers == [1, 2]


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("up", "--port", str(port))
        assert done.returncode == 1
        assert f"Error: port {port} is taken; stop what uses it, or give another --port" in done.stderr


def test_a_whole_tree_in_one_up(tmp_path: Path) -> None:
    (tmp_path / "tree.toml").write_text(
        "default_home = 'root'\nnodes.root = {}\nnodes.eu.parent = 'root'\nnodes.us.parent = 'root'\n"
        "homes = { orders = 'eu', prices = 'us' }\n"
    )
    with up(tmp_path, "--tree", tmp_path / "tree.toml", "--json") as (running, ready):
        assert sorted(ready["nodes"]) == ["eu", "root", "us"]
        url = ready["url"]
        with subscriber(url, 60, "orders", "prices") as one, subscriber(url, 60, "orders", "prices") as other:
            publishers = [
                threading.Thread(target=run, args=("pub", topic, "{{n}}", "--count", "30", "--url", url))
                for topic in ("orders", "prices")
            ]
            for publisher in publishers:
                publisher.start()
            assert (one.wait(), other.wait()) == (0, 0), f"{one}{other}{running}"
            assert order_of(one.rows()) == order_of(other.rows())
            for publisher in publishers:
                publisher.join()
        shown = run("status", "--url", url)
        assert shown.returncode == 0 and shown.stdout.count("active") == 3, shown.stdout
        assert running.stop() == 0


def test_without_a_cluster_the_error_says_what_to_start(tmp_path: Path) -> None:
    done = run("pub", "orders", "x", "--url", "nats://127.0.0.1:1", "--timeout", "0.5")
    assert done.returncode == 1, done
    assert "127.0.0.1:1" in done.stderr


def test_a_small_load_is_measured(cluster: dict[str, Any]) -> None:
    words = ("--topics", "4", "--subscribers", "2", "--hold", "2", "--seconds", "0.5", "--rate", "500", "--json")
    done = run("bench", "--url", cluster["url"], *words)
    assert done.returncode == 0, done
    assert '"ordered": true' in done.stdout


def test_a_subscriber_has_metrics_of_its_own(cluster: dict[str, Any]) -> None:
    with subscriber(cluster["url"], 2, "measured", more=("--metrics", "127.0.0.1:0")) as one:
        url = json.loads(next(line for line in one.err if "metrics at" in line))["message"].removeprefix("metrics at ")
        assert run("pub", "measured", "event", "--url", cluster["url"]).returncode == 0
        one.wait_for_line('"topic": "measured"')
        with urllib.request.urlopen(url, timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = {sample.name: sample.value for family in families for sample in family.samples}
        assert samples["seriatim_client_notified_total"] == 1
        assert samples["seriatim_client_held_events"] == samples["seriatim_client_oldest_held_seconds"] == 0
    done = run("sub", "measured", "--url", cluster["url"], "--metrics", "here")
    assert done.returncode == 2 and "Error: --metrics: 'here' is not an address" in done.stderr


async def test_one_line_says_why_several_events_have_no_place(tmp_path: Path) -> None:
    config = configured(tmp_path, shared_server().url, TREE, homes={"orders": "eu"})
    async with serving(config, ["root"]):
        words = ("pub", "orders", "order {{n}}", "--count", "3", "--timeout", "3")
        done = await asyncio.to_thread(run, *words, "--url", shared_server().url, "--cluster", config.cluster)
    assert done.returncode == 3, done.stderr
    assert "has no place in the order yet" in done.stderr
    assert "never retrieved" not in done.stderr
