"""Does the order respect who published what, after having seen what? Checks `fifo`, `fifo-across-topics` and `causal`.

An event's *past* is every event that happened before it (Lamport): its publisher's earlier events
(`Publication.sequence`), what its publisher had been notified of when it published (`Publication.seen`), and the
pasts of these.

A past is kept as one count per publisher, "the first n of its publications", because with one event of a publisher its
earlier ones belong to it too. For each publication only the growth of its past since the publisher's previous
publication is stored; a reader that has already added the previous one adds just that.

Clocks are not used: `published_at` orders nothing here.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from seriatim.audit.evidence import Evidence
from seriatim.audit.report import Findings, Row
from seriatim.model import Delivery, Publication

Past: TypeAlias = dict[str, int]  # chain → how many of its publications, from the first


class Link(NamedTuple):
    """A publication's place: the `rank`-th (from 1) of its chain."""

    chain: str
    rank: int


class Chains:
    """Publications in their publishers' own order: one chain per publisher.

    A publisher whose order is not known (no sequence, or the same one twice) gets one chain per event, unconnected.
    """

    def __init__(self, evidence: Evidence, findings: Findings, unordered: Collection[str] = ()) -> None:
        self.publications: dict[str, list[Publication]] = {}
        self.links: dict[str, Link] = {}  # by event id
        self.unordered: set[str] = set(unordered)  # publishers whose own order is not known
        by_publisher: dict[str, list[Publication]] = {}
        for row in evidence.published.values():
            if row.event_id not in evidence.reused:
                by_publisher.setdefault(row.publisher, []).append(row)
        if not by_publisher:
            findings.doubt("no publications in the log: who published what, and when, is not known", "fifo")
        for publisher, rows in sorted(by_publisher.items()):
            if publisher not in self.unordered and _are_ordered(rows):
                rows.sort(key=lambda row: row.sequence or 0)
                self._add(publisher, rows)
            else:
                self.unordered.add(publisher)
                findings.doubt(f"{publisher}: publications without a sequence of their own", "fifo")
                for row in rows:
                    self._add(f"{publisher}\0{row.event_id}", [row])

    def publication(self, link: Link) -> Publication:
        return self.publications[link.chain][link.rank - 1]

    def _add(self, chain: str, rows: list[Publication]) -> None:
        self.publications[chain] = rows
        for rank, row in enumerate(rows, start=1):
            self.links[row.event_id] = Link(chain, rank)


def _are_ordered(rows: list[Publication]) -> bool:
    return len(rows) == 1 or len({row.sequence for row in rows} - {None}) == len(rows)


def check_fifo(chains: Chains, evidence: Evidence, findings: Findings) -> None:
    """A publisher's events in the order it published them: within a topic, and across topics."""
    unpublished = None
    for name in evidence.sequences:
        latest: dict[str, tuple[int, Delivery]] = {}
        latest_of_topic: dict[tuple[str, str], tuple[int, Delivery]] = {}
        for together in evidence.steps(name):
            risen: list[tuple[Link, Delivery]] = []  # at one position nothing is before the other
            for row in together:
                link = chains.links.get(row.event_id)
                if link is None:
                    unpublished = unpublished or row
                    continue
                chain, rank = link
                risen.append((link, row))
                nothing = (0, row)
                same_topic, overtaker = latest_of_topic.get((chain, row.topic), nothing)
                if same_topic > rank:
                    _show_fifo("fifo-inversion", f" on topic {row.topic}", overtaker, row, evidence, findings)
                    continue
                across, overtaker = latest.get(chain, nothing)
                if across > rank:
                    _show_fifo("fifo-inversion-across-topics", "", overtaker, row, evidence, findings)
            for (chain, rank), row in risen:
                if latest.get(chain, (0, row))[0] < rank:
                    latest[chain] = (rank, row)
                if latest_of_topic.get((chain, row.topic), (0, row))[0] < rank:
                    latest_of_topic[chain, row.topic] = (rank, row)
    if unpublished and chains.publications:
        findings.doubt(f"{unpublished.event_id}: notified, but its publication is not in the log", "fifo")


