"""A node's state as bytes: it is read exactly as it was written, and goes on exactly as if it had never been."""

from random import Random
from typing import Any

import msgspec
import pytest

from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.tree import SequencerNode, SequencerNodeState
from seriatim.protocols.tree.messages import Input
from tests.cases import some_of
from tests.protocols.tree.net import Net, options_for
from tests.protocols.tree.test_take_over import TREES, some_actions, without_timers

OPTIONS: dict[str, dict[str, Any]] = {
    "log": {"mode": "log"},
    "log, leases": {"mode": "log", "subscriber_lease_ms": 60.0},
    "ticket": {"mode": "ticket"},
    "ticket, own order, lasting": {
        "mode": "ticket",
        "own_order": True,
        "order": "global",
        "durable": True,
        "subscriber_lease_ms": 60.0,
    },
    "ticket, full and proven": {"mode": "ticket", "full_stamps": True, "stamp_key": bytes(16)},
}
each_option = pytest.mark.parametrize("options", OPTIONS)
each_shape = pytest.mark.parametrize("shape", sorted(TREES))
each_seed = pytest.mark.parametrize("seed", some_of(range(6), 2))

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(SequencerNodeState).decode
decode_record = msgspec.msgpack.Decoder(Stepped[Input] | TookOver).decode


def a_run(shape: str, options: str, seed: int, takes_snapshots: bool = False) -> tuple[Net, dict[str, Any]]:
    """A random history, a take-over included; some snapshots of each node, with how many records each stands for."""
    random = Random(f"{shape} {options} {seed}")
    net = Net(TREES[shape], options_for(**OPTIONS[options]))
    snapshots: dict[str, list[tuple[int, bytes]]] = {name: [] for name in net.tree.parents}
    for _ in range(12):
        some_actions(net, random, 4)
        if random.random() < 0.2:
            net.take_over(random.choice(sorted(net.tree.parents)))
        if takes_snapshots:
            for name, taken in snapshots.items():
                taken.append((len(net.journals[name]), encode(net.node(name).state)))
    return net, snapshots


def replayed(net: Net, name: str, records: list[Any], state: SequencerNodeState | None = None) -> SequencerNode:
    machine = SequencerNode(net.tree, name, net.options, state)
    for record in records:
        machine._replay(record)
    return machine


@each_seed
@each_shape
@each_option
def test_what_is_read_is_what_was_written(options: str, shape: str, seed: int) -> None:
    net, _ = a_run(shape, options, seed)
    for name in net.tree.parents:
        state = net.node(name).state
        assert decode(encode(state)) == state
        records = net.journals[name]
        assert [decode_record(encode(record)) for record in records] == records


@each_seed
@each_shape
@each_option
def test_a_snapshot_and_the_rest_of_the_journal_are_the_whole_journal(options: str, shape: str, seed: int) -> None:
    net, _ = a_run(shape, options, seed)
    random = Random(seed)
    for name in net.tree.parents:
        records = net.journals[name]
        whole = replayed(net, name, records)
        for cut in {0, len(records), *(random.randint(0, len(records)) for _ in range(4))}:
            state = decode(encode(replayed(net, name, records[:cut]).state))
            assert replayed(net, name, records[cut:], state).state == whole.state, f"cut at {cut} of {len(records)}"
            state = decode(encode(replayed(net, name, records[:cut]).state))
            one = SequencerNode.take_over(net.tree, name, net.options, records[cut:], state)
            other = SequencerNode.take_over(net.tree, name, net.options, records)
            assert one.state == other.state
            assert one.explain() == other.explain()
            ours, theirs = one.tick(net.now), other.tick(net.now)
            assert (ours.persist, ours.send, ours.wake_at) == (theirs.persist, theirs.send, theirs.wake_at)


@each_seed
@each_shape
@each_option
def test_a_snapshot_of_a_running_node_stands_for_its_records(options: str, shape: str, seed: int) -> None:
    """Only what ticks have tidied up or put off may differ; messages that were acknowledged need not come back."""
    net, snapshots = a_run(shape, options, seed, takes_snapshots=True)
    for name, taken in snapshots.items():
        records = net.journals[name]
        whole = SequencerNode.take_over(net.tree, name, net.options, records)
        for count, data in taken:
            node = SequencerNode.take_over(net.tree, name, net.options, records[count:], decode(data))
            ours, theirs = (without_timers(each.state.sequencer, net.now) for each in (node, whole))
            for state in (ours, theirs):
                for holder in state.couplings.holders.values():
                    holder.heard_at = 0.0  # a node that starts has heard of everybody just now
            assert ours == theirs, f"{name}: snapshot after {count} of {len(records)} records"
            for neighbour, link in node.state.links.items():
                other = whole.state.links[neighbour]
                assert (link.sent, link.received) == (other.sent, other.received)
                assert link.unacknowledged.items() <= other.unacknowledged.items()
