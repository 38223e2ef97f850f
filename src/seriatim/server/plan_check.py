"""Whether a plan is for the topics that are in use: a plan of yesterday, or of another cluster, orders far from home.

Topics without a home in the plan live on its `default_home`, and stay there once they were used. So `seriatim serve`
says it before a node starts; it does not refuse, since a cluster that ran with this plan must be able to go on.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from seriatim.brokers.urls import nats_place
from seriatim.model import ConnectionFailed, Node, RequestRefused, Topic
from seriatim.server.config import JETSTREAM_SCHEMES, ClusterConfig, read_plan
from seriatim.server.server import broker_options

logger = logging.getLogger(__name__)

SHOWN_MAX = 10


class PlanCheck(Struct, frozen=True):
    """Where a plan and the topics in use differ."""

    plan: str
    count: int  # of topics in use
    unknown: list[Topic]  # in the plan, and nobody uses them
    homeless: list[Topic]  # in use, and not in the plan

    @property
    def fits(self) -> bool:
        return not self.unknown and not self.homeless

    @property
    def is_for_other_topics(self) -> bool:
        """Whether it has not one of them."""
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
    """Tell in the log how a plan and the topics on the broker differ.

    None: there is nothing to compare, because the broker keeps no topics, has none yet, or does not tell.
    """
    if config.broker.partition("://")[0] not in JETSTREAM_SCHEMES:
        return None
    try:
        used = await asyncio.to_thread(_topics_on_broker, config)
    except (ConnectionFailed, RequestRefused) as error:  # if it matters, the server says so when it connects
        logger.warning("the plan was not compared with the topics in use", extra={"reason": str(error)})
        return None
    homes = read_plan(plan)["homes"]
    used -= config.homes.keys() - homes.keys()  # the cluster's file says where these live
    if not used or not homes:
        return None
    check = check_plan(str(plan), homes, used)
    _tell(check, config)
    return check


def _topics_on_broker(config: ClusterConfig) -> set[Topic]:
    """Those that have had an event. Homes make the streams of their topics whether somebody publishes or not."""
    from seriatim.brokers.nats_catalogue import connect, read_catalogue

    place = nats_place(config.broker, **broker_options(config))
    with connect(place) as connection:
        streams = read_catalogue(connection, place).streams
    return {each.holds for each in streams if each.kind in ("log", "slots") and each.next > 1}


def _tell(check: PlanCheck, config: ClusterConfig) -> None:
    about = {"plan": check.plan, "cluster": config.cluster}
    fix = "give the plan of this cluster's topics (`seriatim plan --check` compares), or a new cluster name"
    if check.is_for_other_topics:
        said = f"the plan is for other topics: not one of the {check.count:,} in use is in it"
        logger.warning(said, extra={**about, "topics": listed(check.homeless), "fix": fix})
    elif check.homeless:
        home = config.tree.default_home or "none"
        said = f"{len(check.homeless):,} of the {check.count:,} topics in use are not in the plan"
        logger.warning(said, extra={**about, "topics": listed(check.homeless), "home": home, "fix": fix})
    if check.unknown:
        logger.info("not in use, but in the plan", extra={**about, "topics": listed(check.unknown)})
