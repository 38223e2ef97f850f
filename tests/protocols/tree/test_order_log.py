"""The order log: every number once, at the place where it passed the root; kept once, through restarts."""

import pytest

from seriatim.model import APPLICATION, BROKER, InputError, Notification, RemoteError
from seriatim.order import OrderedRange, SequencingTree
from seriatim.protocols.broker import ORDER_READ_MAX, Broker, KeepOrder
from seriatim.protocols.link import Frame
from seriatim.protocols.tree import SequencerNode, SequencerNodeState, TreeOptions
from seriatim.protocols.tree.messages import Announce, BeginOrder, Cut, OrderFound, Pass, Summarise, Summary
from seriatim.protocols.tree.node import LAG
from seriatim.protocols.tree.ordering import ORDERED_AT_ONCE
from seriatim.protocols.with_broker import Grown, Ordered, OrderKept, OrderRead, ReadOrder, Stamped
from tests.protocols.tree.net import Net, messages

GLOBAL = TreeOptions(order="global", retry_ms=100.0)
SINGLE = SequencingTree.single("AB")
CHAIN = SequencingTree.chain({"A": 1, "B": 2, "C": 2}, 2)


def kept(net: Net) -> list[tuple[str, int, int]]:
    return [(each.topic, each.first, each.last) for each in net.broker.state.order.ranges]


def positions(net: Net, name: str) -> list[tuple[str, int | None]]:
    told = [each for each in net.told[name] if isinstance(each, Notification)]
    return [(each.event.id, each.position) for each in told]


@pytest.mark.parametrize("mode", ["log", "ticket"])
def test_a_subscriber_is_told_positions_that_are_those_of_the_log(mode: str) -> None:
    net = Net(SINGLE, TreeOptions(order="global", mode=mode))  # type: ignore[arg-type]
    net.change("s", "AB")
    net.publish("p", "A", "a1", "a2")
    net.publish("q", "B", "b1")
    net.wait(20)
    assert kept(net) == [("A", 1, 2), ("B", 1, 1)], "at once, since nothing was written before"
    net.publish("p", "A", "a3")
    net.wait(20)
    assert kept(net) == [("A", 1, 2), ("B", 1, 1)], "together with what comes within order_ms"
    net.wait(50)
    assert positions(net, "s") == [("a1", 1), ("a2", 2), ("b1", 3), ("a3", 4)]
    assert kept(net) == [("A", 1, 2), ("B", 1, 1), ("A", 3, 3)]
    assert net.node().inner.order_kept == net.node().inner.order_position == 4


def test_without_global_order_nobody_keeps_the_order() -> None:
    for options in (TreeOptions(order="pairwise"), TreeOptions(order="global", order_log=False)):
        net = Net(SINGLE, options)
        net.change("s", "AB")
        net.publish("p", "A", "a1")
        net.wait(1_000)
        assert kept(net) == []
        assert positions(net, "s") == [("a1", None)]


def test_a_position_is_known_where_the_stamp_was_finished_by_the_root() -> None:
    net = Net(CHAIN, GLOBAL)
    net.change("s", "AB")
    net.change("t", "C")
    net.publish("p", "C", "c1")
    net.publish("p", "B", "b1")
    assert positions(net, "t") == [("c1", None)]
    assert positions(net, "s") == [("b1", 2)]
    net.wait(100)
    assert kept(net) == [("C", 1, 1), ("B", 1, 1)]


def test_what_nobody_needs_above_comes_in_a_summary_that_is_journaled() -> None:
    net = Net(CHAIN, GLOBAL)
    net.publish("p", "C", "c1")  # not watched: nobody holds it, but its home is listed
    assert net.node("n1").inner.order_position == 0
    net.wait(100)
    assert kept(net) == [("C", 1, 1)]
    assert [each for each in net.journals["n2"] if isinstance(getattr(each, "message", None), Summarise)]


