"""Stations of sequencing atoms as processes, killed by SIGKILL under load and started again: judged from the logs."""

import asyncio
from pathlib import Path

import pytest

from soak.atoms import CAUSAL, TOTAL, run_atoms_round


@pytest.mark.parametrize("causal", [False, True], ids=["total", "causal"])
def test_stations_are_killed_while_events_flow_and_guests_come_and_go(tmp_path: Path, causal: bool) -> None:
    result = asyncio.run(run_atoms_round(tmp_path, 1, seconds=4.0, seed=7, rate=20.0, causal=causal))
    assert not result.violations, result.violations
    assert result.faults["kill"] >= 1 and result.faults["guest"] >= 1
    assert result.published > 20 and result.notified > 40
    assert result.answers == dict.fromkeys(CAUSAL if causal else TOTAL, "valid")
