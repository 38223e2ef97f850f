"""`seriatim explore`: try every interleaving of a small world, or walk through many random ones."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from seriatim.cli.common import show_json, show_progress
from seriatim.lab.explore.engine.checks import Violation
from seriatim.lab.explore.engine.plan import Explorable
from seriatim.lab.explore.engine.search import Search, SearchOptions, SearchResult
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.engine.trace import shrink, transcript
from seriatim.lab.explore.engine.world import Transition, World
from seriatim.lab.explore.registry import PROTOCOLS
from seriatim.lab.explore.swarm import Swarm, SwarmOptions, SwarmResult, walk_world

VIOLATION, INCOMPLETE, INTERRUPTED = 1, 3, 130


@click.group()
def command() -> None:
    """Look for an interleaving that breaks a promise.

    \b
    What is checked:
      tree     one order fits what everybody sees (pairwise worlds: what any two see), nothing comes twice,
               nothing is lost, nobody waits forever; reactions come after what they react to
      atoms    the same
      vcube    a cause comes before its effect; nothing comes twice, nothing is lost, nobody waits forever
      overlay  the same as tree, each publisher's own order, and numbers without holes under every filter

    \b
    Examples:
      seriatim explore tree --list
      seriatim explore tree --world pair
      seriatim explore vcube --world join
      seriatim explore atoms --world retire
      seriatim explore overlay --world pair
      seriatim explore swarm --worlds 1000 --seed 7
      seriatim explore swarm --protocol vcube
      seriatim explore swarm --variant no-closing     (machines that break a rule: must be caught)

    \b
    Exit code: 0 everything was covered and nothing found, 1 a violation, 2 bad input or a failure to run,
    3 stopped at a bound, 130 interrupted (the result so far is reported).
    """


_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")


def _search_command(protocol: Explorable[Any]) -> click.Command:
    """`seriatim explore PROTOCOL`: the same for every protocol."""
    about = f"Try every interleaving of a small world of {protocol.machines}."
    example = f"Example: seriatim explore {protocol.name} --world {protocol.example}"

    @click.command(protocol.name, help=f"{about}\n\n\b\n{example}")
    @click.option("--world", metavar="NAME", help="Which world to search; see --list.")
    @click.option("--list", "list_worlds", is_flag=True, help="List the worlds and stop.")
    @click.option("--variant", metavar="NAME", help="Use machines that break one rule.")
    @click.option("--max-states", type=int, help="Stop after this many states, and say so.")
    @click.option("--max-seconds", type=float, help="Stop after this time, and say so.")
    @click.option("--no-persistent-sets", is_flag=True, help="Do not leave out states.")
    @click.option("--no-sleep-sets", is_flag=True, help="Do not leave out transitions.")
    @_json_option
    def search(
        world: str | None,
        list_worlds: bool,
        variant: str | None,
        max_states: int | None,
        max_seconds: float | None,
        no_persistent_sets: bool,
        no_sleep_sets: bool,
        as_json: bool,
    ) -> None:
        if list_worlds or world is None:
            _print_names({name: plan.about for name, plan in protocol.worlds.items()}, as_json)
            if not list_worlds:
                raise click.UsageError("name a world with --world")
            return
        built = protocol.world(world).build(protocol.cast(variant))
        options = SearchOptions(not no_persistent_sets, not no_sleep_sets, max_states, max_seconds)
        run = Search(Space(built), options, _show_search)
        interrupted = _run_or_interrupt(run.run)
        result = run.result
        replayed = f"seriatim explore {protocol.name} --world {world}" + (f" --variant {variant}" if variant else "")
        violation, way = next(iter(result.violations.items()), (None, []))
        found = None if violation is None else _finding(built, violation, way, replayed)
        fields = ("states", "transitions", "depth", "stopped_states", "cycles", "seconds", "exhausted", "bound")
        summary = {"world": world, "variant": variant, **_fields(result, fields)}
        _print(summary, found, as_json, _search_text(world, result))
        sys.exit(_exit_code(found is not None, interrupted, result.exhausted))

    return search


for _each in PROTOCOLS.values():
    command.add_command(_search_command(_each))


@command.command()
@click.option("--worlds", type=int, default=1000, help="How many worlds to walk.")
@click.option("--seed", type=int, default=1, help="The seed of the worlds.")
@click.option("--world", type=int, metavar="K", help="Only world K of this seed; prints a transcript if it is broken.")
@click.option("--protocol", type=click.Choice(list(PROTOCOLS)), default="tree", help="Which protocol's worlds.")
@click.option("--processes", type=int, default=1, help="How many processes share the work.")
@click.option("--variant", metavar="NAME", help="Walk with machines that break one rule; see --list-variants.")
@click.option("--list-variants", is_flag=True, help="List the variants and stop.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first violation.")
@click.option("--max-seconds", type=float, help="Stop after this time, and say so.")
@_json_option
def swarm(
    worlds: int,
    seed: int,
    world: int | None,
    protocol: str,
    processes: int,
    variant: str | None,
    list_variants: bool,
    keep_going: bool,
    max_seconds: float | None,
    as_json: bool,
) -> None:
    """Walk at random through random worlds, with changes, crashes and lost messages.

    World K of a seed is always the same, so a broken one can be run alone.

    \b
    Examples:
      seriatim explore swarm --seed 7 --world 123
      seriatim explore swarm --protocol vcube --worlds 1000
    """
    if list_variants:
        _print_names({name: about for name, (about, _) in PROTOCOLS[protocol].variants.items()}, as_json)
        return
    first, count = (0, worlds) if world is None else (world, 1)
    options = SwarmOptions(count, seed, first, processes, variant, not keep_going, max_seconds, protocol)
    walk = Swarm(options, _show_swarm)
    interrupted = _run_or_interrupt(walk.run)
    result = walk.result
    found = None
    if (broken := result.first_broken) is not None:
        walked = walk_world(seed, broken.index, variant, protocol)
        replayed = f"seriatim explore swarm --seed {seed} --world {broken.index}"
        replayed += f" --protocol {protocol}" if protocol != "tree" else ""
        replayed += f" --variant {variant}" if variant else ""
        found = _finding(walked.world, broken.violation, walked.way, replayed)
    summary = {"protocol": protocol, "seed": seed, "variant": variant}
    summary |= _fields(result, ("worlds", "steps", "notifications", "seconds", "bound"))
    summary["broken"] = [each.index for each in result.broken]
    _print(summary, found, as_json, _swarm_text(seed, result))
    sys.exit(_exit_code(found is not None, interrupted, result.bound is None))


def _run_or_interrupt(run: Callable[[], Any]) -> bool:
    """Whether it was interrupted. The result then holds what was done so far."""
    try:
        run()
    except KeyboardInterrupt:
        return True
    return False


def _exit_code(broken: bool, interrupted: bool, complete: bool) -> int:
    return INTERRUPTED if interrupted else VIOLATION if broken else 0 if complete else INCOMPLETE


def _fields(result: SearchResult | SwarmResult, names: Sequence[str]) -> dict[str, Any]:
    found = {name: getattr(result, name) for name in names}
    return found | {"seconds": round(result.seconds, 3)}


def _finding(world: World, violation: Violation, way: list[Transition], replayed: str) -> dict[str, Any]:
    """The violation, with the shortest way to it that was found."""
    short, shown = shrink(world, way, violation.kind)
    return {
        "kind": violation.kind,
        "sentence": (shown or violation).sentence,
        "steps": len(short),
        "transcript": transcript(world, short),
        "replay": replayed,
    }


def _print(summary: dict[str, Any], found: dict[str, Any] | None, as_json: bool, text: list[str]) -> None:
    if as_json:
        show_json({**summary, "violation": found})
        return
    if found is not None:
        text += [f"violation: {found['kind']}: {found['sentence']}"]
        text += [f"  {line}" for line in found["transcript"]]
        text += [f"replay: {found['replay']}"]
    click.echo("\n".join(text))


def _search_text(world: str, result: SearchResult) -> list[str]:
    covered = "every interleaving" if result.exhausted else f"not exhausted ({result.bound})"
    lines = [
        f"world {world}: {covered}",
        f"  {result.states:,} states, {result.transitions:,} transitions, depth {result.depth}, "
        f"{result.stopped_states:,} states at rest",
        f"  {result.seconds:.1f} s, {result.transitions_per_second:,.0f} transitions per second",
    ]
    if result.cycles:
        lines.append(f"  {result.cycles:,} cycles: runs that never come to rest were not checked for missing events")
    if not result.violations:
        lines.append("no violation found" + ("" if result.exhausted else " so far"))
    return lines


def _swarm_text(seed: int, result: SwarmResult) -> list[str]:
    rate = result.worlds / result.seconds if result.seconds else 0.0
    ended = f" ({result.bound})" if result.bound else ""
    lines = [
        f"{result.worlds:,} worlds of seed {seed}{ended}",
        f"  {result.steps:,} steps, {result.notifications:,} notifications, "
        f"{result.seconds:.1f} s, {rate:,.0f} worlds per second",
    ]
    if not result.broken:
        return [*lines, "no violation found"]
    indices = ", ".join(str(each.index) for each in result.broken[:20])
    return [*lines, f"broken worlds: {indices}{' …' if len(result.broken) > 20 else ''}"]


def _show_search(result: SearchResult) -> None:
    show_progress(f"{result.states:,} states, {result.transitions:,} transitions, {result.seconds:.0f} s")


def _show_swarm(result: SwarmResult) -> None:
    show_progress(f"{result.worlds:,} worlds, {len(result.broken)} broken, {result.seconds:.0f} s")


def _print_names(abouts: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        show_json(dict(abouts))
        return
    for name, about in abouts.items():
        click.echo(f"{name:24} {about}")
