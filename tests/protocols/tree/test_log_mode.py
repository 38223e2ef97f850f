"""Log mode: the broker numbers, the home stamps ranges of a growing log, and repeats a stamp until it is kept."""

import pytest

from seriatim.model import BROKER, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.tree import Sequencer, Subscriber
from seriatim.protocols.tree.messages import Answer, Granted, Inquire, Joined, Routed, Update
from seriatim.protocols.with_broker import Changed, Delivered, Grown, Kept, Listen, Listening, Stamped, Trimmed, Watch
from tests.protocols.tree.net import Net, change, event, messages, options_for, single

AB = frozenset({"A", "B"})


def home() -> Sequencer:
    sequencer = Sequencer(SequencingTree.single("AB"), "root", options_for("log"))
    for subscriber in ("r", "s"):
        sequencer.step(subscriber, Update(1, AB), 0.0)
    sequencer.tick(0.0)
    for topic in "AB":
        sequencer.step(BROKER, Grown(topic, 0), 0.0)
    return sequencer


def stamped(sequencer: Sequencer, topic: str, last: int, now: float = 0.0) -> list[Stamped]:
    return messages(sequencer.step(BROKER, Grown(topic, last), now), Stamped)


# ── the home ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_tick_watches_the_logs_of_its_topics() -> None:
    tree = SequencingTree.star({"A": 1, "B": 2}, leaves=2)
    assert messages(Sequencer(tree, "n1", options_for("log")).tick(0.0), Watch) == [Watch(frozenset("A"))]
    assert messages(Sequencer(tree, "n1", options_for("ticket")).tick(0.0), Watch) == []


def test_a_log_that_grew_is_stamped_in_one_range() -> None:
    sequencer = home()
    assert stamped(sequencer, "B", 2) == [Stamped("B", 1, 2, {}, epoch=1)]
    assert stamped(sequencer, "A", 3) == [Stamped("A", 1, 3, {"B": 2}, epoch=1)]
    assert stamped(sequencer, "A", 3) == stamped(sequencer, "A", 2) == [], "old news"
    assert stamped(sequencer, "A", 4) == [Stamped("A", 4, 4, {}, epoch=1)]


def test_a_stamp_is_repeated_until_it_is_kept() -> None:
    sequencer = home()
    stamped(sequencer, "A", 2)
    again = (BROKER, Stamped("A", 1, 2, {}, epoch=1))
    assert sequencer.tick(9.0).send == []
    assert sequencer.tick(10.0).send == sequencer.tick(20.0).send == [again]
    assert sequencer.step(BROKER, Kept("A", 1), 25.0).wake_at is None
    assert sequencer.tick(30.0).send == []


def test_a_ticket_mode_home_ignores_growing_logs() -> None:
    sequencer = Sequencer(SequencingTree.single("A"), "root", options_for("ticket"))
    assert stamped(sequencer, "A", 1) == []


def test_an_inquiry_is_answered_from_issue_to_retention() -> None:
    sequencer = home()

    def state() -> str:
        (answer,) = messages(sequencer.step("s", Inquire("A", 1), 0.0), Answer)
        return answer.state

    assert state() == "unissued"
    stamped(sequencer, "A", 1)
    assert state() == "coming"
    sequencer.step(BROKER, Kept("A", 1), 0.0)
    assert state() == "published"
    sequencer.step(BROKER, Trimmed("A", 2), 0.0)
    assert state() == "lost"


def test_an_inquiry_changes_nothing_and_is_not_persisted() -> None:
    assert home().step("s", Inquire("A", 1), 0.0).persist == []


# ── the subscriber ────────────────────────────────────────────────────────────────────────────────────────────────


def holder() -> Subscriber:
    """Holds A and B, both from their beginning."""
    subscriber = Subscriber(SequencingTree.single("AB"), "s", options_for("log"))
    subscriber.step("application", change("AB"), 0.0)
    for topic in "AB":
        effects = subscriber.step("root", Joined(1, topic, 0, {}), 0.0)
        assert messages(effects, Listen) == [Listen(topic, 0, version=1)], "from the start on, once it is known"
    return subscriber


