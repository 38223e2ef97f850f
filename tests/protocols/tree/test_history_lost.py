"""A subscriber reads history of which something is gone: from the order log, or from the log of a topic.

What is missing before the first event of a topic is a gap for who wants whatever is kept. Every other gap is treated as
a gap of live events is: the policy decides.
"""

import pytest

from seriatim.model import APPLICATION, BROKER, Gap, Notification
from seriatim.protocols.broker import KeepOrder, Trim
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Answer, Joined, Subscribe
from seriatim.protocols.with_broker import CaughtUp, Change, Fetch, ReadOrder, Start
from tests.protocols.tree.net import Net, options_for
from tests.protocols.tree.test_history import begin, net_of, traffic


def test_a_deleted_order_log_is_a_gap_also_for_topics_without_later_events() -> None:
    net = net_of()
    traffic(net, 3)
    net.step(APPLICATION, BROKER, KeepOrder(0, 0))
    net.wait(60)
    begin(net, "s", "AB", Start())
    net.wait(60)
    assert [(gap.topic, gap.first, gap.last) for gap in net.all_told("s", Gap)] == [("A", 1, 3), ("B", 1, 3)]
    assert net.subscriber("s").past() is None, "it is live, though nobody has published since"
    net.publish("p", "A", "a4")
    net.wait(60)
    begin(net, "t", "AB", Start())
    net.wait(60)
    assert [(gap.topic, gap.first, gap.last) for gap in net.all_told("t", Gap)] == [("A", 1, 3), ("B", 1, 3)]
    assert net.notified("s") == net.notified("t") == ["a4"]


def test_an_older_copy_of_the_order_log_is_a_gap_in_its_place() -> None:
    net = net_of(on_lost="skip")
    traffic(net, 3)  # A, B and C in turn: nine positions
    net.step(APPLICATION, BROKER, KeepOrder(1, 4))
    net.wait(60)
    net.publish("p", "A", "a4")
    net.wait(60)
    for name, start in (("s", Start()), ("t", Start(after=5))):
        begin(net, name, "AB", start)
        net.wait(60)
    assert net.notified("s") == ["a1", "b1", "a2", "a4"]
    gaps = [(gap.topic, gap.first, gap.last) for gap in net.all_told("s", Gap)]
    assert gaps == [("A", 3, 3), ("B", 2, 3)]
    assert net.notified("t") == ["a4"]
    for gap in net.all_told("t", Gap):  # nobody knows which of them stood behind position 5
        assert (gap.first, gap.last) == (1, 3)
        assert "it may be from before the start" in gap.reason


def ids_and_gaps(net: Net, name: str) -> list[str]:
    return [
        each.event.id if isinstance(each, Notification) else f"{each.topic} {each.first}-{each.last}"
        for each in net.told[name]
        if isinstance(each, Notification | Gap)
    ]


def test_a_subscriber_that_waits_stops_at_a_gap_of_the_order_log_until_the_topic_is_left() -> None:
    net = net_of(on_lost="wait")
    traffic(net, 3)
    net.step(APPLICATION, BROKER, KeepOrder(1, 4))
    net.wait(60)
    net.publish("p", "A", "a4")
    net.wait(60)
    begin(net, "s", "AB", Start())
    for _ in range(5):
        net.wait(1_000)
    assert ids_and_gaps(net, "s") == ["a1", "b1", "a2"]
    assert net.all_told("s", Answer) == [Answer("A", 3, "lost", {})], "once, however long it waits"
    (sentence,) = net.subscriber("s").explain_past()
    assert "stops at a gap: A 3 will not come (the order log does not have it)" in sentence
    assert net.subscriber("s").past() is not None
    net.change("s", "", remove="A")
    net.wait(60)
    assert net.all_told("s", Answer)[1:] == [Answer("B", 2, "lost", {})], "the order log has lost those, too"
    begin(net, "s", "AB", Start(after=9))
    assert ids_and_gaps(net, "s")[3:] == ["a4"], "a new beginning behind the gap"
    assert net.subscriber("s").past() is None


def read_past_a_hole(net: Net, last_kept: int) -> None:
    """The order log loses what lies behind this position while a subscriber that has joined reads: b2 with it."""
    net.change("early", "AB")
    traffic(net, 1)  # a1, b1 and c1 have positions 1 to 3; the joins are behind them
    net.hold_back(ReadOrder)
    begin(net, "s", "AB", Start())
    net.publish("p", "B", "b2")
    net.wait(60)
    net.step(APPLICATION, BROKER, KeepOrder(1, last_kept))
    net.wait(60)
    net.publish("p", "A", "a2")
    net.wait(60)
    net.release()
    for _ in range(3):
        net.wait(1_000)


@pytest.mark.parametrize("last_kept", [0, 1, 2])
@pytest.mark.parametrize("mode", ["log", "ticket"])
@pytest.mark.parametrize("shape", ["single", "star", "chain"])
@pytest.mark.parametrize("durable", [False, True])
def test_what_a_hole_behind_the_joins_has_swallowed_does_not_come_live(
    durable: bool, shape: str, mode: str, last_kept: int
) -> None:
    net = net_of(shape, mode, on_lost="skip", durable=durable)
    read_past_a_hole(net, last_kept)
    net.publish("p", "B", "b3")
    net.wait(60)
    assert net.notified("early") == ["a1", "b1", "b2", "a2", "b3"]
    told = {
        0: ["A 1-1", "a2", "B 1-2", "b3"],
        1: ["a1", "a2", "B 1-2", "b3"],
        2: ["a1", "b1", "a2", "B 2-2", "b3"],
    }
    assert ids_and_gaps(net, "s") == told[last_kept]


