"""Stages: stamps are told as far as they are, and reactions wait until they are finished.

A and C live on n2, B on n3, below n1; the monitor m holds everything, so every stamp climbs to n1.
"""

import pytest

from seriatim.model import APPLICATION, BROKER, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.tree import Publisher, Subscriber
from seriatim.protocols.tree.messages import Done, Finished, Joined, Pass, Routed, Tell
from seriatim.protocols.tree.receiving import STAGES_AHEAD_MAX
from seriatim.protocols.with_broker import (
    Append,
    Attend,
    Delivered,
    EventStored,
    Follow,
    Publish,
    Staged,
    Stamped,
    StampedTo,
    Unfollow,
    Unlisten,
    Withdraw,
)
from tests.protocols.tree.net import Net, event, messages, options_for

TREE = SequencingTree({"n1": None, "n2": "n1", "n3": "n1"}, {"A": "n2", "C": "n2", "B": "n3", "D": "n1"})


def watched(**options: bool) -> Net:
    """A monitor, and nothing under way."""
    net = Net(TREE, options_for("log", stages=True, order="global", **options))
    net.change("m", "ABCD")
    return net


def cut(net: Net) -> None:
    """No pass reaches the root any more."""
    net.hold_back(Pass, target="n1")


def early(net: Net, subscriber: str) -> list[tuple[str, bool]]:
    return [(each.event.id, each.early) for each in net.all_told(subscriber, Notification)]


def attended(net: Net, subscriber: str) -> list[Attend]:
    return [message for source, _, message in net.sent if source == subscriber and isinstance(message, Attend)]


# ── the nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_subscriber_of_one_node_does_not_wait_for_the_root() -> None:
    net = watched()
    net.change("s", "AC")
    cut(net)
    net.publish("p", "A", "a1")
    net.publish("p", "C", "c1")
    assert early(net, "s") == [("a1", True), ("c1", True)]
    assert net.notified("m") == []
    assert net.all_told("s", StampedTo) == []
    net.release()
    assert net.notified("m") == ["a1", "c1"]
    assert net.all_told("s", StampedTo) == [StampedTo("A", 1), StampedTo("C", 1)]
    assert net.subscriber("s").state.early == {}


def test_stages_are_told_only_where_somebody_waits() -> None:
    net = watched()
    net.publish("p", "A", "a1")
    assert {(each.topic, each.node, each.final) for each in net.all_sent(Staged)} == {("A", "n1", True)}
    net.publish("p", "D", "d1")  # finished at its home, the root
    assert {each.topic for each in net.all_sent(Staged)} == {"A"}
    net.change("m", remove="BD")  # all that is held lives on n2
    net.publish("p", "A", "a2")  # the closing rule: it still climbs
    net.sent.clear()
    net.publish("p", "A", "a3")
    assert net.all_sent(Staged) == []
    assert net.notified("m") == ["a1", "d1", "a2", "a3"]


def test_a_range_that_somebody_below_waits_for_is_told_at_its_home_too() -> None:
    tree = SequencingTree({"n1": None, "n2": "n1", "n3": "n2", "n4": "n2"}, {"A": "n3", "B": "n4", "C": "n1"})
    net = Net(tree, options_for("log", stages=True, order="global"))
    net.change("m", "ABC")
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    assert [(each.node, each.final) for each in net.all_sent(Staged)] == [
        ("n3", False),
        ("n2", False),
        ("n2", False),  # handed on to s
        ("n1", True),
        ("n1", True),
    ]


def test_on_one_node_and_in_ticket_mode_there_are_none() -> None:
    for tree, mode in ((SequencingTree.single("ABCD"), "log"), (TREE, "ticket")):
        net = Net(tree, options_for(mode, stages=True, order="global"))
        net.change("m", "ABCD")
        net.change("s", "A")
        net.publish("p", "A", "a1")
        assert early(net, "s") == early(net, "m") == [("a1", False)]
        assert not net.all_sent(Staged)
        assert not net.all_sent(Attend)
        assert all(not each.stages for each in net.all_sent(Pass))


def test_a_stage_leaves_when_the_journal_has_the_pass() -> None:
    net = watched()
    net.change("s", "A")
    cut(net)
    net.publish("p", "A", "a1")
    for record in net.journals["n2"]:
        if getattr(record.message, "topic", "") == "A" and getattr(record.message, "last", 0) == 1:
            break
    else:
        pytest.fail("what was told is not in the journal")
    net.crash("n2")
    net.lose()
    net.take_over("n2")
    net.wait(50.0)
    assert net.notified("m") == ["a1"]
    assert early(net, "s") == [("a1", True)]


# ── the subscriber ────────────────────────────────────────────────────────────────────────────────────────────────


def test_attendance_follows_what_is_held() -> None:
    net = watched()
    net.change("s", "A")
    net.change("s", "B")
    net.change("s", "D", "B")
    net.change("s", remove="D")
    net.change("s", "C")
    assert attended(net, "s") == [
        Attend("A", "n2"),
        Attend("A", "n1"),
        Attend("B", "n1"),
        Attend("A", "n2"),
        Attend("C", "n2"),
    ]


def test_the_topic_being_joined_counts_as_held() -> None:
    net = watched()
    net.change("s", "A")
    net.change("t", "A")  # for whom stages go on at n2
    net.hold_back(Joined, target="s")
    net.change("s", "B")
    net.step(BROKER, "s", Delivered("A", 1, None, event("a1")))
    net.step(BROKER, "s", Staged("A", 1, 1, {}, "n2"))
    assert net.notified("s") == [], "B meets A above n2"
    net.step(BROKER, "s", Staged("A", 1, 1, {}, "n1"))
    assert net.notified("s") == ["a1"]


