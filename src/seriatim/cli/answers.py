"""What `seriatim status` and `seriatim explain` print about the processes they asked."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

import click

from seriatim.cli.common import show_json
from seriatim.cli.tables import table
from seriatim.runtime.net.system import SystemReport

EXIT_SILENT = 1

Name = TypeVar("Name", str, int)
Report = TypeVar("Report", bound=SystemReport)
Files: TypeAlias = Mapping[str, str | None]  # tokens and certificates, as options
Asked: TypeAlias = tuple[Name, str, Report | str]  # who, its address, its report or why there is none


def show_rows(
    headings: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str], as_json: bool
) -> None:
    """One line for each process."""
    if as_json:
        for row in rows:
            show_json(dict(zip(headings, row, strict=True)))
    else:
        for line in table(headings, rows, colours):
            click.echo(line)


def show_waits(kind: str, name: str | int, title: str, waits: Sequence[str], left_out: int, as_json: bool) -> None:
    """What one process waits for; `kind` is the key of its name in JSON, `title` what people read."""
    lines = [*waits, f"and {left_out:,} more"] if left_out else waits
    if as_json:
        for line in lines:
            show_json({kind: name, "waits": line})
    else:
        for line in lines or ["nothing waits"]:
            click.echo(f"{title}: {line}")


def explain_answers(kind: str, answers: Sequence[Asked[Name, Report]], as_json: bool) -> int:
    """Show what each process waits for. The exit code is 0 if all have answered."""
    for name, _, report in answers:
        title = f"{kind} {name}" if isinstance(name, int) else name
        if isinstance(report, str):
            show_waits(kind, name, title, [report], 0, as_json)
        else:
            show_waits(kind, name, title, report.waits, report.left_out, as_json)
    return exit_code(answers)


def exit_code(answers: Sequence[Asked[Name, Report]]) -> int:
    """The exit code: 0 if all have answered."""
    return EXIT_SILENT if any(isinstance(report, str) for _, _, report in answers) else 0
