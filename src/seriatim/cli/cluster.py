"""Ask a running cluster about itself over the broker, so that no address of a node is needed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Requests, required
from seriatim.brokers.naming import ordered_topic
from seriatim.brokers.urls import kind_of, shown
from seriatim.cli.common import check_outlives, is_direct, opened, run_until_interrupted
from seriatim.client.brokered.discovery import ask_for_description
from seriatim.model import ConnectionFailed, InputError, Node, RequestRefused, Topic
from seriatim.server.description import ClusterDescription
from seriatim.server.moving import admin_subject
from seriatim.server.status import NodeExplanation, NodeStatus, node_subject

LEAST_S = 0.1  # to ask a last question
ROOT_S = 2.0  # one answer of the root; then it is asked again

_Answer = TypeVar("_Answer", bound=Struct)
_Result = TypeVar("_Result")


class RootAnswer(Protocol):
    """An answer of the root to an operator."""

    @property
    def refused(self) -> str:
        """Why the question was refused; empty if it was not."""


_RootAnswer = TypeVar("_RootAnswer", bound=RootAnswer)


class NodeAddress(NamedTuple):
    """One configured address of a node: place 0 is the active process, the others are standbys."""

    node: Node
    place: int
    address: str


class Cluster:
    """A cluster found on a broker."""

    def __init__(self, broker: Broker, description: ClusterDescription, timeout_s: float) -> None:
        self.description = description
        self.places = [
            NodeAddress(node, place, address)
            for node in description.tree.parents
            for place, address in enumerate(description.addresses.get(node) or [""])
        ]
        self.broker = broker
        self._timeout_s = timeout_s

    async def status(self) -> list[tuple[NodeAddress, NodeStatus | None]]:
        """The status of each place, in the order of the configuration. None: nobody answers there."""
        subjects = [node_subject(self.description.cluster, "status", place.node, place.place) for place in self.places]
        return list(zip(self.places, await self._ask(subjects, NodeStatus), strict=True))

    async def explain(self) -> list[tuple[Node, NodeExplanation | None]]:
        """What each node waits for. None: no process runs it."""
        nodes = list(self.description.tree.parents)
        subjects = [node_subject(self.description.cluster, "explain", node) for node in nodes]
        return list(zip(nodes, await self._ask(subjects, NodeExplanation), strict=True))

    def ordered_topic(self, name: Topic) -> Topic:
        """The topic, or the bucket, that events published as `name` are ordered as."""
        return ordered_topic(name, self.description.buckets)

    @property
    def requests(self) -> Requests | None:
        """The broker's request and reply, if it has that."""
        return self.broker.requests

    async def ask_node(self, node: Node, what: str, question: Struct, type_: type[_Answer]) -> _Answer:
        """Ask the process that runs a node. ConnectionFailed: no process answers."""
        subject, data = node_subject(self.description.cluster, what, node), msgspec.json.encode(question)
        (answer,) = await self._ask([subject], type_, data)
        if answer is None:
            raise ConnectionFailed(f"node {node} does not answer; is it running, and of this version?")
        return answer

    async def _ask(self, subjects: list[str], type_: type[_Answer], data: bytes = b"") -> list[_Answer | None]:
        fix = "ask the admin port of each process"
        requests = required(self.broker.requests, "url", "has no request and reply", fix)
        answers = await asyncio.gather(*(requests.request(each, data, self._timeout_s) for each in subjects))
        return [msgspec.json.decode(answer, type=type_) if answer is not None else None for answer in answers]


@asynccontextmanager
async def find_cluster(url: str, name: str, timeout_s: float) -> AsyncIterator[Cluster]:
    """Connect to the broker and ask who sequences there. All that is asked shares one time."""
    check_outlives(url)
    options = kind_of(url).cluster_options(name, None, {})
    deadline_s = time.monotonic() + timeout_s
    async with opened(url, timeout_s, **options) as broker:
        answer = await ask_for_description(broker, name, max(LEAST_S, deadline_s - time.monotonic()))
        if answer is None:
            fix = "start one with `seriatim serve` or `seriatim up`"
            raise ConnectionFailed(f"no sequencer answers for cluster {name!r} on {shown(url)}; {fix}")
        yield Cluster(broker, answer, max(LEAST_S, deadline_s - time.monotonic()))


def ask_cluster(url: str, name: str, timeout_s: float, question: Callable[[Cluster], Awaitable[_Result]]) -> _Result:
    """Find the cluster, ask it one thing, and return the answer."""

    async def ask() -> _Result:
        async with find_cluster(url, name, timeout_s) as found:
            return await question(found)

    return run_until_interrupted(ask)


class RootQuestions:
    """Asks the root of one cluster for what only the root can change. `fix`: what to do if it does not answer."""

    def __init__(self, cluster: Cluster, fix: str, pause_s: float) -> None:
        self._root = cluster.description.tree.root
        self._requests = required(cluster.requests, "url", "has no request and reply", "use a broker that has them")
        self._subject = admin_subject(cluster.description.cluster, self._root)
        self._fix = fix
        self._pause_s = pause_s

    async def ask(self, question: Struct, decode: Callable[[bytes], _RootAnswer], deadline_s: float) -> _RootAnswer:
        """Ask until the root answers: it may just be starting, or its standby may be taking over.

        RequestRefused: it refused the question. ConnectionFailed: it did not answer in time.
        """
        body = msgspec.json.encode(question)
        while True:
            left_s = deadline_s - time.monotonic()
            data = await self._requests.request(self._subject, body, max(LEAST_S, min(ROOT_S, left_s)))
            if data is not None:
                answer = decode(data)
                if answer.refused:
                    raise RequestRefused(f"the root {self._root} refused: {answer.refused}")
                return answer
            if time.monotonic() > deadline_s:
                raise ConnectionFailed(f"the root {self._root} does not answer on {self._subject}; {self._fix}")
            await asyncio.sleep(self._pause_s)


def check_keeps(url: str, *, if_direct: str, if_lossy: str) -> None:
    """InputError: the URL is not that of a broker that outlives this command and loses nothing, and why it must be."""
    if is_direct(url):
        raise InputError("--url", if_direct, "use the URL of a broker")
    check_outlives(url, "--url")
    if kind_of(url).lossy:
        raise InputError("--url", f"{shown(url)} {if_lossy}", "use nats:// with JetStream")
