"""The judge: reads what the processes of a round wrote, and nothing else, and says what was broken.

*Nothing acknowledged is lost.* Every event that a publisher was told is safe was handed to every subscriber that held
its topic before the attempt and still does. What one of them was handed, acknowledged
or not, was handed to all.

*Nothing is notified twice.* A durable subscription may hand out again, after a crash, what it had handed out and the
application had not acknowledged (by asking for the next event). Such an event is marked `replayed`, and is one of the
last `replay_max` hand-outs of the life before: 1, or the size of a batch for who takes batches. Anything else that
comes a second time is a violation. The application here writes rows *before* it asks for more; so what was handed out
and never written must come again, or it counts as lost.

*Order.* What remains without the replays goes to the auditor (`seriatim.audit`), which trusts no number. Apart from
that, the numbers of each topic are dense at each subscriber: no hole, no step back. Then everybody is judged by the
order log (`order.py`), and so is whoever began with the past.

Rounds are judged one by one: at the end of a round everything has drained, so only a little is carried to the next.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from seriatim.audit import audit
from seriatim.model import Delivery, History, LogError, Number, Placement, Position, Publication, Subscription, Topic
from soak.tree.rows import (
    Acknowledged,
    Attempted,
    Began,
    Ended,
    Failed,
    Handed,
    Held,
    Injected,
    Missed,
    Rested,
    Row,
    read_rows,
)

GUARANTEES = ("fifo", "tno", "acyclic", "integrity", "completeness")
SHOWN_MAX = 10  # of each kind

BEFORE = float("-inf")
NEVER = float("inf")

Place: TypeAlias = tuple[Number, int]  # number and index


class Record(Struct):
    """Everything the processes of one round wrote."""

    publishers: dict[str, list[Row]] = field(default_factory=dict)
    subscribers: dict[str, list[Row]] = field(default_factory=dict)
    faults: list[Injected] = field(default_factory=list)


class Violation(Struct, frozen=True):
    """A promise that was broken: its kind (lost, repeated, misordered, …), and one sentence."""

    kind: str
    sentence: str


class Span(Struct):
    """A subscriber holds a topic; `since` and `until` are positions among its hand-outs."""

    topic: Topic
    since: int = 0
    until: int | None = None
    held_at: float = BEFORE  # events attempted later are owed; NEVER: the change is under way
    leaves: bool = False  # the change that is under way ends it
    last: Place | None = None  # the last one handed out in an earlier round


class Account(Struct):
    """One subscriber's round, with the replays taken out."""

    name: str
    handed: list[Handed] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    start: Position | None = None  # where it began with the past, in this round
    lives: int = 0
    ends: int = 0  # lives that ended because they were asked to
    replayed: int = 0
    interrupted: int = 0  # lives that ended before they were live

    @property
    def open_spans(self) -> dict[Topic, Span]:
        """What it holds now."""
        return {span.topic: span for span in self.spans if span.until is None}


class Carried(Struct):
    """What a round must know about the rounds before it."""

    tails: dict[str, list[Handed]] = field(default_factory=dict)  # a subscriber's last hand-outs
    places: dict[str, dict[Topic, Place | None]] = field(default_factory=dict)  # what it holds, and how far it is
    maybes: dict[str, Attempted] = field(default_factory=dict)  # attempts that nobody has heard of since
    order: list[Placement] = field(default_factory=list)  # the order log so far
    past: dict[str, Publication] = field(default_factory=dict)  # events that whoever begins with the past may be handed


class Verdict(Struct):
    """What a round showed. `counts` has all violations by kind, `violations` shows at most a few of each."""

    attempted: int = 0
    acknowledged: int = 0
    handed: Counter[str] = field(default_factory=Counter)
    replayed: int = 0
    visits: int = 0  # that began with the past
    interrupted: int = 0  # how often such a visit was cut short before it was live
    told: int = 0  # hand-outs with a position
    lives: Counter[str] = field(default_factory=Counter)
    answers: dict[str, str] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    owed: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    attempts: dict[str, Attempted] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    carried: Carried = field(default_factory=Carried)

    def add(self, kind: str, sentence: str, count: int = 1) -> None:
        """Note a violation."""
        self.counts[kind] += count
        if sum(1 for each in self.violations if each.kind == kind) < SHOWN_MAX:
            self.violations.append(Violation(kind, sentence))


