"""Nodes come and go in a soak: the process of a new one is started, then the commands do the rest.

A node that comes has a name of its own, `leaf3` or `top1`. What is not made within a time is undone, or goes on by
itself: then the harness waits for what came of it, so that it knows which processes should run.
"""

import asyncio
import random

from seriatim.cli.changing import Changer
from seriatim.cli.cluster import Cluster as Found
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.cli.node import add_node
from seriatim.model import Node, SeriatimError
from soak.tree.cluster import CLUSTER_NAME, Cluster
from soak.tree.rows import now

RESHAPE_S = 30.0
SETTLE_S = 90.0  # until it is known whether a change was made
TOPS_MAX = 2
LEAVES_MAX = 4
LOOK_S = 0.5


class NotReshaped(SeriatimError):
    """A change of the tree was not made, because of other faults. It must only do no harm."""


class Reshapes:
    """Changes the tree of one cluster."""

    def __init__(self, cluster: Cluster, source: random.Random) -> None:
        self._cluster = cluster
        self._random = source

    async def carry_out(self, kind: str, which: Node) -> Node:
        """One change of the plan. `which`: the parent, or the leaf that goes; empty: any. NotReshaped: it was not
        made."""
        if kind == "node-root":
            return await self.grow()
        return await (self.add(which) if kind == "node-add" else self.remove(which))

    async def add(self, parent: Node = "") -> Node:
        """A new leaf, below some node."""
        cluster = self._cluster
        if len([each for each in cluster.shape.parents if each.startswith("leaf")]) >= LEAVES_MAX:
            raise NotReshaped("there are enough leaves")
        parent = parent or self._random.choice(sorted(cluster.shape.parents))
        name = cluster.new_name("leaf")
        before, cluster.shape = cluster.shape, cluster.shape.with_leaf(name, parent)
        await cluster.start_newcomer(name, parent)
        if not await self._come(name, parent, None):
            cluster.shape = before
            cluster.drop_node(name)
            raise NotReshaped(f"{name} was not added")
        return name

    async def grow(self) -> Node:
        """A new root."""
        cluster = self._cluster
        if len([each for each in cluster.shape.parents if each.startswith("top")]) >= TOPS_MAX:
            raise NotReshaped("the tree is high enough")
        root, name = cluster.shape.root, cluster.new_name("top")
        before, cluster.shape = cluster.shape, cluster.shape.with_root(name)
        await cluster.start_newcomer(name, root)
        if not await self._come(name, None, root):
            cluster.shape = before
            cluster.drop_node(name)
            raise NotReshaped(f"{name} was not added")
        return name

    async def remove(self, name: Node = "") -> Node:
        """A leaf that came goes again. Its topics move first."""
        cluster = self._cluster
        leaves = [
            each for each in cluster.shape.parents if each.startswith("leaf") and cluster.shape.below(each) == [each]
        ]
        if not leaves:
            raise NotReshaped("there is no leaf that came")
        name = name or self._random.choice(sorted(leaves))
        cluster.leaving.add(name)
        try:
            async with find_cluster(cluster.nats.url, CLUSTER_NAME, RESHAPE_S) as found:
                mover = Mover(found)
                for topic in cluster.shape.topics:
                    if mover.tree.home(topic) == name:
                        others = sorted(set(cluster.shape.parents) - {name})
                        to = self._random.choice(others)
                        await mover.move(topic, to, RESHAPE_S)
                        cluster.homes[topic] = to
                await Changer(found).change("remove", name, RESHAPE_S)
        except SeriatimError as error:
            if await self._is_there(name):
                cluster.leaving.discard(name)
                raise NotReshaped(str(error)) from None
        cluster.shape = cluster.shape.without(name)
        await self._ended(name)
        cluster.drop_node(name)
        return name

    async def _come(self, name: Node, parent: Node | None, above: Node | None) -> bool:
        try:
            async with find_cluster(self._cluster.nats.url, CLUSTER_NAME, RESHAPE_S) as found:
                await add_node(found, name, parent, above, None, RESHAPE_S, lambda _: None)
        except SeriatimError:
            return await self._is_there(name)
        return True

    async def _is_there(self, name: Node) -> bool:
        """Whether the cluster has this node, once no change is under way."""
        give_up_at = now() + SETTLE_S
        while now() < give_up_at:
            try:
                async with find_cluster(self._cluster.nats.url, CLUSTER_NAME, RESHAPE_S) as found:
                    if (await Changer(found).facts(RESHAPE_S)).other is None:
                        return name in await _nodes(found)
            except SeriatimError:
                pass
            await asyncio.sleep(LOOK_S)
        raise SeriatimError(f"a change of the tree about {name} is under way for {SETTLE_S:g} s, and does not end")

    async def _ended(self, name: Node) -> None:
        """Its process must end by itself, and say that it was in good order."""
        child, give_up_at = self._cluster.nodes[name], now() + RESHAPE_S
        while child.running:
            if now() > give_up_at:
                raise SeriatimError(f"{name} has left the cluster, and its process goes on:\n{child.last_lines()}")
            await asyncio.sleep(LOOK_S)


async def _nodes(found: Found) -> set[Node]:
    return set(found.description.tree.parents)
