"""The simulated demo shows what it promises, with any seed; a failing seed replays with `seriatim demo --seed N`."""

import json

import pytest
from click.testing import CliRunner

from seriatim.audit import audit
from seriatim.cli import main
from seriatim.demo.simulated import EVENTS, GUARANTEES, HOLDINGS, open_shop


@pytest.mark.parametrize("seed", range(20))
def test_the_ordered_run_is_in_order_and_complete(seed: int) -> None:
    without, ordered = open_shop(seed)
    assert audit(without).verdicts["per-topic"].answer == "valid", "what every broker promises"
    report = audit(ordered)
    assert {name: report.verdicts[name].answer for name in GUARANTEES} == dict.fromkeys(GUARANTEES, "valid")
    for name, topics in HOLDINGS.items():
        for history in (without, ordered):
            notified = [row.event_id for row in history.deliveries if row.subscriber == name]
            assert sorted(notified) == sorted(event_id for topic in topics for event_id in EVENTS[topic])


def test_the_same_seed_is_the_same_run() -> None:
    assert open_shop(5) == open_shop(5)


def test_the_page_shows_disagreement_and_agreement() -> None:
    result = CliRunner().invoke(main, ["demo", "--simulated"])
    assert result.exit_code == 0
    assert result.stdout.isascii(), "without a terminal, no colours"
    lines = result.stdout.splitlines()
    assert len(lines) <= 30
    assert "  audit: per-topic valid, tno invalid, acyclic invalid, completeness valid" in lines
    assert "  audit: per-topic valid, tno valid, acyclic valid, completeness valid" in lines
    assert sum(line.startswith("* ") and "was notified of" in line for line in lines) == 1


def test_json_has_both_views_of_the_run() -> None:
    result = CliRunner().invoke(main, ["demo", "--seed", "4", "--json"])
    answer = json.loads(result.stdout)
    assert answer["seed"] == 4
    assert answer["missing"] == []
    assert answer["without"]["verdicts"]["tno"] == "invalid"
    assert answer["without"]["anomalies"]
    assert answer["ordered"]["verdicts"]["tno"] == "valid"
    assert answer["ordered"]["anomalies"] == []
    assert set(answer["ordered"]["notified"]) == set(HOLDINGS)


def test_a_run_that_is_not_complete_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    without, ordered = open_shop(3)
    lost = next(row for row in reversed(ordered.deliveries) if row.subscriber == "billing")
    ordered.deliveries.remove(lost)
    monkeypatch.setattr("seriatim.demo.simulated.open_shop", lambda seed: (without, ordered))
    result = CliRunner().invoke(main, ["demo", "--simulated"])
    assert result.exit_code == 1
    assert f"missing: {lost.event_id} at billing" in result.stdout


def test_a_run_that_is_not_in_order_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    without, _ = open_shop(3)
    monkeypatch.setattr("seriatim.demo.simulated.open_shop", lambda seed: (without, without))
    assert CliRunner().invoke(main, ["demo", "--simulated"]).exit_code == 1
