"""`seriatim backup` and `restore` as people run them: beside a node under load, after a kill, on another machine."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seriatim.brokers.nats.server import NatsServer
from seriatim.cli import main
from tests.brokers.nats.world import new_cluster, shared_server
from tests.cli.processes import ENVIRONMENT, Running, command, run
from tests.ports import free_port
from tests.waiting import wait


class Machine:
    """A folder with the file of a cluster of one node: another folder stands for another machine, whose name is that of
    the first."""

    def __init__(self, server: NatsServer, cluster: str, folder: Path, port: int = 0) -> None:
        folder.mkdir()
        self.folder, self.cluster, self.url, self.port = folder, cluster, server.url, port or free_port()
        self.file = folder / "cluster.toml"
        self.file.write_text(
            f'cluster = "{cluster}"\nbroker = "{self.url}"\nnodes.root.address = "127.0.0.1:{self.port}"\n'
        )
        self.journal = folder / f"journal-{cluster}.root"

    def serve(self) -> Running:
        running = Running("serve", "--config", self.file)
        try:
            running.wait_for_line("serving: ")
        except BaseException:
            running.__exit__()
            raise
        return running

    def publish(self, count: int = 5) -> None:
        words = ("pub", f"{self.cluster}.orders", "order {{n}}", "--count", str(count))
        done = run(*words, "--url", self.url, "--cluster", self.cluster)
        assert done.returncode == 0, done.stderr

    def does(self, *words: str | Path) -> tuple[int, list[dict[str, Any]], str]:
        """A command with this machine's file: its exit code, what it says, and its error."""
        done = run(*words, "--config", self.file, "--json")
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def check(self, folder: Path) -> tuple[int, str]:
        code, rows, _ = self.does("backup", "--check", folder)
        return code, rows[0]["is"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(shared_server(), new_cluster(), tmp_path / "here")


@pytest.mark.long
def test_a_copy_of_a_node_under_load_and_one_after_a_kill(machine: Machine, tmp_path: Path) -> None:
    """The first is older, and refused by `restore` and by `serve`; the second continues on another machine."""
    early, late = tmp_path / "early", tmp_path / "late"
    topic = f"{machine.cluster}.orders"
    at = ("--url", machine.url, "--cluster", machine.cluster)
    with machine.serve() as node, Running("sub", topic, *at, "--json", "--idle", "600") as sub:
        sub.wait_for_line("listening to")
        with Running("pub", topic, "order {{n}}", "--count", "3000", *at) as load:
            wait(lambda: len(sub.out) > 50, "events")
            code, rows, err = machine.does("backup", "--to", early)
            assert (code, err) == (0, "")
            assert rows[0] | {"epoch": 1, "is": "running"} == rows[0] and rows[0]["holder"] == f"process {node.pid}"
            assert rows[-1] == {"backup": str(early)}
            assert load.wait() == 0
        machine.publish(5)
        assert machine.check(early) == (1, "running")
        node.stop(signal.SIGKILL)
        assert machine.check(early) == (1, "older")
        code, rows, _ = machine.does("backup", "--to", late)
        assert (code, rows[0]["is"], rows[0]["holder"]) == (0, "newest", "")
        assert "as far as the broker knows" in rows[0]["why"]
        there = Machine(shared_server(), machine.cluster, tmp_path / "there", machine.port)
        code, _, err = there.does("restore", early)
        assert (code, "older: it cannot be continued from" in err, there.journal.exists()) == (1, True, False)
        shutil.copytree(early / "node-root", there.journal)
        with Running("serve", "--config", there.file) as stale:
            assert stale.wait() == 1
            assert "Put the newest journal back" in stale.err[-1]
        shutil.rmtree(there.journal)
        code, rows, _ = there.does("restore", late)
        assert (code, rows[0]["journal"], rows[0]["is"]) == (0, "node root", "newest")
        with there.serve():
            there.publish(5)
            wait(lambda: len(sub.out) >= 3010, "everything")
            places = [(row["number"], row["index"]) for row in sub.rows()]
            assert len({row["id"] for row in sub.rows()}) == len(places) == 3010
            assert places == sorted(places)
        assert there.check(late) == (1, "older")


# When it has made the folder, and is about to copy the first file.
KILLED = """
import os, signal
from seriatim.backup import restoring
restoring.copy_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_restore_that_is_killed_leaves_nothing_and_is_done_again(machine: Machine, tmp_path: Path) -> None:
    copy, target = tmp_path / "copy", tmp_path / "new" / "journal"
    with machine.serve() as node:
        machine.publish()
        assert node.stop() == 0
    assert machine.does("backup", "--to", copy)[0] == 0
    assert machine.check(copy) == (0, "newest")
    words = command("restore", copy, "--to", target, "--url", machine.url)
    words[2] = KILLED + words[2]
    assert subprocess.run(words, env=ENVIRONMENT, timeout=60).returncode == -signal.SIGKILL
    assert not target.exists()
    assert [path.name for path in target.parent.iterdir()] == [".journal.unfinished"]
    done = run("restore", copy, "--to", target, "--url", machine.url)
    assert (done.returncode, done.stderr) in ((0, ""), (0, ROOT)), done.stderr
    assert done.stdout.startswith("node root: put back; newest: nothing was written since")
    assert [path.name for path in target.parent.iterdir()] == ["journal"]
    again = run("restore", copy, "--to", target, "--url", machine.url)
    assert (again.returncode, again.stdout) == (0, "node root: there already\n")


ROOT = "the restored files belong to root: give them to the user that runs the process (chown -R)\n"


@pytest.mark.long
def test_a_lost_server_and_a_lost_disk(tmp_path: Path) -> None:
    """Everything, by the commands alone."""
    with NatsServer(tmp_path / "nats") as server:
        machine = Machine(server, "shop", tmp_path / "here")
        with machine.serve() as node:
            machine.publish(5)
            code, _, err = machine.does("backup", "--streams", "--to", tmp_path / "copy")
            assert (code, "stop all nodes" in err) == (2, True)
            assert node.stop() == 0
        code, rows, _ = machine.does("backup", "--streams", "--to", tmp_path / "copy")
        assert (code, rows[0]["is"], rows[1]["missing"]) == (0, "newest", [])
    with NatsServer(tmp_path / "new nats") as server:
        there = Machine(server, "shop", tmp_path / "there")
        assert there.check(tmp_path / "copy") == (0, "unknown"), "whole: good for such a server"
        code, rows, _ = there.does("restore", tmp_path / "copy", "--streams")
        assert (code, len(rows)) == (0, 2)
        with there.serve():
            there.publish(2)
            done = run(
                "sub", "shop.orders", "--start", "first", "--count", "7", "--url", server.url, "--cluster", "shop"
            )
            assert [line.rpartition(" ")[2] for line in done.stdout.splitlines()] == [*"12345", *"12"]


def test_what_is_wrong_is_named_before_anything_is_changed(machine: Machine, tmp_path: Path) -> None:
    with machine.serve() as node:
        machine.publish()
        assert node.stop() == 0
    copy = tmp_path / "copy"
    assert machine.does("backup", "--to", copy)[0] == 0
    other = Machine(shared_server(), new_cluster(), tmp_path / "other")
    file = ("--config", machine.file)
    nobody = f"nats://127.0.0.1:{free_port()}"
    for words, code, said in (
        (("backup", *file), 2, "--to, --check: one of both is needed"),
        (("backup", *file, "--to", copy), 2, f"{copy}: it is not empty; name a new folder"),
        (("backup", *file, "--to", machine.file / "x"), 2, "cannot"),
        (("backup", "--to", tmp_path / "x"), 2, "--config: is missing"),
        (("backup", *file, "--node", "eu", "--to", tmp_path / "x"), 2, "there is no node 'eu'; use one of root"),
        (("backup", "--config", other.file, "--to", tmp_path / "x"), 2, "no journal that it names is on this machine"),
        (("backup", "--check", copy, "--config", other.file), 2, f"the backup is of cluster '{machine.cluster}'"),
        (("backup", "--check", copy, "--url", nobody, "--timeout", "1"), 2, "(--offline works without it)"),
        (("backup", "--check", copy, "--node", "root", *file), 2, "it checks the whole backup"),
        (("backup", "--check", tmp_path / "x"), 2, "there is no folder"),
        (
            ("backup", "--durable", "billing", "--journals", tmp_path, "--to", tmp_path / "x"),
            2,
            "there is no journal in it",
        ),
        (("restore", copy, "--config", other.file), 2, f"the backup is of cluster '{machine.cluster}'"),
        (("restore", copy, "--url", machine.url), 2, "where the journal of node root belongs is not known"),
        (("restore", copy, *file, "--node", "eu"), 2, "the backup has none of 'eu'; it has node root"),
        (("restore", copy, *file, "--streams"), 2, "this backup has journals only"),
        (("restore", copy, *file), 2, f"{machine.journal}: there is a journal in it"),
        (("restore", copy / "node-root", *file), 2, "has no manifest.json, so it is not a backup"),
    ):
        done = CliRunner().invoke(main, list(map(str, words)))
        assert (done.exit_code, done.stdout) == (code, ""), (words, done.output)
        last = done.stderr.splitlines()[-1]
        assert last.startswith("Error: ") and said in last, (words, done.stderr)
    assert not (tmp_path / "x").exists()
    done = CliRunner().invoke(main, ["backup", "--check", str(copy), "--offline"])
    assert (done.exit_code, "whole, and not compared with anything" in done.stdout) == (3, True)
