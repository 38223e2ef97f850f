"""`sub --durable --json | consumer`: what the consumer has not read, or read and not dealt with, comes again."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.client.sync import connect
from tests.cli.processes import ENVIRONMENT, WAIT_S, Running, command, run, up
from tests.waiting import wait

pytest.importorskip("seriatim.brokers.nats.jetstream")

EVENTS = 200

# Write down each line when they have dealt with it, and kill themselves with the line of that number in hand: the first
# one reads byte by byte, as a shell does, and has half of it; the second one reads as much as there is.
CONSUMERS = {
    "bytes": """
import os, signal, sys
path, limit = sys.argv[1], int(sys.argv[2])
line, count = bytearray(), 0
while byte := os.read(0, 1):
    line += byte
    if count + 1 == limit and len(line) == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    if byte == b"\\n":
        with open(path, "ab") as file:
            file.write(line)
        line, count = bytearray(), count + 1
""",
    "blocks": """
import os, signal, sys
path, limit = sys.argv[1], int(sys.argv[2])
for count, line in enumerate(sys.stdin.buffer, 1):
    if count == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    with open(path, "ab") as file:
        file.write(line)
""",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with up(tmp_path_factory.mktemp("up")) as (running, ready):
        yield ready
        assert running.stop(signal.SIGTERM) == 0, running


def durable(url: str, topic: str, folder: Path, *more: str) -> list[str]:
    words = ("--durable", topic, "--journals", str(folder / "journals"), "--url", url, "--json")
    return command("sub", topic, *words, *more)


def piped(
    words: list[str], path: Path, limit: int, reads: str = "bytes"
) -> tuple[subprocess.Popen[str], subprocess.Popen[bytes]]:
    """The subscriber, and the consumer that reads from it."""
    subscriber = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    )
    consumer = subprocess.Popen([sys.executable, "-c", CONSUMERS[reads], path, str(limit)], stdin=subscriber.stdout)
    assert subscriber.stdout is not None
    subscriber.stdout.close()  # now only the consumer can read
    return subscriber, consumer


def dealt_with(path: Path) -> list[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["data"] for line in lines]


@pytest.mark.parametrize("reads", CONSUMERS)
def test_a_consumer_that_is_killed_in_the_middle_loses_nothing(
    cluster: dict[str, Any], tmp_path: Path, reads: str
) -> None:
    url, path, topic = cluster["url"], tmp_path / "lines", f"piped.{reads}"
    started, first = piped(durable(url, topic, tmp_path, "--count", "1", "--idle", "600"), path, 0, reads)
    assert started.stderr is not None
    assert "listening to" in started.stderr.readline()
    published = run("pub", topic, "event {{n}}", "--count", str(EVENTS + 1), "--url", url)
    assert published.returncode == 0, published.stderr
    started.communicate(timeout=WAIT_S)
    assert (started.returncode, first.wait(WAIT_S)) == (0, 0)
    for limit in (1, 40, 3):
        subscriber, consumer = piped(durable(url, topic, tmp_path, "--idle", "600"), path, limit, reads)
        assert consumer.wait(WAIT_S) == -signal.SIGKILL
        _, said = subscriber.communicate(timeout=WAIT_S)
        assert subscriber.returncode == 1, said
        error = json.loads(said.splitlines()[-1])["error"]
        assert error.startswith("the reader of the output has ended"), said
        assert "come again after a restart" in error
    subscriber, consumer = piped(durable(url, topic, tmp_path, "--idle", "2"), path, 0, reads)
    assert consumer.wait(WAIT_S) == 0
    subscriber.communicate(timeout=WAIT_S)
    assert subscriber.returncode == 3  # idle
    wanted = [f"event {n}" for n in range(1, EVENTS + 2)]
    got = dealt_with(path)
    assert list(dict.fromkeys(got)) == wanted
    assert len(got) <= len(wanted) + 3, "each kill repeats the line it had in hand, at most"
    rest = Running(*_after_program(durable(url, topic, tmp_path, "--idle", "0.5")))
    with rest:
        assert rest.wait() == 3
        assert rest.rows() == []  # all of it was read, by somebody who was there to the end


def _after_program(words: list[str]) -> list[str]:
    return words[words.index("sub") :]


def test_what_lies_in_the_pipe_is_not_acknowledged(cluster: dict[str, Any], tmp_path: Path) -> None:
    """The reader is there, reads nothing, and is killed."""
    url = cluster["url"]
    subscriber = subprocess.Popen(
        durable(url, "unread", tmp_path, "--idle", "600"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subscriber.stdout)
    assert subscriber.stdout is not None and subscriber.stderr is not None
    assert "listening to" in subscriber.stderr.readline()
    assert run("pub", "unread", "event {{n}}", "--count", "20", "--url", url).returncode == 0
    wait(lambda: _unread(subscriber.stdout) > 0, "a line lies in the pipe")
    subscriber.stdout.close()
    sleeper.kill()
    sleeper.wait()
    _, said = subscriber.communicate(timeout=WAIT_S)
    assert subscriber.returncode == 1 and "the reader of the output has ended" in said
    with Running(*_after_program(durable(url, "unread", tmp_path, "--count", "20", "--idle", "600"))) as again:
        assert again.wait() == 0, again
        assert [row["data"] for row in again.rows()] == [f"event {n}" for n in range(1, 21)]
        assert again.rows()[0]["replayed"] is True


def _unread(pipe: Any) -> int:
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def test_a_line_that_is_longer_than_the_pipe(cluster: dict[str, Any], tmp_path: Path) -> None:
    url, path, long = cluster["url"], tmp_path / "lines", "x" * 300_000
    subscriber, consumer = piped(durable(url, "long", tmp_path, "--count", "3", "--idle", "600"), path, 2)
    assert subscriber.stderr is not None and "listening to" in subscriber.stderr.readline()
    with connect(url, timeout_s=60.0) as bus:
        bus.publish_many("long", [f"{n}{long}".encode() for n in range(3)])
    assert consumer.wait(WAIT_S) == -signal.SIGKILL  # with the line half read
    subscriber.communicate(timeout=WAIT_S)
    assert subscriber.returncode == 1
    subscriber, consumer = piped(durable(url, "long", tmp_path, "--count", "2", "--idle", "600"), path, 0)
    assert consumer.wait(WAIT_S) == 0
    subscriber.communicate(timeout=WAIT_S)
    assert subscriber.returncode == 0
    assert list(dict.fromkeys(dealt_with(path))) == [f"{n}{long}" for n in range(3)]
