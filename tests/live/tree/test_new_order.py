"""A node whose journal was written in pairwise order starts in global order, and couples what that asks for."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from seriatim import connect
from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.live.founding import encode_founded, encode_snapshot
from seriatim.live.server import SequencerServer
from seriatim.live.tree.founding import Founded, found, rebuild
from seriatim.model import Entries, History, InputError
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Update, Updated
from seriatim.runtime import Recovered
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.server.config import parse_config
from tests.brokers.nats.world import new_cluster, shared_server
from tests.live.tree.nodes import TREE, Site

GLOBAL = TreeOptions(mode="ticket")
PAIRWISE = TreeOptions(mode="ticket", order="pairwise")
WAIT_S = 60.0


class Life:
    """One process of the node, and what clients ask of it."""

    def __init__(self, journal: MemoryJournal, options: TreeOptions) -> None:
        self.site = Site(options=options)
        self.host = self.site.host(journal)

    async def __aenter__(self) -> "Life":
        await self.host.start()
        self.publisher = f"p{self.host.epoch}"
        self.requests = 0
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.host.stop()

    async def holds(self, subscriber: str, version: int, topics: str) -> None:
        self.site.send(subscriber, Update(version, frozenset(topics)))
        assert isinstance(await self.site.answer(subscriber), Updated)

    async def stamp(self, topic: str) -> Entries:
        """The entries of the topic's next event."""
        self.requests += 1
        granted = await self.site.ticket(self.publisher, self.requests, topic)
        self.site.settle(self.publisher, granted)
        return granted.entries


async def pairwise_journal() -> MemoryJournal:
    """One subscriber holds A and B; both have events, which do not name each other."""
    journal = MemoryJournal()
    async with Life(journal, PAIRWISE) as life:
        await life.holds("s", 1, "AB")
        assert [await life.stamp(topic) for topic in "AAB"] == [{}, {}, {}]
    return journal


async def test_the_next_event_carries_the_base_and_later_ones_what_rose() -> None:
    journal = await pairwise_journal()
    async with Life(journal, GLOBAL) as life:
        assert [await life.stamp(topic) for topic in "BBABA"] == [{"A": 2}, {}, {"B": 3}, {"A": 3}, {"B": 4}]
    async with Life(journal, GLOBAL) as life:  # the record of the change is replayed
        assert [await life.stamp(topic) for topic in "BA"] == [{"A": 4}, {"B": 5}]


async def test_publishers_may_keep_their_own_order_from_then_on() -> None:
    """The part of the journal in pairwise order, which does not allow it, is replayed without."""
    journal = await pairwise_journal()
    async with Life(journal, structs.replace(GLOBAL, own_order=True)) as life:
        assert [await life.stamp(topic) for topic in "BA"] == [{"A": 2}, {"B": 2}]


async def test_a_restart_without_an_event_between_still_carries_it() -> None:
    journal = await pairwise_journal()
    async with Life(journal, GLOBAL):
        pass
    async with Life(journal, GLOBAL) as life:
        assert [await life.stamp(topic) for topic in "BA"] == [{"A": 2}, {"B": 2}]


async def test_replaying_gives_the_same_node_wherever_the_process_died() -> None:
    journal = await pairwise_journal()
    before = len(journal._records)
    async with Life(journal, GLOBAL) as life:
        for topic in "BAB":
            await life.stamp(topic)
        await life.host.driver.settled()
        lived = life.host.machine.state.sequencer
    for kept in range(before, len(journal._records) + 1):
        once, twice = (rebuild(TREE, "root", GLOBAL, Recovered(None, journal._records[:kept])) for _ in range(2))
        assert once.machine.state == twice.machine.state
    again = once.machine.state.sequencer
    for name in ("passages", "homes", "regroupings"):
        assert getattr(again, name) == getattr(lived, name)
    assert again.couplings.together == lived.couplings.together


async def test_the_change_is_found_behind_a_snapshot() -> None:
    journal = await pairwise_journal()
    async with Life(journal, PAIRWISE) as life:
        state = encode_snapshot(found(TREE, "root", PAIRWISE), life.host.machine.state, 0.0)
    await journal.snapshot(state)
    async with Life(journal, GLOBAL) as life:
        assert await life.stamp("B") == {"A": 2}
    async with Life(journal, GLOBAL) as life:
        assert await life.stamp("A") == {"B": 2}


async def test_a_coupling_that_was_about_to_end_goes_on() -> None:
    """Two held both; one has left. In pairwise order the next event would carry the entry for the last time."""
    journal = MemoryJournal()
    async with Life(journal, PAIRWISE) as life:
        await life.holds("s", 1, "AB")
        await life.holds("t", 1, "AB")
        assert [await life.stamp(topic) for topic in "AB"] == [{}, {"A": 1}]
        await life.holds("t", 2, "A")
    async with Life(journal, GLOBAL) as life:
        assert [await life.stamp(topic) for topic in "ABAB"] == [{"B": 1}, {"A": 2}, {"B": 2}, {"A": 3}]


