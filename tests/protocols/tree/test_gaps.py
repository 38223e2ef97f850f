"""Numbers that do not come: asking the home, taking its answer, and bounded waiting on unreliable brokers."""

from typing import Any

from seriatim.model import APPLICATION, BROKER, Entries, Gap, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker, Trim
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Answer, Granted, Inquire, Joined, Locate, Subscribe
from seriatim.protocols.with_broker import Change, Changed, Delivered, Listen, Listening, Trimmed
from tests.protocols.tree.net import event, messages, options_for, single

TREE = SequencingTree.single("AB")


def holder(**options: Any) -> Subscriber:
    """Holds A and B from their beginning, in ticket mode; patience 50 ms."""
    subscriber = Subscriber(TREE, "s", options_for(**options))
    subscriber.step(APPLICATION, Change(frozenset("AB")), 0.0)
    for topic in "AB":
        subscriber.step(BROKER, Listening(topic, version=1), 0.0)
        subscriber.step("root", Joined(1, topic, 0, {}), 0.0)
    return subscriber


def told(effects: Effects) -> list[Notification | Gap]:
    return [each for each in effects.notify if isinstance(each, Notification | Gap)]


def waits(effects: Effects) -> list[tuple[str, int, str]]:
    return [(each.topic, each.number, each.state) for each in effects.notify if isinstance(each, Answer)]


def give(
    subscriber: Subscriber, topic: str, number: int, entries: Entries | None = None, now: float = 0.0
) -> list[Notification | Gap]:
    delivered = Delivered(topic, number, entries or {}, event(f"{topic}{number}", topic))
    return told(subscriber.step(BROKER, delivered, now))


def names(told: list[Notification | Gap]) -> list[str]:
    """a1 for an event, a1! for one out of order, a1-2 for a gap."""
    return [
        f"{each.topic}{each.first}-{each.last}" if isinstance(each, Gap) else each.event.id + "!" * each.out_of_order
        for each in told
    ]


def answer(subscriber: Subscriber, state: Any, number: int = 1, entries: Entries | None = None) -> Effects:
    return subscriber.step("root", Answer("A", number, state, entries or {}, epoch=1), 200.0)


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_missing_nothing_asked() -> None:
    subscriber = holder()
    give(subscriber, "A", 1)
    assert subscriber.step(BROKER, Listening("A", version=1), 0.0).wake_at is None


def test_a_number_that_does_not_come_is_asked_for_at_its_home_once_patience_is_over() -> None:
    subscriber = holder()
    give(subscriber, "A", 2)
    give(subscriber, "B", 1, {"A": 2})
    assert subscriber.tick(50.0).send == [], "now it is known to be missing"
    assert subscriber.tick(100.0).send == [("root", Inquire("A", 1, held=2))]
    assert subscriber.tick(149.0).send == []
    assert subscriber.tick(150.0).send == [("root", Inquire("A", 1, held=2))], "and again, while it does not come"


def test_a_number_that_only_a_stamp_names_is_asked_for_too() -> None:
    subscriber = holder()
    give(subscriber, "B", 1, {"A": 3})
    subscriber.tick(50.0)
    assert messages(subscriber.tick(100.0), Inquire) == [Inquire("A", 1, held=1)]


def test_the_home_of_what_is_held_back_is_told_for_what() -> None:
    """So that it can say what its subscribers wait for. Its answer changes nothing."""
    tree = SequencingTree({"root": None, "eu": "root", "us": "root"}, {"A": "eu", "B": "us", "C": "us"})
    subscriber = Subscriber(tree, "s", options_for())
    subscriber.step(APPLICATION, Change(frozenset("ABC")), 0.0)
    for topic in "ABC":
        subscriber.step(BROKER, Listening(topic, version=1), 0.0)
        subscriber.step(tree.home(topic), Joined(1, topic, 0, {}), 0.0)
    give(subscriber, "B", 1, {"A": 1})
    give(subscriber, "B", 2)
    give(subscriber, "C", 1, {"A": 1})
    subscriber.tick(50.0)
    assert subscriber.tick(100.0).send == [
        ("eu", Inquire("A", 1, held=2)),
        ("us", Inquire("B", 1, held=2, waits_for=("A", 1))),
        ("root", Locate(0)),  # the home may have left the tree
    ]
    for state in ("published", "coming", "void", "lost"):
        effects = subscriber.step("us", Answer("B", 1, state, {}, epoch=1), 110.0)
        assert (effects.send, effects.notify) == ([], [])
    assert names(give(subscriber, "A", 1, now=120.0)) == ["A1", "B1", "C1", "B2"]