def notified(subscriber: Subscriber, *arrivals: Delivered | Stamped) -> list[str]:
    told = [each for arrival in arrivals for each in subscriber.step(BROKER, arrival, 0.0).notify]
    return [each.event.id for each in told if isinstance(each, Notification)]


def delivered(id: str, number: int, topic: str = "A") -> Delivered:
    return Delivered(topic, number, None, event(id, topic))


def test_an_event_waits_for_its_stamp_and_a_stamp_for_its_event() -> None:
    subscriber = holder()
    assert notified(subscriber, delivered("a1", 1)) == []
    assert notified(subscriber, Stamped("A", 1, 2, {})) == ["a1"]
    assert notified(subscriber, delivered("a2", 2)) == ["a2"]


def test_only_the_first_of_a_range_waits_for_its_entries_the_others_follow_it() -> None:
    subscriber = holder()
    assert notified(subscriber, Stamped("A", 1, 2, {"B": 1}), delivered("a2", 2), delivered("a1", 1)) == []
    assert notified(subscriber, Stamped("B", 1, 1, {}), delivered("b1", 1, "B")) == ["b1", "a1", "a2"]


def test_stamps_that_overtake_each_other_are_used_in_order() -> None:
    subscriber = holder()
    assert notified(subscriber, Stamped("A", 3, 3, {}), *(delivered(f"a{n}", n) for n in (1, 2, 3))) == []
    assert notified(subscriber, Stamped("A", 1, 2, {})) == ["a1", "a2", "a3"]


def test_repeated_stamps_and_events_are_dropped() -> None:
    subscriber = holder()
    once: list[Delivered | Stamped] = [Stamped("A", 1, 2, {}), delivered("a1", 1), delivered("a2", 2)]
    assert notified(subscriber, *once) == ["a1", "a2"]
    assert notified(subscriber, *once, *once) == []


def test_explain_names_a_missing_stamp() -> None:
    subscriber = holder()
    subscriber.step(BROKER, delivered("a1", 1), 5.0)
    (waiting,) = subscriber.explain()
    assert (waiting.event_id, waiting.home, waiting.since) == ("a1", "root", 5.0)
    assert waiting.why == "the stamp of A 1 has not arrived"


# ── together ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_publishers_need_not_know_of_sequencers() -> None:
    net = single("log")
    net.change("r", "AB")
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    net.publish("q", "B", "b1", "b2")
    net.publish("p", "A", "a2")
    assert net.notified("r") == net.notified("s") == ["a1", "b1", "b2", "a2"]
    assert net.all_sent(Granted) == []


def test_a_lost_stamp_or_confirmation_costs_time_and_nothing_else() -> None:
    for kind in (Stamped, Kept):
        net = single("log")
        net.change("s", "A")
        net.hold_back(kind, target=BROKER if kind is Stamped else "root")
        net.publish("p", "A", "x")
        net.lose()
        net.wait(50.0)
        assert net.notified("s") == ["x"]
        assert net.node().explain() == []


def test_a_subscriber_listens_until_the_broker_says_that_it_delivers() -> None:
    for kind in (Listen, Listening):
        net = single("log")
        net.hold_back(kind)
        net.change("s", "A")
        net.publish("p", "A", "x")
        net.lose()
        net.wait(20.0)
        assert net.notified("s") == ["x"], kind
        net.sent.clear()
        net.wait(100.0)
        assert net.all_sent(Listen) == []


def test_news_of_a_log_that_was_lost_is_asked_for_when_somebody_waits() -> None:
    net = single("log")
    net.change("s", "A")
    net.hold_back(Grown)
    net.publish("p", "A", "x")
    net.lose()
    assert net.notified("s") == []
    net.wait(150.0)
    assert net.notified("s") == ["x"]


