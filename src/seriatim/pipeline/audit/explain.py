"""The violations in a tangle: the reference auditor's own checks, on all rows of the tangle's events.

Runs in Spark's Python workers. A tangle holds every cycle that goes through its events, so what the reference auditor
finds in the whole log about these events, it finds here: the same pairs, the same witnesses, the same sentences.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa

from seriatim.audit import Anomaly
from seriatim.audit.accounts import reused_sentence
from seriatim.audit.agreement import judge_knot
from seriatim.audit.causes import Chains, check_causes, check_fifo
from seriatim.audit.evidence import Evidence
from seriatim.audit.knots import find_knots, first_shared
from seriatim.audit.report import Findings, Row
from seriatim.model import Delivery, Placement, Publication, Subscription

# What every check hands over. `phase`, `subscriber`, `position`, `tie` sort what has a sentence as the reference does.
FOUND = pa.schema(
    [
        ("run", pa.string()),
        ("name", pa.string()),
        ("count", pa.int64()),
        ("phase", pa.int32()),
        ("subscriber", pa.string()),
        ("position", pa.int64()),
        ("tie", pa.string()),
        ("sentence", pa.string()),
        ("witness", pa.list_(pa.string())),
    ]
)
CIRCULAR = "circular"  # no anomaly: a publication whose causes are circular, by its id
UNTOLD = "untold"  # no anomaly: events in disorder whose rows do not tell what is wrong, by one of their ids

KINDS: dict[str, type[Row]] = {"d": Delivery, "p": Publication, "s": Subscription, "o": Placement}
_LETTERS = {kind: letter for letter, kind in KINDS.items()}


def encode(row: Row) -> str:
    """A row as text: a letter for its table, then JSON."""
    return _LETTERS[type(row)] + msgspec.json.encode(row).decode()


def decode(text: str) -> Row:
    return msgspec.json.decode(text[1:].encode(), type=KINDS[text[0]])


def explain(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Rows (tangle, run, s, e, row, flag, hopeless), sorted by tangle, in; what is found in each tangle out.

    `s` and `e` stand for subscriber and event, as the tangle was found by them. `flag`: a publication whose
    publisher's order is not known. `hopeless`: a publication whose causes are circular.
    """
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, members in groupby(rows, key=lambda row: row["tangle"]):
        found = explain_tangle(list(members), limit)
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=FOUND)


def explain_tangle(members: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    deliveries: list[Delivery] = []
    publications: list[Publication] = []
    unordered: set[str] = set()
    hopeless: set[str] = set()
    numbers: set[tuple[int, int]] = set()
    for member in members:
        row = decode(member["row"])
        if isinstance(row, Delivery):
            deliveries.append(row)
            numbers.add((member["s"], member["e"]))
        elif isinstance(row, Publication):
            publications.append(row)
            if member["flag"]:
                unordered.add(row.publisher)
            if member["hopeless"]:
                hopeless.add(row.event_id)
    run = members[0]["run"]
    evidence = Evidence.of_part(deliveries, publications)
    found = list(_disagreements(run, evidence))
    findings = Findings(limit)
    chains = Chains(evidence, findings, unordered)
    check_fifo(chains, evidence, findings)
    pasts = check_causes(chains, evidence, findings, hopeless)
    for anomaly in findings.anomalies:
        found.append(_at(run, anomaly, 1, _late(anomaly)))
    for name, count in findings.counts.items():
        shown = sum(anomaly.name == name for anomaly in findings.anomalies)
        if count > shown:
            found.append(_found(run, name, count - shown))
    for link in pasts.unknown():
        found.append(_found(run, CIRCULAR, 1, tie=chains.publication(link).event_id))
    # Deliveries alone are a tangle only if they contradict each other. (With publications a cycle need not be a
    # violation: what one publisher published may be seen by different subscribers.) And no two names may have become
    # one on the way here, as names do that are not UTF-8.
    is_untold = not found and not publications
    if is_untold or len({(row.subscriber, row.event_id) for row in deliveries}) < len(numbers):
        found.append(_found(run, UNTOLD, 1, tie=min(row.event_id for row in deliveries)))
    return found


def explain_reused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows (e, run, event_id, row), sorted by e, in; which two events each id stands for out."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, members in groupby(rows, key=lambda row: row["e"]):
        told = list(members)
        run, event_id = told[0]["run"], told[0]["event_id"]
        decoded = [decode(member["row"]) for member in told]
        deliveries = [row for row in decoded if isinstance(row, Delivery)]
        publications = [row for row in decoded if isinstance(row, Publication)]
        one, other = Evidence(deliveries, publications, Findings(1)).reused[event_id]
        anomaly = Anomaly("reused-id", reused_sentence(event_id, one, other), (one, other))
        yield pa.RecordBatch.from_pylist([_shown(run, anomaly, 1, event_id)], schema=FOUND)


def _disagreements(run: str, evidence: Evidence) -> Iterator[dict[str, Any]]:
    sequences = {name: [row.event_id for row in rows] for name, rows in evidence.sequences.items()}
    topics = {row.event_id: row.topic for rows in evidence.sequences.values() for row in rows}
    for inside in find_knots(sequences, evidence.places):
        findings = Findings(1)
        judge_knot(inside, topics, evidence, findings)
        place = evidence.row(*first_shared(inside))
        for anomaly in findings.anomalies:
            yield _at(run, anomaly, findings.counts[anomaly.name], place)


def _late(anomaly: Anomaly) -> Delivery:
    """The row by which the reference auditor came upon it: the one that is too late."""
    row = anomaly.witness[1 if anomaly.name == "causal-inversion" else 3]
    assert isinstance(row, Delivery)
    return row


def _at(run: str, anomaly: Anomaly, count: int, place: Delivery) -> dict[str, Any]:
    shown = _shown(run, anomaly, count, place.event_id)
    return shown | {"subscriber": place.subscriber, "position": place.position}


def _shown(run: str, anomaly: Anomaly, count: int, tie: str) -> dict[str, Any]:
    witness = [encode(row) for row in anomaly.witness]
    return _found(run, anomaly.name, count, tie) | {"sentence": anomaly.sentence, "witness": witness}


def _found(run: str, name: str, count: int, tie: str | None = None) -> dict[str, Any]:
    """What is found, in some columns of FOUND; the others are null."""
    return {"run": run, "name": name, "count": count, "phase": 0, "tie": tie}