def test_what_is_coming_is_waited_for() -> None:
    subscriber = holder()
    give(subscriber, "A", 2)
    effects = answer(subscriber, "coming")
    assert effects.send == [] and effects.notify == []


def test_a_number_that_was_never_given_out_is_told() -> None:
    """In ticket mode a stamp can name such a number only if it is forged: waiting will not help."""
    subscriber = holder()
    give(subscriber, "A", 2)
    effects = answer(subscriber, "unissued")
    assert effects.send == []
    assert waits(effects) == [("A", 1, "unissued")]


def test_a_void_is_taken_in_place_of_its_number_with_its_entries() -> None:
    subscriber = holder()
    give(subscriber, "A", 2)
    assert answer(subscriber, "void", entries={"B": 1}).notify == []
    assert names(give(subscriber, "B", 1)) == ["B1", "A2"]


def test_what_is_on_the_broker_is_listened_for_again() -> None:
    subscriber = holder()
    give(subscriber, "A", 2)
    assert answer(subscriber, "published").send == [(BROKER, Listen("A", 0, version=1, is_kept=True))]


def test_an_answer_about_something_that_is_done_changes_nothing() -> None:
    subscriber = holder()
    give(subscriber, "A", 1)
    effects = answer(subscriber, "void")
    assert effects.send == [] and effects.notify == []
    assert names(give(subscriber, "A", 2)) == ["A2"]


def test_an_answer_of_an_earlier_epoch_is_refused() -> None:
    subscriber = holder()
    give(subscriber, "A", 2)
    subscriber.step("root", Answer("A", 1, "coming", {}, epoch=3), 0.0)
    assert answer(subscriber, "void").notify == []


def test_a_delivery_that_was_lost_is_replayed() -> None:
    net = single()
    net.change("s", "A")
    net.hold_back(Delivered)
    net.publish("p", "A", "a1")
    net.lose()
    net.publish("p", "A", "a2")
    assert net.notified("s") == []
    net.wait(200.0)
    assert net.notified("s") == ["a1", "a2"]


def test_a_void_that_was_lost_is_made_good_by_the_answer() -> None:
    net = single()
    net.change("s", "A")
    net.hold_back(Granted, Delivered)
    net.publish("p", "A", "a1")
    net.crash("p")
    net.wait(150.0)
    net.lose()
    net.publish("q", "A", "a2")
    net.wait(200.0)
    assert net.notified("s") == ["a2"]


# ── lost for good ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_lost_is_waited_for_if_the_application_wants_it_so() -> None:
    subscriber = holder(on_lost="wait")
    give(subscriber, "A", 2)
    effects = answer(subscriber, "lost")
    assert effects.send == []
    assert waits(effects) == [("A", 1, "lost")]
    assert subscriber.explain()[0].waits_for == ("A", 1)


def test_what_is_lost_is_skipped_by_joining_again() -> None:
    subscriber = holder(on_lost="skip")
    give(subscriber, "A", 2)
    assert messages(answer(subscriber, "lost"), Listen) == [Listen("A", version=2)]
    asked = subscriber.step(BROKER, Listening("A", version=2), 200.0)
    assert messages(asked, Subscribe) == [Subscribe(2, "A", frozenset("AB"))]
    started = subscriber.step("root", Joined(2, "A", 5, {"B": 1}, epoch=1), 200.0)
    changed, gap = started.notify
    assert changed == Changed(2, frozenset("AB"), {"A": 5})
    assert gap == Gap("A", 1, 5, "the topic began anew")


def test_retention_that_passes_a_waiting_subscriber_makes_it_join_again() -> None:
    net = single("log", on_lost="skip")
    net.change("s", "A")
    net.hold_back(Delivered)
    net.publish("p", "A", "a1", "a2")
    net.step(APPLICATION, BROKER, Trim("A", 3))
    net.lose()
    net.run()
    net.publish("p", "A", "a3")
    assert net.notified("s") == ["a3"]
    assert net.all_told("s", Changed)[-1].start == {"A": 2}