def test_a_parent_that_does_not_answer_is_told_less_often() -> None:
    node = SequencerNode(CHAIN, "n2", GLOBAL)
    node.tick(0.0)
    link, now = node.state.links["n1"], 0.0
    for number in range(1, 1_001):
        now += 60.0
        node.step(BROKER, Grown("BC"[number % 2], (number + 1) // 2), now)
        node.tick(now)
    assert len(link.unacknowledged) == LAG
    assert node.tick(now).wake_at is not None
    for number in range(1_001, 1_002 + ORDERED_AT_ONCE):
        node.step(BROKER, Grown("BC"[number % 2], (number + 1) // 2), now)
    node.tick(now + 1_000.0)
    assert len(link.unacknowledged) == LAG + 1, "a long one, and the rest waits"
    node.step(BROKER, Grown("B", 5_000), now + 1_000.0)
    node.step("n1", Frame(1, 0, link.sent), now + 1_000.0)
    (summary,) = messages(node.tick(now + 2_000.0), Summary)
    assert summary.order is not None
    assert summary.order[-1].last == 5_000


def test_a_write_is_repeated_until_it_is_answered() -> None:
    net = Net(SINGLE, GLOBAL)
    net.hold_back(OrderKept)
    net.publish("p", "A", "a1")
    net.wait(20)
    net.publish("p", "B", "b1")
    assert net.node().explain()[-1] == "order log 1..2: A 1..1 and 1 more ranges: waits for the broker"
    net.lose()
    net.wait(300)
    assert kept(net) == [("A", 1, 1), ("B", 1, 1)]
    assert net.node().explain() == []


def test_a_backlog_goes_in_parts() -> None:
    net = Net(SINGLE, GLOBAL)
    node = net.node()
    for number in range(1, ORDERED_AT_ONCE + 1):
        node.step(BROKER, Grown("A", number), 0.0)
        node.step(BROKER, Grown("B", number), 0.0)
    (first,) = messages(node.tick(10.0), Ordered)
    assert len(first.ranges) == ORDERED_AT_ONCE
    assert node.step(BROKER, OrderKept(ORDERED_AT_ONCE), 11.0).wake_at == 11.0, "there is more than one part"
    (second,) = messages(node.tick(11.0), Ordered)
    assert second.after == ORDERED_AT_ONCE
    assert len(second.ranges) == ORDERED_AT_ONCE


def test_a_node_that_restarts_goes_on_behind_what_is_kept() -> None:
    net = Net(SINGLE, GLOBAL)
    net.publish("p", "A", "a1")
    net.wait(20)
    net.publish("p", "A", "a2")
    net.publish("p", "B", "b1")
    node = SequencerNode.take_over(SINGLE, "root", GLOBAL, net.journals["root"])
    (ordered,) = messages(node.tick(net.now), Ordered)
    assert ordered == Ordered(1, (OrderedRange("A", 2, 2), OrderedRange("B", 1, 1)), 2)


# ── migration, and a lost journal ─────────────────────────────────────────────────────────────────────────────────


def test_an_older_node_begins_when_it_starts() -> None:
    node = SequencerNode(SINGLE, "root", GLOBAL, SequencerNodeState())
    node.step(BROKER, Grown("A", 7), 0.0)
    assert node.inner.order_position == 0
    started = node.tick(1.0)
    assert [each.message for each in started.persist if hasattr(each, "message")] == [BeginOrder()]
    (stamped,) = messages(node.step(BROKER, Grown("A", 9), 2.0), Stamped)
    assert (stamped.first, stamped.position) == (8, 1)
    (ordered,) = messages(node.tick(20.0), Ordered)
    assert ordered.ranges == (OrderedRange("A", 8, 9),)
    assert messages(node.tick(20.0), BeginOrder) == []


def test_a_pass_of_a_child_that_has_not_begun_has_no_place() -> None:
    root = SequencerNode(CHAIN, "n1", GLOBAL).inner
    root.step("n2", Pass("B", 1, 3, "n1", {}), 0.0)
    assert root.order_position == 0
    root.step("n2", Pass("B", 4, 5, "n1", {}, order=(OrderedRange("C", 2, 2),)), 0.0)
    root.step("n2", Summary((OrderedRange("C", 3, 4),)), 0.0)
    assert root.state.order.ranges == [OrderedRange("C", 2, 2), OrderedRange("B", 4, 5), OrderedRange("C", 3, 4)]


def test_a_node_between_hands_on_a_pass_that_has_no_place() -> None:
    """Its own order is of other topics, or empty: nothing of it may be taken for the numbers of the pass."""
    tree = SequencingTree.chain({"A": 1, "B": 2, "C": 3}, 3)
    for own in ([], [OrderedRange("B", 1, 9)]):
        between = SequencerNode(tree, "n2", GLOBAL).inner
        for each in own:
            between.step(BROKER, Grown(each.topic, each.last), 0.0)
        (climbing,) = messages(between.step("n3", Pass("C", 4, 5, "n1", {}), 0.0), Pass)
        assert climbing.order is None
        assert between.state.order.ranges == own
        (following,) = messages(between.step("n3", Pass("C", 6, 6, "n1", {}, order=()), 0.0), Pass)
        assert following.order == tuple(own)


def test_only_a_neighbour_tells_the_order_and_only_the_broker_keeps_it() -> None:
    root = SequencerNode(CHAIN, "n1", GLOBAL).inner
    for source, message in [
        ("p", Summary((OrderedRange("C", 1, 1),))),
        ("n2", OrderKept(1)),
        ("p", OrderFound(9, {"A": 9})),
        ("n2", Summarise()),
    ]:
        assert not root.step(source, message, 0.0).persist
    assert root.order_position == 0


def test_a_node_that_lost_its_journal_goes_on_behind_the_log() -> None:
    node = SequencerNode(SINGLE, "root", GLOBAL)
    found = node.step("root", OrderFound(30, {"A": 20, "B": 10, "elsewhere": 3}), 0.0)
    assert len(found.persist) == 1
    assert messages(node.step(BROKER, Grown("A", 20), 0.0), Stamped) == []
    (stamped,) = messages(node.step(BROKER, Grown("A", 22), 0.0), Stamped)
    assert (stamped.first, stamped.last, stamped.position) == (21, 22, 31)
    (ordered,) = messages(node.tick(20.0), Ordered)
    assert (ordered.after, ordered.ranges) == (30, (OrderedRange("A", 21, 22),))


def test_a_log_that_is_not_ahead_changes_nothing() -> None:
    node = SequencerNode(SINGLE, "root", GLOBAL)
    node.step(BROKER, Grown("A", 2), 0.0)
    node.step("root", OrderFound(2, {"A": 20}), 0.0)
    assert node.inner.state.homes["A"].issued == 2


# ── the reference broker ──────────────────────────────────────────────────────────────────────────────────────────


def answers(broker: Broker, message: Ordered | ReadOrder, source: str = "s") -> list[tuple[str, object]]:
    return list(broker.step(source, message, 0.0).send)


def test_the_broker_keeps_what_follows_and_answers_the_rest() -> None:
    broker = Broker()
    two = (OrderedRange("A", 1, 2),)
    assert answers(broker, Ordered(0, two), "root") == [("root", OrderKept(2))]
    assert answers(broker, Ordered(0, two), "root") == [("root", OrderKept(2))]
    assert answers(broker, Ordered(1, two), "root") == [("root", OrderKept(2))]
    assert answers(broker, Ordered(2, ()), "root") == [("root", OrderKept(2))]
    assert broker.state.order.ranges == [OrderedRange("A", 1, 2)]


def test_a_log_that_was_cut_goes_on_behind_what_it_had_and_says_what_is_lost() -> None:
    broker = Broker()
    answers(broker, Ordered(0, (OrderedRange("A", 1, 4), OrderedRange("B", 1, 4)), 1), "root")
    with pytest.raises(RemoteError, match="only the broker's operator"):
        broker.step("s", KeepOrder(1, 3), 0.0)
    assert broker.step(APPLICATION, KeepOrder(2, 6), 0.0).send == [("root", OrderKept(6))]
    kept = (OrderedRange("A", 2, 4), OrderedRange("B", 1, 2))
    assert answers(broker, ReadOrder(0)) == [("s", OrderRead(1, kept))]
    assert answers(broker, ReadOrder(6)) == []
    lost, kept_now = ("root", OrderKept(6)), ("root", OrderKept(8))
    assert answers(broker, Ordered(8, ()), "root") == [lost, ("s", OrderRead(8, ())), kept_now]
    answers(broker, Ordered(8, (OrderedRange("A", 5, 6),)), "root")
    assert answers(broker, ReadOrder(0)) == [("s", OrderRead(1, kept))], "up to what is lost"
    for after in (6, 7, 8):
        assert answers(broker, ReadOrder(after)) == [("s", OrderRead(8, (OrderedRange("A", 5, 6),)))]
    assert answers(broker, ReadOrder(9)) == [("s", OrderRead(9, (OrderedRange("A", 6, 6),)))]
    assert broker.step(APPLICATION, KeepOrder(0, 0), 0.0).send == [("root", OrderKept(0))]
    assert broker.state.order.first == 1


def test_a_root_goes_on_behind_what_a_deleted_log_had() -> None:
    """Also if nothing new was published: whoever waits for the log learns that it is gone."""
    node = SequencerNode(SINGLE, "root", GLOBAL)
    node.tick(0.0)
    node.step(BROKER, Grown("A", 3), 0.0)
    node.step(BROKER, OrderKept(3), 1.0)
    node.step(BROKER, OrderKept(0), 5.0)
    assert "has lost positions 1..3" in node.explain()[-1]
    assert messages(node.tick(5.0), Ordered) == [Ordered(3, (), 1)]
    node.step(BROKER, OrderKept(3), 6.0)
    assert not [line for line in node.explain() if "order log" in line]
    assert (node.inner.order_position, node.inner.order_kept, node.inner.order_lost) == (3, 3, 3)
    node.step(BROKER, Grown("A", 4), 100.0)
    (ordered,) = messages(node.tick(200.0), Ordered)
    assert (ordered.after, ordered.ranges) == (3, (OrderedRange("A", 4, 4),))


def test_a_root_that_starts_asks_whether_the_log_is_still_there() -> None:
    net = Net(SINGLE, GLOBAL)
    net.publish("p", "A", "a1")
    net.wait(30)
    net.hold_back(OrderKept)
    net.step(APPLICATION, BROKER, KeepOrder(0, 0))
    net.run()
    net.lose()
    net.take_over("root")
    net.wait(30)
    assert net.broker.state.order.end == 1
    assert net.broker.state.order.first == 2
    assert net.node().inner.order_lost == 1


def test_a_reader_is_answered_when_something_follows() -> None:
    broker = Broker()
    assert answers(broker, ReadOrder(0, 5)) == []
    ranges = (OrderedRange("A", 1, 3), OrderedRange("B", 4, 4))
    assert answers(broker, Ordered(0, ranges), "root") == [("s", OrderRead(0, ranges, 5)), ("root", OrderKept(4))]
    assert answers(broker, ReadOrder(2)) == [("s", OrderRead(2, (OrderedRange("A", 3, 3), OrderedRange("B", 4, 4))))]
    assert answers(broker, ReadOrder(4)) == []
    assert answers(broker, Ordered(4, (OrderedRange("A", 4, 4),)), "root")[0] == (
        "s",
        OrderRead(4, (OrderedRange("A", 4, 4),)),
    )


def test_an_answer_is_bounded() -> None:
    broker = Broker()
    ranges = tuple(OrderedRange("AB"[n % 2], n // 2 + 1, n // 2 + 1) for n in range(ORDER_READ_MAX + 5))
    answers(broker, Ordered(0, ranges), "root")
    ((_, read),) = answers(broker, ReadOrder(3))
    assert isinstance(read, OrderRead)
    assert read.ranges == ranges[3 : 3 + ORDER_READ_MAX]


def test_bad_options() -> None:
    with pytest.raises(InputError, match=r"order_ms: -1\.0 is negative"):
        TreeOptions(order_ms=-1.0)


def test_announcements_carry_the_order_too() -> None:
    net = Net(CHAIN, GLOBAL)
    net.change("s", "A")
    net.publish("p", "C", "c1")
    net.publish("p", "B", "b1")
    net.change("s", "B")
    net.publish("p", "C", "c2")
    net.change("t", "B")
    net.change("t", "A")
    assert [each.order for each in net.all_sent(Cut)] == [(OrderedRange("C", 1, 1), OrderedRange("B", 1, 1))]
    assert [each.order for each in net.all_sent(Announce)] == [(OrderedRange("C", 2, 2),)]
