"""Check that a plan lists the topics that are in use, not those of an older or another cluster.

Topics that the plan does not list begin on its `default_home`, and stay there until they are moved. So `seriatim serve`
warns before a node starts. It does not refuse: a cluster that already runs with this plan must be able to continue.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from seriatim.brokers.bulk import BulkReader
from seriatim.live.server import broker_options
from seriatim.model import ConnectionFailed, Node, RequestRefused, Topic
from seriatim.server.config import ClusterConfig, read_plan

logger = logging.getLogger(__name__)

SHOWN_MAX = 10


class PlanCheck(Struct, frozen=True):
    """Where a plan and the topics in use differ."""

    plan: str
    count: int  # of topics in use
    unknown: list[Topic]  # in the plan, but not in use
    homeless: list[Topic]  # in use, but not in the plan

    @property
    def fits(self) -> bool:
        return not self.unknown and not self.homeless

    @property
    def is_for_other_topics(self) -> bool:
        """Whether the plan lists none of the topics in use."""
        return 0 < self.count == len(self.homeless)


def check_plan(plan: str, homes: Mapping[Topic, Node], used: Iterable[Topic]) -> PlanCheck:
    """Compare the homes of a plan with the topics that are in use."""
    topics = set(used)
    return PlanCheck(plan, len(topics), sorted(homes.keys() - topics), sorted(topics - homes.keys()))


def listed(topics: list[Topic]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(topics) - SHOWN_MAX:,} more" if len(topics) > SHOWN_MAX else ""
    return f"{', '.join(topics[:SHOWN_MAX])}{more}"


async def compare_with_broker(config: ClusterConfig, plan: Path) -> PlanCheck | None:
    """Log how a plan and the topics on the broker differ.

    None: there is nothing to compare, because the broker keeps no topics, has none yet, or refuses to say.
    """
    reader = config.kind.bulk(config.broker, broker_options(config))
    if reader is None:
        return None
    try:
        used = await asyncio.to_thread(_topics_on_broker, reader)
    except (ConnectionFailed, RequestRefused) as error:  # the server reports it when it connects
        logger.warning("plan not compared with the topics in use: plan=%s reason=%s", plan, error)
        return None
    homes = read_plan(plan)["homes"]
    used -= config.homes.keys() - homes.keys()  # the cluster's file says where these live
    if not used or not homes:
        return None
    check = check_plan(str(plan), homes, used)
    _tell(check, config)
    return check


def _topics_on_broker(reader: BulkReader) -> set[Topic]:
    """The topics that have events. (Homes create the streams of their topics before anybody publishes.)"""
    return {each.holds for each in reader.catalogue().streams if each.kind in ("log", "slots") and each.next > 1}


def _tell(check: PlanCheck, config: ClusterConfig) -> None:
    fix = "plan again (`seriatim plan --check` compares), and move topics that run (`seriatim apply`)"
    missing, unused = listed(check.homeless), listed(check.unknown)
    if check.is_for_other_topics:
        text = "the plan is for other topics: none of %d topics in use is in it: plan=%s cluster=%s topics=%s fix=%s"
        logger.warning(text, check.count, check.plan, config.cluster, missing, fix)
    elif check.homeless:
        home = config.tree.default_home or "none"
        text = "%d of %d topics in use are not in the plan: plan=%s cluster=%s topics=%s home=%s fix=%s"
        counts = len(check.homeless), check.count
        logger.warning(text, *counts, check.plan, config.cluster, missing, home, fix)
    if check.unknown:
        text = "topics of the plan are not in use: plan=%s cluster=%s topics=%s"
        logger.info(text, check.plan, config.cluster, unused)
