"""Each role of paper 000 alone, line by line against the figures of its appendix."""

import re
from pathlib import Path

import msgspec
import pytest

from seriatim.lab.papers.paper000 import (
    Ens,
    Held,
    Publish,
    Publisher,
    Ranks,
    Subscribe,
    Subscribed,
    Subscriber,
    TopicManager,
    Unsubscribe,
    deploy,
)
from seriatim.lab.papers.paper000.messages import (
    CompletedSubscription,
    CreateTimestamp,
    EnsNotify,
    EnsPublish,
    EnsSubscribe,
    EnsSubscribed,
    EnsUnsubscribe,
    EventTimestamp,
    FillInSubscription,
    FillInTimestamp,
    UpdateSubscription,
)
from seriatim.model import APPLICATION, BROKER, Event, InputError, Notification, RemoteError
from seriatim.protocols.machine import Payload
from tests.nonsense import Nonsense

RANKS = Ranks(["A", "B", "C"])  # A → B → C


def event(name: str, topic: str = "A") -> Event:
    return Event(name, topic, "p")


def notified(told: list[Payload]) -> list[str]:
    return [each.event.id for each in told if isinstance(each, Notification)]


class TestRanks:
    def test_next_goes_up_from_the_lowest(self) -> None:
        timestamp = {"A": 0, "C": 0}
        assert RANKS.next(timestamp, None) == "C"
        assert RANKS.next(timestamp, "C") == "A"
        assert RANKS.next(timestamp, "A") is None

    @pytest.mark.parametrize("topics", [[], ["A", "A"]])
    def test_topics_must_be_ranked_once(self, topics: list[str]) -> None:
        with pytest.raises(InputError, match="topics"):
            Ranks(topics)


class TestPublisher:
    def test_asks_then_publishes(self) -> None:
        publisher = Publisher("p", RANKS)
        asked = publisher.step(APPLICATION, Publish(event("e")), 0.0)
        assert asked.send == [("TM_A", CreateTimestamp("e", "p", "A"))]
        answered = publisher.step("TM_A", EventTimestamp({"A": 1}, "e"), 1.0)
        assert answered.send == [(BROKER, EnsPublish("A", event("e"), {"A": 1}))]
        assert publisher.state.outgoing == {}

    def test_asks_again_only_if_told_to(self) -> None:
        patient, eager = Publisher("p", RANKS), Publisher("p", RANKS, retry_ms=100.0)
        assert patient.step(APPLICATION, Publish(event("e")), 0.0).wake_at is None
        assert eager.step(APPLICATION, Publish(event("e")), 0.0).wake_at == 100.0
        assert eager.tick(99.0).send == []
        again = eager.tick(100.0)
        assert (again.send, again.wake_at) == ([("TM_A", CreateTimestamp("e", "p", "A"))], 200.0)

    def test_second_answer_publishes_nothing(self) -> None:
        publisher = Publisher("p", RANKS)
        publisher.step(APPLICATION, Publish(event("e")), 0.0)
        publisher.step("TM_A", EventTimestamp({"A": 1}, "e"), 1.0)
        assert publisher.step("TM_A", EventTimestamp({"A": 2}, "e"), 2.0).send == []

    def test_bad_input_changes_nothing(self) -> None:
        publisher = Publisher("p", RANKS)
        publisher.step(APPLICATION, Publish(event("e")), 0.0)
        with pytest.raises(InputError, match="'e'"):
            publisher.step(APPLICATION, Publish(event("e", "B")), 0.0)
        with pytest.raises(InputError, match="'Z'"):
            publisher.step(APPLICATION, Publish(event("f", "Z")), 0.0)
        with pytest.raises(InputError, match="retry_ms"):
            Publisher("p", RANKS, retry_ms=0.0)
        assert list(publisher.state.outgoing) == ["e"]