@pytest.mark.parametrize("is_short", [False, True])
def test_joins_at_different_places_count_each_for_itself(is_short: bool) -> None:
    """A is joined before the stretch that is lost, B behind it. A shortened journal keeps both places."""
    net = net_of("star", on_lost="skip", durable=True)
    net.change("early", "AB")
    traffic(net, 1)
    net.holds_back = lambda source, target, message: (
        isinstance(message, ReadOrder) or (isinstance(message, Subscribe) and message.topic == "B")
    )
    begin(net, "s", "AB", Start())  # asks for B again, when time passes
    net.publish("p", "A", "a2")
    net.wait(60)
    net.hold_back(ReadOrder)
    net.wait(1_000)
    net.publish("p", "B", "b2")
    net.wait(60)
    net.step(APPLICATION, BROKER, KeepOrder(5, 99))  # what is left begins with b2
    if is_short:
        records = net.subscriber("s").compact()
        assert records is not None
        assert [each.position for each in records if isinstance(each, Joined)] == [3, 4]
        net.add("s", Subscriber.resume(net.tree, "s", net.options, records))
    net.release()
    for _ in range(3):
        net.wait(1_000)
    assert net.notified("early") == ["a1", "b1", "a2", "b2"]
    assert ids_and_gaps(net, "s") == ["B 1-1", "b2", "A 1-2"]


def test_a_subscriber_that_waits_stops_at_what_a_hole_behind_the_joins_has_swallowed() -> None:
    net = net_of(on_lost="wait")
    read_past_a_hole(net, last_kept=2)
    assert ids_and_gaps(net, "s") == ["a1", "b1", "a2"]
    assert net.all_told("s", Answer) == [Answer("B", 2, "lost", {})]
    assert "stops at a gap: B 2 will not come (the order log does not have it)" in net.subscriber("s").explain_past()[0]


@pytest.mark.parametrize("start", [Start(), Start(after=2, is_place=True), Start(numbers={"A": 2, "B": 1})])
@pytest.mark.parametrize("mode", ["log", "ticket"])
@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_retention_that_runs_over_the_reader_is_treated_by_the_policy(policy: str, mode: str, start: Start) -> None:
    net = net_of("star", mode, on_lost=policy)
    traffic(net, 9)
    net.holds_back = lambda source, target, message: isinstance(message, Fetch) and len(net.notified("s")) > 2
    begin(net, "s", "AB", start)
    before = ids_and_gaps(net, "s")
    (last,) = [int(each[1:]) for each in before if each.startswith("a")][-1:]
    assert before and last < 6 and net.held_back
    net.step(APPLICATION, BROKER, Trim("A", 8))
    net.holds_back = lambda source, target, message: False
    net.release()
    for _ in range(5):
        net.wait(1_000)
    told = ids_and_gaps(net, "s")
    if policy == "wait":
        assert net.all_told("s", CaughtUp) == []
        assert net.all_told("s", Answer) == [Answer("A", last + 1, "lost", {})]
        assert not [each for each in told if "-" in each]
        assert not [each for each in told if each in ("a8", "a9", "b8", "b9")]
        assert "will not come (the broker no longer keeps it)" in net.subscriber("s").explain_past()[0]
    else:
        gaps = [each for each in told if "-" in each]
        assert gaps[0].startswith(f"A {last + 1}-") and gaps[-1].endswith("-7")
        assert [each for each in told if each.startswith("a")][-2:] == ["a8", "a9"]
        assert told.index("b7") > told.index(gaps[-1]) - 2 and net.subscriber("s").past() is None


@pytest.mark.parametrize("start", [Start(numbers={"A": 2}, is_place=True), Start(after=3, is_place=True)])
def test_what_is_missing_behind_a_named_place_is_lost(start: Start) -> None:
    """`Start()` means whatever is there: the same gap stops nobody."""
    for begins, stops in ((Start(), False), (start, True)):
        net = net_of(on_lost="wait")
        traffic(net, 4)
        net.step(APPLICATION, BROKER, Trim("A", 4))
        net.run()
        begin(net, "s", "AB", begins)
        net.wait(1_000)
        assert (net.subscriber("s").past() is not None) == stops
        assert [(each.topic, each.number) for each in net.all_told("s", Answer)] == [("A", 2)] * stops


def test_a_durable_subscriber_that_has_stopped_goes_on_under_another_policy() -> None:
    net = net_of(on_lost="wait", durable=True)
    traffic(net, 3)
    net.step(APPLICATION, BROKER, KeepOrder(1, 4))
    net.wait(60)
    begin(net, "s", "AB", Start())
    net.wait(60)
    assert ids_and_gaps(net, "s") == ["a1", "b1", "a2"]
    for policy, told in (("wait", []), ("skip", ["A 3-3", "B 2-3"])):
        net.told["s"].clear()
        net.options = options_for("log", order_log=True, history_window=4, on_lost=policy, durable=True)
        net.add("s", Subscriber.resume(net.tree, "s", net.options, net.journals["s"]))
        net.run()
        net.wait(1_000)
        assert ids_and_gaps(net, "s") == told
        assert len(net.all_told("s", Answer)) == (policy == "wait")
    net.publish("p", "A", "a4")
    net.wait(60)
    assert net.notified("s") == ["a4"]


def test_a_shortened_journal_keeps_whether_somebody_named_the_place() -> None:
    for is_place in (False, True):
        net = net_of(on_lost="wait", durable=True)
        traffic(net, 2)
        net.holds_back = lambda source, target, message: isinstance(message, Fetch)
        net.subscriber("s")
        net.step(APPLICATION, "s", Change(frozenset("AB"), start=Start(is_place=is_place)))
        net.run()
        records = net.subscriber("s").compact()
        assert records is not None
        again = Subscriber.resume(net.tree, "s", net.options, records)
        assert again.state.reading is not None and again.state.reading.start.is_place == is_place
