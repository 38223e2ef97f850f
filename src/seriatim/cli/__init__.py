"""The command line: `seriatim <command>`. Each command lives in its own module and is imported only when called."""

from importlib import import_module

import click

COMMANDS = {
    "audit": "Check delivery logs: was the order kept?",
    "demo": "See an unordered network disagree, and the same run ordered.",
    "explore": "Try every interleaving of a small world, or many random ones.",
    "simulate": "Run a protocol in a simulated network.",
}


class _LazyGroup(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"seriatim.cli.{name}").command
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="seriatim")
def main() -> None:
    """Every subscriber sees the same events in the same order, across topics, and you can prove it from the logs."""
