"""The command line: `seriatim <command>`. Each command lives in its own module and is imported only when called.

Exit codes, the same for every command: 0 fine, 1 a check failed or the work could not be done, 2 bad input or usage,
3 the answer is unknown or incomplete (a bounded wait is over), 130 interrupted. Where 1 is an answer (JUDGES) it is
nothing else: a job that runs them must not take a machine without Java for a violation, so what could not be done is 2.

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
        "explain": "Say what waits for what in a running cluster.",
        "bench": "Load a broker: events per second, and how late they are notified.",
    },
    "Logs and archives": {
        "audit": "Check delivery logs: was the order kept?",
        "report": "Make one page of runs, experiments and plans.",
        "archive": "Archive what is on the broker as Parquet, each row exactly once.",
        "replay": "Replay an archive: what a subscriber saw, or would have seen.",
        "plan": "Choose the tree and the homes of topics; what couplings cost.",
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
JUDGES = frozenset({"audit", "demo", "explore", "plan", "reproduce", "simulate", "sweep"})
UNDONE = 2
INTERRUPTED = 130


class Failed(click.ClickException):
    """An error of ours on its way to the terminal, where it is one line."""

    exit_code = 1


class Undone(Failed):
    """What could not be done by a command whose exit code 1 is an answer."""

    exit_code = UNDONE


class Broken(Undone):
    """An error that nobody thought of, shown as Python shows it: only the exit code is ours."""

    def format_message(self) -> str:
        if isinstance(self.__cause__, BrokenPipeError):
            return ""  # nobody reads on: no fault of ours
        return "".join(traceback.format_exception(self.__cause__))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.format_message(), file=file, err=True, nl=False)


class BadInput(Failed):
    """An option, an argument or a file is wrong."""

    exit_code = 2


class Unknown(Failed):
    """A bounded wait is over, and nobody knows."""

    exit_code = 3


class Interrupted(Failed):
    """The user pressed Ctrl-C, which is not an error."""

    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__("Interrupted.")

    def show(self, file: IO[Any] | None = None) -> None:
        """Without the word `Error`."""
        click.echo(self.message, err=True)


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
        except InputError as error:
            raise BadInput(str(error)) from error
        except TimedOut as error:
            raise Unknown(str(error)) from error
        except SeriatimError as error:
            raise _failed(ctx, str(error)) from error
        except KeyboardInterrupt:
            raise Interrupted from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if (damage := damage_met_by_spark(error)) is not None:
                raise BadInput(damage) from error
            if (said := said_by_spark(error)) is not None:
                raise _failed(ctx, said) from error
            if ctx.invoked_subcommand in JUDGES:
                raise Broken(str(error)) from error
            raise


def _failed(ctx: click.Context, said: str) -> Failed:
    return Undone(said) if ctx.invoked_subcommand in JUDGES else Failed(said)


def is_of_spark(error: Exception) -> bool:
    """Whether Spark raised this error. Imports nothing of Spark, which may not be installed."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def damage_met_by_spark(error: Exception) -> str | None:
    """Which file it is that Spark could not read, if that is what went wrong."""
    if not is_of_spark(error):
        return None
    from seriatim.pipeline.spark.unreadable import damage

    return damage(error)


def said_by_spark(error: Exception) -> str | None:
    """What Spark could not do, in its own first line; None for an error that is not Spark's."""
    if not is_of_spark(error):
        return None
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error).strip()
    return f"Spark: {text.splitlines()[0] if text else type(error).__name__}"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="seriatim")
def main() -> None:
    """Every subscriber sees the same events in the same order, across topics, and you can prove it from the logs.

    \b
    Start with:
      seriatim demo
      seriatim up
      seriatim COMMAND --help
    """
