"""Stations of sequencing atoms as processes, killed by SIGKILL under load and started again: judged from the logs."""

from pathlib import Path

import pytest

from soak.atoms.run import CAUSAL, TOTAL, run_round
from soak.loop import Orders


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.long)], ids=["total", "causal"])
async def test_stations_are_killed_while_events_flow_and_guests_come_and_go(tmp_path: Path, causal: bool) -> None:
    result = await run_round(Orders(tmp_path, 1, seconds=4.0, seed=7, rate=20.0, faults="kill"), causal)
    verdict = result.verdict
    assert not verdict.violations, verdict.violations
    assert result.faults["kill"] >= 1 and result.faults["guest"] >= 1
    assert verdict.published > 20 and verdict.notified > 40
    assert verdict.answers == dict.fromkeys(CAUSAL if causal else TOTAL, "valid")