def read_record(folder: Path) -> Record:
    """The files of a round: publishers/<name>.jsonl, subscribers/<name>.jsonl, faults.jsonl."""
    return Record(
        publishers={path.stem: read_rows(path) for path in sorted((folder / "publishers").glob("*.jsonl"))},
        subscribers={path.stem: read_rows(path) for path in sorted((folder / "subscribers").glob("*.jsonl"))},
        faults=[row for row in read_rows(folder / "faults.jsonl") if isinstance(row, Injected)],
    )


def verify(
    record: Record,
    carried: Carried | None = None,
    replay_max: Mapping[str, int] | None = None,
    *,
    has_voids: bool = False,
) -> Verdict:
    """Judge one round. `carried`: from the verdict of the round before it.

    `replay_max`: for subscribers that take more than one event at a time, how many. `has_voids`: some numbers never
    become events (ticket mode), so they are not dense; what is owed is known from the publishers all the same.
    """
    before = carried if carried is not None else Carried()
    maxima = replay_max if replay_max is not None else {}
    verdict = Verdict()
    attempts, receipts = _published(record, before, verdict)
    for name, rows in record.subscribers.items():
        verdict.accounts[name] = _account(name, rows, before, _most(maxima, name), verdict)
    _check_owed(attempts, receipts, verdict)
    if not has_voids:
        for account in verdict.accounts.values():
            _check_dense(account, verdict)
    _check_order(attempts, receipts, before, verdict)
    _carry(attempts, receipts, before, maxima, verdict)
    return verdict


def _most(maxima: Mapping[str, int], subscriber: str) -> int:
    """How many events it takes at a time. Visits have the name of the guest, and a number."""
    return maxima.get(subscriber.partition(".")[0], 1)


def missing(record: Record, carried: Carried | None = None) -> dict[str, int]:
    """How many events each subscriber is still owed, and changes: what a wait for the end of a round looks at."""
    return dict(outline(record, carried).owed)


def outline(record: Record, carried: Carried | None = None) -> Verdict:
    """What was attempted and handed out so far, and what is owed. Nothing else is judged."""
    before = carried if carried is not None else Carried()
    verdict = Verdict()
    attempts, receipts = _published(record, before, verdict)
    verdict.accounts = {name: _account(name, rows, before, 1, Verdict()) for name, rows in record.subscribers.items()}
    _check_owed(attempts, receipts, verdict)
    for name, account in verdict.accounts.items():
        if any(span.held_at == NEVER for span in account.open_spans.values()):
            verdict.owed[f"{name}, a change of topics"] += 1
    return verdict


# ── what was published ────────────────────────────────────────────────────────────────────────────────────────────


def _published(
    record: Record, before: Carried, verdict: Verdict
) -> tuple[dict[str, Attempted], dict[str, Acknowledged]]:
    attempts = dict(before.maybes)
    receipts: dict[str, Acknowledged] = {}
    for name, rows in record.publishers.items():
        for row in rows:
            match row:
                case Attempted():
                    if row.id in attempts:
                        fix = "mend the publisher: ids are never used again"
                        raise LogError(f"publisher {name}", f"attempted {row.id} twice", fix)
                    attempts[row.id] = row
                    verdict.attempted += 1
                case Acknowledged():
                    if row.id not in attempts:
                        raise LogError(f"publisher {name}", f"{row.id} was never attempted", "mend the publisher")
                    receipts[row.id] = row
                case Began():
                    verdict.lives[name] += 1
                case Failed() | Rested() | Ended():
                    pass
                case _:
                    raise LogError(f"publisher {name}", f"not a publisher's row: {row}", "keep one file per process")
    verdict.acknowledged = len(receipts)
    verdict.attempts = attempts
    return attempts, receipts


# ── one subscriber ────────────────────────────────────────────────────────────────────────────────────────────────


def _account(name: str, rows: list[Row], before: Carried, replay_max: int, verdict: Verdict) -> Account:
    account = Account(name)
    account.spans = [Span(topic, last=last) for topic, last in before.places.get(name, {}).items()]
    replays = _Replays(name, before.tails.get(name, []), replay_max, verdict)
    for row in rows:
        match row:
            case Began():
                account.lives += 1
                account.interrupted += account.lives > 1 and _is_beginning(account)
                replays.begin(row.life)
            case Handed():
                if replays.is_new(row):
                    account.handed.append(row)
                    if row.out_of_order:
                        verdict.add("out-of-order", f"{name} was handed {row.id}, tagged out_of_order")
            case Held():
                account.interrupted += not row.topics and _is_beginning(account)
                account.start = row.start or account.start
                _change(account, row)
            case Missed():
                sentence = f"{name}: {row.topic} {row.first}…{row.last} will never come: {row.reason}"
                verdict.add("gap", sentence, row.last - row.first + 1)
            case Ended():
                account.ends += 1
            case _:
                raise LogError(f"subscriber {name}", f"not a subscriber's row: {row}", "keep one file per process")
    verdict.handed[name] = len(account.handed)
    verdict.lives[name] += account.lives
    verdict.visits += account.start is not None
    verdict.interrupted += account.interrupted
    verdict.told += sum(row.position is not None for row in account.handed)
    verdict.replayed += replays.count
    account.replayed = replays.count
    return account


