"""Moving topics of a running cluster: what the commands `move`, `apply` and `plan --apply` share."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seriatim.brokers.naming import bucket_of, check_topic, is_bucket
from seriatim.cli.cluster import Cluster, RootQuestions, ask_cluster, check_keeps
from seriatim.cli.common import write_whole
from seriatim.model import ConnectionFailed, InputError, Node, RequestRefused, TimedOut, Topic
from seriatim.order import SequencingTree
from seriatim.server.config import read_plan
from seriatim.server.description import ClusterDescription
from seriatim.server.moving import AskMove, Question, StartMove, StopMove, TopicMove, decode_answer

LOOK_S = 0.005
LOOK_S_MAX = 0.02  # under way: a plan of many topics waits for this each time
LOOK_S_WAITING = 0.1  # its turn has not come, or nobody answers
UNDO_S = 5.0  # how long a move that took too long may take to be undone
SHOWN_MAX = 10

STEPS = {
    "waiting": "waits for its turn",
    "quiesce": "its home finishes what it has, and hands it over",
    "switch": "every node is told",
}


class Moved(NamedTuple):
    """A topic that has moved. `waited_ms` None: nobody has taken the time."""

    topic: Topic
    source: Node
    to: Node
    waited_ms: float | None

    @property
    def text(self) -> str:
        took = f"{self.waited_ms:,.0f} ms" if self.waited_ms is not None else "for an unknown time"
        return f"{self.topic}: {self.source} → {self.to}, waited {took}"

    @property
    def row(self) -> dict[str, Any]:
        return {"topic": self.topic, "from": self.source, "to": self.to, "waited_ms": self.waited_ms}


class Mover:
    """Asks the root of one cluster, over the broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.description = cluster.description
        self.tree = cluster.description.tree
        self._root = RootQuestions(
            cluster, "start it, and repeat the command: it continues where it was", LOOK_S_WAITING
        )

    async def move(
        self, topic: Topic, to: Node, timeout_s: float, on_step: Callable[[str], None] = lambda step: None
    ) -> Moved:
        """Move a topic, and wait until it is there. RequestRefused: it stays where it is, and why.

        TimedOut: it took too long; it was undone if it still could be, and the error says where the topic is.
        """
        deadline_s = time.monotonic() + timeout_s
        before = await self._ask(AskMove(topic), deadline_s)
        answer = await self._ask(StartMove(topic, to), deadline_s)
        told, pause_s = "", LOOK_S
        while answer.step:
            if answer.step != told:
                told = answer.step
                on_step(told)
            if time.monotonic() > deadline_s:
                return await self._give_up(before, to, told, timeout_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S_WAITING if told == "waiting" else LOOK_S_MAX)
            answer = await self._ask(AskMove(topic), deadline_s)
        return self._ended(before, answer, to)

    async def _give_up(self, before: TopicMove, to: Node, step: str, timeout_s: float) -> Moved:
        deadline_s = time.monotonic() + UNDO_S
        answer = await self._ask(StopMove(before.topic), deadline_s)
        while answer.step and time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_S_WAITING)
            answer = await self._ask(AskMove(before.topic), deadline_s)
        if answer.step:
            where = f"it continues by itself ({STEPS[answer.step]}): `seriatim explain` says what it waits for"
        elif answer.home == to:
            return self._ended(before, answer, to)
        else:
            waited = "its turn" if step == "waiting" else f"{before.home} to hand it over to {to}"
            where = f"it was undone, and {before.topic} lives on {answer.home} as before"
            where += f"; it had waited for {waited} (`seriatim status` says which nodes are away)"
        raise TimedOut(f"the move of {before.topic} to {to} took longer than {timeout_s:g} s; {where}")

    def _ended(self, before: TopicMove, answer: TopicMove, to: Node) -> Moved:
        if answer.home != to:
            reason = answer.reason or "the root was started again, and has undone it; try again"
            raise RequestRefused(f"{answer.topic} lives on {answer.home} as before: {reason}")
        return Moved(answer.topic, before.home, to, answer.waited_ms)

    async def _ask(self, question: Question, deadline_s: float) -> TopicMove:
        return await self._root.ask(question, decode_answer, deadline_s)


def describe(url: str, name: str, timeout_s: float) -> ClusterDescription:
    """How the sequencers describe the cluster now."""

    async def description(found: Cluster) -> ClusterDescription:
        return found.description

    return ask_cluster(url, name, timeout_s, description)


