"""`seriatim explore`: try every interleaving of a small world, or walk through many random ones."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from seriatim.explore.atoms_variants import ATOMS_VARIANTS, atoms_cast_of
from seriatim.explore.atoms_worlds import named_atoms_world, named_atoms_worlds
from seriatim.explore.checks import Violation
from seriatim.explore.overlay_variants import OVERLAY_VARIANTS, overlay_cast_of
from seriatim.explore.overlay_worlds import named_overlay_world, named_overlay_worlds
from seriatim.explore.search import Search, SearchOptions, SearchResult
from seriatim.explore.space import Space
from seriatim.explore.swarm import PROTOCOLS, Plan, Swarm, SwarmOptions, SwarmResult, walk_world
from seriatim.explore.trace import shrink, transcript
from seriatim.explore.variants import VARIANTS, cast_of
from seriatim.explore.vcube_variants import VCUBE_VARIANTS, peer_of
from seriatim.explore.vcube_worlds import named_peer_world, named_peer_worlds
from seriatim.explore.world import Transition, World
from seriatim.explore.worlds import named_world, named_worlds

VIOLATION, INCOMPLETE, INTERRUPTED = 1, 3, 130


@click.group()
def command() -> None:
    """Look for an interleaving that breaks a promise.

    \b
    Checked are: same order for all subscribers (TNO), nothing twice, nothing lost, nobody waits for ever;
    in causal worlds also cause before effect. Of VCube-PS (vcube): cause before effect, and the rest but TNO.
    Of sequencing atoms (atoms): the same as of the tree. Of the content-based overlay (overlay): the same, each
    publisher's own order, and numbers without holes under every filter.

    \b
    Examples:
      seriatim explore tree --list
      seriatim explore tree --world pair
      seriatim explore vcube --world join
      seriatim explore atoms --world retire
      seriatim explore overlay --world pair
      seriatim explore swarm --worlds 1000 --seed 7
      seriatim explore swarm --protocol vcube
      seriatim explore swarm --variant no-closing     (machines broken on purpose: must be caught)

    \b
    Exit code: 0 nothing found and everything covered, 1 a violation, 2 bad input or it could not be done,
    3 ended at a bound, 130 interrupted (what was covered until then is reported).
    """


def _search_options(run: Callable[..., None]) -> Callable[..., None]:
    """The options of a search, the same for every protocol."""
    for option in reversed(
        [
            click.option("--world", metavar="NAME", help="Which world to search; see --list."),
            click.option("--list", "list_worlds", is_flag=True, help="List the worlds and stop."),
            click.option("--variant", metavar="NAME", help="Play it with machines that break one rule."),
            click.option("--max-states", type=int, help="Stop after this many states, and say so."),
            click.option("--max-seconds", type=float, help="Stop after this time, and say so."),
            click.option("--no-persistent-sets", is_flag=True, help="Do not leave out states."),
            click.option("--no-sleep-sets", is_flag=True, help="Do not leave out transitions."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
        ]
    ):
        run = option(run)
    return run


@command.command()
@_search_options
def tree(**options: Any) -> None:
    """Try every interleaving of a small world of sequencing-tree machines.

    \b
    Example: seriatim explore tree --world move
    """
    _search("tree", named_worlds(), lambda world, variant: named_world(world).build(cast_of(variant)), **options)


@command.command()
@_search_options
def vcube(**options: Any) -> None:
    """Try every interleaving of a small world of VCube-PS peers.

    \b
    Example: seriatim explore vcube --world join
    """
    peers = named_peer_worlds()
    _search("vcube", peers, lambda world, variant: named_peer_world(world).build(peer_of(variant)), **options)


@command.command()
@_search_options
def atoms(**options: Any) -> None:
    """Try every interleaving of a small world of sequencing atoms.

    \b
    Example: seriatim explore atoms --world retire
    """
    worlds = named_atoms_worlds()
    _search("atoms", worlds, lambda world, cast: named_atoms_world(world).build(atoms_cast_of(cast)), **options)


@command.command()
@_search_options
def overlay(**options: Any) -> None:
    """Try every interleaving of a small world of content-based brokers.

    \b
    Example: seriatim explore overlay --world pair
    """
    worlds = named_overlay_worlds()
    _search("overlay", worlds, lambda world, cast: named_overlay_world(world).build(overlay_cast_of(cast)), **options)


def _search(
    protocol: str,
    worlds: Mapping[str, Plan],
    build: Callable[[str, str | None], World],
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
        _print_worlds(worlds, as_json)
        if not list_worlds:
            raise click.UsageError("name a world with --world")
        return
    built = build(world, variant)
    options = SearchOptions(not no_persistent_sets, not no_sleep_sets, max_states, max_seconds)
    search = Search(Space(built), options, _progress(_search_line))
    interrupted = _run_or_interrupt(search.run)
    result = search.result
    replayed = f"seriatim explore {protocol} --world {world}" + (f" --variant {variant}" if variant else "")
    violation, way = next(iter(result.violations.items()), (None, []))
    found = None if violation is None else _finding(built, violation, way, replayed)
    summary = {
        "world": world,
        "variant": variant,
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "stopped_states": result.stopped_states,
        "cycles": result.cycles,
        "seconds": round(result.seconds, 3),
        "exhausted": result.exhausted,
        "bound": result.bound,
    }
    _print(summary, found, as_json, _search_text(world, result))
    _exit(found is not None, interrupted, result.exhausted)


@command.command()
@click.option("--worlds", type=int, default=1000, show_default=True, help="How many worlds to walk.")
@click.option("--seed", type=int, default=1, show_default=True, help="Which worlds.")
@click.option("--world", type=int, metavar="K", help="Only world K of this seed, with its transcript if it is broken.")
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="tree",
    show_default=True,
    help="Whose worlds: of the sequencing tree, of VCube-PS, of sequencing atoms, or of the overlay.",
)
@click.option("--processes", type=int, default=1, show_default=True, help="How many processes share the work.")
@click.option("--variant", metavar="NAME", help="Walk with machines that break one rule; see --list-variants.")
@click.option("--list-variants", is_flag=True, help="List the variants and stop.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first violation.")
@click.option("--max-seconds", type=float, help="Stop after this time, and say so.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
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
    """Walk at random through random worlds: trees, peers, atoms or overlays, changes, crashes, lost messages.

    World K of a seed is always the same, so one that is broken can be looked at alone.

    \b
    Examples:
      seriatim explore swarm --seed 7 --world 123
      seriatim explore swarm --protocol vcube --worlds 1000
    """
    if list_variants:
        _print_variants(protocol, as_json)
        return
    first, count = (0, worlds) if world is None else (world, 1)
    options = SwarmOptions(count, seed, first, processes, variant, not keep_going, max_seconds, protocol)
    walk = Swarm(options, _progress(_swarm_line))
    interrupted = _run_or_interrupt(walk.run)
    result = walk.result
    found = None
    if (broken := result.first_broken) is not None:
        walked = walk_world(seed, broken.index, variant, protocol)
        replayed = f"seriatim explore swarm --seed {seed} --world {broken.index}"
        replayed += f" --protocol {protocol}" if protocol != "tree" else ""
        replayed += f" --variant {variant}" if variant else ""
        found = _finding(walked.world, broken.violation, walked.way, replayed)
    summary = {
        "protocol": protocol,
        "seed": seed,
        "variant": variant,
        "worlds": result.worlds,
        "steps": result.steps,
        "notifications": result.notifications,
        "seconds": round(result.seconds, 3),
        "bound": result.bound,
        "broken": [each.index for each in result.broken],
    }
    _print(summary, found, as_json, _swarm_text(seed, result))
    _exit(found is not None, interrupted, result.bound is None)


def _run_or_interrupt(run: Callable[[], Any]) -> bool:
    """Whether it was interrupted: then its result is as far as it came."""
    try:
        run()
    except KeyboardInterrupt:
        return True
    return False


def _exit(broken: bool, interrupted: bool, complete: bool) -> None:
    if interrupted:
        sys.exit(INTERRUPTED)
    if broken:
        sys.exit(VIOLATION)
    if not complete:
        sys.exit(INCOMPLETE)


def _finding(world: World, violation: Violation, way: list[Transition], replayed: str) -> dict[str, Any]:
    """The violation, as short as it can be told."""
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
        click.echo(json.dumps({**summary, "violation": found}, ensure_ascii=False))
        return
    for line in text:
        click.echo(line)
    if found is not None:
        click.echo(f"violation: {found['kind']}: {found['sentence']}")
        for line in found["transcript"]:
            click.echo(f"  {line}")
        click.echo(f"replay: {found['replay']}")


def _search_text(world: str, result: SearchResult) -> list[str]:
    covered = "every interleaving" if result.exhausted else f"not exhausted ({result.bound})"
    lines = [
        f"world {world}: {covered}",
        f"  {result.states:,} states, {result.transitions:,} transitions, depth {result.depth}, "
        f"{result.stopped_states:,} states at rest",
        f"  {result.seconds:.1f} s, {result.transitions_per_second:,.0f} transitions per second",
    ]
    if result.cycles:
        lines.append(f"  {result.cycles:,} cycles: runs that never come to rest were not checked for what is owed")
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


def _search_line(result: SearchResult) -> str:
    return f"{result.states:,} states, {result.transitions:,} transitions, {result.seconds:.0f} s"


def _swarm_line(result: SwarmResult) -> str:
    return f"{result.worlds:,} worlds, {len(result.broken)} broken, {result.seconds:.0f} s"


def _progress(line: Callable[[Any], str]) -> Callable[[Any], None] | None:
    """Tells on a terminal how far it is; says nothing in a pipe."""
    if not sys.stderr.isatty():
        return None
    return lambda result: click.echo(f"\r\033[K{line(result)}", nl=False, err=True)


def _print_worlds(worlds: Mapping[str, Plan], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({name: world.about for name, world in worlds.items()}))
        return
    for name, world in worlds.items():
        click.echo(f"{name:24} {world.about}")


def _print_variants(protocol: str, as_json: bool) -> None:
    variants: dict[str, Mapping[str, tuple[str, Any]]]
    variants = {"tree": VARIANTS, "vcube": VCUBE_VARIANTS, "atoms": ATOMS_VARIANTS, "overlay": OVERLAY_VARIANTS}
    known = variants[protocol]
    if as_json:
        click.echo(json.dumps({name: about for name, (about, _) in known.items()}))
        return
    for name, (about, _) in known.items():
        click.echo(f"{name:24} {about}")
