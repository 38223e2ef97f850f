"""`seriatim backup`: copies of journals and of what the broker keeps, and what such a copy is good for."""

import sys
from pathlib import Path

import click

from seriatim import __version__
from seriatim.backup.judging import GOOD, Verdict
from seriatim.backup.making import Made, make
from seriatim.backup.manifest import KeptJournal, Manifest, read_manifest
from seriatim.backup.restoring import judged
from seriatim.cli.backups import BackupOptions, ClusterAccess, backup_options, sources_of
from seriatim.cli.common import json_option, many, notice, run_until_interrupted, show_json
from seriatim.cli.status import _bytes as in_bytes
from seriatim.model import InputError

EXIT_BAD, EXIT_UNKNOWN = 1, 3


@click.command
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="Make the backup here: a new folder.")
@click.option("--check", type=click.Path(path_type=Path), metavar="DIR", help="Say what this backup is good for.")
@backup_options(
    of_nodes="Copy this node's journal; may be repeated. [default: all on this machine]",
    of_durables="Copy this durable subscription's journal.",
    of_streams="Also copy all that the broker keeps; stop all nodes first.",
)
@json_option
def command(to: Path | None, check: Path | None, options: BackupOptions, as_json: bool) -> None:
    """Copy journals, and say whether the copies may be used.

    --to copies the journals of the nodes of cluster.toml (or of the brokers of overlay.toml) that are on this machine,
    those on the broker, and with --durable those of durable subscriptions. A node may run meanwhile: its copy then
    holds the records up to some point, and is older as soon as the node writes the next one. A node can never continue
    from an older copy.

    With --streams the backup also has all that the broker keeps of the cluster, and its nodes must be stopped. After
    `seriatim restore --streams` everything is as it was then.

    --check compares digests, reads every record, and asks the broker what has happened since:

    \b
      newest    the process can be started with it, on any machine
      running   the process is running: do not use the copy beside it
      older     the process can never continue from it, and refuses it at the start
      damaged   a file is missing or changed, or cannot be read
      unknown   undamaged, but nobody could be asked, or nobody knows

    \b
    Examples:
      seriatim backup --config cluster.toml --node eu --to /backup/eu
      seriatim backup --config cluster.toml --streams --to /backup/everything
      seriatim backup --durable billing --journals state --to /backup/billing
      seriatim backup --check /backup/eu --config cluster.toml

    \b
    Exit code: 0 copied; with --check: every copy is the newest (or, with streams, whole).
               1 a copy is older, damaged, or its process runs; 2 it could not be done; 3 unknown; 130 interrupted.
    """
    if (to is None) == (check is None):
        raise InputError("--to, --check", "one of both is needed", "make a backup, or check one")
    place = options.access
    if check is not None:
        if options.nodes or options.durables or options.journals or options.with_streams:
            raise InputError("--check", "it checks the whole backup", "leave out the options that say what to copy")
        sys.exit(_check(check, place, as_json))
    assert to is not None, "checked above"
    made = run_until_interrupted(lambda: _make(place, to, options))
    manifest = made.manifest
    for kept, verdict in zip(manifest.journals, made.verdicts, strict=True):
        _show(kept, verdict, as_json)
    _show_rest(manifest, as_json, to)


async def _make(place: ClusterAccess, to: Path, options: BackupOptions) -> Made:
    nodes, durables, journals, with_streams, *_ = options
    async with place.opened(is_needed=with_streams) as broker:
        sources, away = await sources_of(place, broker, nodes, durables, journals, everything=with_streams)
        for text in away:
            notice(text)
        if not sources and not with_streams:
            raise InputError("--config", "no journal that it names is on this machine", "run this where the nodes run")
        return await make(
            sources,
            to,
            cluster=place.cluster,
            broker=broker,
            program=__version__,
            not_asked=place.not_asked,
            with_parts=with_streams,
        )


def _check(folder: Path, place: ClusterAccess, as_json: bool) -> int:
    manifest = read_manifest(folder)
    place.must_be_of(manifest)

    async def work() -> list[Verdict]:
        async with place.opened(is_needed=not place.is_offline) as broker:
            return await judged(folder, manifest, broker, place.not_asked)

    verdicts = run_until_interrupted(work)
    for kept, verdict in zip(manifest.journals, verdicts, strict=True):
        _show(kept, verdict, as_json)
    _show_rest(manifest, as_json)
    words = {verdict.word for verdict in verdicts}
    if "damaged" in words:
        return EXIT_BAD
    if manifest.parts or words <= GOOD:
        return 0
    return EXIT_UNKNOWN if words <= GOOD | {"unknown"} else EXIT_BAD


def _show(kept: KeptJournal, verdict: Verdict, as_json: bool) -> None:
    if as_json:
        row = {"journal": kept.what, "epoch": kept.epoch, "records": kept.records, "bytes": kept.bytes}
        show_json({**row, "holder": kept.holder, "taken_at": kept.taken_at, "is": verdict.word, "why": verdict.text})
        return
    unit = "acknowledged messages" if kept.system == "durable" else "records"
    ran = f", while it ran ({kept.holder})" if kept.holder else ""
    click.echo(
        f"{kept.what}: {kept.records:,} {unit}, epoch {kept.epoch}, {in_bytes(kept.bytes)}, {kept.taken_at}{ran}"
    )
    click.echo(f"  {verdict.word}: {verdict.text}")


def _show_rest(manifest: Manifest, as_json: bool, made: Path | None = None) -> None:
    """What the streams are good for, and where a new backup is."""
    parts = manifest.parts
    if parts:
        messages, size = sum(each.part.messages for each in parts), sum(each.file.bytes for each in parts)
        if as_json:
            show_json({"streams": len(parts), "messages": messages, "bytes": size, "missing": manifest.missing})
        else:
            click.echo(
                f"{many(len(parts), 'stream')}: {many(messages, 'message')}, {in_bytes(size)}, {manifest.made_at}"
            )
            text = "for a broker that has lost its streams: put back with all journals, everything is as it was then"
            click.echo(f"  {text}")
            if manifest.missing:
                names = ", ".join(manifest.missing)
                click.echo(f"  not in it: the journals of {names}; copy them on their machines before they start again")
    if made is not None and as_json:
        show_json({"backup": str(made)})
    elif made is not None:
        click.echo(f"backup: {made}")