def _is_beginning(account: Account) -> bool:
    """Whether it began with the past and is not live yet."""
    return account.start is not None and any(span.held_at == NEVER for span in account.open_spans.values())


def _change(account: Account, held: Held) -> None:
    """Topics that are new begin a span here, topics that are gone end theirs. The same again changes nothing.

    While a change is under way, events of the topics it adds or removes may come, and need not. If a topic is added
    again before it is known to be gone, it is left all the same, and begins anew.
    """
    now_open = account.open_spans
    for topic, span in now_open.items():
        if topic not in held.topics:
            span.held_at, span.leaves = NEVER, True
        if span.leaves and (held.complete or topic in held.topics):
            span.until = len(account.handed)
        elif span.held_at == NEVER and held.complete:
            span.held_at = held.at
    held_at = held.at if held.complete else NEVER
    now_open = account.open_spans
    account.spans += [Span(topic, len(account.handed), None, held_at) for topic in held.topics if topic not in now_open]


class _Replays:
    """Tells replays from repetitions. Hand-outs are counted from the beginning, replays left out."""

    def __init__(self, name: str, tail: Iterable[Handed], replay_max: int, verdict: Verdict) -> None:
        self.count = 0
        self._name = name
        self._order = {row.id: index for index, row in enumerate(tail)}  # the place of every id handed out so far
        self._replay_max = replay_max
        self._verdict = verdict
        self._open: set[str] = set()  # hand-outs of earlier lives that may come again in this one
        self._unwritten = 0  # how many may come marked replayed, though no row tells of them

    def begin(self, life: int) -> None:
        """A new life: what the life before it may have left unacknowledged may come again, each once."""
        self._open = set(list(self._order)[-self._replay_max :])
        self._unwritten = self._replay_max if life > 1 else 0

    def is_new(self, row: Handed) -> bool:
        """Whether this is the first time; if it may not come again, that is noted."""
        if row.id not in self._order:
            self._order[row.id] = len(self._order)
            if row.replayed:
                self._unwritten -= 1
                if self._unwritten < 0:
                    self._repeated(row, "marked replayed, but it cannot have been handed out before")
            return True
        if not row.replayed:
            self._repeated(row, "not marked replayed")
        elif row.id not in self._open:
            self._repeated(row, "marked replayed, but it was acknowledged")
        self._open.discard(row.id)
        self.count += 1
        return False

    def _repeated(self, row: Handed, how: str) -> None:
        place = f"{row.topic} {row.number}"
        self._verdict.add("repeated", f"{self._name} was handed {row.id} ({place}) again, {how}")


# ── nothing acknowledged is lost ──────────────────────────────────────────────────────────────────────────────────


def _check_owed(attempts: dict[str, Attempted], receipts: dict[str, Acknowledged], verdict: Verdict) -> None:
    known_to: dict[str, str] = {}  # event id -> a subscriber that was handed it
    ids = {name: {row.id for row in account.handed} for name, account in verdict.accounts.items()}
    for name, account in verdict.accounts.items():
        for row in account.handed:
            known_to.setdefault(row.id, name)
    owed: dict[Topic, list[Attempted]] = {}
    for event_id, attempt in attempts.items():
        if event_id in receipts or event_id in known_to:
            owed.setdefault(attempt.topic, []).append(attempt)
    for name, account in verdict.accounts.items():
        for topic, span in account.open_spans.items():
            for attempt in owed.get(topic, ()):
                if attempt.id in ids[name] or attempt.at < span.held_at:
                    continue
                if attempt.id in receipts:
                    why = f"{attempt.publisher} was told that it is safe, as number {receipts[attempt.id].number}"
                else:
                    why = f"{known_to[attempt.id]} was handed it"
                verdict.owed[name] += 1
                verdict.add("lost", f"{name} was never handed {attempt.id} of {topic}; {why}")


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_dense(account: Account, verdict: Verdict) -> None:
    """Each topic's numbers, one after the other; a message's events by their index."""
    for span in account.spans:
        last = span.last
        for row in account.handed[span.since : span.until]:
            if row.topic != span.topic:
                continue
            place = (row.number, row.index)
            if last is not None and place not in ((last[0], last[1] + 1), (last[0] + 1, 0)):
                kind = "misordered" if place <= last else "hole"
                what = f"{row.topic} {_told(place)} ({row.id}) after {_told(last)}"
                verdict.add(kind, f"{account.name} was handed {what}")
            last = place


