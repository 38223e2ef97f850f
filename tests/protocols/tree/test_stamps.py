"""Stamps on trees of several nodes: where entries are collected, when they end, and how numbers travel."""

from typing import Any

import pytest

from seriatim.lab.explore.tree.cast import topic_of
from seriatim.model import Entries, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.tree.messages import Finished, Granted, Pass, Routed
from tests.protocols.tree.net import Net, options_for

CHAIN = SequencingTree.chain({"A": 3, "B": 2, "C": 1, "D": 3}, length=3)
STAR = SequencingTree.star({"A": 1, "B": 2, "C": 0, "D": 1}, leaves=2)
TREES = {"chain": CHAIN, "star": STAR, "single": SequencingTree.single("ABCD")}


def net_of(tree: SequencingTree, *subscriptions: str, **options: Any) -> Net:
    """Subscribers s0, s1, … with these topics, one letter each."""
    net = Net(tree, options_for(**options))
    for index, topics in enumerate(subscriptions):
        net.change(f"s{index}", topics)
    net.sent.clear()
    return net


def stamp(net: Net, topic: Topic) -> Entries:
    """Publish one event; its entries."""
    net.publish("p", topic, f"{topic}-{len(net.sent)}")
    return net.all_sent(Granted)[-1].entries


def hops(net: Net, topic: Topic) -> list[tuple[str, str]]:
    return [(source, to) for source, to, sent in net.sent if isinstance(sent, Pass) and sent.topic == topic]


@pytest.mark.parametrize("shape", TREES)
def test_a_stamp_names_what_passed_before_wherever_the_topics_meet(shape: str) -> None:
    net = net_of(TREES[shape], "ABC", "ABC")
    assert stamp(net, "A") == {}
    assert stamp(net, "B") == {"A": 1}
    assert stamp(net, "B") == {}
    assert stamp(net, "C") == {"A": 1, "B": 2}
    assert stamp(net, "A") == {"B": 2, "C": 1}


@pytest.mark.parametrize("shape", TREES)
def test_full_stamps_name_the_whole_group_every_time(shape: str) -> None:
    net = net_of(TREES[shape], "ABC", "ABC", full_stamps=True)
    for topic in "AB":
        stamp(net, topic)
    assert [stamp(net, "C") for _ in range(2)] == [{"A": 1, "B": 1}] * 2


def test_numbers_climb_through_every_node_also_where_nothing_is_collected() -> None:
    net = net_of(CHAIN, "AC", "AC")
    stamp(net, "A")
    assert hops(net, "A") == [("n3", "n2"), ("n2", "n1")]


def test_numbers_climb_no_higher_than_the_highest_meeting_point() -> None:
    net = net_of(CHAIN, "AB", "AB")
    stamp(net, "A")
    assert hops(net, "A") == [("n3", "n2")]
    assert hops(net_of(CHAIN, "AD", "AD"), "A") == [], "A and D live on the same node"


def test_a_topic_without_coupling_does_not_leave_its_home() -> None:
    net = net_of(CHAIN, "A", "BC", "D")
    assert stamp(net, "A") == {}
    assert hops(net, "A") == []


def test_one_holder_couples_in_global_order_two_in_pairwise() -> None:
    for order, entries in (("global", {"A": 1}), ("pairwise", {})):
        net = net_of(STAR, "AB", order=order)
        stamp(net, "A")
        assert stamp(net, "B") == entries


def test_a_finished_stamp_returns_to_the_home() -> None:
    net = net_of(CHAIN, "AC", "AC")
    stamp(net, "A")
    down = [
        (source, to) for source, to, sent in net.sent if isinstance(sent, Routed) and isinstance(sent.body, Finished)
    ]
    assert down == [("n1", "n2"), ("n2", "n3")]
    assert [source for source, _, sent in net.sent if isinstance(sent, Granted)] == ["n3"]


# ── the group changes ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", TREES)
def test_a_newly_coupled_topic_gives_its_whole_count(shape: str) -> None:
    net = net_of(TREES[shape], "A", "B")
    stamp(net, "A")
    stamp(net, "A")
    assert stamp(net, "B") == {}
    net.change("late", "AB")
    assert stamp(net, "B") == {"A": 2}


@pytest.mark.parametrize("shape", TREES)
def test_closing_rule_the_next_event_still_carries_the_entry_then_no_more(shape: str) -> None:
    net = net_of(TREES[shape], "AB", "A", "B")
    stamp(net, "A")
    net.change("s0", remove="A")
    assert stamp(net, "B") == {"A": 1}
    stamp(net, "A")
    assert stamp(net, "B") == {}


@pytest.mark.parametrize("shape", TREES)
def test_closing_and_coupling_again_in_between_is_as_if_nothing_had_happened(shape: str) -> None:
    net = net_of(TREES[shape], "AB", "A", "B")
    stamp(net, "A")
    assert stamp(net, "B") == {"A": 1}
    net.change("s0", remove="A")
    net.change("s0", "A")
    stamp(net, "A")
    assert stamp(net, "B") == {"A": 2}
    stamp(net, "A")
    assert stamp(net, "B") == {"A": 3}


@pytest.mark.parametrize("shape", TREES)
def test_coupling_that_ends_before_any_event_is_still_carried_once(shape: str) -> None:
    net = net_of(TREES[shape], "A", "B")
    stamp(net, "A")
    net.change("brief", "AB")
    net.change("brief", remove="A")
    assert stamp(net, "B") == {"A": 1}
    stamp(net, "A")
    assert stamp(net, "B") == {}


@pytest.mark.parametrize("shape", TREES)
def test_a_left_topic_is_in_the_next_event_of_the_new_one_once(shape: str) -> None:
    net = net_of(TREES[shape], "A")
    stamp(net, "A")
    net.change("s0", "B", remove="A")
    assert stamp(net, "B") == {"A": 1}
    stamp(net, "A")
    assert stamp(net, "B") == {}


@pytest.mark.parametrize("shape", TREES)
def test_a_topic_left_long_ago_is_announced_to_every_later_topic(shape: str) -> None:
    net = net_of(TREES[shape], "A")
    stamp(net, "A")
    net.change("s0", remove="A")
    net.change("s0", "C")
    net.change("s0", "B")
    assert stamp(net, "B").get("A") == 1


def test_who_moves_keeps_the_order_that_others_see() -> None:
    """s1 never holds A and B at once, so nothing couples them; still s0 must not see b before a."""
    net = net_of(STAR, "AB", "A")
    net.holds_back = lambda source, to, message: source == "broker" and to == "s0" and topic_of(message) == "A"
    net.publish("p", "A", "a")
    net.change("s1", "B", remove="A")
    net.publish("p", "B", "b")
    assert net.notified("s1") == ["a", "b"]
    assert net.notified("s0") == []
    net.release()
    assert net.notified("s0") == ["a", "b"]
