"""What is counted of a node from outside is what it did."""

import asyncio

from seriatim.model import BROKER
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Finished, Granted, Inquire, Pass, Routed, Settled, Stamped, Ticket, Written
from seriatim.server.meters import SLICE_TOPICS, MeteredSwitchboard, NodeMeter, Surveyor


def test_stamps_numbers_and_entries_are_counted() -> None:
    entries: list[int] = []
    meter = NodeMeter(observe_stamp=entries.append)
    meter.sent(Granted(1, "a", 1, 10, {"b": 5}))
    meter.sent(Stamped("a", 11, 11, {}))
    meter.sent(Settled("a", 1))
    assert (meter.stamps, meter.numbers, meter.entries, entries) == (2, 11, 1, [1, 0])
    assert meter.sampled_stamps == 1
    assert meter.sampled_bytes == len(b"\x81\xa1b\x05")


def test_voids_are_counted_and_events_are_not() -> None:
    meter = NodeMeter()
    meter.received(Written("a", 1))
    meter.received(Written("a", 2, "event"))
    assert meter.voids == 1


def test_what_subscribers_ask_after_is_counted() -> None:
    meter = NodeMeter()
    meter.received(Inquire("a", 1))
    meter.received(Inquire("a", 1))
    assert (meter.inquiries, meter.voids) == (2, 0)


def test_one_stamp_at_a_time_is_followed_up_and_back() -> None:
    hops: list[float] = []
    meter = NodeMeter(observe_hop=hops.append)
    meter.sent(Frame(1, 1, 0, Pass("a", 1, 1, "root", {})))
    meter.sent(Frame(1, 2, 0, Pass("a", 2, 2, "root", {})))
    meter.received(Frame(1, 1, 1, Routed("eu", Finished("a", 2, 2, {}))))
    assert hops == []
    meter.received(Frame(1, 1, 1, Routed("eu", Finished("a", 1, 1, {}))))
    assert len(hops) == 1 and 0 <= hops[0] < 60
    assert meter.hop_s == hops[0]


async def attached() -> tuple[int, int]:
    board = MeteredSwitchboard()
    meter = board.meters["n"] = NodeMeter()
    given: list[object] = []
    board.attach("n", lambda source, message: given.append(message))
    board.attach("other", lambda source, message: given.append(message))
    board.send("other", "n", Written("a", 1))
    board.send("n", "other", Stamped("a", 1, 1, {}))
    board.send("other", "n", Stamped("a", 1, 1, {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(given) == 3
    return meter.voids, meter.stamps


def test_the_switchboard_shows_a_node_its_own_messages_only() -> None:
    assert asyncio.run(attached()) == (1, 1)


def test_a_survey_finds_what_is_open_and_since_when() -> None:
    now_s = 100.0
    node = SequencerNode(SequencingTree.single(), "root", TreeOptions(mode="ticket"))
    surveyor = Surveyor(lambda: now_s)
    for _ in surveyor.walk(node.state.sequencer):
        raise AssertionError("an empty node is one slice")
    assert surveyor.last.open_ranges == 0
    node.step("p1", Ticket(1, "a", 5), 0.0)
    node.step("p2", Ticket(1, "b", 1), 0.0)
    list(surveyor.walk(node.state.sequencer))
    now_s = 107.0
    node.step("p1", Settled("a", 1), 1.0)
    list(surveyor.walk(node.state.sequencer))
    found = surveyor.last
    assert (found.topics, found.issued, found.open_ranges, found.unstamped_ranges) == (2, 6, 1, 0)
    assert found.oldest_open_s == 7.0
    node.step(BROKER, Written("b", 1), 2.0)
    list(surveyor.walk(node.state.sequencer))
    assert (surveyor.last.open_ranges, surveyor.last.oldest_open_s) == (0, 0.0)


def test_a_large_node_is_surveyed_in_slices() -> None:
    node = SequencerNode(SequencingTree.single(), "root", TreeOptions(mode="ticket"))
    for topic in range(SLICE_TOPICS * 3):
        node.step("p", Ticket(1, f"t{topic}", 1), 0.0)
        node.step("p", Settled(f"t{topic}", 1), 0.0)
    surveyor = Surveyor()
    walk = surveyor.walk(node.state.sequencer)
    next(walk)
    del node.state.sequencer.homes["t5000"]  # what goes away meanwhile is left out
    assert sum(1 for _ in walk) == 2
    assert surveyor.last.issued == SLICE_TOPICS * 3 - 1
