"""What a ticket and a notification cost, and how the cost grows.

Every figure is processor time of one core and stands beside a *peer* measured in the same run: a bare counter that
builds the same answer, or a bare loop that builds the same notification. The rows of a table are measured by turns, in
short slices of which the fastest counts: other work on the same machine only ever makes a slice slower, and it hits all
rows alike.

Run: python bench/tree.py
"""

from collections.abc import Callable
from random import Random
from time import process_time
from typing import Any, NamedTuple, TypeVar

from seriatim.model import APPLICATION, BROKER, Event, Notification, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.node import Stepped
from seriatim.protocols.tree import SequencerNode, Subscriber, TreeOptions
from seriatim.protocols.tree.messages import Granted, Joined, Settled, Ticket, Update
from seriatim.protocols.with_broker import Change, Delivered, Grown, Kept, Listening

ITEMS = 60_000
SLICE = 2_000
TICKET_MODE = TreeOptions(mode="ticket")
LOG_MODE = TreeOptions(mode="log")
COUPLED = [f"coupled {index}" for index in range(21)]  # each has the 20 others in its group

Item = TypeVar("Item")
Work = Callable[[list[Item]], None]


class Row(NamedTuple):
    """One line of a table: the work on each item in turn. Each item stands for this many events."""

    name: str
    work: Work[Any]
    items: list[Any]
    events: int = 1


def costs_of(rows: list[Row]) -> list[float]:
    """Microseconds per item of each row, in its fastest slice."""
    fastest = [float("inf")] * len(rows)
    for start in range(0, ITEMS, SLICE):
        for index, row in enumerate(rows):
            piece = row.items[start : start + SLICE]
            began = process_time()
            row.work(piece)
            fastest[index] = min(fastest[index], (process_time() - began) / len(piece))
    return [seconds * 1e6 for seconds in fastest]


def table(title: str, peer: Row, rows: list[Row]) -> None:
    """Rows beside the peer; the last column is relative to the first row."""
    print(f"\n{title:<58} {'each':>11} {'vs peer':>8} {'vs first':>9} {'events/s':>12}")
    peer_cost, *costs = costs_of([peer, *rows])
    for row, cost in zip([peer, *rows], [peer_cost, *costs], strict=True):
        ratios = f"{cost / peer_cost:>7.1f}x {cost / costs[0]:>8.2f}x"
        print(f"{row.name:<58} {cost:>8.2f} us {ratios} {row.events * 1e6 / cost:>12,.0f}")


# ── tickets ───────────────────────────────────────────────────────────────────────────────────────────────────────


def node_with(groups: list[list[Topic]], options: TreeOptions = TICKET_MODE) -> SequencerNode:
    """One node; two subscribers hold each group."""
    node = SequencerNode(SequencingTree.single([topic for group in groups for topic in group]), "root", options)
    node.tick(0.0)
    for index, group in enumerate(groups):
        for twin in "ab":
            node.step(f"s{index}{twin}", Update(1, frozenset(group)), 0.0)
    return node


def tickets(topics: list[Topic], size: int = 1) -> list[Ticket]:
    random = Random(1)
    return [Ticket(request, random.choice(topics), size) for request in range(1, ITEMS + 1)]


def ask(node: SequencerNode) -> Work[Ticket]:
    """Each ticket is granted and settled, as it is when nothing fails: two inputs of the node."""

    def work(asked: list[Ticket]) -> None:
        for ticket in asked:
            _, granted = node.step("p", ticket, 0.0).send[0]
            assert isinstance(granted, Granted), granted
            node.step("p", Settled(ticket.topic, granted.first), 0.0)

    return work


def count_only(topics: list[Topic]) -> Work[Ticket]:
    """Peer: one counter per topic, the same answers and the same records; no order across topics and no memory."""
    issued = dict.fromkeys(topics, 0)

    def work(asked: list[Ticket]) -> None:
        for ticket in asked:
            effects = Effects()
            effects.persist.append(Stepped("p", ticket, 0.0))
            first = issued[ticket.topic] + 1
            last = issued[ticket.topic] = issued[ticket.topic] + ticket.count
            effects.send.append(("p", Granted(ticket.request, ticket.topic, first, last, {}, 1)))

    return work


def growth(topics: list[Topic], size: int) -> list[tuple[Grown, Kept]]:
    """Log mode: logs grow by `size` each time, and the broker keeps each stamp."""
    random = Random(1)
    lengths = dict.fromkeys(topics, 0)
    news = []
    for _ in range(ITEMS):
        topic = random.choice(topics)
        first, lengths[topic] = lengths[topic] + 1, lengths[topic] + size
        news.append((Grown(topic, lengths[topic]), Kept(topic, first)))
    return news


def watch(node: SequencerNode) -> Work[tuple[Grown, Kept]]:
    def work(news: list[tuple[Grown, Kept]]) -> None:
        for grown, kept in news:
            node.step(BROKER, grown, 0.0)
            node.step(BROKER, kept, 0.0)

    return work


def counter() -> Row:
    return Row("peer: a bare counter that builds the same answer", count_only(COUPLED), tickets(COUPLED))


