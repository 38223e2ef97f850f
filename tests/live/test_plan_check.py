"""Whether a plan is for the topics in use: on paper, and beside what is on a real broker."""

from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.live.plan_check import check_plan, compare_with_broker, listed
from seriatim.server.config import ClusterConfig, load_config
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer


def test_a_plan_and_topics_are_compared() -> None:
    check = check_plan("plan.toml", {"a": "eu", "old": "eu"}, ["b", "a"])
    assert (check.count, check.unknown, check.homeless) == (2, ["old"], ["b"])
    assert not check.fits and not check.is_for_other_topics
    assert check_plan("plan.toml", {"a": "eu"}, ["a"]).fits
    assert check_plan("plan.toml", {"old": "eu"}, ["a", "b"]).is_for_other_topics
    nobody = check_plan("plan.toml", {"a": "eu"}, [])
    assert not nobody.is_for_other_topics and nobody.unknown == ["a"]


def test_a_long_list_is_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([f"t{i:04}" for i in range(1_234)]).endswith("t0009 and 1,224 more")


def with_plan(folder: Path, broker: str, cluster: str, homes: str, more: str = "") -> tuple[ClusterConfig, Path]:
    config, plan = folder / "cluster.toml", folder / "plan.toml"
    config.write_text(f'cluster = "{cluster}"\nbroker = "{broker}"\ndefault_home = "root"\n{more}\nnodes.root = {{}}\n')
    plan.write_text(homes)
    return load_config(config, plan), plan


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_beside_the_topics_on_the_broker(tmp_path: Path, mode: str) -> None:
    server, cluster = shared_server(), new_cluster()
    orders, prices = f"{cluster}.orders", f"{cluster}.prices"

    async def compare(homes: str, more: str = "") -> Any:
        return await compare_with_broker(*with_plan(tmp_path, server.url, cluster, homes, more))

    assert await compare('homes.elsewhere = "root"') is None, "a new cluster has no topics to compare with"
    async with (
        sequencer(server, cluster, tmp_path, mode=mode),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
    ):
        await bus.publish_many([(orders, b"1"), (prices, b"2")])
    other = await compare('homes.elsewhere = "root"')
    assert other.is_for_other_topics
    assert (other.unknown, other.homeless) == (["elsewhere"], [orders, prices])
    some = await compare(f'[homes]\n"{orders}" = "root"')
    assert (some.unknown, some.homeless, some.is_for_other_topics) == ([], [prices], False)
    right = await compare(f'[homes]\n"{orders}" = "root"\n"{prices}" = "root"')
    assert right.fits
    in_file = await compare(f'[homes]\n"{orders}" = "root"', f'homes = {{ "{prices}" = "root" }}')
    assert in_file.fits, "the cluster's file says where prices live"
    assert await compare('default_home = "root"') is None, "a plan of parents alone is for any topics"


@pytest.mark.parametrize("broker", ["memory://plan", "nats+core://127.0.0.1:1", "nats://127.0.0.1:1"])
async def test_without_topics_to_look_at_there_is_nothing_to_say(tmp_path: Path, broker: str) -> None:
    """A broker that keeps none, or is not there: that is for the server to say, when it connects."""
    more = 'mode = "ticket"' if "core" in broker else ""
    config, plan = with_plan(tmp_path, broker, "shop", 'homes.elsewhere = "root"', more)
    assert await compare_with_broker(config, plan) is None
