"""What is counted of a node is what it did; what it holds is found by surveys."""

from seriatim.live.counters import Counters
from seriatim.live.tree.host import NodeHost
from seriatim.live.tree.survey import SLICE_TOPICS, Surveyor
from seriatim.model import BROKER, Address
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Finished, Granted, Inquire, Pass, Routed, Settled, Ticket
from seriatim.protocols.with_broker import Stamped, Written
from seriatim.runtime import Switchboard
from seriatim.runtime.journal.interface import MemoryJournal
from tests.client.world import until
from tests.live.tree.nodes import TICKETS, SilentBroker


async def counting() -> tuple[NodeHost, Counters]:
    """A host that counts; what it is given is not handed to its machine."""
    tree = SequencingTree({"root": None, "eu": "root"}, {}, default_home="eu")
    host = NodeHost(
        tree,
        "eu",
        TICKETS,
        broker=SilentBroker(),
        switchboard=Switchboard(),
        journal=MemoryJournal(),
        counters=(counters := Counters()),
    )
    await host.start()

    def drop(source: Address, message: Payload) -> None: ...

    host._deliver = drop
    return host, counters


async def test_stamps_numbers_and_entries_are_counted() -> None:
    host, counters = await counting()
    host.send("eu", "p", Granted(1, "a", 1, 10, {"b": 5}))
    host.send("eu", BROKER, Stamped("a", 11, 11, {}))
    host.send("eu", "p", Settled("a", 1))
    assert (counters.stamps, counters.numbers, counters.stamp_entries.total) == (2, 11, 1)
    assert counters.stamp_entries.counts[:2] == [1, 1]
    assert counters.sampled_stamps == 1
    assert counters.sampled_bytes == len(b"\x81\xa1b\x05")
    await host.stop()


async def test_voids_are_counted_and_events_are_not() -> None:
    host, counters = await counting()
    host._from_broker(Written("a", 1))
    host._from_broker(Written("a", 2, "event"))
    assert counters.voids == 1
    await host.stop()


async def test_what_subscribers_ask_after_is_counted() -> None:
    host, counters = await counting()
    for _ in range(2):
        host._from_network("s", Inquire("a", 1))
    assert (counters.inquiries, counters.voids) == (2, 0)
    await host.stop()


async def test_one_stamp_at_a_time_is_followed_up_and_back() -> None:
    host, counters = await counting()
    host.send("eu", "root", Frame(1, 1, 0, Pass("a", 1, 1, "root", {})))
    host.send("eu", "root", Frame(1, 2, 0, Pass("a", 2, 2, "root", {})))
    host._from_network("root", Frame(1, 1, 1, Routed("eu", Finished("a", 2, 2, {}))))
    assert counters.hop_ms is None
    host._from_network("root", Frame(1, 1, 1, Routed("eu", Finished("a", 1, 1, {}))))
    assert sum(counters.hops_ms.counts) == 1 and counters.hop_ms is not None and 0 <= counters.hop_ms < 60_000
    await host.stop()


async def test_a_node_counts_its_own_messages_only() -> None:
    """Also those that pass for real: from the switchboard, and to it."""
    switchboard, counters = Switchboard(), Counters()
    given: list[object] = []
    host = NodeHost(
        SequencingTree.single(["A"]),
        "root",
        TICKETS,
        broker=SilentBroker(),
        switchboard=switchboard,
        journal=MemoryJournal(),
        counters=counters,
    )
    await host.start()
    switchboard.attach("p", lambda source, message: given.append(message))
    switchboard.send("p", "root", Ticket(1, "A", 3))
    switchboard.send("p", "p", Stamped("A", 1, 1, {}))
    await host.driver.settled()
    await until("a grant", lambda: len(given) == 2)
    assert (counters.stamps, counters.numbers) == (1, 3)
    await host.stop()


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
