"""`seriatim broker`, and pub, sub, status and explain on overlay:// URLs, as processes that people run."""

import json
import shutil
import signal
import urllib.request
from pathlib import Path

import pytest

from seriatim.live.overlay import load_overlay
from tests.certificates import Certificates
from tests.cli.processes import Running, run
from tests.live.overlay.world import write_overlay
from tests.ports import free_ports

PAIR = {"B1": "", "B2": "B1"}


def broker(path: Path, name: str, *words: str | Path) -> Running:
    return Running("broker", "--config", path, "--id", name, *words)


def test_brokers_choose_by_content_and_go_on_after_a_kill(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR, options="suspect_after_ms = 100000\n")
    log, ready = tmp_path / "log", tmp_path / "ready.json"
    with broker(path, "B1", "--admin", "127.0.0.1:0", "--ready-file", ready) as root:
        root.wait_for_line("(the root) listens on")
        with broker(path, "B2", "--json") as below:
            below.wait_for_line('"ready": true')
            url = f"overlay://{path}?broker=B2"
            with Running("sub", "trades", "--where", "price > 100", "--url", url, "--log", log) as reader:
                reader.wait_for_line("listening to trades, price > 100")
                at_root = f"overlay://{json.loads(ready.read_text())['address']}"
                words = ("pub", "trades", "--url", at_root, "--log", log)
                for price in ("99", "101"):
                    attributes = ("--attribute", f"price={price}", "--attribute", "region=EU")
                    assert run(*words, f"at {price}", *attributes).returncode == 0
                reader.wait_for_line("trades 1  at 101")
                below.stop(signal.SIGKILL)
                silent = run("status", "--url", f"overlay://{path}", "--json")
                states = {row["broker"]: row["state"] for row in map(json.loads, silent.stdout.splitlines())}
                assert silent.returncode == 1 and states == {"B1": "alive", "B2": "silent"}
                with Running(*words, "meanwhile", "--attribute", "price=200") as late, broker(path, "B2") as again:
                    again.wait_for_line("(below B1) listens on")
                    reader.wait_for_line("trades 2  meanwhile")
                    assert late.wait() == 0, str(late)
                    assert run("explain", "--url", f"overlay://{path}").returncode == 0
                    assert reader.stop(signal.SIGTERM) == 130, str(reader)
                    assert again.stop(signal.SIGTERM) == 0, str(again)
        admin = json.loads(ready.read_text())["admin"]
        with urllib.request.urlopen(f"{admin}/metrics", timeout=30) as answer:
            assert "seriatim_broker_epoch 2" in answer.read().decode()
        assert root.stop(signal.SIGINT) == 0, str(root)
    judged = run("audit", log, "--guarantee", "tno")
    assert judged.returncode == 0 and "valid" in judged.stdout, judged.stdout + judged.stderr


@pytest.mark.parametrize(("stale", "other"), [("B2", "B1"), ("B1", "B2")], ids=["below", "root"])
def test_a_broker_with_an_old_journal_ends_and_says_what_to_do(tmp_path: Path, stale: str, other: str) -> None:
    path = write_overlay(tmp_path, PAIR)
    journal = load_overlay(path).journal(stale)
    url = f"overlay://{path}?broker={other}"
    with broker(path, other) as running:
        running.wait_for_line("listens on")
        for life in range(2):
            with broker(path, stale) as first:
                first.wait_for_line("listens on")
                assert run("pub", "t", f"event {life}", "--url", f"overlay://{path}?broker={stale}").returncode == 0
                assert run("pub", "t", f"event {life}", "--url", url).returncode == 0
                first.stop(signal.SIGKILL)
            if life == 0:
                shutil.copytree(journal, tmp_path / "copy")
        shutil.rmtree(journal)
        shutil.copytree(tmp_path / "copy", journal)
        with broker(path, stale) as again:
            assert again.wait() == 1, again
            assert f"broker {stale} has stopped: " in again.err[-1], again
            assert "Start it with its latest journal" in again.err[-1]
        shutil.rmtree(journal)
        with broker(path, stale) as again:
            assert again.wait() == 1, again
        assert run("pub", "t", "goes on", "--url", url).returncode == 0
        assert running.stop(signal.SIGTERM) == 0, running


