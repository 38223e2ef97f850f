"""Faults on a tree of three nodes with file journals, all real processes: nothing lost, repeated or misordered."""

from collections.abc import Iterator

import pytest

from soak.children import wait_for
from soak.tree.cluster import Cluster
from soak.tree.shapes import SHAPES
from tests.faults.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(SHAPES["tree"], tmp_path_factory.mktemp("tree")) as stage:
        yield stage


@pytest.fixture
def test(request: pytest.FixtureRequest) -> str:
    return str(request.node.nodeid)


def test_sequencers_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-sequencer", "east"), ("kill-sequencer", "root"), ("kill-sequencer", "west"))


@pytest.mark.long
def test_publishers_killed(stage: Stage, test: str) -> None:
    """One that uses the library, one that has never heard of it."""
    stage.round(test, ("kill-publisher", "p1"), ("kill-publisher", "plain"), gap_s=0.3)


@pytest.mark.long
def test_subscribers_killed(stage: Stage, test: str) -> None:
    """One that takes single events, one that takes batches, one that changes its topics, one that is not durable."""
    strikes = [
        ("kill-subscriber", name) for name in ("billing", "shipping", "reports", "window", "billing", "shipping")
    ]
    stage.round(test, *strikes, for_s=0.1, gap_s=0.1)


@pytest.mark.long
def test_nats_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-nats", "nats"), ("kill-nats", "nats"), for_s=0.3)


@pytest.mark.long
def test_everything_killed_at_once(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-everything", "everything"))


@pytest.mark.long
def test_processes_frozen(stage: Stage, test: str) -> None:
    """A subscriber that stands still, or nearly so, is nobody's problem but its own."""
    strikes = [("freeze-subscriber", "billing"), ("slow-subscriber", "support"), ("freeze-sequencer", "east")]
    stage.round(test, *strikes, ("freeze-nats", "nats"), for_s=0.8, gap_s=0.2)


@pytest.mark.long
def test_links_between_nodes_partitioned_delayed_and_cut(stage: Stage, test: str) -> None:
    stage.round(test, ("partition-nodes", "east"), ("delay-nodes", "west"), ("cut-nodes", "east"), gap_s=0.5)


@pytest.mark.long
def test_links_to_the_broker_partitioned(stage: Stage, test: str) -> None:
    stage.round(test, ("partition-sequencer", "east"), ("partition-subscriber", "billing"), gap_s=0.5)


@pytest.mark.long
def test_a_node_claimed_by_a_second_process(stage: Stage, test: str) -> None:
    stage.round(test, ("claim-node", "east"))


@pytest.mark.long
def test_a_node_claimed_by_a_process_with_another_journal(stage: Stage, test: str) -> None:
    stage.round(test, ("second-process", "east"), ("second-process", "root"))


@pytest.mark.long
def test_an_older_copy_of_a_journal(stage: Stage, test: str) -> None:
    stage.round(test, ("stale-journal", "east"), ("stale-journal", "root"))


@pytest.mark.long
def test_a_durable_name_taken_by_a_second_process_and_by_an_old_journal(stage: Stage, test: str) -> None:
    stage.round(test, ("second-durable", "billing"), ("stale-durable", "shipping"))


@pytest.mark.long
def test_an_append_torn_by_a_crash(stage: Stage, test: str) -> None:
    stage.round(test, ("tear-journal", "east"), ("tear-journal", "root"))


def test_a_journal_damaged_in_the_middle_keeps_its_node_from_starting(stage: Stage, test: str) -> None:
    """Acknowledged records may be behind the damage: it is reported, never skipped."""

    async def damage(cluster: Cluster) -> None:
        west = cluster.nodes["west"]
        west.kill()
        path = max(cluster.journal_folder("west").glob("segment-*.log"))
        whole = path.read_bytes()
        middle = len(whole.rstrip(b"\0")) // 2  # of what is written; behind it is room that was reserved
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0x40]) + whole[middle + 1 :])
        west.start()
        west.wanted = False
        await wait_for(lambda: not west.running, 60.0, "a node with a damaged journal to end")
        assert west.code == 1
        assert f"{path}" in west.last_lines(1)
        assert "restore the folder from a backup" in west.last_lines(1)
        path.write_bytes(whole)
        west.start()

    stage.run(damage)
    stage.round(test, ("kill-sequencer", "west"))


@pytest.mark.long
def test_a_disk_that_is_full(stage: Stage, test: str) -> None:
    stage.round(test, ("fill-disk", "east"))


@pytest.mark.long
def test_clocks_that_jump(stage: Stage, test: str) -> None:
    stage.round(test, ("jump-clock", "east"), ("jump-clock", "root"), gap_s=0.5)