def _told(place: Place) -> str:
    return f"{place[0]}" if place[1] == 0 else f"{place[0]}[{place[1]}]"


def _check_order(
    attempts: dict[str, Attempted], receipts: dict[str, Acknowledged], before: Carried, verdict: Verdict
) -> None:
    history = verdict.history
    places: dict[str, Place] = {event_id: (row.number, row.index) for event_id, row in receipts.items()}
    for account in verdict.accounts.values():
        for position, row in enumerate(account.handed):
            places.setdefault(row.id, (row.number, row.index))
            history.deliveries.append(
                Delivery(
                    account.name,
                    position,
                    row.id,
                    row.topic,
                    number=row.number,
                    index=row.index,
                    notified_at=row.at,
                    out_of_order=row.out_of_order,
                    order_position=row.position,
                )
            )
        # A topic of which nothing came says nothing: whether something should have come was checked above.
        rows = [_subscription(account, span) for span in account.spans]
        history.subscriptions += [row for row in rows if row.start is not None]
    # An attempt that nobody heard of since is left out: it became no event, as far as anybody can tell.
    for attempt in attempts.values():
        if (place := places.get(attempt.id)) is not None:
            history.publications.append(
                Publication(
                    attempt.id,
                    attempt.topic,
                    attempt.publisher,
                    published_at=attempt.at,
                    sequence=attempt.sequence,
                    number=place[0],
                    index=place[1],
                )
            )
    handed = {row.event_id for row in history.deliveries}
    history.publications += [row for event_id, row in before.past.items() if event_id in handed]
    report = audit(history, limit=SHOWN_MAX)
    verdict.answers = {name: report.verdicts[name].answer for name in GUARANTEES}
    for anomaly in report.anomalies_against(GUARANTEES):
        verdict.violations.append(Violation(anomaly.name, anomaly.sentence))
    verdict.counts.update(
        {name: report.counts[name] for name in {a.name for a in report.anomalies_against(GUARANTEES)}}
    )
    if history.deliveries:
        for name in GUARANTEES:
            if report.verdicts[name].answer == "unknown" and not verdict.violations:
                verdict.add("undecided", f"{name}: {report.verdicts[name].reason}")


def _subscription(account: Account, span: Span) -> Subscription:
    """`start` is what this log shows: the number before the first one handed out, or what was carried here.

    A span that is just beginning or ending counts up to its last hand-out: nothing more was owed.
    """
    numbers = [row.number for row in account.handed[span.since : span.until] if row.topic == span.topic]
    start = span.last[0] if span.last is not None else numbers[0] - 1 if numbers else None
    until = len(account.handed) if span.until is None and span.held_at == NEVER else span.until
    return Subscription(
        account.name,
        span.topic,
        since=span.since,
        until=until,
        start=start,
        end=None if until is None else numbers[-1] if numbers else start,
    )


# ── between rounds ────────────────────────────────────────────────────────────────────────────────────────────────


def _carry(
    attempts: dict[str, Attempted],
    receipts: dict[str, Acknowledged],
    before: Carried,
    maxima: Mapping[str, int],
    verdict: Verdict,
) -> None:
    handed = {row.id for account in verdict.accounts.values() for row in account.handed}
    verdict.carried.maybes = {
        event_id: attempt
        for event_id, attempt in attempts.items()
        if event_id not in receipts and event_id not in handed
    }
    for name, account in verdict.accounts.items():
        verdict.carried.tails[name] = [*before.tails.get(name, []), *account.handed][-_most(maxima, name) :]
        spans = account.open_spans
        places: dict[Topic, Place | None] = {topic: span.last for topic, span in spans.items()}
        for position, row in enumerate(account.handed):
            if row.topic in spans and position >= spans[row.topic].since:  # not in an earlier span of the topic
                places[row.topic] = (row.number, row.index)
        verdict.carried.places[name] = places
