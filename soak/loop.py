"""What the soaks of peers, of atoms and of overlays share: rounds for some minutes, a verdict on each, and a table.

A soak brings its processes (`System`), its judge, and the names of the guarantees it is judged by. What is done follows
from the seed; what the machine does in between is its own.
"""

import argparse
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from seriatim.audit import Report, audit
from seriatim.model import History, SeriatimError, TimedOut
from seriatim.runtime.loop import run
from soak.refusals import Refusal
from soak.tree.rows import now

SHORTEST_ROUND_S = 10.0
VIOLATIONS_SHOWN = 10
INTERRUPTED = 130


class Judged(Struct):
    """What the logs of a round show. No violation: all promises were kept."""

    violations: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    published: int = 0
    notified: int = 0
    refused: int = 0
    """Processes that had to end by themselves, and did."""

    refused_s: float = 0.0
    """How long the slowest of them took."""

    def numbers(self) -> dict[str, int]:
        """Other counts, which are added up over rounds."""
        return {}

    def take_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Judge how the processes ended that must not act."""
        complaints = [each.complaint for each in refusals if each.complaint]
        self.violations += complaints
        self.refused += len(refusals) - len(complaints)
        self.refused_s = max([self.refused_s, *(each.seconds for each in refusals)])

    def take(self, history: History, guarantees: Sequence[str], report: Report | None = None) -> Report:
        """Add the auditor's verdicts on these guarantees."""
        report = audit(history) if report is None else report
        self.published, self.notified = len(history.publications), len(history.deliveries)
        for name in guarantees:
            found = report.verdicts[name]
            self.answers[name] = found.answer
            if found.answer != "valid":
                self.violations.append(f"{name}: {found.answer}: {found.reason}")
        self.violations += [f"{each.name}: {each.sentence}" for each in report.anomalies_against(guarantees)]
        return report


class Outcome(Struct):
    """The result of one round."""

    number: int
    folder: Path
    kind: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    verdict: Judged = field(default_factory=Judged)
    seconds: float = 0.0


class Orders(Struct, frozen=True):
    """The parameters of one round."""

    folder: Path
    number: int
    seconds: float
    seed: int
    rate: float
    faults: str | None = None

    def weights(self, kinds: dict[str, float]) -> dict[str, float]:
        """How often each of these faults strikes, compared with the others; those that were not asked for, never."""
        only = self.faults.split(",") if self.faults is not None else kinds
        return {kind: weight if kind in only else 0.0 for kind, weight in kinds.items()}


