"""`seriatim audit`: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.audit import Auditor, write_history
from seriatim.cli.audit.command import command
from seriatim.model import Delivery, History
from seriatim.order import GUARANTEES


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def write(folder: Path, **notified: str) -> Path:
    rows = [Delivery(s, i, e, e[0].upper()) for s, words in notified.items() for i, e in enumerate(words.split())]
    write_history(History(deliveries=rows), folder)
    return folder


def test_all_valid(tmp_path: Path) -> None:
    result = run(write(tmp_path, s1="a b", s2="a b"), "--guarantee", "tno", "--guarantee", "acyclic")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "4 deliveries to 2 subscribers; 2 events, 2 of them notified to two or more",
        "",
        "tno                 valid    no violation in 4 deliveries to 2 subscribers",
        "acyclic             valid    no violation in 4 deliveries to 2 subscribers",
    ]


def test_invalid_shows_the_rows_that_prove_it(tmp_path: Path) -> None:
    result = run(write(tmp_path, s1="a b", s2="b a"))
    assert result.exit_code == 1
    assert result.output.splitlines()[-6:] == [
        "inversion: 1 found",
        "  s1 was notified of a before b, s2 of b before a",
        "    delivery     subscriber=s1 position=0 event_id=a topic=A",
        "    delivery     subscriber=s1 position=1 event_id=b topic=B",
        "    delivery     subscriber=s2 position=0 event_id=b topic=B",
        "    delivery     subscriber=s2 position=1 event_id=a topic=A",
    ]


def test_only_what_was_asked_counts(tmp_path: Path) -> None:
    result = run(write(tmp_path, s1="a b", s2="b a"), "--guarantee", "per-topic")
    assert result.exit_code == 0
    assert "inversion" not in result.output


def test_unknown(tmp_path: Path) -> None:
    assert run(write(tmp_path, s1="a b", s2="a b")).exit_code == 3
    assert run(write(tmp_path)).exit_code == 3


def test_unreadable(tmp_path: Path) -> None:
    result = run(tmp_path / "none")
    assert result.exit_code == 2
    assert "no such file or folder; correct the path" in result.output
    assert run(tmp_path, "--guarantee", "total").exit_code == 2
    assert run(tmp_path, "--limit", "0").exit_code == 2


def test_json(tmp_path: Path) -> None:
    result = run(write(tmp_path, s1="a b", s2="b a"), "--json")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert answer["answer"] == "invalid"
    assert set(answer["verdicts"]) == set(GUARANTEES)
    assert answer["verdicts"]["tno"] == {"answer": "invalid", "reason": "inversion (1)"}
    assert answer["anomalies"][0]["breaks"] == "tno"
    assert answer["anomalies"][0]["witness"][0] == {
        "row": "delivery",
        "subscriber": "s1",
        "position": 0,
        "event_id": "a",
        "topic": "A",
    }


def test_help_explains_every_guarantee() -> None:
    text = run("--help").output
    assert all(guarantee.promise in text for guarantee in GUARANTEES.values())


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(auditor: Auditor) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Auditor, "run", stop)
    result = run(write(tmp_path, s1="a b"), "--json")
    assert result.exit_code == 130
    assert json.loads(result.output)["verdicts"]["tno"]["reason"] == "not checked: the audit was stopped"