def _show_fifo(
    name: str, where: str, overtaker: Delivery, late: Delivery, evidence: Evidence, findings: Findings
) -> None:
    if not findings.counted(name):
        return
    first, second = evidence.published[late.event_id], evidence.published[overtaker.event_id]
    a, b = late.event_id, overtaker.event_id
    sentence = (
        f"{first.publisher} published {a} before {b}{where}, but {late.subscriber} was notified of {b} before {a}"
    )
    findings.add(name, sentence, (first, second, overtaker, late))


def check_causes(chains: Chains, evidence: Evidence, findings: Findings, unknowable: Collection[str] = ()) -> "Pasts":
    """No event before one of its past. A violation within one chain is a fifo inversion and named there.

    `unknowable`: events whose causes are circular for a reason outside of this part of the log.
    """
    _doubt_causes(chains, evidence, findings)
    pasts = Pasts(chains, evidence, unknowable)
    if pasts.circular is not None:
        event_id = chains.publication(pasts.circular).event_id
        findings.doubt(f"{event_id}: its causes are circular, something was seen before it was published", "causal")
    for name, rows in evidence.sequences.items():
        past: Past = {}
        latest: dict[str, int] = {}
        before = 0  # rows at lower positions
        for together in evidence.steps(name):
            here: list[Link] = []
            for row in together:
                link = chains.links.get(row.event_id)
                if link is None or (pasts.circular is not None and not pasts.knows(link)):
                    continue
                here.append(link)
                chain, rank = link
                is_late = past.get(chain, 0) >= rank > latest.get(chain, 0)
                if is_late and findings.counted("causal-inversion"):
                    _show_causes([*rows[:before], row], pasts, evidence, findings)
            here = [link for link in here if past.get(link.chain, 0) < link.rank]
            for link in here:
                latest[link.chain] = max(latest.get(link.chain, 0), link.rank)
                pasts.take_in(past, link)
            before += len(together)
    return pasts


def _doubt_causes(chains: Chains, evidence: Evidence, findings: Findings) -> None:
    if chains.publications and all(row.seen is None for row in evidence.published.values()):
        findings.doubt("no publication says what its publisher had seen", "causal")
        return
    for publications in chains.publications.values():
        highest = 0
        for row in publications:
            if row.seen is None:
                findings.doubt(f"{row.event_id}: what {row.publisher} had seen is not recorded", "causal")
                continue
            rows = evidence.rows.get(row.publisher)
            if row.seen > (rows[-1].position + 1 if rows else 0):
                reason = f"{row.event_id}: {row.publisher} had seen {row.seen} notifications, the log has fewer"
                findings.doubt(reason, "causal")
            if row.seen < highest:
                reason = f"{row.event_id}: {row.publisher} had seen {row.seen} notifications, and {highest} before that"
                findings.doubt(reason, "causal")
            highest = max(highest, row.seen)


@dataclass(slots=True)
class _Author:
    """A chain while its pasts are computed: the past so far, its new part, and how many rows are included."""

    chain: str
    publications: list[Publication]
    rows: list[Delivery]
    rows_taken_in: int = 0
    past: Past = field(default_factory=dict)
    grown: Past = field(default_factory=dict)


