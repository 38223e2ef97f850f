"""`seriatim peer`, and pub, sub, status and explain on vcube:// URLs, as processes that people run."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.cli.processes import Running, run
from tests.live.peers.world import write_peers
from tests.ports import free_ports


def peer(path: Path, id: int, *words: str | Path) -> Running:
    return Running("peer", "--id", str(id), "--peers", path, "--timeout", "100", *words)


def test_peers_talk_and_leave_in_good_order(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 4)
    log, ready = tmp_path / "log", tmp_path / "ready.json"
    with (
        peer(path, 0, "--topics", "chat,news", "--log", log, "--ready-file", ready) as zero,
        peer(path, 1, "--topics", "chat", "--log", log, "--json") as one,
    ):
        zero.wait_for_line("life 0.1, holds chat, news")
        assert json.loads(ready.read_text())["life"] == "0.1"
        one.wait_for_line('"ready": true')
        sent = run("pub", "chat", "hello {{n}}", "--count", "3", "--url", f"vcube://{path}?id=2", "--log", log)
        assert sent.returncode == 0 and "published 3 events on chat: numbers 1 to 3" in sent.stdout, sent.stderr
        zero.wait_for_line("chat 3  hello 3")
        one.wait_for_line("hello 3")
        seed = json.loads(ready.read_text())["address"]
        status = run("status", "--url", f"vcube://{seed}", "--json")
        rows = {row["peer"]: row for row in map(json.loads, status.stdout.splitlines())}
        assert status.returncode == 1, "peers 2 and 3 do not answer"
        assert rows["0"]["state"] == rows["1"]["state"] == "alive" and rows["0"]["topics"] == "chat, news"
        assert rows["2"]["state"] in ("dead", "silent")
        explained = run("explain", "--url", f"vcube://{path}")
        assert explained.returncode == 1 and "peer 2: no peer answers" in explained.stdout
        assert zero.stop(signal.SIGTERM) == 0, str(zero)
        assert one.stop(signal.SIGINT) == 0, str(one)
    judged = run("audit", log, "--guarantee", "causal")
    assert judged.returncode == 0 and "valid" in judged.stdout, judged.stdout + judged.stderr


def test_a_peer_that_only_relays_tells_the_others_that_it_goes(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2, "suspect_after_ms = 600000\n")  # nobody is missed so soon
    with peer(path, 0) as zero, peer(path, 1) as one:
        zero.wait_for_line("holds no topic")
        one.wait_for_line("holds no topic")
        until_status(path, lambda rows: rows["0"]["connected"] == "1 of 1")  # else there is nobody to tell
        assert one.stop() == 0 and "Traceback" not in "".join(one.err), str(one)
        until_status(path, lambda rows: rows["1"]["state"] == "dead")  # it has said so itself


@pytest.mark.parametrize("has_copy", [False, True], ids=["empty", "copy"])
def test_two_processes_with_one_id_are_not_both_members(tmp_path: Path, has_copy: bool) -> None:
    """The second one has a port of its own, and a journal of its own or a copy."""
    path = write_peers(tmp_path, 3)
    lines = [
        line.replace(' = "', ' = { address = "').rstrip('"') + f'", bind = "127.0.0.1:{free_ports(1)[0]}" }}'
        if line.startswith("1 = ")
        else line
        for line in path.read_text().splitlines()
    ]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "peers.toml").write_text("\n".join(lines) + "\n")
    with peer(path, 0, "--topics", "chat") as zero, peer(path, 1, "--topics", "chat") as one, peer(path, 2) as two:
        zero.wait_for_line("holds chat")
        one.wait_for_line("holds chat")
        two.wait_for_line("holds no topic")
        if has_copy:
            copied = shutil.ignore_patterns("lock")
            shutil.copytree(tmp_path / "journals", elsewhere / "journals", ignore=copied)
        with peer(elsewhere / "peers.toml", 1, "--topics", "chat") as second:
            assert second.wait() == 1, second
            assert "another process is peer 1 and is connected; two processes cannot have the same id" in second.err[-1]
        sent = run("pub", "chat", "still here", "--url", f"vcube://{path}?id=0") if zero.stop() == 0 else None
        assert sent is not None and sent.returncode == 0, sent
        one.wait_for_line("still here")
        assert one.stop() == 0 and two.stop() == 0


def until_status(path: Path, holds: Callable[[dict[str, dict[str, str]]], bool]) -> None:
    """Ask until it is so, bounded."""
    for _ in range(60):
        status = run("status", "--url", f"vcube://{path}", "--json")
        rows = {row["peer"]: row for row in map(json.loads, status.stdout.splitlines())}
        if holds(rows):
            return
    raise AssertionError(status.stdout)


def test_a_second_process_with_the_same_id_is_told_why_it_cannot_be(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    with peer(path, 0) as first:
        first.wait_for_line("holds no topic")
        second = run("peer", "--id", "0", "--peers", path)
        assert second.returncode == 1 and f"in use by process {first.pid}" in second.stderr
        elsewhere = run("peer", "--id", "0", "--peers", path, "--journals", tmp_path / "other")
        assert elsewhere.returncode == 1 and "another process uses it" in elsewhere.stderr
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    with peer(path, 0) as again:
        again.wait_for_line("life 0.2")


def test_status_and_explain_are_let_in_with_token_and_authority(tmp_path: Path) -> None:
    certificates, token = Certificates(tmp_path), tmp_path / "token"
    token.write_text("a-token-of-the-peers")
    token.chmod(0o600)
    path = write_peers(
        tmp_path,
        2,
        more=f'[security]\ntoken_file = "token"\nauthority = "{certificates.authority}"\n'
        f'certificate = "{certificates.server}"\nkey = "{certificates.server_key}"\n',
    )
    ready = tmp_path / "ready.json"
    with peer(path, 0, "--ready-file", ready) as zero, peer(path, 1) as one:
        zero.wait_for_line("holds no topic")
        one.wait_for_line("holds no topic")
        url = f"vcube://{json.loads(ready.read_text())['address']}"
        let_in = ("--token-file", token, "--authority", certificates.authority)
        status = run("status", "--url", url, "--json", *let_in)
        assert status.returncode == 0, status.stdout + status.stderr
        assert [json.loads(row)["state"] for row in status.stdout.splitlines()] == ["alive", "alive"]
        explained = run("explain", "--url", url, *let_in)
        assert explained.returncode == 0 and "peer 1: " in explained.stdout, explained.stdout + explained.stderr
        for command in ("status", "explain"):
            without = run(command, "--url", url, "--authority", certificates.authority)
            assert without.returncode == 1 and "a token is needed" in without.stderr, without.stderr
            of_no_peers = run(command, "--url", "memory://", "--token-file", token)
            assert of_no_peers.returncode == 2 and "--token-file: is only for peers" in of_no_peers.stderr


def test_wrong_words(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    for words, said in (
        (["peer", "--id", "7", "--peers", path], "there is no peer 7 in the list"),
        (["peer", "--id", "0"], "give either a list or a seed"),
        (["peer", "--id", "0", "--peers", tmp_path / "nothing"], "there is no such file"),
        (["sub", "a", "--url", f"vcube://{path}"], "which peer this process is"),
        (
            ["sub", "a", "--durable", "x", "--url", f"vcube://{path}?id=0"],
            "peers do not keep what was published before",
        ),
    ):
        result = run(*words)
        assert result.returncode == 2 and said in result.stderr, result.stderr
    assert run("peer", "--id", "1", "--peers", path, "--check").returncode == 0
