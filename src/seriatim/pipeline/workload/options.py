"""The parameters of a workload, from which every row follows."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from seriatim.model import InputError

Popularity: TypeAlias = Literal["zipf", "power-law", "uniform"]
Kind: TypeAlias = Literal["swap", "duplicate", "gap"]
POPULARITIES: tuple[Popularity, ...] = get_args(Popularity)
KINDS: tuple[Kind, ...] = get_args(Kind)
EVENTS_MAX = 20_000_000  # of deliveries: every Python worker keeps 24 bytes of each
TOPICS_MAX = 10_000_000  # every Python worker keeps a few numbers of each


class Injection(Struct, frozen=True):
    """A violation that was put in on purpose: at one subscriber, from its notification `position` on. `swap`: it is
    notified of `event_id` and then of `other`, which others see the other way round. `duplicate`: of `event_id` again
    at `position`. `gap`: never of `event_id`, which would have been at `position`."""

    kind: Kind
    subscriber: str
    position: int
    event_id: str
    other: str = ""


class Workload(Struct, frozen=True, kw_only=True):
    """Everything that a row depends on, but for its own key. Topics are named by popularity: `t0` is the most popular.

    `zipf`: the i-th topic is chosen in proportion to i^-exponent. `power-law`: each topic's weight is drawn from a
    density w^-exponent, w ≥ 1. `common`: so many topics, the first ones, are held by everybody. `local_share`: the
    probability that a client chooses among the topics of its own site only. `churn`: the probability that a topic of a
    subscription was left for another one somewhere in the subscriber's first `notifications`.
    """

    seed: int = 1
    subscribers: int = 1_000
    topics: int = 100
    held: int = 10
    held_max: int = 0  # 0: everybody holds `held`; else between the two, in proportion to size^-2
    popularity: Popularity = "zipf"
    exponent: float = 1.0
    common: int = 0
    sites: int = 1
    local_share: float = 0.0
    churn: float = 0.0
    notifications: int = 1_000
    events: int = 10_000
    publishers: int = 10
    events_per_s: float = 1_000.0

    def __post_init__(self) -> None:
        for name in ("subscribers", "topics", "held", "sites", "publishers"):
            _check(name, getattr(self, name) >= 1, getattr(self, name), "give at least 1")
        for name in ("held_max", "common", "events", "notifications"):
            _check(name, getattr(self, name) >= 0, getattr(self, name), "give at least 0")
        for name in ("local_share", "churn"):
            _check(name, 0.0 <= getattr(self, name) <= 1.0, getattr(self, name), "give a probability, from 0 to 1")
        _check("popularity", self.popularity in POPULARITIES, self.popularity, f"use one of {', '.join(POPULARITIES)}")
        least = 1.0 if self.popularity == "power-law" else 0.0
        _check("exponent", least < self.exponent < 100.0, self.exponent, f"give a number above {least:g}, such as 2.1")
        _check("topics", self.topics <= TOPICS_MAX, self.topics, f"give at most {TOPICS_MAX:,}")
        _check("events_per_s", self.events_per_s > 0.0, self.events_per_s, "give a rate above 0")
        _check("sites", self.sites <= self.topics, self.sites, f"give every site a topic: at most {self.topics}")
        _check("held_max", not self.held_max or self.held_max >= self.held, self.held_max, f"at least {self.held}")
        most = self.held_most * (2 if self.churn else 1) + self.common
        fix = f"give at least {most} topics, or let subscribers hold fewer (a topic that is left needs another one)"
        _check("topics", self.topics >= most, self.topics, fix)

    @property
    def held_most(self) -> int:
        """The most topics that one subscriber holds, beside the common ones."""
        return self.held_max or self.held


def _check(name: str, is_right: bool, value: object, fix: str) -> None:
    if not is_right:
        raise InputError(name, f"{value!r} is not allowed", fix)