class TestTopicManager:
    def test_group_needs_two_subscriptions(self) -> None:
        """Definition 1 and Fig. 15."""
        manager = TopicManager("A", RANKS, {"x": "ABC", "y": "AB", "z": "BC"})
        assert manager.state.group == ("A", "B")
        assert TopicManager("C", RANKS).state.group == ("C",)

    def test_counts_events_and_reports_lower_topics(self) -> None:
        """Fig. 16(b), lines 01-13 at the highest topic."""
        manager = TopicManager("A", RANKS, {"x": "AB", "y": "AB"})
        manager.step("TM_B", FillInTimestamp({"A": 0, "B": 7}, "f", "q"), 0.0)
        created = manager.step("p", CreateTimestamp("e", "p", "A"), 0.0)
        assert created.send == [("p", EventTimestamp({"A": 1, "B": 7}, "e"))]

    def test_skips_managers_outside_the_group(self) -> None:
        """Fig. 16(b), line 12: from C straight to A."""
        manager = TopicManager("C", RANKS, {"x": "AC", "y": "AC", "z": "BC"})
        created = manager.step("p", CreateTimestamp("e", "p", "C"), 0.0)
        assert created.send == [("TM_A", FillInTimestamp({"A": 0, "C": 1}, "e", "p"))]

    def test_fills_in_without_counting(self) -> None:
        """Fig. 16(b), lines 14-24."""
        manager = TopicManager("B", RANKS, {"x": "ABC", "y": "ABC"})
        filled = manager.step("TM_C", FillInTimestamp({"A": 0, "B": 0, "C": 5}, "e", "p"), 0.0)
        assert filled.send == [("TM_A", FillInTimestamp({"A": 0, "B": 0, "C": 5}, "e", "p"))]
        assert (manager.state.clock, manager.state.lower_clocks) == (0, {"C": 5})

    def test_older_timestamp_does_not_lower_a_clock(self) -> None:
        manager = TopicManager("A", RANKS, {"x": "AB", "y": "AB"})
        manager.step("TM_B", FillInTimestamp({"A": 0, "B": 7}, "f", "q"), 0.0)
        manager.step("TM_B", FillInTimestamp({"A": 0, "B": 6}, "g", "q"), 0.0)
        assert manager.state.lower_clocks == {"B": 7}

    def test_subscription_counts_like_an_event(self) -> None:
        """Fig. 18(b)."""
        manager = TopicManager("A", RANKS, {"x": "AB"})
        joined = manager.step("TM_B", FillInSubscription({"A": 0, "B": 3}, ("A", "B"), "y"), 0.0)
        assert joined.send == [("y", CompletedSubscription({"A": 1, "B": 3}, ("A", "B")))]
        assert (manager.state.group, manager.state.lower_clocks) == (("A", "B"), {"B": 3})

    def test_leaving_forgets_at_once(self) -> None:
        """Fig. 19(b)."""
        manager = TopicManager("A", RANKS, {"x": "AB", "y": "AB"})
        manager.step("y", UpdateSubscription("y", ("A",)), 0.0)
        assert (manager.state.group, manager.state.lower_clocks) == (("A",), {})
        manager.step("y", UpdateSubscription("y", ()), 0.0)
        assert list(manager.state.subscriptions) == ["x"]


class TestSubscriber:
    def test_is_next_asks_for_equality(self) -> None:
        """Fig. 17, lines 10-26; topics that are not held are not compared (§3.4)."""
        subscriber = Subscriber("s", RANKS, "AB")
        early = subscriber.step(BROKER, EnsNotify("B", event("f", "B"), {"A": 1, "B": 1, "C": 9}), 0.0)
        assert early.notify == []
        assert subscriber.explain() == [Held(event("f", "B"), "B", 1, "A", 1, 0)]
        both = subscriber.step(BROKER, EnsNotify("A", event("e"), {"A": 1, "B": 0}), 0.0)
        assert notified(both.notify) == ["e", "f"]
        assert subscriber.state.clock == {"A": 1, "B": 1}

    def test_entry_below_the_clock_blocks(self) -> None:
        subscriber = Subscriber("s", RANKS, "AB")
        subscriber.step(BROKER, EnsNotify("B", event("f", "B"), {"B": 1}), 0.0)
        stale = subscriber.step(BROKER, EnsNotify("A", event("e"), {"A": 1, "B": 0}), 0.0)
        assert stale.notify == []
        assert subscriber.explain() == [Held(event("e"), "A", 1, "B", 0, 1)]

    def test_dummy_moves_the_clock_silently(self) -> None:
        """Fig. 17, lines 01-05: every other topic must be exactly one behind."""
        subscriber = Subscriber("s", RANKS, "AB")
        told = subscriber.step(BROKER, EnsNotify("A", None, {"A": 1, "B": 1}), 0.0)
        assert (told.notify, subscriber.state.clock) == ([], {"A": 1, "B": 1})

    def test_dummy_must_mention_every_topic_held(self) -> None:
        """Fig. 17, line 02, over topics the dummy knows nothing about."""
        subscriber = Subscriber("s", RANKS, "ABC")
        subscriber.step(BROKER, EnsNotify("B", None, {"B": 1, "C": 1}), 0.0)
        assert subscriber.state.clock == {"A": 0, "B": 0, "C": 0}
        assert [(held.event, held.waits_for) for held in subscriber.explain()] == [(None, "C")]

    def test_buffered_dummy_is_released_by_is_next(self) -> None:
        """Fig. 17, line 20; unlike line 22 says, it is not notified (§3.4)."""
        subscriber = Subscriber("s", RANKS, "AB")
        told = subscriber.step(BROKER, EnsNotify("B", None, {"B": 1}), 0.0)
        assert (told.notify, subscriber.state.clock) == ([], {"A": 0, "B": 1})

    def test_subscribe(self) -> None:
        """Fig. 18(a). What was numbered before the subscription is dropped, what came after is notified."""
        subscriber = Subscriber("s", RANKS, "A")
        assert subscriber.step(APPLICATION, Subscribe("B"), 0.0).send == [(BROKER, EnsSubscribe("B"))]
        asked = subscriber.step(BROKER, EnsSubscribed("B"), 0.0)
        assert asked.send == [("TM_B", FillInSubscription({"A": 0, "B": 0}, ("A", "B"), "s"))]
        subscriber.step(BROKER, EnsNotify("B", event("old", "B"), {"B": 3}), 0.0)
        subscriber.step(BROKER, EnsNotify("B", event("new", "B"), {"B": 5}), 0.0)
        assert subscriber.explain()[0].reached < 0
        clock = {"A": 1, "B": 4}
        done = subscriber.step("TM_A", CompletedSubscription(clock, ("A", "B")), 0.0)
        assert done.send == [(BROKER, EnsPublish("A", None, clock)), (BROKER, EnsPublish("B", None, clock))]
        assert done.notify[0] == Subscribed("B")
        assert notified(done.notify) == ["new"]
        assert subscriber.explain() == []

    def test_unsubscribe(self) -> None:
        """Fig. 19(a)."""
        subscriber = Subscriber("s", RANKS, "AB")
        assert subscriber.step(APPLICATION, Unsubscribe("B"), 0.0).send == [
            ("TM_A", UpdateSubscription("s", ("A",))),
            ("TM_B", UpdateSubscription("s", ())),
            (BROKER, EnsUnsubscribe("B")),
        ]
        ignored = subscriber.step(BROKER, EnsNotify("B", event("f", "B"), {"B": 1}), 0.0)
        assert (ignored.notify, subscriber.explain()) == ([], [])

    def test_leaving_a_topic_releases_what_waited_for_it(self) -> None:
        subscriber = Subscriber("s", RANKS, "AB")
        subscriber.step(BROKER, EnsNotify("A", event("e"), {"A": 1, "B": 1}), 0.0)
        assert notified(subscriber.step(APPLICATION, Unsubscribe("B"), 0.0).notify) == ["e"]

    def test_one_operation_at_a_time(self) -> None:
        subscriber = Subscriber("s", RANKS)
        subscriber.step(APPLICATION, Subscribe("A"), 0.0)
        assert subscriber.step(APPLICATION, Subscribe("B"), 0.0).send == []
        assert subscriber.step(APPLICATION, Unsubscribe("A"), 0.0).send == []
        subscriber.step(BROKER, EnsSubscribed("A"), 0.0)
        done = subscriber.step("TM_A", CompletedSubscription({"A": 1}, ("A",)), 0.0)
        assert done.send[-1] == (BROKER, EnsSubscribe("B"))

    def test_bad_input_changes_nothing(self) -> None:
        subscriber = Subscriber("s", RANKS, "A")
        subscriber.step(APPLICATION, Subscribe("B"), 0.0)
        before = msgspec.json.encode(subscriber.state)
        for command in (Subscribe("A"), Subscribe("B"), Unsubscribe("C"), Subscribe("Z")):
            with pytest.raises(InputError):
                subscriber.step(APPLICATION, command, 0.0)
        assert msgspec.json.encode(subscriber.state) == before