class System(Protocol):
    """The processes of one round."""

    @property
    def refusals(self) -> Sequence[Refusal]:
        """How the processes ended that must not act."""

    async def start(self) -> None:
        """Start everything and wait until it is ready."""

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Inject faults under load. At the end everything runs."""

    async def drain(self) -> None:
        """Wait until everything has arrived."""

    async def stop(self) -> None:
        """Stop every process that still runs."""


RunRound = Callable[[Orders], Awaitable[Outcome]]


def round_folder(orders: Orders) -> Path:
    """The folder of the files of a round."""
    return orders.folder / f"round-{orders.number:03}"


async def play(system: System, orders: Orders, judge: Callable[[], Judged], kind: str = "") -> Outcome:
    """A round from beginning to end. Whatever goes wrong in it becomes a violation."""
    began = now()
    result = Outcome(orders.number, round_folder(orders), kind)
    trouble: list[str] = []
    try:
        await system.start()
        await system.harm(orders.seconds, result.faults)
        await system.drain()
    except TimedOut as error:
        trouble.append(f"stuck: {error}")
    except SeriatimError as error:
        trouble.append(f"died: {error}")
    finally:
        await system.stop()
    try:
        result.verdict = judge()
    except SeriatimError as error:
        trouble.append(f"nothing is shown: {error}")
    result.verdict.violations = trouble + result.verdict.violations
    result.verdict.take_refusals(system.refusals)
    result.seconds = now() - began
    if result.verdict.violations:
        (result.folder / "violations.txt").write_text("\n".join(result.verdict.violations) + "\n", encoding="utf-8")
    return result


def soak_parser(
    command: str, about: str | None, round_s: float, rate: float, whose: str, kinds: Collection[str]
) -> argparse.ArgumentParser:
    """The options that all of them have; `whose` rate it is, and which `kinds` of faults there are."""

    def some_kinds(word: str) -> str:
        if unknown := set(word.split(",")) - set(kinds):
            problem = f"there is no {', '.join(sorted(unknown))}; give some of {', '.join(kinds)}"
            raise argparse.ArgumentTypeError(problem)
        return word

    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=(about or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=_above_zero, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--round-s", type=_above_zero, default=round_s, help="seconds of faults in a round")
    parser.add_argument("--rate", type=_above_zero, default=rate, help=f"events per second of {whose}")
    shown = f"only these, separated by commas: {', '.join(kinds)}"
    parser.add_argument("--faults", type=some_kinds, default=None, help=shown)
    parser.add_argument("--folder", type=Path, default=None, help="keep everything here (default: a temporary folder)")
    return parser


def _above_zero(word: str) -> float:
    number = float(word)
    if number <= 0:
        raise argparse.ArgumentTypeError("give a number above 0")
    return number


def soak(what: str, command: str, arguments: argparse.Namespace, guarantees: Sequence[str], run_round: RunRound) -> int:
    """Run, print, and say how it went: the exit code. `command` does the same again."""
    seed = random.SystemRandom().getrandbits(31) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="seriatim-soak-"))
    say(f"soak of {what}, {arguments.minutes:g} minutes, seed {seed}; files in {folder}")
    try:
        rounds = run(_rounds(arguments, folder, seed, run_round))
    except KeyboardInterrupt:
        say(f"\ninterrupted; files kept in {folder}")
        return INTERRUPTED
    _show(rounds, guarantees)
    failed = [each for each in rounds if each.verdict.violations]
    again = f"python -m {command} --seed {seed} --round-s {arguments.round_s:g} --rate {arguments.rate:g}"
    again += f" --faults {arguments.faults}" if arguments.faults is not None else ""
    for each in failed:
        say(f"round {each.number}: history kept in {each.folder}; the same plan again: {again}")
    if not failed and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


async def _rounds(arguments: argparse.Namespace, folder: Path, seed: int, run_round: RunRound) -> list[Outcome]:
    end = now() + 60.0 * arguments.minutes
    rounds: list[Outcome] = []
    while not rounds or now() < end:
        seconds = min(arguments.round_s, max(SHORTEST_ROUND_S, end - now()))
        result = await run_round(Orders(folder, len(rounds) + 1, seconds, seed, arguments.rate, arguments.faults))
        rounds.append(result)
        _say_round(result)
        if not result.verdict.violations:
            shutil.rmtree(result.folder)
    return rounds


# ── what people see ───────────────────────────────────────────────────────────────────────────────────────────────


def say(line: str) -> None:
    """Print one line at once."""
    print(line, flush=True)


def _say_round(result: Outcome) -> None:
    verdict = result.verdict
    counted = {"published": verdict.published, "notified": verdict.notified, "refused": verdict.refused}
    counted |= verdict.numbers()
    numbers = ", ".join(f"{count:,} {name}" for name, count in counted.items())
    faults = _counts(result.faults) or "no faults"
    said = "broken" if verdict.violations else "all promises kept"
    name = f"round {result.number}" + (f" ({result.kind})" if result.kind else "")
    say(f"{name}: {faults}, {numbers}, {result.seconds:.0f} s: {said}")
    for line in verdict.violations[:VIOLATIONS_SHOWN]:
        say(f"  {line}")


def _show(rounds: Sequence[Outcome], guarantees: Sequence[str]) -> None:
    faults: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for each in rounds:
        faults += each.faults
        verdict = each.verdict
        numbers.update(published=verdict.published, notified=verdict.notified, refused=verdict.refused)
        numbers.update(each.verdict.numbers())
    say(f"\n{len(rounds)} rounds: {_counts(faults)}")
    say(", ".join(f"{count:,} {name}" for name, count in numbers.items()))
    if numbers["refused"]:
        say(f"the slowest to be refused took {max(each.verdict.refused_s for each in rounds):.1f} s")
    for name in guarantees:
        answers = Counter(each.verdict.answers[name] for each in rounds if name in each.verdict.answers)
        said = ", ".join(f"{answer} in {count} rounds" for answer, count in sorted(answers.items())) or "not judged"
        say(f"{name:<18} {said}")
    say(f"violations {sum(len(each.verdict.violations) for each in rounds)}")


def _counts(faults: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}{'es' if kind.endswith('s') else 's'}" for kind, count in sorted(faults.items()))
