"""Brokers as processes of their own, killed with -9 and started again under load; judged from the logs."""

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from seriatim.audit import read_history
from soak.overlay.child import matching, read_sent
from soak.overlay.run import OverlaySystem
from soak.overlay.verify import GUARANTEES, read_streams, verify_overlay
from tests.live.overlay.world import until

TREE = {"B1": "", "B2": "B1", "B3": "B1", "B4": "B2"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def round_with_kills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a short round in which every broker is killed once, the root too."""
    folder = tmp_path_factory.mktemp("kills") / "round"

    system = OverlaySystem(folder, seed=5, rate=40.0, tree=TREE)
    try:
        await system.start()
        for name in ("B2", "B1", "B4", "B3"):
            wanted = count(folder) + 60
            await until(lambda wanted=wanted: count(folder) >= wanted, "everybody is notified")
            system.brokers[name].kill()
            system.brokers[name].start()
        await system.drain()
    finally:
        await system.stop()
    return folder


def count(folder: Path) -> int:
    path = folder / "log" / "deliveries.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_every_broker_killed_once_and_nothing_is_lost_or_disordered(round_with_kills: Path) -> None:
    verdict = verify_overlay(round_with_kills)
    assert verdict.violations == []
    assert verdict.answers == dict.fromkeys(GUARANTEES, "valid")
    assert verdict.owed > 240


def test_the_judge_notices_a_loss_and_disorder(round_with_kills: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(round_with_kills, broken)
    history = read_history(round_with_kills / "log")
    steady = {stream.subscriber: stream for stream in read_streams(round_with_kills)}
    notified = Counter(row.subscriber for row in history.deliveries if row.subscriber in steady)
    victim = notified.most_common(1)[0][0]
    owed = matching(steady[victim].where, read_sent(round_with_kills))  # not what a publisher gave up, but came anyway
    rows = [row for row in history.deliveries if row.subscriber == victim]
    others = [row for row in history.deliveries if row.subscriber != victim]
    loss = next(row for row in rows if row.event_id in owed)
    kept = [row for row in reversed(rows) if row is not loss]
    turned = [msgspec.structs.replace(row, position=place) for place, row in enumerate(kept)]
    (broken / "log" / "deliveries.jsonl").write_bytes(msgspec.json.Encoder().encode_lines([*others, *turned]))
    violations = verify_overlay(broken).violations
    assert any(line.startswith("lost") for line in violations), violations
    assert any(line.startswith(("tno", "fifo")) for line in violations), violations
