"""All processes of a cluster go by one layout: it is registered on the broker, and whoever has another one stops.

A process compares its file with what is registered before it starts a node. The first process registers its own. Where
the broker has no register, whoever already describes the cluster is compared with. A stronger order (pairwise to
global) is registered in place of the weaker one.

Commands change the registered layout (server/layout.py). A process that runs looks now and then, and when it is told
to, and follows. A process that starts with a file from before a change goes by the layout, and its log says what has
changed and how to write the file anew. A file with nodes that the cluster does not have yet makes the process wait, if
these are the nodes that it shall run. Any other file is refused.

If a running process finds a layout that is not the successor of its own, it describes the cluster to nobody, and health
says so; it goes on serving those that know it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator

from msgspec import structs

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Register
from seriatim.model import ConnectionFailed, InputError, Node, RemoteError, RequestRefused
from seriatim.server.config import ClusterConfig
from seriatim.server.description import ClusterDescription, decode_description, describe_subject
from seriatim.server.health import Trouble
from seriatim.server.layout import Change, Layout, decode_layout, difference, encode_layout, in_force, of_config

logger = logging.getLogger(__name__)

LOOK_S = 5.0
WAIT_S = 0.5  # how often a process looks that waits to be added
ANSWER_S = 1.0
RETRY_S = 0.25
SILENCE_S = 30.0  # for so long the broker may leave questions about the layout without an answer
NAME = "layout"
SHOWN_MAX = 10


class Agreement:
    """The layout of one process, and whether it is the one that counts. `version`: 0, if it is registered nowhere.

    `config`: the file's, with what the layout says. `nodes`: the nodes that the process is to run. `on_change` is
    called when another layout has come into force.
    """

    def __init__(self, broker: Broker, config: ClusterConfig, nodes: Collection[Node] = ()) -> None:
        self.config = config
        self.layout = of_config(config)
        self.version = 0
        self.problem = ""  # why it does not count any more
        self.awaited: frozenset[Node] = frozenset()  # nodes that the cluster does not have yet
        self.on_change: list[Callable[[], None]] = []
        self._file = config
        self._nodes = frozenset(nodes)
        self._broker = broker
        self._register = broker.register(NAME)
        self._turn = asyncio.Lock()
        self._is_told = False  # that it waits

    @property
    def changes(self) -> bool:
        """Whether commands can change the layout."""
        return self._register is not None

    # ── before anything starts ────────────────────────────────────────────────────────────────────────────────────

    async def reach(self, on_waiting: Callable[[], Awaitable[None]]) -> None:
        """Agree, or wait until the cluster has the nodes that this process is to run. InputError: it is another one.

        `on_waiting` is called once, if it has to wait. Servers that have just been told of a stream may not answer
        questions about it, so a silence is not an answer.
        """
        if self._register is None:
            await self._compare_with_others()
            return
        deadline_s = time.monotonic() + SILENCE_S
        while True:
            try:
                await self._agree(self._register, on_waiting)
                return
            except ConnectionFailed as error:
                if time.monotonic() >= deadline_s and not self.awaited:
                    raise
                logger.warning("layout not agreed yet: cluster=%s reason=%s", self.layout.cluster, error)
                await asyncio.sleep(RETRY_S)

    async def _agree(self, register: Register, on_waiting: Callable[[], Awaitable[None]]) -> None:
        while not self.version:
            found = await register.read()
            if found is not None:
                registered = decode_layout(found[0])
                if not self._is_stronger_than(registered):
                    if self._has_all(registered):
                        self._go_by(registered, found[1])
                        if self.problem:
                            raise InputError("--config", self.problem, "write the file as the cluster is now")
                        self._tell_if_older(registered)
                        return
                    if not self._is_told:
                        self._is_told = True
                        await on_waiting()
                    await asyncio.sleep(WAIT_S)
                    continue
                text = "order of the cluster becomes stronger: cluster=%s from=%s to=%s"
                logger.warning(text, self.layout.cluster, registered.order, self.layout.order)
                self.layout = structs.replace(registered, order=self.layout.order)
            after = found[1] if found is not None else 0
            if version := await register.write(encode_layout(self.layout), after):
                self._go_by(self.layout, version)

    def _has_all(self, registered: Layout) -> bool:
        """Whether the cluster has the nodes of this process. InputError: the file is of another cluster."""
        ours, whole = self.layout.parents, registered.whole.parents
        self.awaited = frozenset()
        if registered.since(ours) is None and self._nodes < ours.keys():
            without = ours
            for node in sorted(self._nodes - registered.parents.keys()):
                without = _without(without, node)
            if registered.since(without) is None or any(
                whole.get(each, ours[each]) != ours[each] for each in self._nodes
            ):
                self._check(self.layout, registered)
            self.awaited = self._nodes - whole.keys()
        self._check(structs.replace(self.layout, parents=registered.parents), registered)
        return not self.awaited

    def _check(self, ours: Layout, registered: Layout) -> None:
        """InputError: they differ."""
        removed = next(
            (each for each in registered.history if each.kind == "remove" and each.node in self._nodes), None
        )
        if removed is not None:
            problem = f"node {removed.node!r} was removed from cluster {registered.cluster!r} at {removed.at}"
            raise InputError("--node", problem, "names are not used again: give the new node another one")
        differs = difference(ours, registered)
        if differs:
            self._refuse(differs, "registered on the broker")

    def _tell_if_older(self, registered: Layout) -> None:
        since = registered.since(self.layout_of_file.parents) or []
        addresses = [change for change in registered.history if change.kind == "addresses" and self._lacks(change)]
        changes = [*(each for each in since if each.kind != "addresses"), *addresses]
        if not changes:
            return
        shown = "; ".join(each.text for each in changes[-SHOWN_MAX:])
        fix = "`seriatim layout --config FILE --out FILE` writes the file as it is now"
        text = "the file is older than the layout of the cluster, and the layout counts: cluster=%s changes=%s fix=%s"
        logger.warning(text, registered.cluster, shown, fix)

    def _lacks(self, change: Change) -> bool:
        """Whether the file has other addresses than this change has set, and they still are."""
        node = self._file.nodes.get(change.node)
        if node is None or self.layout.addresses.get(change.node) != change.addresses:
            return False
        return list(node.addresses) != change.addresses

    @property
    def layout_of_file(self) -> Layout:
        return of_config(self._file)

    async def _compare_with_others(self) -> None:
        if (told := await self._description()) is not None and not self._is_stronger_than(theirs := Layout.of(told)):
            differs = difference(self.layout, theirs)
            if differs:
                self._refuse(differs, "described by its sequencers")

    async def _description(self) -> ClusterDescription | None:
        """What another process says, or has left on the broker."""
        subject, data = describe_subject(self.layout.cluster), None
        if (requests := self._broker.requests) is not None:
            data = await requests.request(subject, b"", ANSWER_S)
        elif (records := self._broker.records) is not None:
            data = await records.kept(subject)
        return decode_description(data) if data is not None else None

    def _is_stronger_than(self, theirs: Layout) -> bool:
        is_one_of = theirs.since(self.layout.parents) is not None
        ours = structs.replace(self.layout, parents=theirs.parents) if is_one_of else self.layout
        return theirs.digest == ours.digest and theirs.strength < ours.strength

    def _refuse(self, differs: str, how: str) -> None:
        cluster = self.layout.cluster
        logger.error("layout differs from that of the cluster: cluster=%s difference=%s", cluster, differs)
        problem = f"cluster {cluster!r} has another layout, {how}: {differs}"
        fix = "start it with the file of that cluster, or give this one another name"
        if self._register is not None:
            fix += (
                " (a node comes with `seriatim node add`, and the process that runs only this node waits for that; if "
                f"nothing of the old cluster is needed any more: delete the stream {cluster}-{NAME})"
            )
        raise InputError("cluster", problem, fix)

    # ── while it runs ─────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        """Look now and then whether the layout still counts."""
        while self._register is not None:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except (ConnectionFailed, RequestRefused, RemoteError) as error:
                logger.debug("cannot look at the layout: reason=%s", error)

    async def look(self) -> None:
        """Look whether the layout still counts, and follow it."""
        if self._register is None:
            return
        async with self._turn:
            found = await self._register.read()
            if found is None:  # somebody has deleted it
                self.version = await self._register.write(encode_layout(self.layout), 0) or self.version
                return
            registered = decode_layout(found[0])
            if self._is_successor(registered):
                if registered != self.layout:
                    self._go_by(registered, found[1])
                else:
                    self.version, self.problem = found[1], ""
                return
            differs = difference(self.layout, registered)
            if differs and not self.problem:
                text = "another layout was registered, so clients are not told of this one: cluster=%s difference=%s"
                logger.error(text, self.layout.cluster, differs)
            self.problem = differs
            self.version = self.version if differs else found[1]

    async def change(self, change: Callable[[Layout], Layout]) -> bool:
        """Register what `change` makes of the layout, unless somebody else has registered another one meanwhile."""
        assert self._register is not None, "asked before"
        await self.look()
        async with self._turn:
            layout = change(self.layout)
            if layout == self.layout:
                return True
            version = await self._register.write(encode_layout(layout), self.version)
            if version is None:
                return False
            self._go_by(layout, version)
            return True

    def _is_successor(self, registered: Layout) -> bool:
        """Whether this layout is ours, or what commands have made of ours."""
        ours = self.layout
        if registered.changes < ours.changes or registered.since(ours.parents) is None:
            return False
        return registered.order == ours.order and structs.replace(ours, parents=registered.parents).digest == (
            registered.digest
        )

    def _go_by(self, registered: Layout, version: int) -> None:
        """Follow this registered layout from now on, if the file of this process allows it."""
        try:
            config = in_force(self._file, registered)
        except InputError as error:
            self.problem = str(error)
            logger.error("layout cannot be followed: cluster=%s reason=%s", registered.cluster, error)
            return
        is_news = self.version > 0 and registered != self.layout
        self.layout, self.version, self.config, self.problem = registered, version, config, ""
        if is_news:
            change = registered.change.text if registered.change is not None else "none under way"
            text = "layout has changed: cluster=%s changes=%s change=%s"
            logger.info(text, registered.cluster, registered.changes, change)
            for changed in list(self.on_change):
                changed()

    def troubles(self) -> Iterator[Trouble]:
        for node in sorted(self.awaited):
            reason = f"the cluster does not have {node} yet; `seriatim node add {node}` adds it"
            yield Trouble("starting", node, reason)
        if self.problem:
            reason = f"the cluster has another layout now: {self.problem}; start this process with the cluster's file"
            yield Trouble("layout", "", reason)


async def registered(broker: Broker, cluster: str) -> Layout:
    """The layout on the broker. RequestRefused: there is none."""
    register = broker.register(NAME)
    found = await register.read() if register is not None else None
    if found is None:
        problem = f"no layout of cluster {cluster!r} is registered on the broker"
        raise RequestRefused(f"{problem}; the first process of a cluster on JetStream registers its own")
    return decode_layout(found[0])


async def as_registered(config: ClusterConfig, broker: Broker) -> ClusterConfig:
    """A file with what commands have changed since. If nothing is registered for it, the file as it is."""
    try:
        layout = await registered(broker, config.cluster)
    except RequestRefused:
        return config
    return in_force(config, layout) if layout.since(of_config(config).parents) is not None else config


def _without(parents: dict[Node, Node | None], node: Node) -> dict[Node, Node | None]:
    """The shape without this node, if it is a leaf, or a root with one child."""
    below = [each for each, parent in parents.items() if parent == node]
    rest = {each: parent for each, parent in parents.items() if each != node}
    if not below:
        return rest
    if parents[node] is None and len(below) == 1:
        return {**rest, below[0]: None}
    return parents
