"""A node over restarts: it goes on where its journal ends, and knows what it was founded with."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from seriatim.live.founding import encode_founded, encode_snapshot
from seriatim.live.tree.founding import Founded, found, rebuild
from seriatim.model import Behind, Fenced, InputError, JournalError, RequestRefused, TreeError
from seriatim.order import SequencingTree
from seriatim.protocols.node import Stepped
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import BeginOrder, Granted, Ticket, Update
from seriatim.runtime import FileJournal, Recovered
from seriatim.runtime.journal.interface import MemoryJournal
from tests.live.tree.nodes import TICKETS, TREE, Site


async def numbers_of_a_life(journal: FileJournal | MemoryJournal, site: Site, tickets: int) -> list[int]:
    """Start a node, take some tickets, stop it."""
    host = site.host(journal)
    await host.start()
    numbers = []
    for i in range(tickets):
        granted = await site.ticket(f"p{host.machine.epoch}", i + 1, "A")
        site.settle(f"p{host.machine.epoch}", granted)
        numbers.append(granted.first)
    await host.stop()
    return numbers


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    site = Site()
    numbers = []
    for _ in range(3):
        numbers += await numbers_of_a_life(FileJournal(tmp_path, fsync=False), site, 5)
    assert numbers == list(range(1, 16))


async def test_a_node_without_its_journal_is_known_by_its_stamps(caplog: pytest.LogCaptureFixture) -> None:
    for mode, epoch, is_lost in (("log", 7, True), ("log", 0, True), ("log", None, False), ("ticket", 7, False)):
        caplog.clear()
        site = Site(options=TreeOptions(mode=mode))  # type: ignore[arg-type]
        site.broker.last_epoch = epoch
        if is_lost:
            with pytest.raises(Behind, match=r"node root has lost its journal: .* remove this one and heal the node"):
                await site.host(MemoryJournal()).start()
        host = site.host(MemoryJournal(), heals=True)
        await host.start()
        assert (host.epoch > (epoch or 0) + 100) == is_lost, "later than any that somebody may have heard of"
        await host.stop()
        assert ("goes on without its journal" in caplog.text) == is_lost


async def test_a_tree_that_nodes_have_joined_or_left_is_not_healed() -> None:
    """The node would not know its shape."""
    site = Site(options=TreeOptions(mode="log"))
    site.broker.last_epoch = 7
    with pytest.raises(Behind, match="node root has lost its journal"):
        await site.host(MemoryJournal(), heals=True, is_reshaped=True).start()


async def test_a_node_does_not_start_if_nobody_can_tell_whether_it_is_new() -> None:
    site = Site(options=TreeOptions(mode="log"))

    async def refused(node: str) -> int | None:
        raise RequestRefused("no permission")

    site.broker.stamped_epoch = refused  # type: ignore[method-assign]
    with pytest.raises(RequestRefused, match="no permission"):
        await site.host(MemoryJournal()).start()


async def test_a_restart_after_a_crash_repeats_the_answer(tmp_path: Path) -> None:
    """The answer was lost with the process: the same request gets the same numbers from the next one."""
    site = Site()
    journal = FileJournal(tmp_path, fsync=False)
    host = site.host(journal)
    await host.start()
    granted = await site.ticket("p", 1, "A", 7)
    await journal.close()  # the lock goes with the process; nothing else happens to the journal
    other = Site()
    after = other.host(FileJournal(tmp_path, fsync=False))
    await after.start()
    repeated = await other.ticket("p", 1, "A", 7)
    assert (repeated.first, repeated.last, repeated.epoch) == (granted.first, granted.last, granted.epoch + 1)
    await after.stop()
    await host.stop()


async def test_a_node_is_rebuilt_from_a_snapshot_and_what_followed(tmp_path: Path) -> None:
    site = Site()
    journal = FileJournal(tmp_path, fsync=False)
    host = site.host(journal)
    await host.start()
    host.driver._snapshot_bytes_min = 2_000
    for i in range(200):
        granted = await site.ticket("p", i + 1, "AB"[i % 2])
        site.settle("p", granted)
    state = msgspec.msgpack.encode(host.machine.state)
    await host.stop()
    assert list(tmp_path.glob("snapshot-*.bin"))
    recovered = await FileJournal(tmp_path, fsync=False).open()
    assert recovered.snapshot is not None and len(recovered.records) < 300
    rebuilt = rebuild(TREE, "root", TICKETS, recovered)
    assert rebuilt.to_append is None and rebuilt.machine.epoch == 2
    rebuilt.machine.state.sequencer.epoch = 1
    before = msgspec.msgpack.decode(state)
    after = msgspec.msgpack.decode(msgspec.msgpack.encode(rebuilt.machine.state))
    assert after == before


async def test_time_does_not_run_backwards_over_a_restart() -> None:
    site = Site()
    journal = MemoryJournal()
    host = site.host(journal)
    await host.start()
    future = host.driver.clock.now_ms() + 1e9  # the machine's clock was wrong when the snapshot was taken
    state = encode_snapshot(found(TREE, "root", TICKETS), host.machine.state, future)
    await host.stop()
    await journal.snapshot(state)
    host = site.host(journal)
    await host.start()
    assert host.driver.clock.now_ms() >= future
    await host.stop()


async def test_a_node_that_fails_says_why_and_is_unplugged() -> None:
    class Failing(MemoryJournal):
        fails = False

        async def append(self, records: object) -> None:
            if self.fails:
                raise Fenced("somebody took over")

    site, journal = Site(), Failing()
    host = site.host(journal)
    await host.start()
    journal.fails = True
    site.send("p", Update(1, frozenset("A")))
    assert isinstance(await host.failed, Fenced)
    assert not site.switchboard.reaches("root") and site.answers["p"].empty()
    await host.stop()


@pytest.mark.parametrize(
    ("recovered", "problem"),
    [
        (
            Recovered(None, [b"junk"]),
            "does not hold the records of a node.*; use the order that the cluster had before",
        ),
        (Recovered(b"junk", []), "does not hold the records of a node"),
        (
            Recovered(None, [msgspec.msgpack.encode({"type": "TookOver", "epoch": 3})]),
            "does not begin as a node",
        ),
    ],
)
def test_a_journal_of_something_else(recovered: Recovered, problem: str) -> None:
    with pytest.raises(JournalError, match=problem):
        rebuild(TREE, "root", TICKETS, recovered)


async def test_a_journal_that_cannot_be_used_is_closed_again(tmp_path: Path) -> None:
    await numbers_of_a_life(FileJournal(tmp_path), Site(), 1)
    for _ in range(2):  # the second would be refused if the first still held the lock
        with pytest.raises(InputError, match="mode: the journal of root was written with 'ticket', not 'log'"):
            await Site(options=TreeOptions(mode="log")).host(FileJournal(tmp_path)).start()


# ── another configuration ─────────────────────────────────────────────────────────────────────────────────────────


async def founded_journal(tree: SequencingTree = TREE, options: TreeOptions = TICKETS) -> MemoryJournal:
    """Of a node that has given out five numbers of A."""
    journal = MemoryJournal()
    await numbers_of_a_life(journal, Site(tree, options), 5)
    return journal


@pytest.mark.parametrize("name", ["mode", "full_stamps"])
async def test_what_was_promised_cannot_change(name: str) -> None:
    journal = await founded_journal()
    other = structs.replace(TICKETS, **{name: "log" if name == "mode" else True})
    before = list(journal._records)
    with pytest.raises(InputError, match=f"{name}: the journal of root was written with .*; configure that, or start"):
        await Site(TREE, other).host(journal).start()
    assert journal._records == before


@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ({"root": None, "leaf": "root"}, r"node 'leaf' is new"),
        ({"root": "top", "top": None}, r"the journal knows 'root' below None, not below 'top'"),
    ],
)
async def test_the_shape_of_the_tree_cannot_change(parents: dict[str, str | None], problem: str) -> None:
    tree = SequencingTree(parents, {}, default_home="root")
    with pytest.raises(TreeError, match=problem):
        await Site(tree).host(await founded_journal(), "root").start()
    wide = SequencingTree({"root": None, "leaf": "root"}, {}, default_home="root")
    with pytest.raises(TreeError, match="the journal knows node 'leaf', which is not configured"):
        await Site(TREE).host(await founded_journal(wide)).start()


async def test_a_journal_is_of_one_node() -> None:
    tree = SequencingTree({"root": None, "leaf": "root"}, {}, default_home="root")
    journal = await founded_journal(tree)
    with pytest.raises(InputError, match="it belongs to node root, not to leaf; give every node a journal of its own"):
        await Site(tree).host(journal, "leaf").start()


WIDE: dict[str, str | None] = {"root": None, "leaf": "root"}


@pytest.mark.parametrize(
    ("configured", "told"),
    [
        (SequencingTree(WIDE, {"A": "leaf", "B": "root"}, "root"), "topics=1 live=A on root, not leaf"),
        (SequencingTree(WIDE, {"B": "root"}), "topics=1 live=A on root, not none, all others on root, not None"),
        (
            SequencingTree(WIDE, {"B": "root"}, "leaf"),
            "topics=1 live=A on root, not leaf, all others on root, not leaf",
        ),
        (SequencingTree(WIDE, {"B": "root", "new": "leaf"}, "root"), "topics=1 live=new on root, not leaf"),
        (SequencingTree(WIDE, {"B": "root"}, "root"), ""),
    ],
)
async def test_topics_live_where_they_began_whatever_the_file_says(
    configured: SequencingTree, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every node says so, also one that has not heard of the topic: else two would disagree where it lives."""
    journal = await founded_journal(SequencingTree(WIDE, {"A": "root", "B": "root"}, default_home="root"))
    caplog.clear()
    assert await numbers_of_a_life(journal, Site(configured), 1) == [6]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [told in each for each in warnings] == [True] * bool(told), warnings