async def test_global_order_does_not_become_pairwise() -> None:
    journal = MemoryJournal()
    async with Life(journal, GLOBAL) as life:
        await life.stamp("A")
    records = list(journal._records)
    with pytest.raises(InputError) as refused:
        await Life(journal, PAIRWISE).host.start()
    assert str(refused.value) == (
        "order: the journal of root was written with global order, which everybody was promised; "
        'configure order = "global", or start anew: a new cluster name and empty journals'
    )
    assert journal._records == records


# ── journals of earlier versions ──────────────────────────────────────────────────────────────────────────────────


def as_before(journal: MemoryJournal, causal: bool) -> None:
    """Write the founding of a journal as earlier versions did: with `causal`, and without `order`."""
    for index, record in enumerate(journal._records):
        if msgspec.msgpack.decode(record)["type"] == "Founded":
            founded = msgspec.msgpack.decode(record, type=Founded)
            options = {name: value for name, value in founded.options.items() if name != "order"}
            journal._records[index] = encode_founded(structs.replace(founded, options={**options, "causal": causal}))


async def test_a_journal_of_an_earlier_version_starts_in_either_order() -> None:
    journal = await pairwise_journal()
    as_before(journal, causal=False)
    async with Life(journal, PAIRWISE) as life:
        assert await life.stamp("B") == {}
    async with Life(journal, GLOBAL) as life:
        assert await life.stamp("B") == {"A": 2}


async def test_a_causal_journal_of_an_earlier_version_was_global() -> None:
    journal = MemoryJournal()
    async with Life(journal, GLOBAL) as life:
        await life.holds("s", 1, "AB")
        assert [await life.stamp(topic) for topic in "AB"] == [{}, {"A": 1}]
    as_before(journal, causal=True)
    with pytest.raises(InputError, match="order: the journal of root was written with global order"):
        await Life(journal, PAIRWISE).host.start()
    async with Life(journal, GLOBAL) as life:
        assert [await life.stamp(topic) for topic in "BA"] == [{}, {"B": 2}], "it was coupled before"


# ── a whole cluster ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_cluster_with_durable_subscriptions_goes_on(tmp_path: Path, mode: str) -> None:
    """Three subscribers that share one topic with each other: only global order keeps them from a cycle."""
    nats, cluster = shared_server(), new_cluster()
    a, b, c = (f"{cluster}.{each}" for each in "abc")
    held = {"ab": (a, b), "bc": (b, c), "ac": (a, c)}
    nodes: dict[str, dict[str, Any]] = {"root": {}, "eu": {"parent": "root"}, "us": {"parent": "root"}}

    def server(addresses: dict[str, str], order: str) -> SequencerServer:
        placed = {name: {"address": addresses.get(name, "127.0.0.1:0"), **node} for name, node in nodes.items()}
        words = {"cluster": cluster, "broker": nats.url, "mode": mode, "order": order, "homes": {a: "eu", b: "us"}}
        return SequencerServer(parse_config({**words, "nodes": placed}, tmp_path))

    running = server({}, "pairwise")
    await running.start()
    addresses = dict(running.addresses)
    logs, journals = tmp_path / "logs", tmp_path / "journals"
    late: set[str] = set()  # published in global order
    unread = 0
    try:
        for life, left in (("pairwise", 5), ("global", 5), ("global", 0)):
            if life == "global":
                await running.stop()
                running = server(addresses, life)
                await running.start()
            async with connect(
                nats.url, cluster=cluster, timeout_s=WAIT_S, journals=journals, publication_log=logs
            ) as bus:
                subscriptions = {name: bus.subscribe(*topics, durable=name, log=logs) for name, topics in held.items()}
                for subscription in subscriptions.values():
                    await subscription.__aenter__()
                receipts = [await bus.publish_many([(topic, b"") for topic in (a, b, c)]) for _ in range(10)]
                if life == "global":
                    late |= {receipt.id for each in receipts for receipt in each}
                for subscription in subscriptions.values():
                    for _ in range(unread + 20 - left):
                        await subscription.next(WAIT_S)
                    await subscription.acknowledge()
                    await subscription.close()
            unread = left
    finally:
        await running.stop()
    history = read_history(logs)
    report = audit(history)
    wanted = ("per-topic", "tno", "integrity", "completeness")
    assert {name: report.verdicts[name].answer for name in wanted} == dict.fromkeys(wanted, "valid"), report.anomalies
    assert len(history.deliveries) == 3 * 60
    since = audit(History([row for row in history.deliveries if row.event_id in late]))
    assert since.anomalies_against(["acyclic"]) == ()
