"""Changing the layout of a running cluster: what the commands `node`, `standby` and `apply` share."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from seriatim.brokers.capabilities import required
from seriatim.cli.cluster import Cluster, RootQuestions, check_keeps
from seriatim.model import InputError, Node, RequestRefused, TimedOut
from seriatim.server.changing import (
    AskLayout,
    LayoutAnswer,
    LayoutQuestion,
    StartChange,
    StopChange,
    Wish,
    decode_layout_answer,
)
from seriatim.server.description import ClusterDescription
from seriatim.server.layout import Change
from seriatim.server.status import WaitingNode, node_subject

ANSWER_S = 2.0  # one answer of a process that waits
LOOK_S = 0.05
LOOK_S_MAX = 0.5
UNDO_S = 5.0  # how long a change that took too long may take to be undone

STEPS = {
    "begin": "is checked",
    "prepare": "waits for the node",
    "switch": "every node is told",
    "register": "is registered",
}


class Changer:
    """Asks the root of one cluster, over the broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.description = cluster.description
        self.tree = cluster.description.tree
        self._requests = required(cluster.requests, "url", "has no request and reply", "use a broker that has them")
        self._root = RootQuestions(cluster, "start it, and ask again", LOOK_S)

    async def change(
        self,
        wish: Wish,
        node: Node,
        timeout_s: float,
        on_step: Callable[[str], None] = lambda step: None,
        **more: Any,
    ) -> Change:
        """Make this change, and wait until it is made. RequestRefused: it was not, and why.

        TimedOut: it took too long; it was undone if it still could be, and the error says whether.
        """
        deadline_s = time.monotonic() + timeout_s
        id_ = secrets.token_hex(8)
        question = StartChange(id=id_, wish=wish, node=node, **more)
        answer, told, pause_s = await self._ask(question, deadline_s), "", LOOK_S
        while answer.step:
            if answer.step != told:
                told = answer.step
                on_step(STEPS[told])
            if time.monotonic() > deadline_s:
                return await self._give_up(id_, node, timeout_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S_MAX)
            answer = await self._ask(question, deadline_s)
        return self._made(answer)

    async def _give_up(self, id_: str, node: Node, timeout_s: float) -> Change:
        deadline_s = time.monotonic() + UNDO_S
        answer = await self._ask(StopChange(id_), deadline_s)
        while answer.step and time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_S_MAX)
            answer = await self._ask(AskLayout(id_), deadline_s)
        if answer.made is not None:
            return answer.made
        where = (
            "it was undone" if not answer.step else "it goes on by itself: `seriatim explain` says what it waits for"
        )
        raise TimedOut(f"the change of {node} took longer than {timeout_s:g} s; {where}")

    def _made(self, answer: LayoutAnswer) -> Change:
        if answer.made is None:
            raise RequestRefused(f"the layout is as before: {answer.reason or 'the root was started again; try again'}")
        return answer.made

    async def facts(self, timeout_s: float) -> LayoutAnswer:
        """Ask the root about the layout as it is now."""
        return await self._ask(AskLayout(), time.monotonic() + timeout_s)

    async def waiting(self, node: Node) -> WaitingNode | None:
        """Ask the process that waits to run this node how it is. None: no process waits."""
        subject = node_subject(self.description.cluster, "waiting", node)
        data = await self._requests.request(subject, b"", ANSWER_S)
        return msgspec.json.decode(data, type=WaitingNode) if data is not None else None

    async def await_process(
        self, node: Node, timeout_s: float, on_waiting: Callable[[], None] = lambda: None
    ) -> WaitingNode | None:
        """Wait until a process waits to run this node, and return what it says. None: none came in time."""
        deadline_s, is_told = time.monotonic() + timeout_s, False
        while (found := await self.waiting(node)) is None and time.monotonic() < deadline_s:
            if not is_told:
                is_told = True
                on_waiting()
            await asyncio.sleep(LOOK_S_MAX)
        return found

    async def _ask(self, question: LayoutQuestion, deadline_s: float) -> LayoutAnswer:
        return await self._root.ask(question, decode_layout_answer, deadline_s)


# ── what is refused before anything changes ───────────────────────────────────────────────────────────────────────


def check_changes(url: str) -> None:
    """InputError: on such a broker nodes cannot be added or removed."""
    check_keeps(
        url,
        if_direct="peers and brokers of an overlay are listed in their file, and do not change while they run",
        if_lossy="has no place where a layout is registered, so nodes do not change while they run",
    )


def check_tree(description: ClusterDescription) -> None:
    if description.order == "atoms":
        problem = f"cluster {description.cluster} orders by atoms, and its nodes are placed by a plan"
        raise InputError("--cluster", problem, "use a cluster with a tree; atoms get other nodes in a new cluster")


def check_node(description: ClusterDescription, node: Node, field: str = "NODE") -> None:
    parents = description.tree.parents
    if node not in parents:
        raise InputError(field, f"there is no node {node!r}", f"use one of {', '.join(sorted(parents))}")
