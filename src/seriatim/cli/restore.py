"""`seriatim restore`: put a backup back, as far as it is good for that."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from seriatim.backup.manifest import read_manifest
from seriatim.backup.restoring import PutBack, put_back
from seriatim.cli.backups import BackupOptions, backup_options, targets_of
from seriatim.cli.common import json_option, many, notice, run_until_interrupted, show_json
from seriatim.model import InputError


@click.command
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), metavar="FOLDER", help="Put one journal into this new folder.")
@backup_options(
    of_nodes="Put this node's journal back; may be repeated. [default: all]",
    of_durables="Put this durable subscription's journal back.",
    of_streams="Also put back the streams of the broker.",
)
@json_option
def command(folder: Path, to: Path | None, options: BackupOptions, as_json: bool) -> None:
    """Put a backup back: journals into the folders that cluster.toml names (or --to), or onto the broker.

    Every copy is checked first, as by `seriatim backup --check`. A copy is refused if it is damaged, or older than what
    the broker has seen, or if its process runs. A folder that is not empty is refused, too: move it away. A folder is
    put back whole or not at all; if the command is interrupted, run it again.

    With --streams everything that the broker kept is put back, too, if nothing of it is left. Then everything is as it
    was when the backup was made, and everything later is lost.

    \b
    Examples:
      seriatim restore /backup/eu --config cluster.toml
      seriatim restore /backup/eu --node eu --to /var/lib/seriatim/eu --url nats://broker:4222
      seriatim restore /backup/everything --config cluster.toml --streams
      seriatim restore /backup/billing --durable billing --journals state

    \b
    Exit code: 0 put back, 1 refused or not done, 2 wrong options or not a backup, 130 interrupted.
    """
    manifest = read_manifest(folder)
    place, with_streams = options.access, options.with_streams
    place.must_be_of(manifest)
    if with_streams and not manifest.parts:
        raise InputError("--streams", "this backup has journals only", "leave it out, or use one made with --streams")

    async def work() -> PutBack:
        async with place.opened(is_needed=with_streams or not place.is_offline) as broker:
            targets = targets_of(place, broker, manifest, options.nodes, options.durables, options.journals, to)
            return await put_back(folder, manifest, targets, broker, not_asked=place.not_asked, with_parts=with_streams)

    done = run_until_interrupted(work)
    for what in done.there:
        _say({"there": what}, f"{what}: there already", as_json)
    if done.parts:
        _say({"streams": done.parts}, f"{many(len(done.parts), 'stream')} put back", as_json)
    for kept, verdict in done.journals:
        row = {"journal": kept.what, "is": verdict.word, "why": verdict.text}
        _say(row, f"{kept.what}: put back; {verdict.word}: {verdict.text}", as_json)
    if done.journals and os.geteuid() == 0:
        notice("the restored files belong to root: give them to the user that runs the process (chown -R)")


def _say(row: Mapping[str, object], text: str, as_json: bool) -> None:
    if as_json:
        show_json(row)
    else:
        click.echo(text)