def throughput() -> None:
    alone = ["alone"]
    rows = [
        Row("single tickets", ask(node_with([COUPLED])), tickets(COUPLED)),
        Row("tickets for ranges of 100", ask(node_with([COUPLED])), tickets(COUPLED, 100), 100),
        Row("single tickets, a topic without a group", ask(node_with([alone])), tickets(alone)),
        Row("log mode, the log grows by 1", watch(node_with([COUPLED], LOG_MODE)), growth(COUPLED, 1)),
        Row("log mode, the log grows by 100", watch(node_with([COUPLED], LOG_MODE)), growth(COUPLED, 100), 100),
    ]
    table("Throughput of one node, 20 coupled topics each", counter(), rows)


def unrelated() -> None:
    groups = [[f"other {group} {index}" for index in range(5)] for group in range(2_000)]
    for title, cases in (
        ("Beside unrelated topics", ((20, 0), (200, 0), (2_000, 0))),
        ("Beside unrelated topics that publish as much", ((20, 20), (200, 200), (2_000, 2_000), (2_000, 20))),
    ):
        rows = []
        for present, publishing in cases:
            name = f"{5 * present:>6,} topics, {2 * present:>5,} subscribers; {5 * publishing:>6,} topics publish"
            rows.append(Row(name, ask(beside(groups[:present])), mixed(groups[:publishing])))
        table(title, counter(), rows)


def beside(others: list[list[Topic]]) -> SequencerNode:
    """A node that also has these groups of topics, each of which has an event."""
    node = node_with([COUPLED, *others])
    ask(node)([Ticket(1, topic, 1) for group in others for topic in group])
    return node


def mixed(publishing: list[list[Topic]]) -> list[Ticket]:
    """Tickets for the coupled topics. If others publish too, every second ticket is for one of those."""
    ours = tickets(COUPLED)
    if not publishing:
        return ours
    theirs = tickets([topic for group in publishing for topic in group])
    theirs = [Ticket(ticket.request + 1, ticket.topic, 1) for ticket in theirs]
    return [ticket for pair in zip(ours, theirs, strict=True) for ticket in pair][:ITEMS]


def group_sizes() -> None:
    rising = [f"rising {index}" for index in range(4)]
    rows = []
    for size in (20, 200, 2_000):
        # The others live on another node and meet ours here, so that only our own groups are kept here.
        homes = dict.fromkeys(rising, "root") | {f"other {index}": "leaf" for index in range(size - 3)}
        node = SequencerNode(SequencingTree({"root": None, "leaf": "root"}, homes), "root", TICKET_MODE)
        node.tick(0.0)
        for subscriber in ("a", "b"):
            node.step(subscriber, Update(1, frozenset(homes)), 0.0)
        rows.append(Row(f"{size:>6,} topics in the group", ask(node), tickets(rising)))
    table("In a large group of which four topics rise", counter(), rows)


# ── notifications ─────────────────────────────────────────────────────────────────────────────────────────────────


def holder(topics: list[Topic]) -> Subscriber:
    subscriber = Subscriber(SequencingTree.single(topics), "s", TICKET_MODE)
    subscriber.step(APPLICATION, Change(frozenset(topics)), 0.0)
    for topic in topics:
        subscriber.step(BROKER, Listening(topic), 0.0)
        subscriber.step("root", Joined(1, topic, 0, {}), 0.0)
    return subscriber


def pairs() -> list[Delivered]:
    """Events of A and B by turns, each after the other's last; of every two the later one arrives first."""
    arrivals = []
    for number in range(1, ITEMS // 2 + 1):
        a, b = Event(f"a{number}", "A", "p"), Event(f"b{number}", "B", "p")
        arrivals += [Delivered("B", number, {"A": number}, b), Delivered("A", number, {"B": number - 1}, a)]
    return arrivals


def deliver(subscriber: Subscriber) -> Work[Delivered]:
    def work(arrivals: list[Delivered]) -> None:
        notified = 0
        for arrival in arrivals:
            notified += len(subscriber.step(BROKER, arrival, 0.0).notify)
        assert notified == len(arrivals)

    return work


def notify_only(arrivals: list[Delivered]) -> None:
    """Peer: the same notifications in the order of arrival."""
    done = {}
    for arrival in arrivals:
        assert arrival.event is not None and arrival.entries is not None
        effects = Effects()
        done[arrival.topic] = arrival.number
        effects.notify.append(Notification(arrival.event, arrival.number, arrival.entries))


def notifications() -> None:
    arrivals = pairs()
    peer = Row("peer: a bare loop that builds the same notification", notify_only, arrivals)
    rows = []
    for held in (100, 1_000, 10_000):
        subscriber = holder(["A", "B", "full"])
        for number in range(2, held + 2):  # they wait for number 1, which never comes
            subscriber.step(BROKER, Delivered("full", number, {}, None), 0.0)
        rows.append(Row(f"{held:>6,} other events held", deliver(subscriber), arrivals))
    for topics in (10, 100, 1_000):
        others = [f"other {index}" for index in range(topics - 2)]
        rows.append(Row(f"{topics:>6,} topics held", deliver(holder(["A", "B", *others])), arrivals))
    table("Notifications, half of them held for a moment", peer, rows)


if __name__ == "__main__":
    print(f"Processor time per operation, the fastest of {ITEMS // SLICE} slices of {SLICE:,}.")
    throughput()
    unrelated()
    group_sizes()
    notifications()