class TestEns:
    def test_hands_out_to_all_who_subscribed(self) -> None:
        ens = Ens({"A": ["x"]})
        assert ens.step("y", EnsSubscribe("A"), 0.0).send == [("y", EnsSubscribed("A"))]
        notice = EnsNotify("A", event("e"), {"A": 1})
        assert ens.step("p", EnsPublish("A", event("e"), {"A": 1}), 0.0).send == [("x", notice), ("y", notice)]
        ens.step("x", EnsUnsubscribe("A"), 0.0)
        assert ens.step("p", EnsPublish("A", event("e"), {"A": 1}), 0.0).send == [("y", notice)]


def test_every_role_refuses_what_it_does_not_understand() -> None:
    for address, machine in deploy(["A"], {"s": "A"}, ["p"]).items():
        with pytest.raises(RemoteError, match="does not understand"):
            machine.step("somebody", Nonsense(), 0.0)
        assert machine.tick(0.0).send == [], address


def test_names_are_used_once() -> None:
    with pytest.raises(InputError, match="'s' is used twice"):
        deploy(["A"], {"s": "A"}, ["s"])


def test_state_survives_encoding() -> None:
    """Explorers keep machines as bytes: a decoded state must be the state."""
    for machine in deploy(["A", "B"], {"s": "AB", "t": "AB"}, ["p"]).values():
        if isinstance(machine, Publisher):
            machine.step(APPLICATION, Publish(event("e")), 0.0)
        if isinstance(machine, Subscriber):
            machine.step(APPLICATION, Unsubscribe("B"), 0.0)
            machine.step(APPLICATION, Subscribe("B"), 0.0)
            machine.step(APPLICATION, Unsubscribe("A"), 0.0)
            machine.step(BROKER, EnsNotify("A", event("e"), {"A": 2}), 0.0)
        state = machine.state  # type: ignore[attr-defined]  # every role of this protocol has one
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state)) == state


def test_every_hole_in_the_readme_has_its_transcripts() -> None:
    root = Path(__file__).parents[4]
    readme = (root / "src/seriatim/lab/papers/paper000/README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:paper000|tree)_\w+)`", readme))
    told = {path.stem for path in (root / "tests/scenarios").glob("*.txt")}
    assert named <= told
    assert {name for name in told if name.startswith("paper000_")} <= named
