"""The reference auditor on logs of VCube-PS: whoever breaks causal order is convicted, without barriers too."""

from collections.abc import Callable

import pytest
from msgspec import structs

from seriatim.audit import audit
from seriatim.explore.vcube_variants import peer_of
from seriatim.model import Event, History, Notification
from seriatim.protocols.vcube import Peer
from seriatim.protocols.vcube.messages import Born, Subscribed, Unsubscribed
from seriatim.sim.peer_recorder import PeerRecorder
from tests.audit.peer_logs import BREAKING, chat, log_of


@pytest.mark.parametrize("variant", BREAKING)
def test_who_breaks_causal_order_is_convicted(variant: str) -> None:
    report = audit(log_of(variant, peer_of(variant)))
    assert report.verdicts["causal"].answer == "invalid"
    assert "was notified of" in report.anomalies_against(["causal"])[0].sentence
    right = audit(log_of(variant, Peer))
    assert right.verdicts["causal"].answer == "valid" and right.verdicts["integrity"].answer == "valid"


@pytest.mark.parametrize("seed", range(3))
def test_simulated_peers_that_come_go_and_restart_keep_causal_order(seed: int) -> None:
    history = chat(seed)
    report = audit(history)
    assert [report.verdicts[name].answer for name in ("causal", "integrity")] == ["valid", "valid"], report
    assert {"peer0", "peer1"} <= {row.subscriber for row in history.deliveries}
    assert any("." in row.subscriber for row in history.deliveries)  # a second life, with a log of its own
    assert any(row.until is not None for row in history.subscriptions)
    assert any(row.seen for row in history.publications) and any(row.stamp for row in history.deliveries)


def without_barriers(history: History) -> History:
    rows = [structs.replace(row, stamp=None) for row in history.deliveries]
    return History(rows, history.publications, history.subscriptions)


def without_seen(history: History) -> History:
    rows = [structs.replace(row, seen=None) for row in history.publications]
    return History(history.deliveries, rows, history.subscriptions)


def without_publications(history: History) -> History:
    return History(history.deliveries)


def without_one_peer(history: History) -> History:
    """Somebody's log is lost, and with it what it published and had seen."""
    lost = next(row.publisher for row in history.publications if row.seen)
    return History(
        [row for row in history.deliveries if row.subscriber != lost],
        [row for row in history.publications if row.publisher != lost],
    )


def test_barriers_are_not_needed() -> None:
    for variant in BREAKING:
        for peer in (peer_of(variant), Peer):
            history = log_of(variant, peer)
            assert audit(without_barriers(history)).verdicts == audit(history).verdicts


@pytest.mark.parametrize("less", [without_seen, without_publications, without_one_peer])
def test_what_the_log_does_not_tell_is_unknown(less: Callable[[History], History]) -> None:
    """Also of a log that is right: it is not called valid."""
    assert audit(less(chat(0))).verdicts["causal"].answer == "unknown"


def test_each_life_is_a_subscriber_of_its_own() -> None:
    recorder = PeerRecorder()
    own = Event("a", "A", "peer3")
    recorder.notified("peer3", Subscribed("A"))
    recorder.notified("peer3", Notification(Event("b", "A", "peer1"), 1, {}))
    recorder.notified("peer3", Notification(own, 1, {"1": 1}))
    recorder.notified("peer3", Born(1, (), True))
    recorder.notified("peer3", Notification(own, 1, {"1": 1}))  # what its first life published, from others
    recorder.notified("peer3", Subscribed("A"))
    recorder.notified("peer3", Unsubscribed("A"))
    recorder.notified("peer3", Subscribed("B"))
    histories = recorder.histories()
    history = histories["A"]
    told = [(row.subscriber, row.position, row.event_id, row.stamp) for row in history.deliveries]
    assert told == [("peer3", 0, "b", {}), ("peer3", 1, "a", {"1": 1}), ("peer3.1", 0, "a", {"1": 1})]
    assert [(row.event_id, row.publisher, row.sequence, row.seen) for row in history.publications] == [
        ("a", "peer3", 0, 1)
    ]
    stays = [(row.subscriber, row.since, row.until) for row in history.subscriptions]
    assert stays == [("peer3", 0, 2), ("peer3.1", 0, 1)]
    assert [(row.subscriber, row.until) for row in histories["B"].subscriptions] == [("peer3.1", None)]