def test_a_second_process_of_a_running_broker_ends(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    text = path.read_text().replace(config.brokers["B2"].address, f"127.0.0.1:{free_ports(1)[0]}")
    (elsewhere / "overlay.toml").write_text(text)
    with broker(path, "B1") as root, broker(path, "B2") as first:
        root.wait_for_line("listens on")
        first.wait_for_line("listens on")
        assert run("pub", "t", "event", "--url", f"overlay://{path}?broker=B2").returncode == 0
        with broker(elsewhere / "overlay.toml", "B2") as second:
            assert second.wait() == 1, second
            assert "another process is broker 'B2' and is connected" in second.err[-1], second
            assert "Stop one of them" in second.err[-1]
        assert run("pub", "t", "event", "--url", f"overlay://{path}?broker=B2").returncode == 0
        assert first.stop(signal.SIGTERM) == 0 and root.stop(signal.SIGTERM) == 0


def test_tokens_and_certificates(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    for name, text in (("token", "a-token-of-all-clients"), ("broker-token", "a-token-of-all-brokers")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    path = write_overlay(
        tmp_path,
        PAIR,
        more=f'[security]\ntoken_file = "token"\nbroker_token_file = "broker-token"\n'
        f'authority = "{certificates.authority}"\ncertificate = "{certificates.server}"\n'
        f'key = "{certificates.server_key}"\n',
    )
    with broker(path, "B1") as root, broker(path, "B2") as below:
        address = root.wait_for_line("listens on").split("listens on ")[1].split(",")[0]
        below.wait_for_line("listens on")
        file = f"overlay://{path}?broker=B2"
        assert run("pub", "t", "by the file", "--url", file).returncode == 0
        let_in = ("--token-file", tmp_path / "token", "--authority", certificates.authority)
        assert run("pub", "t", "by words", "--url", f"overlay://{address}", *let_in).returncode == 0
        without = run("pub", "t", "no", "--url", f"overlay://{address}", "--authority", certificates.authority)
        assert without.returncode == 1 and "a token is needed" in without.stderr, without.stderr
        status = run("status", "--url", f"overlay://{path}", "--json")
        rows = [json.loads(row) for row in status.stdout.splitlines()]
        assert [row["connected"] for row in rows] == ["1 of 1", "1 of 1"], status.stdout
        assert root.stop() == 0 and below.stop() == 0


def test_wrong_words(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR)
    cyclic = tmp_path / "cyclic.toml"
    cyclic.write_text(path.read_text().replace('parent = ""', 'parent = "B2"'))
    for words, said in (
        (["broker", "--config", path, "--id", "B7"], "there is no broker 'B7' in the list"),
        (["broker", "--config", cyclic, "--id", "B1"], "cycle B1 → B2 → B1"),
        (["broker", "--config", tmp_path / "nothing", "--id", "B1"], "there is no such file"),
        (["sub", "t", "--url", f"overlay://{path}"], "it does not say which broker of the file"),
        (["sub", "--url", f"overlay://{path}?broker=B1"], "TOPIC: none is named"),
        (["pub", "t", "x", "--attribute", "price", "--url", "memory://"], "is not an attribute"),
    ):
        result = run(*words)
        assert result.returncode == 2 and said in result.stderr, result.stderr
    assert run("broker", "--config", path, "--id", "B2", "--check").returncode == 0


def test_a_wrong_filter_points_at_the_character(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"B1": ""})
    with broker(path, "B1") as root:
        root.wait_for_line("listens on")
        result = run("sub", "--where", "price > and", "--url", f"overlay://{path}?broker=B1")
        assert result.returncode == 2 and "character 9" in result.stderr and "^" in result.stderr, result.stderr