def test_a_stage_taken_before_a_change_is_enough_after_it() -> None:
    net = watched()
    net.change("s", "A")
    net.step(BROKER, "s", Staged("A", 1, 1, {}, "n2"))
    net.hold_back(Joined, Tell, Routed)
    net.change("s", "B")
    net.step(BROKER, "s", Delivered("A", 1, None, event("a1")))
    assert early(net, "s") == [("a1", True)]


def test_repeats_and_what_comes_late_change_nothing() -> None:
    net = watched()
    net.change("s", "A")
    for number in (1, 2, 3):
        net.step(BROKER, "s", Delivered("A", number, None, event(f"a{number}")))
    for number in (2, 2, 1, 1, 2):
        net.step(BROKER, "s", Staged("A", number, number, {"B": 9}, "n2"))
    net.step(BROKER, "s", Stamped("A", 3, 3, {}))
    net.step(BROKER, "s", Stamped("A", 1, 1, {"B": 9}))
    net.step(BROKER, "s", Staged("A", 3, 3, {}, "n2"))
    assert early(net, "s") == [("a1", True), ("a2", True), ("a3", False)]


def test_a_stage_from_above_the_level_is_enough_and_one_from_elsewhere_is_not() -> None:
    net = watched()
    net.change("s", "A")
    net.step(BROKER, "s", Delivered("A", 1, None, event("a1")))
    net.step(BROKER, "s", Staged("A", 1, 1, {}, "n3"))
    net.step(BROKER, "s", Staged("A", 1, 1, {}, "nowhere"))
    net.step("p", "s", Staged("A", 1, 1, {}, "n2"))
    assert net.notified("s") == []
    net.step(BROKER, "s", Staged("A", 1, 1, {}, "n1", final=True))
    assert early(net, "s") == [("a1", False)], "it climbs no higher"


def test_stages_that_are_far_ahead_are_not_kept() -> None:
    net = watched()
    net.change("s", "A")
    for number in range(2, STAGES_AHEAD_MAX + 100):
        net.step(BROKER, "s", Staged("A", number, number, {}, "n2"))
    assert len(net.subscriber("s").state.holdings["A"].stamps) == STAGES_AHEAD_MAX


def test_a_durable_subscriber_remembers_what_was_early() -> None:
    net = watched(durable=True)
    net.change("s", "AC")
    cut(net)
    net.publish("p", "A", "a1")
    assert Done("A", 1, early=True) in net.journals["s"]
    resumed = Subscriber.resume(net.tree, "s", net.options, net.journals["s"])
    assert resumed.state.early == {"A": 1}
    compact = net.subscriber("s").compact()
    assert compact is not None
    assert Subscriber.resume(net.tree, "s", net.options, compact).state.early == {"A": 1}
    net.release()
    net.publish("p", "A", "a2")
    assert early(net, "s") == [("a1", True), ("a2", True)]
    assert net.subscriber("s").state.early == {}
    net.change("s", remove="A")
    assert [message for source, _, message in net.sent if source == "s"][-3:].count(Unlisten("A")) == 1


# ── reactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def reacting() -> Publisher:
    publisher = Publisher(TREE, "p", options_for("log"))
    assert publisher.step(APPLICATION, Publish((event("b1", "B"),), {"A": 3, "C": 1}), 0.0).send == []
    assert publisher.step(APPLICATION, Publish((event("c1", "C"),)), 0.0).send == [], "it may be a reaction too"
    return publisher


def appended(effects: object) -> list[str]:
    return [each.event.id for each in messages(effects, Append)]  # type: ignore[arg-type]


def test_a_reaction_waits_until_its_causes_are_final() -> None:
    publisher = reacting()
    assert "wait until the stamp of A 3, C 1 is finished" in publisher.explain()[0]
    assert appended(publisher.step(APPLICATION, StampedTo("A", 2), 0.0)) == []
    assert appended(publisher.step(APPLICATION, StampedTo("A", 3), 0.0)) == []
    assert "the stamp of C 1 is" in publisher.why_held("B")
    assert appended(publisher.step(BROKER, StampedTo("C", 5), 0.0)) == ["b1", "c1"]
    assert not publisher.state.reacting.queue and publisher.why_held("B") == ""


def test_what_nobody_tells_is_asked_of_the_broker() -> None:
    publisher = reacting()
    asked = publisher.tick(10.0)
    assert asked.send == [(BROKER, Follow("A")), (BROKER, Follow("C"))]
    publisher.step(BROKER, StampedTo("A", 3), 10.0)
    done = publisher.step(BROKER, StampedTo("C", 1), 10.0)
    assert appended(done) == ["b1", "c1"]
    assert messages(done, Unfollow) == [Unfollow("A"), Unfollow("C")]


def test_what_is_withdrawn_holds_nobody_up() -> None:
    publisher = reacting()
    publisher.step(APPLICATION, Withdraw("B", "b1"), 0.0)
    publisher.step(APPLICATION, StampedTo("A", 3), 0.0)
    assert appended(publisher.step(APPLICATION, StampedTo("C", 1), 0.0)) == ["c1"]


def test_an_effect_does_not_overtake_its_cause() -> None:
    net = watched()
    net.change("s", "A")
    cut(net)
    net.publish("p", "A", "cause")
    net.publisher("q")
    net.step(APPLICATION, "q", Publish((event("effect", "B", "q"),), dict(net.subscriber("s").state.early)))
    net.holds_back = lambda source, target, message: source == "n2" and target == "n1"
    net.run()
    assert net.notified("m") == []
    net.hold_back(Finished)
    net.release()
    net.wait(30.0)
    assert net.notified("m") == ["cause", "effect"]
    assert [each.event.id for each in net.all_told("q", EventStored)] == ["effect"]
