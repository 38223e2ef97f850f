"""`python -m soak --minutes 10`: random faults under load for as long as asked; exit code 1 if a promise was broken.

The plan of faults follows from the seed, so it can be carried out again, all of it or one round (`--round`). What the
machine does in between is its own: the same plan need not meet the same moment.
"""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from seriatim.model import InputError, SeriatimError
from seriatim.runtime.loop import run
from soak.loop import INTERRUPTED, say, soak_parser
from soak.tree.cluster import IDLE_S, Cluster
from soak.tree.order import BY_ORDER
from soak.tree.plan import KINDS, make_plan
from soak.tree.recovery import spreads
from soak.tree.rounds import Round, Totals, forget, run_round
from soak.tree.rows import Injected, now
from soak.tree.shapes import SHAPES, shape_named
from soak.tree.verify import GUARANTEES, Carried

ROUND_S = 40.0
RATE = 1000.0  # two thousand events per second altogether
TERMINATED = "SIGTERM"


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the results. Returns the exit code."""
    arguments = _parse(words)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="seriatim-soak-"))
    totals = Totals()
    say(f"soak of {arguments.minutes:g} minutes, shape {arguments.shape}, seed {arguments.seed}; files in {folder}")
    try:
        failed = run(_soak(arguments, folder, totals))
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and error.args != (TERMINATED,):
            raise
        show(totals)
        say(f"\ninterrupted; files kept in {folder}")
        return INTERRUPTED
    except SeriatimError as error:
        say(f"could not run: {error}\nfiles kept in {folder}")
        return 2 if isinstance(error, InputError) else 1
    show(totals)
    if failed:
        say(f"\nhistory kept in {folder}")
        for result in failed:
            say(f"  round {result.number}: {result.folder}, replay: {_replay(arguments, result.number)}")
        return 1
    if arguments.folder is None and not arguments.keep:
        shutil.rmtree(folder)
    return 0


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = soak_parser("soak", __doc__, ROUND_S, RATE, "each publisher", KINDS)
    parser.add_argument("--shape", default="tree", help=f"one of {', '.join(SHAPES)}")
    parser.add_argument("--round", type=int, default=None, help="carry out this round of the plan only")
    parser.add_argument("--idle-s", type=float, default=IDLE_S, help="give up when nothing comes for this many seconds")
    parser.add_argument("--keep", action="store_true", help="keep the rows of all rounds, also of valid ones")
    arguments = parser.parse_args(words)
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().getrandbits(31)
    if arguments.shape not in SHAPES:
        parser.error(f"--shape: give one of {', '.join(SHAPES)}")
    return arguments


async def _soak(arguments: argparse.Namespace, folder: Path, totals: Totals) -> list[Round]:
    this = asyncio.current_task()
    assert this is not None, "runs as a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel, TERMINATED)
    shape = shape_named(arguments.shape).with_rate(arguments.rate)
    kinds = arguments.faults.split(",") if arguments.faults else None
    end_at = now() + 60.0 * arguments.minutes
    number = arguments.round or 1
    carried: Carried | None = None
    failed: list[Round] = []
    cluster: Cluster | None = None
    lives = 0
    try:
        while True:
            if cluster is None:  # after a failed round everything starts again, so that one fault gives one report
                lives += 1
                cluster, carried = Cluster(folder / f"cluster-{lives}", shape, arguments.seed), None
                await cluster.start()
            seconds = min(arguments.round_s, max(10.0, end_at - now()))
            plan = make_plan(arguments.seed, number, shape, seconds, kinds)
            result = await run_round(
                cluster, number, plan, seconds, carried=carried, idle_s=arguments.idle_s, on_fault=_say_fault
            )
            totals.add(result)
            _say_round(result)
            carried = result.verdict.carried
            if not result.is_valid:
                failed.append(result)
                await cluster.stop()
                cluster = None
            elif not arguments.keep:
                forget(result)
            number += 1
            if arguments.round is not None or now() >= end_at:
                return failed
    finally:
        if cluster is not None:
            await cluster.stop()


def _replay(arguments: argparse.Namespace, number: int) -> str:
    more = "".join(
        f" --{name.replace('_', '-')} {value}"
        for name, usual in (("rate", RATE), ("faults", None), ("round_s", ROUND_S))
        if (value := getattr(arguments, name)) != usual
    )
    return f"python -m soak --shape {arguments.shape} --seed {arguments.seed} --round {number}{more}"


# ── what people see ───────────────────────────────────────────────────────────────────────────────────────────────


def _say_fault(injected: Injected) -> None:
    say(f"  {injected.fault:<21} {injected.target:<10} {injected.ended_at - injected.began_at:5.2f} s")


def _say_round(result: Round) -> None:
    verdict = result.verdict
    slowest = max((each.recovery_s for each in result.recoveries), default=0.0)
    wrong = ", ".join(f"{kind} {count}" for kind, count in sorted(verdict.counts.items())) or "nothing lost or repeated"
    say(
        f"round {result.number}: {len(result.faults)} faults, {verdict.acknowledged:,} acknowledged, "
        f"{sum(verdict.handed.values()):,} notified, slowest recovery {slowest:.2f} s: {wrong}"
    )
    if not result.is_valid:
        say(result.complaint())


def show(totals: Totals) -> None:
    """Print the table at the end."""
    say(f"\n{totals.rounds} rounds, {sum(totals.faults.values())} faults")
    say(f"published   {totals.attempted:>12,}  of these acknowledged {totals.acknowledged:,}")
    say(f"notified    {totals.notified:>12,}  handed out again after a crash, marked: {totals.replayed:,}")
    say(f"positions   {totals.told:>12,}  told to subscribers")
    cut_short = f"cut short before they were live: {totals.interrupted:,}"
    say(f"visits      {totals.visits:>12,}  that began with the past; {cut_short}")
    for kind in ("lost", "repeated"):
        say(f"{kind:<11} {totals.violations[kind]:>12,}")
    for kind, count in sorted(totals.violations.items()):
        if kind not in ("lost", "repeated"):
            say(f"{kind:<11} {count:>12,}")
    for guarantee in (*GUARANTEES, *BY_ORDER):
        answers = totals.answers.get(guarantee, Counter[str]())
        say(f"{guarantee:<19} {', '.join(f'{answer} in {count} rounds' for answer, count in sorted(answers.items()))}")
    say(f"\n{'fault':<22}{'times':>6}{'measured':>10}{'recovery p50':>14}{'max':>9}{'silence max':>13}")
    found = spreads(totals.recoveries)
    for fault, count in sorted(totals.faults.items()):
        if (spread := found.get(fault)) is None:
            say(f"{fault:<22}{count:>6}{0:>10}")
            continue
        times = f"{spread.recovery_s_p50:>12.2f} s{spread.recovery_s_max:>7.2f} s{spread.silence_s_max:>11.2f} s"
        say(f"{fault:<22}{count:>6}{spread.count:>10}{times}")


if __name__ == "__main__":
    sys.exit(main())
