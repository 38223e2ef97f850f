"""The topics and durable subscribers of a node of the tree, page by page; and giving one of them up.

What is asked here was asked by an operator on the broker. Whoever may publish on these subjects may remove topics and
durable subscribers, so clients must not have that right (docs/operating.md).
"""

import logging
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, TypeVar

import msgspec

from seriatim.live.tree.host import NodeHost
from seriatim.model import UNREADABLE, Address, Topic
from seriatim.protocols.tree.messages import Add, Forget, Remove, Subscribe
from seriatim.protocols.tree.node import refusal
from seriatim.protocols.tree.state import SequencerState
from seriatim.server.holdings import (
    PAGE,
    DurableRow,
    DurablesPage,
    GivenUp,
    GiveUp,
    Page,
    TopicRow,
    TopicsPage,
)

logger = logging.getLogger(__name__)

_Question = TypeVar("_Question")


class Inventory:
    """Answers for one running node. `where`: the address that a connected client comes from, or None."""

    def __init__(self, host: NodeHost, uptime_s: float, where: Callable[[Address], str | None]) -> None:
        self._host = host
        self._uptime_s = uptime_s
        self._where = where

    @property
    def _state(self) -> SequencerState:
        return self._host.machine.state.sequencer

    def topics(self, question: Page) -> TopicsPage:
        """Topics homed here that are in use, listed, or being removed."""
        state, tree = self._state, self._host.machine.inner.tree
        listed = {topic for topic, node in tree.homes.items() if node == self._host.node}
        held = {topic for holder in state.couplings.holders.values() for topic in holder.topics}
        here = (topic for topic in {*state.homes, *listed} if not state.removed.get(topic) or topic in held)
        page, more = _page(here, question)
        holders: dict[Topic, list[bool]] = {topic: [] for topic in page}
        for holder in state.couplings.holders.values():
            for topic in holder.topics & holders.keys():
                holders[topic].append(holder.lasting)
        return TopicsPage(topics=[self._row(topic, holders[topic], topic in listed) for topic in page], more=more)

    def _row(self, topic: Topic, holders: list[bool], is_listed: bool) -> TopicRow:
        home = self._state.homes.get(topic)
        issued = home.issued if home is not None else 0
        return TopicRow(
            topic=topic,
            issued=issued,
            settled=min(self._state.ranges.get(topic, {}), default=issued + 1) - 1,
            subscribers=len(holders),
            durables=sum(holders),
            is_listed=is_listed,
            is_leaving=self._state.removed.get(topic) is False,
        )

    def durables(self, question: Page) -> DurablesPage:
        holders, tree = self._state.couplings.holders, self._host.machine.inner.tree
        page, more = _page((name for name, holder in holders.items() if holder.lasts), question)
        now = self._host.driver.clock.now_ms()
        return DurablesPage(
            durables=[
                DurableRow(
                    name=name,
                    topics=sorted(holders[name].topics),
                    homed=sorted(each for each in holders[name].topics if tree.home(each) == self._host.node),
                    heard_s=min(self._uptime_s, max(0.0, now - holders[name].heard_at) / 1000.0),
                    node_s=self._uptime_s,
                    is_connected=self._where(name) is not None,
                    address=self._where(name) or "",
                )
                for name in page
            ],
            more=more,
        )

    def add(self, question: GiveUp) -> GivenUp:
        """Begin to use a topic. When its log is there, it is done."""
        topic, state = question.name, self._state
        refused = refusal(Subscribe(0, topic, frozenset({topic})), state.homes)
        if refused is not None:
            return GivenUp(refused.reason)
        if state.removed.get(topic) is False:
            return GivenUp("it is being removed; ask again when that is done")
        if (
            not self._host.machine.inner.tree.knows(topic)
            or self._host.machine.inner.tree.home(topic) != self._host.node
        ):
            return GivenUp(f"{self._host.node} is not its home")
        self._host.driver.deliver(self._host.node, Add(topic))
        return GivenUp()

    def remove(self, question: GiveUp) -> GivenUp:
        """Begin to remove a topic. When it is no longer listed, it is done."""
        if not self._host.removes_topics:
            return GivenUp("this broker keeps no log of a topic, and no slots: there is nothing to remove")
        problem = self._host.machine.inner.why_kept(question.name, question.force)
        if problem is not None:
            return GivenUp(problem)
        logger.warning("topic is removed: node=%s topic=%s forced=%s", self._host.node, question.name, question.force)
        self._host.driver.deliver(self._host.node, Remove(question.name, question.force))
        return GivenUp()

    def forget(self, question: GiveUp) -> GivenUp:
        """Forget a durable subscriber, as if it had left all its topics."""
        name, holder = question.name, self._state.couplings.holders.get(question.name)
        if holder is None or not holder.lasts:
            return GivenUp()
        if self._where(name) is not None and not question.force:
            return GivenUp(f"{name} is connected from {self._where(name)}")
        logger.warning("durable subscriber is forgotten: node=%s name=%s", self._host.node, name)
        self._host.driver.deliver(self._host.node, Forget(name))
        return GivenUp()

    def answers(self) -> dict[str, Callable[[bytes], bytes | None]]:
        """What is answered under which word."""
        return {
            "topics": _answering(Page, self.topics),
            "durables": _answering(Page, self.durables),
            "add": _answering(GiveUp, self.add),
            "remove": _answering(GiveUp, self.remove),
            "forget": _answering(GiveUp, self.forget),
        }


def _page(names: Iterable[str], question: Page) -> tuple[list[str], bool]:
    found = nsmallest(PAGE + 1, (name for name in names if name > question.after))
    return found[:PAGE], len(found) > PAGE


def _answering(type_: type[_Question], answer: Callable[[_Question], Any]) -> Callable[[bytes], bytes | None]:
    """A handler of raw questions; one that cannot be read is answered with nothing, and logged."""

    def reply(data: bytes) -> bytes | None:
        try:
            question = msgspec.json.decode(data or b"{}", type=type_)
        except UNREADABLE as error:
            logger.warning("question cannot be read: reason=%s", error)
            return None
        return msgspec.json.encode(answer(question))

    return reply
