"""`seriatim plan` and `seriatim workload` report wrong options before Spark is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli import main


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "table"), "--out, or --check"),
        (("plan", "table", "--out", "p", "--check", "p"), "--out, or --check"),
        (("plan", "table", "--out", "p", "--rates", "r", "--publications", "p"), "not both"),
        (("plan", "table", "--out", "p", "--what-if", "subscriber=a"), "subscriber=NAME,topics=A+B"),
        (("plan", "table", "--out", "p", "--what-if", "subscriber=a,topics=x++y"), "subscriber=NAME,topics=A+B"),
        (("plan", "table", "--out", "p", "--node", "=europe"), "NAME=SITE"),
        (("plan", "table", "--out", "p", "--nodes", "nowhere.toml"), "there is no such file"),
        (("plan", "table", "--check", "nowhere.toml"), "there is no such file"),
        (("workload", "subscriptions", "--out", "w", "--inject", "swap=1"), "no deliveries"),
        (("workload", "deliveries", "--out", "w", "--inject", "theft"), "KIND=COUNT"),
        (("workload", "deliveries", "--out", "w", "--conf", "nonsense"), "KEY=VALUE"),
    ],
)
def test_wrong_options(words: tuple[str, ...], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert says in result.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('default_home = "eu"\n', "nor a file with only nodes"),
        ('nodes.eu = { sight = "europe" }\n', "nodes.eu"),
        ('nodes.eu = { parent = "us" }\nnodes.us = { parent = "eu" }\n', "cycle"),
        ('broker = "nats://127.0.0.1:4222"\nnodes.eu = { sight = "x" }\n', "site"),
    ],
)
def test_wrong_nodes(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "nodes.toml"
    path.write_text(text, encoding="utf-8")
    result = run("plan", "table", "--out", "p", "--nodes", str(path))
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_nodes_are_named_in_one_place(tmp_path: Path) -> None:
    path = tmp_path / "nodes.toml"
    path.write_text('nodes.eu = {}\nnodes.us = { parent = "eu" }\n', encoding="utf-8")
    result = run("plan", "table", "--out", "p", "--nodes", str(path), "--node", "asia=asia")
    assert result.exit_code == 2
    assert "'asia' is not in" in result.output
