"""`seriatim audit --order-log`: what it says, what it refuses, and with which exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.audit import write_history
from seriatim.cli import main
from seriatim.model import Delivery, History

ORDER = "position,topic,first,last\n1,A,1,2\n3,B,1,1\n4,A,3,3\n"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, words)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [
        Delivery(name, position, word, word[0].upper(), int(word[1:]))
        for name, words in (("s1", "a1 a2 b1 a3"), ("s2", "a2 a3"))
        for position, word in enumerate(words.split())
    ]
    write_history(History(rows), tmp_path / "run")
    (tmp_path / "order.csv").write_text(ORDER)
    return tmp_path


def test_the_certificate_beside_an_audit(log: Path) -> None:
    result = run(log / "run", "--order-log", log / "order.csv")
    assert result.exit_code == 3, result.output  # causal and others are not known
    lines = result.output.splitlines()
    checked = "6 deliveries of 2 subscribers against positions 1…4 of the order log: all rise"
    assert "method: certificate (deliveries against the order log) and audit (deliveries alone)" in lines
    assert f"certificate         valid    {checked}" in lines
    assert f"acyclic             valid    by certificate: {checked}" in lines
    assert any(line.startswith("integrity           unknown") for line in lines)


def test_the_certificate_alone(log: Path) -> None:
    result = run(log / "run", "--order-log", log / "order.csv", "--certificate-only", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert list(told["verdicts"]) == ["certificate", "per-topic", "tno", "acyclic"]
    assert told["method"] == "certificate (deliveries against the order log)"
    assert told["deliveries"] == 6 and "events" not in told


def test_a_run_that_does_not_fit(log: Path) -> None:
    (log / "order.csv").write_text(ORDER.replace("3,B,1,1", "3,B,1,1").replace("1,A,1,2", "1,A,1,1\n2,A,2,2"))
    rows = [Delivery("s1", 0, "b1", "B", 1), Delivery("s1", 1, "a1", "A", 1)]
    write_history(History(rows), log / "run")
    result = run(log / "run", "--order-log", log / "order.csv", "--guarantee", "tno")
    assert result.exit_code == 1, result.output
    assert "tno                 valid    no violation in 2 deliveries to 1 subscriber" in result.output
    assert "order-inversion: 1 found\n  s1 was notified of b1 before a1" in result.output
    assert "    placement    position=1 topic=A first=1 last=1\n" in result.output
    alone = run(log / "run", "--order-log", log / "order.csv", "--certificate-only", "--guarantee", "tno", "--json")
    assert alone.exit_code == 1
    assert json.loads(alone.stdout)["verdicts"]["tno"]["answer"] == "unknown"
    assert json.loads(alone.stdout)["anomalies"][0]["breaks"] == "certificate"


def test_a_broken_order_log(log: Path) -> None:
    (log / "order.csv").write_text(ORDER.replace("3,B,1,1\n", ""))
    result = run(log / "run", "--order-log", log / "order.csv", "--certificate-only")
    assert result.exit_code == 1
    assert "certificate         invalid  order-log-gap (1): the order log itself is broken" in result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--certificate-only"], "--certificate-only: needs an order log"),
        (["--order-log", "order.csv", "--follow", "--checkpoint", "x"], "--order-log: a run that is followed"),
        (["--order-log", "nothing.csv"], "nothing.csv: no such file or folder; correct the path of the order log"),
        (["--order-log", "run/deliveries.jsonl"], "no column first, last"),
        (
            ["--order-log", "order.csv", "--certificate-only", "--guarantee", "causal"],
            "--guarantee: the certificate does not judge causal",
        ),
    ],
)
def test_what_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    monkeypatch.chdir(log)
    result = run("run", *words)
    assert result.exit_code == 2 and told in result.output, result.output


def test_a_log_of_another_system_needs_numbers(log: Path) -> None:
    (log / "foreign.csv").write_text("host,msg,topic,n,offset\nh1,a,A,0,1\n")
    words = (log / "foreign.csv", "--subscriber", "host", "--event", "msg", "--position", "n")
    compared = ("--order-log", log / "order.csv", "--certificate-only")
    result = run(*words, *compared)
    assert result.exit_code == 2
    assert "no delivery has a number" in result.output and "--map number=COLUMN" in result.output
    assert run(*words, *compared, "--map", "number=offset").exit_code == 0


def test_a_report_shows_the_certificate(log: Path) -> None:
    (log / "order.csv").write_text(ORDER.replace("3,B,1,1\n", ""))
    audited = run(log / "run", "--order-log", log / "order.csv", "--json")
    (log / "audit.json").write_text(audited.stdout)
    result = CliRunner().invoke(main, ["report", str(log / "audit.json"), "--out", str(log / "page.html")])
    assert result.exit_code == 0, result.output
    page = (log / "page.html").read_text()
    assert "Every delivery fits the order log" in page and "Violated: certificate" in page
    assert "the order log continues at position 4 after position 2" in page
