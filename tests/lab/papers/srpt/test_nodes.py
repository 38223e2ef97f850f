"""One node, one broker, one client at a time."""

import pytest

from seriatim.lab.papers.srpt import Broker, Client, Overlay, SrptNode
from seriatim.lab.papers.srpt.messages import Join, Joined, Leave, Pub, Request
from seriatim.model import APPLICATION, Event, InputError, Notification, RemoteError
from seriatim.protocols.vcube.cube import cluster_of, nearest
from seriatim.protocols.vcube.messages import Publish, Subscribe, Subscribed, Unsubscribe, Unsubscribed
from tests.nonsense import Nonsense

EVENT = Event("e1", "T", "somebody")


@pytest.mark.parametrize("ids", [range(16), [1, 2, 5, 11, 12, 13, 40], [7]])
def test_parents_make_the_spanning_tree_of_the_root(ids: list[int]) -> None:
    for root in ids:
        overlay = Overlay(ids, {"T": root})
        expected: dict[int, int | None] = {root: None}
        pending = [(root, 7)]
        while pending:  # the tree as VCube builds it, downwards
            node, height = pending.pop()
            for s in range(1, height + 1):
                child = nearest(sorted(ids), node, s)
                if child is not None:
                    expected[child] = node
                    pending.append((child, s - 1))
        assert {id: overlay.parent("T", id) for id in ids} == expected


def test_a_publication_goes_to_the_root_and_down_in_the_order_of_clusters() -> None:
    overlay = Overlay(range(8), {"T": 0})
    publisher = SrptNode(overlay, 5)
    assert publisher.step(APPLICATION, Publish(EVENT), 0.0).send == [("node0", Request(EVENT))]
    root = SrptNode(overlay, 0)
    for child in (4, 1, 2):
        assert root.step(f"node{child}", Join("T", 1), 0.0).send == [(f"node{child}", Joined("T", 1, 0))]
    sent = root.step("node5", Request(EVENT), 0.0)
    assert [target for target, _ in sent.send] == ["node1", "node2", "node4"]
    assert sorted([1, 2, 4], key=lambda id: cluster_of(0, id)) == [1, 2, 4]
    assert sent.notify == []


def test_a_forwarder_joins_for_others_and_leaves_after_them() -> None:
    overlay = Overlay(range(8), {"T": 0})
    forwarder = SrptNode(overlay, 6)  # between 4 and 7
    assert forwarder.step("node7", Join("T", 1), 0.0).send == [("node4", Join("T", 1))]
    assert forwarder.step("node4", Joined("T", 1, 9), 0.0).send == [("node7", Joined("T", 1, 9))]
    passed = forwarder.step("node4", Pub(10, EVENT), 0.0)
    assert passed.send == [("node7", Pub(10, EVENT))]
    assert passed.notify == []
    assert forwarder.step("node7", Leave("T"), 0.0).send == [("node4", Leave("T"))]
    assert forwarder.step("node4", Pub(11, EVENT), 0.0).send == []


def test_an_answer_to_a_join_that_was_taken_back_is_ignored() -> None:
    node = SrptNode(Overlay(range(8), {"T": 0}), 4)
    assert node.step(APPLICATION, Subscribe("T"), 0.0).send == [("node0", Join("T", 1))]
    left = node.step(APPLICATION, Unsubscribe("T"), 0.0)
    assert (left.send, left.notify) == ([("node0", Leave("T"))], [Unsubscribed("T")])
    assert node.step(APPLICATION, Subscribe("T"), 0.0).send == [("node0", Join("T", 2))]
    assert node.step("node0", Joined("T", 1, 3), 0.0).notify == []
    assert node.step("node0", Pub(4, EVENT), 0.0).notify == []
    assert node.step("node0", Joined("T", 2, 4), 0.0).notify == [Subscribed("T")]
    assert node.step("node0", Pub(5, EVENT), 0.0).notify == [Notification(EVENT, 5, {})]


def test_a_broker_sends_to_its_children_and_then_to_its_clients() -> None:
    broker = Broker(Overlay(range(4), {"T": 0}, prefix="broker"), 0)
    assert broker.step("ann", Join("T", 1), 0.0).send == [("ann", Joined("T", 1, 0))]
    broker.step("broker2", Join("T", 1), 0.0)
    sent = broker.step("bob", Request(EVENT), 0.0).send
    assert sent == [("broker2", Pub(1, EVENT)), ("ann", Pub(1, EVENT))]
    broker.step("ann", Leave("T"), 0.0)
    assert broker.step("bob", Request(EVENT), 0.0).send == [("broker2", Pub(2, EVENT))]


def test_a_client_knows_only_its_broker() -> None:
    client = Client("broker0")
    assert client.step(APPLICATION, Publish(EVENT), 0.0).send == [("broker0", Request(EVENT))]
    assert client.step(APPLICATION, Subscribe("T"), 0.0).send == [("broker0", Join("T", 1))]
    assert client.step("broker0", Joined("T", 1, 2), 0.0).notify == [Subscribed("T")]
    assert client.step("broker0", Pub(3, EVENT), 0.0).notify == [Notification(EVENT, 3, {})]
    with pytest.raises(RemoteError, match="publication 5 of 'T' after 3"):
        client.step("broker0", Pub(5, EVENT), 0.0)
    with pytest.raises(RemoteError, match="not the broker of this client"):
        client.step("broker1", Pub(4, EVENT), 0.0)


def test_what_is_refused_and_why() -> None:
    overlay = Overlay(range(8), {"T": 0})
    node = SrptNode(overlay, 4)
    with pytest.raises(RemoteError, match="not its root"):
        node.step("node1", Request(EVENT), 0.0)
    with pytest.raises(RemoteError, match="not its parent"):
        node.step("node1", Pub(1, EVENT), 0.0)
    with pytest.raises(RemoteError, match="wants to be below node 4"):
        node.step("node1", Join("T", 1), 0.0)
    with pytest.raises(InputError, match="a node does not take"):
        node.step(APPLICATION, Nonsense(), 0.0)
    with pytest.raises(RemoteError, match="does not understand"):
        node.step("node0", Nonsense(), 0.0)
    with pytest.raises(InputError, match="there is no node 9"):
        Overlay(range(8), {"T": 9})
    with pytest.raises(InputError, match="9 is not among the nodes"):
        SrptNode(overlay, 9)
    with pytest.raises(InputError, match="has no application"):
        Broker(overlay, 1).step(APPLICATION, Publish(EVENT), 0.0)
