"""The command line: `seriatim <command>`. Each command lives in its own module and is imported only when called.

Exit codes, the same for every command: 0 fine, 1 a check failed, 2 bad input or usage, 3 the answer is unknown or
incomplete, 130 interrupted.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from seriatim.model import InputError

COMMANDS = {
    "audit": "Check delivery logs: was the order kept?",
    "demo": "See an unordered network disagree, and the same run ordered.",
    "explore": "Try every interleaving of a small world, or many random ones.",
    "simulate": "Run a protocol in a simulated network.",
}
INTERRUPTED = 130


class BadInput(click.ClickException):
    """An InputError on its way to the terminal."""

    exit_code = 2


class LazyGroup(click.Group):
    """Lists commands from COMMANDS and imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"seriatim.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(sorted(COMMANDS))}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise BadInput(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="seriatim")
def main() -> None:
    """Every subscriber sees the same events in the same order, across topics, and you can prove it from the logs.

    \b
    Start with:
      seriatim demo
      seriatim COMMAND --help
    """