def test_who_joins_late_reads_the_log_from_its_start() -> None:
    net = single("log")
    net.publish("p", "A", "x", "y")
    net.change("s", "A")
    net.publish("p", "A", "z")
    assert net.notified("s") == ["z"]


# ── a join waits for the length of the log ────────────────────────────────────────────────────────────────────────


def test_who_joins_a_topic_that_nobody_listed_is_not_given_its_history() -> None:
    net = single("log", topics="")
    net.publish("p", "A", "x", "y")
    net.change("s", "A")
    assert net.all_told("s", Changed) == [Changed(1, frozenset("A"), {"A": 2})]
    net.publish("p", "A", "z")
    assert net.notified("s") == ["z"]


@pytest.mark.parametrize("kind", [Watch, Grown])
@pytest.mark.parametrize("topics", ["", "ABCD"])
def test_a_join_waits_for_the_length_of_the_log_and_asks_again(kind: type, topics: str) -> None:
    net = single("log", topics=topics)
    net.publish("p", "A", "x")
    if topics:  # its length is known already, unless the process is another one
        net.on_the_way.clear()
        net.crash("root")
    net.hold_back(kind)
    if topics:
        net.take_over("root")
    net.change("s", "A")
    assert net.node().explain() == ["s joins A: waits for the broker to tell the length of A"]
    net.lose()
    net.wait(9.0)
    assert net.all_told("s", Changed) == []
    net.wait(1.0)
    assert [each.start for each in net.all_told("s", Changed)] == [{"A": 1}]
    assert net.node().explain() == []
    net.sent.clear()
    net.wait(100.0)
    assert net.all_sent(Watch) == [], "an answered question is not repeated"


def test_what_was_appended_while_the_node_was_away_is_not_news_to_a_new_subscriber() -> None:
    net = single("log")
    net.publish("p", "A", "x")
    net.crash("root")
    net.publish("p", "A", "y")
    net.take_over("root")
    net.change("s", "A")
    net.publish("p", "A", "z")
    assert net.notified("s") == ["z"]


def test_a_join_that_waits_survives_the_node() -> None:
    net = single("log", topics="")
    net.publish("p", "A", "x")
    net.hold_back(Grown)
    net.change("s", "A")
    net.lose()
    net.crash("root")
    net.take_over("root")
    net.wait(20.0)
    assert [each.start for each in net.all_told("s", Changed)] == [{"A": 1}]


def test_a_join_waits_for_its_other_topics_and_for_the_length_in_any_order() -> None:
    tree = SequencingTree({"n1": None, "n2": "n1"}, {"B": "n1"}, default_home="n2")
    net = Net(tree, options_for("log"))
    net.change("s", "B")
    net.hold_back(Grown, target="n2")
    net.change("s", "A")
    assert net.node("n2").explain() == ["s joins A: waits for the broker to tell the length of A"]
    net.release()
    assert net.node("n2").explain() == []
    net.change("s", remove="A")
    net.hold_back(Routed, target="n2")
    net.change("s", "A")
    assert net.node("n2").explain()[0] == "s joins A: waits for B to be announced", "the length is known by now"
    net.release()
    net.change("s", "C")
    assert [each.version for each in net.all_told("s", Changed)] == [1, 2, 3, 4, 5]


def test_while_answers_come_in_the_question_is_put_off_but_not_for_ever() -> None:
    topics = [f"t{index:02}" for index in range(40)]
    sequencer = Sequencer(SequencingTree.single(topics), "root", options_for("log"))
    assert messages(sequencer.tick(0.0), Watch) == [Watch(frozenset(topics))]
    asked = []
    for now, topic in zip(range(5, 205, 5), topics, strict=True):
        sequencer.step(BROKER, Grown(topic, 0), float(now))
        asked += [(now, len(watch.topics)) for watch in messages(sequencer.tick(float(now)), Watch)]
    assert asked == [(80, 24), (160, 8)]
    assert sequencer.tick(1000.0).send == []
