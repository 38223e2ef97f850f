"""A subscriber that begins with the past: the order of the order log, then live, without a gap or a repetition."""

from collections.abc import Iterator
from typing import Any

import pytest

from seriatim.model import APPLICATION, BROKER, Gap, InputError, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Erase, Trim
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Done, Joined, Refreshed
from seriatim.protocols.with_broker import (
    CaughtUp,
    Change,
    Changed,
    Delivered,
    Fetch,
    Listen,
    Ordered,
    OrderedRange,
    OrderRead,
    ReadOrder,
    Start,
    Trimmed,
    Write,
)
from tests.protocols.tree.net import Net, options_for

TREES = {
    "single": SequencingTree.single("ABC"),
    "star": SequencingTree.star({"A": 1, "B": 2, "C": 3}, leaves=3),
    "chain": SequencingTree.chain({"A": 3, "B": 2, "C": 1}, length=3),
}


def net_of(shape: str = "single", mode: str = "log", **options: Any) -> Net:
    return Net(TREES[shape], options_for(mode, order_log=True, **{"history_window": 4} | options))


def begin(net: Net, name: str, topics: str, start: Start, remove: str = "") -> None:
    net.subscriber(name)
    net.step(APPLICATION, name, Change(frozenset(topics), frozenset(remove), start))
    net.run()
    net.wait(60)


def traffic(net: Net, rounds: int, first: int = 1) -> None:
    """Events of A, B and C in turn, also in the order log: nobody need hold them together."""
    for number in range(first, first + rounds):
        for topic in "ABC":
            net.publish("p", topic, f"{topic.lower()}{number}")
            net.wait(40)  # so that its place in the order is known before the next one's


def ids(rounds: int, topics: str = "abc", first: int = 1) -> list[str]:
    return [f"{topic}{number}" for number in range(first, first + rounds) for topic in topics]