async def test_a_topic_that_had_no_home_may_get_one(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can have used it."""
    journal = await founded_journal(SequencingTree(WIDE, {"A": "root"}))
    host = Site(SequencingTree(WIDE, {"A": "leaf", "new": "leaf"}, "root")).host(journal)
    await host.start()
    tree = host.machine.inner.tree
    await host.stop()
    assert (tree.home("A"), tree.home("new"), tree.home("other")) == ("root", "leaf", "root")
    assert "A on root, not leaf" in caplog.text
    assert "new on" not in caplog.text


async def test_other_options_change_and_records_are_replayed_under_their_own() -> None:
    """Under the new limit, two tickets of the past would be refused; under the old one, one of the present granted."""
    few = structs.replace(TICKETS, open_tickets_max=2, ticket_count_max=10)
    journal, site = MemoryJournal(), Site()
    host = site.host(journal)
    await host.start()
    for i in range(4):
        await site.ticket("p", i + 1, f"T{i}", 1)
    assert (await site.ticket("q", 1, "A", 100)).last == 100
    await host.stop()
    site = Site(TREE, few)
    host = site.host(journal)
    await host.start()
    assert (await site.ticket("r", 1, "A", 1)).first == 101
    assert "count 11 is not between" in (await site.refusal("r", 2, "B", 11)).reason
    assert "tickets are unsettled" in (await site.refusal("p", 5, "B")).reason
    await host.stop()
    for options in (few, TICKETS, few):  # and again, also from a snapshot
        site = Site(TREE, options)
        host = site.host(journal)
        await host.start()
        granted = await site.ticket(f"again {host.machine.epoch}", 1, "A", 1)
        site.settle(f"again {host.machine.epoch}", granted)
        await host.driver.settled()
        await journal.snapshot(encode_snapshot(found(TREE, "root", options), host.machine.state, 0.0))
        await host.stop()
    assert granted.first == 104


async def test_a_crash_between_founding_and_the_first_step() -> None:
    journal = await founded_journal()
    few = structs.replace(TICKETS, open_tickets_max=2)
    records = list(journal._records)
    host = Site(TREE, few).host(journal)
    await host.start()
    await host.stop()
    founded_at = len(records)
    assert msgspec.msgpack.decode(journal._records[founded_at])["type"] == "Founded"
    for kept in range(founded_at, len(journal._records) + 1):
        crashed = Recovered(None, journal._records[:kept])
        epoch = rebuild(TREE, "root", few, crashed).machine.epoch
        used = kept > founded_at + 1  # its epoch was recorded, so something may have left under it
        assert epoch > (host.machine.epoch if used else 1)


def test_options_of_a_later_version() -> None:
    founded = structs.replace(found(TREE, "root", TICKETS), options={"colour": "blue"})
    with pytest.raises(JournalError, match=r"options this program does not know \(colour\)"):
        founded.options_now(TICKETS)


def test_a_journal_from_before_tickets_settled_is_read_and_then_says_that_they_do() -> None:
    """Programs of that time would replay such tickets otherwise, and refuse what has an option they do not know."""
    now = found(TREE, "root", TICKETS)
    then = structs.replace(now, options={k: v for k, v in now.options.items() if k != "ticket_settles"})
    records = [encode_founded(then), msgspec.msgpack.encode(Stepped("p", Ticket(1, "A", 1), 1.0))]
    rebuilt = rebuild(TREE, "root", TICKETS, Recovered(None, records))
    assert rebuilt.machine.state.sequencer.homes["A"].issued == 1
    assert rebuilt.to_append == now


@pytest.mark.parametrize(("causal", "order"), [(True, "global"), (False, "pairwise")])
def test_a_journal_from_before_the_order_log_begins_its_order_when_it_is_started(causal: bool, order: str) -> None:
    """What it issued before has no place: on a tree its children would not have told of all of it."""
    options = structs.replace(TICKETS, order=order)
    now = found(TREE, "root", options)
    before = {name: value for name, value in now.options.items() if name not in ("order", "order_log")}
    then = structs.replace(now, options=before | {"causal": causal})
    records = [encode_founded(then), msgspec.msgpack.encode(Stepped("p", Ticket(1, "A", 3), 1.0))]
    rebuilt = rebuild(TREE, "root", options, Recovered(None, records))
    assert (rebuilt.to_append, rebuilt.machine.inner.order_position) == (now, 0)
    started = rebuilt.machine.tick(2.0)
    began = [each for each in started.persist if isinstance(each, Stepped) and each.message == BeginOrder()]
    assert len(began) == causal
    rebuilt.machine.step("q", Ticket(1, "A", 2), 3.0)
    assert rebuilt.machine.inner.order_position == (2 if causal else 0)
    if causal:  # global order was promised; pairwise order may become more
        other = structs.replace(options, order="pairwise")
        with pytest.raises(InputError, match="order: the journal of root was written with global order"):
            rebuild(TREE, "root", other, Recovered(None, records))


def test_no_key_is_written() -> None:
    """Options may hold a secret; the journal has only those that replaying needs."""
    assert set(found(TREE, "root", TICKETS).options) == {
        "mode",
        "order",
        "order_log",
        "full_stamps",
        "lease_ms",
        "ticket_count_max",
        "open_tickets_max",
        "stages_ahead",
        "ticket_settles",
    }
    assert isinstance(found(TREE, "root", TICKETS), Founded)


async def test_grants_after_a_change_carry_the_new_epoch() -> None:
    journal = await founded_journal()
    site = Site(TREE, structs.replace(TICKETS, lease_ms=5_000.0))
    host = site.host(journal)
    await host.start()
    granted = await site.ticket("p", 1)
    assert isinstance(granted, Granted) and granted.first == 6 and granted.epoch == host.machine.epoch >= 2
    await host.stop()
