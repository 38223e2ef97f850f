"""`seriatim simulate`: run a protocol in simulated networks, one per seed, and say what went wrong."""

import sys
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from seriatim.audit import write_history
from seriatim.cli.common import many, show_json, show_progress
from seriatim.lab.sim import Options, Outcome, Simulation, draw
from seriatim.model import InputError

EXIT_CHECK_FAILED = 1
EXIT_INTERRUPTED = 130
SHOWN_MAX = 20


@click.command
@click.option("--seed", type=int, default=1, help="The world to run.")
@click.option("--runs", type=click.IntRange(min=1), default=1, help="Number of runs, with the seeds from --seed on.")
@click.option(
    "--protocol",
    type=click.Choice(["tree", "paper000"]),
    default="tree",
    help="The sequencing tree, or the algorithm of paper 000 as printed.",
)
@click.option("--mode", type=click.Choice(["log", "ticket"]), help="Whether the broker's log or tickets number events.")
@click.option(
    "--order",
    type=click.Choice(["global", "pairwise"]),
    help="One order for everybody, or agreement of any two subscribers.",
)
@click.option("--own-order/--no-own-order", default=None, help="Whether a publisher keeps its own order across topics.")
@click.option(
    "--broker", type=click.Choice(["fifo", "unordered", "unreliable"]), help="How it delivers to subscribers."
)
@click.option(
    "--delay",
    type=click.Choice(["local", "wide"]),
    help="Delay of the network: local is 10 ± 2 ms, wide is 100 ± 10 ms.",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Sequencer nodes.")
@click.option("--topics", type=click.IntRange(min=1), help="Topics.")
@click.option("--subscribers", type=click.IntRange(min=1), help="Subscribers.")
@click.option("--publishers", type=click.IntRange(min=1), help="Publishers.")
@click.option("--events", type=click.IntRange(min=0), help="Events published.")
@click.option("--changes", type=click.IntRange(min=0), help="Subscriptions changed while events flow.")
@click.option("--moves", type=click.IntRange(min=0), help="Topics moved to another node while events flow.")
@click.option("--crashes", type=click.IntRange(min=0), help="Crashes and false deaths.")
@click.option("--partitions", type=click.IntRange(min=0), help="Partitions of the network.")
@click.option("--loss", type=float, help="Probability that a message is lost.")
@click.option("--duplication", type=float, help="Probability that a message arrives twice.")
@click.option("--duration-ms", type=float, help="Simulated time with faults.  [default: 3000]")
@click.option(
    "--log", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write the logs of one run here."
)
@click.option("--messages", is_flag=True, help="Log every message too (with --log).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run.")
def command(seed: int, runs: int, folder: Path | None, messages: bool, as_json: bool, **chosen: Any) -> None:
    """Run a protocol in a simulated network.

    A seed is a whole world: a tree of sequencers, topics, publishers, subscribers that come and go, delays, lost
    messages, partitions and crashes. An option fixes one of these and leaves the rest to the seed. The run has two
    phases. While faults last, nobody may see another order, anything twice or anything that was not published. Then all
    faults end, and every event must arrive at its subscribers; those that do not are named, with what they wait for.

    \b
    Examples:
      seriatim simulate --seed 7
      seriatim simulate --seed 1 --runs 500
      seriatim simulate --seed 7 --loss 0.1 --crashes 3 --log run/     then: seriatim audit run/
      seriatim simulate --seed 3 --protocol paper000                   the published algorithm gets stuck

    \b
    Exit code: 0 nothing wrong was seen, 1 something was, 2 wrong options or it could not be done,
               130 interrupted (what was seen so far is printed).
    """
    if folder is not None and runs > 1:
        raise InputError("--log", "holds the logs of one run", "leave out --runs")
    given = {name: value for name, value in chosen.items() if value is not None}
    options = Options(**given)
    failed = done = 0
    is_interrupted = False
    for number in range(seed, seed + runs):
        run = Simulation(draw(number, options), record_messages=messages)
        try:
            outcome = run.finish()
        except KeyboardInterrupt:
            is_interrupted = True
            outcome = run.outcome()
        _show(outcome, _replay(number, given), as_json, brief=runs > 1, is_interrupted=is_interrupted)
        if folder is not None:
            write_history(outcome.history, folder)
        failed += not outcome.is_fine and not is_interrupted
        if is_interrupted:
            break
        done += 1
        if runs > 1:
            show_progress(f"{done:,} of {runs:,} runs, {failed:,} with violations", stays=done == runs)
    if runs > 1 and not as_json:
        click.echo(f"{done:,} runs, seeds {seed} to {seed + done - 1}: {failed:,} with violations")
    sys.exit(EXIT_INTERRUPTED if is_interrupted else EXIT_CHECK_FAILED if failed else 0)


def _show(outcome: Outcome, replay: str, as_json: bool, brief: bool, is_interrupted: bool) -> None:
    if as_json:
        show_json(_as_json(outcome, replay, is_interrupted))
    elif not brief or not (outcome.is_fine or is_interrupted):
        click.echo("\n".join(_as_text(outcome, replay, is_interrupted)))


def _as_text(outcome: Outcome, replay: str, is_interrupted: bool) -> list[str]:
    scenario, counts, history = outcome.scenario, outcome.counts, outcome.history
    kind = f"{scenario.protocol}, {scenario.mode} mode" if scenario.protocol == "tree" else scenario.protocol
    lines = [
        f"seed {scenario.seed}: {kind}, {scenario.broker} broker, {scenario.delay} delays, loss {scenario.loss}",
        f"  {many(len(scenario.parents), 'node')}, {many(len(scenario.homes), 'topic')}, "
        f"{many(len(scenario.publishers), 'publisher')}, {many(len(scenario.subscribers), 'subscriber')}",
        f"  {len(history.publications)} events, {len(history.deliveries)} notifications, {counts.sent} messages "
        f"({counts.lost} lost), {counts.crashes} crashes, {counts.fenced} fenced",
    ]
    if is_interrupted:
        return [*lines, "  interrupted: nothing can be said about what has not arrived yet"]
    if outcome.complete_at_ms is not None:
        waited_ms = outcome.complete_at_ms - outcome.healed_at_ms
        lines.append(f"  everything owed had arrived {waited_ms:.0f} ms after the faults ended")
    wrong = [f"{violation.kind}: {violation.sentence}" for violation in outcome.violations]
    wrong += [f"missing: {sentence}" for sentence in outcome.missing]
    lines += [f"  {line}" for line in wrong[:SHOWN_MAX]]
    if len(wrong) > SHOWN_MAX:
        lines.append(f"  and {len(wrong) - SHOWN_MAX} more (--json shows all)")
    lines.append("  no violation was seen" if outcome.is_fine else f"  replay: {replay}")
    return lines


def _as_json(outcome: Outcome, replay: str, is_interrupted: bool) -> dict[str, Any]:
    return {
        "seed": outcome.scenario.seed,
        "fine": outcome.is_fine and not is_interrupted,
        "interrupted": is_interrupted,
        "violations": [structs.asdict(violation) for violation in outcome.violations],
        "missing": list(outcome.missing),
        "events": len(outcome.history.publications),
        "notifications": len(outcome.history.deliveries),
        "counts": structs.asdict(outcome.counts),
        "healed_at_ms": outcome.healed_at_ms,
        "complete_at_ms": outcome.complete_at_ms,
        "replay": replay,
    }


def _replay(seed: int, given: dict[str, Any]) -> str:
    """The line that runs this world again."""
    words = ["seriatim simulate", f"--seed {seed}"]
    for name, value in given.items():
        if name == "own_order":
            words.append("--own-order" if value else "--no-own-order")
        elif (name, value) != ("protocol", "tree"):
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(words)
