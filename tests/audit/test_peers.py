"""The reference auditor on logs of VCube-PS: whoever breaks causal order is convicted, without barriers too."""

import pytest

from seriatim.audit import audit
from seriatim.lab.explore.registry import VCUBE
from seriatim.lab.sim.peer_recorder import PeerRecorder
from seriatim.model import Event, Notification
from seriatim.protocols.vcube import Peer
from seriatim.protocols.vcube.messages import Born, Subscribed, Unsubscribed
from tests.audit.peer_logs import BREAKING, chat, log_of, logs_with_verdicts


@pytest.mark.parametrize("variant", BREAKING)
def test_who_breaks_causal_order_is_convicted(variant: str) -> None:
    report = audit(log_of(variant, VCUBE.cast(variant)))
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


def test_what_the_logs_tell_is_said_and_nothing_else() -> None:
    """Barriers are not needed; without `seen`, or without somebody's log, a right log is not called valid."""
    logs = logs_with_verdicts()
    assert {answer for _, answer in logs.values()} == {"valid", "invalid", "unknown"}
    for name, (history, answer) in logs.items():
        assert audit(history).verdicts["causal"].answer == answer, name


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
