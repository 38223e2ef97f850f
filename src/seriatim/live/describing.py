"""How others find a cluster, and ask its nodes: each process answers questions on the broker.

So clients need no addresses. Clients ask `_<cluster>.describe` first; the command line asks `_<cluster>.status.<node>`,
`_<cluster>.explain.<node>`, and the root on `_<cluster>.admin.<root>`. On `_<cluster>.look` a process is told that the
layout has changed. Answers hold no secrets.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs
from msgspec.json import encode

from seriatim.brokers.capabilities import required
from seriatim.model import InputError, Node, SeriatimError
from seriatim.server.description import ClusterDescription, describe_subject, encode_description, look_subject
from seriatim.server.moving import admin_subject
from seriatim.server.status import limited, node_subject

if TYPE_CHECKING:
    from seriatim.live.served import Served
    from seriatim.live.server import SequencerServer

logger = logging.getLogger(__name__)


class Describer:
    """The cluster as clients see it: as it is now, as far as the nodes of this process know. InputError: it does not
    fit into a message. A process that has another layout than the cluster does not describe it."""

    def __init__(self, process: "SequencerServer") -> None:
        self._process = process
        self._encoded = b""
        self._of: object = None  # what the encoded description was made of
        described = self._described()
        self._encoded = encode_description(described)
        limit, homes = process.broker.payload_bytes_max, len(process.config.homes)
        if len(self._encoded) > limit:
            problem = f"{homes} homes make {len(self._encoded)} bytes, and one message may have {limit}"
            fix = "use default_home or buckets for most of them, or raise the broker's limit (max_payload)"
            raise InputError("homes", problem, fix)

    def encoded(self) -> bytes | None:
        """The description of the cluster. None: no node of this process runs, or its layout differs, so that others
        know better."""
        process = self._process
        if process.agreement.problem:
            return None
        known = None
        if process.config.order != "atoms":
            running = [found for each in process.served.values() if (found := each.moves()) is not None]
            if not running:
                return None
            known = max(running, key=lambda found: found[1].number)
        of = (process.config, process.agreement.version, [*process.served], known and (known[0].homes, known[1].number))
        if of != self._of:
            described = self._described()
            if known is not None:
                tree, moves = known
                began = {"parents": tree.parents, "homes": tree.homes, "default_home": tree.default_home}
                described = structs.replace(described, **began).moved_by(moves)
            self._encoded, self._of = encode_description(described), of
        return self._encoded

    def _described(self) -> ClusterDescription:
        process = self._process
        config, served = process.config, process.served.values()
        addresses: dict[Node, list[str]] = {name: list(node.addresses) for name, node in config.nodes.items()}
        for node in served:
            if node.node in addresses and node.place < len(addresses[node.node]):
                addresses[node.node][node.place] = node.address  # with its real port
        described = structs.replace(
            ClusterDescription.of(config.cluster, config.tree, process.options),
            addresses=addresses,
            buckets=config.streams.buckets,
            broker_options=config.broker_options,
            token_needed=bool(config.security.token_file),
            tls=bool(config.security.certificate),
            layout_version=process.agreement.version,
            by=[node.node for node in served],
        )
        if config.order != "atoms":
            return described
        return structs.replace(
            described,
            sequenced_by="atoms",
            tree_order=None,
            causal=config.causal,
            coordinator=config.coordinator,
            ingresses=list(config.playing("ingress")),
        )


class Answers:
    """What this process answers, for nodes that come and go, until the broker is closed."""

    def __init__(self, process: "SequencerServer") -> None:
        self._process = process
        self._describer = Describer(process)
        self._answered: set[str] = set()  # an answer cannot be taken back: it is silence then
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Answer the questions of clients. On a broker without requests, leave the description as a record."""
        process = self._process
        broker, cluster = process.broker, process.config.cluster
        if broker.requests is None:
            fix = "use a broker with request and reply, or with records"
            records = required(broker.records, "broker", "has no way for clients to find the sequencers", fix)
            if (description := self._describer.encoded()) is not None:
                await records.keep(describe_subject(cluster), description)
            return
        await self._answer(describe_subject(cluster), lambda _: self._describer.encoded())
        await self._answer(look_subject(cluster), self._look)
        for node in list(process.served):
            await self.answer_for(node)

    async def answer_for(self, node: Node) -> None:
        """Answer questions about one node. Answers are JSON, so that people can ask with the tools of their broker."""
        served, cluster = self._process.served[node], self._process.config.cluster
        if self._process.broker.requests is None:
            return
        place = served.place

        def served_here(is_active: bool = True) -> "Served[Any] | None":
            found = self._process.served.get(node)
            return found if found is not None and (found.role == "active" or not is_active) else None

        def status(_: bytes) -> bytes | None:
            found = served_here(is_active=False)
            return encode(found.status()) if found is not None and found.place == place else None

        def status_if_active(_: bytes) -> bytes | None:
            return encode(found.status()) if (found := served_here()) is not None else None

        def explain_if_active(_: bytes) -> bytes | None:
            found = served_here()
            return encode(limited(node, found.explain())) if found is not None else None

        def operate(question: bytes) -> bytes | None:
            found = served_here(is_active=False)
            return found.operate(question) if found is not None else None

        def other(word: str) -> Callable[[bytes], bytes | None]:
            def answer(question: bytes) -> bytes | None:
                found = served_here(is_active=False)
                return found.answers()[word](question) if found is not None else None

            return answer

        await self._answer(node_subject(cluster, "status", node, place), status)
        await self._answer(node_subject(cluster, "status", node), status_if_active)
        await self._answer(node_subject(cluster, "explain", node), explain_if_active)
        await self._answer(admin_subject(cluster, node), operate)
        for word in served.answers():
            await self._answer(node_subject(cluster, word, node), other(word))

    async def _answer(self, subject: str, reply: Callable[[bytes], bytes | None]) -> None:
        requests = self._process.broker.requests
        assert requests is not None, "asked before"
        if subject not in self._answered:
            self._answered.add(subject)
            await requests.answer(subject, reply)

    def _look(self, _: bytes) -> bytes | None:
        """Called when somebody says that the layout has changed."""
        task = asyncio.get_running_loop().create_task(self._look_now())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return b""

    async def _look_now(self) -> None:
        try:
            await self._process.agreement.look()
        except SeriatimError as error:
            logger.debug("layout not looked at: reason=%s", error)  # it is at the next look

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