class Pasts:
    """The past of every publication, kept as its growth since the previous one in its chain."""

    def __init__(self, chains: Chains, evidence: Evidence, unknowable: Collection[str] = ()) -> None:
        self.chains = chains
        self._unknowable = unknowable
        self.rows = {name: rows for name, rows in evidence.rows.items() if name not in chains.unordered}
        self.growth: dict[str, list[Past]] = {chain: [] for chain in chains.publications}
        self.circular: Link | None = None  # something that would have happened before itself, or after such
        self._build()

    def knows(self, link: Link) -> bool:
        """Whether this publication's past has been worked out."""
        return link.rank <= len(self.growth[link.chain])

    def unknown(self) -> list[Link]:
        """The first publication of each chain whose past was not worked out: it is circular, or after such a one."""
        first = (Link(chain, len(done) + 1) for chain, done in self.growth.items())
        return [link for link in first if link.rank <= len(self.chains.publications[link.chain])]

    def take_in(self, past: Past, link: Link) -> Past:
        """Add a publication and its past to a past; the entries that rose."""
        chain, rank = link
        known = past.get(chain, 0)
        if known >= rank:
            return {}
        risen = {}
        for growth in self.growth[chain][known:rank]:
            for other, count in growth.items():
                if past.get(other, 0) < count:
                    past[other] = risen[other] = count
        past[chain] = risen[chain] = rank
        return risen

    def path(self, cause: Link, effect: Link) -> list[tuple[Link, Link, Delivery | None]]:
        """The shortest way from cause to effect: (earlier, later, the row by which later's publisher saw earlier).

        Without a row, both are of one publisher. Breadth first, backwards, in one visit per row and publication.
        """
        came_from: dict[Link, tuple[Link, Delivery | None]] = {}
        own_reached: dict[str, int] = {}
        rows_reached: dict[str, int] = {}
        queue = [effect]
        for later in queue:  # grows while we walk it
            publication = self.chains.publication(later)
            reached = own_reached.get(later.chain, 0)
            earlier: list[tuple[Link, Delivery | None]]
            earlier = [(Link(later.chain, rank), None) for rank in range(reached + 1, later.rank)]
            own_reached[later.chain] = max(reached, later.rank - 1)
            rows = self.rows.get(publication.publisher, [])
            place = rows_reached.get(publication.publisher, 0)
            while place < len(rows) and rows[place].position < (publication.seen or 0):
                if link := self.chains.links.get(rows[place].event_id):
                    earlier.append((link, rows[place]))
                place += 1
            rows_reached[publication.publisher] = place
            for link, row in earlier:
                if link not in came_from:
                    came_from[link] = (later, row)
                    queue.append(link)
            if cause in came_from:
                break
        steps = []
        while cause != effect:
            later, row = came_from[cause]
            steps.append((cause, later, row))
            cause = later
        return steps

    def _build(self) -> None:
        """A publication is ready when all that its publisher had seen is; who waits is woken by what it waits for."""
        waiting: dict[Link, list[_Author]] = {}
        ready = deque(
            _Author(chain, publications, self.rows.get(publications[0].publisher, []))
            for chain, publications in self.chains.publications.items()
        )
        while ready:
            author = ready.popleft()
            done = self.growth[author.chain]
            while len(done) < len(author.publications):
                if author.publications[len(done)].event_id in self._unknowable:
                    break
                blocker = self._take_in_seen(author, author.publications[len(done)].seen or 0)
                if blocker is not None:
                    waiting.setdefault(blocker, []).append(author)
                    break
                done.append(author.grown)
                author.grown = {}
                author.past[author.chain] = len(done)
                ready.extend(waiting.pop(Link(author.chain, len(done)), ()))
        self.circular = min(self.unknown(), default=None)

    def _take_in_seen(self, author: _Author, seen: int) -> Link | None:
        """Add what the author had been notified of; the first that is not ready itself, if there is one."""
        rows, past = author.rows, author.past
        while author.rows_taken_in < len(rows) and rows[author.rows_taken_in].position < seen:
            link = self.chains.links.get(rows[author.rows_taken_in].event_id)
            if link is not None and past.get(link.chain, 0) < link.rank:
                if not self.knows(link):
                    return link
                author.grown.update(self.take_in(past, link))
            author.rows_taken_in += 1
        return None


def _show_causes(rows: list[Delivery], pasts: Pasts, evidence: Evidence, findings: Findings) -> None:
    """The last of these rows is of an event in the past of an earlier one: find the first such, and why."""
    late = rows[-1]
    links = pasts.chains.links
    cause = links[late.event_id]
    past: Past = {}
    for overtaker in rows:
        effect = links.get(overtaker.event_id)
        if effect is not None and pasts.knows(effect):
            pasts.take_in(past, effect)
            if past.get(cause.chain, 0) >= cause.rank:
                break
    assert effect is not None, "the caller found that an earlier row has the last one in its past"
    reasons = []
    witness: list[Row] = [overtaker, late, evidence.published[late.event_id]]
    for earlier, later, seen in pasts.path(cause, effect):
        first, second = pasts.chains.publication(earlier), pasts.chains.publication(later)
        how = f"published {first.event_id} before" if seen is None else f"had been notified of {first.event_id} before"
        reasons.append(f"{second.publisher} {how} it published {second.event_id}")
        witness += [second] if seen is None else [seen, second]
    sentence = f"{late.subscriber} was notified of {overtaker.event_id} before {late.event_id}, but "
    findings.add("causal-inversion", sentence + ", and ".join(reasons), tuple(witness))
