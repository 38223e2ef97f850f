"""A node's reports about its topics and its durable subscribers, and requests to remove one of them.

Questions and answers are JSON, on the subjects of server/status.py: `seriatim topics` and `seriatim durables` ask them.
Lists come in pages, so that an answer fits into a message of the broker.
"""

from msgspec import Struct

from seriatim.model import Address, Number, Topic

PAGE = 500


class Page(Struct, frozen=True, omit_defaults=True):
    """A question: what follows this name, in the order of names?"""

    after: str = ""


class TopicRow(Struct, frozen=True, kw_only=True):
    """One topic, as its home knows it."""

    topic: Topic
    issued: Number = 0  # the last number that was given out
    settled: Number = 0  # the numbers up to here have their stamps on the broker, or are in their slots
    subscribers: int = 0
    durables: int = 0
    is_listed: bool = False  # the cluster's file or a plan names it
    is_leaving: bool = False  # it is being removed


class TopicsPage(Struct, frozen=True, kw_only=True):
    """Topics homed at one node. `more`: others follow the last one."""

    topics: list[TopicRow]
    more: bool = False


class DurableRow(Struct, frozen=True, kw_only=True):
    """One durable subscriber, as one node knows it. Times are as old as the process of the node at most."""

    name: Address
    topics: list[Topic]  # those it holds, wherever they are homed
    homed: list[Topic]  # those that are homed at this node
    heard_s: float  # so long ago it last asked the node something, or the node was started
    node_s: float  # so long ago the node was started
    is_connected: bool = False
    address: str = ""  # where its connection comes from


class DurablesPage(Struct, frozen=True, kw_only=True):
    """Durable subscribers known to one node. `more`: others follow the last one."""

    durables: list[DurableRow]
    more: bool = False


class GiveUp(Struct, frozen=True):
    """A request: add or remove this topic, or forget this durable subscriber. `force`: also if it is in use."""

    name: str
    force: bool = False


class GivenUp(Struct, frozen=True, omit_defaults=True):
    """The answer. `problem`: why nothing was changed; empty: it is under way, or done."""

    problem: str = ""
