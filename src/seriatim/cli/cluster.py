"""Ask a running cluster about itself over the broker, so that no address of a node is needed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Requests, required
from seriatim.brokers.naming import ordered_topic
from seriatim.brokers.urls import kind_of, shown
from seriatim.cli.common import check_outlives, opened
from seriatim.client.brokered.discovery import ask_for_description
from seriatim.model import ConnectionFailed, Node, Topic
from seriatim.server.description import ClusterDescription
from seriatim.server.status import NodeExplanation, NodeStatus, node_subject

LEAST_S = 0.1  # to ask a last question

_Answer = TypeVar("_Answer", bound=Struct)


class Place(NamedTuple):
    """One configured address of a node: place 0 is the active process, the others are standbys."""

    node: Node
    place: int
    address: str


class Cluster:
    """A cluster found on a broker."""

    def __init__(self, broker: Broker, description: ClusterDescription, timeout_s: float) -> None:
        self.description = description
        self.places = [
            Place(node, place, address)
            for node in description.tree.parents
            for place, address in enumerate(description.addresses.get(node) or [""])
        ]
        self.broker = broker
        self._timeout_s = timeout_s

    async def status(self) -> list[tuple[Place, NodeStatus | None]]:
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
        """How to ask on the broker."""
        return self.broker.requests

    async def ask_node(self, node: Node, what: str, question: Struct, type_: type[_Answer]) -> _Answer:
        """What the process that runs a node answers to such a question. ConnectionFailed: nobody does."""
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