# ── what is refused before anything changes ───────────────────────────────────────────────────────────────────────


def check_url(url: str) -> None:
    """InputError: on such a broker topics cannot be moved."""
    check_keeps(
        url,
        if_direct="peers and overlays have no homes of topics",
        if_lossy="may lose events, and topics do not move on such a broker",
    )


def check_cluster(description: ClusterDescription) -> None:
    if description.order == "atoms":
        problem = f"cluster {description.cluster} orders by atoms, which have no homes of topics"
        raise InputError("--cluster", problem, "use a cluster with a tree")


def check_move(description: ClusterDescription, tree: SequencingTree, topic: Topic, to: Node) -> None:
    """InputError: there is no such topic or node."""
    if to not in tree.parents:
        raise InputError("--to", f"there is no node {to!r}", f"use one of {', '.join(sorted(tree.parents))}")
    if description.buckets and not is_bucket(topic, description.buckets):
        bucket = bucket_of(topic, description.buckets)
        problem = f"{topic!r} shares bucket {bucket!r} with other topics, and they move together"
        raise InputError("TOPIC", problem, f"move {bucket}")
    check_topic(topic)
    tree.home(topic)  # raises if unknown


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def homes_of_plan(plan: Mapping[str, Any], description: ClusterDescription, name: str) -> dict[Topic, Node]:
    """The homes that a plan gives. InputError: this cluster cannot get there."""
    tree = description.tree
    nodes = {*tree.parents, *plan["nodes"]}
    for topic, node in plan["homes"].items():
        if node not in nodes:
            fix = f"use one of {', '.join(sorted(nodes))}, or list it with its parent"
            raise InputError(f"homes.{topic}", f"{name} names node {node!r}, which is not there", fix)
        check_move(description, tree, topic, node if node in tree.parents else tree.root)
    return dict(plan["homes"])


def undo_path(plan: Path) -> Path:
    """The file in which `apply` writes how it was before a plan."""
    return plan.with_name(f"{plan.stem}.undo.toml")


def keep_undo(
    path: Path,
    homes: Mapping[Topic, Node],
    left: Mapping[Topic, Node],
    parents: Mapping[Node, Node | None] | None = None,
) -> None:
    """Write down how it was before. `homes`: what the plan wants; `left`: where the rest lives; `parents`: the tree
    before nodes come, if some do.

    If the file is of the same plan, begun and not finished, what it says stays.
    """
    before = read_plan(path) if path.exists() else {"homes": {}, "nodes": {}}
    known: dict[Topic, Node] = before["homes"]
    is_begun = known.keys() <= homes.keys() and (any(topic in left for topic in known) or (left and before["nodes"]))
    shape = {node: each.get("parent") for node, each in before["nodes"].items()} if is_begun else {}
    lines = toml_nodes(shape or parents or {})
    lines += ["[homes]", *toml_homes({**left, **(known if is_begun else {})})]
    try:
        write_whole(path, "\n".join(["# how it was before: nodes, and where these topics lived", *lines, ""]))
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror}), and nothing could be undone without it"
        raise InputError("--undo-file", problem, "name another file") from None


def toml_nodes(parents: Mapping[Node, Node | None]) -> list[str]:
    below = [(node, f"parent = {json.dumps(parent)}" if parent is not None else "") for node, parent in parents.items()]
    return [f"nodes.{json.dumps(node)} = {{ {parent} }}" for node, parent in below]


def toml_homes(homes: Mapping[Topic, Node]) -> list[str]:
    """JSON's strings are TOML's too."""
    return [f"{json.dumps(topic)} = {json.dumps(node)}" for topic, node in homes.items()]


async def apply_homes(
    mover: Mover, homes: Mapping[Topic, Node], timeout_s: float, on_moved: Callable[[Moved], None]
) -> list[Moved]:
    """Move what does not live where it should, one topic after the other, in this order. Stops at the first that does
    not move."""
    left = [topic for topic, node in homes.items() if mover.tree.home(topic) != node]
    moved: list[Moved] = []
    for topic in left:
        try:
            moved.append(await mover.move(topic, homes[topic], timeout_s))
        except (RequestRefused, ConnectionFailed, TimedOut) as error:
            raise type(error)(f"stopped after {len(moved):,} of {len(left):,} topics: {error}") from None
        on_moved(moved[-1])
    return moved
