"""The last act of the demo: the same logs audited once more, on Spark, from the files that anybody would have."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from msgspec import Struct

from seriatim.audit import Report
from seriatim.cli.spark import session_of
from seriatim.demo.judge import GUARANTEES, Judgement
from seriatim.model import History
from seriatim.pipeline.spark.requirements import RequirementMissing, check_requirements

LOCAL: dict[str, Any] = {"master": "local[*]", "memory": "2g", "executor_memory": None, "conf": ()}


class Again(Struct, frozen=True, kw_only=True):
    """The result of the second audit, or why it was not made."""

    agrees: bool = True
    missing: str = ""
    start_s: float = 0.0
    audit_s: float = 0.0
    deliveries: int = 0

    def shown(self) -> dict[str, Any]:
        """The result as JSON."""
        if self.missing:
            return {"missing": self.missing}
        return {"agrees": self.agrees, "deliveries": self.deliveries, "start_s": self.start_s, "audit_s": self.audit_s}


@contextmanager
def early_session() -> Iterator[Callable[[], Any]]:
    """Start Spark in the background; call what it gives to wait for the session, which ends with this block. The demo
    waits for servers that elect a leader first, and the machine has nothing else to do then."""

    def opened() -> Any:
        check_requirements()
        from seriatim.pipeline.spark.session import remove_quiet_file

        stack.callback(remove_quiet_file)
        return stack.enter_context(session_of(LOCAL, "demo", is_small=True))

    with ExitStack() as stack, ThreadPoolExecutor(1) as threads:
        yield threads.submit(opened).result


def audit_again(
    histories: Mapping[str, History], judgement: Judgement, is_quiet: bool, early: Callable[[], Any] | None = None
) -> Again:
    """Audit both logs on Spark and compare. Names what is not installed, which is not a failure."""
    try:
        check_requirements()
    except RequirementMissing as error:
        if not is_quiet:
            click.echo(f"\nThe audit on Spark is left out: {error}")
        return Again(missing=str(error))
    if not is_quiet:
        click.echo("\nThe same logs, audited once more on Spark ...")
    plain = {"with": judgement.ordered.report, "without": judgement.without.report}
    began = time.monotonic()
    with TemporaryDirectory(prefix="seriatim-demo-") as name, ExitStack() as stack:
        session = early() if early is not None else stack.enter_context(session_of(LOCAL, "demo", is_small=True))
        from seriatim.pipeline.audit import audit_tables
        from seriatim.pipeline.logs import read_tables, together, write_parquet

        started = time.monotonic()
        for kind, history in histories.items():
            write_parquet(history, Path(name) / kind)
        logs = {kind: read_tables(session, str(Path(name) / kind)) for kind in histories}
        reports = audit_tables(together(logs)).reports
        ended = time.monotonic()
    again = Again(
        agrees=all(_same(reports[kind], plain[kind]) for kind in reports),
        start_s=started - began,
        audit_s=ended - started,
        deliveries=sum(report.deliveries for report in reports.values()),
    )
    if not is_quiet:
        what = "the same verdicts and counts" if again.agrees else "OTHER verdicts: one of the auditors is wrong"
        start = "Spark had been started before" if early is not None else f"{again.start_s:.1f} s to start Spark"
        took = f"{again.deliveries:,} deliveries in {again.audit_s:.1f} s, and {start}"
        click.echo(click.style(f"{what}; {took}", fg="green" if again.agrees else "red"))
    return again


def _same(one: Report, other: Report) -> bool:
    """Both auditors answer alike and count alike; which of many anomalies they show is theirs to choose."""
    answers = [one.verdicts[name].answer == other.verdicts[name].answer for name in GUARANTEES]
    return all(answers) and one.counts == other.counts and one.deliveries == other.deliveries
