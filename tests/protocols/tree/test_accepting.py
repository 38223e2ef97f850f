"""A log that was deleted on purpose: its home goes on with another one, and every holder is told of a gap."""

import pytest

from seriatim.model import BROKER, Event, Gap, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker
from seriatim.protocols.node import TookOver
from seriatim.protocols.tree import Sequencer, SequencerNode
from seriatim.protocols.tree.messages import AcceptLog, Answer, Inquire, Remove
from seriatim.protocols.with_broker import Append, Delivered, Discarded, Grown, Kept, Renew, Renewed, Stamped
from tests.protocols.tree.net import messages, options_for, single
from tests.protocols.tree.test_log_mode import home, stamped


def test_the_home_goes_on_behind_a_mark_which_is_lost_like_everything_before() -> None:
    sequencer = home()
    stamped(sequencer, "B", 2)
    stamped(sequencer, "A", 3)
    effects = sequencer.step("root", AcceptLog("A"), 5.0)
    assert (messages(effects, Stamped), effects.wake_at) == ([], 5.0)
    assert messages(sequencer.tick(5.0), Renew) == [Renew("A", 5)]
    effects = sequencer.step(BROKER, Renewed("A", 5), 5.0)
    assert messages(effects, Stamped) == [Stamped("A", 4, 4, {}, epoch=1)], "the mark has a stamp like any number"
    for number, state in ((3, "lost"), (4, "lost"), (5, "unissued")):
        (answer,) = messages(sequencer.step("s", Inquire("A", number), 6.0), Answer)
        assert (answer.number, answer.state) == (number, state)
    assert stamped(sequencer, "A", 6) == [Stamped("A", 5, 6, {}, epoch=1)]


def test_the_broker_is_asked_until_it_answers_also_after_a_restart() -> None:
    tree, options = SequencingTree.single("A"), options_for("log")
    node = SequencerNode(tree, "root", options)
    records = [*node.tick(0.0).persist, *node.step(BROKER, Grown("A", 3), 0.0).persist]
    records += node.step("root", AcceptLog("A"), 1.0).persist
    assert messages(node.tick(1.0), Renew) == messages(node.tick(1.0 + options.retry_ms), Renew) == [Renew("A", 5)]
    again = SequencerNode.take_over(tree, "root", options, [*records, TookOver(2)])
    assert messages(again.tick(100.0), Renew) == [Renew("A", 5)], "it is in the journal"
    assert again.explain()[-1] == "A goes on at 5 with another log: waits for the broker"
    again.step(BROKER, Renewed("A", 4), 101.0)
    assert messages(again.tick(200.0), Renew) == [Renew("A", 5)], "an answer to something else"
    again.step(BROKER, Renewed("A", 5), 201.0)
    assert messages(again.tick(300.0), Renew) == []


def test_what_the_other_log_holds_is_dropped_only_with_permission_which_may_come_later() -> None:
    tree, options = SequencingTree.single("A"), options_for("log")
    node = SequencerNode(tree, "root", options)
    records = [*node.tick(0.0).persist, *node.step(BROKER, Grown("A", 3), 0.0).persist]
    records += node.step("root", AcceptLog("A", drop=False), 1.0).persist
    assert messages(node.tick(1.0), Renew) == [Renew("A", 5, drop=False)]
    node = SequencerNode.take_over(tree, "root", options, [*records, TookOver(2)])
    assert messages(node.tick(100.0), Renew) == [Renew("A", 5, drop=False)], "it is in the journal"
    node.step("root", AcceptLog("A"), 101.0)
    assert messages(node.tick(101.0), Renew) == [Renew("A", 5)], "at once"
    node.step(BROKER, Renewed("A", 5), 102.0)
    assert not node.state.sequencer.undroppable and not node.state.sequencer.renewing


def test_a_broker_leaves_a_log_alone_that_holds_what_may_not_be_dropped() -> None:
    broker = Broker()
    broker.step("p", Append(Event("e", "A", "p")), 0.0)
    assert messages(broker.step("root", Renew("A", 5, drop=False), 1.0), Renewed) == []
    assert messages(broker.step("root", Renew("A", 5), 2.0), Renewed) == [Renewed("A", 5, 1)]
    assert messages(broker.step("root", Renew("A", 5, drop=False), 3.0), Renewed) == [Renewed("A", 5)], "a repeat"


def test_what_cannot_be_accepted_changes_nothing() -> None:
    sequencer = home()
    assert sequencer.why_not_accepted("A") == "nothing of it was numbered yet"
    stamped(sequencer, "A", 3)
    assert sequencer.why_not_accepted("A") is None
    assert sequencer.step("s", AcceptLog("A"), 1.0).persist == [], "only the node itself may say it"
    sequencer.step("root", AcceptLog("A"), 1.0)
    assert sequencer.why_not_accepted("A") == "it is being accepted already"
    assert messages(sequencer.step("root", AcceptLog("A"), 2.0), Stamped) == []
    ticket = Sequencer(SequencingTree.single("A"), "root", options_for("ticket"))
    assert "in ticket mode" in (ticket.why_not_accepted("A") or "")
    other = Sequencer(SequencingTree.star({"A": 1, "B": 2}, leaves=2), "n1", options_for("log"))
    assert other.why_not_accepted("B") == "its home is n2, not n1"


@pytest.mark.parametrize("has_seen_everything", [True, False])
def test_every_holder_is_told_of_a_gap_and_sees_what_comes_then(has_seen_everything: bool) -> None:
    net = single("log", on_lost="skip")
    net.change("s", add="AB")
    net.publish("p", "A", "a1", "a2")
    if not has_seen_everything:
        net.hold_back(Delivered, target="s")
    net.publish("p", "A", "a3")
    net.lose()
    net.step("root", "root", AcceptLog("A"))
    net.wait(20.0)
    net.publish("p", "A", "a5")
    net.publish("p", "B", "b1")
    net.wait(1_000.0)
    gaps = [each for each in net.told["s"] if isinstance(each, Gap)]
    assert [(each.topic, each.first) for each in gaps] == [("A", 4 if has_seen_everything else 3)]
    net.publish("p", "A", "a6")
    net.wait(1_000.0)
    seen = [each.event.id for each in net.told["s"] if isinstance(each, Notification)]
    assert seen[:2] == ["a1", "a2"] and {"b1", "a6"} <= set(seen)
    assert ("a3" in seen) == has_seen_everything
    assert net.node().explain() == []


def test_a_topic_is_not_removed_while_another_log_is_accepted_and_not_accepted_while_it_is_removed() -> None:
    sequencer = home()
    stamped(sequencer, "A", 3)
    sequencer.step("root", AcceptLog("A"), 5.0)
    assert "just being accepted" in str(sequencer.why_kept("A", is_forced=True))
    sequencer.step("root", Remove("A", True), 6.0)
    assert sequencer.state.removed == {}
    sequencer.step(BROKER, Renewed("A", 5), 7.0)
    sequencer.step(BROKER, Kept("A", 4), 8.0)
    sequencer.step("root", Remove("A", True), 9.0)
    for is_done in (False, True):
        assert sequencer.state.removed == {"A": is_done}
        assert "it was removed" in str(sequencer.why_not_accepted("A"))
        sequencer.step("root", AcceptLog("A"), 10.0)
        assert sequencer.state.renewing == {}
        sequencer.step(BROKER, Discarded("A", 4), 11.0)


def test_a_late_answer_about_a_topic_that_lives_elsewhere_changes_nothing() -> None:
    sequencer = home()
    sequencer.step(BROKER, Renewed("Z", 5), 1.0)
    assert "Z" not in sequencer.state.homes
