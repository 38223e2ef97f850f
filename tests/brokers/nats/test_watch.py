"""The pace at which a home asks how long its logs are: at once while little comes, all in step when much does."""

from types import SimpleNamespace
from typing import Any

import pytest

from seriatim.brokers.nats import watch as nats_watch
from seriatim.brokers.nats.watch import (
    FULL_LOAD_PER_S,
    IN_STEP_PER_S,
    PACE_MS,
    QUESTIONS_PER_S,
    Watched,
    Watcher,
    _next_moment,
)

NOW_S = 1_000.0


class Asking:
    """A watcher whose clock stands still, and the topics it asks about at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate_per_s: float) -> None:
        monkeypatch.setattr(nats_watch, "time", SimpleNamespace(monotonic=lambda: NOW_S))
        self.at_once: list[str] = []
        link = SimpleNamespace(on_up=[], on_down=[], ask=self._ask)
        streams: Any = SimpleNamespace(
            api=SimpleNamespace(link=link, prefix="$JS.API"),
            names=SimpleNamespace(buckets=None, prefix="test"),
            hear_of_deleted=lambda tell: None,
            hear_no_more=lambda tell: None,
        )
        stamps: Any = None
        self.watcher = Watcher(streams, stamps, lambda message: None, lambda message, error: None)
        self.watcher._rate_per_s = rate_per_s

    def _ask(self, subject: str, *_: object) -> None:
        self.at_once.append(subject.rpartition(".")[2])

    def after_s(self, *asked_s_ago: float) -> list[float]:
        """When topics that were asked so long ago are asked again, from now."""
        topics = [Watched(f"T{i}", f"S{i}", asked_at=NOW_S - ago_s) for i, ago_s in enumerate(asked_s_ago)]
        self.watcher._busy.update(each.topic for each in topics)
        for each in topics:
            self.watcher._ask_soon(each)
        self.watcher.close()
        return [each.due - NOW_S if each.due is not None else 0.0 for each in topics]


async def test_at_low_load_a_topic_is_asked_at_once_or_after_its_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(monkeypatch, rate_per_s=200.0)
    pace_s = max(PACE_MS, 3_000 / QUESTIONS_PER_S) / 1000.0
    assert asking.after_s(1.0, 1.1 * pace_s, 0.0005) == [0.0, 0.0, pytest.approx(pace_s - 0.0005, abs=0.0001)]
    assert asking.at_once == ["S0", "S1"]


async def test_under_load_all_topics_are_asked_at_the_same_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(monkeypatch, rate_per_s=2.0 * FULL_LOAD_PER_S)
    due = asking.after_s(0.031, 0.030, 0.029, 0.020)
    assert len(set(due)) == 1
    assert 0.05 <= due[0] <= 0.15, "up to fifty times the pace"


async def test_half_of_the_load_costs_little_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    assert IN_STEP_PER_S < FULL_LOAD_PER_S / 2
    (due,) = Asking(monkeypatch, FULL_LOAD_PER_S / 2).after_s(0.0)
    assert due < 0.045


def test_who_is_a_little_early_goes_with_the_others_and_who_is_late_with_their_next_round() -> None:
    assert _next_moment(10.0, 0.1) == pytest.approx(10.0)
    assert _next_moment(10.02, 0.1) == pytest.approx(10.0), "its pace would allow it a little later"
    assert _next_moment(10.03, 0.1) == pytest.approx(10.1)
    assert _next_moment(10.1, 0.1001) == _next_moment(10.1, 0.0999), "small changes of the load move nothing"
    assert _next_moment(10.0, 0.0) == pytest.approx(10.0)
