"""The command line: `seriatim <command>`. Each command lives in its own module and is imported only when called.

Exit codes, the same for every command: 0 fine, 1 a check failed or the work could not be done, 2 bad input or usage,
3 the answer is unknown or incomplete (a bounded wait is over), 130 interrupted. Commands that judge (JUDGES) exit
with 1 only if something was found, and with 2 if they could not run: no job mistakes a missing Java for a violation.

Errors are one line on stderr: `Error: …`, or with --json an object, {"error": "…"}, also those of wrong options.
"""

import json
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import IO, Any

import click

from seriatim.model import InputError, SeriatimError, TimedOut

GROUPS = {
    "First steps": {
        "demo": "See subscribers disagree, and the same events ordered.",
        "up": "Start a NATS server and a sequencer, ready to use.",
        "pub": "Publish events.",
        "sub": "Subscribe to topics and print events in their order.",
    },
    "Running it": {
        "serve": "Run sequencer nodes of a cluster.",
        "peer": "Run one peer, without a broker.",
        "broker": "Run one broker of an overlay that filters by content.",
        "status": "Show the nodes of a running cluster.",
        "explain": "Show what waits for what in a running cluster.",
        "move": "Move a topic to another node, while events flow.",
        "apply": "Bring a running cluster to a plan, while events flow.",
        "node": "List the nodes of a cluster; add and remove some.",
        "standby": "Add and remove standbys of a node.",
        "layout": "Print the file of a cluster, as the cluster is now.",
        "topics": "List the topics of a cluster; add and remove them.",
        "durables": "List durable subscriptions and how far they are; remove them.",
        "accept": "Accept that the stream of a topic was deleted on purpose.",
        "order": "Print the order log: one order of all events.",
        "backup": "Copy journals and streams; say what a copy is good for.",
        "restore": "Put a backup back, if it may be used.",
        "bench": "Load a broker: events per second, and how late they are notified.",
    },
    "Logs and archives": {
        "audit": "Check delivery logs: was the order kept?",
        "report": "Make one page of runs, experiments and plans.",
        "archive": "Archive what is on the broker as Parquet, each row exactly once.",
        "replay": "Replay an archive: what a subscriber saw, or would have seen.",
        "plan": "Choose the tree and the homes of topics; show costs.",
        "pipeline": "Write a Spark Declarative Pipeline that keeps a log audited.",
        "workload": "Make up subscriptions, publications or deliveries, of any size.",
    },
    "Protocols under test": {
        "simulate": "Run a protocol in a simulated network.",
        "explore": "Try every interleaving of a small world, or many random ones.",
        "reproduce": "Run the papers' experiments: theirs and ours side by side.",
        "sweep": "Run a table of experiments on Spark.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
JUDGES = frozenset({"audit", "backup", "demo", "explore", "plan", "reproduce", "simulate", "sweep"})
FAILED, BAD_INPUT, UNDONE, UNKNOWN, INTERRUPTED = 1, 2, 2, 3, 130


class Failed(click.ClickException):
    """An error on its way to the terminal: one line that begins with `Error:`, or the text alone if it `is_plain`."""

    def __init__(self, message: str, exit_code: int, is_plain: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for each class, and reads it here
        self.is_plain = is_plain

    def show(self, file: IO[Any] | None = None) -> None:
        if self.is_plain:
            click.echo(self.message, file=file, err=True, nl=bool(self.message))
        else:
            super().show(file)


class LazyGroup(click.Group):
    """Lists commands from GROUPS, and imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

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

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **more: Any,
    ) -> Any:
        """As click does it, but with --json every error is JSON, also errors that click finds."""
        words = sys.argv[1:] if args is None else args
        if not standalone_mode or "--json" not in words[: words.index("--") if "--" in words else None]:
            return super().main(args, prog_name, complete_var, standalone_mode=standalone_mode, **more)
        if args is None:  # a process of its own: also what the library has to say
            from seriatim.runtime.logs import configure_logging

            configure_logging(json=True, level="WARNING")
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **more)
        except click.ClickException as error:
            click.echo(json.dumps({"error": error.format_message()}, ensure_ascii=False), err=True)
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Failed("Interrupted.", INTERRUPTED, is_plain=True) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            is_judge = ctx.invoked_subcommand in JUDGES
            if (failed := _failed(error, UNDONE if is_judge else FAILED)) is not None:
                raise failed from error
            if is_judge:
                raise _unexpected(error) from error
            raise


def _failed(error: Exception, undone: int) -> Failed | None:
    """An error of ours or of Spark, with its exit code; None for an unexpected one."""
    match error:
        case InputError():
            return Failed(str(error), BAD_INPUT)
        case TimedOut():
            return Failed(str(error), UNKNOWN)
        case SeriatimError():
            return Failed(str(error), undone)
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        return None
    from seriatim.pipeline.spark.unreadable import damage, of_worker

    if (unreadable := damage(error)) is not None:
        return Failed(unreadable, BAD_INPUT)
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error).strip()
    if (said := of_worker(text)) is not None:
        return Failed(f"Spark: a Python worker failed: {said}", undone)
    return Failed(f"Spark: {text.splitlines()[0] if text else type(error).__name__}", undone)


def _unexpected(error: Exception) -> Failed:
    """An error as Python shows it, of a command whose exit code 1 is an answer: only the exit code is ours."""
    if isinstance(error, BrokenPipeError):
        return Failed("", UNDONE, is_plain=True)  # nobody reads on: no fault of ours
    return Failed("".join(traceback.format_exception(error)).rstrip("\n"), UNDONE, is_plain=True)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="seriatim")
def main() -> None:
    """Every subscriber sees the same events in the same order, across topics, and you can prove it from the logs.

    \b
    Start with:
      seriatim demo
      seriatim up
      seriatim COMMAND --help
    """
