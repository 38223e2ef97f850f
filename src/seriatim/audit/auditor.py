"""The reference auditor: a history in, a report out."""

from collections import Counter
from collections.abc import Iterable

from seriatim.audit.accounts import check_completeness, check_integrity
from seriatim.audit.agreement import check_agreement
from seriatim.audit.causes import Chains, check_causes, check_fifo
from seriatim.audit.evidence import Evidence
from seriatim.audit.lost import lost_doubts
from seriatim.audit.report import Anomaly, Findings, Report
from seriatim.model import Delivery, History, InputError

CHECKED = ("fifo", "per-topic", "causal", "integrity", "completeness")  # the others follow from these
EMPTY = "the log has no deliveries"
ONLY_TAGGED = "no delivery can be used: all are tagged out_of_order or unusable"


class Auditor:
    """One audit. `run` does the work; `report` may be asked at any time, also after `run` was interrupted."""

    def __init__(self, history: History, limit: int = 10) -> None:
        if limit < 1:
            raise InputError("limit", f"{limit} is too small", "show at least 1 anomaly of each name")
        self._history = history
        self._findings = Findings(limit)
        self._findings.unchecked.update(CHECKED)
        self._order: tuple[str, ...] | None = None
        self._notified: Counter[str] = Counter()
        self._subscribers = 0
        self._out_of_order = 0

    def run(self) -> None:
        """Check everything, the cheapest first, so that an interrupted audit knows as much as it can."""
        findings = self._findings
        if not self._history.deliveries:
            findings.doubt(EMPTY, *CHECKED)
            if not self._history.subscriptions:  # with them, what nobody was notified of can still be missed
                findings.unchecked.clear()
                return
        for reason, guarantees in lost_doubts(self._history.lost):
            findings.doubt(reason, *guarantees)
        evidence = Evidence(self._history.deliveries, self._history.publications, findings)
        self._subscribers = len(evidence.rows)
        self._out_of_order = evidence.out_of_order
        for rows in evidence.rows.values():
            self._notified.update({row.event_id for row in rows})
        if self._history.deliveries and not any(evidence.sequences.values()):
            findings.doubt(ONLY_TAGGED, "fifo", "per-topic")
        check_integrity(self._history, evidence, findings)
        findings.unchecked.remove("integrity")
        check_completeness(self._history, evidence, findings)
        findings.unchecked.remove("completeness")
        chains = Chains(evidence, findings)
        check_fifo(chains, evidence, findings)
        findings.unchecked.remove("fifo")
        self._order = check_agreement(evidence, findings)
        findings.unchecked.remove("per-topic")
        check_causes(chains, evidence, findings)
        findings.unchecked.remove("causal")

    def report(self) -> Report:
        """The report so far."""
        shared = sum(1 for count in self._notified.values() if count > 1)
        deliveries, events = len(self._history.deliveries), len(self._notified)
        return self._findings.report(deliveries, self._subscribers, events, shared, self._out_of_order, self._order)


def audit(history: History, limit: int = 10) -> Report:
    """Judge a history: a verdict for every guarantee, and at most `limit` anomalies of each name with their witness."""
    auditor = Auditor(history, limit)
    auditor.run()
    return auditor.report()


def order_violations(deliveries: Iterable[Delivery], limit: int = 10) -> list[Anomaly]:
    """Only where subscribers disagree: topic-inversion, inversion and cycle. For inner loops; it gives no verdict.

    An empty list says that these rows fit one order. Whether rows are missing, repeated or tied, only `audit` says.
    """
    findings = Findings(limit)
    check_agreement(Evidence(deliveries, (), findings), findings)
    return findings.listed()
