"""Peers as processes of their own, killed with -9 and started again under load; judged from their logs."""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from seriatim.audit import audit, read_history
from seriatim.model import Subscription
from soak.peers.run import PeerSystem
from soak.peers.verify import verify_peers
from tests.live.peers.world import until

PEERS = 5


def told(folder: Path, id: int) -> int:
    """How much the log says that a peer's first life was notified of."""
    return sum(row.subscriber == f"{id}.1/main" for row in read_history(folder / "log").deliveries)


def has_told(folder: Path, id: int, count: int) -> bool:
    return told(folder, id) >= count


async def test_killed_and_restarted_under_load_nothing_is_lost_to_who_stays(tmp_path: Path) -> None:
    system = PeerSystem(tmp_path / "round", PEERS, seed=5, rate=10.0)
    folder = system.folder
    try:
        await system.start()
        for victim in (1, 3, 1):
            wanted = told(folder, 0) + 20
            await until(partial(has_told, folder, 0, wanted), "everybody publishes")
            system.children[victim].kill()
            system.children[victim].start()
            ready = folder / f"ready-{victim}-{system.children[victim].pid}"
            await until(ready.exists, f"peer {victim} is back and holds the topic", 240.0)
        await system.drain()
    finally:
        await system.stop()
    verdict = verify_peers(folder, system.unharmed)
    assert verdict.violations == []
    assert verdict.answers == {"causal": "valid", "fifo": "valid", "integrity": "valid"}
    assert verdict.stable == len(system.unharmed) == 3 and verdict.acknowledged > 50
    lives = Counter(row.subscriber.partition(".")[0] for row in _main_stays(folder))
    assert lives["1"] >= 3 and lives["3"] >= 2, "each restart is a life of its own in the log"


def _main_stays(folder: Path) -> list[Subscription]:
    return [row for row in read_history(folder / "log").subscriptions if row.topic == "main"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def valid_round(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a short round without any fault, for the tests that break them."""
    folder = tmp_path_factory.mktemp("valid") / "round"

    system = PeerSystem(folder, 4, seed=6, rate=20.0)
    try:
        await system.start()
        await until(lambda: told(folder, 0) > 40, "everybody publishes")
        await system.drain()
    finally:
        await system.stop()
    assert verify_peers(folder, [0, 2]).violations == []
    return folder


def copy_with(folder: Path, target: Path, drop: str = "", swap: bool = False) -> Path:
    """The same logs, broken: rows of a subscriber left out, or the first two of them exchanged."""
    shutil.copytree(folder, target)
    history = read_history(folder / "log")
    rows = [row for row in history.deliveries if row.subscriber == "0.1/main"]
    others = [row for row in history.deliveries if row.subscriber != "0.1/main"]
    if drop:
        rows = [row for row in rows if row.event_id != drop]
    if swap:
        rows.reverse()
    rows = [msgspec.structs.replace(row, position=position) for position, row in enumerate(rows)]
    (target / "log" / "deliveries.jsonl").write_bytes(msgspec.json.Encoder().encode_lines([*others, *rows]))
    return target


def test_the_judge_notices_a_loss(valid_round: Path, tmp_path: Path) -> None:
    lost = next(row.event_id for row in read_history(valid_round / "log").deliveries if row.subscriber == "0.1/main")
    broken = copy_with(valid_round, tmp_path / "broken", drop=lost)
    assert any(line.startswith("lost: peer 0") for line in verify_peers(broken, [0, 2]).violations)


def test_the_judge_notices_disorder(valid_round: Path, tmp_path: Path) -> None:
    broken = copy_with(valid_round, tmp_path / "broken", swap=True)
    assert any("fifo" in line or "causal" in line for line in verify_peers(broken, [0, 2]).violations)
    assert audit(read_history(broken / "log")).verdicts["causal"].answer == "invalid"