def test_retention_of_what_is_done_changes_nothing() -> None:
    subscriber = holder(on_lost="skip")
    give(subscriber, "A", 1)
    assert subscriber.step(BROKER, Trimmed("A", 2), 0.0).send == []


def test_an_event_whose_stamp_the_broker_has_dropped_is_lost_though_its_home_calls_it_published() -> None:
    def waiting(**options: Any) -> Subscriber:
        subscriber = holder(mode="log", **options)
        subscriber.step(BROKER, Delivered("A", 1, None, event("a1", "A")), 0.0)
        assert subscriber.step(BROKER, Trimmed("A", 2), 0.0).send == [], "its stamp may be on its way"
        subscriber.tick(50.0)
        assert messages(subscriber.tick(100.0), Inquire) == [Inquire("A", 1, held=1)]
        assert messages(answer(subscriber, "published"), Listen)[0].is_kept
        return subscriber

    skipped = waiting(on_lost="skip").step(BROKER, Trimmed("A", 2), 200.0)
    assert [each.topic for each in messages(skipped, Subscribe)] == ["A"], "it begins anew"
    waited = waiting(on_lost="wait").step(BROKER, Trimmed("A", 2), 200.0)
    assert not messages(waited, Subscribe)
    assert waits(waited) == [("A", 1, "lost")]


# ── unreliable brokers (paper 000 §4) ─────────────────────────────────────────────────────────────────────────────


def test_a_full_buffer_lets_its_oldest_event_go_and_tells_the_gap() -> None:
    subscriber = holder(full_stamps=True, buffer_max=2)
    assert give(subscriber, "A", 3) == give(subscriber, "A", 5) == []
    told = give(subscriber, "B", 2)
    assert names(told) == ["A1-2", "A3"]
    assert isinstance(told[0], Gap)
    assert told[0].reason == "the buffer was full"


def test_nothing_is_held_longer_than_its_time_to_live() -> None:
    subscriber = holder(full_stamps=True, time_to_live_ms=30.0)
    give(subscriber, "A", 2, now=0.0)
    give(subscriber, "B", 1, {"A": 3}, now=10.0)
    assert subscriber.tick(29.0).notify == []
    effects = subscriber.tick(30.0)
    assert names(told(effects)) == ["A1-1", "A2"]
    assert effects.wake_at == 40.0
    assert names(told(subscriber.tick(40.0))) == ["A3-3", "B1"]


def test_what_must_come_before_is_let_go_before() -> None:
    subscriber = holder(full_stamps=True, time_to_live_ms=30.0)
    give(subscriber, "B", 1, {"A": 3}, now=0.0)
    give(subscriber, "A", 3, now=20.0)
    assert names(told(subscriber.tick(30.0))) == ["A1-2", "A3", "B1"]


def test_what_comes_after_its_gap_is_notified_at_once_and_tagged() -> None:
    subscriber = holder(full_stamps=True, buffer_max=1)
    give(subscriber, "A", 4)
    assert names(give(subscriber, "B", 2)) == ["A1-3", "A4"]
    assert names(give(subscriber, "A", 2)) == ["A2!"]
    assert names(give(subscriber, "A", 2)) == [], "but only once"
    assert names(give(subscriber, "A", 1)) == ["A1!"]
    assert names(give(subscriber, "A", 3)) == ["A3!"]
    assert names(give(subscriber, "A", 4)) == [], "a repeat is not late"


def test_a_broker_that_forgets_stops_nobody() -> None:
    net = single(full_stamps=True, time_to_live_ms=30.0)
    net.broker = Broker(replays=False)
    net.machines[BROKER] = net.broker
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.hold_back(Delivered, target="r")
    net.publish("p", "A", "a1")
    net.lose()
    net.publish("p", "B", "b1")
    assert net.notified("r") == []
    net.wait(30.0)
    assert names(net.all_told("r", Gap) + net.all_told("r", Notification)) == ["A1-1", "b1"]
    assert net.notified("s") == ["a1", "b1"]