@pytest.fixture(params=["log", "ticket"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


# ── the past, then live ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", TREES)
def test_a_late_subscriber_is_told_what_an_early_one_was_told(shape: str, mode: str) -> None:
    net = net_of(shape, mode)
    net.change("early", "ABC")
    traffic(net, 9)
    begin(net, "late", "ABC", Start())
    assert net.notified("late") == net.notified("early") == ids(9)
    (caught_up,) = net.all_told("late", CaughtUp)
    assert caught_up == CaughtUp(27, {"A": 9, "B": 9, "C": 9})
    traffic(net, 3, first=10)
    assert net.notified("late") == net.notified("early") == ids(12)


def test_events_of_the_past_have_positions_and_say_that_they_are_past(mode: str) -> None:
    net = net_of("chain", mode)
    traffic(net, 2)
    begin(net, "s", "AC", Start())
    traffic(net, 1, first=3)
    told = net.all_told("s", Notification)
    assert [(each.event.id, each.position) for each in told if each.is_history] == [
        ("a1", 1), ("c1", 3), ("a2", 4), ("c2", 6)
    ]  # fmt: skip
    assert [each.event.id for each in told if not each.is_history] == ["a3", "c3"]


def test_it_begins_behind_a_position() -> None:
    net = net_of()
    traffic(net, 5)
    begin(net, "s", "AB", Start(after=7))
    assert net.notified("s") == ["b3", "a4", "b4", "a5", "b5"]


def test_each_topic_begins_with_its_number_and_others_live() -> None:
    net = net_of()
    traffic(net, 5)
    begin(net, "s", "ABC", Start(numbers={"A": 4, "B": 2}))
    assert net.notified("s") == ["b2", "b3", "a4", "b4", "a5", "b5"]
    assert net.all_told("s", Changed)[-1] == Changed(1, frozenset("ABC"), {"A": 3, "B": 1, "C": 5}, in_past=True)
    traffic(net, 1, first=6)
    assert net.notified("s")[-3:] == ["a6", "b6", "c6"]


def test_a_quiet_topic_does_not_keep_it_from_being_live() -> None:
    net = net_of("star")
    net.publish("p", "A", "a1")
    net.wait(60)
    traffic_b = [f"b{number}" for number in range(1, 6)]
    for id in traffic_b:
        net.publish("p", "B", id)
    net.wait(60)
    begin(net, "s", "AB", Start(after=3))
    assert net.notified("s") == traffic_b[2:]
    assert net.subscriber("s").state.reading is None
    net.publish("p", "A", "a2")
    assert net.notified("s")[-1] == "a2"


def test_an_empty_past_is_over_at_once(mode: str) -> None:
    net = net_of(mode=mode)
    begin(net, "s", "AB", Start())
    assert net.all_told("s", CaughtUp) == [CaughtUp(0, {"A": 0, "B": 0})]
    traffic(net, 1)
    assert net.notified("s") == ["a1", "b1"]


def test_it_waits_until_the_order_log_covers_its_starts() -> None:
    """What was issued before the join and is not in the order log yet belongs to the past."""
    net = net_of("star")
    net.change("early", "ABC")
    net.hold_back(Ordered)
    traffic(net, 3)
    begin(net, "late", "ABC", Start())
    assert net.notified("late") == []
    waits = "waits for the order log to go on behind 0: the root writes it, or nobody does if it is away"
    assert net.subscriber("late").explain_past() == [f"reads history: position 0 of 9, {waits}"]
    net.publish("p", "A", "a4")
    assert net.notified("late") == []
    net.release()
    net.wait(100)
    assert net.notified("late") == net.notified("early") == [*ids(3), "a4"]


def test_others_do_not_wait_while_somebody_reads_the_past() -> None:
    net = net_of("star")
    net.change("early", "AB")
    traffic(net, 2)
    net.hold_back(OrderRead)
    begin(net, "late", "AB", Start())
    traffic(net, 2, first=3)
    assert net.notified("early") == ids(4, "ab")
    assert net.notified("late") == []
    net.release()
    assert net.notified("late") == ids(4, "ab")


# ── pulling ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_window_bounds_what_is_fetched_and_not_told() -> None:
    net = net_of()
    net.publish("p", "A", *(f"a{number}" for number in range(1, 101)))
    net.wait(60)
    net.hold_back(Delivered)
    net.subscriber("s")
    net.step(APPLICATION, "s", Change(frozenset("A"), start=Start()))
    net.run()
    assert net.all_sent(Fetch) == [Fetch("A", 1, 4)]
    net.release()
    net.wait(20)
    assert net.notified("s") == [f"a{number}" for number in range(1, 101)]
    assert all(fetch.last - fetch.first < 4 for fetch in net.all_sent(Fetch))


def test_what_is_lost_on_the_way_is_asked_for_again(mode: str) -> None:
    net = net_of("chain", mode)
    traffic(net, 3)
    for kind in (ReadOrder, OrderRead, Fetch, Delivered):
        net.hold_back(kind)
        net.subscriber(f"s {kind.__name__}")
        net.step(APPLICATION, f"s {kind.__name__}", Change(frozenset("ABC"), start=Start()))
        net.run()
        net.lose()
        net.wait(100)
        assert net.notified(f"s {kind.__name__}") == ids(3)


def test_a_slot_that_is_not_written_yet_is_waited_for() -> None:
    """Ticket mode: the order log has a number as soon as it is granted."""
    net = net_of(mode="ticket")
    net.change("early", "AB")
    net.hold_back(Write)
    net.publish("p", "A", "a1")
    net.publish("q", "B", "b1")
    net.wait(30)
    begin(net, "late", "AB", Start())
    assert net.notified("late") == []
    net.release()
    net.wait(60)
    assert net.notified("late") == net.notified("early") == ["a1", "b1"]


def test_voids_are_passed_by() -> None:
    net = net_of()
    traffic(net, 2)
    net.step(APPLICATION, BROKER, Erase("A", 2, 2))
    net.step(APPLICATION, BROKER, Erase("B", 3, 4))
    net.run()
    traffic(net, 1, first=3)
    begin(net, "s", "AB", Start())
    assert net.notified("s") == ["a1", "b1", "b2", "a3", "b3"]
    assert net.subscriber("s").state.reading is None


# ── what is gone ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_retention_took_is_a_gap_in_its_place() -> None:
    net = net_of()
    traffic(net, 4)
    net.step(APPLICATION, BROKER, Trim("A", 4))
    net.run()
    begin(net, "s", "AB", Start())
    told = [each.event.id if isinstance(each, Notification) else each for each in net.told["s"]]
    gaps = [each for each in told if isinstance(each, Gap)]
    assert [(gap.topic, gap.first, gap.last) for gap in gaps] == [("A", 1, 1), ("A", 2, 2), ("A", 3, 3)]
    assert net.notified("s") == ["b1", "b2", "b3", "a4", "b4"]
    assert told.index(gaps[1]) == told.index("b1") + 1


def order_read(net: Net, name: str, after: int, *ranges: OrderedRange) -> None:
    reading = net.subscriber(name).state.reading
    assert reading is not None
    net.step(BROKER, name, OrderRead(after, ranges, reading.read))
    net.run()


def test_an_order_log_without_its_beginning_is_told_as_gaps() -> None:
    net = net_of()
    traffic(net, 3)
    net.hold_back(OrderRead)
    begin(net, "s", "AB", Start())
    order_read(net, "s", 6, OrderedRange("A", 3, 3), OrderedRange("B", 3, 3), OrderedRange("C", 3, 3))
    net.lose()
    net.wait(30)
    gaps = [(gap.topic, gap.first, gap.last) for gap in net.all_told("s", Gap)]
    assert gaps == [("A", 1, 2), ("B", 1, 2)]
    assert net.notified("s") == ["a3", "b3"]


def test_numbers_from_before_there_was_an_order_log_are_a_gap() -> None:
    net = net_of()
    traffic(net, 3)
    net.hold_back(OrderRead)
    begin(net, "s", "AB", Start())
    order_read(net, "s", 0, OrderedRange("A", 3, 3), OrderedRange("B", 2, 3), *[OrderedRange("C", 1, 6)])
    net.lose()
    net.wait(30)
    gaps = [(gap.topic, gap.first, gap.last) for gap in net.all_told("s", Gap)]
    assert gaps == [("A", 1, 2), ("B", 1, 1)]
    assert net.notified("s") == ["a3", "b2", "b3"]


# ── changes meanwhile ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_can_be_left_while_the_past_is_read() -> None:
    net = net_of()
    traffic(net, 5)
    net.hold_back(Delivered)
    begin(net, "s", "ABC", Start())
    net.change("s", remove="B")
    net.release()
    net.wait(60)
    assert net.notified("s") == ids(5, "ac")
    traffic(net, 1, first=6)
    assert net.notified("s") == ids(6, "ac")


def test_leaving_everything_ends_the_past() -> None:
    net = net_of()
    traffic(net, 2)
    net.hold_back(OrderRead)
    begin(net, "s", "AB", Start())
    net.change("s", remove="AB")
    net.release()
    assert net.notified("s") == []
    assert net.subscriber("s").state.reading is None


def test_a_topic_is_added_when_the_past_is_told() -> None:
    net = net_of()
    traffic(net, 3)
    net.hold_back(OrderRead)
    begin(net, "s", "AB", Start())
    net.change("s", "C")
    assert net.subscriber("s").topics == frozenset("AB")
    net.release()
    net.wait(60)
    traffic(net, 1, first=4)
    assert net.notified("s") == [*ids(3, "ab"), "a4", "b4", "c4"]


def test_a_subscription_begins_anew_in_the_past() -> None:
    net = net_of()
    net.change("s", "AB")
    traffic(net, 3)
    begin(net, "s", "AB", Start(after=3))
    assert net.notified("s") == [*ids(3, "ab"), *ids(2, "ab", first=2)]
    traffic(net, 1, first=4)
    assert net.notified("s")[-2:] == ["a4", "b4"]
    assert net.all_told("s", Gap) == []


def test_a_node_that_forgot_a_reader_is_joined_again_without_a_gap() -> None:
    net = net_of(subscriber_lease_ms=1_000.0)
    traffic(net, 3)
    net.hold_back(OrderRead)
    begin(net, "s", "AB", Start())
    net.step("root", "s", Refreshed(1, "root", net.now + 1, acquaintance=99))
    net.run()
    net.release()
    net.wait(60)
    traffic(net, 1, first=4)
    assert net.notified("s") == ids(4, "ab")
    assert net.all_told("s", Gap) == []


# ── refused ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pairwise_order_has_no_past() -> None:
    subscriber = Subscriber(TREES["single"], "s", options_for("log", order="pairwise"))
    with pytest.raises(InputError, match="pairwise"):
        subscriber.step(APPLICATION, Change(frozenset("A"), start=Start()), 0.0)


def test_all_topics_begin_together() -> None:
    net = net_of()
    net.change("s", "A")
    with pytest.raises(InputError, match="A would not begin there"):
        net.step(APPLICATION, "s", Change(frozenset("B"), start=Start()))
    with pytest.raises(InputError, match="C is not added"):
        net.step(APPLICATION, "s", Change(frozenset("A"), start=Start(numbers={"C": 1})))


# ── durable ───────────────────────────────────────────────────────────────────────────────────────────────────────


def restart(net: Net, name: str) -> None:
    net.crash(name)
    net.add(name, Subscriber.resume(net.tree, name, net.options, net.journals[name]))
    net.run()


@pytest.mark.parametrize("stop", range(14))
def test_a_durable_reader_resumes_where_it_was(stop: int, mode: str) -> None:
    """Killed after each of its steps: the whole is told once, in order."""
    net = net_of("chain", mode, durable=True)
    traffic(net, 4)
    net.subscriber("s")
    net.step(APPLICATION, "s", Change(frozenset("AC"), start=Start()))
    for _ in range(1_000):
        if len(net.journals["s"]) >= stop or not net.on_the_way:
            break
        source, target, message = net.on_the_way.popleft()
        net.step(source, target, message)
    restart(net, "s")
    net.wait(100)
    traffic(net, 1, first=5)
    assert net.notified("s") == ids(5, "ac")
    assert net.all_told("s", Gap) == []


@pytest.mark.parametrize("stop", range(14))
def test_a_shortened_journal_gives_the_same_reader(stop: int) -> None:
    net = net_of("chain", durable=True)
    traffic(net, 4)
    net.step(APPLICATION, BROKER, Erase("A", 5, 6))
    net.run()
    net.subscriber("s")
    net.step(APPLICATION, "s", Change(frozenset("AC"), start=Start(numbers={"A": 2})))
    for _ in range(1_000):
        if len(net.journals["s"]) >= stop or not net.on_the_way:
            break
        source, target, message = net.on_the_way.popleft()
        net.step(source, target, message)
    records = net.subscriber("s").compact()
    if records is not None:
        net.journals["s"] = list(records)
    restart(net, "s")
    net.wait(100)
    traffic(net, 1, first=5)
    assert net.notified("s") == ["a2", "a3", "a4", "a5", "c5"]
    assert net.all_told("s", Gap) == []


def test_the_position_is_in_the_journal_before_the_event_is_told() -> None:
    net = net_of(durable=True)
    traffic(net, 1)
    begin(net, "s", "AB", Start())
    records = [each for each in net.journals["s"] if isinstance(each, Done | CaughtUp)]
    assert records == [Done("A", 1, 1), Done("B", 1, 2), CaughtUp(3, {"A": 1, "B": 1})]


def test_beginning_anew_survives_a_crash() -> None:
    net = net_of(durable=True)
    net.change("s", "AB")
    traffic(net, 3)
    net.step(APPLICATION, "s", Change(frozenset("AB"), start=Start(after=3)))
    restart(net, "s")
    net.wait(100)
    assert net.notified("s") == [*ids(3, "ab"), *ids(2, "ab", first=2)]


def test_a_topic_added_later_is_not_told_before_its_start_if_the_past_comes_again() -> None:
    """The past was not acknowledged, so its end does not count: the journal is read without it."""
    net = net_of(durable=True)
    traffic(net, 2)
    begin(net, "s", "AB", Start())
    net.change("s", "C")
    traffic(net, 1, first=3)
    journal = [each for each in net.journals["s"] if not isinstance(each, CaughtUp | Done)]
    net.crash("s")
    net.told["s"].clear()
    net.add("s", Subscriber.resume(net.tree, "s", net.options, journal))
    net.run()
    net.wait(100)
    assert net.notified("s") == [*ids(2, "ab"), "a3", "b3", "c3"]


def test_old_answers_change_nothing() -> None:
    net = net_of()
    traffic(net, 2)
    begin(net, "s", "AB", Start())
    subscriber = net.subscriber("s")
    for message in (OrderRead(0, (OrderedRange("A", 1, 2),), 0), Trimmed("A", 2)):
        assert subscriber.step(BROKER, message, net.now).notify == []
    assert isinstance(subscriber.step(BROKER, Delivered("A", 1, None, None), net.now), Effects)
    assert net.all_sent(Listen)[-2:] == [Listen("A", 2, 1), Listen("B", 2, 1)]
    assert [each.position for each in net.all_sent(Joined)] == [6, 6]


def test_a_position_beyond_the_end_loses_nothing_that_follows() -> None:
    net = net_of()
    traffic(net, 2)
    begin(net, "s", "AB", Start(after=100))
    assert net.subscriber("s").state.reading is None
    traffic(net, 1, first=3)
    assert net.notified("s") == ["a3", "b3"]


def skipping_reader(stop: int | None, is_shortened: bool) -> list[str]:
    """It skips what was published between its join and its reading of the order log. Restarted after `stop` records."""
    net = net_of(durable=True, history_window=2)
    traffic(net, 1)
    net.hold_back(ReadOrder)
    begin(net, "s", "ABC", Start(numbers={"A": 1, "B": 9}))
    traffic(net, 3, first=2)
    held = list(net.held_back)
    net.lose()
    net.on_the_way.extend(held)
    for _ in range(1_000):
        if (stop is not None and len(net.journals["s"]) >= stop) or not net.on_the_way:
            break
        source, target, message = net.on_the_way.popleft()
        net.step(source, target, message)
    if is_shortened and (records := net.subscriber("s").compact()) is not None:
        net.journals["s"] = list(records)
    if stop is not None:
        restart(net, "s")
    net.wait(200)
    traffic(net, 1, first=5)
    assert net.all_told("s", Gap) == []
    return net.notified("s")


@pytest.mark.parametrize("is_shortened", [False, True])
@pytest.mark.parametrize("stop", range(14))
def test_what_was_skipped_is_not_told_after_a_restart(stop: int, is_shortened: bool) -> None:
    """Nothing is persisted for an event that lies before the start. It counts all the same."""
    told = skipping_reader(None, is_shortened=False)
    assert not {"b1", "b2", "b3", "b4"} & set(told)
    assert skipping_reader(stop, is_shortened) == told
