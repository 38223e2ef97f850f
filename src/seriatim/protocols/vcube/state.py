"""All state of a peer, as plain data: what the explorer freezes and thaws."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from seriatim.model import Topic
from seriatim.protocols.queue import Queue
from seriatim.protocols.vcube.cube import Id, Life
from seriatim.protocols.vcube.messages import Answer, Content, Counts, Entry, Pub, Publish, Subscribe, Unsubscribe

NOBODY: Life = -1

# out: not held. announcing: all are told that we come. opening: they know; where do we start? in: held, we relay.
# leaving: no longer held, and its holders are told.
Part: TypeAlias = Literal["out", "announcing", "opening", "in", "leaving"]


class Flow(Struct, array_like=True):
    """The publications of one source on one topic, as they come in."""

    delivered: int = 0  # notified, or before our start, or never to come
    stable: int = 0  # everybody has received these
    pubs: dict[int, Pub] = field(default_factory=dict)  # not notified yet, or not stable
    resolved: bool = False  # the source is dead, and it is known what there still is of it:
    awaited: set[int] = field(default_factory=set)  # others have these
    entrusted: set[int] = field(default_factory=set)  # the source is dead, and a member spreads these
    settled: set[int] = field(default_factory=set)  # … and everybody has these
    forgotten: int = 0  # up to this number nothing is left in `pubs`


class Group(Struct, array_like=True):
    """One topic at one peer."""

    part: Part = "out"
    entry: Entry | None = None  # what we last said about ourselves
    skipped: list[Id] = field(default_factory=list)  # were presumed dead when we announced that we come
    view: dict[Id, Entry] = field(default_factory=dict)  # what others last said, as far as we heard
    flows: dict[Life, Flow] = field(default_factory=dict)
    past: Counts = field(default_factory=dict)  # how far we were when we left
    barrier: Counts = field(default_factory=dict)  # what our next publication comes after
    unacknowledged: list[int] = field(default_factory=list)  # our own publications
    waiting: dict[Life, list[Life]] = field(default_factory=dict)  # sources whose next publication waits for this one
    early: dict[Life, dict[int, Pub]] = field(default_factory=dict)  # came before we knew our start
    queue: Queue[Subscribe | Unsubscribe | Publish] = field(default_factory=Queue)
    census: int | None = None  # the task that takes one
    overtaken: bool = False  # somebody died while it was taken: its result is not used
    rejoining: bool = False  # we join because we were born again, not because the application asked
    counted: Answer | None = None  # a census to join by is complete, but something that it names is still on its way
    remains: dict[Life, dict[int, Pub]] = field(default_factory=dict)  # what we had when we left


class Task(Struct, array_like=True):
    """Something that goes down a tree: from us, or through us."""

    content: Content
    parent: Life = NOBODY
    parent_hop: int = 0
    hops: set[int] = field(default_factory=set)  # not acknowledged yet
    reached: set[Life] = field(default_factory=set)  # took it, but hand nothing on
    answer: Answer = field(default_factory=Answer)


class Hop(Struct, array_like=True):
    """One branch of a task."""

    task: int
    target: Life
    cluster: int
    is_leaf: bool


class Submission(Struct, array_like=True):
    """A publication of a dead source, entrusted to a member that sends it to everybody."""

    target: Life
    topic: Topic
    source: Life
    number: int


class PeerState(Struct, array_like=True):
    """One peer."""

    life: Life
    announced: bool = False  # this life is in the journal and known to the application
    forgot: bool = False  # an earlier process died, and this one knows nothing of what it did
    replaced: bool = False  # another process is this peer, in a later life
    may_go_on: bool = False  # … and when that is over, it is this one again
    rejoining: tuple[Topic, ...] = ()
    statuses: dict[Id, int] = field(default_factory=dict)  # of those that ever died
    told: dict[int, Life] = field(default_factory=dict)  # by cluster: the neighbour that knows all we know of the dead
    groups: dict[Topic, Group] = field(default_factory=dict)
    count: int = 0  # gives tasks and hops their numbers
    tasks: dict[int, Task] = field(default_factory=dict)
    hops: dict[int, Hop] = field(default_factory=dict)
    submissions: dict[int, Submission] = field(default_factory=dict)
    custody: dict[int, list[tuple[Life, int]]] = field(default_factory=dict)  # by task: who submitted it, and the hop
    heard: dict[Id, float] = field(default_factory=dict)
    beat_due: float | None = None
