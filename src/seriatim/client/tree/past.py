"""Where in the order log a subscription begins that wants the past. Checked before anything changes."""

from collections.abc import Callable, Mapping
from datetime import datetime

from seriatim.brokers.capabilities import OrderBounds, OrderLog
from seriatim.client.history import Start
from seriatim.model import InputError, Number, Topic
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.with_broker import Start as PastStart

NOW = 'use start="now"'


def check_has_past(options: TreeOptions, log: OrderLog | None) -> OrderLog:
    """The order log of a cluster. InputError: it has none."""
    if options.order != "global":
        problem = "the cluster orders pairwise, so there is no one order of past events"
        raise InputError("start", problem, f'{NOW}, or order = "global" in the cluster\'s file')
    if log is None or not options.keeps_order_log:
        raise InputError("start", "the cluster's broker keeps no order log", NOW)
    return log


async def past_start(log: OrderLog, start: Start, ordered_topic: Callable[[Topic], Topic]) -> PastStart:
    """The place that `start` means. InputError: there is no such place any more, or yet."""
    if start == "first":
        return PastStart()
    if isinstance(start, Mapping):
        return PastStart(numbers=_by_ordered_topic(start, ordered_topic))
    bounds = await log.bounds()
    if bounds is None:
        raise InputError("start", "the order log is empty, so nothing has a position or a time", 'use start="first"')
    if isinstance(start, datetime):
        return PastStart(after=await _after(log, bounds, start))
    assert isinstance(start, int), "check_start lets nothing else pass"
    if start > bounds.end:
        raise InputError("start", f"there is no position {start} yet", f"the order log ends with {bounds.end}")
    if start < bounds.first:
        problem = f"position {start} is no longer in the order log"
        raise InputError("start", problem, f'it begins with {bounds.first}; start="first" begins there')
    return PastStart(after=start - 1)


async def _after(log: OrderLog, bounds: OrderBounds, moment: datetime) -> int:
    after = await log.position_at(moment)
    if bounds.first > 1 and after < bounds.first:
        fix = 'give a later time, or use start="first"'
        raise InputError("start", f"the order log no longer has what was published at {moment.isoformat()}", fix)
    if after >= bounds.end:
        fix = 'give an earlier time, or use start="now"'
        raise InputError("start", f"nothing was published after {moment.isoformat()}", fix)
    return after


def _by_ordered_topic(numbers: Mapping[Topic, Number], ordered_topic: Callable[[Topic], Topic]) -> dict[Topic, Number]:
    found: dict[Topic, Number] = {}
    for name, number in numbers.items():
        topic = ordered_topic(name)
        if found.setdefault(topic, number) != number:
            problem = f"{name} shares its numbers with another topic, which has number {found[topic]}"
            raise InputError("start", problem, "give them the same number")
    return found
