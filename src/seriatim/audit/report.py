"""The result of an audit: a verdict for every guarantee, and the named anomalies that prove each `invalid`.

The checks write into `Findings`: anomalies (facts, with their witness) and doubts (why nothing can be promised). One
rule, over the lattice of guarantees, turns them into verdicts: a guarantee is `invalid` if an anomaly breaks it or one
that it implies; otherwise `unknown` if there is a doubt about it or one that it implies; otherwise `valid`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from seriatim.model import Delivery, Placement, Publication, Subscription
from seriatim.order import GUARANTEES, implied_by

Answer: TypeAlias = Literal["valid", "invalid", "unknown"]
Row: TypeAlias = Delivery | Publication | Subscription | Placement

STOPPED = "not checked: the audit was stopped"
AGREEMENT = frozenset({"per-topic", "tno", "acyclic"})  # these compare subscribers with each other
NOTHING_SHARED = "nothing was compared, because no event was notified to two subscribers"

# Every anomaly, and the weakest guarantee that it breaks.
ANOMALIES: dict[str, str] = {
    "fifo-inversion": "fifo",
    "fifo-inversion-across-topics": "fifo-across-topics",
    "causal-inversion": "causal",
    "topic-inversion": "per-topic",
    "inversion": "tno",
    "cycle": "acyclic",
    "duplicate": "integrity",
    "phantom": "integrity",
    "reused-id": "integrity",
    "number-mismatch": "integrity",
    "gap": "completeness",
}

# The anomalies of a certificate (certificate.py), which is no guarantee, but has a verdict like one.
CERTIFICATE = "certificate"
AGAINST_ORDER: dict[str, str] = dict.fromkeys(
    (
        "order-log-gap",
        "order-log-overlap",
        "order-log-skip",
        "order-log-back",
        "order-inversion",
        "order-repeat",
        "position-mismatch",
        "place-mismatch",
    ),
    CERTIFICATE,
)
BREAKS = ANOMALIES | AGAINST_ORDER


class Anomaly(Struct, frozen=True):
    """One violation: its name, one sentence, and the rows that prove it. No row can be left out."""

    name: str
    sentence: str
    witness: tuple[Row, ...]


class Verdict(Struct, frozen=True):
    """The answer for one guarantee. `valid` means: no violation in this log."""

    guarantee: str
    answer: Answer
    reason: str


class Report(Struct, frozen=True):
    """An audit's result.

    `counts` has every anomaly found, by name; `anomalies` shows at most a few of each. `order` proves a valid
    `acyclic`: all event ids in an order that fits every subscriber (tagged rows and repeats left out). With an order
    log, `verdicts` has the `certificate` too.
    `shared` counts the events that two or more subscribers were notified of: with none, agreement was not tested.
    """

    verdicts: dict[str, Verdict]
    anomalies: tuple[Anomaly, ...]
    counts: dict[str, int]
    order: tuple[str, ...] | None
    deliveries: int
    subscribers: int
    events: int
    shared: int
    out_of_order: int

    def answer(self, guarantees: Iterable[str] = GUARANTEES) -> Answer:
        """The worst answer among these guarantees: invalid, otherwise unknown, otherwise valid."""
        answers = {self.verdicts[name].answer for name in guarantees}
        if "invalid" in answers:
            return "invalid"
        return "unknown" if "unknown" in answers else "valid"

    def anomalies_against(self, guarantees: Iterable[str]) -> tuple[Anomaly, ...]:
        """The anomalies that break at least one of these guarantees."""
        below = frozenset[str]().union(*map(judged_with, guarantees))
        return tuple(anomaly for anomaly in self.anomalies if BREAKS[anomaly.name] in below)


def judged_with(name: str) -> frozenset[str]:
    """What is broken if this is: a guarantee and all that it implies, or the certificate."""
    return frozenset({name}) if name == CERTIFICATE else implied_by(name)


def extent(deliveries: int, subscribers: int) -> str:
    """How much was looked at, as all auditors say it."""
    what = "1 delivery" if deliveries == 1 else f"{deliveries:,} deliveries"
    return f"{what} to {'1 subscriber' if subscribers == 1 else f'{subscribers:,} subscribers'}"


class Findings:
    """The findings of the checks so far. Keeps at most `limit` anomalies of each name, and counts the others."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.anomalies: list[Anomaly] = []
        self.counts: Counter[str] = Counter()
        self.doubts: dict[str, dict[str, int]] = {}  # by guarantee: reason → how many doubts it stands for
        self.unchecked: set[str] = set()  # guarantees whose check is not finished
        self._shown: Counter[str] = Counter()

    def counted(self, name: str) -> bool:
        """Count an anomaly of this name, and say whether it would be shown."""
        self.counts[name] += 1
        return self.wants(name)

    def wants(self, name: str) -> bool:
        """Whether another anomaly of this name would be shown: if not, a witness need not be looked for."""
        return self._shown[name] < self.limit

    def add(self, name: str, sentence: str, witness: tuple[Row, ...]) -> None:
        """Show an anomaly. A check that finds one also counts it, wanted or not."""
        self.show(Anomaly(name, sentence, witness))

    def show(self, anomaly: Anomaly) -> None:
        """Show an anomaly that is made already."""
        self._shown[anomaly.name] += 1
        self.anomalies.append(anomaly)

    def listed(self) -> list[Anomaly]:
        """The shown anomalies, by name, weakest guarantee first."""
        names = list(BREAKS)
        return sorted(self.anomalies, key=lambda anomaly: names.index(anomaly.name))

    def doubt(self, reason: str, *guarantees: str, count: int = 1) -> None:
        """Nothing better than `unknown` can be said about these guarantees, nor about any that implies them.

        `count`: how many doubts this one stands for.
        """
        for name in guarantees:
            self.doubts.setdefault(name, {}).setdefault(reason, count)

    def verdict(self, guarantee: str, valid_reason: str) -> Verdict:
        """The verdict for one guarantee: the only rule that makes verdicts."""
        below = implied_by(guarantee)
        broken = [
            f"{name} ({self.counts[name]:,})"
            for name, breaks in ANOMALIES.items()
            if breaks in below and self.counts[name]
        ]
        if broken:
            return Verdict(guarantee, "invalid", ", ".join(broken))
        doubts: dict[str, int] = {}
        for name in GUARANTEES:  # in the order of the lattice, so that the same log always gets the same reason
            if name in below:
                known = self.doubts.get(name, {})
                doubts |= ({STOPPED: 1} if name in self.unchecked else {}) | known
        if doubts:
            count = sum(doubts.values())
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            return Verdict(guarantee, "unknown", next(iter(doubts)) + more)
        return Verdict(guarantee, "valid", valid_reason)

    def report(
        self,
        deliveries: int,
        subscribers: int,
        events: int,
        shared: int,
        out_of_order: int,
        order: tuple[str, ...] | None = None,
    ) -> Report:
        """The verdicts that follow from all findings."""
        valid_reason = f"no violation in {extent(deliveries, subscribers)}"
        compared = valid_reason if shared else f"{valid_reason}; {NOTHING_SHARED}"
        reasons = {name: compared if AGREEMENT & implied_by(name) else valid_reason for name in GUARANTEES}
        verdicts = {name: self.verdict(name, reason) for name, reason in reasons.items()}
        return Report(
            verdicts=verdicts,
            anomalies=tuple(self.listed()),
            counts={name: count for name, count in sorted(self.counts.items()) if count},
            order=order if verdicts["acyclic"].answer == "valid" else None,
            deliveries=deliveries,
            subscribers=subscribers,
            events=events,
            shared=shared,
            out_of_order=out_of_order,
        )
