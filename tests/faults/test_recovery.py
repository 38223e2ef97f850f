"""Recovery times come from the rows: the next event published after the fault began, from the moment it was undone."""

from soak.tree.recovery import Recovery, recoveries, spreads
from soak.tree.rows import Attempted, Handed, Injected
from soak.tree.verify import Account, Verdict


def verdict(*rows: tuple[str, str, float, float], publisher: str = "p/1") -> Verdict:
    """(id, topic, attempted at, handed to s at)"""
    return Verdict(
        attempts={id: Attempted(id, topic, publisher, 0, at) for id, topic, at, _ in rows},
        accounts={"s": Account("s", [Handed(id, topic, 1, at) for id, topic, _, at in rows])},
    )


FAULT = Injected("kill-sequencer", "root", 10.0, 12.0, ["a"], ["s"])


def test_recovery_ends_with_the_first_event_published_after_the_fault_began() -> None:
    seen = verdict(("e1", "a", 9.0, 12.1), ("e2", "a", 10.5, 12.4), ("e3", "a", 11.0, 12.5))
    assert recoveries(seen, [FAULT]) == [Recovery("kill-sequencer", "root", "s", 12.4 - 12.0, 12.4 - 10.0)]


def test_other_topics_and_earlier_notifications_say_nothing() -> None:
    seen = verdict(("e1", "a", 10.1, 10.2), ("e2", "b", 11.0, 12.1))
    assert recoveries(seen, [FAULT]) == []


def test_a_killed_publisher_is_back_when_its_own_events_come() -> None:
    fault = Injected("kill-publisher", "q", 10.0, 12.0, ["a"], ["s"], publisher="q")
    assert recoveries(verdict(("e1", "a", 12.1, 12.2)), [fault]) == []
    assert len(recoveries(verdict(("e1", "a", 12.1, 12.2), publisher="q/7"), [fault])) == 1


def test_a_subscriber_that_was_struck_itself_is_back_with_any_event() -> None:
    fault = Injected("kill-subscriber", "s", 10.0, 12.0, ["a"], ["s"], fresh=False)
    seen = verdict(("e1", "a", 9.0, 12.1))
    assert [each.recovery_s for each in recoveries(seen, [fault])] == [12.1 - 12.0]


def test_overlapping_faults_are_not_measured() -> None:
    fault = Injected("kill-nats", "nats", 10.0, 12.0, ["a"], ["s"], alone=False)
    assert recoveries(verdict(("e1", "a", 12.1, 12.2)), [fault]) == []


def test_spreads_by_kind_of_fault() -> None:
    found = [Recovery("kill-nats", "nats", name, s, s + 1.0) for name, s in [("s", 0.1), ("t", 0.5), ("u", 0.3)]]
    assert spreads(found)["kill-nats"].recovery_s_p50 == 0.3
    assert spreads(found)["kill-nats"].recovery_s_max == 0.5
    assert spreads(found)["kill-nats"].silence_s_max == 1.5
