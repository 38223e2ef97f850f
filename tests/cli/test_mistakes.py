"""Frequent mistakes: every command says in one line what to do instead, before it starts anything large."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from seriatim.cli import main

NOWHERE = "nats://127.0.0.1:1"
INSIDE = "memory:// is inside one process, and a command is a process of its own; use nats://"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pub", "t", "x", "--url", "memory://"], 2, INSIDE),
        (["sub", "t", "--url", "memory://"], 2, INSIDE),
        (["status", "--url", "memory://"], 2, INSIDE),
        (["pub", "t", "x", "--url", "ftp://host"], 2, "use one of nats://, tls://, nats+core://"),
        (["pub", "t", "x", "--url", "ftp://host"], 2, "vcube://, overlay://"),
        (["pub", "t", "x", "--url", "nats://[::1"], 2, "url: '[::1' in 'nats://[::1' is not a host and port; use nats"),
        (["sub", "t", "--url", "vcube://[::1"], 2, "cannot be read (Invalid IPv6 URL); write an IPv6 host in brackets"),
        (["status", "--url", "overlay://[::1"], 2, "cannot be read (Invalid IPv6 URL)"),
        (["explain", "--url", "nats+core://[::1"], 2, "is not a host and port"),
        (["status", "--url", NOWHERE, "--timeout", "0.5"], 1, f"no broker answers at {NOWHERE} within 0.5 s; is it"),
        (["audit", "run", "--once"], 2, "--once: works only with --follow; add --follow, or leave it out"),
        (["audit", "run", "--checkpoint", "c"], 2, "--checkpoint: works only with --follow"),
        (["audit", NOWHERE], 2, "a log on a broker has no end; add --follow --once --checkpoint DIR, or archive it"),
        (
            ["audit", NOWHERE, "--follow", "--checkpoint", "c", "--run", "r"],
            2,
            "the log of a running cluster is one run",
        ),
        (["audit", NOWHERE, "--follow", "--checkpoint", "c"], 2, "no NATS server answers at 127.0.0.1:1"),
        (["audit", "s3a://bucket/run", "--engine", "python"], 2, "leave it out: Spark reads URIs"),
        (
            ["archive", "--out", "a", "--checkpoint", "c", "--url", "vcube://h:1"],
            2,
            "is not a broker that can be read in bulk; use",
        ),
        (
            ["archive", "--out", "a", "--checkpoint", "c", "--url", NOWHERE, "--timeout", "0.5"],
            1,
            f"no broker answers at {NOWHERE} within 0.5 s; is it running?",
        ),
        (
            ["pipeline", "p", "--input", "x", "--order-by", "at"],
            2,
            "know no files and no lines; give positions, or a column",
        ),
        (["pipeline", "p", "--input", "x", "--subscriber-from", "file"], 2, "tables know no files and no lines"),
        (["pipeline", "p", "--input", "x", "--run", "mon"], 2, "tables have a verdict for each run; leave --run out"),
        (
            ["pipeline", "p", "--input", "x.csv"],
            2,
            "x.csv is not jsonl, judging by its name; give --format parquet, or files of J",
        ),
        (["workload", "publications", "--out", "w", "--events", "-1"], 2, "events: -1 is not allowed"),
        (["replay", "a", "--topics", "t", "--publish", "host"], 2, "'host' does not begin with a scheme we know"),
        (["replay", "a", "--topics", "t", "--publish", "nats+core://h"], 2, "this broker cannot take a replay; use"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_mistakes_are_told_at_once(words: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(main, words)
    assert message in result.output
    assert result.exit_code == code, result.output
    assert len(result.output.splitlines()) == 1, "one line"


def test_sequencers_of_a_broker_that_nobody_reaches(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('broker = "memory://"\nnodes.root = {}\n')
    result = CliRunner().invoke(main, ["serve", "--config", str(tmp_path / "cluster.toml"), "--check"])
    assert result.exit_code == 2 and f"broker: {INSIDE}" in result.output
